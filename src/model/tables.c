/* Parameter tables: which tensors a model has, their shapes, and how files hold them. */
#include "model/unit_builder.h"

#include "model/families.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef enum length { ONE, VOCAB, POSITIONS, HIDDEN, Q_COLUMNS, KV_COLUMNS, FFN, HEAD_DIM, Q_ALL, KV_ALL } length;

/* What it takes for a tensor to be there; from NORM_BIAS on those of biases. */
typedef enum when { ALWAYS, SERIAL, UNTIED, NORM_BIAS, SERIAL_NORM_BIAS, QKV_BIAS, O_BIAS, MLP_BIAS } when;

typedef struct rule {
    ndp_param place;
    ndp_part_of unit;
    size_t name; /* where ndp_names has it */
    length rows, cols;
    bool glued; /* to the one before, where that is there */
    when when;
} rule;

#define NAME(member) offsetof(ndp_names, member)
/* Vectors have one row; a group of glued ones stands together. */
static const rule rules[] = {
    {NDP_P_TOKENS, NDP_OF_EMBEDDING, NAME(tokens), VOCAB, HIDDEN, false, ALWAYS},
    {NDP_P_POSITIONS, NDP_OF_EMBEDDING, NAME(positions), POSITIONS, HIDDEN, false, ALWAYS},
    {NDP_P_INPUT_NORM, NDP_OF_BLOCK, NAME(input_norm), ONE, HIDDEN, false, ALWAYS},
    {NDP_B_INPUT_NORM, NDP_OF_BLOCK, NAME(input_norm), ONE, HIDDEN, false, NORM_BIAS},
    {NDP_P_Q, NDP_OF_BLOCK, NAME(q), Q_COLUMNS, HIDDEN, false, ALWAYS},
    {NDP_P_K, NDP_OF_BLOCK, NAME(k), KV_COLUMNS, HIDDEN, true, ALWAYS},
    {NDP_P_V, NDP_OF_BLOCK, NAME(v), KV_COLUMNS, HIDDEN, true, ALWAYS},
    {NDP_B_Q, NDP_OF_BLOCK, NAME(q), ONE, Q_COLUMNS, false, QKV_BIAS},
    {NDP_B_K, NDP_OF_BLOCK, NAME(k), ONE, KV_COLUMNS, true, QKV_BIAS},
    {NDP_B_V, NDP_OF_BLOCK, NAME(v), ONE, KV_COLUMNS, true, QKV_BIAS},
    {NDP_P_Q_NORM, NDP_OF_BLOCK, NAME(q_norm), ONE, Q_ALL, false, ALWAYS},
    {NDP_P_K_NORM, NDP_OF_BLOCK, NAME(k_norm), ONE, KV_ALL, false, ALWAYS},
    {NDP_P_O, NDP_OF_BLOCK, NAME(o), HIDDEN, Q_COLUMNS, false, ALWAYS},
    {NDP_B_O, NDP_OF_BLOCK, NAME(o), ONE, HIDDEN, false, O_BIAS},
    {NDP_P_ATTENTION_NORM, NDP_OF_BLOCK, NAME(attention_norm), ONE, HIDDEN, false, ALWAYS},
    {NDP_P_MLP_NORM, NDP_OF_BLOCK, NAME(mlp_norm), ONE, HIDDEN, false, SERIAL},
    {NDP_B_MLP_NORM, NDP_OF_BLOCK, NAME(mlp_norm), ONE, HIDDEN, false, SERIAL_NORM_BIAS},
    {NDP_P_GATE, NDP_OF_BLOCK, NAME(gate), FFN, HIDDEN, false, ALWAYS},
    {NDP_P_UP, NDP_OF_BLOCK, NAME(up), FFN, HIDDEN, true, ALWAYS},
    {NDP_B_GATE, NDP_OF_BLOCK, NAME(gate), ONE, FFN, false, MLP_BIAS},
    {NDP_B_UP, NDP_OF_BLOCK, NAME(up), ONE, FFN, true, MLP_BIAS},
    {NDP_P_DOWN, NDP_OF_BLOCK, NAME(down), HIDDEN, FFN, false, ALWAYS},
    {NDP_B_DOWN, NDP_OF_BLOCK, NAME(down), ONE, HIDDEN, false, MLP_BIAS},
    {NDP_P_MLP_OUT_NORM, NDP_OF_BLOCK, NAME(mlp_out_norm), ONE, HIDDEN, false, ALWAYS},
    {NDP_P_FINAL_NORM, NDP_OF_HEAD, NAME(final_norm), ONE, HIDDEN, false, ALWAYS},
    {NDP_B_FINAL_NORM, NDP_OF_HEAD, NAME(final_norm), ONE, HIDDEN, false, NORM_BIAS},
    {NDP_P_HEAD, NDP_OF_HEAD, NAME(head), VOCAB, HIDDEN, false, UNTIED},
};

static const char *name_of(const ndp_facts *f, const rule *r) {
    return *(const char *const *)((const char *)f->names + r->name);
}

static bool is_there(const ndp_facts *f, const rule *r) {
    const bool is[] = {[ALWAYS] = true,
                       [SERIAL] = !f->parallel,
                       [UNTIED] = !f->tied,
                       [NORM_BIAS] = f->layer_norm,
                       [SERIAL_NORM_BIAS] = f->layer_norm && !f->parallel,
                       [QKV_BIAS] = f->qkv_bias,
                       [O_BIAS] = f->o_bias,
                       [MLP_BIAS] = f->mlp_bias};
    return name_of(f, r) && is[r->when];
}

