/* The data of a job as a run sees it: totals of each source, and its first records with what is trained on marked. Read
 * from the token caches and the tables of rows; nothing is rendered again. */
#ifndef NDP_JOB_JOB_SHOWN_H
#define NDP_JOB_JOB_SHOWN_H

#include "data/shown.h"
#include "job/job_data.h"

typedef struct ndp_job_shown {
    int64_t records; /* of each source, the first ones; pairs where they are pairs */
    int64_t most;    /* tokens shown of a document; 0: all */
    bool first;      /* of the first source alone */
    ndp_shown_style style;
} ndp_job_shown;

/* Appends a table: of each source its records, tokens, how many of them are predicted, and what is cut, left out or
 * held out; then answers that end without a special token, and special tokens of the chat template that are none here.
 */
ndp_status ndp_job_data_add_totals(const ndp_job_data *d, ndp_str *out);
/* Appends the records. */
ndp_status ndp_job_data_show(const ndp_job_data *d, const ndp_job_shown *o, ndp_str *out);
/* The same as members `sources` and `records` of an object, with ids, and 0 or 1 for each: whether it is predicted. */
ndp_status ndp_job_data_put(const ndp_job_data *d, const ndp_job_shown *o, ndp_json_out *out);

#endif
