/* What a report keeps of a metrics.jsonl (train/metrics_file.c): each number of its lines as a curve over steps, tokens
 * and seconds, its evaluations, and totals. Of 100,000 lines it keeps some MiB. Any bytes are safe to read. */
#ifndef NDP_REPORT_RUN_METRICS_H
#define NDP_REPORT_RUN_METRICS_H

#include "base/json.h"
#include "report/curve_columns.h"

/* What curves are drawn over. Tokens and seconds are those of the whole run: of `tokens_total` and `time` where lines
 * have them, otherwise sums of `tokens` and `step_seconds`. */
typedef enum ndp_over { NDP_OVER_STEPS, NDP_OVER_TOKENS, NDP_OVER_SECONDS, NDP_OVERS } ndp_over;

typedef struct ndp_curve {
    char *key;
    double newest, sum; /* of the newest line that has the key, NaN: null there; over all lines */
    ndp_curve_columns over[NDP_OVERS];
} ndp_curve;

typedef struct ndp_eval_point {
    int64_t step;
    double loss;
} ndp_eval_point;

/* `{0}` has read nothing. */
typedef struct ndp_run_metrics {
    int64_t lines, damaged; /* lines that were read; those left out: no JSON, no step or loss, or steps that go back */
    int64_t step;           /* of the newest line */
    double loss, tokens_per_second, time; /* of the newest line; NaN: it has none */
    double over[NDP_OVERS];               /* where the newest line is */
    double tokens, seconds;               /* sums over all lines that have both */
    double recent;                        /* step_seconds of the newest lines, averaged; 0: none has them */
    int64_t no_loss, first_no_loss;       /* lines whose loss is not a number, and the step of the first */
    int64_t checked, cause_step;          /* steps that were checked, and the newest of them */
    char *cause;                          /* what was found in that; NULL: none was checked */
    ndp_curve *curves;                    /* in the order in which their keys were seen */
    int n_curves;
    ndp_eval_point *evals;
    int64_t n_evals, capacity, curve_capacity;
    void (*on_line)(void *user, struct json_object *line); /* called for each line that is read; NULL: nothing */
    void *user;
} ndp_run_metrics;

/* Reads all lines of a text, the rest of a run's so far. Empty lines are no lines. NDP_ENOMEM. */
NDP_API ndp_status ndp_run_metrics_add(ndp_run_metrics *m, const char *text, size_t size);
/* Reads the newest line and the newest evaluation alone, from the end. NDP_ENOMEM. */
NDP_API ndp_status ndp_run_metrics_newest(ndp_run_metrics *m, const char *text, size_t size);
void ndp_run_metrics_release(ndp_run_metrics *m);

/* NaN: no such member, null or not a number. */
double ndp_line_number(struct json_object *line, const char *key);
/* NULL: there is no such curve. */
const ndp_curve *ndp_run_metrics_curve(const ndp_run_metrics *m, const char *key);
/* The least loss of the evaluations, the first of equal ones; NULL: there is none. */
const ndp_eval_point *ndp_run_metrics_best(const ndp_run_metrics *m);

#endif
