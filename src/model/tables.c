/* Parameter tables: which tensors a model has, their shapes, how files hold them, and in which buffers they are. */
#include "model/tables.h"

#include "model/adapter_names.h"
#include "model/block.h"
#include "model/families.h"
#include "model/group_names.h"
#include <stddef.h>
#include <string.h>

/* A layer has one mixer, of which the delta rule has the most places, and a dense MLP or a mixture, which has more. */
_Static_assert(NDP_PARAMS - (NDP_P_O - NDP_P_Q) + (NDP_P_DELTA_O + 1 - NDP_P_DELTA_Q) - (NDP_B_DOWN + 1 - NDP_P_GATE) <=
                   (int)NDP_MOST_SEGMENTS,
               "a segment for each place of a unit");

typedef enum length {
    ONE,
    ONE_ROW, /* of a matrix */
    VOCAB,
    POSITIONS,
    HIDDEN,
    ADDED, /* HIDDEN, of what each rank of the tensor axis adds a part of */
    HEADS,
    Q_COLUMNS,
    KV_COLUMNS,
    FFN,
    EXPERTS,
    EXPERT_FFN,
    EXPERT_PAIRS, /* gate and up in turn */
    SHARED_FFN,
    HEAD_DIM,
    Q_ALL,
    KV_ALL,
    O_COLUMNS, /* of values */
    Q_RANK,
    KV_RANK,
    KV_SHARED,  /* and what heads share of keys */
    KV_HEADS,   /* keys less that, and values, head by head */
    DELTA_KEYS, /* of the delta rule: columns of keys, of values, */
    DELTA_VALUES,
    DELTA_HEADS, /* and heads of values */
    DELTA_VALUE, /* columns of one */
    TAPS
} length;

/* What it takes for a tensor to be there; from NORM_BIAS on those of biases. */
typedef enum when {
    ALWAYS,
    MLP_NORM, /* of its own */
    UNTIED,
    SCORED,
    QK_NORM,
    Q_DIRECT,
    Q_RANKED,
    NORM_BIAS,
    MLP_NORM_BIAS,
    QKV_BIAS,
    O_BIAS,
    MLP_BIAS,
    ROUTER_BIAS,
    Q_RANKED_BIAS
} when;

/* The buffers that a unit may have, and what follows the unit's name in theirs. The one of another unit that a tied
 * head uses is in TIED, where a layer has its STACKS: matrices of experts. ADAPTER has what is trained where the others
 * are the frozen base, KEPT the projections that are packed, whatever their rule says, where others have the bias of
 * their ROUTER, which has no gradient. EXPERT_ADAPTER has factors of STACKS, FIXED what has no gradient: the number
 * that a layer's result is multiplied by, and the bias of a router beside KEPT. STACKS may be packed too; biases of
 * experts are in EXPERT_BIAS then. Where opts.trained names what is trained, that is in ADAPTER, and stacks and their
 * biases in EXPERT_ADAPTER. */
enum {
    OWN = NDP_SLOT_OWN,
    TIED = NDP_SLOT_TIED,
    STACKS = NDP_SLOT_STACKS,
    ADAPTER = NDP_SLOT_ADAPTER,
    KEPT = NDP_SLOT_KEPT,
    ROUTER = NDP_SLOT_ROUTER,
    EXPERT_ADAPTER = NDP_SLOT_EXPERT_ADAPTER,
    FIXED = NDP_SLOT_FIXED,
    EXPERT_BIAS = NDP_SLOT_EXPERT_BIAS,
    SLOTS
};
static const char *const slot_names[SLOTS] = {[OWN] = "",
                                              [STACKS] = ".experts",
                                              [ADAPTER] = ".adapter",
                                              [KEPT] = ".kept",
                                              [EXPERT_ADAPTER] = ".experts.adapter",
                                              [FIXED] = ".fixed",
                                              [EXPERT_BIAS] = ".experts.bias"};

typedef struct rule {
    ndp_param place;
    unsigned parts; /* which parts of units have it */
    int slot;       /* in which of the unit's buffers */
    size_t name;    /* where ndp_names has it */
    length rows, cols;
    bool glued; /* to the one before, where that is there */
    when when;
} rule;

