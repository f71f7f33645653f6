/* ndp_record_show: what a run says of itself in run.json, as lines, as a section of a model card or as JSON; and what
 * its job, metrics and newest manifest say otherwise. */
#include "base/json_write.h"
#include "checkpoint/steps.h"
#include "report/run.h"
#include "report/run_facts.h"

#include <ndparallel/ndparallel.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct record {
    ndp_run_view view;
    struct json_object *parts; /* of run.json; borrowed */
    size_t n_parts;
    bool markdown;
    ndp_str text, differs; /* differs: a line for each */
    int differences;
} record;

/* The hashes of run.json, and the keys of a manifest's identity that they are. */
static const char *const hash_keys[][2] = {{"data", "data.files"},
                                           {"held_out", "data.validation_files"},
                                           {"tokenizer", "data.tokenizer"},
                                           {"base", "model.path"},
                                           {"adapter", "adapter.path"}};

static struct json_object *root_of(const record *r) { return r->view.record; }
static struct json_object *part_at(const record *r, size_t i) { return json_object_array_get_idx(r->parts, i); }

/* ---- sums over the parts ---- */

/* Of a number, or of a member `inner` of an object; NaN where a part lacks it. */
static double total(const record *r, const char *key, const char *inner) {
    double sum = 0;
    for (size_t i = 0; i < r->n_parts; i++) {
        struct json_object *at = part_at(r, i);
        sum += ndp_fact_number(inner ? ndp_fact_member(at, key, json_type_object) : at, inner ? inner : key);
    }
    return sum;
}

static double hours_of(const record *r) {
    double sum = 0;
    for (size_t i = 0; i < r->n_parts; i++)
        sum += (ndp_fact_number(part_at(r, i), "end") - ndp_fact_number(part_at(r, i), "start")) / 3600;
    return sum;
}

/* ---- what differs ---- */

static void differ(record *r, const char *field, const char *here, const char *there, const char *other) {
    if (strcmp(here, other) == 0)
        return;
    r->differences++;
    ndp_str_addf(&r->differs, "differs: %s: run.json has %s, %s %s\n", field, here, there, other);
}

static void differ_number(record *r, const char *field, double here, const char *there, double other) {
    char a[32], b[32];
    if (isnan(here) || isnan(other))
        return;
    snprintf(a, sizeof a, "%.17g", here);
    snprintf(b, sizeof b, "%.17g", other);
    differ(r, field, a, there, b);
}

/* Parts that repeat no step, as those of a run that was killed after its last checkpoint do. */
static bool follow_each_other(const record *r) {
    double last = 0;
    bool all = r->n_parts > 0;
    for (size_t i = 0; i < r->n_parts; i++) {
        all = all && ndp_fact_number(part_at(r, i), "first_step") == last + 1;
        last = ndp_fact_number(part_at(r, i), "last_step");
    }
    return all && !isnan(last);
}

/* A part that did not end has what it had at its last checkpoint, so its steps are not compared. */
static void compare_metrics(record *r) {
    struct json_object *last = ndp_fact_part(root_of(r));
    if (r->view.metrics.lines == 0 || !ndp_fact_member(last, "exit_code", json_type_int))
        return;
    differ_number(r, "last_step", ndp_fact_number(last, "last_step"), "metrics.jsonl", (double)r->view.metrics.step);
    if (follow_each_other(r))
        differ_number(r, "tokens", total(r, "tokens", NULL), "metrics.jsonl", r->view.metrics.over[NDP_OVER_TOKENS]);
}

/* Sizes of axes that the job states; auto is not one. */
static void compare_job(record *r) {
    struct json_object *layout = ndp_fact_member(root_of(r), "layout", json_type_object);
    if (!layout)
        return;
    json_object_object_foreach(layout, axis, size) {
        char key[64];
        snprintf(key, sizeof key, "parallelism.%.32s_size", axis);
        const char *value = ndp_run_job_value(&r->view, key);
        if (value && value[strspn(value, "0123456789")] == '\0' && strcmp(value, "0") != 0)
            differ(r, key, ndp_fact_text(size), "job.yaml", value);
    }
}

