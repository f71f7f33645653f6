/* The keys of a GGUF file that say what the model is, from its facts. Called by gguf_export.c. */
#include "base/log.h"
#include "model/block.h"
#include "weights/gguf/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ndp_log gguf_log = {NDP_LOG_INFO, 0};

static bool has(const ndp_gguf *g, ndp_gguf_trait trait) { return g->family->traits & trait; }

static bool differs(double a, double b) { return fabs(a - b) > 1e-6 * fabs(b); }

static void put_text(ndp_gguf *g, const char *key, const char *text) { ndp_gguf_put_text(g, key, text, strlen(text)); }

/* ---- general ---- */

/* `license` in the front matter of README.md, lines "key: value" between two "---". */
static void put_license(ndp_gguf *g) {
    static const char key[] = "license:";
    char path[NDP_PATH], *text = NULL, *next = NULL;
    size_t size;
    if (ndp_path_join(path, g->folder, "README.md") != NDP_OK || !ndp_path_exists(path) ||
        ndp_file_read_as(NDP_FILE_CONFIG, path, &text, &size) != NDP_OK)
        return;
    char *line = strtok_r(text, "\r\n", &next);
    bool inside = line && strcmp(line, "---") == 0;
    while (inside && (line = strtok_r(NULL, "\r\n", &next)) && strcmp(line, "---") != 0) {
        char *value = line + sizeof key - 1;
        if (strncmp(line, key, sizeof key - 1) != 0)
            continue;
        value += strspn(value, " \"'");
        value[strcspn(value, " \"'")] = '\0';
        if (*value)
            put_text(g, "general.license", value);
    }
    free(text);
}

static void put_general(ndp_gguf *g, const char *name) {
    enum { ALL_F32 = 0, MOSTLY_F16 = 1, MOSTLY_Q8_0 = 7, MOSTLY_BF16 = 32, QUANTIZATION_VERSION = 2 };
    put_text(g, "general.architecture", g->family->architecture);
    put_text(g, "general.type", "model");
    put_text(g, "general.name", name);
    put_license(g);
    ndp_gguf_put_u32(g, "general.file_type",
                     g->type == NDP_GGUF_F32    ? ALL_F32
                     : g->type == NDP_GGUF_F16  ? MOSTLY_F16
                     : g->type == NDP_GGUF_Q8_0 ? MOSTLY_Q8_0
                                                : MOSTLY_BF16);
    ndp_gguf_put_u32(g, "general.quantization_version", QUANTIZATION_VERSION);
}

/* ---- sizes ---- */

static void put_sizes(ndp_gguf *g) {
    const ndp_facts *f = g->facts;
    ndp_gguf_put_u32(g, "vocab_size", f->vocab);
    ndp_gguf_put_u32(g, "context_length", f->max_positions);
    ndp_gguf_put_u32(g, "embedding_length", f->hidden);
    ndp_gguf_put_u32(g, "block_count", f->layers);
    ndp_gguf_put_u32(g, "feed_forward_length", f->ffn);
    ndp_gguf_put_float(g, f->norm.bias ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
                       f->norm_eps);
    if (f->norm.bias)
        ndp_gguf_put_bool(g, "use_parallel_residual", f->parallel);
    if (f->attention_cap > 0)
        ndp_gguf_put_float(g, "attn_logit_softcapping", f->attention_cap);
    if (f->logit_cap > 0)
        ndp_gguf_put_float(g, "final_logit_softcapping", f->logit_cap);
    if (!has(g, NDP_GGUF_SCALES))
        return;
    ndp_gguf_put_float(g, "attention.scale", f->attention_scale);
    ndp_gguf_put_float(g, "embedding_scale", f->embedding_scale);
    ndp_gguf_put_float(g, "residual_scale", f->residual_scale);
    ndp_gguf_put_float(g, "logit_scale", 1 / f->logit_scale); /* logits are divided by it */
}

