/* The tensors of a GGUF file: their names, from what a family's tables call the parts of a block (model/families.h),
 * and where their elements are in the folder. Called by gguf_export.c. */
#include "model/families.h"
#include "model/tables.h"
#include "weights/gguf/gguf.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Source: convert_hf_to_gguf.py and src/models of llama.cpp b9888. */
static const ndp_gguf_family families[] = {
    {"llama", "llama", NDP_GGUF_TURNED},
    {"mistral", "llama", NDP_GGUF_TURNED},
    {"ministral3", "mistral3", (unsigned)NDP_GGUF_TURNED | NDP_GGUF_LOG_MULTIPLIER},
    {"mixtral", "llama", (unsigned)NDP_GGUF_TURNED | NDP_GGUF_SUMS},
    {"qwen2", "qwen2", 0},
    {"qwen3", "qwen3", 0},
    {"qwen2_moe", "qwen2moe", NDP_GGUF_HEAD},
    {"qwen3_moe", "qwen3moe", NDP_GGUF_SUMS},
    {"olmo2", "olmo2", (unsigned)NDP_GGUF_WINDOWS | NDP_GGUF_HEAD},
    {"olmo3", "olmo2", (unsigned)NDP_GGUF_WINDOWS | NDP_GGUF_HEAD},
    {"olmoe", "olmoe", NDP_GGUF_HEAD},
    {"phi3", "phi3", 0},
    {"gemma", "gemma", NDP_GGUF_NO_HEAD},
    {"gemma2", "gemma2", (unsigned)NDP_GGUF_WINDOWS | NDP_GGUF_NO_HEAD},
    {"gemma3_text", "gemma3", NDP_GGUF_WINDOWS},
    {"granite", "granite", (unsigned)NDP_GGUF_TURNED | NDP_GGUF_SCALES},
    {"smollm3", "smollm3", NDP_GGUF_TURNED},
    {"seed_oss", "seed_oss", NDP_GGUF_POST_NORM},
    {"stablelm", "stablelm", NDP_GGUF_HEAD},
    {"gpt_neox", "gptneox", NDP_GGUF_HEAD},
    {"gpt2", "gpt2", 0},
    {"starcoder2", "starcoder2", 0},
    {"deepseek_v2", "deepseek2", (unsigned)NDP_GGUF_ROUTER_KEYS | NDP_GGUF_LOG_MULTIPLIER},
    {"deepseek_v3", "deepseek2", (unsigned)NDP_GGUF_ROUTER_KEYS | NDP_GGUF_LOG_MULTIPLIER},
    {"kimi_k2", "deepseek2", (unsigned)NDP_GGUF_ROUTER_KEYS | NDP_GGUF_LOG_MULTIPLIER},
    {"glm4_moe", "glm4moe", (unsigned)NDP_GGUF_POST_NORM | NDP_GGUF_ROUTER_KEYS},
    {"gpt_oss", "gpt-oss", (unsigned)NDP_GGUF_POST_NORM | NDP_GGUF_WINDOWS | NDP_GGUF_SUMS | NDP_GGUF_HEAD},
};

ndp_status ndp_gguf_family_find(const char *type, const ndp_gguf_family **out) {
    ndp_str list = {0};
    for (int i = 0; i < NDP_COUNT(families); i++) {
        if (strcmp(families[i].type, type) == 0) {
            *out = &families[i];
            ndp_str_release(&list);
            return NDP_OK;
        }
        ndp_str_addf(&list, i ? ", %s" : "%s", families[i].type);
    }
    ndp_status st = NDP_FAIL(NDP_ENOTSUP, "models of %s are not written as GGUF; those of these families are: %s", type,
                             list.failed ? "" : list.data);
    ndp_str_release(&list);
    return st;
}

/* ---- parts ---- */

typedef enum way {
    PLAIN,
    NORM,
    QUERIES, /* rows are turned, or with keys and values they are one tensor */
    KEYS,
    VALUES,
    GATE,        /* with `up` it may be one tensor */
    EXACT,       /* always fp32 */
    LATENT_KEYS, /* kv_b is two tensors, keys transposed */
    LATENT_VALUES,
    STACK_GATE, /* of experts: the first word of a pair, or every second column; */
    STACK_UP,
    STACK_DOWN
} way;