#define NAME(member) offsetof(ndp_names, member)
#define ANY_MIXER (NDP_PART_ATTENTION | NDP_PART_LATENT | NDP_PART_GATED)
#define ANY_HEADS (NDP_PART_ATTENTION | NDP_PART_GATED)
#define ANY_MLP (NDP_PART_GATED_MLP | NDP_PART_PLAIN_MLP)
/* Vectors have one row; a group of glued ones stands together. */
static const rule rules[] = {
    {NDP_P_TOKENS, NDP_PART_EMBEDDING, OWN, NAME(tokens), VOCAB, HIDDEN, false, ALWAYS},
    {NDP_P_POSITIONS, NDP_PART_EMBEDDING, OWN, NAME(positions), POSITIONS, HIDDEN, false, ALWAYS},
    {NDP_P_INPUT_NORM, NDP_PART_LAYER, OWN, NAME(input_norm), ONE, HIDDEN, false, ALWAYS},
    {NDP_B_INPUT_NORM, NDP_PART_LAYER, OWN, NAME(input_norm), ONE, HIDDEN, false, NORM_BIAS},
    {NDP_P_Q, NDP_PART_ATTENTION, OWN, NAME(q), Q_COLUMNS, HIDDEN, false, ALWAYS},
    {NDP_P_K, NDP_PART_ATTENTION, OWN, NAME(k), KV_COLUMNS, HIDDEN, true, ALWAYS},
    {NDP_P_V, NDP_PART_ATTENTION, OWN, NAME(v), KV_COLUMNS, HIDDEN, true, ALWAYS},
    {NDP_B_Q, NDP_PART_ATTENTION, OWN, NAME(q), ONE, Q_COLUMNS, false, QKV_BIAS},
    {NDP_B_K, NDP_PART_ATTENTION, OWN, NAME(k), ONE, KV_COLUMNS, true, QKV_BIAS},
    {NDP_B_V, NDP_PART_ATTENTION, OWN, NAME(v), ONE, KV_COLUMNS, true, QKV_BIAS},
    {NDP_P_Q_NORM, ANY_HEADS, OWN, NAME(q_norm), ONE, Q_ALL, false, QK_NORM},
    {NDP_P_K_NORM, ANY_HEADS, OWN, NAME(k_norm), ONE, KV_ALL, false, QK_NORM},
    {NDP_P_SINKS, NDP_PART_ATTENTION, OWN, NAME(sinks), ONE, HEADS, false, ALWAYS},
    {NDP_P_DIRECT_Q, NDP_PART_LATENT, OWN, NAME(q), Q_COLUMNS, HIDDEN, false, Q_DIRECT},
    {NDP_P_Q_A, NDP_PART_LATENT, OWN, NAME(q_a), Q_RANK, HIDDEN, false, Q_RANKED},
    {NDP_B_Q_A, NDP_PART_LATENT, OWN, NAME(q_a), ONE, Q_RANK, false, Q_RANKED_BIAS},
    {NDP_P_Q_A_NORM, NDP_PART_LATENT, OWN, NAME(q_a_norm), ONE, Q_RANK, false, Q_RANKED},
    {NDP_P_Q_B, NDP_PART_LATENT, OWN, NAME(q_b), Q_COLUMNS, Q_RANK, false, Q_RANKED},
    {NDP_P_KV_A, NDP_PART_LATENT, OWN, NAME(kv_a), KV_SHARED, HIDDEN, false, ALWAYS},
    {NDP_B_KV_A, NDP_PART_LATENT, OWN, NAME(kv_a), ONE, KV_SHARED, false, QKV_BIAS},
    {NDP_P_KV_A_NORM, NDP_PART_LATENT, OWN, NAME(kv_a_norm), ONE, KV_RANK, false, ALWAYS},
    {NDP_P_KV_B, NDP_PART_LATENT, OWN, NAME(kv_b), KV_HEADS, KV_RANK, false, ALWAYS},
    {NDP_P_GATED_Q, NDP_PART_GATED, OWN, NAME(q), Q_COLUMNS, HIDDEN, false, ALWAYS},
    {NDP_P_GATED_GATE, NDP_PART_GATED, OWN, NAME(q), Q_COLUMNS, HIDDEN, true, ALWAYS},
    {NDP_P_GATED_K, NDP_PART_GATED, OWN, NAME(k), KV_COLUMNS, HIDDEN, true, ALWAYS},
    {NDP_P_GATED_V, NDP_PART_GATED, OWN, NAME(v), KV_COLUMNS, HIDDEN, true, ALWAYS},
    {NDP_B_GATED_Q, NDP_PART_GATED, OWN, NAME(q), ONE, Q_COLUMNS, false, QKV_BIAS},
    {NDP_B_GATED_GATE, NDP_PART_GATED, OWN, NAME(q), ONE, Q_COLUMNS, true, QKV_BIAS},
    {NDP_B_GATED_K, NDP_PART_GATED, OWN, NAME(k), ONE, KV_COLUMNS, true, QKV_BIAS},
    {NDP_B_GATED_V, NDP_PART_GATED, OWN, NAME(v), ONE, KV_COLUMNS, true, QKV_BIAS},
    {NDP_P_DELTA_Q, NDP_PART_DELTA, OWN, NAME(delta_qkv), DELTA_KEYS, HIDDEN, false, ALWAYS},
    {NDP_P_DELTA_K, NDP_PART_DELTA, OWN, NAME(delta_qkv), DELTA_KEYS, HIDDEN, true, ALWAYS},
    {NDP_P_DELTA_V, NDP_PART_DELTA, OWN, NAME(delta_qkv), DELTA_VALUES, HIDDEN, true, ALWAYS},
    {NDP_P_DELTA_Z, NDP_PART_DELTA, OWN, NAME(delta_z), DELTA_VALUES, HIDDEN, true, ALWAYS},
    {NDP_P_DELTA_B, NDP_PART_DELTA, OWN, NAME(delta_b), DELTA_HEADS, HIDDEN, true, ALWAYS},
    {NDP_P_DELTA_A, NDP_PART_DELTA, OWN, NAME(delta_a), DELTA_HEADS, HIDDEN, true, ALWAYS},
    {NDP_P_TAPS_Q, NDP_PART_DELTA, OWN, NAME(taps), DELTA_KEYS, TAPS, false, ALWAYS},
    {NDP_P_TAPS_K, NDP_PART_DELTA, OWN, NAME(taps), DELTA_KEYS, TAPS, true, ALWAYS},
    {NDP_P_TAPS_V, NDP_PART_DELTA, OWN, NAME(taps), DELTA_VALUES, TAPS, true, ALWAYS},
    {NDP_P_DECAY, NDP_PART_DELTA, OWN, NAME(decay), ONE, DELTA_HEADS, false, ALWAYS},
    {NDP_P_DECAY_STEP, NDP_PART_DELTA, OWN, NAME(decay_step), ONE, DELTA_HEADS, false, ALWAYS},
    {NDP_P_DELTA_NORM, NDP_PART_DELTA, OWN, NAME(delta_norm), ONE, DELTA_VALUE, false, ALWAYS},
    {NDP_P_DELTA_O, NDP_PART_DELTA, OWN, NAME(delta_o), HIDDEN, DELTA_VALUES, false, ALWAYS},
    {NDP_P_O, ANY_MIXER, OWN, NAME(o), HIDDEN, O_COLUMNS, false, ALWAYS},
    {NDP_B_O, ANY_MIXER, OWN, NAME(o), ONE, HIDDEN, false, O_BIAS},
    {NDP_P_ATTENTION_NORM, NDP_PART_LAYER, OWN, NAME(attention_norm), ONE, HIDDEN, false, ALWAYS},
    {NDP_P_MLP_NORM, NDP_PART_LAYER, OWN, NAME(mlp_norm), ONE, HIDDEN, false, MLP_NORM},
    {NDP_B_MLP_NORM, NDP_PART_LAYER, OWN, NAME(mlp_norm), ONE, HIDDEN, false, MLP_NORM_BIAS},
    {NDP_P_GATE, NDP_PART_GATED_MLP, OWN, NAME(gate), FFN, HIDDEN, false, ALWAYS},
    {NDP_P_UP, ANY_MLP, OWN, NAME(up), FFN, HIDDEN, true, ALWAYS},
    {NDP_B_GATE, NDP_PART_GATED_MLP, OWN, NAME(gate), ONE, FFN, false, MLP_BIAS},
    {NDP_B_UP, ANY_MLP, OWN, NAME(up), ONE, FFN, true, MLP_BIAS},
    {NDP_P_DOWN, ANY_MLP, OWN, NAME(down), HIDDEN, FFN, false, ALWAYS},
    {NDP_B_DOWN, ANY_MLP, OWN, NAME(down), ONE, HIDDEN, false, MLP_BIAS},
    {NDP_P_ROUTER, NDP_PART_EXPERTS, OWN, NAME(router), EXPERTS, HIDDEN, false, ALWAYS},
    {NDP_B_ROUTER, NDP_PART_EXPERTS, OWN, NAME(router), ONE, EXPERTS, false, ROUTER_BIAS},
    {NDP_P_ROUTER_BIAS, NDP_PART_EXPERTS, ROUTER, NAME(router_bias), ONE, EXPERTS, false, ALWAYS},
    {NDP_P_EXPERT_GATE_UP, NDP_PART_EXPERTS, STACKS, NAME(expert_gate_up), EXPERT_FFN, HIDDEN, false, ALWAYS},
    {NDP_P_EXPERT_GATE_UP, NDP_PART_EXPERTS, STACKS, NAME(expert_pairs), EXPERT_PAIRS, HIDDEN, false, ALWAYS},
    {NDP_B_EXPERT_GATE_UP, NDP_PART_EXPERTS, STACKS, NAME(expert_pairs_bias), ONE, EXPERT_PAIRS, false, ALWAYS},
    {NDP_P_EXPERT_DOWN, NDP_PART_EXPERTS, STACKS, NAME(expert_down), HIDDEN, EXPERT_FFN, false, ALWAYS},
    {NDP_B_EXPERT_DOWN, NDP_PART_EXPERTS, STACKS, NAME(expert_down_bias), ONE, ADDED, false, ALWAYS},
    {NDP_P_SHARED_GATE, NDP_PART_EXPERTS, OWN, NAME(shared_gate), SHARED_FFN, HIDDEN, false, ALWAYS},
    {NDP_P_SHARED_UP, NDP_PART_EXPERTS, OWN, NAME(shared_up), SHARED_FFN, HIDDEN, true, ALWAYS},
    {NDP_P_SHARED_DOWN, NDP_PART_EXPERTS, OWN, NAME(shared_down), HIDDEN, SHARED_FFN, false, ALWAYS},
    {NDP_P_SHARED_PASS, NDP_PART_EXPERTS, OWN, NAME(shared_pass), ONE_ROW, HIDDEN, false, ALWAYS},
    {NDP_P_MLP_OUT_NORM, NDP_PART_LAYER, OWN, NAME(mlp_out_norm), ONE, HIDDEN, false, ALWAYS},
    {NDP_P_LAYER_SCALAR, NDP_PART_LAYER, FIXED, NAME(layer_scalar), ONE, ONE, false, ALWAYS},
    {NDP_P_FINAL_NORM, NDP_PART_HEAD, OWN, NAME(final_norm), ONE, HIDDEN, false, ALWAYS},
    {NDP_B_FINAL_NORM, NDP_PART_HEAD, OWN, NAME(final_norm), ONE, HIDDEN, false, NORM_BIAS},
    {NDP_P_HEAD, NDP_PART_HEAD, OWN, NAME(head), VOCAB, HIDDEN, false, UNTIED},
    {NDP_P_HEAD, NDP_PART_HEAD, OWN, NAME(score), ONE_ROW, HIDDEN, false, SCORED},
};

