/* ndp_data: makes or finds the token caches of a job, on one process, and shows what is in them. */
#include "base/clock.h"
#include "base/json_write.h"
#include "data/sample.h"
#include "job/job_shown.h"

#include <stdlib.h>

typedef struct data_reading {
    const ndp_data_opts *o;
    ndp_job_data *data;
    double begin, last;
} data_reading;

static void say_tokenizing(void *user, uint64_t done, uint64_t total) {
    data_reading *r = user;
    double now = ndp_now();
    char line[160];
    if (!r->o->working || now - r->begin < 1 || now - r->last < 0.1)
        return;
    r->last = now;
    ndp_job_data_progress(done, total, now - r->begin, line);
    r->o->working(r->o->user, line);
}

static ndp_status tokens_of(void *user, const ndp_strings *files, ndp_token_cache *out) {
    data_reading *r = user;
    ndp_dataset_options o = ndp_job_data_options(r->data, files);
    char *path;
    o.id_files = files == &r->data->job->config->data.files ? &r->data->id_files : &r->data->held_id_files;
    if (r->o->head)
        return ndp_dataset_sample(&o, out);
    o.progress = say_tokenizing;
    o.progress_user = r;
    NDP_TRY(ndp_dataset_prepare(&o, &path));
    ndp_status st = ndp_token_cache_open(path, out);
    free(path);
    return st;
}

static ndp_status show(const ndp_job_data *d, const ndp_data_opts *o, char **text) {
    const ndp_job_shown shown = {.records = o->show, .style = {o->ids, o->colour}};
    ndp_str lines = {0};
    ndp_json_out json = {0};
    ndp_job_data_describe(d, &lines);
    ndp_status st = NDP_OK;
    if (o->json) {
        ndp_json_open(&json, NULL, '{');
        ndp_json_put_lines(&json, "lines", lines.data ? lines.data : "");
        st = ndp_job_data_put(d, &shown, &json);
        ndp_json_close(&json, '}');
        ndp_str_add(&json.text, "\n");
        ndp_str_release(&lines);
        lines = json.text;
    } else {
        ndp_str_add(&lines, "\n");
        st = ndp_job_data_add_totals(d, &lines);
        if (st == NDP_OK && o->show > 0)
            ndp_str_add(&lines,
                        o->colour ? "\nGreen: trained on. Grey: in no row.\n" : "\n[ ]: trained on. { }: in no row.\n");
        if (st == NDP_OK)
            st = ndp_job_data_show(d, &shown, &lines);
    }
    if (st == NDP_OK && lines.failed)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory to show the data");
    if (st == NDP_OK)
        *text = ndp_str_detach(&lines);
    ndp_str_release(&lines);
    return st;
}

ndp_status ndp_data(const ndp_config *c, const ndp_data_opts *o, char **text) {
    NDP_NOT_NULL(c, o, text);
    ndp_job j;
    ndp_job_data d;
    NDP_TRY(ndp_job_init(c, 0, &j));
    ndp_status st = ndp_job_data_open(&j, &d);
    if (st == NDP_OK) {
        data_reading r = {o, &d, ndp_now(), ndp_now()};
        st = ndp_job_data_rows(&d, false, tokens_of, &r);
        if (st == NDP_OK)
            st = show(&d, o, text);
        ndp_job_data_close(&d);
    }
    ndp_job_release(&j);
    return st;
}
