/* The memory of a micro-batch, which rows it shows, and loading them. Called by rank/, score/ and train/. */
#include "batch/feed.h"

#include <stdlib.h>
#include <string.h>

/* Takes the memory of the columns that have none yet. */
static ndp_status take_columns(ndp_feed *f) {
    for (int i = 0; i < ndp_column_count; i++) {
        size_t bytes = f->memory[i] ? 0 : ndp_columns[i].bytes(f);
        if (bytes == 0)
            continue;
        if (!(f->memory[i] = calloc(1, bytes)))
            return NDP_FAIL(NDP_ENOMEM, "not enough memory for a micro-batch of %lld tokens",
                            (long long)f->job->model.rows);
        memcpy((char *)&f->whole + ndp_columns[i].place, &f->memory[i], sizeof f->memory[i]);
    }
    return NDP_OK;
}

ndp_status ndp_feed_open(ndp_feed *f, const ndp_job *job, const ndp_job_data *data, const ndp_choices *given) {
    const ndp_batch_plan *b = &job->batch;
    *f = (ndp_feed){.job = job, .data = data, .shape = {b->global_batch, b->micro_batch, b->data_ranks}};
    f->whole.rows = job->model.rows;
    f->rows = calloc((size_t)f->shape.micro, sizeof *f->rows);
    NDP_CHECK_MEMORY(f->rows, "for a micro-batch of %lld rows", (long long)f->shape.micro);
    NDP_TRY(take_columns(f));
    f->given = given; /* a model says how many there are (ndp_feed_open_choices) */
    return NDP_OK;
}

ndp_status ndp_feed_open_choices(ndp_feed *f, const ndp_model *m) {
    const char *path = f->job->config->moe.routes;
    if (!f->given && path) {
        NDP_TRY(ndp_choices_read(path, m, f->shape.global * f->job->config->data.sequence_length, &f->of_file));
        f->given = &f->of_file;
    }
    if (m->inputs->mixtures.n == 0)
        f->given = NULL;
    return take_columns(f);
}

void ndp_feed_release(ndp_feed *f) {
    for (int i = 0; i < ndp_column_count; i++)
        free(f->memory[i]);
    ndp_choices_release(&f->of_file);
    free(f->rows);
    *f = (ndp_feed){0};
}

void ndp_feed_draw(ndp_feed *f, int64_t update, int64_t first_sample, int m, int d) {
    for (int64_t j = 0; j < f->shape.micro; j++) {
        int64_t sample = ndp_sample_index(&f->shape, 0, m, d, j);
        f->rows[j] = (ndp_feed_row){.of = f->data->dataset,
                                    .row = ndp_sampler_row(&f->data->sampler, first_sample + sample),
                                    .update = update,
                                    .sample = sample,
                                    .index = first_sample + sample};
    }
}

ndp_status ndp_feed_load(ndp_feed *f) {
    for (int64_t j = 0; j < f->shape.micro; j++)
        for (int i = 0; i < ndp_column_count; i++)
            if (f->memory[i] && ndp_columns[i].fill)
                NDP_TRY(ndp_columns[i].fill(f, j, &f->rows[j]));
    return f->rows[0].of ? ndp_dataset_check(f->rows[0].of) : NDP_OK;
}

ndp_hash128 ndp_feed_hash(const ndp_feed *f) {
    ndp_hash128 parts[NDP_FEED_COLUMNS] = {{0, 0}};
    for (int i = 0; i < ndp_column_count; i++)
        if (f->memory[i])
            parts[i] = ndp_hash128_of(f->memory[i], ndp_columns[i].bytes(f));
    return ndp_hash128_of(parts, sizeof parts);
}

int32_t *ndp_feed_labels(const ndp_feed *f) { return (int32_t *)(uintptr_t)f->whole.labels; }
