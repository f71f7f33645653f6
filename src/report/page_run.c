/* The sections of a report's page about one run. Each is left out where the run has nothing for it. */
#include "report/page.h"
#include "report/plot.h"
#include "report/run_facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is shown of a long list: its end. */
enum { MOST_EVALS = 40, MOST_SAMPLES = 20, MOST_PARTS = 8 };

static void put_quantity(ndp_str *out, const char *tag, ndp_quantity q, double x) {
    ndp_str text = {0};
    ndp_quantity_add(&text, q, x);
    out->failed |= text.failed;
    ndp_page_put(out, tag, "%s", text.data ? text.data : "");
    ndp_str_release(&text);
}

/* A table of an object's members, which are all of one kind. */
static void add_members(ndp_str *out, const char *title, struct json_object *o, ndp_quantity q) {
    if (!o || json_object_object_length(o) == 0)
        return;
    ndp_str_add(out, "<div class=\"wide\">");
    ndp_page_put(out, "h3", "%s", title);
    ndp_str_add(out, "<table>\n");
    json_object_object_foreach(o, key, value) {
        ndp_str_add(out, "<tr>");
        ndp_page_put(out, "td", "%s", key);
        if (ndp_fact_is_number(value))
            put_quantity(out, "td class=\"number\"", q, json_object_get_double(value));
        else
            ndp_page_put(out, "td class=\"number\"", "%s", ndp_fact_text(value));
        ndp_str_add(out, "</tr>\n");
    }
    ndp_str_add(out, "</table></div>\n");
}

/* A list of texts as a line, each but those that are the same as the one before: ranks of one host name it each. */
static void add_words(ndp_str *out, const char *title, struct json_object *list) {
    size_t n = list ? json_object_array_length(list) : 0;
    ndp_str words = {0};
    for (size_t i = 0; i < n; i++) {
        struct json_object *word_i = json_object_array_get_idx(list, i);
        if (i == 0 || !json_object_equal(word_i, json_object_array_get_idx(list, i - 1)))
            ndp_str_addf(&words, "%s%s", i ? " " : "", ndp_fact_text(word_i));
    }
    out->failed |= words.failed;
    if (n)
        ndp_page_put(out, "p class=\"soft\"", "%s: %s", title, words.data ? words.data : "");
    ndp_str_release(&words);
}

/* Facts are members of the record, or of its newest part. */
static void add_facts(ndp_str *out, const ndp_run_view *r) {
    static const char *const keys[] = {"version", "commit", "device", "transport", "command", "hosts"};
    struct json_object *part = ndp_fact_part(r->record);
    double parameters = ndp_fact_number(r->record, "parameters");
    ndp_page_put(out, "p class=\"soft\"", "folder: %s", r->folder);
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        struct json_object *from = json_object_object_get_ex(r->record, keys[i], NULL) ? r->record : part;
        if (*ndp_fact_word(from, keys[i]))
            ndp_page_put(out, "p class=\"soft\"", "%s: %s", keys[i], ndp_fact_word(from, keys[i]));
        add_words(out, keys[i], ndp_fact_member(from, keys[i], json_type_array));
    }
    if (!isnan(parameters))
        ndp_page_put(out, "p class=\"soft\"", "parameters: %.0f", parameters);
}

/* ---- where the time went ---- */

typedef struct shares {
    const char *names[MOST_PARTS];
    double values[MOST_PARTS];
    int n;
} shares;

static void add_share(shares *s, const char *name, double seconds) {
    int i = 0;
    while (i < s->n && strcmp(s->names[i], name) != 0)
        i++;
    if (i == MOST_PARTS || !(seconds >= 0) || !(seconds < 1e15))
        return;
    s->n += i == s->n;
    s->names[i] = name;
    s->values[i] += seconds;
}

