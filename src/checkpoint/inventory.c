/* The checkpoints of a run, for its user: listing, verifying and removing them. */
#include "base/clock.h"
#include "base/cpu.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* An evaluation of the run, as metrics.jsonl has it. */
typedef struct evaluated_step {
    int64_t step;
    double loss;
} evaluated_step;

typedef struct inventory {
    char folder[NDP_PATH];
    int64_t *steps; /* newest first */
    int n;
    char (*aside)[64]; /* sorted by name, newest first */
    int64_t n_aside, capacity;
    evaluated_step *evaluated; /* in the order of the file */
    int64_t n_evaluated, room;
} inventory;

static void release(inventory *v) {
    free(v->steps);
    free(v->aside);
    free(v->evaluated);
}

static int newest_name_first(const void *a, const void *b) { return strcmp(b, a); }

static ndp_status add_aside(void *user, const char *folder, const char *name) {
    inventory *v = user;
    (void)folder;
    if (!ndp_step_is_aside(name))
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&v->aside, &v->capacity, v->n_aside + 1, sizeof *v->aside));
    snprintf(v->aside[v->n_aside++], sizeof *v->aside, "%.63s", name);
    return NDP_OK;
}

/* ---- the losses of steps ---- */

int64_t ndp_line_step(const char *line, size_t n, bool *evaluated, double *eval_loss) {
    static const char key[] = "\"eval_loss\": ";
    char head[48]; /* a copy that ends */
    long long step = -1;
    const char *at = memmem(line, n, key, sizeof key - 1);
    *evaluated = at;
    *eval_loss = NAN;
    snprintf(head, sizeof head, "%.*s", (int)(n < 40 ? n : 40), line);
    if (sscanf(head, "{\"step\": %lld", &step) != 1)
        return -1;
    if (at) {
        size_t rest = n - (size_t)(at + sizeof key - 1 - line);
        snprintf(head, sizeof head, "%.*s", (int)(rest < 40 ? rest : 40), at + sizeof key - 1);
        *eval_loss = head[0] == 'n' ? NAN : strtod(head, NULL); /* null */
    }
    return step;
}

/* What cannot be read is unknown: a list of checkpoints does not need it. */
static void read_evaluations(inventory *v, const char *run) {
    char path[NDP_PATH];
    ndp_mapped file;
    if (ndp_path_join(path, run, "metrics.jsonl") != NDP_OK || !ndp_path_exists(path) ||
        ndp_file_map(path, &file) != NDP_OK)
        return;
    const char *line = (const char *)file.data, *end = line + file.size;
    for (const char *next; (next = memchr(line, '\n', (size_t)(end - line))); line = next + 1) {
        evaluated_step e;
        bool evaluated;
        e.step = ndp_line_step(line, (size_t)(next - line), &evaluated, &e.loss);
        if (evaluated && ndp_array_reserve(&v->evaluated, &v->room, v->n_evaluated + 1, sizeof e) == NDP_OK)
            v->evaluated[v->n_evaluated++] = e;
    }
    ndp_file_unmap(&file);
}

/* The loss of the step, from its manifest. That the run has evaluated it counts unless it was set aside: the lines of
 * metrics.jsonl may be those of another one then. */
static void find_losses(const inventory *v, const char *name, ndp_checkpoint_entry *e) {
    char path[NDP_PATH];
    ndp_manifest m;
    struct json_object *metrics = NULL;
    e->loss = e->eval_loss = NAN;
    for (int64_t i = 0; i < v->n_evaluated && e->state != NDP_CHECKPOINT_ASIDE; i++)
        if (v->evaluated[i].step == e->step)
            e->eval_loss = v->evaluated[i].loss;
    if (e->state == NDP_CHECKPOINT_DAMAGED || ndp_path_join(path, v->folder, name) != NDP_OK ||
        ndp_manifest_read(path, &m) != NDP_OK)
        return;
    if (json_object_object_get_ex(m.info.extra, "metrics", &metrics) &&
        ndp_json_double(metrics, "metrics", "loss", &e->loss) != NDP_OK)
        e->loss = NAN;
    ndp_manifest_release(&m);
}

