#include "checkpoint/steps.h"

#include "base/text.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP_NAME "step-%08" PRId64
#define TEMPORARY_NAME ".step-%08" PRId64 ".tmp"

char *ndp_step_path(const char *folder, int64_t step, bool beside) {
    return beside ? ndp_format("%s/" TEMPORARY_NAME, folder, step) : ndp_format("%s/" STEP_NAME, folder, step);
}

int64_t ndp_step_of_name(const char *name, bool beside) {
    const char *digits = strchr(name, '-');
    char again[64];
    if (!digits || digits[1] < '0' || digits[1] > '9')
        return -1;
    int64_t step = strtoll(digits + 1, NULL, 10);
    if (beside)
        snprintf(again, sizeof again, TEMPORARY_NAME, step);
    else
        snprintf(again, sizeof again, STEP_NAME, step);
    return strcmp(name, again) == 0 ? step : -1;
}

/* Steps of all folders with a name of the kind, in no order. */
static ndp_status scan(const char *folder, bool beside, int64_t **steps, int64_t *n) {
    int64_t capacity = 0;
    DIR *d = opendir(folder);
    if (!d && errno == ENOENT)
        return NDP_OK;
    if (!d)
        return NDP_FAIL(NDP_EIO, "cannot list the checkpoints in '%s': %s", folder, strerror(errno));
    ndp_status st = NDP_OK;
    for (struct dirent *e; st == NDP_OK && (e = readdir(d));) {
        int64_t step = ndp_step_of_name(e->d_name, beside);
        if (step >= 0 && (st = ndp_array_reserve(steps, &capacity, *n + 1, sizeof **steps)) == NDP_OK)
            (*steps)[(*n)++] = step;
    }
    closedir(d);
    return st;
}

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

ndp_status ndp_step_manifest(const char *folder, int64_t step, ndp_manifest *out) {
    char *path = ndp_step_path(folder, step, false);
    ndp_status st =
        path ? ndp_manifest_read(path, out) : NDP_FAIL(NDP_ENOMEM, "not enough memory to read '%s'", folder);
    if (st == NDP_OK && out->info.step != step) {
        st = NDP_FAIL(NDP_EFORMAT, "'%s': its manifest is of step %lld; the folder was renamed", path,
                      (long long)out->info.step);
        ndp_manifest_release(out);
    }
    free(path);
    return st;
}

/* Whether a step is whole; why not goes to `warnings`. */
static bool is_whole(const char *folder, int64_t step, ndp_str *warnings) {
    ndp_manifest m = {0};
    bool whole = ndp_step_manifest(folder, step, &m) == NDP_OK;
    ndp_manifest_release(&m);
    if (!whole && warnings)
        ndp_str_addf(warnings, "%spassed over the checkpoint of step %lld: %s", warnings->length ? "\n" : "",
                     (long long)step, ndp_error_message());
    return whole;
}

ndp_status ndp_checkpoint_list(const char *folder, int64_t **steps, int *n, ndp_str *warnings) {
    int64_t *all = NULL, count = 0;
    int kept = 0;
    ndp_status st;
    NDP_TRY_GOTO(scan(folder, false, &all, &count), release);
    if (count)
        qsort(all, (size_t)count, sizeof *all, newest_first);
    for (int64_t i = 0; i < count; i++)
        if (is_whole(folder, all[i], warnings))
            all[kept++] = all[i];
    *steps = all;
    *n = kept;
    return NDP_OK;
release:
    free(all);
    return st;
}

ndp_status ndp_checkpoint_latest(ndp_comm *world, const char *folder, int64_t *step, ndp_str *warnings) {
    int64_t latest = -1, *steps = NULL;
    int n = 0;
    NDP_TRY(ndp_agree(world, ndp_is_first(world) ? ndp_checkpoint_list(folder, &steps, &n, warnings) : NDP_OK));
    if (n)
        latest = steps[0];
    free(steps);
    if (world) {
        ndp_work w;
        NDP_TRY(ndp_broadcast_begin(world, &latest, sizeof latest, 0, &w));
        NDP_TRY(ndp_wait(&w));
    }
    *step = latest;
    return NDP_OK;
}

ndp_status ndp_checkpoint_clean(const char *folder) {
    int64_t *steps = NULL, n = 0;
    ndp_status st = scan(folder, true, &steps, &n);
    for (int64_t i = 0; i < n && st == NDP_OK; i++) {
        char *path = ndp_step_path(folder, steps[i], true);
        st = path ? ndp_folder_remove(path) : NDP_FAIL(NDP_ENOMEM, "not enough memory to clean '%s'", folder);
        free(path);
    }
    free(steps);
    return st;
}