static const char *name_of(const ndp_facts *f, const rule *r) {
    return *(const char *const *)((const char *)f->names + r->name);
}

static bool is_there(const ndp_facts *f, const rule *r, const ndp_head_sizes *h) {
    const bool shared = h->v_is_k && (r->place == NDP_P_V || r->place == NDP_B_V);
    const bool is[] = {[ALWAYS] = true,
                       [MLP_NORM] = !f->parallel || f->two_norms,
                       [UNTIED] = !f->tied && !f->score,
                       [SCORED] = f->score,
                       [QK_NORM] = f->qk_norm != NDP_QK_NORM_NONE,
                       [Q_DIRECT] = f->q_rank == 0,
                       [Q_RANKED] = f->q_rank > 0,
                       [Q_RANKED_BIAS] = f->q_rank > 0 && f->qkv_bias,
                       [NORM_BIAS] = f->norm.bias,
                       [MLP_NORM_BIAS] = f->norm.bias && (!f->parallel || f->two_norms),
                       [QKV_BIAS] = f->qkv_bias,
                       [O_BIAS] = f->o_bias,
                       [MLP_BIAS] = f->mlp_bias,
                       [ROUTER_BIAS] = f->router_bias};
    return name_of(f, r) && is[r->when] && !shared;
}

/* Rows or columns that stay together. */
static int64_t grain_of(const ndp_facts *f, const ndp_head_sizes *h, length l, ndp_dim dim) {
    bool heads = dim == NDP_DIM_HEADS || dim == NDP_DIM_KV_HEADS;
    const ndp_delta_sizes *d = &f->delta;
    if (l == DELTA_KEYS)
        return d->key_dim;
    if (l == DELTA_VALUES || l == DELTA_HEADS) /* those of one key head stay together */
        return d->heads / d->key_heads * (l == DELTA_VALUES ? d->value_dim : 1);
    int64_t value = f->v_dim > 0 ? f->v_dim : h->dim, head = l == KV_HEADS    ? f->nope_dim + value
                                                             : l == O_COLUMNS ? value
                                                                              : h->dim;
    return l == EXPERT_PAIRS ? 2 : heads && l != HEADS ? head : 1;
}

