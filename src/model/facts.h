/* What a model is, read from its config.json: facts, not code. One decoder is built from them (decoder.c); a family
 * (families.c) is a row of a table that says which keys its configurations have and what its tensors are called. */
#ifndef NDP_MODEL_FACTS_H
#define NDP_MODEL_FACTS_H

#include "model/architecture.h"

enum {
    NDP_MAX_LAYERS = 1 << 12, /* far above any model that exists */
    NDP_MAX_VOCAB = 1 << 24,  /* as many ids as a tokenizer may have */
    NDP_LAYER_KINDS = 4,      /* of one model */
    NDP_ROPES = 2,            /* tables of angles of one model */
    NDP_LONG_FACTORS = 128,   /* most pairs of columns that longrope turns */
    NDP_NO_ROPE = -1
};

typedef enum ndp_rope_scaling {
    NDP_ROPE_PLAIN,
    NDP_ROPE_LINEAR,
    NDP_ROPE_LLAMA3,
    NDP_ROPE_YARN,
    NDP_ROPE_LONG,
    NDP_ROPE_PROPORTIONAL
} ndp_rope_scaling;

/* One table of angles. */
typedef struct ndp_rope {
    ndp_rope_scaling scaling;
    int dim;     /* columns of a head that turn, the first */
    int turning; /* proportional: the first pairs; the others stand still */
    double theta, factor;
    double amplitude;                         /* of cosines and sines: yarn and longrope raise it above 1 */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    bool truncate;                            /* yarn: its band is of whole dimensions */
    double growth;                            /* rows are times 1 + growth log(1 + n) behind n original lengths */
    int64_t original_positions;
    double short_factor[NDP_LONG_FACTORS], long_factor[NDP_LONG_FACTORS]; /* longrope: dim / 2 of each */
} ndp_rope;

/* The norms of a model; one without a row of its own in the tables is left out. */
typedef struct ndp_norm {
    const ndp_op *op, *after_add; /* of x; of x + h, which is an output too (NULL: none such) */
    bool bias;                    /* they add one */
    bool offset;                  /* they multiply by 1 + w */
} ndp_norm;
extern const ndp_norm ndp_norm_rms, ndp_norm_rms_offset, ndp_norm_layer;

/* The parts of a block (block.h). */
typedef struct ndp_mixer ndp_mixer;
typedef struct ndp_mlp ndp_mlp;

/* Sizes of the heads of a layer. */
typedef struct ndp_head_sizes {
    int dim, kv; /* columns of one; how many there are of keys and values */
    bool v_is_k; /* values are what keys are before their norm and RoPE: they have no product of their own */
} ndp_head_sizes;

/* The gated delta rule: key heads, each of so many heads of values; columns of one; taps of the convolution before. */
typedef struct ndp_delta_sizes {
    int key_heads, heads, key_dim, value_dim, taps;
} ndp_delta_sizes;

/* What tells the layers of one model apart. */
typedef struct ndp_layer_kind {
    int window; /* a query sees this many latest keys, itself included; 0: all */
    int rope;   /* which table; NDP_NO_ROPE: the layer does not know positions */
    const ndp_mixer *mixer;
    const ndp_mlp *mlp;
} ndp_layer_kind;

/* Rows of ndp_activations (activations.h). */
typedef enum ndp_activation { NDP_SILU, NDP_GELU_TANH, NDP_SILU_CLIPPED, NDP_GELU_ERF, NDP_ACTIVATIONS } ndp_activation;
/* Norms of queries and keys: of each head by itself, or of all heads' columns together. */
typedef enum ndp_qk_norm { NDP_QK_NORM_NONE, NDP_QK_NORM_HEAD, NDP_QK_NORM_WHOLE } ndp_qk_norm;

struct ndp_names; /* of tensors (families.h) */

