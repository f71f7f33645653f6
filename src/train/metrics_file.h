/* Inside the train room: metrics.jsonl of a run folder, one JSON object a step. */
#ifndef NDP_TRAIN_METRICS_FILE_H
#define NDP_TRAIN_METRICS_FILE_H

#include "train/appended.h"
#include "train/best.h"

struct ndp_metrics_file {
    ndp_appended file;
    int64_t newest;    /* the step of the last line when it was opened; 0: none */
    ndp_best best;     /* the evaluations in the lines that it had then */
    double peak_flops; /* in the last line that has one */
};
typedef struct ndp_metrics_file ndp_metrics_file;

/* Opens FOLDER/metrics.jsonl, without the lines after `step`, which were never saved: a resumed run writes them again.
 * evaluated: nor the line of `step` itself, if it has no evaluation. */
NDP_API ndp_status ndp_metrics_open(ndp_metrics_file *f, const char *folder, int64_t step, bool evaluated);
/* Appends a line, as ndp_appended_add. peak_flops is in the first one and where it changes. */
NDP_API ndp_status ndp_metrics_add(ndp_metrics_file *f, const ndp_metrics *m);
/* `m` as its line has it, without peak_flops if that is `peak`, which the lines before have. */
ndp_metrics ndp_metrics_as_line(const ndp_metrics *m, double peak);
void ndp_metrics_close(ndp_metrics_file *f);

/* One number of a step but for the step itself. */
typedef struct ndp_metric {
    const char *key;
    bool held;  /* of the evaluation; metrics.jsonl then has "eval_" before the key */
    bool whole; /* `count` has it, else `x` */
    int digits; /* that mean something, of a number that depends on the clock or the machine; 0: the same in each run */
    int64_t count;
    double x; /* may be NaN or infinite */
} ndp_metric;

/* The metric is borrowed; its key lasts. */
typedef void ndp_metric_visit(void *user, const ndp_metric *one);

/* Visits the numbers that a line has, in its order. */
void ndp_metrics_each(const ndp_metrics *m, ndp_metric_visit *each, void *user);

struct json_object;
/* The metrics of a step as a checkpoint has them: what does not depend on the clock or the machine, so that equal runs
 * have equal checkpoints. The caller releases it with json_object_put; NULL: out of memory. */
struct json_object *ndp_metrics_to_json(const ndp_metrics *m);
/* Back: the other numbers are NaN, or 0. NDP_EFORMAT names `what`. */
NDP_API ndp_status ndp_metrics_from_json(struct json_object *o, const char *what, ndp_metrics *out);

#endif