/* Lengths, and what they count: dimensions that the tensor axis may cut. */
static int64_t length_of(const ndp_facts *f, const ndp_head_sizes *h, length l, ndp_dim *dim) {
    bool whole = f->qk_norm == NDP_QK_NORM_WHOLE;
    int64_t q = (int64_t)f->heads * h->dim, kv = (int64_t)h->kv * h->dim;
    static const ndp_dim dims[] = {[VOCAB] = NDP_DIM_VOCAB,       [POSITIONS] = NDP_DIM_VOCAB,
                                   [Q_COLUMNS] = NDP_DIM_HEADS,   [KV_COLUMNS] = NDP_DIM_KV_HEADS,
                                   [FFN] = NDP_DIM_FFN,           [HEAD_DIM] = NDP_DIM_IN_HEAD,
                                   [EXPERT_FFN] = NDP_DIM_FFN,    [SHARED_FFN] = NDP_DIM_FFN,
                                   [KV_ALL] = NDP_DIM_KV_HEADS,   [Q_ALL] = NDP_DIM_HEADS,
                                   [HEADS] = NDP_DIM_HEADS,       [EXPERT_PAIRS] = NDP_DIM_FFN,
                                   [ADDED] = NDP_DIM_ADDED,       [EXPERTS] = NDP_DIM_EXPERTS,
                                   [O_COLUMNS] = NDP_DIM_HEADS,   [KV_HEADS] = NDP_DIM_KV_HEADS,
                                   [DELTA_KEYS] = NDP_DIM_HEADS,  [DELTA_VALUES] = NDP_DIM_HEADS,
                                   [DELTA_HEADS] = NDP_DIM_HEADS, [DELTA_VALUE] = NDP_DIM_IN_HEAD,
                                   [TAPS] = NDP_DIM_WHOLE};
    const int64_t n[] = {[ONE] = 1,
                         [ONE_ROW] = 1,
                         [VOCAB] = f->vocab,
                         [POSITIONS] = f->max_positions,
                         [HIDDEN] = f->hidden,
                         [ADDED] = f->hidden,
                         [HEADS] = f->heads,
                         [Q_COLUMNS] = q,
                         [EXPERTS] = f->experts,
                         [EXPERT_FFN] = f->expert_ffn,
                         [EXPERT_PAIRS] = 2 * (int64_t)f->expert_ffn,
                         [SHARED_FFN] = f->shared_ffn,
                         [KV_COLUMNS] = kv,
                         [FFN] = f->ffn,
                         [HEAD_DIM] = h->dim,
                         [Q_ALL] = q,
                         [O_COLUMNS] = f->heads * grain_of(f, h, O_COLUMNS, NDP_DIM_HEADS),
                         [Q_RANK] = f->q_rank,
                         [KV_RANK] = f->kv_rank,
                         [KV_SHARED] = f->kv_rank + h->dim - f->nope_dim,
                         [KV_HEADS] = f->heads * grain_of(f, h, KV_HEADS, NDP_DIM_HEADS),
                         [KV_ALL] = kv,
                         [DELTA_KEYS] = (int64_t)f->delta.key_heads * f->delta.key_dim,
                         [DELTA_VALUES] = (int64_t)f->delta.heads * f->delta.value_dim,
                         [DELTA_HEADS] = f->delta.heads,
                         [DELTA_VALUE] = f->delta.value_dim,
                         [TAPS] = f->delta.taps};
    if ((l == Q_ALL || l == KV_ALL) && !whole)
        l = HEAD_DIM;
    *dim = dims[l];
    return n[l];
}