/* Weights in the checkpoints (train/identity.h) are no longer those that the run began with. */
static void compare_hashes(record *r, struct json_object *identity) {
    struct json_object *hashes = ndp_fact_member(root_of(r), "hashes", json_type_object);
    for (int i = 0; i < NDP_COUNT(hash_keys); i++) {
        const char *here = ndp_fact_word(hashes, hash_keys[i][0]), *there = ndp_fact_word(identity, hash_keys[i][1]);
        if (*here && *there && strcmp(there, "in the checkpoints") != 0)
            differ(r, hash_keys[i][0], here, "the manifest", there);
    }
}

/* The checkpoint that run.json names as the result: it may have been removed since. */
static void compare_result(record *r) {
    struct json_object *result = ndp_fact_member(root_of(r), "result", json_type_object);
    double step = ndp_fact_number(result, "step");
    char folder[NDP_PATH], hash[40];
    ndp_manifest m = {0};
    if (isnan(step) || ndp_path_join(folder, r->view.folder, "checkpoints") != NDP_OK)
        return;
    ndp_error_state before = ndp_error_swap((ndp_error_state){0});
    if (ndp_step_manifest(folder, (int64_t)step, &m) == NDP_OK) {
        snprintf(hash, sizeof hash, "%016llx%016llx", (unsigned long long)m.hash.high, (unsigned long long)m.hash.low);
        differ(r, "result", ndp_fact_word(result, "hash"), "the manifest", hash);
        compare_hashes(r, ndp_fact_member(m.info.extra, "identity", json_type_object));
    }
    ndp_manifest_release(&m);
    ndp_error_forget();
    ndp_error_swap(before);
}

/* ---- lines ---- */

