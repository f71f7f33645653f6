/* What a run would do and need, as text, from its real programs (dry_run.c). */
#include "launch/launch.h"
#include "launch/memory_need.h"
#include "plan/device_price.h"
#include "plan/gpu_memory.h"
#include "plan/layout_picture.h"
#include "plan/plan_report.h"
#include "plan/result.h"
#include "plan/traffic.h"
#include "step/timeline.h"
#include "weights/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Appends how cp, sp and tp cut the rows of a micro-batch; nothing if they do not. */
static ndp_status rows_text(const ndp_dry_run *d, const ndp_program *p, ndp_plan_report *report) {
    ndp_str *out = &report->text;
    ndp_engine_opts e;
    NDP_TRY(ndp_job_engine(d->job, p->opts.step.mesh.rank, &d->exec, &e));
    ndp_row_cut rows = ndp_cut_rows(d->job->model.rows, &e.step.mesh, &e.step.parallel);
    ndp_plan_put_cut(&report->json, &rows);
    if (rows.slice == rows.real)
        return NDP_OK;
    ndp_str_addf(out, "rows: %lld of a micro-batch", (long long)rows.real);
    if (rows.padded > rows.real)
        ndp_str_addf(out, ", padded to %lld", (long long)rows.padded);
    ndp_str_addf(out, "; a rank has %lld, attention %lld queries over %lld keys, the residual stream %lld\n",
                 (long long)rows.tokens, (long long)rows.queries, (long long)rows.keys, (long long)rows.slice);
    return NDP_OK;
}

/* What a node or a GPU needs and has: its own member of the report. */
static void put_need(ndp_json_out *o, const char *key, int ranks, int64_t bytes, int64_t available, const char *lacks) {
    ndp_json_open(o, key, '{');
    ndp_json_put_int(o, "ranks", ranks);
    ndp_json_put_int(o, "bytes", bytes);
    ndp_json_put_int(o, "available", available);
    ndp_json_put_text(o, "lacks", lacks);
    ndp_json_close(o, '}');
}

/* Compares a node of the run with this host, which need not be one of its hosts, and of a cluster's GPUs is none:
 * `here` false. */
static ndp_status compare_memory(const ndp_job *j, int64_t rank_bytes, int per_node, bool here,
                                 ndp_plan_report *report) {
    ndp_str *out = &report->text;
    ndp_memory_need need;
    NDP_TRY(
        ndp_job_memory_need(j, per_node, rank_bytes, strcmp(j->config->train.transport, "local") == 0, false, &need));
    char bytes[16], have[16];
    ndp_str why = {0};
    int64_t available = ndp_memory_available();
    ndp_str_addf(out, "\na node of %d rank%s needs %s", per_node, per_node == 1 ? "" : "s",
                 ndp_human_bytes((double)ndp_memory_of_host(&need), bytes));
    if (here)
        ndp_str_addf(out, "; this host has %s available\n", ndp_human_bytes((double)available, have));
    else
        ndp_str_add(out, " of its host\n");
    bool lacks = here && ndp_memory_lacks(&need, &why);
    if (lacks)
        ndp_str_addf(out, "warning: on this host it would be refused: %s\n", why.data ? why.data : "");
    put_need(&report->json, "node", per_node, ndp_memory_of_host(&need), available, lacks ? why.data : NULL);
    ndp_str_release(&why);
    return NDP_OK;
}

/* How saves are written: from a copy while the steps go on, if it has memory too. Elsewhere than here that is not
 * known.
 */
