/* One decoder, described by facts: embedding -> blocks -> norm and head.
 *
 * T rows, C hidden, H heads, KV kv heads, D head dim, F ffn, V vocabulary, M rows of the KV cache. What stands in
 * brackets some families have and others have not:
 *
 *   x [T,C] -> [norm] -> qkv [T,(H+2KV)D] -> [norms of q, k] -> [rope] -> attention -> o projection -> [norm] = h
 *   s = x + h
 *   s -> [norm] -> gate,up [T,2F] -> gated activation -> down projection -> [norm] = d     or up [T,F] -> activation
 *   y = s + d
 *
 * block.c writes the blocks; tables.c says which parameters there are, inputs.c which inputs. */
#include "model/block.h"

#include "model/activations.h"
#include "model/composites.h"
#include "model/families.h"
#include "model/group_names.h"
#include <limits.h>
#include <string.h>

/* ---- the first unit and the last ---- */

static void build_embedding(ndp_unit_builder *b) {
    int ins[] = {ndp_unit_data(b, NDP_INPUT_TOKENS), ndp_unit_param(b, NDP_P_TOKENS, 1)};
    int x = ndp_graph_op1(b->g, &ndp_op_embedding, NULL, "x0", ins, 2);
    if (b->f->names->positions) {
        int where[] = {ndp_unit_data(b, NDP_INPUT_POSITIONS), ndp_unit_param(b, NDP_P_POSITIONS, 1)};
        x = ndp_unit_add(b, "x0", x, ndp_graph_op1(b->g, &ndp_op_embedding, NULL, "positions", where, 2));
    }
    ndp_graph_output(b->g, ndp_unit_scale(b, "x0", x, b->f->embedding_scale));
}

/* Of rows of preference data, of which nll is minus what the loss sums of a document: what each row's gradient is
 * scaled by, and its part of the sums over pairs (*parts).
 *
 *   nll [T,1] -> sums of each document -> a pair's loss and its derivatives -> scales [T,1], parts [T,7]
 *
 * The derivatives are known once both documents of a pair are summed, over all ranks that have rows of them. So the
 * head computes its logits twice: here for the log-probabilities, then for the gradients. */
static int build_pairs(ndp_unit_builder *b, int nll, int *parts) {
    const ndp_preference *p = &b->m->opts.preference;
    int scale = ndp_unit_data(b, NDP_INPUT_LOSS_SCALE);
    int documents = ndp_unit_data(b, NDP_INPUT_DOCUMENTS);
    int sums = ndp_unit_data(b, NDP_INPUT_SCORES), pairs[2] = {NDP_NONE, NDP_NONE};
    int reference = ndp_preference_table[p->kind].reference ? ndp_unit_data(b, NDP_INPUT_REFERENCE) : NDP_NONE;
    ndp_op_attr count = {.parts = b->m->opts.documents};
    ndp_op_attr loss = {.loss = (int)p->kind,
                        .scale = p->beta,
                        .gamma = p->gamma,
                        .center = p->center,
                        .label_smoothing = p->label_smoothing,
                        .desirable_weight = p->desirable_weight,
                        .undesirable_weight = p->undesirable_weight};
    ndp_graph_op(b->g, &ndp_op_document_sums, &count, "sums", (int[]){nll, documents}, 2, &sums, 1);
    ndp_graph_op(b->g, &ndp_op_pair_loss, &loss, "slopes", (int[]){sums, reference}, 2, pairs, 2);
    int ins[NDP_PAIR_ROWS_OPERANDS] = {[NDP_PAIR_ROWS_DOCUMENTS] = documents,
                                       [NDP_PAIR_ROWS_NLL] = nll,
                                       [NDP_PAIR_ROWS_SUMS] = sums,
                                       [NDP_PAIR_ROWS_SLOPES] = pairs[0],
                                       [NDP_PAIR_ROWS_PAIRS] = pairs[1],
                                       [NDP_PAIR_ROWS_SCALE] = scale,
                                       [NDP_PAIR_ROWS_NLL_SCALE] = ndp_unit_data(b, NDP_INPUT_NLL_SCALE)};
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_pair_rows, &(ndp_op_attr){.scale = p->sft_weight}, "scales", ins, NDP_COUNT(ins), outs,
                 2);
    *parts = outs[1];
    return outs[0];
}

