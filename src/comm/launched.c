/* Launchers tell a process its rank by environment variables; each launcher has its own. */
#include "comm/launched.h"
#include "base/text.h"
#include "comm/node/shm_world.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A positive number in the environment, else 0 (a rank 0 is 0 either way). */
static int env_number(const char *name) {
    const char *text = getenv(name);
    if (!text || !*text)
        return 0;
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    return *end == '\0' && errno == 0 && n > 0 && n <= INT_MAX ? (int)n : 0;
}

bool ndp_launched_on_host(int *ranks) {
    ndp_shm_address a;
    if (!ndp_shm_address_read(getenv(NDP_WORLD), &a))
        return false;
    *ranks = a.ranks;
    return true;
}

/* Only variables that a launcher sets for each rank it starts. Slurm also sets SLURM_NTASKS in a batch script, which is
 * not a rank; SLURM_STEP_NUM_TASKS is set by srun. */
bool ndp_launched(int *ranks) {
    if (ndp_launched_on_host(ranks))
        return true;
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
    int n = 0;
    for (int i = 0; i < NDP_COUNT(sizes) && n == 0; i++)
        n = env_number(sizes[i]);
    if (n == 0 && getenv("SLURM_PROCID"))
        n = env_number("SLURM_STEP_NUM_TASKS");
    if (n == 0)
        return false;
    *ranks = n;
    return true;
}

bool ndp_launched_without_pmi(int *tasks) {
    static const char *const known[] = {"PMIX_",          "PMI_",           "PMI2_", "OMPI_COMM_WORLD_",
                                        "OMPI_MCA_pmix=", "MV2_COMM_WORLD_"};
    if (!getenv("SLURM_PROCID") || env_number("SLURM_STEP_NUM_TASKS") < 2)
        return false;
    for (char **e = environ; *e; e++)
        for (int i = 0; i < NDP_COUNT(known); i++)
            if (strncmp(*e, known[i], strlen(known[i])) == 0)
                return false;
    *tasks = env_number("SLURM_STEP_NUM_TASKS");
    return true;
}

bool ndp_launched_by_srun(int *tasks) {
    *tasks = getenv("SLURM_PROCID") ? env_number("SLURM_STEP_NUM_TASKS") : 0;
    return *tasks > 0 && !ndp_launched_on_host(&(int){0}) && !getenv("OMPI_COMM_WORLD_SIZE") &&
           !getenv("MV2_COMM_WORLD_SIZE");
}

static const char *const places[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"};

int ndp_launched_rank(void) {
    if (ndp_launched_on_host(&(int){0}))
        return env_number(NDP_RANK);
    for (int i = 0; i < NDP_COUNT(places); i++)
        if (getenv(places[i]))
            return env_number(places[i]);
    return 0;
}

/* ---- the ranks of a launcher ---- */

/* -1: no such process, or its environment cannot be read. */
static int rank_of_process(pid_t process) {
    char path[64], *text;
    size_t size;
    int rank = -1;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)process);
    if (ndp_file_read(path, &text, &size) != NDP_OK)
        return -1;
    for (size_t at = 0; at < size && rank < 0; at += strlen(text + at) + 1)
        for (int i = 0; i < NDP_COUNT(places); i++) {
            size_t n = strlen(places[i]);
            if (strncmp(text + at, places[i], n) == 0 && text[at + n] == '=')
                rank = atoi(text + at + n + 1);
        }
    free(text);
    return rank;
}

/* The children of one of the parent's threads. */
static int add_children(pid_t parent, const char *thread, ndp_sibling *out, int n, int most) {
    char path[96];
    int process;
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)parent, thread);
    FILE *f = fopen(path, "re");
    while (f && n < most && fscanf(f, "%d", &process) == 1) {
        out[n] = (ndp_sibling){rank_of_process(process), process};
        n += out[n].rank >= 0;
    }
    if (f)
        fclose(f);
    return n;
}

int ndp_launched_children(pid_t parent, ndp_sibling *out, int most) {
    char path[32];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    DIR *threads = opendir(path);
    for (struct dirent *e; threads && (e = readdir(threads));)
        if (e->d_name[0] != '.')
            n = add_children(parent, e->d_name, out, n, most);
    if (threads)
        closedir(threads);
    return n;
}