/* Members of a stack for each expert: gate and up of one follow each other, so that they are one matrix, which in some
 * files is one tensor for all experts. 0: no stack. */
static int64_t members_of(const rule *r) {
    bool apart = r->place == NDP_P_EXPERT_GATE_UP && r->rows == EXPERT_FFN;
    return r->slot != STACKS ? 0 : apart ? 2 : 1;
}

/* A name that nothing follows. */
static bool is_whole_name(const ndp_facts *f, const rule *r) {
    return r->slot == ROUTER || r->slot == FIXED || r->place == NDP_P_SINKS || r->place == NDP_P_DECAY ||
           r->place == NDP_P_DECAY_STEP || (r->slot == STACKS && !strstr(name_of(f, r), "%d"));
}

static ndp_segment segment_of(const ndp_facts *f, const rule *r, const ndp_head_sizes *h, const char *name) {
    ndp_dim row_dim, col_dim;
    int64_t rows = length_of(f, h, r->rows, &row_dim), cols = length_of(f, h, r->cols, &col_dim);
    bool vector = r->rows == ONE;
    ndp_segment s = ndp_segment_whole(name, vector ? 1 : 2, rows, cols, row_dim, col_dim);
    s.grain[0] = grain_of(f, h, r->rows, row_dim), s.grain[1] = grain_of(f, h, r->cols, col_dim);
    s.glued = r->glued;
    bool of_layer = !(r->parts & (NDP_PART_EMBEDDING | NDP_PART_HEAD));
    s.by_depth = r->cols == TAPS;
    s.projection = !vector && of_layer && !s.by_depth;
    s.apart = (r->parts & f->names->in_turn) && !s.by_depth; /* fuse says how far */
    s.coded = r->place != NDP_P_TOKENS && r->place != NDP_P_POSITIONS;
    s.transposed = (f->transposed && !vector && of_layer) || (r->slot == STACKS && !vector && is_whole_name(f, r));
    ndp_segment_pile(&s, members_of(r) * f->experts, members_of(r));
    s.no_grad = r->slot == ROUTER || r->slot == FIXED;
    s.drawn = r->when == SCORED && f->new_score;
    return s;
}