/* Latent attention is written as one key and value of `kv_rank` columns that all heads share. */
static void put_heads(ndp_gguf *g) {
    const ndp_facts *f = g->facts;
    bool latent = f->kv_rank > 0;
    int shared = f->head_dim - f->nope_dim, value = f->v_dim ? f->v_dim : f->head_dim;
    ndp_gguf_put_u32(g, "attention.head_count", f->heads);
    ndp_gguf_put_u32(g, "attention.head_count_kv", latent ? 1 : f->kv_heads);
    ndp_gguf_put_u32(g, "attention.key_length", latent ? f->kv_rank + shared : f->head_dim);
    ndp_gguf_put_u32(g, "attention.value_length", latent ? f->kv_rank : value);
    if (!latent)
        return;
    ndp_gguf_put_u32(g, "attention.key_length_mla", f->head_dim);
    ndp_gguf_put_u32(g, "attention.value_length_mla", value);
    ndp_gguf_put_u32(g, "attention.kv_lora_rank", f->kv_rank);
    if (f->q_rank)
        ndp_gguf_put_u32(g, "attention.q_lora_rank", f->q_rank);
}

/* The first window that a layer has; 0: none has. */
static int window_of(const ndp_facts *f) {
    for (int i = 0; i < f->layers; i++)
        if (f->kinds[f->kind_of[i]].window > 0)
            return f->kinds[f->kind_of[i]].window;
    return 0;
}

static void put_windows(ndp_gguf *g) {
    const ndp_facts *f = g->facts;
    int window = window_of(f);
    if (!has(g, NDP_GGUF_WINDOWS) || !window)
        return;
    ndp_gguf_put_u32(g, "attention.sliding_window", window);
    ndp_gguf_put_list(g, "attention.sliding_window_pattern", NDP_GGUF_BOOL, f->layers);
    for (int i = 0; i < f->layers; i++)
        ndp_str_add_bytes(&g->keys, &(char){f->kinds[f->kind_of[i]].window > 0}, 1);
}

/* ---- experts ---- */

static bool is_mixture(const ndp_facts *f, int layer) { return f->kinds[f->kind_of[layer]].mlp == &ndp_mlp_experts; }

static void put_experts(ndp_gguf *g) {
    enum { SOFTMAX = 1, SIGMOID = 2 };
    const ndp_facts *f = g->facts;
    int dense = 0;
    if (!f->experts)
        return;
    while (dense < f->layers && !is_mixture(f, dense))
        dense++;
    ndp_gguf_put_u32(g, "expert_count", f->experts);
    ndp_gguf_put_u32(g, "expert_used_count", f->choices);
    ndp_gguf_put_u32(g, "expert_feed_forward_length", f->expert_ffn);
    if (f->shared_ffn)
        ndp_gguf_put_u32(g, "expert_shared_feed_forward_length", f->shared_ffn);
    if (f->groups > 1) {
        ndp_gguf_put_u32(g, "expert_group_count", f->groups);
        ndp_gguf_put_u32(g, "expert_group_used_count", f->open_groups);
    }
    if (!has(g, NDP_GGUF_ROUTER_KEYS))
        return;
    ndp_gguf_put_u32(g, "leading_dense_block_count", dense);
    ndp_gguf_put_u32(g, "expert_shared_count", f->shared_ffn / f->expert_ffn);
    ndp_gguf_put_u32(g, "expert_gating_func", f->sigmoid ? SIGMOID : SOFTMAX);
    ndp_gguf_put_float(g, "expert_weights_scale", f->routed_scale);
    ndp_gguf_put_bool(g, "expert_weights_norm", f->renormalise);
}

/* ---- RoPE ---- */

/* llama.cpp raises cosines and sines by 1 + ln(factor) / 10, and divides by the same with mscale_all_dim in it, which
 * is found here from what the facts have of it: of latent attention the scale of scores is times its square. */
