/* The folders of checkpoints by their names: step-00000100, .step-00000100.tmp while it is written or removed (from
 * the second generation of the lock on .step-00000100.2.tmp, since a holder that was taken over may wake up and write
 * on), and step-00000100.damaged or .superseded once it is set aside. A name counts only if it is exactly what this
 * file would write. Called by all that saves, lists, resumes from or removes checkpoints. */
#include "checkpoint/steps.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP_NAME "step-%08" PRId64

char *ndp_step_name(int64_t step, char out[64]) {
    snprintf(out, 64, STEP_NAME, step);
    return out;
}

ndp_status ndp_step_path(char out[NDP_PATH], const char *folder, int64_t step) {
    char name[64];
    return ndp_path_join(out, folder, ndp_step_name(step, name));
}

ndp_status ndp_beside_path(char out[NDP_PATH], const char *folder, const char *name, int64_t generation) {
    char number[32] = "", beside[128];
    if (generation > 1)
        snprintf(number, sizeof number, ".%" PRId64, generation);
    snprintf(beside, sizeof beside, ".%s%s.tmp", name, number);
    return ndp_path_join(out, folder, beside);
}

bool ndp_beside_of(const char *name, char out[64]) {
    size_t n = strlen(name);
    if (name[0] != '.' || n < 6 || n - 5 >= 64 || !ndp_ends_with(name, ".tmp"))
        return false;
    snprintf(out, 64, "%.*s", (int)n - 5, name + 1);
    char *number = strrchr(out, '.');
    if (number && number[1] && !number[1 + strspn(number + 1, "0123456789")])
        *number = '\0';
    return true;
}

int64_t ndp_step_of_name(const char *name) {
    const char *digits = strchr(name, '-');
    char again[64];
    if (!digits || digits[1] < '0' || digits[1] > '9')
        return -1;
    int64_t step = strtoll(digits + 1, NULL, 10);
    return strcmp(name, ndp_step_name(step, again)) == 0 ? step : -1;
}

typedef struct step_list {
    int64_t *steps, n, capacity;
} step_list;

static ndp_status add_step(void *user, const char *folder, const char *name) {
    step_list *l = user;
    int64_t step = ndp_step_of_name(name);
    (void)folder;
    if (step < 0)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&l->steps, &l->capacity, l->n + 1, sizeof *l->steps));
    l->steps[l->n++] = step;
    return NDP_OK;
}

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

ndp_status ndp_step_manifest(const char *folder, int64_t step, ndp_manifest *out) {
    char path[NDP_PATH];
    NDP_TRY(ndp_step_path(path, folder, step));
    NDP_TRY(ndp_manifest_read(path, out));
    if (out->info.step == step)
        return NDP_OK;
    ndp_status st = NDP_FAIL(NDP_EFORMAT, "'%s': its manifest is of step %lld; the folder was renamed", path,
                             (long long)out->info.step);
    ndp_manifest_release(out);
    return st;
}

ndp_status ndp_checkpoint_steps(const char *folder, int64_t **steps, int *n) {
    step_list all = {0};
    ndp_status st = ndp_folder_visit(folder, add_step, &all);
    if (st != NDP_OK) {
        free(all.steps);
        return st;
    }
    if (all.n)
        qsort(all.steps, (size_t)all.n, sizeof *all.steps, newest_first);
    *steps = all.steps;
    *n = (int)all.n;
    return NDP_OK;
}

/* ---- setting aside, removing ---- */

static const char *const reasons[] = {"damaged", "superseded"};

bool ndp_step_is_aside(const char *name) {
    const char *dot = strchr(name, '.');
    char step[64];
    if (!dot || dot - name >= (ptrdiff_t)sizeof step)
        return false;
    snprintf(step, sizeof step, "%.*s", (int)(dot - name), name);
    for (int i = 0; i < NDP_COUNT(reasons); i++) {
        size_t n = strlen(reasons[i]);
        if (strncmp(dot + 1, reasons[i], n) == 0 && (dot[n + 1] == '\0' || dot[n + 1] == '-'))
            return ndp_step_of_name(step) >= 0;
    }
    return false;
}

ndp_status ndp_step_set_aside(const char *folder, int64_t step, const char *why, char name[64]) {
    bool taken = true;
    char from[NDP_PATH], to[NDP_PATH];
    NDP_TRY(ndp_step_path(from, folder, step));
    for (int k = 1; taken; k++) {
        char number[16] = "";
        if (k > 1)
            snprintf(number, sizeof number, "-%d", k);
        snprintf(name, 64, STEP_NAME ".%s%s", step, why, number);
        NDP_TRY(ndp_path_join(to, folder, name));
        NDP_TRY(ndp_rename_new(from, to, &taken));
    }
    return ndp_durable_folder(folder);
}

/* Renames before removing, so that no crash leaves a half-removed checkpoint under a checkpoint's name. */
ndp_status ndp_step_remove(const char *folder, const char *name) {
    char from[NDP_PATH], hidden[NDP_PATH];
    NDP_TRY(ndp_path_join(from, folder, name));
    NDP_TRY(ndp_beside_path(hidden, folder, name, 0));
    NDP_TRY(ndp_durable_rename(from, hidden));
    NDP_TRY(ndp_durable_folder(folder));
    return ndp_folder_remove(hidden);
}

/* Half-written or half-removed: a step, or one that was set aside. */
static bool is_leaving(const char *name) {
    char inner[64];
    return ndp_beside_of(name, inner) && (ndp_step_of_name(inner) >= 0 || ndp_step_is_aside(inner));
}

/* First gives it a name that no save has: a writer that was taken over and goes on, between its look at the lock and
 * its rename, then finds nothing to commit, rather than a part of it. */
static ndp_status remove_leaving(void *user, const char *folder, const char *name) {
    char path[NDP_PATH], inner[64], none[96], hidden[NDP_PATH];
    (void)user;
    if (!is_leaving(name) || !ndp_beside_of(name, inner))
        return NDP_OK;
    snprintf(none, sizeof none, ".%s.0.tmp", inner);
    NDP_TRY(ndp_path_join(path, folder, name));
    NDP_TRY(ndp_path_join(hidden, folder, none));
    if (strcmp(path, hidden) != 0) {
        NDP_TRY(ndp_folder_remove(hidden));
        if (ndp_path_exists(path)) /* else that writer was faster, and has committed all of it */
            NDP_TRY(ndp_durable_rename(path, hidden));
    }
    return ndp_folder_remove(hidden);
}

ndp_status ndp_checkpoint_clean(const char *folder) { return ndp_folder_visit(folder, remove_leaving, NULL); }