/* Segments of one name that stand together are parts of one tensor, in this order, whole or in turn. */
static void fuse(ndp_segment *items, int n) {
    int axis = items[0].ndim == 2 ? 0 : 1;
    int64_t whole = 0, base = 0, apart = 0;
    bool in_turn = items[0].apart > 0;
    for (int i = 0; i < n; i++)
        whole += items[i].part[axis], apart += items[i].grain[axis];
    for (int i = 0; i < n; base += in_turn ? items[i].grain[axis] : items[i].part[axis], i++)
        if (in_turn)
            ndp_segment_fuse_in_turn(&items[i], axis, base, apart, whole);
        else
            ndp_segment_fuse(&items[i], axis, base, whole);
}

static void fuse_all(ndp_segments *s) {
    for (int i = 0, end; i < s->n; i = end) {
        for (end = i + 1; end < s->n && strcmp(s->items[i].name, s->items[end].name) == 0;)
            end++;
        if (end - i > 1)
            fuse(&s->items[i], end - i);
        else
            s->items[i].apart = 0;
    }
    for (int i = 0; i < s->n; i++) /* by the size that the whole tensor has */
        s->items[i].coded &= ndp_segment_tensor_elements(&s->items[i]) >= NDP_LEAST_CODED;
}

/* ---- units ---- */

static unsigned parts_of(const ndp_facts *f, int kind) {
    if (kind == NDP_KIND_EMBEDDING)
        return NDP_PART_EMBEDDING;
    if (kind == ndp_kind_head(f))
        return NDP_PART_HEAD;
    const ndp_layer_kind *k = &f->kinds[kind - NDP_KIND_LAYER];
    return (unsigned)NDP_PART_LAYER | k->mixer->part | k->mlp->part;
}

/* Of a kind of unit: those of layers, whatever others say. */
static ndp_head_sizes heads_of(const ndp_facts *f, int kind) {
    bool layer = kind != NDP_KIND_EMBEDDING && kind != ndp_kind_head(f);
    return ndp_kind_heads(f, &f->kinds[layer ? kind - NDP_KIND_LAYER : 0]);
}

/* Starts a buffer of unit `u`, if it has none in that slot. */
static ndp_status need_buffer(ndp_model *m, ndp_unit *u, int slot) {
    if (u->buffers[slot] != NDP_NONE)
        return NDP_OK;
    ndp_buffer *b = &m->buffers[m->n_buffers];
    bool router = slot == ROUTER && m->opts.base == NDP_PACKING_NONE, by_name = m->opts.n_trained > 0;
    const char *ending = by_name && slot == ADAPTER          ? ".trained"
                         : by_name && slot == EXPERT_ADAPTER ? ".experts.trained"
                                                             : slot_names[slot];
    *b = (ndp_buffer){.name = ndp_arena_format(&m->arena, "%s%s", u->name, router ? ".router" : ending),
                      .base = m->opts.adapter.r > 0 && slot != ADAPTER && slot != EXPERT_ADAPTER,
                      .owners = NDP_GROUP_SHARD};
    b->segments.items = ndp_arena_alloc(&m->arena, NDP_MOST_SEGMENTS * sizeof(ndp_segment));
    b->segments.packing = slot == KEPT || slot == STACKS ? m->opts.base : NDP_PACKING_NONE;
    u->buffers[slot] = m->n_buffers++;
    return NDP_MEMORY(b->name && b->segments.items, "for the model's tables");
}

ndp_status ndp_unit_append(ndp_model *m, ndp_unit *u, int slot, const ndp_segment *s, ndp_place *at) {
    NDP_TRY(s->name ? need_buffer(m, u, slot) : NDP_FAIL(NDP_ENOMEM, "not enough memory for the model's tables"));
    ndp_segments *segments = &m->buffers[u->buffers[slot]].segments;
    if (segments->n == NDP_MOST_SEGMENTS)
        return NDP_FAIL(NDP_EBUG, "%s is tensor %d of a buffer of %s", s->name, NDP_MOST_SEGMENTS + 1, u->name);
    *at = (ndp_place){slot, segments->n};
    segments->items[segments->n++] = *s;
    return NDP_OK;
}