static void put_yarn(ndp_gguf *g, const ndp_rope *r) {
    const ndp_facts *f = g->facts;
    double log_factor = log(r->factor) / 10, usual = 1 + log_factor, made = usual;
    ndp_gguf_put_u32(g, "rope.scaling.original_context_length", r->original_positions);
    ndp_gguf_put_float(g, "rope.scaling.yarn_beta_fast", r->beta_fast);
    ndp_gguf_put_float(g, "rope.scaling.yarn_beta_slow", r->beta_slow);
    if (has(g, NDP_GGUF_LOG_MULTIPLIER) && f->kv_rank) {
        double all = (sqrt(f->attention_scale * sqrt(f->head_dim)) - 1) / log_factor;
        if (all > 1e-6)
            ndp_gguf_put_float(g, "rope.scaling.yarn_log_multiplier", all / 10); /* as old files have it */
        made = all > 1e-6 ? 1 : usual;
    } else if (has(g, NDP_GGUF_LOG_MULTIPLIER)) {
        ndp_gguf_put_float(g, "rope.scaling.yarn_log_multiplier", (usual / r->amplitude - 1) / log_factor);
        made = r->amplitude;
    } else if (differs(r->amplitude, usual)) {
        ndp_gguf_put_float(g, "rope.scaling.attn_factor", r->amplitude / usual);
        made = r->amplitude;
    }
    if (differs(r->amplitude, made))
        ndp_warn(&gguf_log, "llama.cpp multiplies the cosines of RoPE by %g where the model has %g", made,
                 r->amplitude);
}

static void put_rope(ndp_gguf *g) {
    const ndp_facts *f = g->facts;
    const ndp_rope *r = &f->ropes[0];
    static const char *const names[] = {
        [NDP_ROPE_LINEAR] = "linear", [NDP_ROPE_YARN] = "yarn", [NDP_ROPE_LONG] = "longrope"};
    const char *name = r->scaling < NDP_COUNT(names) ? names[r->scaling] : NULL;
    if (!f->n_ropes)
        return;
    ndp_gguf_put_u32(g, "rope.dimension_count", r->dim);
    ndp_gguf_put_float(g, "rope.freq_base", r->theta);
    if (f->n_ropes > 1 && !f->query_rope)
        ndp_gguf_put_float(g, "rope.freq_base_swa", f->ropes[1].theta);
    if (name)
        put_text(g, "rope.scaling.type", name);
    if (r->scaling == NDP_ROPE_LINEAR || r->scaling == NDP_ROPE_YARN)
        ndp_gguf_put_float(g, "rope.scaling.factor", r->factor);
    if (r->scaling == NDP_ROPE_YARN)
        put_yarn(g, r);
    if (r->scaling == NDP_ROPE_LONG) {
        ndp_gguf_put_u32(g, "rope.scaling.original_context_length", r->original_positions);
        ndp_gguf_put_float(g, "rope.scaling.attn_factor", r->amplitude);
    }
    if (f->ropes[f->query_rope].growth > 0)
        ndp_gguf_put_float(g, "attention.temperature_scale", f->ropes[f->query_rope].growth);
}

/* ---- what llama.cpp does not load ---- */

/* Layers with an MLP, in a model of mixtures: none, or as a key says the first ones. */
static bool has_other_layers(const ndp_gguf *g) {
    const ndp_facts *f = g->facts;
    for (int i = 0; i < f->layers && f->experts; i++)
        if (!is_mixture(f, i) && (!has(g, NDP_GGUF_ROUTER_KEYS) || (i > 0 && is_mixture(f, i - 1))))
            return true;
    return false;
}

static ndp_status check_loads(const ndp_gguf *g) {
    enum { LAYERS_OF_LITE = 27, LAYERS_OF_OTHER_LITE = 26 }; /* by which llama.cpp tells models with whole queries */
    const ndp_facts *f = g->facts;
    bool lite = f->layers == LAYERS_OF_LITE || f->layers == LAYERS_OF_OTHER_LITE;
    const char *why = has_other_layers(g)                 ? "layers without experts among those with"
                      : f->kv_rank && f->qkv_bias         ? "biases of latent attention"
                      : f->kv_rank && !f->q_rank && !lite ? "queries without q_lora_rank, unless it has 26 or 27 layers"
                      : f->experts && f->qk_norm == NDP_QK_NORM_WHOLE && f->kv_heads != f->heads
                          ? "fewer heads of keys than of queries"
                      : strcmp(g->family->architecture, "gptneox") == 0 && !f->qkv_bias ? "no biases of attention"
                      : has(g, NDP_GGUF_NO_HEAD) && !f->tied                            ? "a head that is not tied"
                                                                                        : NULL;
    return why ? NDP_FAIL(NDP_ENOTSUP, "llama.cpp does not load models of %s with %s", g->family->architecture, why)
               : NDP_OK;
}