static ndp_status copies_text(const ndp_job *j, const ndp_mean_memory *mean, int per_node, bool here,
                              ndp_plan_report *report) {
    char bytes[16];
    ndp_memory_need need;
    ndp_str why = {0};
    bool copies = ndp_job_copies(j), threads = strcmp(j->config->train.transport, "local") == 0;
    NDP_TRY(ndp_job_memory_need(j, per_node, mean->programs + mean->copy, threads, false, &need));
    bool asks = copies && here && j->config->checkpoint.async == NDP_ASYNC_AUTO;
    bool lacks = asks && ndp_memory_lacks(&need, &why);
    int64_t copy = per_node * mean->copy;
    ndp_human_bytes((double)copy, bytes);
    if (lacks)
        ndp_str_addf(&report->text,
                     "saves: the steps wait until they are written (checkpoint.async auto): with a copy of %s on a "
                     "node, %s\n",
                     bytes, why.data ? why.data : "");
    else if (copies)
        ndp_str_addf(&report->text, "saves: written while the steps go on, from a copy of %s on a node%s\n", bytes,
                     asks || j->config->checkpoint.async == NDP_ASYNC_TRUE ? "" : ", where its host has it");
    ndp_json_put_bool(&report->json, "background_saves", copies && !lacks);
    ndp_json_put_int(&report->json, "copy_bytes", copy);
    ndp_str_release(&why);
    return NDP_OK;
}

/* Compares a rank's need with a GPU's memory; nothing on a device that works on the host's. `as_run`: a lack is an
 * error. */
static ndp_status compare_gpu(const ndp_dry_run *d, int64_t rank_bytes, bool as_run, ndp_plan_report *report) {
    if (d->device.host_memory)
        return NDP_OK;
    char need[16], has[16];
    ndp_str *out = &report->text, why = {0};
    const ndp_gpu_memory m = ndp_gpu_memory_of(d->job, d->per_node, rank_bytes);
    bool lacks = ndp_gpu_memory_lacks(&m, &why);
    ndp_str_addf(out, "a GPU of %d rank%s needs %s; ", m.ranks, m.ranks == 1 ? "" : "s",
                 ndp_human_bytes((double)ndp_gpu_memory_need(&m), need));
    if (m.has)
        ndp_str_addf(out, "it has %s (%s)\n", ndp_human_bytes((double)m.has, has),
                     m.stated ? "train.gpu_memory" : "free on this machine's GPU");
    else
        ndp_str_addf(out, "this machine has no GPU to compare with: set train.gpu_memory\n");
    if (lacks)
        ndp_str_addf(out, "warning: it would be refused: %s\n", why.data ? why.data : "");
    put_need(&report->json, "gpu", m.ranks, ndp_gpu_memory_need(&m), m.has, lacks ? why.data : NULL);
    ndp_str_release(&why);
    return as_run ? ndp_gpu_memory_check(d->job, &m, NULL) : NDP_OK;
}

/* What mpirun leaves for a save where a batch system stops a job. That of Open MPI 5 leaves nothing, whatever it is
 * told; without one on this host it is that of 4. */
static void stop_text(double seconds, int limit, bool at_once, ndp_str *out) {
    if (at_once)
        ndp_str_addf(out, "where a batch system stops the job, mpirun of Open MPI 5 ends its ranks at once: use `srun "
                          "--mpi=pmix`, or have the batch system signal earlier (Slurm: --signal=B:USR1@SECONDS)\n");
    else
        ndp_str_addf(out, "where a batch system stops the job, mpirun leaves %d s\n", limit);
    if (!at_once && seconds > limit)
        ndp_str_addf(out,
                     "warning: at that rate a job that is stopped loses the steps since its last save: set "
                     "OMPI_MCA_odls_base_sigkill_timeout=%.0f, and let the batch system wait longer than that (Slurm: "
                     "KillWait); or save more often (checkpoint.every)\n",
                     ceil(seconds * 1.5));
}