/* Rows whose number is the log-probability of their label. Returns their parts of the sums. */
static int build_labels(ndp_unit_builder *b, int x, const ndp_op_attr *attr) {
    const ndp_op_attr score = {.vocab = attr->vocab, .cap = attr->cap};
    int w = ndp_unit_param(b, NDP_P_HEAD, 1), labels = ndp_unit_data(b, NDP_INPUT_LABELS), parts = NDP_NONE;
    int ins[] = {x, w, labels, ndp_unit_data(b, NDP_INPUT_LOSS_SCALE)}, nll = NDP_NONE;
    bool trains = attr->train && b->g->status == NDP_OK && b->g->values[w].needs_grad;
    ndp_graph_op(b->g, &ndp_op_xent, &score, "scores", ins, 4, &nll, 1);
    ins[3] = build_pairs(b, nll, &parts);
    int outs[3] = {NDP_NONE, NDP_NONE, trains ? ndp_graph_param_grad(b->g, w) : NDP_NONE};
    if (attr->train) /* no room for gradients that are not made: a table of 128256 x 4096 has 2 GiB of them */
        ndp_graph_op(b->g, &ndp_op_xent, attr, "nll", ins, 4, outs, trains ? 3 : 2);
    return parts;
}

/* Rows whose number is a product with one row of weights: the reward of what they end. */
static int build_scores(ndp_unit_builder *b, int x, bool train) {
    const ndp_op_attr attr = {.train = true};
    int score = ndp_graph_value(b->g, "score", b->m->opts.rows, 1, ndp_wide(b->m->opts.compute)), parts = NDP_NONE;
    int product[] = {x, ndp_unit_param(b, NDP_P_HEAD, 1), NDP_NONE}, outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_linear, NULL, "score", product, 3, &score, 1);
    int ins[] = {score, build_pairs(b, ndp_graph_op1(b->g, &ndp_op_row_score, NULL, "scores", &score, 1), &parts)};
    if (train)
        ndp_graph_op(b->g, &ndp_op_row_score, &attr, "nll", ins, 2, outs, 2);
    return parts;
}

static void build_head(ndp_unit_builder *b) {
    const ndp_facts *f = b->f;
    int n = ndp_unit_norm(b, NDP_P_FINAL_NORM, NDP_B_FINAL_NORM, ndp_graph_input(b->g, b->m->opts.rows, f->hidden));
    n = ndp_unit_scale(b, "norm", n, f->score ? 1 : f->logit_scale); /* as good as of logits, and less */
    bool train = b->m->opts.mode == NDP_MODEL_TRAIN;
    ndp_op_attr attr = {.vocab = f->vocab, .train = train, .cap = f->logit_cap};
    if (b->m->opts.mode == NDP_MODEL_CACHED) {
        int logits = ndp_unit_linear(b, "logits", n, NDP_P_HEAD, 1, NDP_NO_PARAM);
        ndp_graph_output(b->g,
                         f->logit_cap > 0 ? ndp_graph_op1(b->g, &ndp_op_cap, &attr, "logits", &logits, 1) : logits);
        return;
    }
    if (!b->m->opts.preference.kind) {
        ndp_head_loss(b->m, b->g, n, ndp_unit_param(b, NDP_P_HEAD, 1), &attr);
        return;
    }
    int parts = f->score ? build_scores(b, n, train) : build_labels(b, n, &attr);
    int sum = ndp_unit_data(b, NDP_INPUT_LOSS);
    ndp_graph_op(b->g, &ndp_op_reduce_sum, &(ndp_op_attr){.accumulate = true}, "loss", &parts, 1, &sum, 1);
}

/* ---- graphs ---- */

/* Which unit a graph is of, and what the backward leaves out. */
typedef struct variant {
    int kind; /* of unit */
    const ndp_param_places *places;
    bool frozen[NDP_SLOTS], ends_backward;
} variant;