/* Lengths, and what they count: dimensions that the tensor axis may cut. */
static int64_t length_of(const ndp_facts *f, length l, ndp_dim *dim) {
    bool whole = f->qk_norm == NDP_QK_NORM_WHOLE;
    int64_t q = (int64_t)f->heads * f->head_dim, kv = (int64_t)f->kv_heads * f->head_dim;
    static const ndp_dim dims[] = {
        [VOCAB] = NDP_DIM_VOCAB,         [POSITIONS] = NDP_DIM_VOCAB, [Q_COLUMNS] = NDP_DIM_HEADS,
        [KV_COLUMNS] = NDP_DIM_KV_HEADS, [FFN] = NDP_DIM_FFN,         [HEAD_DIM] = NDP_DIM_IN_HEAD,
        [KV_ALL] = NDP_DIM_KV_HEADS,     [Q_ALL] = NDP_DIM_HEADS};
    const int64_t n[] = {
        [ONE] = 1,         [VOCAB] = f->vocab, [POSITIONS] = f->max_positions, [HIDDEN] = f->hidden, [Q_COLUMNS] = q,
        [KV_COLUMNS] = kv, [FFN] = f->ffn,     [HEAD_DIM] = f->head_dim,       [Q_ALL] = q,          [KV_ALL] = kv};
    if ((l == Q_ALL || l == KV_ALL) && !whole)
        l = HEAD_DIM;
    *dim = dims[l];
    return n[l];
}

static ndp_segment segment_of(const ndp_facts *f, const rule *r, const char *name) {
    ndp_dim row_dim, col_dim;
    int64_t rows = length_of(f, r->rows, &row_dim), cols = length_of(f, r->cols, &col_dim);
    bool vector = r->rows == ONE;
    ndp_segment s = ndp_segment_whole(name, vector ? 1 : 2, rows, cols, row_dim, col_dim);
    s.glued = r->glued;
    s.decay = !vector;
    s.projection = !vector && r->unit == NDP_OF_BLOCK;
    s.transposed = f->transposed && !vector && r->unit == NDP_OF_BLOCK;
    return s;
}

/* Segments of one name that stand together are parts of one tensor, in this order. */
static void fuse(ndp_segment *items, int n) {
    int axis = items[0].ndim == 2 ? 0 : 1;
    int64_t whole = 0, base = 0;
    for (int i = 0; i < n; i++)
        whole += items[i].part[axis];
    for (int i = 0; i < n; base += items[i++].part[axis])
        ndp_segment_fuse(&items[i], axis, base, whole);
}

static void fuse_all(ndp_segments *s, int first) {
    for (int i = first, end; i < s->n; i = end) {
        for (end = i + 1; end < s->n && strcmp(s->items[i].name, s->items[end].name) == 0;)
            end++;
        if (end - i > 1)
            fuse(&s->items[i], end - i);
    }
}

ndp_status ndp_table_fill(const ndp_facts *f, ndp_part_of unit, const char *prefix, ndp_arena *arena,
                          ndp_segments *segments, int at[NDP_PARAMS]) {
    int first = segments->n;
    bool before = false; /* is there */
    for (int i = 0; i < NDP_COUNT(rules); i++) {
        const rule *r = &rules[i];
        if (r->unit != unit)
            continue;
        at[r->place] = NDP_NONE;
        bool there = is_there(f, r);
        if (there) {
            const char *name =
                ndp_arena_format(arena, "%s%s%s", prefix, name_of(f, r), r->when >= NORM_BIAS ? ".bias" : ".weight");
            if (!name)
                return NDP_FAIL(NDP_ENOMEM, "no memory for the model's tables");
            at[r->place] = segments->n;
            segments->items[segments->n] = segment_of(f, r, name);
            segments->items[segments->n++].glued &= before;
        }
        before = there;
    }
    fuse_all(segments, first);
    return NDP_OK;
}

static int64_t elements_of(const ndp_facts *f, ndp_part_of unit) {
    int64_t n = 0;
    ndp_dim dim;
    for (int i = 0; i < NDP_COUNT(rules); i++)
        if (rules[i].unit == unit && is_there(f, &rules[i]))
            n += length_of(f, rules[i].rows, &dim) * length_of(f, rules[i].cols, &dim);
    return n;
}

int64_t ndp_facts_parameters(const ndp_facts *f) {
    return elements_of(f, NDP_OF_EMBEDDING) + f->layers * elements_of(f, NDP_OF_BLOCK) + elements_of(f, NDP_OF_HEAD);
}

/* What follows the block's number in the name of a block's tensor; NULL: it is not such a name. */
static const char *within_block(const ndp_facts *f, const char *tensor) {
    size_t n = strlen(f->names->layers);
    if (strncmp(tensor, f->names->layers, n) != 0 || tensor[n] != '.')
        return NULL;
    const char *dot = strchr(tensor + n + 1, '.');
    return dot ? dot + 1 : NULL;
}

bool ndp_facts_ignores(const ndp_facts *f, const char *tensor) {
    const char *within = within_block(f, tensor);
    for (int i = 0; within && i < NDP_COUNT(f->names->unread); i++)
        if (f->names->unread[i] && strcmp(within, f->names->unread[i]) == 0)
            return true;
    size_t n = strlen(f->names->head);
    return f->tied && strncmp(tensor, f->names->head, n) == 0 && strcmp(tensor + n, ".weight") == 0;
}

const char *ndp_facts_prefix(const ndp_facts *f) { return f->names->base; }

void ndp_facts_tied_names(const ndp_facts *f, char tokens[NDP_TIED_NAME], char head[NDP_TIED_NAME]) {
    snprintf(tokens, NDP_TIED_NAME, "%s.weight", f->names->tokens);
    snprintf(head, NDP_TIED_NAME, "%s.weight", f->names->head);
}