static void line(record *r, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void line(record *r, const char *name, const char *format, ...) {
    char value[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    ndp_str_addf(&r->text, r->markdown ? "| %s | %s |\n" : "%-16s%s\n", name, value);
}

/* "2026-01-31 12:00:00"; "unknown" of no time. */
static const char *date_of(double seconds, char out[32]) {
    time_t t = isnan(seconds) ? 0 : (time_t)seconds;
    struct tm parts;
    if (isnan(seconds) || !gmtime_r(&t, &parts) || !strftime(out, 32, "%Y-%m-%d %H:%M:%S", &parts))
        snprintf(out, 32, "unknown");
    return out;
}

/* decimals < 0: six digits. */
static void line_number(record *r, const char *name, int decimals, double x) {
    if (isnan(x))
        line(r, name, "unknown");
    else if (decimals < 0)
        line(r, name, "%.6g", x);
    else
        line(r, name, "%.*f", decimals, x);
}

static void put_layout(record *r) {
    struct json_object *layout = ndp_fact_member(root_of(r), "layout", json_type_object);
    ndp_str text = {0};
    json_object_object_foreach(layout ? layout : root_of(r), axis,
                               size) if (layout && ndp_fact_is_number(size) && json_object_get_double(size) > 1)
        ndp_str_addf(&text, "%s%s %s", text.length ? " x " : "", axis, ndp_fact_text(size));
    line(r, "layout", "%s", text.length ? text.data : "one rank");
    ndp_str_release(&text);
}

static void put_hashes(record *r) {
    struct json_object *hashes = ndp_fact_member(root_of(r), "hashes", json_type_object),
                       *result = ndp_fact_member(root_of(r), "result", json_type_object);
    for (int i = 0; i < NDP_COUNT(hash_keys); i++)
        if (*ndp_fact_word(hashes, hash_keys[i][0]))
            line(r, hash_keys[i][0], "%s", ndp_fact_word(hashes, hash_keys[i][0]));
    if (result)
        line(r, "result", "checkpoint of step %.0f, %s", ndp_fact_number(result, "step"),
             ndp_fact_word(result, "hash"));
}

static void put_work(record *r) {
    line_number(r, "tokens", 0, total(r, "tokens", NULL));
    line_number(r, "model FLOPs", -1, total(r, "flops", "model"));
    line_number(r, "hardware FLOPs", -1, total(r, "flops", "hardware"));
    line_number(r, "hours", 4, hours_of(r));
    line_number(r, "device hours", 4, total(r, "device_hours", NULL));
    line_number(r, "energy, kWh", -1, total(r, "energy_joules", NULL) / 3.6e6);
}

static void put_parts(record *r) {
    char start[32], end[32];
    for (size_t i = 0; i < r->n_parts; i++) {
        struct json_object *p = part_at(r, i);
        bool ended = ndp_fact_member(p, "exit_code", json_type_int);
        line(r, "part", "%s to %s, steps %.0f to %.0f, %s: %s", date_of(ndp_fact_number(p, "start"), start),
             date_of(ndp_fact_number(p, "end"), end), ndp_fact_number(p, "first_step"), ndp_fact_number(p, "last_step"),
             ndp_fact_word(p, "version"), ended ? ndp_fact_word(p, "cause") : "did not end");
    }
}

static void put_all(record *r) {
    struct json_object *o = root_of(r), *hosts = ndp_fact_member(o, "hosts", json_type_array);
    if (r->markdown)
        ndp_str_add(&r->text, "## Training record\n\n| | |\n|---|---|\n");
    line(r, "run", "%s: %s, step %lld of %.0f", r->view.folder, ndp_run_state_word(r->view.state),
         (long long)r->view.step, ndp_fact_number(o, "steps"));
    line(r, "program", "ndparallel %s", ndp_fact_word(o, "version"));
    line_number(r, "parameters", 0, ndp_fact_number(o, "parameters"));
    line(r, "device", "%s: %s", ndp_fact_word(o, "device"), ndp_fact_word(o, "device_name"));
    line(r, "ranks", "%zu", hosts ? json_object_array_length(hosts) : 0);
    put_layout(r);
    put_work(r);
    put_hashes(r);
    put_parts(r);
    ndp_str_add(&r->text, r->differs.data ? r->differs.data : "");
}

static void put_json(record *r, struct json_object *out) {
    struct json_object *list = json_object_new_array();
    char *rest = NULL;
    for (char *l = r->differs.data ? strtok_r(r->differs.data, "\n", &rest) : NULL; l; l = strtok_r(NULL, "\n", &rest))
        json_object_array_add(list, json_object_new_string(l + strlen("differs: ")));
    json_object_object_add(out, "run", json_object_new_string(r->view.folder));
    json_object_object_add(out, "state", json_object_new_string(ndp_run_state_word(r->view.state)));
    json_object_object_add(out, "record", json_object_get(root_of(r)));
    json_object_object_add(out, "differences", list);
    ndp_str_add(&r->text, json_object_to_json_string_ext(out, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(out);
}

ndp_status ndp_record_show(const char *run, ndp_record_form form, char **text, int *differences) {
    NDP_NOT_NULL(run, text, differences);
    record r = {.markdown = form == NDP_RECORD_AS_MARKDOWN};
    ndp_status st = ndp_run_read(run, false, &r.view);
    if (st == NDP_OK && !root_of(&r))
        st = NDP_FAIL(NDP_EINVAL, "%s has no run.json that can be read: the run has not begun its steps", run);
    if (st == NDP_OK) {
        r.parts = ndp_fact_member(root_of(&r), "parts", json_type_array);
        r.n_parts = r.parts ? json_object_array_length(r.parts) : 0;
        compare_metrics(&r);
        compare_job(&r);
        compare_result(&r);
        form == NDP_RECORD_AS_JSON ? put_json(&r, json_object_new_object()) : put_all(&r);
        *differences = r.differences;
        st = r.text.failed || r.differs.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for a record") : NDP_OK;
    }
    *text = st == NDP_OK ? r.text.data : NULL;
    if (st != NDP_OK)
        ndp_str_release(&r.text);
    ndp_str_release(&r.differs);
    ndp_run_release(&r.view);
    return st;
}