/* How long a save takes. On one node the ranks have no limit. The rate of the disk is not known here. */
static ndp_status save_text(const ndp_dry_run *d, const ndp_engine *engine, ndp_plan_report *report) {
    char all[16], node[16];
    int64_t bytes;
    NDP_TRY(ndp_checkpoint_bytes(engine, &bytes));
    bool one_node = d->per_node >= d->job->world, at_once = !one_node && ndp_mpirun_major() >= 5;
    int limit = at_once ? 0 : ndp_stop_seconds();
    double seconds = ndp_plan_save_seconds(d, bytes), part = seconds * NDP_SAVE_RATE;
    ndp_json_open(&report->json, "save", '{');
    ndp_json_put_int(&report->json, "bytes", bytes);
    ndp_json_put_int(&report->json, "node_bytes", (int64_t)part);
    ndp_json_put_number(&report->json, "assumed_rate", NDP_SAVE_RATE);
    ndp_json_put_number(&report->json, "seconds", seconds);
    report->save = seconds;
    ndp_json_put_int(&report->json, "limit", limit);
    ndp_json_close(&report->json, '}');
    if (one_node)
        return NDP_OK;
    ndp_str_addf(&report->text,
                 "a save writes %s, %s from each node: %.2g s if the disk takes 1 GB/s from a node, which is assumed; ",
                 ndp_human_bytes((double)bytes, all), ndp_human_bytes(part, node), seconds);
    stop_text(seconds, limit, at_once, &report->text);
    return NDP_OK;
}

static const char *gathers_word(const ndp_program *p) {
    bool gathers = false, in_place = true;
    for (int i = 0; i < p->opts.model->n_buffers; i++) {
        gathers |= p->owned[i].shard.shards > 1;
        in_place &= p->owned[i].shard.shards == 1 || p->owned[i].shard.in_place;
    }
    return !gathers ? "none" : in_place ? "in place" : "into buffers";
}

static void put_program(const ndp_dry_run *d, const ndp_program *p, ndp_json_out *o) {
    ndp_json_open(o, "program", '{');
    ndp_json_put_int(o, "rank", p->opts.step.mesh.rank);
    ndp_json_put_int(o, "instructions", p->n);
    ndp_json_put_int(o, "ranks_per_node", d->per_node);
    ndp_json_put_text(o, "gathers", gathers_word(p));
    ndp_json_close(o, '}');
}

/* All-reduces of a loop of the user's own over the world, as ndp_traffic_write has those of programs. */
static void write_world(int world, int times, double bytes, const char *what, const char *key,
                        ndp_plan_report *report) {
    char each[16], all[16];
    double sent = 2 * times * bytes * (world - 1) / world;
    ndp_json_open(&report->json, key, '{');
    ndp_json_put_int(&report->json, "times", times);
    ndp_json_put_int(&report->json, "bytes", (int64_t)bytes);
    ndp_json_put_number(&report->json, "sent", sent);
    ndp_json_close(&report->json, '}');
    if (world > 1)
        ndp_str_addf(&report->text, "  %-16s %10s  over %d ranks\n    %6d x %10s  %-14s %s\n", "world",
                     ndp_human_bytes(sent, all), world, times, ndp_human_bytes(bytes, each), "all_reduce", what);
}

/* What such loops send besides: for a loss that is a function of log-probabilities (train/own_forward.c), and to
 * continue texts (infer/own_texts.c). */
