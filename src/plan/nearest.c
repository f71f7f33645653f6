/* What to change where a job does not fit: every proposal is a job whose programs are built, and that fits. A change is
 * tried alone, then with recomputation, with micro-batches of one row, and with both; the first way that fits is
 * listed. Shorter rows are as many more, so that a step has as many tokens. */
#include "plan/result.h"

#include <stdarg.h>
#include <stdio.h>

/* Assignments of a configuration. */
enum { MOST_KEYS = 4, KEY_TEXT = 48 };
typedef struct changes {
    char keys[MOST_KEYS][KEY_TEXT];
    int n;
    int times; /* as many nodes and ranks; 0: as they are */
} changes;

typedef struct nearest {
    const ndp_dry_run *d;
    const ndp_cluster_plan *links;
    ndp_str *out;
    ndp_json_out *json;
} nearest;

static __attribute__((format(printf, 2, 3))) void add_key(changes *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (c->n < MOST_KEYS)
        vsnprintf(c->keys[c->n++], KEY_TEXT, format, args);
    va_end(args);
}

/* ---- one job ---- */

/* What does not fit by the least that folded programs need is not planned: listed ones may have many micro-batches. */
static ndp_status fit(const nearest *n, const ndp_job *j, ndp_plan_need *need, bool *fits) {
    ndp_dry_run d;
    ndp_model m;
    NDP_TRY(ndp_dry_run_init(&d, j, n->d->per_node, 0));
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    const ndp_plan_capacity c = ndp_plan_capacity_of(&d, &n->links->cluster);
    ndp_status st = NDP_OK;
    *fits = true;
    d.most = c.bytes - c.runtime;
    for (int planned = 0; planned < 2 && st == NDP_OK && *fits; planned++) {
        d.fold = planned ? NDP_FOLD_IF_NO_LARGER : NDP_FOLD_ALWAYS;
        d.unplaced = !planned, d.only_fullest = planned, d.likely = planned ? need->rank : NDP_NONE;
        st = ndp_plan_fullest(&d, &m, need);
        *fits = st == NDP_OK && ndp_plan_fits(&c, need);
    }
    ndp_model_release(&m);
    return st;
}

/* *fits: the job with these changes does. One that breaks a rule does not. */
static ndp_status try_changes(const nearest *n, const changes *c, ndp_plan_need *need, bool *fits) {
    ndp_config config;
    ndp_job j;
    *fits = false;
    NDP_TRY(ndp_config_copy(n->d->job->config, &config));
    ndp_status st = NDP_OK;
    config.train.ranks *= c->times ? c->times : 1;
    for (int i = 0; i < c->n && st == NDP_OK; i++)
        st = ndp_config_set(&config, c->keys[i]);
    if (st == NDP_OK)
        st = ndp_job_init_planned(&config, 0, true, &j);
    if (st == NDP_OK) {
        st = fit(n, &j, need, fits);
        ndp_job_release(&j);
    }
    ndp_config_release(&config);
    if (st == NDP_ENOMEM || st == NDP_EBUG)
        return st;
    if (st != NDP_OK)
        ndp_error_set(NDP_OK, "");
    return NDP_OK;
}

/* ---- one proposal ---- */

static void list(const nearest *n, const changes *c, const ndp_plan_need *need) {
    char bytes[16];
    int nodes = ndp_plan_nodes(&n->links->map) * (c->times ? c->times : 1);
    const ndp_plan_capacity has = ndp_plan_capacity_of(n->d, &n->links->cluster);
    ndp_str words = {0};
    ndp_json_open(n->json, NULL, '{');
    ndp_json_open(n->json, "set", '[');
    for (int i = 0; i < c->n; i++) {
        ndp_str_addf(&words, "%s%s", i ? " " : "", c->keys[i]);
        ndp_json_put_text(n->json, NULL, c->keys[i]);
    }
    ndp_json_close(n->json, ']');
    ndp_json_put_int(n->json, "nodes", nodes);
    ndp_json_put_int(n->json, "peak_bytes", need->peak);
    ndp_json_put_int(n->json, "rank", need->rank);
    ndp_json_close(n->json, '}');
    ndp_str_addf(n->out, "  %10s  ", ndp_human_bytes((double)(need->peak + has.runtime), bytes));
    if (c->times)
        ndp_str_addf(n->out, "%d nodes: ", nodes);
    ndp_str_addf(n->out, "%s\n", words.data ? words.data : "");
    ndp_str_release(&words);
}

/* The change, and besides it what the bits of `way` say. */
static changes besides(const changes *c, int way) {
    changes with = *c;
    if (way & 1)
        add_key(&with, "train.recompute=block");
    if (way & 2)
        add_key(&with, "batch.micro_batch_size=%d", 1);
    return with;
}