/* ---- what llama.cpp computes in another way ---- */

/* Which layers know no positions; llama.cpp leaves positions out in every fourth. */
static bool knows_other_positions(const ndp_facts *f) {
    for (int i = 0; i < f->layers; i++)
        if (f->n_ropes && (f->kinds[f->kind_of[i]].rope == NDP_NO_ROPE) != ((i + 1) % 4 == 0))
            return true;
    return false;
}

static void warn_of_differences(const ndp_gguf *g) {
    enum { LAYERS_OF_GEMMA2_27B = 46, LAYERS_OF_GEMMA3_27B = 62 };
    const ndp_facts *f = g->facts;
    const char *architecture = g->family->architecture;
    int window = has(g, NDP_GGUF_WINDOWS) ? 0 : window_of(f);
    bool large = f->norm.offset && (f->layers == LAYERS_OF_GEMMA2_27B || f->layers == LAYERS_OF_GEMMA3_27B);
    double scale = 1 / sqrt(large ? (double)f->hidden / f->heads : f->head_dim);
    if (window && window < f->max_positions)
        ndp_warn(&gguf_log, "llama.cpp has no window in %s: beyond %d tokens its results are others", architecture,
                 window);
    if (!has(g, NDP_GGUF_SCALES) && !f->kv_rank && differs(f->attention_scale, scale))
        ndp_warn(&gguf_log, "llama.cpp multiplies scores of %s by %g where the model has %g: its results are others",
                 architecture, scale, f->attention_scale);
    if (f->experts && !has(g, NDP_GGUF_ROUTER_KEYS) && f->renormalise != has(g, NDP_GGUF_SUMS))
        ndp_warn(&gguf_log, "llama.cpp %s the weights of a row's experts in %s: its results are others",
                 f->renormalise ? "does not norm" : "norms", architecture);
    if (strcmp(architecture, "smollm3") == 0 && knows_other_positions(f))
        ndp_warn(&gguf_log,
                 "llama.cpp leaves positions out in every fourth layer of smollm3, and this model in others: "
                 "its results are others");
    if (f->activation == NDP_SILU_CLIPPED && (differs(f->swiglu_alpha, 1.702) || differs(f->swiglu_limit, 7)))
        ndp_warn(&gguf_log, "llama.cpp clips gates of %s at 7 where the model does at %g: its results are others",
                 architecture, f->swiglu_limit);
    if (f->n_ropes && f->ropes[0].scaling == NDP_ROPE_LLAMA3 && !has(g, NDP_GGUF_TURNED))
        ndp_warn(&gguf_log, "llama.cpp does not scale RoPE as llama3 in %s: its results are others", architecture);
    if (f->groups > 1 && !f->sigmoid)
        ndp_warn(&gguf_log,
                 "llama.cpp opens groups of experts by the best two of each, and this model by the best one: "
                 "its results are others");
    if (f->kv_rank && !f->neighbours)
        ndp_warn(&gguf_log, "llama.cpp turns neighbours in %s, and this model has none: its results are others",
                 architecture);
}

ndp_status ndp_gguf_model_keys(ndp_gguf *g, const char *name) {
    NDP_TRY(check_loads(g));
    put_general(g, name);
    put_sizes(g);
    put_heads(g);
    put_windows(g);
    put_experts(g);
    put_rope(g);
    warn_of_differences(g);
    return g->keys.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the keys of a file") : NDP_OK;
}