static bool same_variant(const variant *a, const variant *b) {
    return a->kind == b->kind && a->ends_backward == b->ends_backward &&
           memcmp(a->frozen, b->frozen, sizeof a->frozen) == 0 && memcmp(a->places, b->places, sizeof *a->places) == 0;
}

static bool trains(const ndp_model *m, int unit, int slot) {
    int buffer = m->units[unit].buffers[slot];
    return buffer != NDP_NONE && m->buffers[buffer].trainable;
}

static variant variant_of(const ndp_model *m, int unit, const ndp_param_places *places) {
    variant v = {ndp_unit_kind(ndp_decoder_facts(m), unit), &places[unit], .ends_backward = true};
    for (int s = 0; s < NDP_SLOTS; s++) {
        v.frozen[s] = m->units[unit].buffers[s] != NDP_NONE && !trains(m, unit, s);
        for (int before = 0; before < unit && v.ends_backward; before++)
            v.ends_backward = !trains(m, before, s);
    }
    return v;
}

static ndp_status build_graph(ndp_model *m, int unit, const variant *v) {
    ndp_graph *g = &m->graphs[m->n_graphs++];
    const ndp_facts *f = ndp_decoder_facts(m);
    bool head = v->kind == ndp_kind_head(f), block = v->kind != NDP_KIND_EMBEDDING && !head;
    NDP_TRY(ndp_graph_init(g, block ? "block" : head ? "head" : "embedding", m->opts.compute, m->opts.master));
    g->inputs = m->inputs;
    for (int s = 0; s < NDP_SLOTS; s++) {
        int buffer = m->units[unit].buffers[s];
        g->slots[s] = buffer == NDP_NONE ? NULL : &m->buffers[buffer].segments;
    }
    memcpy(g->frozen, v->frozen, sizeof g->frozen);
    g->ends_backward = v->ends_backward;
    ndp_unit_builder b = {m, f, g, v->places, f->kinds[block ? v->kind - NDP_KIND_LAYER : 0], 0};
    (block ? ndp_unit_block : head ? build_head : build_embedding)(&b);
    return g->status;
}

_Static_assert((int)NDP_MAX_GRAPHS >= 4 * (int)NDP_LAYER_KINDS + 2,
               "a layer kind: frozen or not, the backward ends or not");

static void number_mixtures(ndp_model *m) {
    const ndp_facts *f = ndp_decoder_facts(m);
    m->inputs->mixtures = (ndp_mixtures){0, f->experts, f->choices, f->sigmoid, f->groups, f->open_groups};
    for (int u = 0; u < m->n_units; u++) {
        int kind = ndp_unit_kind(f, u);
        bool block = kind != NDP_KIND_EMBEDDING && kind != ndp_kind_head(f);
        bool mixture = block && f->kinds[kind - NDP_KIND_LAYER].mlp == &ndp_mlp_experts;
        m->units[u].mixture = mixture ? m->inputs->mixtures.n++ : NDP_NONE;
    }
}

/* Tensors that layers train each in another way make more graphs than there is room for. */
static ndp_status check_room(const ndp_model *m, int unit) {
    return m->n_graphs < NDP_MAX_GRAPHS
               ? NDP_OK
               : NDP_FAIL(NDP_ENOTSUP,
                          "model.trained: %s and the units before it train %d different sets of tensors; at most %d "
                          "are supported",
                          m->units[unit].name, m->n_graphs + 1, NDP_MAX_GRAPHS);
}

/* One graph for each variant that units have: kinds in order, so that the graphs of a model without frozen units are
 * the embedding's, one of each kind of layer, and the head's. */
static ndp_status build_graphs(ndp_model *m, const ndp_param_places *places) {
    variant made[NDP_MAX_GRAPHS];
    number_mixtures(m);
    for (int kind = 0; kind <= ndp_kind_head(ndp_decoder_facts(m)); kind++)
        for (int u = 0; u < m->n_units; u++) {
            variant v = variant_of(m, u, places);
            int g = 0;
            while (g < m->n_graphs && !same_variant(&made[g], &v))
                g++;
            if (v.kind != kind)
                continue;
            if (g == m->n_graphs) {
                NDP_TRY(check_room(m, u));
                made[g] = v;
                NDP_TRY(build_graph(m, u, &v));
            }
            m->units[u].graph = g;
        }
    return NDP_OK;
}