static ndp_status open_inventory(const char *run, inventory *v) {
    NDP_TRY(ndp_path_join(v->folder, run, "checkpoints"));
    NDP_CHECK(ndp_path_is_folder(v->folder),
              "'%s' is not a run folder: there is no '%s'; give a job's train.output_dir", run, v->folder);
    NDP_TRY(ndp_checkpoint_steps(v->folder, &v->steps, &v->n));
    NDP_TRY(ndp_folder_visit(v->folder, add_aside, v));
    if (v->n_aside)
        qsort(v->aside, (size_t)v->n_aside, sizeof *v->aside, newest_name_first);
    return NDP_OK;
}

/* ---- listing ---- */

/* Adds the size of one file of a checkpoint; its manifest's time is that of the save. */
static ndp_status measure_file(void *user, const char *folder, const char *name) {
    ndp_checkpoint_entry *e = user;
    char path[NDP_PATH];
    struct stat info;
    NDP_TRY(ndp_path_join(path, folder, name));
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return NDP_OK;
    e->bytes += info.st_size;
    if (strcmp(name, "manifest.json") == 0)
        e->saved = info.st_mtime;
    return NDP_OK;
}

/* Size of a checkpoint's files, and when its manifest (if missing, its folder) was last written, as far as they can be
 * read. */
static void measure(const char *folder, const char *name, ndp_checkpoint_entry *e) {
    char path[NDP_PATH];
    struct stat info;
    if (ndp_path_join(path, folder, name) != NDP_OK || stat(path, &info) != 0)
        return;
    e->saved = info.st_mtime;
    (void)!ndp_folder_visit(path, measure_file, e);
}

static ndp_status examine_step(const inventory *v, int64_t step, bool data,
                               void (*each)(void *, const ndp_checkpoint_entry *), void *user) {
    char name[64];
    ndp_examined x;
    ndp_checkpoint_entry e = {.name = ndp_step_name(step, name), .step = step};
    double start = ndp_now();
    NDP_TRY(ndp_checkpoint_examine(NULL, v->folder, step, data, ndp_cpu_cores(), &x));
    e.seconds = ndp_now() - start;
    e.state = x.state;
    e.words = x.words;
    measure(v->folder, name, &e);
    find_losses(v, name, &e);
    each(user, &e);
    return NDP_OK;
}

static bool has_step(const inventory *v, int64_t step) {
    for (int i = 0; i < v->n; i++)
        if (v->steps[i] == step)
            return true;
    return false;
}

static ndp_status examine_named(const inventory *v, const int64_t *steps, int n, bool data,
                                void (*each)(void *, const ndp_checkpoint_entry *), void *user) {
    for (int i = 0; i < n; i++)
        NDP_CHECK(has_step(v, steps[i]), "there is no checkpoint of step %lld in '%s'", (long long)steps[i], v->folder);
    for (int i = 0; i < n; i++)
        NDP_TRY(examine_step(v, steps[i], data, each, user));
    return NDP_OK;
}

static ndp_status examine_all(const inventory *v, bool data, void (*each)(void *, const ndp_checkpoint_entry *),
                              void *user) {
    NDP_TRY(examine_named(v, v->steps, v->n, data, each, user));
    for (int64_t i = 0; i < v->n_aside; i++) {
        ndp_checkpoint_entry e = {.name = v->aside[i],
                                  .step = strtoll(strchr(v->aside[i], '-') + 1, NULL, 10),
                                  .state = NDP_CHECKPOINT_ASIDE,
                                  .words = ""};
        measure(v->folder, e.name, &e);
        find_losses(v, e.name, &e);
        each(user, &e);
    }
    return NDP_OK;
}

