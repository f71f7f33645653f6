/* Inside the model room: a family of models as data. */
#ifndef NDP_MODEL_FAMILIES_H
#define NDP_MODEL_FAMILIES_H

#include "model/facts.h"

/* Names of a family's tensors in files, less ".weight" and ".bias"; those of a block behind `layers` and its number.
 * NULL: it has none. Equal names of neighbours (q, k, v; gate, up) are parts of one tensor, in this order. */
typedef struct ndp_names {
    const char *base;  /* what files of the bare model (without a head) leave out of all names */
    const char *alias; /* what files may have in place of `base`, beside tensors of images, which are not read */
    const char *tokens, *positions, *layers, *final_norm, *head,
        *score; /* score: of a reward model, in place of the head */
    const char *input_norm, *q, *k, *v, *q_norm, *k_norm, *sinks, *o, *attention_norm;
    const char *q_a, *q_a_norm, *q_b, *kv_a, *kv_a_norm, *kv_b; /* of latent attention */
    const char *mlp_norm, *gate, *up, *down, *mlp_out_norm;
    const char *layer_scalar; /* the whole name: what a block's result is multiplied by, which is not trained */
    const char *router, *expert_gate_up, *expert_down; /* of experts: %d for the number, {gate,up} for two in turn */
    const char *expert_pairs, *expert_pairs_bias, *expert_down_bias; /* whole names of stacks of all experts */
    const char *router_bias;                           /* the whole name: by what a router chooses besides scores */
    const char *shared_gate, *shared_up, *shared_down; /* of the expert that all rows go to; */
    const char *shared_pass;                           /* how much of what it makes passes: a row */
    const char *unread[3];                             /* tensors of blocks that hold no parameters */
    bool other_head;                                   /* transformers calls the head's module lm_head, files do not */
    /* Of the gated delta rule. */
    const char *delta_qkv, *delta_z, *delta_b, *delta_a, *taps, *decay, *decay_step, *delta_norm, *delta_o;
    unsigned in_turn; /* table parts (tables.h) whose fused tensors have their parts in turn, head by head */
} ndp_names;

/* Keys of config.json; NULL: the family has no such key. */
typedef struct ndp_keys {
    const char *vocab, *layers, *hidden, *heads, *kv_heads, *head_dim, *ffn, *positions;
    const char *norm_eps, *activation, *window;
    const char *qkv_bias, *o_bias, *mlp_bias;
    const char *experts, *expert_ffn, *shared_ffn; /* expert_ffn NULL: `ffn` */
    const char *shared_experts, *dense_layers;     /* shared ones as wide as others; how many layers have an MLP */
    const char *layer_mlps;                        /* of each layer: "dense" or "sparse" */
    const char *theta, *rotary;                    /* NULL: rope_theta, partial_rotary_factor */
} ndp_keys;

/* Which layers of a family have its window, counted from 0; {0}: all. */
typedef struct ndp_window_rule {
    int size;    /* where the configuration does not say */
    bool asked;  /* only where its use_sliding_window is true */
    bool listed; /* where there are layer_types, as they say */
    int rope;    /* the table of angles of layers with the window; others have the first */
    /* Keys, NULL: none, and what counts where one is missing: the first layer, the one after the last (0 without a key:
     * none), and that all but every such layer have it (0: all). */
    bool last_full; /* the last layer has none, whatever layer_types say */
    const char *from_key, *end_key, *every_key;
    int64_t from, end, every;
} ndp_window_rule;

/* By which of three positions a pair of columns turns: none, by sections of all pairs, or in turns. */
typedef enum ndp_mrope { NDP_MROPE_NONE, NDP_MROPE_SECTIONS, NDP_MROPE_TURNS } ndp_mrope;

typedef struct ndp_family {
    const char *type, *architecture; /* model_type; the class in `architectures` */
    const ndp_names *names;
    const ndp_keys *keys;
    const ndp_norm *norm; /* NULL: RMSNorm */
    double norm_eps;      /* where the configuration does not say; 0: 1e-6 */
    ndp_qk_norm qk_norm;
    ndp_window_rule windows;
    void (*init)(ndp_facts *f); /* what else its configurations may leave out, and what they never say; NULL: nothing */
    double rotary;              /* the part of a head that turns, unless the configuration says; 0: all */
    bool partial;               /* reads partial_rotary_factor */
    ndp_mrope mrope;            /* how columns turn by several positions, which are one for text */
    bool kv_heads_needed;       /* when missing, they are not as many as the heads */
    bool tanh_gelu;             /* its word gelu is the tanh form */
    /* Sizes of heads, after all others were read. NULL: head_dim, or hidden / heads. */
    ndp_status (*shape)(struct json_object *config, const char *what, ndp_facts *f);
    /* Fills kinds and kind_of; ropes are read already, f->kinds[0] has the key `window` or its default, and the mixer
     * and MLP of all layers. NULL: by `windows`. */
    ndp_status (*layers)(struct json_object *config, const char *what, ndp_facts *f);
    /* Reads the keys that only this family has. NULL: none. */
    ndp_status (*more)(struct json_object *config, const char *what, ndp_facts *f);
    const char *dropout[4]; /* keys that are the family's own dropout where they are missing */
    const char *reads[6];   /* keys that would be refused from others, besides those of `windows` */
} ndp_family;

/* Where facts.base goes before a name of ndp_names: that, and the rest of the name; else "", and all of it. */
const char *ndp_facts_base(const ndp_facts *f, const char **name);
/* The whole name. */
void ndp_facts_name(const ndp_facts *f, const char *name, char out[NDP_TENSOR_NAME]);

/* True for a key that would be refused from another family. */
bool ndp_family_reads(const ndp_family *f, const char *key);
/* NULL when there is none of that model_type. */
const ndp_family *ndp_family_find(const char *type);
/* transformers' class of the family's reward models; false: it has none. */
bool ndp_family_score_class(const ndp_family *f, char out[NDP_TENSOR_NAME]);
/* "llama, mistral, ..." into `out`, cut to fit; returns it. */
const char *ndp_family_list(char *out, size_t size);

#endif