/* An activation that is not built in the form that a layer has. */
static ndp_status check_activations(const ndp_facts *f) {
    for (int k = 0; k < f->n_kinds; k++) {
        bool gated = f->kinds[k].mlp->gated;
        char list[200];
        if (!ndp_activation_op(f->activation, gated))
            return NDP_FAIL(NDP_ENOTSUP, "%s: activation %s is not supported in %s MLP; supported: %s", f->family,
                            ndp_activations[f->activation].name, gated ? "a gated" : "a plain",
                            ndp_activation_list(gated, list, sizeof list));
    }
    return NDP_OK;
}

/* A loss of rewards has a head of its own, which takes the place of another one; and that head has no other use. */
static ndp_status choose_head(const ndp_model_opts *o, ndp_facts *f) {
    char class[NDP_TENSOR_NAME];
    const ndp_family *family = ndp_family_find(f->family);
    if (f->score && !ndp_preference_scores(o->preference.kind))
        return NDP_FAIL(
            NDP_ENOTSUP,
            "the model is a reward model: its head, score.weight, gives a text one number, and there are no "
            "logits. It is trained with loss.name reward; evaluation, generation and other losses need a "
            "causal language model");
    if (f->score || !ndp_preference_scores(o->preference.kind))
        return NDP_OK;
    if (f->composite || !family || !ndp_family_score_class(family, class))
        return NDP_FAIL(NDP_ENOTSUP,
                        "loss.name reward: transformers has no ...ForSequenceClassification for model_type '%s' that a "
                        "trained model could be loaded as",
                        f->composite ? f->composite : f->family);
    f->score = f->new_score = true;
    f->tied = false;
    return NDP_OK;
}

ndp_status ndp_decoder_build(const ndp_facts *facts, const ndp_model_opts *opts, ndp_model *out) {
    ndp_facts own = *facts;
    ndp_model m;
    ndp_param_places *places;
    for (int i = 0; opts->window > 0 && i < facts->n_kinds; i++)
        own.kinds[i].window = opts->window;
    NDP_TRY(choose_head(opts, &own));
    ndp_status st;
    NDP_TRY_GOTO(ndp_model_init(&ndp_decoder, &own, opts, &m), fail);
    NDP_TRY_GOTO(check_activations(&own), fail);
    NDP_TRY_GOTO(ndp_router_losses_check(&own, opts), fail);
    NDP_TRY_GOTO(ndp_decoder_inputs(&m), fail);
    NDP_TRY_GOTO(ndp_tables_make(&own, &m, &places), fail);
    NDP_TRY_GOTO(ndp_model_freeze(&m), fail);
    NDP_TRY_GOTO(ndp_trained_check(&m, &own), fail);
    NDP_TRY_GOTO(ndp_groups_name(&m, &own), fail);
    NDP_TRY_GOTO(build_graphs(&m, places), fail);
    *out = m;
    return NDP_OK;
fail:
    ndp_model_release(&m);
    return st;
}

const ndp_mixer_cache *ndp_decoder_cache(const ndp_facts *f, int layer) {
    return f->kinds[f->kind_of[layer]].mixer->cache;
}

/* ---- the architecture ---- */

ndp_status ndp_spec_decoder(const ndp_model_spec *s, const char *use, const ndp_facts **out) {
    if (s->architecture != &ndp_decoder)
        return NDP_FAIL(NDP_ENOTSUP, "%s supports decoders only; model_type '%s' is of architecture %s", use, s->type,
                        s->architecture->name);
    *out = s->facts;
    return NDP_OK;
}

static bool has_type(const char *model_type) { return ndp_family_find(model_type) || ndp_composite_find(model_type); }

static ndp_status read_facts(struct json_object *config, const char *what, void *facts) {
    return ndp_facts_parse(config, what, facts);
}