static void add_time(ndp_str *out, const shares *s) {
    double sum = 0;
    for (int i = 0; i < s->n; i++)
        sum += s->values[i];
    if (!(sum > 0))
        return;
    ndp_str_add(out, "<h3>Where the time went</h3>\n<div class=\"bar\">");
    ndp_bar_add(out, "where the time went", s->values, s->names, s->n);
    ndp_str_add(out, "</div><p>");
    for (int i = 0; i < s->n; i++) {
        ndp_str value = {0};
        ndp_quantity_add(&value, NDP_QUANTITY_SECONDS, s->values[i]);
        out->failed |= value.failed;
        ndp_str_addf(out,
                     "<span class=\"key\"><svg class=\"swatch\" viewBox=\"0 0 12 12\"><rect class=\"p%d\" width=\"12\" "
                     "height=\"12\"/></svg>",
                     i);
        ndp_page_put(out, "span", "%s %s, %.1f%%", s->names[i], value.data ? value.data : "", 100 * s->values[i] / sum);
        ndp_str_add(out, "</span> ");
        ndp_str_release(&value);
    }
    ndp_str_add(out, "</p>\n");
}

static void add_part(ndp_str *out, struct json_object *part) {
    char date[32];
    double first = ndp_fact_number(part, "first_step"), last = ndp_fact_number(part, "last_step"),
           code = ndp_fact_number(part, "exit_code");
    ndp_str_add(out, "<tr>");
    ndp_page_put(out, "td", "%s", ndp_page_date(ndp_fact_number(part, "start"), date));
    ndp_page_put(out, "td", "%s", ndp_page_date(ndp_fact_number(part, "end"), date));
    ndp_page_put(out, "td class=\"number\"", isnan(first) || isnan(last) ? "-" : "%.0f to %.0f", first, last);
    ndp_page_put(out, "td class=\"number\"", isnan(code) ? "-" : "%.0f", code);
    ndp_page_put(out, "td", "%s", ndp_fact_word(part, "cause"));
    ndp_str_add(out, "</tr>\n");
}

static void add_parts(ndp_str *out, struct json_object *parts) {
    size_t n = parts ? json_object_array_length(parts) : 0;
    shares s = {0};
    for (size_t i = 0; i < n; i++) {
        struct json_object *seconds = ndp_fact_member(json_object_array_get_idx(parts, i), "seconds", json_type_object);
        if (seconds) {
            json_object_object_foreach(seconds, key, value) if (ndp_fact_is_number(value))
                add_share(&s, key, json_object_get_double(value));
        }
    }
    add_time(out, &s);
    if (n == 0)
        return;
    ndp_str_add(out, "<h3>Starts and ends</h3>\n<div class=\"wide\"><table><tr><th>start</th><th>end</th>"
                     "<th class=\"number\">steps</th><th class=\"number\">exit code</th><th>cause</th></tr>\n");
    for (size_t i = 0; i < n; i++)
        add_part(out, json_object_array_get_idx(parts, i));
    ndp_str_add(out, "</table></div>\n");
}

/* ---- evaluations, checkpoints, samples ---- */

static void add_evals(ndp_str *out, const ndp_run_metrics *m) {
    const ndp_eval_point *best = ndp_run_metrics_best(m);
    int64_t first = m->n_evals > MOST_EVALS ? m->n_evals - MOST_EVALS : 0;
    if (!best)
        return;
    ndp_str_add(out, "<div class=\"wide\"><h3>Evaluations");
    if (first)
        ndp_str_addf(out, ": the last %d of %lld", MOST_EVALS, (long long)m->n_evals);
    ndp_str_add(out, "</h3>\n<table><tr><th class=\"number\">step</th>"
                     "<th class=\"number\">eval_loss</th><th></th></tr>\n");
    for (int64_t i = first; i < m->n_evals; i++)
        ndp_str_addf(out, "<tr><td class=\"number\">%lld</td><td class=\"number\">%.4f</td><td>%s</td></tr>\n",
                     (long long)m->evals[i].step, m->evals[i].loss, &m->evals[i] == best ? "the best" : "");
    ndp_str_add(out, "</table></div>\n");
}

typedef struct checkpoints {
    ndp_str rows;
    int n;
} checkpoints;

