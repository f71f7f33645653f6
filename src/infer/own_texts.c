/* Continues texts with the weights of a trainer as they are (ndp_trainer_generate). The first rank of each data rank
 * builds the engines that ndp_generate_file has, all ranks gather the weights into them, a part of a tensor at a time,
 * and it continues the texts of its data rank; then all get theirs.
 *
 * No rank waits longer for others than a turn takes: a long text is no hang. */
#include "infer/slots.h"

#include "base/clock.h"
#include "base/hash128.h"
#include "checkpoint/agree.h"
#include "train/own_batches.h"
#include "weights/export.h"

#include <stdlib.h>
#include <string.h>

static const double TURN = 10; /* seconds */
enum { PART = 1 << 20 };       /* elements that are gathered at a time */

typedef struct own_texts {
    ndp_trainer *t;
    const ndp_texts *texts;
    const ndp_continue_opts *o;
    ndp_generate_opts opts;
    ndp_generator generator;
    ndp_slots slots;
    int64_t longest;     /* a text of any rank can become */
    int64_t first, each; /* of the texts that this rank continues: number `first`, then every so many */
    int64_t most;        /* texts of a rank */
    int64_t *added; /* [lists, most, 2 + length]: of each text how many tokens are added, why it ended, and these */
} own_texts;

static const ndp_mesh *mesh_of(const own_texts *x) { return &ndp_engine_program(x->t->engine)->opts.step.mesh; }
static int data_rank(const own_texts *x) { return ndp_mesh_group(mesh_of(x), NDP_GROUP_DATA).rank; }
static bool leads(const own_texts *x) { return ndp_trainer_leads(x->t); }
static ndp_comm *world_of(const own_texts *x) { return x->t->rank.world; }

/* ---- what is asked for ---- */

static ndp_status check_values(const own_texts *x) {
    const ndp_texts *p = x->texts;
    int64_t vocab = x->t->rank.job.spec.vocab;
    NDP_TRY(ndp_own_check(x->t));
    NDP_CHECK(x->t->rank.job.config->train.own_generate > 0,
              "train.own_generate is 0, so no memory is planned to continue texts: set it to how many are continued at "
              "a time");
    NDP_CHECK(x->o->max_tokens >= 0, "max_tokens is %d; give 0 (as many as fit into the row) or more",
              x->o->max_tokens);
    NDP_TRY(ndp_generator_check(&x->opts));
    NDP_CHECK(x->o->n_ends >= 0 && (x->o->ends || !x->o->n_ends), "%d ends of texts%s", x->o->n_ends,
              x->o->ends ? "" : ", and no array of them");
    for (int i = 0; i < x->o->n_ends; i++)
        NDP_CHECK(x->o->ends[i] >= 0 && x->o->ends[i] < vocab, "the id %d, which ends a text: it must be below %lld",
                  x->o->ends[i], (long long)vocab);
    NDP_CHECK(p->samples <= 0 || (p->ids && p->lengths), "%lld texts, and no %s", (long long)p->samples,
              p->ids ? "lengths" : "ids");
    for (int64_t i = 0; i < p->samples; i++)
        NDP_CHECK(p->lengths[i] >= 1 && p->lengths[i] < p->length,
                  "text %lld has %lld tokens; it must have 1 to %lld, so that its row can take more", (long long)i,
                  (long long)p->lengths[i], (long long)p->length - 1);
    return NDP_OK;
}

/* All ranks have the same options, and rows of the same length. */
static ndp_status agree_on_options(const own_texts *x) {
    const ndp_continue_opts *o = x->o;
    const double numbers[] = {o->temperature, o->top_p, o->max_tokens, (double)x->texts->length};
    const ndp_hash128 parts[] = {ndp_hash128_of(numbers, sizeof numbers), ndp_hash128_of(&o->seed, sizeof o->seed),
                                 ndp_hash128_of(o->ends, (size_t)o->n_ends * sizeof *o->ends)};
    int64_t own = (int64_t)(ndp_hash128_of(parts, sizeof parts).low >> 1), most[] = {own, -own};
    NDP_TRY(ndp_reduce_now(world_of(x), most, 2, NDP_I64, NDP_MAX));
    NDP_CHECK(most[0] == -most[1], "ranks continue texts with other options, or rows of another length, than others");
    return NDP_OK;
}

