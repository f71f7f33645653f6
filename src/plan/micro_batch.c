/* Chooses the micro-batch of a job that leaves it to the plan.
 *
 * A larger micro-batch needs more memory, but for the last step: a rank that computes all its samples at once keeps no
 * sum of gradients between micro-batches. So that one is tried first, and the others by halves. Ranks of a pipeline
 * keep several micro-batches, of which as many rows or more where these are larger; what lists of more of them take is
 * some KiB. */
#include "plan/micro_batch.h"

#include "ops/devices.h"
#include "plan/gpu_memory.h"
#include "plan/result.h"
#include "plan/step_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct choosing {
    ndp_job *j;
    ndp_config *own;
    ndp_try_rows *try;
    void *user;
    int *rows; /* legal micro-batches, ascending */
    int n;
    ndp_rows_trial *trials; /* of each */
} choosing;

/* The job with that micro-batch. */
static ndp_status job_of(const choosing *c, int rows, ndp_job *out) {
    c->own->batch.micro_batch_size = rows;
    return ndp_job_init_like(c->j, c->own, c->j->world, out);
}

/* The k-th number up to the root of `samples`, or beyond it the one that many from the end: ascending, with all
 * divisors. */
static int divisor(int samples, int root, int k) { return k <= root ? k : samples / (2 * root - k + 1); }

/* Whether the job may have that micro-batch: one that a schedule of the pipeline refuses, it may not. */
static ndp_status is_legal(const choosing *c, int rows, bool *legal) {
    int least = c->j->batch.micro_batch, samples = c->j->batch.global_batch / c->j->batch.data_ranks;
    ndp_job j;
    *legal = false;
    if (samples % rows != 0 || rows % least != 0 ||
        (rows > least && (int64_t)rows * c->j->config->data.sequence_length > INT32_MAX))
        return NDP_OK;
    ndp_status st = job_of(c, rows, &j);
    *legal = st == NDP_OK;
    if (st == NDP_OK)
        ndp_job_release(&j);
    if (st == NDP_ENOMEM || st == NDP_EBUG || (st != NDP_OK && rows == least))
        return st;
    ndp_error_set(NDP_OK, "");
    return NDP_OK;
}

static ndp_status list_rows(choosing *c) {
    int samples = c->j->batch.global_batch / c->j->batch.data_ranks, root = (int)sqrt(samples);
    c->rows = calloc((size_t)root * 2, sizeof *c->rows);
    c->trials = calloc((size_t)root * 2, sizeof *c->trials);
    NDP_CHECK_MEMORY(c->rows && c->trials, "for a list of %d micro-batches", 2 * root);
    for (int k = 1; k <= 2 * root; k++) {
        int rows = divisor(samples, root, k);
        bool legal = c->n == 0 || c->rows[c->n - 1] < rows;
        if (legal)
            NDP_TRY(is_legal(c, rows, &legal));
        if (legal)
            c->rows[c->n++] = rows;
    }
    return NDP_OK;
}

static ndp_status try_one(choosing *c, int i) {
    ndp_job j;
    NDP_TRY(job_of(c, c->rows[i], &j));
    c->trials[i] = (ndp_rows_trial){0};
    ndp_status st = c->try(c->user, &j, &c->trials[i]);
    ndp_job_release(&j);
    return st;
}

/* *at: the largest that fits; -1: none. */
static ndp_status find_largest(choosing *c, int *at) {
    int low = -1, high = c->n; /* `low` fits, `high` does not */
    while (high - low > 1) {
        int i = high == c->n ? high - 1 : (low + high) / 2;
        NDP_TRY(try_one(c, i));
        if (c->trials[i].fits)
            low = i;
        else
            high = i;
    }
    *at = low;
    return NDP_OK;
}

/* *at: the fastest that fits; -1: none. Equally fast are times that differ by rounding. */
static ndp_status find_fastest(choosing *c, int *at) {
    const double rounding = 1e-9;
    *at = -1;
    for (int i = 0; i < c->n; i++) {
        NDP_TRY(try_one(c, i));
        const ndp_rows_trial *t = &c->trials[i];
        if (t->fits && (*at < 0 || t->seconds < (1 - rounding) * c->trials[*at].seconds))
            *at = i;
    }
    return NDP_OK;
}