/* Where ndp_names has a part, and its name in the file. */
typedef struct gguf_part {
    size_t name;
    const char *to;
    way way;
} gguf_part;

#define NAME(member) offsetof(ndp_names, member)
static const gguf_part of_model[] = {{NAME(tokens), "token_embd", PLAIN},
                                     {NAME(positions), "position_embd", EXACT},
                                     {NAME(final_norm), "output_norm", NORM},
                                     {NAME(head), "output", PLAIN}};
static const gguf_part of_layer[] = {
    {NAME(input_norm), "attn_norm", NORM},
    {NAME(q), "attn_q", QUERIES},
    {NAME(k), "attn_k", KEYS},
    {NAME(v), "attn_v", VALUES},
    {NAME(q_norm), "attn_q_norm", NORM},
    {NAME(k_norm), "attn_k_norm", NORM},
    {NAME(sinks), "attn_sinks.weight", PLAIN},
    {NAME(q_a), "attn_q_a", PLAIN},
    {NAME(q_a_norm), "attn_q_a_norm", NORM},
    {NAME(q_b), "attn_q_b", PLAIN},
    {NAME(kv_a), "attn_kv_a_mqa", PLAIN},
    {NAME(kv_a_norm), "attn_kv_a_norm", NORM},
    {NAME(kv_b), "attn_k_b", LATENT_KEYS},
    {NAME(kv_b), "attn_v_b", LATENT_VALUES},
    {NAME(o), "attn_output", PLAIN},
    {NAME(attention_norm), "post_attention_norm", NORM},
    {NAME(mlp_norm), "ffn_norm", NORM},
    {NAME(gate), "ffn_gate", GATE},
    {NAME(up), "ffn_up", PLAIN},
    {NAME(down), "ffn_down", PLAIN},
    {NAME(mlp_out_norm), "post_ffw_norm", NORM},
    {NAME(router), "ffn_gate_inp", EXACT},
    {NAME(router_bias), "exp_probs_b.bias", PLAIN},
    {NAME(expert_gate_up), "ffn_gate_exps.weight", STACK_GATE},
    {NAME(expert_gate_up), "ffn_up_exps.weight", STACK_UP},
    {NAME(expert_pairs), "ffn_gate_exps.weight", STACK_GATE},
    {NAME(expert_pairs), "ffn_up_exps.weight", STACK_UP},
    {NAME(expert_pairs_bias), "ffn_gate_exps.bias", STACK_GATE},
    {NAME(expert_pairs_bias), "ffn_up_exps.bias", STACK_UP},
    {NAME(expert_down), "ffn_down_exps.weight", STACK_DOWN},
    {NAME(expert_down_bias), "ffn_down_exps.bias", PLAIN},
    {NAME(shared_gate), "ffn_gate_shexp", PLAIN},
    {NAME(shared_up), "ffn_up_shexp", PLAIN},
    {NAME(shared_down), "ffn_down_shexp", PLAIN},
    {NAME(shared_pass), "ffn_gate_inp_shexp", EXACT},
};

