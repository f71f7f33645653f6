/* A plan as JSON: the numbers that its text has (plan.c, plan_check.c). */
#include "plan/holding.h"
#include "plan/plan_report.h"

#include <stdio.h>
#include <string.h>

/* ---- the job ---- */

static void put_model(ndp_json_out *o, const ndp_job *j) {
    const ndp_model_spec *s = &j->spec;
    ndp_str notes = {0};
    ndp_job_notes(j, &notes);
    ndp_json_open(o, "model", '{');
    ndp_json_put_text(o, "type", s->type);
    ndp_json_put_int(o, "layers", s->layout.layers);
    ndp_json_put_int(o, "hidden", s->hidden);
    ndp_json_put_int(o, "heads", s->layout.heads);
    ndp_json_put_int(o, "kv_heads", s->layout.kv_heads);
    ndp_json_put_int(o, "vocabulary", s->vocab);
    ndp_json_put_int(o, "parameters", s->parameters);
    ndp_json_put_lines(o, "notes", notes.data ? notes.data : "");
    ndp_json_close(o, '}');
    ndp_str_release(&notes);
}

void ndp_plan_put_sizes(ndp_json_out *o, const ndp_job *j) {
    for (int i = 0; i < NDP_SIZES; i++)
        ndp_json_put_int(o, ndp_axis_table[i].name, j->layout.size[i]);
}

static void put_layout(ndp_json_out *o, const ndp_job *j) {
    ndp_json_open(o, "layout", '{');
    ndp_plan_put_sizes(o, j);
    ndp_json_put_int(o, "ranks", j->world);
    ndp_json_put_text(o, "compute", ndp_dtype_name(j->model.compute));
    ndp_json_close(o, '}');
}

static void put_batch(ndp_json_out *o, const ndp_job *j) {
    ndp_json_open(o, "batch", '{');
    ndp_json_put_int(o, "global_batch", j->batch.global_batch);
    ndp_json_put_int(o, "micro_batch", j->batch.micro_batch);
    ndp_json_put_int(o, "data_ranks", j->batch.data_ranks);
    ndp_json_put_int(o, "accumulation", j->batch.accumulation);
    ndp_json_put_int(o, "sequence_length", j->config->data.sequence_length);
    ndp_json_close(o, '}');
}

void ndp_plan_put_job(ndp_json_out *o, const ndp_job *j) {
    put_model(o, j);
    put_layout(o, j);
    put_batch(o, j);
}

/* ---- one rank ---- */

void ndp_plan_put_cut(ndp_json_out *o, const ndp_row_cut *r) {
    ndp_json_open(o, "rows", '{');
    ndp_json_put_int(o, "micro_batch", r->real);
    ndp_json_put_int(o, "padded", r->padded);
    ndp_json_put_int(o, "rank", r->tokens);
    ndp_json_put_int(o, "queries", r->queries);
    ndp_json_put_int(o, "keys", r->keys);
    ndp_json_put_int(o, "residual", r->slice);
    ndp_json_close(o, '}');
}

size_t ndp_plan_put_classes(ndp_json_out *o, const ndp_budget *b) {
    size_t sum = 0;
    for (int c = 0; c < NDP_MEM_CLASSES; c++) {
        char key[32]; /* "optimizer_state" */
        snprintf(key, sizeof key, "%s", ndp_memory_class_name((ndp_memory_class)c));
        for (char *at = key; (at = strchr(at, ' '));)
            *at = '_';
        ndp_json_put_int(o, key, (int64_t)b->class_bytes[c]);
        sum += b->class_bytes[c];
    }
    return sum;
}

