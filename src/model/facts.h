/* What a model is, read from its config.json: facts, not code. */
#ifndef NDP_MODEL_FACTS_H
#define NDP_MODEL_FACTS_H

#include "base/status.h"

typedef enum ndp_rope_scaling { NDP_ROPE_PLAIN, NDP_ROPE_LINEAR, NDP_ROPE_LLAMA3 } ndp_rope_scaling;

typedef struct ndp_facts {
    char family[32]; /* model_type */
    int64_t vocab;
    int layers, hidden, heads, kv_heads, head_dim, ffn;
    int64_t max_positions;
    double norm_eps, init_std;
    struct {
        double theta, factor, low_freq_factor, high_freq_factor;
        int64_t original_positions;
        ndp_rope_scaling scaling;
    } rope;
    bool tied, attention_bias, mlp_bias;
    int window;       /* attention window; 0: none */
    int64_t bos, eos; /* -1: none; of several eos the first */
} ndp_facts;

/* Reads config.json (a file). NDP_ENOTSUP names an unsupported architecture or feature (hidden_act, rope type,
 * quantization, dropout, ...) and its value; NDP_EFORMAT a missing or impossible number. */
NDP_API ndp_status ndp_facts_read(const char *path, ndp_facts *out);
/* The same from a parsed value; `what` names it in messages (its path). */
struct json_object;
NDP_API ndp_status ndp_facts_parse(struct json_object *config, const char *what, ndp_facts *out);

/* Distinct parameters (a tied head counts once). */
int64_t ndp_facts_parameters(const ndp_facts *f);

/* Inverse frequencies of RoPE, head_dim / 2 of them, in fp64: plain theta^(-2i/D), `linear` (divided by factor) or
 * `llama3` (Llama 3.1's three bands, as transformers' _compute_llama3_parameters). */
void ndp_rope_frequencies(const ndp_facts *f, double *out);
/* The operand of the rope op: `positions` rows of head_dim entries, cos of D/2 angles then sin of D/2, rounded from
 * fp64 to fp32 (or kept, type fp64). `type`: an ndp_dtype. */
void ndp_rope_table(const ndp_facts *f, int64_t positions, int type, void *out);

#endif