static const char *name_of(const ndp_names *n, size_t at) { return *(const char *const *)((const char *)n + at); }
static bool same(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

/* What a part is called in the file; NULL: it is a part of another one. */
static const char *called(const ndp_gguf *g, const gguf_part *p) {
    const ndp_names *n = g->facts->names;
    if (p->way == QUERIES && same(n->q, n->k))
        return "attn_qkv";
    if (((p->way == KEYS || p->way == VALUES) && same(n->q, n->k)) || (p->way == GATE && same(n->gate, n->up)))
        return NULL;
    return p->name == NAME(mlp_norm) && g->family->traits & NDP_GGUF_POST_NORM ? "post_attention_norm" : p->to;
}

/* ---- where the elements are ---- */

/* [rows, columns], or a vector, as the folder has it; `transposed`: as [columns, rows]. */
static void set_matrix(ndp_gguf_tensor *t, const ndp_tensor_spec *s, bool transposed) {
    bool vector = s->ndim == 1;
    int64_t rows = vector ? 1 : s->shape[transposed], columns = vector ? s->shape[0] : s->shape[!transposed];
    t->dims = s->ndim;
    t->shape[0] = t->extent[0] = columns;
    t->shape[1] = t->extent[1] = rows;
    t->stride[0] = transposed ? rows : 1;
    t->stride[1] = transposed ? 1 : columns;
}

/* Rows of the matrix, or numbers of the vector, of n[0] indices within n[1] within n[2], with these strides in rows. */
static void set_rows(ndp_gguf_tensor *t, const int64_t n[3], const int64_t rows[3]) {
    int64_t columns = t->dims == 1 ? 1 : t->shape[0];
    t->extent[0] = columns, t->stride[0] = 1;
    for (int i = 0; i < 3; i++)
        t->extent[i + 1] = n[i], t->stride[i + 1] = rows[i] * columns;
}

/* Neighbours turn together in llama.cpp, and in transformers columns half a head apart. */
static void set_turned(ndp_gguf_tensor *t, int64_t heads) {
    int64_t head = (t->dims == 1 ? t->shape[0] : t->shape[1]) / heads;
    set_rows(t, (const int64_t[]){2, head / 2, heads}, (const int64_t[]){head / 2, 1, head});
}

/* Queries, keys and values of one head after the other become those of all heads. */
static void set_parted(ndp_gguf_tensor *t, int64_t heads) {
    int64_t head = (t->dims == 1 ? t->shape[0] : t->shape[1]) / heads / 3;
    set_rows(t, (const int64_t[]){head, heads, 3}, (const int64_t[]){1, 3 * head, head});
}

static void set_queries(const ndp_gguf *g, ndp_gguf_tensor *t, way how) {
    const ndp_facts *f = g->facts;
    if (same(f->names->q, f->names->k) && f->names->in_turn & NDP_PART_ATTENTION)
        set_parted(t, f->heads);
    else if (how != VALUES && g->family->traits & NDP_GGUF_TURNED)
        set_turned(t, how == KEYS ? f->kv_heads : f->heads);
}

static void set_shape(ndp_gguf_tensor *t, int64_t a, int64_t b, int64_t c, const int64_t stride[3]) {
    const int64_t n[3] = {a, b, c};
    t->dims = 3;
    for (int i = 0; i < 3; i++)
        t->shape[i] = t->extent[i] = n[i], t->stride[i] = stride[i];
}

/* kv_b [heads * (nope + value), rank]: keys are [heads, rank, nope] in the file, values [heads, value, rank]. */
static void set_latent(const ndp_gguf *g, ndp_gguf_tensor *t, bool keys) {
    int64_t heads = g->facts->heads, rank = t->shape[0], both = t->shape[1] / heads, nope = g->facts->nope_dim;
    if (keys)
        set_shape(t, nope, rank, heads, (const int64_t[]){rank, 1, both * rank});
    else
        set_shape(t, rank, both - nope, heads, (const int64_t[]){1, rank, both * rank});
    t->first = keys ? 0 : nope * rank;
}

/* A stack [experts, inputs, outputs], or biases [experts, outputs]; of pairs every second output. */
static void set_stack(ndp_gguf_tensor *t, const ndp_tensor_spec *s, way how) {
    int64_t step = how == STACK_DOWN ? 1 : 2, outputs = s->shape[s->ndim - 1];
    if (s->ndim == 3)
        set_shape(t, s->shape[1], outputs / step, s->shape[0], (const int64_t[]){outputs, step, s->shape[1] * outputs});
    else {
        set_matrix(t, s, false);
        t->shape[0] = t->extent[0] = outputs / step;
        t->stride[0] = step;
    }
    t->first = how == STACK_UP;
}

/* ---- the list ---- */

static ndp_gguf_type type_of(const ndp_gguf *g, const ndp_gguf_tensor *t, way how) {
    if (t->dims == 1 || how == NORM || how == EXACT || !ndp_ends_with(t->name, ".weight"))
        return NDP_GGUF_F32;
    return g->type == NDP_GGUF_Q8_0 && t->shape[0] % NDP_GGUF_BLOCK ? NDP_GGUF_F16 : g->type;
}

static ndp_status append(ndp_gguf *g, ndp_gguf_tensor t) {
    NDP_TRY(ndp_array_reserve(&g->tensors, &g->capacity, g->n + 1, sizeof *g->tensors));
    NDP_CHECK_MEMORY(t.name, "for a list of tensors");
    for (int i = 0; i < NDP_GGUF_DIMS; i++) {
        t.extent[i] = t.extent[i] ? t.extent[i] : 1;
        t.shape[i] = t.shape[i] ? t.shape[i] : 1;
    }
    g->tensors[g->n++] = t;
    return NDP_OK;
}

/* A tensor of the folder. `name`: as it is there. */
static ndp_status add_one(ndp_gguf *g, const gguf_part *p, const char *to, const char *name, bool of_block) {
    const ndp_tensor_spec *s = &ndp_weights_find(g->weights, name)->spec;
    const char **member = ndp_arena_alloc(&g->arena, sizeof *member);
    NDP_CHECK_MEMORY(member, "for a list of tensors");
    *member = s->name;
    ndp_gguf_tensor t = {.name = to, .members = member, .n_members = 1};
    set_matrix(&t, s, of_block && g->facts->transposed && s->ndim == 2);
    if (p->way == QUERIES || p->way == KEYS || p->way == VALUES)
        set_queries(g, &t, p->way);
    else if (p->way == LATENT_KEYS || p->way == LATENT_VALUES)
        set_latent(g, &t, p->way == LATENT_KEYS);
    else if (p->way == STACK_GATE || p->way == STACK_UP || p->way == STACK_DOWN)
        set_stack(&t, s, p->way);
    t.add = p->way == NORM && g->facts->norm.offset ? 1 : 0;
    t.type = type_of(g, &t, p->way);
    return append(g, t);
}

/* The name of an expert's matrix: "...experts.%d.{gate_proj,up_proj}" with a number and one of the words. */
static const char *expert_name(ndp_gguf *g, const char *before, const char *name, int expert, bool second) {
    const char *number = strstr(name, "%d"), *open = strchr(name, '{');
    if (!open)
        return ndp_arena_format(&g->arena, "%s%.*s%d%s.weight", before, (int)(number - name), name, expert, number + 2);
    const char *comma = strchr(open, ','), *word = second ? comma + 1 : open + 1,
               *end = second ? strchr(comma, '}') : comma;
    return ndp_arena_format(&g->arena, "%s%.*s%d%.*s%.*s.weight", before, (int)(number - name), name, expert,
                            (int)(open - number - 2), number + 2, (int)(end - word), word);
}

/* Matrices of experts, a tensor each, as one. Layers without experts have none. */
static ndp_status add_experts(ndp_gguf *g, const gguf_part *p, const char *to, const char *before, const char *name) {
    int n = g->facts->experts;
    const char **members = ndp_arena_alloc(&g->arena, ((size_t)n + 1) * sizeof *members);
    NDP_CHECK_MEMORY(members, "for a list of %d experts", n);
    for (int e = 0; e < n; e++) {
        members[e] = expert_name(g, before, name, e, p->way == STACK_UP);
        NDP_CHECK_MEMORY(members[e], "for the names of %d experts", n);
        if (e == 0 && !ndp_weights_find(g->weights, members[0]))
            return NDP_OK;
    }
    ndp_gguf_tensor t = {.name = to, .members = members, .n_members = n};
    set_matrix(&t, &ndp_weights_find(g->weights, members[0])->spec, false);
    t.dims = 3, t.shape[2] = n;
    t.type = type_of(g, &t, p->way);
    return append(g, t);
}

/* A part, with its bias. `before`, `to_before`: what goes before its name in the folder, and in the file. */
static ndp_status add_part(ndp_gguf *g, const gguf_part *p, const char *before, const char *name,
                           const char *to_before) {
    static const char *const endings[] = {".weight", ".bias", ""};
    const char *to = called(g, p);
    if (!name || !to)
        return NDP_OK;
    if (strstr(name, "%d"))
        return add_experts(g, p, ndp_arena_format(&g->arena, "%s%s", to_before, to), before, name);
    for (int i = 0; i < NDP_COUNT(endings); i++) {
        const char *whole = ndp_arena_format(&g->arena, "%s%s%s", before, name, endings[i]);
        NDP_CHECK_MEMORY(whole, "for a list of tensors");
        if (ndp_weights_find(g->weights, whole) && !(p->name == NAME(head) && g->facts->tied))
            NDP_TRY(add_one(g, p, ndp_arena_format(&g->arena, "%s%s%s", to_before, to, endings[i]), whole, *to_before));
    }
    return NDP_OK;
}

static ndp_status add_values(ndp_gguf *g, const char *name, const double *values, int n) {
    float *copy = ndp_arena_alloc(&g->arena, (size_t)n * sizeof *copy);
    NDP_CHECK_MEMORY(copy, "for %s", name);
    for (int i = 0; i < n; i++)
        copy[i] = (float)values[i];
    return append(g, (ndp_gguf_tensor){.name = name, .dims = 1, .shape = {n}, .values = copy});
}

/* What llama.cpp divides the frequencies of RoPE by. */
static ndp_status add_frequencies(ndp_gguf *g) {
    const ndp_rope *r = &g->facts->ropes[0];
    int n = g->facts->n_ropes ? r->dim / 2 : 0;
    if (n && r->scaling == NDP_ROPE_LONG) {
        NDP_TRY(add_values(g, "rope_factors_long.weight", r->long_factor, n));
        return add_values(g, "rope_factors_short.weight", r->short_factor, n);
    }
    if (!n || r->scaling != NDP_ROPE_LLAMA3 || !(g->family->traits & NDP_GGUF_TURNED))
        return NDP_OK;
    ndp_rope plain = *r;
    plain.scaling = NDP_ROPE_PLAIN;
    double *by = malloc((size_t)n * 2 * sizeof *by);
    NDP_CHECK_MEMORY(by, "for %d frequencies", n);
    ndp_rope_frequencies(&plain, r->original_positions, by);
    ndp_rope_frequencies(r, r->original_positions, by + n);
    for (int i = 0; i < n; i++)
        by[i] /= by[n + i];
    ndp_status st = add_values(g, "rope_freqs.weight", by, n);
    free(by);
    return st;
}

static bool is_listed(const ndp_gguf *g, const char *name) {
    for (int64_t i = 0; i < g->n; i++)
        for (int m = 0; m < g->tensors[i].n_members; m++)
            if (strcmp(g->tensors[i].members[m], name) == 0)
                return true;
    return false;
}

/* Every tensor that the model has must be in the file: their numbers are compared, and names only if these differ. */
static ndp_status check_all(const ndp_gguf *g) {
    int64_t listed = 0, there = 0;
    for (int64_t i = 0; i < g->n; i++) /* a pair's tensor is listed twice in a row */
        if (!i || g->tensors[i].n_members != 1 || g->tensors[i - 1].n_members != 1 ||
            strcmp(g->tensors[i].members[0], g->tensors[i - 1].members[0]) != 0)
            listed += g->tensors[i].n_members;
    for (int i = 0; i < ndp_weights_count(g->weights); i++) {
        const char *name = ndp_weights_at(g->weights, i)->spec.name;
        there += !ndp_facts_ignores(g->facts, name) && !ndp_ends_with(name, "rotary_emb.inv_freq");
    }
    for (int i = 0; i < ndp_weights_count(g->weights) && listed != there; i++) {
        const char *name = ndp_weights_at(g->weights, i)->spec.name;
        if (!ndp_facts_ignores(g->facts, name) && !is_listed(g, name))
            return NDP_FAIL(NDP_ENOTSUP, "the tensor %s has no place in a GGUF file of %s", name,
                            g->family->architecture);
    }
    return NDP_OK;
}

ndp_status ndp_gguf_list_tensors(ndp_gguf *g) {
    char layers[NDP_TENSOR_NAME];
    for (int i = 0; i < NDP_COUNT(of_model); i++) {
        const char *name = name_of(g->facts->names, of_model[i].name),
                   *before = name ? ndp_facts_base(g->facts, &name) : "";
        NDP_TRY(add_part(g, &of_model[i], before, name, ""));
    }
    NDP_TRY(add_frequencies(g));
    ndp_facts_name(g->facts, g->facts->names->layers, layers);
    for (int l = 0; l < g->facts->layers; l++) {
        const char *before = ndp_arena_format(&g->arena, "%s.%d.", layers, l),
                   *to = ndp_arena_format(&g->arena, "blk.%d.", l);
        NDP_CHECK_MEMORY(before && to, "for a list of tensors");
        for (int i = 0; i < NDP_COUNT(of_layer); i++)
            NDP_TRY(add_part(g, &of_layer[i], before, name_of(g->facts->names, of_layer[i].name), to));
    }
    NDP_TRY(check_all(g));
    if (!g->facts->tied || !(g->family->traits & NDP_GGUF_HEAD))
        return NDP_OK;
    ndp_gguf_tensor head = g->tensors[0]; /* the embedding */
    head.name = "output.weight";
    return append(g, head);
}