static ndp_status write_own_traffic(const ndp_dry_run *d, const ndp_engine *trained, ndp_cluster_plan *links,
                                    ndp_plan_report *report) {
    const ndp_job *j = d->job;
    const ndp_model *whole = ndp_engine_whole(trained);
    ndp_model m;
    ndp_engine *score;
    int rank = ndp_engine_program(trained)->opts.step.mesh.rank, each = j->forward.ranks ? j->forward.micro_batches : 1;
    int passes = (j->batch.accumulation + each - 1) / each;
    double trainable = 0, row = 8.0 * j->config->data.sequence_length;
    if (!j->config->train.own_batches)
        return NDP_OK;
    for (int b = 0; b < whole->n_buffers; b++)
        trainable += whole->buffers[b].base ? 0 : (double)whole->buffers[b].segments.elements;
    NDP_TRY(ndp_plan_score_engine(d, rank, trained, &m, &score));
    bool sends = j->world > 1;
    ndp_str_addf(
        &report->text,
        "\na call whose loss is a function of log-probabilities also has %d forward pass%s of %d micro-batch%s", passes,
        passes == 1 ? "" : "es", each, each == 1 ? "" : "es");
    ndp_str_add(&report->text, sends ? ", each of which sends\n" : "\n");
    ndp_json_put_int(&report->json, "forward_passes", passes);
    ndp_status st = ndp_traffic_write(ndp_engine_program(score), links, "sent_forward", &report->text, &report->json);
    ndp_str_add(&report->text, sends ? "and sends besides\n" : "");
    write_world(j->world, passes, row * each * j->batch.micro_batch * j->batch.data_ranks, "log-probabilities",
                "sent_logp", report);
    write_world(j->world, 1, row * j->batch.global_batch, "slopes", "sent_slopes", report);
    if (j->config->train.own_generate) {
        ndp_str_add(&report->text, sends ? "each ndp_trainer_generate sends\n" : "");
        write_world(j->world, 1, 4 * trainable, "weights", "sent_generate", report);
    }
    ndp_engine_destroy(score);
    ndp_model_release(&m);
    return st;
}

/* A line of the table of memory. */
static void add_bytes(ndp_str *out, const char *what, size_t bytes, const char *more) {
    char a[16];
    ndp_str_addf(out, "  %-16s %10s  %zu bytes%s\n", what, ndp_human_bytes((double)bytes, a), bytes, more);
}

/* Of the ranks of a node; where they are alike, of one. */
static ndp_status mean_memory(const ndp_dry_run *d, const ndp_engine *engine, const ndp_engine_memory *score,
                              ndp_mean_memory *out) {
    const ndp_job *j = d->job;
    if (j->pipeline.ranks || j->config->train.own_generate || j->layout.size[NDP_DP_REPLICATE] > 1)
        return ndp_job_node_memory(j, ndp_engine_program(engine)->opts.step.mesh.rank, d->per_node, out);
    *out = (ndp_mean_memory){ndp_engine_memory_of(engine).host + score->host,
                             ndp_job_copies(j) ? ndp_checkpoint_own_bytes(engine) : 0};
    return NDP_OK;
}

static ndp_status budget_text(const ndp_dry_run *d, const ndp_engine *engine, const ndp_engine_memory *score,
                              const ndp_engine_memory *texts, const char *data, const ndp_cluster_plan *links,
                              bool as_run, ndp_plan_report *report) {
    ndp_str *out = &report->text;
    const ndp_program *p = ndp_engine_program(engine);
    bool own = d->job->config->train.own_batches;
    ndp_budget budget;
    ndp_program_budget(p, &budget);
    ndp_job_describe(d->job, out);
    if (links)
        ndp_str_addf(out, "planned for %s: the programs of train.device %s\n", links->cluster.device, d->device.name);
    ndp_str_add(out, data);
    NDP_TRY(rows_text(d, p, report));
    ndp_str_addf(out, "program: %d instructions, %d ranks a node, gathers %s%s\n\npeak memory of rank %d\n", p->n,
                 d->per_node, gathers_word(p),
                 strcmp(gathers_word(p), "in place") == 0 ? " (inside the node resharding has nothing to save)" : "",
                 p->opts.step.mesh.rank);
    size_t sum = 0;
    put_program(d, p, &report->json);
    ndp_plan_put_memory(&report->json, &budget, score, texts, ndp_plan_nccl(d, engine));
    for (int c = 0; c < NDP_MEM_CLASSES; c++) {
        if (c == NDP_MEM_FROZEN && !budget.class_bytes[c])
            continue;
        add_bytes(out, ndp_memory_class_name((ndp_memory_class)c), budget.class_bytes[c], "");
        sum += budget.class_bytes[c];
    }
    add_bytes(out, "sum", sum, "");
    add_bytes(out, "taken", budget.total, "");
    if (score->device)
        add_bytes(out, "and", (size_t)score->device, own ? ", for forward passes" : ", for held-out data");
    if (texts->device)
        add_bytes(out, "and", (size_t)texts->device, ", to continue texts (train.own_generate)");
    int64_t pinned = (int64_t)budget.staging + score->pinned, nccl = ndp_plan_nccl(d, engine);
    if (nccl)
        add_bytes(out, "and", (size_t)nccl, ", about what NCCL takes of a GPU for its communicators (not measured)");
    if (pinned)
        add_bytes(out, "pinned", (size_t)pinned,
                  d->job->model.row_loss ? " of the host, for rows of logits, and what ranks communicate through it"
                                         : " of the host, through which ranks communicate");
    ndp_mean_memory mean;
    bool here = !links || d->device.host_memory;
    NDP_TRY(mean_memory(d, engine, score, &mean));
    NDP_TRY(compare_memory(d->job, ndp_mean_memory_least(d->job, &mean), d->per_node, here, report));
    NDP_TRY(copies_text(d->job, &mean, d->per_node, here, report));
    int64_t bytes = (int64_t)budget.total + score->device + texts->device + nccl;
    return links ? NDP_OK : compare_gpu(d, bytes, as_run, report); /* result.c compares with the cluster's */
}