/* The change with the least besides that fits, if any does. Where it does not with all of it, nothing else is tried. */
static ndp_status propose(const nearest *n, const changes *c, bool *fits) {
    const ndp_job *j = n->d->job;
    int all = (j->config->train.recompute != NDP_RECOMPUTE_BLOCK ? 1 : 0) | (j->batch.micro_batch > 1 ? 2 : 0);
    changes with = besides(c, all);
    ndp_plan_need need;
    *fits = false;
    if (with.n > 0)
        NDP_TRY(try_changes(n, &with, &need, fits));
    if (!*fits)
        return NDP_OK;
    for (int way = c->n ? 0 : 1; way < all; way++) {
        const changes less = besides(c, way);
        ndp_plan_need own;
        bool enough = false;
        if ((way & all) == way)
            NDP_TRY(try_changes(n, &less, &own, &enough));
        if (enough) {
            list(n, &less, &own);
            return NDP_OK;
        }
    }
    list(n, &with, &need);
    return NDP_OK;
}

/* The largest micro-batch that fits, without another change. */
static ndp_status propose_rows(const nearest *n, bool *fits) {
    *fits = false;
    for (int rows = n->d->job->batch.micro_batch - 1; rows > 0 && !*fits; rows--) {
        ndp_plan_need need;
        changes c = {0};
        if (n->d->job->batch.micro_batch % rows != 0)
            continue;
        add_key(&c, "batch.micro_batch_size=%d", rows);
        NDP_TRY(try_changes(n, &c, &need, fits));
        if (*fits)
            list(n, &c, &need);
    }
    return NDP_OK;
}

/* As few times as many nodes as fit, which shard more. */
static ndp_status propose_nodes(const nearest *n, bool *fits) {
    enum { MOST_TIMES = 256 };
    const ndp_job *j = n->d->job;
    *fits = false;
    for (int times = 2; times <= MOST_TIMES && !*fits && j->world <= (1 << 20) / times; times *= 2) {
        changes c = {.times = times};
        add_key(&c, "parallelism.dp_shard_size=%d", j->layout.size[NDP_DP_SHARD] * times);
        if (ndp_config_given(j->config, "train", "ranks"))
            add_key(&c, "train.ranks=%d", j->world * times);
        NDP_TRY(propose(n, &c, fits));
    }
    return NDP_OK;
}

/* The longest rows that fit, of a half, a quarter and so on; so many more of them that a step has as many tokens. */
static ndp_status propose_length(const nearest *n, bool *fits) {
    enum { SHORTEST = 16, MOST_ROWS = 1 << 30 };
    const ndp_job *j = n->d->job;
    int length = j->config->data.sequence_length;
    *fits = false;
    for (int times = 2; !*fits && length % times == 0 && length / times >= SHORTEST; times *= 2) {
        changes c = {0};
        if (j->batch.global_batch > MOST_ROWS / times)
            return NDP_OK;
        add_key(&c, "data.sequence_length=%d", length / times);
        add_key(&c, "batch.global_batch_size=%d", j->batch.global_batch * times);
        NDP_TRY(propose(n, &c, fits));
    }
    return NDP_OK;
}

ndp_status ndp_plan_put_nearest(const ndp_dry_run *d, const ndp_cluster_plan *links, ndp_str *out, ndp_json_out *json) {
    static const struct {
        const char *key;
        ndp_adapter_type from, to; /* of jobs whose adapter is from .. to - 1 */
    } smaller[] = {{"precision.states=bf16", NDP_ADAPTER_NONE, NDP_ADAPTER_LORA},
                   {"optimizer.name=adamw8bit", NDP_ADAPTER_NONE, NDP_ADAPTER_LORA},
                   {"adapter.type=lora", NDP_ADAPTER_NONE, NDP_ADAPTER_LORA},
                   {"adapter.type=qlora", NDP_ADAPTER_NONE, NDP_ADAPTER_QLORA}};
    nearest n = {d, links, out, json};
    const ndp_config *config = d->job->config;
    bool any = false, fits = false,
         short_states = config->precision.states == NDP_BF16 || config->optimizer.name == NDP_ADAMW8BIT;
    ndp_str_add(out, "nearest that fit, by their own plans\n");
    ndp_json_open(json, "nearest", '[');
    ndp_status st = propose_rows(&n, &fits);
    any |= fits;
    if (st == NDP_OK)
        st = propose(&n, &(changes){0}, &fits);
    any |= fits;
    for (int i = short_states; i < NDP_COUNT(smaller) && st == NDP_OK; i++) {
        changes c = {0};
        if (config->adapter.type < smaller[i].from || config->adapter.type >= smaller[i].to)
            continue;
        add_key(&c, "%s", smaller[i].key);
        st = propose(&n, &c, &fits);
        any |= fits;
    }
    if (st == NDP_OK)
        st = propose_nodes(&n, &fits);
    any |= fits;
    if (st == NDP_OK)
        st = propose_length(&n, &fits);
    ndp_json_close(json, ']');
    if (st == NDP_OK && !any && !fits)
        ndp_str_add(
            out, "  none: neither recomputation, rows of one, short states, adapters, more nodes nor shorter rows\n");
    return st;
}