void ndp_plan_put_memory(ndp_json_out *o, const ndp_budget *b, const ndp_engine_memory *score,
                         const ndp_engine_memory *texts, int64_t nccl) {
    ndp_json_open(o, "memory", '{');
    ndp_json_open(o, "classes", '{');
    size_t sum = ndp_plan_put_classes(o, b);
    ndp_json_close(o, '}');
    ndp_json_put_int(o, "sum", (int64_t)sum);
    ndp_json_put_int(o, "taken", (int64_t)b->total);
    ndp_json_put_int(o, "held_out", score->device);
    if (texts->device)
        ndp_json_put_int(o, "own_generate", texts->device);
    ndp_json_put_int(o, "nccl", nccl);
    ndp_json_put_int(o, "pinned", (int64_t)b->staging + score->pinned);
    ndp_json_close(o, '}');
}

static void put_numbers(ndp_json_out *o, const char *key, const ndp_numbers *s) {
    ndp_json_open(o, key, '[');
    for (int64_t i = 0; i < s->n; i++) {
        ndp_json_open(o, NULL, '[');
        ndp_json_put_int(o, NULL, s->items[i].first);
        ndp_json_put_int(o, NULL, s->items[i].end - 1);
        ndp_json_close(o, ']');
    }
    ndp_json_close(o, ']');
}

/* Ranges of numbers with their first and last, as the picture shows them. */
ndp_status ndp_plan_put_holding(ndp_json_out *o, const ndp_dry_run *d, const ndp_model *whole, int rank) {
    ndp_holding h;
    NDP_TRY(ndp_holding_read(d, whole, rank, &h));
    ndp_json_open(o, "holds", '{');
    for (int i = 0; i < NDP_DIVIDED; i++)
        put_numbers(o, ndp_divided_name((ndp_divided)i), &h.of[i]);
    ndp_json_put_int(o, "slice", h.slice);
    ndp_json_put_int(o, "slices", h.slices);
    ndp_json_put_int(o, "parameters", h.parameters);
    ndp_json_close(o, '}');
    ndp_holding_release(&h);
    return NDP_OK;
}

/* ---- the pipeline ---- */

static void put_stage(ndp_json_out *o, const ndp_model *m, int stage) {
    int first = 0, end;
    while (m->units[first].stage != stage)
        first++;
    for (end = first; end < m->n_units && m->units[end].stage == stage;)
        end++;
    ndp_json_open(o, NULL, '{');
    ndp_json_put_int(o, "stage", stage);
    ndp_json_put_text(o, "first", m->units[first].name);
    ndp_json_put_text(o, "last", m->units[end - 1].name);
    ndp_json_put_int(o, "units", end - first);
    ndp_json_close(o, '}');
}

void ndp_plan_put_pipeline(ndp_json_out *o, const ndp_job *j, const ndp_program *const *programs, int n) {
    if (!j->pipeline.ranks) {
        ndp_json_put_null(o, "pipeline");
        return;
    }
    int per_stage = j->world / j->layout.size[NDP_PP];
    ndp_json_open(o, "pipeline", '{');
    ndp_json_put_text(o, "schedule", j->pipeline.name);
    ndp_json_put_int(o, "micro_batches", j->pipeline.micro_batches);
    ndp_json_put_bool(o, "reshard_after_forward", j->config->parallelism.reshard_after_forward);
    ndp_json_put_text(o, "reduce_every",
                      j->config->parallelism.reduce_every == NDP_REDUCE_EVERY_UPDATE ? "update" : "micro_batch");
    ndp_json_open(o, "ranks", '[');
    for (int i = 0; i < n; i++) {
        int rank = programs[i]->opts.step.mesh.rank;
        ndp_budget budget;
        if (rank % per_stage != 0)
            continue;
        ndp_program_budget(programs[i], &budget);
        ndp_json_open(o, NULL, '{');
        ndp_json_put_int(o, "rank", rank);
        ndp_json_put_int(o, "taken", (int64_t)budget.total);
        ndp_json_open(o, "stages", '[');
        for (int s = 0; s < j->pipeline.stages; s++)
            if (j->pipeline.rank_of[s] == rank / per_stage)
                put_stage(o, programs[i]->opts.model, s);
        ndp_json_close(o, ']');
        ndp_json_close(o, '}');
    }
    ndp_json_close(o, ']');
    ndp_json_close(o, '}');
}