ndp_layout_facts ndp_facts_layout(const ndp_facts *f) {
    ndp_layout_facts out = {.heads = f->heads, .kv_heads = INT_MAX, .layers = f->layers, .experts = f->experts};
    int most = 0;
    for (int k = 0; k < f->n_kinds; k++) {
        bool state = f->kinds[k].mixer == &ndp_mixer_delta;
        int kv = state ? out.kv_heads : ndp_kind_heads(f, &f->kinds[k]).kv;
        out.kv_heads = kv < out.kv_heads ? kv : out.kv_heads, most = kv > most && !state ? kv : most;
        out.state_heads = state ? f->delta.key_heads : out.state_heads;
    }
    out.most_kv_heads = most > out.kv_heads ? most : 0;
    if (most == 0) /* no layer attends */
        out.heads = out.kv_heads = 0;
    return out;
}

static void describe(const void *facts, ndp_model_spec *out) {
    const ndp_facts *f = facts;
    int ffn = f->ffn > f->expert_ffn ? f->ffn : f->expert_ffn;
    int64_t pairs =
        f->names->expert_pairs ? 2 * (int64_t)f->expert_ffn * f->experts : 0; /* all experts are one tensor */
    int64_t widest = f->vocab > 2 * ffn ? f->vocab : 2 * ffn; /* gate and up may be one tensor, and q, k and v */
    const ndp_delta_sizes *d = &f->delta;
    int64_t qkv = 2 * ((int64_t)d->key_heads * d->key_dim + (int64_t)d->heads * d->value_dim);
    for (int k = 0; k < f->n_kinds; k++) {
        ndp_head_sizes h = ndp_kind_heads(f, &f->kinds[k]);
        int gates = f->kinds[k].mixer == &ndp_mixer_gated ? f->heads : 0;
        int64_t columns = (f->heads + gates + 2 * (int64_t)h.kv) * h.dim;
        qkv = columns > qkv ? columns : qkv;
    }
    widest = widest > qkv ? widest : qkv;
    widest = widest > pairs ? widest : pairs;
    memcpy(out->type, f->family, sizeof out->type);
    out->vocab = f->vocab;
    out->hidden = f->hidden;
    out->layout = ndp_facts_layout(f);
    out->head_dim = f->full.dim > f->head_dim ? f->full.dim : f->head_dim;
    out->positions = f->max_positions;
    out->learned_positions = f->n_ropes == 0;
    out->bos = f->bos, out->eos = f->eos;
    out->dropout = f->dropout, out->dropout_lacks = f->dropout_lacks;
    out->parameters = ndp_facts_parameters(f);
    out->largest = widest * f->hidden;
    out->prefix = ndp_facts_prefix(f);
    out->text = f->composite ? f->base : "";
    out->alias = f->names->alias;
    out->composite = f->composite;
    out->carried = f->further;
    out->packed = f->packed;
    out->rewards = f->score;
    if (f->tied)
        ndp_facts_tied_names(f, out->tie[0], out->tie[1]);
}

static ndp_status build(const void *facts, const ndp_model_opts *opts, ndp_model *out) {
    return ndp_decoder_build(facts, opts, out);
}

static void draw(const void *facts, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count, float *out) {
    ndp_decoder_random(facts, seed, s, first, count, out);
}

static void list(const void *facts, ndp_fact_visitor *visit, void *user) { ndp_decoder_list(facts, visit, user); }

static bool ignores(const void *facts, const char *tensor) { return ndp_facts_ignores(facts, tensor); }

static bool carries(const void *facts, const char *tensor) { return ndp_facts_carries(facts, tensor); }

static void set_tied(void *facts, bool tied) { ((ndp_facts *)facts)->tied = tied; }

const ndp_architecture_table ndp_decoder = {.name = "decoder",
                                            .facts_size = sizeof(ndp_facts),
                                            .has = has_type,
                                            .read = read_facts,
                                            .describe = describe,
                                            .build = build,
                                            .random = draw,
                                            .list = list,
                                            .ignores = ignores,
                                            .carries = carries,
                                            .set_tied = set_tied};