ndp_status ndp_checkpoints_examine(const char *run, const int64_t *steps, int n, bool data,
                                   void (*each)(void *user, const ndp_checkpoint_entry *e), void *user) {
    NDP_NOT_NULL(run, each);
    if (n)
        NDP_NOT_NULL(steps);
    inventory v = {0};
    ndp_status st = open_inventory(run, &v);
    if (st == NDP_OK)
        read_evaluations(&v, run);
    if (st == NDP_OK)
        st = n ? examine_named(&v, steps, n, data, each, user) : examine_all(&v, data, each, user);
    release(&v);
    return st;
}

/* ---- removing ---- */

/* The folder that a user names as "100", "step-00000100" or "step-00000100.damaged". */
static ndp_status find_name(const inventory *v, const char *word, char name[64]) {
    char *end;
    long long step = strtoll(word, &end, 10);
    if (end != word && *end == '\0' && step >= 0)
        ndp_step_name(step, name);
    else
        snprintf(name, 64, "%.63s", word);
    int64_t known = ndp_step_of_name(name);
    bool there = known >= 0 && has_step(v, known);
    for (int64_t i = 0; i < v->n_aside; i++)
        there |= strcmp(v->aside[i], name) == 0;
    NDP_CHECK(there, "there is no checkpoint '%s' in '%s'; `ndparallel checkpoint list` lists them", word, v->folder);
    return NDP_OK;
}

static bool goes(const char (*names)[64], int n, int64_t step) {
    for (int i = 0; i < n; i++)
        if (ndp_step_of_name(names[i]) == step)
            return true;
    return false;
}

/* Whether one of the steps verifies, among those to be removed or those that stay. Newest first, up to the first one.
 */
static ndp_status one_verifies(const inventory *v, const char (*names)[64], int n, bool going, bool *verifies) {
    for (int i = 0; i < v->n && !*verifies; i++) {
        ndp_examined x;
        if (goes(names, n, v->steps[i]) != going)
            continue;
        NDP_TRY(ndp_checkpoint_examine(NULL, v->folder, v->steps[i], true, ndp_cpu_cores(), &x));
        *verifies = x.state == NDP_CHECKPOINT_VERIFIED;
    }
    return NDP_OK;
}

static ndp_status check_rest(const inventory *v, const char (*names)[64], int n) {
    bool rest = false, lost = false;
    NDP_TRY(one_verifies(v, names, n, false, &rest));
    if (!rest)
        NDP_TRY(one_verifies(v, names, n, true, &lost));
    NDP_CHECK(rest || !lost, "this would leave no checkpoint in '%s' that verifies; --force removes it anyway",
              v->folder);
    return NDP_OK;
}

static ndp_status remove_names(const inventory *v, const char *const *words, char (*names)[64], int n, bool force) {
    bool steps = false;
    for (int i = 0; i < n; i++) {
        NDP_TRY(find_name(v, words[i], names[i]));
        steps |= ndp_step_of_name(names[i]) >= 0;
    }
    if (steps && !force)
        NDP_TRY(check_rest(v, (const char(*)[64])names, n));
    for (int i = 0; i < n; i++)
        NDP_TRY(ndp_step_remove(v->folder, names[i]));
    return NDP_OK;
}

ndp_status ndp_checkpoints_remove(const char *run, const char *const *names, int n, bool force) {
    NDP_NOT_NULL(run);
    if (n)
        NDP_NOT_NULL(names);
    inventory v = {0};
    char(*folders)[64] = calloc((size_t)n + 1, sizeof *folders);
    ndp_status st = folders ? ndp_lock_peek(run) : NDP_FAIL(NDP_ENOMEM, "not enough memory for %d names", n);
    if (st == NDP_OK)
        st = open_inventory(run, &v);
    if (st == NDP_OK)
        st = remove_names(&v, names, folders, n, force);
    free(folders);
    release(&v);
    return st;
}
