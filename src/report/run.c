/* Reading a run folder (run.h). */
#include "report/run.h"

#include "base/arena.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/holder.h"
#include "checkpoint/steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *ndp_run_state_word(ndp_run_state state) {
    static const char *const words[] = {"running", "running?", "done", "stopped", "died"};
    return words[state];
}

static bool has(const char *folder, const char *name) {
    char path[NDP_PATH];
    return ndp_path_join(path, folder, name) == NDP_OK && ndp_path_exists(path);
}

bool ndp_run_is_there(const char *folder) {
    return has(folder, "job.yaml") && (has(folder, "metrics.jsonl") || has(folder, "lock"));
}

/* ---- the job ---- */

/* Adds a line of job.yaml, as config.c writes it: "section:", "  key: value", or a part of the value before it. */
static ndp_status add_job_line(ndp_run_view *r, const char *line, size_t n, ndp_span *section) {
    size_t indent = 0;
    while (indent < n && line[indent] == ' ')
        indent++;
    const char *colon = memchr(line, ':', n);
    if (n == 0 || line[0] == '#')
        return NDP_OK;
    if (indent == 0 && colon) {
        *section = (ndp_span){line, (size_t)(colon - line)};
        if (colon + 1 == line + n)
            return NDP_OK;
    } else if (indent != 2 || line[2] == '-' || !colon) {
        if (r->n_keys == 0)
            return NDP_OK;
        char **value = &r->keys[r->n_keys - 1].value,
             *longer = ndp_format("%s %.*s", *value, (int)(n - indent), line + indent);
        free(*value);
        *value = longer;
        return NDP_MEMORY(longer, "for a job");
    }
    const char *value = colon + 1 + (colon + 1 < line + n && colon[1] == ' ');
    NDP_TRY(ndp_array_reserve(&r->keys, &r->capacity, r->n_keys + 1, sizeof *r->keys));
    ndp_job_key *k = &r->keys[r->n_keys++];
    k->key = ndp_format("%.*s%s%.*s", (int)section->n, section->data, indent ? "." : "",
                        indent ? (int)(colon - line - 2) : 0, line + indent);
    k->value = strndup(value, (size_t)(line + n - value));
    return NDP_MEMORY(k->key && k->value, "for a job");
}

static ndp_status read_job(ndp_run_view *r) {
    char path[NDP_PATH];
    size_t size;
    ndp_span section = {"", 0};
    NDP_TRY(ndp_path_join(path, r->folder, "job.yaml"));
    NDP_TRY(ndp_file_read_as(NDP_FILE_JOB, path, &r->job, &size));
    for (const char *line = r->job; *line;) {
        size_t n = strcspn(line, "\n");
        NDP_TRY(add_job_line(r, line, n, &section));
        line += n + (line[n] == '\n');
    }
    const char *steps = ndp_run_job_value(r, "train.steps");
    r->steps = steps ? strtoll(steps, NULL, 10) : 0;
    return NDP_OK;
}

static void read_record(ndp_run_view *r) {
    char path[NDP_PATH];
    int64_t steps = 0;
    if (!has(r->folder, "run.json") || ndp_path_join(path, r->folder, "run.json") != NDP_OK ||
        ndp_json_read(path, &r->record) != NDP_OK)
        return;
    if (!json_object_is_type(r->record, json_type_object)) {
        json_object_put(r->record);
        r->record = NULL;
    } else if (r->steps == 0 && ndp_json_int(r->record, path, "steps", 0, INT64_MAX, &steps) == NDP_OK)
        r->steps = steps;
}

const char *ndp_run_job_value(const ndp_run_view *r, const char *key) {
    for (int64_t i = 0; i < r->n_keys; i++)
        if (strcmp(r->keys[i].key, key) == 0)
            return r->keys[i].value;
    return NULL;
}

/* ---- metrics ---- */

/* What of metrics.jsonl is read. */
typedef enum run_part { WHOLE, NEWEST, ON } run_part;