/* Reads the texts as batches are read, which finds what is out of range and ranks that do not have the same. */
static ndp_status read_texts(own_texts *x) {
    const ndp_texts *p = x->texts;
    const ndp_batch batch = {
        .ids = p->ids, .lengths = p->lengths, .samples = p->samples, .length = p->length, .global = p->global};
    ndp_own_rows list;
    int64_t longest = 0, most = x->o->max_tokens ? x->o->max_tokens : p->length;
    ndp_status st = check_values(x);
    if (st == NDP_OK && p->length > x->t->rank.job.config->data.sequence_length)
        st = NDP_FAIL(NDP_EINVAL, "rows of %lld tokens; texts have up to data.sequence_length %lld",
                      (long long)p->length, (long long)x->t->rank.job.config->data.sequence_length);
    st = ndp_own_rows_read(x->t, &batch, 1, false, st, &list);
    if (st == NDP_OK)
        st = agree_on_options(x);
    if (st == NDP_OK)
        st = ndp_own_rows_most(x->t, &list, &x->most);
    ndp_own_rows_release(&list);
    NDP_TRY(st);
    for (int64_t i = 0; i < p->samples; i++)
        longest = p->lengths[i] > longest ? p->lengths[i] : longest;
    NDP_TRY(ndp_reduce_now(world_of(x), &longest, 1, NDP_I64, NDP_MAX));
    x->longest = longest + most < p->length ? longest + most : p->length;
    x->first = p->global ? data_rank(x) : 0;
    x->each = p->global ? x->t->rank.feed.shape.data_ranks : 1;
    return NDP_OK;
}

/* ---- texts, as slots take them ---- */

static int64_t text_of(const own_texts *x, int64_t k) { return x->first + k * x->each; }

/* A text's place among all of the call. */
static uint64_t number_of(const own_texts *x, int64_t i) {
    const ndp_batch_shape *b = &x->t->rank.feed.shape;
    return (uint64_t)(x->texts->global ? i : ndp_sample_index(b, 0, i / b->micro, data_rank(x), i % b->micro));
}

static int64_t *added_of(const own_texts *x, int64_t i) {
    int64_t list = x->texts->global ? 0 : data_rank(x);
    return x->added + (list * x->most + i) * (2 + x->texts->length);
}

static ndp_text_prompt prompt_of(void *user, int64_t k) {
    const own_texts *x = user;
    const ndp_texts *p = x->texts;
    int64_t i = text_of(x, k), room = p->length - p->lengths[i], most = x->o->max_tokens;
    return (ndp_text_prompt){
        {p->ids + i * p->length, p->lengths[i], 0}, number_of(x, i), most > 0 && most < room ? most : room};
}

static ndp_status take_token(void *user, int64_t k, const ndp_answer *a, int32_t id, bool *stop) {
    int64_t *added = added_of(user, text_of(user, k));
    (void)stop;
    added[2 + added[0]++] = id;
    added[1] = a->finish;
    return NDP_OK;
}

/* ---- weights ---- */

/* Ranks of later replicas have copies. A rank that lacks an element adds 0 to it. *own: what failed on this rank, which
 * goes on, since the others do. */
static ndp_status gather_part(own_texts *x, ndp_trainer_part part, void *room, float *values, ndp_status *own) {
    memset(room, 0, (size_t)part.n * ndp_dtype_size(part.type));
    if (*own == NDP_OK && mesh_of(x)->coord[NDP_DP_REPLICATE] == 0)
        *own = ndp_trainer_part_read(x->t->engine, &part, room);
    ndp_convert(room, part.type, values, NDP_F32, part.n);
    NDP_TRY(ndp_reduce_now(world_of(x), values, part.n, NDP_F32, NDP_SUM));
    part.type = NDP_F32;
    if (*own == NDP_OK && leads(x))
        *own = ndp_trainer_part_write(x->slots.model.chunk, &part, values);
    return NDP_OK;
}

/* What a run trains; of an adapter's base there is nothing to gather. Values are those of an export. */
static ndp_status gather_weights(own_texts *x) {
    ndp_trainer *t = x->t;
    ndp_dtype type = ndp_export_type(&t->model.opts);
    void *room = malloc(PART * sizeof(double));
    float *values = malloc(PART * sizeof *values);
    ndp_status own = room && values ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %d weights", PART),
               st = ndp_agree(world_of(x), own);
    for (int i = 0; i < t->n_tensors; i++) {
        const ndp_model_tensor *of = &t->tensors[i];
        int64_t n = t->model.buffers[of->buffer].base ? 0 : ndp_segment_tensor_elements(of->segment);
        for (int64_t at = 0; at < n && st == NDP_OK; at += PART)
            st = gather_part(x, (ndp_trainer_part){of, NDP_OWNED_MASTER, at, n - at < PART ? n - at : PART, type}, room,
                             values, &own);
    }
    free(room);
    free(values);
    if (own == NDP_OK && st == NDP_OK && leads(x))
        own = ndp_engine_publish(x->slots.model.chunk);
    return st == NDP_OK ? ndp_agree(world_of(x), own) : st;
}