/* "micro-batch 4 (auto: the fastest of 1, 2, 4; 8 would need 9.1 GiB of 7.9 GiB)" */
static void explain(const choosing *c, int at, bool fastest, char *out, size_t size) {
    ndp_str text = {0};
    char need[16], has[16];
    int listed = 0, next = at + 1;
    ndp_str_addf(&text, "micro-batch %d (auto: ", c->rows[at < 0 ? 0 : at]);
    for (int i = 0; fastest && at >= 0 && i < c->n; i++)
        if (c->trials[i].fits)
            ndp_str_addf(&text, "%s%d", listed++ ? ", " : "the fastest of ", c->rows[i]);
    while (fastest && next < c->n && c->trials[next].fits)
        next++;
    if (next < c->n)
        ndp_str_addf(&text, "%s%s%d would need %s of %s", listed ? "; " : "", at < 0 ? "none fits; " : "",
                     c->rows[next], ndp_human_bytes((double)c->trials[next].lack.need, need),
                     ndp_human_bytes((double)c->trials[next].lack.has, has));
    else if (!listed)
        ndp_str_add(&text, "all samples of a data rank fit");
    ndp_str_add(&text, ")\n");
    snprintf(out, size, "%s", text.data ? text.data : "");
    ndp_str_release(&text);
}

/* Takes what was found; `at` -1: the smallest, since none fits. */
static ndp_status take(choosing *c, int at, bool fastest) {
    c->own->batch.micro_batch_size = c->rows[at < 0 ? 0 : at];
    NDP_TRY(ndp_job_change(c->j, c->own));
    explain(c, at, fastest, c->j->chosen, sizeof c->j->chosen);
    return NDP_OK;
}

static ndp_status choose(ndp_job *j, ndp_try_rows *try, void *user, bool fastest, ndp_config *own, bool *fits) {
    choosing c = {.j = j, .own = own, .try = try, .user = user};
    int at = -1;
    NDP_TRY(ndp_config_copy(j->config, own));
    ndp_status st = list_rows(&c);
    if (st == NDP_OK)
        st = (fastest ? find_fastest : find_largest)(&c, &at);
    if (st == NDP_OK)
        st = take(&c, at, fastest);
    if (st == NDP_OK && fits)
        *fits = at >= 0;
    free(c.rows);
    free(c.trials);
    return st;
}

ndp_status ndp_choose_rows(ndp_job *j, ndp_try_rows *try, void *user, ndp_config *own, bool *fits) {
    return choose(j, try, user, false, own, fits);
}

/* ---- as a plan compares memory ---- */

typedef struct plan_room {
    const ndp_plan_opts *o;
    ndp_gpu_memory gpu; /* .has 0: the ranks work on the host's memory */
    ndp_cluster_plan *links;
} plan_room;

/* With the host of the node that needs the most: nodes with ranks of the same stages are alike. */
static ndp_status compare_host(const ndp_job *j, int per_node, ndp_rows_trial *out) {
    int stage = j->world / j->layout.size[NDP_PP], step = stage > per_node ? stage : per_node;
    int64_t most = 0;
    for (int r = 0; r < j->world; r += step) {
        ndp_mean_memory mean;
        NDP_TRY(ndp_job_node_memory(j, r, per_node, &mean));
        int64_t bytes = ndp_mean_memory_least(j, &mean);
        most = bytes > most ? bytes : most;
    }
    ndp_str unused = {0};
    ndp_memory_need need;
    NDP_TRY(ndp_job_memory_need(j, per_node, most, strcmp(j->config->train.transport, "local") == 0, false, &need));
    out->fits = !ndp_memory_compare(&need, &out->lack, &unused);
    ndp_str_release(&unused);
    return NDP_OK;
}