/* Whole lines: the run may be writing the last one. */
static ndp_status read_on(ndp_run_view *r, const char *text, size_t size) {
    const char *end = size ? memrchr(text, '\n', size) : NULL;
    size_t n = end ? (size_t)(end + 1 - text) : 0;
    if (n < r->read || (r->n_tail && memcmp(text + r->read - r->n_tail, r->tail, r->n_tail) != 0)) {
        ndp_run_metrics fresh = {.on_line = r->metrics.on_line, .user = r->metrics.user};
        ndp_run_metrics_release(&r->metrics);
        r->metrics = fresh;
        r->read = 0;
    }
    NDP_TRY(ndp_run_metrics_add(&r->metrics, text + r->read, n - r->read));
    r->read = n;
    r->n_tail = n < NDP_RUN_TAIL ? n : NDP_RUN_TAIL;
    r->cut = size > n;
    if (n)
        memcpy(r->tail, text + n - r->n_tail, r->n_tail);
    return NDP_OK;
}

static ndp_status read_metrics(ndp_run_view *r, run_part part) {
    char path[NDP_PATH];
    ndp_mapped file;
    struct stat info;
    r->age = NAN;
    if (!has(r->folder, "metrics.jsonl"))
        return NDP_OK;
    NDP_TRY(ndp_path_join(path, r->folder, "metrics.jsonl"));
    NDP_TRY(ndp_file_map(path, &file));
    const char *text = (const char *)file.data;
    ndp_status st = part == ON       ? read_on(r, text, file.size)
                    : part == NEWEST ? ndp_run_metrics_newest(&r->metrics, text, file.size)
                                     : ndp_run_metrics_add(&r->metrics, text, file.size);
    NDP_TRY(ndp_file_end(&file, st));
    r->step = r->metrics.step;
    if (r->metrics.lines && stat(path, &info) == 0) {
        double written = isfinite(r->metrics.time) ? r->metrics.time : (double)info.st_mtim.tv_sec;
        r->age = fmax(ndp_time() - written, 0);
    }
    return NDP_OK;
}

/* ---- the state ---- */

/* The number of steps that a checkpoint's run has, which a job of epochs does not say; 0: it does not say either. */
static int64_t steps_in(const char *checkpoints, int64_t step) {
    ndp_manifest m;
    struct json_object *identity, *steps = NULL;
    if (ndp_step_manifest(checkpoints, step, &m) != NDP_OK)
        return 0;
    if (m.info.extra && json_object_object_get_ex(m.info.extra, "identity", &identity))
        json_object_object_get_ex(identity, "train.steps", &steps);
    int64_t n = json_object_get_int64(steps); /* a number as a text; 0: none */
    ndp_manifest_release(&m);
    return n;
}

/* Returns the step of the newest checkpoint; 0: there is none, or their folder cannot be read. */
static int64_t look_at_checkpoints(ndp_run_view *r) {
    char path[NDP_PATH];
    int64_t *steps = NULL, step = 0;
    int n = 0;
    if (ndp_path_join(path, r->folder, "checkpoints") != NDP_OK || ndp_checkpoint_steps(path, &steps, &n) != NDP_OK)
        return 0;
    if (n) {
        step = steps[0];
        r->steps = r->steps ? r->steps : steps_in(path, step);
    }
    free(steps);
    return step;
}

/* Whether there is a lock, and what its holder is. */
static bool read_lock(const char *folder, ndp_holder_state *holder, int64_t *beat) {
    char path[NDP_PATH];
    ndp_holder h, self;
    bool there = has(folder, "lock");
    *holder = there ? NDP_HOLDER_ELSEWHERE : NDP_HOLDER_DEAD; /* until it was read */
    if (there && ndp_path_join(path, folder, "lock") == NDP_OK && ndp_holder_read(path, &h, &there) == NDP_OK &&
        there) {
        ndp_holder_self(&self);
        *holder = ndp_holder_judge(&h, &self);
        *beat = h.counter;
    }
    return there;
}

