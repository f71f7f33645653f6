#include "checkpoint/steps.h"

#include "base/fault.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/shards.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define STEP_NAME "step-%08" PRId64
#define TEMPORARY_NAME ".step-%08" PRId64 ".tmp"

char *ndp_step_name(int64_t step, char out[64]) {
    snprintf(out, 64, STEP_NAME, step);
    return out;
}

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

/* *out is NULL if the folder is missing. */
static ndp_status open_folder(const char *folder, DIR **out) {
    *out = opendir(folder);
    return *out || errno == ENOENT
               ? NDP_OK
               : NDP_FAIL(NDP_EIO, "cannot list the checkpoints in '%s': %s", folder, strerror(errno));
}

/* Steps of all checkpoints, unsorted. */
static ndp_status scan(const char *folder, int64_t **steps, int64_t *n) {
    int64_t capacity = 0;
    DIR *d;
    ndp_status st = open_folder(folder, &d);
    for (struct dirent *e; d && st == NDP_OK && (e = readdir(d));) {
        int64_t step = ndp_step_of_name(e->d_name, false);
        if (step >= 0 && (st = ndp_array_reserve(steps, &capacity, *n + 1, sizeof **steps)) == NDP_OK)
            (*steps)[(*n)++] = step;
    }
    if (d)
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

ndp_status ndp_checkpoint_steps(const char *folder, int64_t **steps, int *n) {
    int64_t *all = NULL, count = 0;
    ndp_status st = scan(folder, &all, &count);
    if (st != NDP_OK) {
        free(all);
        return st;
    }
    if (count)
        qsort(all, (size_t)count, sizeof *all, newest_first);
    *steps = all;
    *n = (int)count;
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
            return ndp_step_of_name(step, false) >= 0;
    }
    return false;
}

/* Renames, unless `to` exists (*taken). File systems that cannot do this atomically check first. */
static ndp_status rename_new(const char *from, const char *to, bool *taken) {
    int r = ndp_fault(NDP_FAULT_RENAME) ? -1 : renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (r && (errno == EINVAL || errno == ENOSYS)) {
        struct stat info;
        r = lstat(to, &info) == 0 ? (errno = EEXIST, -1) : rename(from, to);
    }
    *taken = r && (errno == EEXIST || errno == ENOTEMPTY);
    if (r && !*taken)
        return NDP_FAIL(NDP_EIO, "cannot rename '%s' to '%s': %s", from, to, strerror(errno));
    return NDP_OK;
}

ndp_status ndp_step_set_aside(const char *folder, int64_t step, const char *why, char name[64]) {
    bool taken = true;
    char *from = ndp_step_path(folder, step, false);
    ndp_status st = from ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to set step %lld aside", (long long)step);
    for (int k = 1; st == NDP_OK && taken; k++) {
        char number[16] = "";
        if (k > 1)
            snprintf(number, sizeof number, "-%d", k);
        snprintf(name, 64, STEP_NAME ".%s%s", step, why, number);
        char *to = ndp_format("%s/%s", folder, name);
        st = to ? rename_new(from, to, &taken) : NDP_FAIL(NDP_ENOMEM, "not enough memory to set '%s' aside", from);
        free(to);
    }
    free(from);
    NDP_TRY(st);
    return ndp_durable_folder(folder);
}

/* Renames before removing, so that no crash leaves a half-removed checkpoint under a checkpoint's name. */
ndp_status ndp_step_remove(const char *folder, const char *name) {
    char *from = ndp_format("%s/%s", folder, name), *hidden = ndp_format("%s/.%s.tmp", folder, name);
    ndp_status st = from && hidden ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to remove '%s'", name);
    NDP_TRY_GOTO(st, release);
    NDP_TRY_GOTO(ndp_durable_rename(from, hidden), release);
    NDP_TRY_GOTO(ndp_durable_folder(folder), release);
    NDP_TRY_GOTO(ndp_folder_remove(hidden), release);
release:
    free(from);
    free(hidden);
    return st;
}

/* Half-written or half-removed: ".NAME.tmp" of a step, or of one that was set aside. */
static bool is_leaving(const char *name) {
    char inner[64];
    size_t n = strlen(name);
    if (ndp_step_of_name(name, true) >= 0)
        return true;
    if (name[0] != '.' || n < 5 || n >= sizeof inner || strcmp(name + n - 4, ".tmp") != 0)
        return false;
    snprintf(inner, sizeof inner, "%.*s", (int)n - 5, name + 1);
    return ndp_step_is_aside(inner);
}

ndp_status ndp_checkpoint_clean(const char *folder) {
    DIR *d;
    ndp_status st = open_folder(folder, &d);
    for (struct dirent *e; d && st == NDP_OK && (e = readdir(d));) {
        if (!is_leaving(e->d_name))
            continue;
        char *path = ndp_format("%s/%s", folder, e->d_name);
        st = path ? ndp_folder_remove(path) : NDP_FAIL(NDP_ENOMEM, "not enough memory to clean '%s'", folder);
        free(path);
    }
    if (d)
        closedir(d);
    return st;
}