/* Memory and traffic of a rank. `links`: of a cluster; NULL: of none. */
static ndp_status rank_text(const ndp_dry_run *d, int rank, const ndp_engine *engine, bool as_run, const char *data,
                            ndp_cluster_plan *links, ndp_plan_report *out) {
    const ndp_program *p = ndp_engine_program(engine);
    ndp_engine_memory score = {0}, texts = {0};
    NDP_TRY(ndp_plan_score(d, rank, engine, &score));
    if (ndp_mesh_leads(&p->opts.step.mesh))
        NDP_TRY(ndp_plan_texts(d, &texts));
    NDP_TRY(budget_text(d, engine, &score, &texts, data, links, as_run, out));
    NDP_TRY(save_text(d, engine, out));
    ndp_str_addf(&out->text, "\nsent by rank %d in a step\n", rank);
    NDP_TRY(ndp_traffic_write(p, links, "sent", &out->text, &out->json));
    return write_own_traffic(d, engine, links, out);
}

static ndp_status plan_rank(const ndp_dry_run *d, const ndp_model *m, int rank, const ndp_plan_opts *o,
                            const char *data, ndp_cluster_plan *links, ndp_plan_report *out) {
    ndp_engine *engine;
    ndp_status st = NDP_OK;
    NDP_TRY(ndp_plan_engine(d, m, rank, &engine));
    if (o->program)
        ndp_program_print(ndp_engine_program(engine), true, &out->text);
    else
        st = rank_text(d, rank, engine, o->as_run, data, links, out);
    ndp_engine_destroy(engine);
    if (st == NDP_OK && !o->program && links)
        st = ndp_cluster_plan_loads(links, d, m, &out->text, &out->json);
    return st != NDP_OK || o->program ? st : ndp_plan_put_holding(&out->json, d, m, rank);
}

/* Paths that cannot be written are errors before any work. */
static ndp_status check_paths(const ndp_plan_opts *o) {
    if (o->timeline)
        NDP_TRY(ndp_timeline_check_path(o->timeline));
    if (o->timeline)
        NDP_TRY(ndp_output_check(o->timeline));
    if (o->layout_picture)
        NDP_TRY(ndp_layout_picture_check_path(o->layout_picture));
    return o->layout_picture ? ndp_output_check(o->layout_picture) : NDP_OK;
}

/* A timeline is simulated at the prices of the cluster. */
static ndp_status check_programs(const ndp_dry_run *d, const ndp_model *m, const ndp_plan_opts *o,
                                 ndp_cluster_plan *links, ndp_plan_report *out) {
    ndp_device_price price = {0};
    if (links && o->timeline)
        NDP_TRY(ndp_device_price_init(d, links, &price));
    const ndp_plan_extras extras = {o->timeline, o->placements, price.known ? &price : NULL, links != NULL};
    ndp_status st = ndp_plan_check(d, m, &extras, out);
    ndp_device_price_release(&price);
    return st;
}