/* Whether run.json says that a run of as many steps ended by itself, be it before the last one (train.stop_after). */
static bool has_ended(const ndp_run_view *r) {
    struct json_object *parts, *code = NULL;
    int64_t steps = 0;
    if (!r->record || ndp_json_int(r->record, "run.json", "steps", 0, INT64_MAX, &steps) != NDP_OK ||
        steps != r->steps || !json_object_object_get_ex(r->record, "parts", &parts) ||
        !json_object_is_type(parts, json_type_array) || json_object_array_length(parts) == 0)
        return false;
    struct json_object *last = json_object_array_get_idx(parts, json_object_array_length(parts) - 1);
    return json_object_is_type(last, json_type_object) && json_object_object_get_ex(last, "exit_code", &code) &&
           json_object_is_type(code, json_type_int) && json_object_get_int(code) == 0;
}

/* A process that died after the last step, but before its checkpoint was there, was not done. */
static void judge(ndp_run_view *r) {
    ndp_holder_state holder;
    bool locked = read_lock(r->folder, &holder, &r->beat);
    int64_t saved = look_at_checkpoints(r);
    r->step = saved > r->step ? saved : r->step;
    bool all = !locked && has_ended(r);
    all |= r->steps ? (locked ? saved : r->step) >= r->steps : !locked && has(r->folder, "model");
    r->state = locked && holder == NDP_HOLDER_ALIVE       ? NDP_RUN_RUNNING
               : locked && holder == NDP_HOLDER_ELSEWHERE ? NDP_RUN_ELSEWHERE
               : all                                      ? NDP_RUN_DONE
               : locked                                   ? NDP_RUN_DIED
                                                          : NDP_RUN_STOPPED;
}

static ndp_status read_run(ndp_run_view *out, run_part part) {
    const char *folder = out->folder;
    const char *why = ndp_path_why_no_folder(folder);
    NDP_CHECK(!why, "'%s' is not a run folder: %s; give a job's train.output_dir", folder, why);
    NDP_CHECK(has(folder, "job.yaml"),
              "'%s' is not a run folder: there is no '%s/job.yaml'; give a job's train.output_dir", folder, folder);
    NDP_CHECK(
        ndp_run_is_there(folder),
        "'%s' has a job.yaml, but no metrics.jsonl and no lock: a run that has ended its first step writes the one, "
        "a live one holds the other; give a job's train.output_dir",
        folder);
    NDP_TRY(read_job(out));
    read_record(out);
    NDP_TRY(read_metrics(out, part));
    judge(out);
    return NDP_OK;
}

ndp_status ndp_run_read(const char *folder, bool newest, ndp_run_view *out) {
    *out = (ndp_run_view){.folder = strdup(folder), .age = NAN};
    NDP_CHECK_MEMORY(out->folder, "for a path");
    return read_run(out, newest ? NEWEST : WHOLE);
}

static void release_job(ndp_run_view *r) {
    for (int64_t i = 0; i < r->n_keys; i++) {
        free(r->keys[i].key);
        free(r->keys[i].value);
    }
    free(r->keys);
    free(r->job);
    json_object_put(r->record);
    r->keys = NULL;
    r->job = NULL;
    r->record = NULL;
    r->n_keys = r->capacity = 0;
}

ndp_status ndp_run_read_on(ndp_run_view *r) {
    ndp_run_view next = *r;
    next.keys = NULL;
    next.job = NULL;
    next.record = NULL;
    next.n_keys = next.capacity = 0;
    next.step = 0;
    ndp_status st = read_run(&next, ON);
    if (st != NDP_OK) { /* what was read of the job before is kept */
        release_job(&next);
        r->metrics = next.metrics;
        r->read = SIZE_MAX; /* the next time all of it */
        return st;
    }
    release_job(r);
    *r = next;
    return NDP_OK;
}

void ndp_run_release(ndp_run_view *r) {
    release_job(r);
    free(r->folder);
    ndp_run_metrics_release(&r->metrics);
    *r = (ndp_run_view){0};
}