/* The name of a tensor in files, and in the model; NULL: out of memory. */
static const char *tensor_name(const ndp_facts *f, ndp_arena *arena, const rule *r, const char *prefix) {
    const char *ending = is_whole_name(f, r) ? "" : r->when >= NORM_BIAS ? ".bias" : ".weight";
    const char *name = name_of(f, r), *base = *prefix ? prefix : ndp_facts_base(f, &name);
    return ndp_arena_format(arena, "%s%s%s", base, name, ending);
}

/* The buffer that a parameter is in. Projections are packed, but for what decides where a row goes. */
static int slot_of(const ndp_facts *f, const ndp_model_opts *o, const rule *r, const ndp_segment *s) {
    bool stack = r->slot == STACKS, packs = o->base != NDP_PACKING_NONE;
    if (packs && s->projection && r->rows != EXPERTS && r->rows != ONE_ROW)
        return stack ? STACKS : KEPT;
    if (s->name && (ndp_adapter_saves(&o->adapter, s->name, f) || (r->when == SCORED && o->adapter.r > 0)))
        return ADAPTER;
    return !packs ? r->slot : stack ? EXPERT_BIAS : r->slot == ROUTER ? FIXED : r->slot;
}

bool ndp_unit_trains(const ndp_model_opts *o, const char *unit, int slot) {
    return o->n_trained > 0 ? slot == ADAPTER || slot == EXPERT_ADAPTER : !ndp_model_is_frozen(o, unit);
}

ndp_status ndp_unit_trained_slot(const ndp_model *m, const ndp_unit *u, const ndp_segment *s, const ndp_facts *f,
                                 ndp_place before, int *slot) {
    if (m->opts.n_trained == 0 || !s->name)
        return NDP_OK;
    if (ndp_trained_names(&m->opts, s, f))
        *slot = *slot == STACKS ? EXPERT_ADAPTER : ADAPTER;
    if (!s->glued || before.slot == *slot)
        return NDP_OK;
    const char *other = m->buffers[u->buffers[before.slot]].segments.items[before.segment].name;
    return NDP_FAIL(
        NDP_ENOTSUP,
        "model.trained names %s and not %s: they are one matrix here, of one product; name both, or neither",
        *slot == ADAPTER ? s->name : other, *slot == ADAPTER ? other : s->name);
}

/* Appends the parameters of a unit to its buffers. `prefix` goes before the names of a layer's. */
static ndp_status fill_unit(const ndp_facts *f, ndp_model *m, ndp_unit *u, int kind, const char *prefix,
                            ndp_place at[NDP_PARAMS]) {
    const ndp_head_sizes h = heads_of(f, kind);
    ndp_place before = {OWN, NDP_NONE};
    for (int i = 0; i < NDP_COUNT(rules); i++) {
        const rule *r = &rules[i];
        bool there = is_there(f, r, &h) && (r->parts & parts_of(f, kind));
        if (there) {
            ndp_segment s = segment_of(f, r, &h, tensor_name(f, &m->arena, r, prefix));
            s.glued &= before.segment != NDP_NONE;
            int slot = slot_of(f, &m->opts, r, &s);
            NDP_TRY(ndp_unit_trained_slot(m, u, &s, f, before, &slot));
            NDP_TRY(ndp_unit_append(m, u, slot, &s, &at[r->place]));
        }
        before = there ? at[r->place] : (ndp_place){OWN, NDP_NONE};
    }
    return NDP_OK;
}

/* ---- factors of adapters ---- */

/* Matrices of layers have factors, but for what decides where a row goes. Those of stacks come last. */
static bool takes_factors(const rule *r) {
    return !(r->parts & (NDP_PART_EMBEDDING | NDP_PART_HEAD)) && r->slot != STACKS && r->rows != ONE &&
           r->rows != ONE_ROW && r->rows != EXPERTS && r->cols != TAPS;
}

/* Glued projections read the same values. */
static ndp_status add_adapter(ndp_model *m, ndp_unit *u, ndp_param_places *places) {
    for (int i = 0, n; i < NDP_COUNT(rules); i += n) {
        for (n = 1; i + n < NDP_COUNT(rules) && rules[i + n].glued;)
            n++;
        if (takes_factors(&rules[i]))
            NDP_TRY(ndp_unit_factors(m, u, rules[i].place, n, places));
    }
    return ndp_unit_expert_factors(m, u, places);
}

