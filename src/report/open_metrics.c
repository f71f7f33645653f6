/* Numbers of a run for Prometheus (open_metrics.h). A family is a row of a table here: where its number comes from, its
 * kind, and its unit, which the format wants at the end of the name. */
#include "report/open_metrics.h"

#include "report/run_facts.h"

#include <math.h>
#include <string.h>

/* Inside of quotes: backslashes, quotes and line breaks are escaped; bytes that are not UTF-8 become U+FFFD. */
static void add_label(ndp_str *out, const char *text) {
    size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        size_t valid = ndp_utf8_valid_prefix(text + at, n - at);
        for (size_t i = at; i < at + valid; i++)
            if (text[i] == '\n')
                ndp_str_add(out, "\\n");
            else
                ndp_str_addf(out, "%s%c", text[i] == '"' || text[i] == '\\' ? "\\" : "", text[i]);
        at += valid;
        if (at < n) {
            ndp_str_add(out, "\xef\xbf\xbd");
            at++;
        }
    }
}

/* The newest value of a key, or the sum over all lines; others are members of what was read. */
typedef enum number_from { NEWEST_OF, SUM_OF, STEP, STEPS, LOSS, TOKENS, TIME, LINES, DAMAGED } number_from;

static const struct {
    const char *name, *unit; /* unit: "" none; the family is ndparallel_NAME_UNIT */
    bool counter;
    number_from from;
    const char *key, *help;
} families[] = {
    {"step", "", false, STEP, NULL, "Updates so far."},
    {"steps", "", false, STEPS, NULL, "Updates of the whole job."},
    {"loss", "", false, LOSS, NULL, "Mean loss of the newest update's tokens."},
    {"eval_loss", "", false, NEWEST_OF, "eval_loss", "Mean loss of the held-out data, of the newest evaluation."},
    {"grad_norm", "", false, NEWEST_OF, "grad_norm", "Norm of the gradient before clipping."},
    {"lr", "", false, NEWEST_OF, "lr", "Learning rate."},
    {"tokens", "", true, TOKENS, NULL, "Tokens predicted since the first step."},
    {"tokens_per_second", "", false, NEWEST_OF, "tokens_per_second", "Tokens per second of all ranks, newest update."},
    {"mfu", "ratio", false, NEWEST_OF, "mfu", "Share of the machine's peak, newest update."},
    {"compute", "seconds", true, SUM_OF, "compute_seconds", "Time in steps without waits, of rank 0."},
    {"communication", "seconds", true, SUM_OF, "communication_seconds", "Waits for other ranks that nothing hid."},
    {"data", "seconds", true, SUM_OF, "data_seconds", "Time that loading rows took."},
    {"evaluation", "seconds", true, SUM_OF, "evaluation_seconds", "Time of evaluations."},
    {"save", "seconds", true, SUM_OF, "save_seconds", "Time of saves of checkpoints."},
    {"peak_memory", "bytes", false, NEWEST_OF, "peak_memory_bytes", "The most memory that rank 0's process has used."},
    {"newest_step_timestamp", "seconds", false, TIME, NULL, "When the newest update ended, since 1970."},
    {"metrics_lines", "", true, LINES, NULL, "Lines of metrics.jsonl that were read."},
    {"damaged_metrics_lines", "", true, DAMAGED, NULL, "Lines of metrics.jsonl that were left out."},
};

static double number_from_run(const ndp_run_view *r, int i) {
    const ndp_run_metrics *m = &r->metrics;
    const ndp_curve *c = families[i].key ? ndp_run_metrics_curve(m, families[i].key) : NULL;
    switch (families[i].from) {
    case STEP:
        return (double)r->step;
    case STEPS:
        return r->steps > 0 ? (double)r->steps : NAN;
    case LOSS:
        return m->lines ? m->loss : NAN;
    case TOKENS:
        return m->over[NDP_OVER_TOKENS];
    case TIME:
        return m->lines ? m->time : NAN;
    case LINES:
        return (double)m->lines;
    case DAMAGED:
        return (double)m->damaged;
    case NEWEST_OF:
        return c ? c->newest : NAN;
    case SUM_OF:
        return c ? c->sum : NAN;
    }
    return NAN;
}

/* `more`: what a sample's name has behind the family's. */
static void begin_family(ndp_str *out, const char *name, const char *unit, const char *type, const char *help) {
    const char *line = *unit ? "_" : "";
    ndp_str_addf(out, "# TYPE ndparallel_%s%s%s %s\n", name, line, unit, type);
    if (*unit)
        ndp_str_addf(out, "# UNIT ndparallel_%s_%s %s\n", name, unit, unit);
    ndp_str_addf(out, "# HELP ndparallel_%s%s%s %s\n", name, line, unit, help);
}

static void add_family(ndp_str *out, int i, double x, const char *label) {
    const char *unit = families[i].unit;
    begin_family(out, families[i].name, unit, families[i].counter ? "counter" : "gauge", families[i].help);
    ndp_str_addf(out, "ndparallel_%s%s%s%s{%s} ", families[i].name, *unit ? "_" : "", unit,
                 families[i].counter ? "_total" : "", label);
    if (isinf(x))
        ndp_str_add(out, x > 0 ? "+Inf" : "-Inf");
    else
        ndp_str_addf(out, "%.17g", x);
    ndp_str_add(out, "\n");
}

static void add_states(ndp_str *out, const ndp_run_view *r, const char *label) {
    begin_family(out, "run_state", "", "stateset", "What the run folder and its lock say.");
    for (int s = NDP_RUN_RUNNING; s <= NDP_RUN_DIED; s++)
        ndp_str_addf(out, "ndparallel_run_state{%s,ndparallel_run_state=\"%s\"} %d\n", label,
                     ndp_run_state_word((ndp_run_state)s), (int)r->state == s);
}

static void add_info(ndp_str *out, const ndp_run_view *r, const char *label) {
    static const char *const keys[] = {"version", "device", "transport"};
    struct json_object *hosts = ndp_fact_member(r->record, "hosts", json_type_array);
    begin_family(out, "run", "", "info", "What the run is, as its run.json has it.");
    ndp_str_addf(out, "ndparallel_run_info{%s", label);
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        ndp_str_addf(out, ",%s=\"", keys[i]);
        add_label(out, ndp_fact_word(r->record, keys[i]));
        ndp_str_add(out, "\"");
    }
    ndp_str_addf(out, ",ranks=\"%zu\"} 1\n", hosts ? json_object_array_length(hosts) : 0);
}

void ndp_open_metrics_add(ndp_str *out, const ndp_run_view *r, const char *name) {
    ndp_str label = {0};
    ndp_str_add(&label, "run=\"");
    add_label(&label, name);
    ndp_str_add(&label, "\"");
    out->failed |= label.failed;
    for (int i = 0; !label.failed && i < NDP_COUNT(families); i++) {
        double x = number_from_run(r, i);
        if (!isnan(x))
            add_family(out, i, x, label.data);
    }
    if (!label.failed) {
        add_states(out, r, label.data);
        add_info(out, r, label.data);
    }
    ndp_str_add(out, "# EOF\n");
    ndp_str_release(&label);
}