static void add_checkpoint(void *user, const ndp_checkpoint_entry *e) {
    static const char *const words[] = {"verified", "complete, data not read", "without hashes", "damaged",
                                        "set aside"};
    checkpoints *c = user;
    char size[16], date[32];
    c->n++;
    ndp_str_add(&c->rows, "<tr>");
    ndp_page_put(&c->rows, "td", "%s", e->name);
    ndp_page_put(&c->rows, "td class=\"number\"", "%s", ndp_human_bytes((double)e->bytes, size));
    ndp_page_put(&c->rows, "td", "%s", ndp_page_date((double)e->saved, date));
    ndp_page_put(&c->rows, "td", "%s%s%s", words[e->state], e->words[0] ? ": " : "", e->words);
    ndp_str_add(&c->rows, "</tr>\n");
}

/* A run may remove one while it is examined: what was listed until then is shown. */
static void add_checkpoints(ndp_str *out, const ndp_run_view *r) {
    checkpoints c = {0};
    (void)!ndp_checkpoints_examine(r->folder, NULL, 0, false, add_checkpoint, &c);
    out->failed |= c.rows.failed;
    if (c.n) {
        ndp_str_add(out, "<div class=\"wide\"><h3>Checkpoints</h3>\n<table><tr><th>folder</th><th class=\"number\">size"
                         "</th><th>saved</th><th>state</th></tr>\n");
        ndp_str_add(out, c.rows.data ? c.rows.data : "");
        ndp_str_add(out, "</table></div>\n");
    }
    ndp_str_release(&c.rows);
}

static void add_sample(ndp_str *out, const char *line, size_t n) {
    struct json_object *o = NULL;
    if (ndp_json_parse(line, n, "samples.jsonl", &o) != NDP_OK)
        return;
    ndp_page_put(out, "p class=\"soft\"", "step %.0f, prompt: %s", ndp_fact_number(o, "step"),
                 ndp_fact_word(o, "prompt"));
    ndp_page_put(out, "pre", "%s", ndp_fact_word(o, "text"));
    json_object_put(o);
}

static ndp_status add_samples(ndp_str *out, const ndp_run_view *r) {
    char path[NDP_PATH];
    ndp_mapped file;
    NDP_TRY(ndp_path_join(path, r->folder, "samples.jsonl"));
    if (!ndp_path_exists(path))
        return NDP_OK;
    NDP_TRY(ndp_file_map(path, &file));
    const char *text = (const char *)file.data;
    size_t at = file.size;
    for (int lines = 0; at > 0 && lines <= MOST_SAMPLES; lines++) {
        const char *before = memrchr(text, '\n', at - 1);
        at = before ? (size_t)(before - text) : 0;
    }
    ndp_str_add(out, "<details open><summary>Samples</summary>\n");
    while (at < file.size) {
        const char *end = memchr(text + at, '\n', file.size - at);
        size_t n = end ? (size_t)(end - text) - at : file.size - at;
        if (n)
            add_sample(out, text + at, n);
        at += n + 1;
    }
    ndp_str_add(out, "</details>\n");
    return ndp_file_end(&file, NDP_OK);
}

ndp_status ndp_page_run(ndp_page *p, int i) {
    const ndp_run_view *r = &p->runs[i];
    struct json_object *record = r->record;
    ndp_str *out = &p->out;
    ndp_str_add(out, "<section>");
    ndp_page_put(out, "h2", p->n > 1 ? "Run %s" : "The run", p->names[i]);
    add_facts(out, r);
    add_parts(out, ndp_fact_member(record, "parts", json_type_array));
    ndp_str_add(out, "<div class=\"side\">\n");
    add_members(out, "Layout", ndp_fact_member(record, "layout", json_type_object), NDP_QUANTITY_COUNT);
    add_members(out, "Planned memory", ndp_fact_member(record, "memory", json_type_object), NDP_QUANTITY_BYTES);
    add_evals(out, &r->metrics);
    add_checkpoints(out, r);
    ndp_str_add(out, "</div>\n");
    NDP_TRY(add_samples(out, r));
    ndp_str_add(out, "<details><summary>The job</summary>");
    ndp_page_put(out, "pre", "%s", r->job);
    ndp_str_add(out, "</details></section>\n");
    return NDP_OK;
}