/* Layers of one kind share a graph, so they have factors at the same places. */
static ndp_status check_alike(const ndp_facts *f, const ndp_unit *u, const ndp_param_places *at,
                              const ndp_param_places *of_kind) {
    if (memcmp(at, of_kind, sizeof *at) != 0)
        return NDP_FAIL(NDP_ENOTSUP,
                        "adapter.targets and adapter.modules_to_save name tensors of %s that they do not name in "
                        "the layers before it: they must name the same ones in each of the %d layers",
                        u->name, f->layers);
    return NDP_OK;
}

void ndp_places_clear(ndp_param_places *places) {
    for (int p = 0; p < NDP_PARAMS; p++) {
        places->at[p] = (ndp_place){OWN, NDP_NONE};
        for (int k = 0; k < NDP_FACTORS; k++)
            places->factors[p][k] = (ndp_place){OWN, NDP_NONE};
    }
}

/* `of_kind`: the places of the first unit of each kind so far. */
static ndp_status make_unit(const ndp_facts *f, ndp_model *m, int i, ndp_param_places *out,
                            const ndp_param_places *of_kind[NDP_UNIT_KINDS]) {
    ndp_unit *u = &m->units[i];
    int kind = ndp_unit_kind(f, i);
    const char *name = "embed", *prefix = "";
    if (kind == ndp_kind_head(f)) {
        name = "head";
    } else if (kind != NDP_KIND_EMBEDDING) {
        name = ndp_arena_format(&m->arena, "layers.%d", i - 1);
        char layers[NDP_TENSOR_NAME];
        ndp_facts_name(f, f->names->layers, layers);
        prefix = ndp_arena_format(&m->arena, "%s.%d.", layers, i - 1);
    }
    NDP_CHECK_MEMORY(name && prefix, "for the tables of %d layers", f->layers);
    *u = (ndp_unit){.name = name};
    for (int s = 0; s < NDP_SLOTS; s++)
        u->buffers[s] = NDP_NONE;
    ndp_places_clear(out);
    NDP_TRY(fill_unit(f, m, u, kind, prefix, out->at));
    NDP_TRY(add_adapter(m, u, out));
    of_kind[kind] = of_kind[kind] ? of_kind[kind] : out;
    if (m->opts.adapter.r > 0)
        NDP_TRY(check_alike(f, u, out, of_kind[kind]));
    for (int s = 0; s < SLOTS; s++)
        if (u->buffers[s] != NDP_NONE) {
            fuse_all(&m->buffers[u->buffers[s]].segments);
            ndp_segments_layout(&m->buffers[u->buffers[s]].segments);
        }
    return NDP_OK;
}

ndp_status ndp_tables_make(const ndp_facts *f, ndp_model *m, ndp_param_places **out) {
    size_t units = (size_t)f->layers + 2;
    const ndp_param_places *of_kind[NDP_UNIT_KINDS] = {0};
    ndp_param_places *of = *out = ndp_arena_alloc(&m->arena, units * sizeof *of);
    m->units = ndp_arena_alloc(&m->arena, units * sizeof *m->units);
    m->buffers = ndp_arena_alloc(&m->arena, units * SLOTS * sizeof *m->buffers);
    NDP_CHECK_MEMORY(m->units && m->buffers && of, "for the tables of %d layers", f->layers);
    for (m->n_units = 0; m->n_units < (int)units; m->n_units++)
        NDP_TRY(make_unit(f, m, m->n_units, &of[m->n_units], of_kind));
    NDP_TRY(ndp_adapter_check(m, f));
    if (!f->tied)
        return NDP_OK;
    ndp_place tokens = of[0].at[NDP_P_TOKENS];
    m->units[m->n_units - 1].buffers[TIED] = m->units[0].buffers[tokens.slot];
    of[m->n_units - 1].at[NDP_P_HEAD] = (ndp_place){TIED, tokens.segment};
    return NDP_OK;
}

static int64_t elements_of(const ndp_facts *f, int kind) {
    const ndp_head_sizes h = heads_of(f, kind);
    int64_t n = 0;
    ndp_dim dim;
    for (int i = 0; i < NDP_COUNT(rules); i++)
        if ((rules[i].parts & parts_of(f, kind)) && is_there(f, &rules[i], &h))
            n += length_of(f, &h, rules[i].rows, &dim) * length_of(f, &h, rules[i].cols, &dim) *
                 (rules[i].slot == STACKS ? members_of(&rules[i]) * f->experts : 1);
    return n;
}

int64_t ndp_facts_parameters(const ndp_facts *f) {
    int64_t n = 0;
    for (int u = 0; u < f->layers + 2; u++)
        n += elements_of(f, ndp_unit_kind(f, u));
    return n;
}
