/* What Slurm's controller says, by `scontrol`: how long it waits when it stops a job, and whether a job still runs.
 * Where there is no scontrol, or it does not answer, nothing is known. */
#include "launch/checkup.h"
#include "launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS = 5 }; /* for an answer */

/* The word after `key` and "=" or " = " in the answer; empty: it is not there. */
static void read_word(const char *text, const char *key, char out[64]) {
    size_t n = strlen(key);
    *out = '\0';
    for (const char *at = text; at && !*out && (at = strstr(at, key)); at += n)
        if ((at == text || at[-1] == '\n' || at[-1] == ' ') && strchr(" =", at[n]))
            (void)sscanf(at + n, " = %63s", out);
}

/* The answer to `scontrol -o show WHAT NAME` is the caller's, also NULL. */
static char *ask(const char *what, const char *name) {
    char *text, *argv[] = {"scontrol", "-o", "show", (char *)(uintptr_t)what, (char *)(uintptr_t)name, NULL};
    (void)ndp_program_output(argv, SECONDS, &text);
    return text;
}

int ndp_slurm_kill_wait(void) {
    char *text = ask("config", NULL), word[64];
    read_word(text, "KillWait", word);
    free(text);
    return *word ? atoi(word) : -1;
}

ndp_status ndp_slurm_check_job(void) {
    static const char *const lives[] = {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "PENDING", "REQUEUED"};
    const char *id = getenv("SLURM_JOB_ID");
    char *text = id ? ask("job", id) : NULL, state[64];
    bool ended = text && strstr(text, "Invalid job id");
    read_word(text, "JobState", state);
    free(text);
    for (int i = 0; i < NDP_COUNT(lives) && *state; i++)
        if (strcmp(state, lives[i]) == 0)
            return NDP_OK;
    NDP_CHECK(!ended && !*state,
              "SLURM_JOB_ID is %s in the environment, and that job of Slurm %s%s: start the run with sbatch or salloc, "
              "or, for "
              "a run on this host or with a hostfile, unset SLURM_JOB_ID and the other variables of Slurm",
              id, *state ? "is " : "does not exist any more", state);
    return NDP_OK;
}