/* ---- all of it ---- */

/* On the rank that continues texts. With an adapter, the base is that of the run. */
static ndp_status open_model(own_texts *x) {
    const ndp_rank *r = &x->t->rank;
    int64_t own = x->texts->samples > x->first ? (x->texts->samples - x->first - 1) / x->each + 1 : 0,
            most = r->job.config->train.own_generate;
    NDP_TRY(ndp_infer_of_job(&x->generator.infer, &r->job, &r->data, &r->exec));
    NDP_TRY(ndp_generator_prepare(&x->generator));
    for (int i = 0; i < x->o->n_ends; i++)
        NDP_TRY(ndp_ids_add(&x->generator.ends, x->o->ends[i]));
    x->slots.texts = own;
    NDP_TRY(ndp_slots_init(&x->slots, own < 1 ? 1 : own < most ? own : most, x->longest, ""));
    const ndp_weight_sources from = ndp_job_weights(&r->job);
    return r->job.model.adapter.r > 0 ? ndp_weights_start(x->slots.model.chunk, &from) : NDP_OK;
}

static ndp_status run_turns(own_texts *x) {
    for (int64_t more = 1; more > 0;) {
        NDP_TRY(ndp_agree(world_of(x), leads(x) ? ndp_slots_run(&x->slots, ndp_now() + TURN) : NDP_OK));
        more = leads(x) && !ndp_slots_done(&x->slots);
        NDP_TRY(ndp_reduce_now(world_of(x), &more, 1, NDP_I64, NDP_MAX));
    }
    return NDP_OK;
}

/* Gives all ranks all tokens, and takes those of this rank's texts. */
static ndp_status share_texts(own_texts *x, int64_t n) {
    const ndp_texts *p = x->texts;
    NDP_TRY(ndp_reduce_now(world_of(x), x->added, n, NDP_I64, NDP_SUM));
    for (int64_t i = 0; i < p->samples; i++) {
        const int64_t *added = added_of(x, i);
        for (int64_t s = 0; s < added[0]; s++)
            p->ids[i * p->length + p->lengths[i]++] = (int32_t)added[2 + s];
        if (p->finish)
            p->finish[i] = (ndp_finish)added[1];
    }
    return NDP_OK;
}

static ndp_status continue_texts(own_texts *x) {
    int64_t lists = x->texts->global ? 1 : x->t->rank.feed.shape.data_ranks,
            n = lists * x->most * (2 + x->texts->length);
    if (x->most == 0)
        return NDP_OK;
    x->added = calloc((size_t)n, sizeof *x->added);
    ndp_status st = NDP_MEMORY(x->added, "for the tokens of %lld texts", (long long)x->most);
    if (st == NDP_OK && leads(x))
        st = open_model(x);
    NDP_TRY(ndp_agree(world_of(x), st));
    NDP_TRY(gather_weights(x));
    NDP_TRY(run_turns(x));
    return share_texts(x, n);
}

ndp_status ndp_trainer_generate(ndp_trainer *t, const ndp_texts *texts, const ndp_continue_opts *o) {
    NDP_NOT_NULL(t, texts, o);
    ndp_generate_opts opts = NDP_GENERATE_OPTS_INIT;
    opts.max_tokens = 1, opts.ids = true;
    opts.temperature = o->temperature, opts.top_p = o->top_p, opts.seed = o->seed;
    own_texts x = {.t = t, .texts = texts, .o = o, .opts = opts};
    x.generator.opts = &x.opts;
    x.slots = (ndp_slots){.generator = &x.generator, .prompt = prompt_of, .token = take_token, .user = &x};
    ndp_status st = read_texts(&x);
    if (st == NDP_OK)
        st = continue_texts(&x);
    ndp_slots_release(&x.slots);
    ndp_generator_release(&x.generator);
    free(x.added);
    return st;
}