static ndp_status compare_gpu(const ndp_gpu_memory *of, const ndp_job *j, int per_node, ndp_rows_trial *out) {
    ndp_dry_run d;
    ndp_model m;
    ndp_plan_need need;
    ndp_gpu_memory gpu = *of;
    NDP_TRY(ndp_dry_run_init(&d, j, per_node, 0));
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = ndp_plan_fullest(&d, &m, &need);
    ndp_model_release(&m);
    NDP_TRY(st);
    gpu.rank = need.peak + need.nccl;
    if (ndp_gpu_memory_need(&gpu) > gpu.has) {
        out->fits = false;
        out->lack = (ndp_memory_lack){ndp_gpu_memory_need(&gpu), gpu.has};
    }
    return NDP_OK;
}

static ndp_status try_here(void *user, const ndp_job *j, ndp_rows_trial *out) {
    const plan_room *room = user;
    int per_node = ndp_plan_per_node(j, room->o);
    NDP_TRY(compare_host(j, per_node, out));
    return room->gpu.has && out->fits ? compare_gpu(&room->gpu, j, per_node, out) : NDP_OK;
}

/* The time of a step whose ranks fit, and the fullest's need. */
static ndp_status price(const ndp_dry_run *d, const ndp_model *m, ndp_cluster_plan *links, ndp_rows_trial *out) {
    const ndp_plan_capacity c = ndp_plan_capacity_of(d, &links->cluster);
    double room = c.bytes ? (double)(c.bytes - c.runtime) : INFINITY;
    ndp_device_price price;
    ndp_step_time time = {0};
    ndp_plan_need need;
    NDP_TRY(ndp_device_price_init(d, links, &price));
    ndp_status st = ndp_step_time_of(d, m, &price, room, &time, &need);
    if (st == NDP_OK && (double)need.peak <= room)
        st = ndp_plan_fullest(d, m, &need);
    ndp_device_price_release(&price);
    *out = (ndp_rows_trial){ndp_plan_fits(&c, &need), {need.peak + c.runtime, c.bytes}, time.seconds};
    return st;
}

static ndp_status try_on_cluster(void *user, const ndp_job *j, ndp_rows_trial *out) {
    const plan_room *room = user;
    ndp_known_links known = {0};
    ndp_cluster_plan links = ndp_cluster_plan_of(room->links, j, &known);
    ndp_dry_run d;
    ndp_model m;
    NDP_TRY(ndp_dry_run_init(&d, j, ndp_rank_map_block(&links.map), 0));
    links.rings = !d.device.host_memory && !d.exec.staged;
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = ndp_dry_run_keep(&d, &m);
    if (st == NDP_OK)
        st = price(&d, &m, &links, out);
    ndp_dry_run_release(&d);
    ndp_model_release(&m);
    ndp_known_links_release(&known);
    return st;
}

static ndp_status choose_on_cluster(ndp_job *j, const ndp_plan_opts *o, ndp_config *own) {
    ndp_cluster_plan links = {0};
    plan_room room = {.o = o, .links = &links};
    NDP_TRY(ndp_cluster_plan_open(j, o, &links));
    ndp_status st = choose(j, try_on_cluster, &room, true, own, NULL);
    ndp_cluster_plan_release(&links);
    return st;
}

ndp_status ndp_plan_choose_rows(ndp_job *j, const ndp_plan_opts *o, ndp_config *own) {
    ndp_device d;
    plan_room room = {.o = o};
    if (j->config->batch.micro_batch_size != 0)
        return NDP_OK;
    if (o->cluster && !o->as_run)
        return choose_on_cluster(j, o, own);
    NDP_TRY(ndp_device_find_plan(ndp_device_names[j->config->train.device], &d));
    if (!d.host_memory) {
        room.gpu = ndp_gpu_memory_of(j, ndp_plan_per_node(j, o), 0);
        NDP_CHECK(room.gpu.has > 0,
                  "batch.micro_batch_size is auto, and this machine has no GPU whose memory says what "
                  "fits: set train.gpu_memory, plan --cluster, or set it to a number");
    }
    return choose(j, try_here, &room, false, own, NULL);
}