static ndp_status plan_programs(const ndp_dry_run *d, const ndp_model *m, const ndp_plan_opts *o, const char *data,
                                ndp_cluster_plan *links, ndp_plan_output *out) {
    const ndp_job *j = d->job;
    ndp_plan_need need;
    int first = o->rank < 0 ? 0 : o->rank, stage = j->world / j->layout.size[NDP_PP];
    int end = o->rank < 0 && o->program ? j->world : first + 1;
    for (int r = first; r < end; r += stage)
        NDP_TRY(plan_rank(d, m, r, o, data, links, &out->report));
    if (o->layout_picture)
        NDP_TRY(ndp_layout_picture_write(d, m, o->layout_picture));
    NDP_TRY(check_programs(d, m, o, links, &out->report));
    if (!links || o->program)
        return NDP_OK;
    NDP_TRY(ndp_plan_fullest(d, m, &need));
    return ndp_plan_put_result(d, m, links, &need, out);
}

static ndp_status plan_ranks(const ndp_job *j, const ndp_plan_opts *o, const char *data, ndp_cluster_plan *links,
                             ndp_plan_output *out) {
    ndp_model m;
    ndp_dry_run d;
    NDP_TRY(ndp_dry_run_init(&d, j, links ? ndp_rank_map_block(&links->map) : ndp_plan_per_node(j, o), 0));
    if (links)
        links->rings = !d.device.host_memory && !d.exec.staged;
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = ndp_dry_run_keep(&d, &m);
    if (st == NDP_OK)
        st = plan_programs(&d, &m, o, data, links, out);
    ndp_dry_run_release(&d);
    ndp_model_release(&m);
    return st;
}

static ndp_status plan_job(const ndp_job *j, const ndp_plan_opts *o, const char *data, ndp_plan_output *out) {
    ndp_cluster_plan links = {0};
    NDP_CHECK(o->rank >= -1 && o->rank < j->world, "there is no rank %d: the layout has ranks 0 to %d", o->rank,
              j->world - 1);
    NDP_CHECK(!o->schedule || j->pipeline.ranks,
              "there is no schedule to write: parallelism.pp_size is 1; set it to the number of pipeline ranks");
    NDP_TRY(check_paths(o));
    if (o->schedule)
        NDP_TRY(ndp_pipeline_write(&j->pipeline, o->schedule));
    if (out->links) {
        links = ndp_cluster_plan_of(out->links, j, NULL);
        return plan_ranks(j, o, data, &links, out);
    }
    if (o->cluster)
        NDP_TRY(ndp_cluster_plan_open(j, o, &links));
    ndp_status st = plan_ranks(j, o, data, o->cluster ? &links : NULL, out);
    ndp_cluster_plan_release(&links);
    return st;
}

void ndp_plan_report_release(ndp_plan_report *r) {
    ndp_str_release(&r->text);
    ndp_str_release(&r->json.text);
}

ndp_status ndp_plan_report_job(const ndp_job *j, const ndp_plan_opts *o, ndp_plan_output *out) {
    ndp_plan_report data = {.json.more = true}; /* members of the same object follow */
    ndp_status st = NDP_OK;
    ndp_plan_put_job(&out->report.json, j);
    if (o->data) {
        st = ndp_job_find_weights(j);
        if (st == NDP_OK)
            st = ndp_plan_data(j, &data);
    } else
        ndp_json_put_null(&data.json, "data");
    out->report.rows = data.rows;
    ndp_str_add(&out->report.json.text, data.json.text.data ? data.json.text.data : "");
    if (st == NDP_OK)
        st = plan_job(j, o, data.text.data ? data.text.data : "", out);
    ndp_plan_report_release(&data);
    return st;
}
