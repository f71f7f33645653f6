/* What a run would say about its data, for the head of that data, as text and as JSON. */
#include "data/sample.h"
#include "job/job_shown.h"
#include "plan/plan_report.h"

static ndp_status sample_tokens(void *user, const ndp_strings *files, ndp_token_cache *out) {
    ndp_job_data *d = user;
    ndp_dataset_options o = ndp_job_data_options(d, files);
    o.id_files = files == &d->job->config->data.files ? &d->id_files : &d->held_id_files;
    return ndp_dataset_sample(&o, out);
}

static int64_t in_parts(int64_t n, int64_t of) { return (n + of - 1) / of; }

/* The passes of an evaluation, one source after the other, as score/held_out.c makes them. */
static ndp_plan_rows count_rows(const ndp_job *j, const ndp_job_data *d) {
    ndp_plan_rows r = {.steps = d->steps};
    const bool head = j->config->data.validation_files.n ? d->held_tokens.head : d->tokens.head;
    int64_t each = (int64_t)j->batch.micro_batch * j->batch.data_ranks, first, n,
            most = ndp_job_refers(j) ? ndp_dataset_rows(d->dataset) : 1;
    if (!d->held || head)
        return r;
    for (int i = 0; i < ndp_dataset_sources(d->held); i++) {
        ndp_dataset_source(d->held, i, &first, &n);
        most = n > most ? n : most;
    }
    int64_t needed = in_parts(most, each);
    r.micro_batches = !j->forward.ranks                   ? 1
                      : needed < j->forward.micro_batches ? (int)needed
                                                          : j->forward.micro_batches;
    for (int i = 0; i < ndp_dataset_sources(d->held); i++) {
        ndp_dataset_source(d->held, i, &first, &n);
        r.passes += in_parts(n, each * r.micro_batches);
    }
    return r;
}

static void put_rows_of(ndp_json_out *o, const char *key, const ndp_dataset *set) {
    if (!set) {
        ndp_json_put_null(o, key);
        return;
    }
    ndp_json_open(o, key, '{');
    ndp_json_put_int(o, "documents", ndp_dataset_documents(set));
    ndp_json_put_int(o, "tokens", ndp_dataset_tokens(set));
    ndp_json_put_int(o, "predicted", ndp_dataset_labels(set));
    ndp_json_put_int(o, "rows", ndp_dataset_rows(set));
    ndp_json_put_number(o, "fill", ndp_dataset_fill(set));
    ndp_json_close(o, '}');
}

static void put_data(ndp_json_out *o, const ndp_job_data *d, const char *lines) {
    bool held = d->held && ndp_dataset_rows(d->held) > 0;
    ndp_json_open(o, "data", '{');
    put_rows_of(o, "train", d->dataset);
    put_rows_of(o, "held_out", held ? d->held : NULL);
    ndp_json_put_bool(o, "head_only", d->tokens.head || d->held_tokens.head);
    ndp_json_put_int(o, "steps", d->steps);
    ndp_json_put_lines(o, "lines", lines);
    ndp_json_close(o, '}');
}

ndp_status ndp_plan_data(const ndp_job *j, ndp_plan_report *out) {
    ndp_job_data d;
    NDP_TRY(ndp_job_data_open(j, &d));
    ndp_status st = ndp_job_data_rows(&d, false, sample_tokens, &d);
    if (st == NDP_OK) {
        out->rows = count_rows(j, &d);
        ndp_job_data_describe(&d, &out->text);
        put_data(&out->json, &d, out->text.data ? out->text.data : "");
        st = ndp_job_data_show(&d, &(ndp_job_shown){.records = 1, .most = 200, .first = true}, &out->text);
    }
    ndp_job_data_close(&d);
    return st;
}