typedef struct ndp_facts {
    char family[32]; /* model_type */
    const struct ndp_names *names;
    const char *base;      /* of the names that begin with names->base, in place of it; NULL: that */
    const char *composite; /* model_type of the model of several parts whose text this is; NULL: this is the model */
    int64_t vocab;
    int layers, hidden, heads, kv_heads, head_dim, ffn;
    int experts, choices, expert_ffn; /* of each mixture layer; how many a row goes to; of one expert. 0: no mixtures */
    int shared_ffn;                   /* of the expert that all rows go to; 0: no shared expert */
    bool renormalise;                 /* the weights of a row's choices are divided by their sum */
    bool sigmoid;                     /* routers weigh by sigmoids, and not by a softmax (ops/route.h) */
    int dense_layers;                 /* layers before the first mixture, where the configuration does not say */
    int groups, open_groups;          /* of their experts; a row chooses in open ones alone. 0: all are open */
    double routed_scale;              /* of the weights of a row's choices */
    bool router_bias;                 /* their logits have one */
    ndp_head_sizes full;              /* of layers that see all keys, where they have other sizes (ndp_mixer_full) */
    bool v_norm;                      /* values are normed head by head, without weights */
    ndp_delta_sizes delta;            /* of layers with ndp_mixer_delta; heads 0: there are none */
    int q_rank, kv_rank;              /* of latent attention: columns that queries, and keys, come from. 0: none */
    int nope_dim, v_dim; /* of a head: its first columns, which know no positions; columns of values, 0: head_dim */
    bool neighbours;     /* RoPE turns neighbouring columns together */
    double swiglu_alpha, swiglu_limit; /* of clipped gates (NDP_SILU_CLIPPED) */
    bool balanced;                     /* the configuration asks for a loss that balances experts */
    double balance_coef;               /* of that loss, as transformers computes it (experts.c) */
    int64_t max_positions;
    double norm_eps, init_std;
    bool depth_init; /* products that end in the residual stream begin smaller: init_std / sqrt(2 layers) */
    bool score;      /* the head is one row, `score`, whose product is a text's reward; there is no other */
    bool new_score;  /* which files do not have: it is drawn */
    bool tied, qkv_bias, o_bias, mlp_bias;
    ndp_norm norm;
    bool parallel;   /* attention and MLP both read the input norm, */
    bool two_norms;  /* or, where this is true too, each a norm of its own of the same input */
    bool transposed; /* files hold the matrices of blocks as [inputs, outputs] */
    ndp_activation activation;
    ndp_qk_norm qk_norm;
    double attention_scale, attention_cap, logit_cap; /* caps: c tanh(x / c); 0: none */
    double embedding_scale;
    double residual_scale, logit_scale; /* of what attention and MLP add to the residual stream; of logits */
    double dropout;       /* the largest probability that the configuration asks for; dropout is never applied */
    int n_ropes, n_kinds; /* n_ropes 0: positions are learned, a table of max_positions rows */
    int query_rope;       /* the table of queries, whatever that of their layer; 0: this */
    ndp_rope ropes[NDP_ROPES];
    ndp_layer_kind kinds[NDP_LAYER_KINDS];
    uint8_t kind_of[NDP_MAX_LAYERS]; /* by layer */
    const char *packed;              /* weights that files may have packed, and are dequantised, in words; NULL: none */
    int further;                     /* modules for more tokens behind the last layer, in files alone */
    int64_t bos, eos;                /* -1: none; of several eos the first */
    const char *dropout_lacks;       /* the missing key, where `dropout` is the family's own; NULL: it is said */
} ndp_facts;

/* Reads config.json (a file). NDP_ENOTSUP names an unsupported architecture or feature (hidden_act, rope type,
 * quantization, ...) and its value; NDP_EFORMAT a missing or impossible number. */
NDP_API ndp_status ndp_facts_read(const char *path, ndp_facts *out);
/* The same from a parsed value, or from text; `what` names it in messages (its path). */
struct json_object;
NDP_API ndp_status ndp_facts_parse(struct json_object *config, const char *what, ndp_facts *out);
NDP_API ndp_status ndp_facts_parse_text(const char *text, const char *what, ndp_facts *out);

/* True for a tensor of files that holds no parameter of its own: a tied head's copy, a mask. */
NDP_API bool ndp_facts_ignores(const ndp_facts *f, const char *tensor);
/* Of these a tensor of a module behind the last layer (facts.further). */
NDP_API bool ndp_facts_carries(const ndp_facts *f, const char *tensor);
/* What files of the bare model (without a head) leave out of the names of all tensors. */
NDP_API const char *ndp_facts_prefix(const ndp_facts *f);

/* Names of the two tensors that tying makes one: "model.embed_tokens.weight", "lm_head.weight". */
void ndp_facts_tied_names(const ndp_facts *f, char tokens[NDP_TENSOR_NAME], char head[NDP_TENSOR_NAME]);

/* What the rules of layouts need to know. */
NDP_API ndp_layout_facts ndp_facts_layout(const ndp_facts *f);

/* Distinct parameters (a tied head counts once). */
int64_t ndp_facts_parameters(const ndp_facts *f);

/* Inverse frequencies of RoPE, r->dim / 2 of them, in fp64, for contexts of `positions`: plain theta^(-2i/dim) and what
 * its scaling makes of them, as transformers' modeling_rope_utils: `linear` (divided by factor), `llama3` (Llama 3.1's
 * three bands), `yarn` (arXiv:2309.00071), `longrope` (arXiv:2402.13753: divided by the short factors, or the long ones
 * for contexts beyond the original length). */
void ndp_rope_frequencies(const ndp_rope *r, int64_t positions, double *out);
/* The largest frequency for any context; NaN where one is not a number. */
double ndp_rope_fastest(const ndp_rope *r);
/* An operand of the rope op: `positions` rows of r->dim entries, cosines of dim / 2 angles, then sines, times the
 * amplitude; rounded from fp64 to fp32 (or kept, type fp64). `type`: an ndp_dtype. */
void ndp_rope_table(const ndp_rope *r, int64_t positions, int type, void *out);

#endif
