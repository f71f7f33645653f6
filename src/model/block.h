/* Inside the model room: what writes the graphs of units, and the parts of a decoder block that a layer chooses.
 *
 * A block is a mixer, which is where tokens see each other, and an MLP, which works on each token alone. A kind of
 * layer has one of each; which parameters there are follows from them (tables.c). */
#ifndef NDP_MODEL_BLOCK_H
#define NDP_MODEL_BLOCK_H

#include "model/decoder.h"
#include "model/tables.h"

typedef struct ndp_unit_builder {
    const ndp_model *m;
    const ndp_facts *f;
    ndp_graph *g;
    const ndp_param_places *places; /* of the unit's parameters */
    ndp_layer_kind layer;           /* of a block */
    int dropouts;                   /* written so far */
} ndp_unit_builder;

/* x [T,C] -> [T,C], both of them */
enum { NDP_MIXER_CACHES = 4 };
struct ndp_mixer {
    ndp_table_part part; /* its rows of the tables */
    int (*write)(ndp_unit_builder *b, int x);
    bool full;                                   /* its heads have the sizes of facts.full */
    ndp_mixer_cache cache[NDP_MIXER_CACHES + 1]; /* what it keeps in a model with a cache */
};
struct ndp_mlp {
    ndp_table_part part;
    bool gated; /* a product of its own decides how much of each column passes */
    int (*write)(ndp_unit_builder *b, int x);
};
extern const ndp_mixer ndp_mixer_attention, ndp_mixer_full, ndp_mixer_gated, ndp_mixer_latent, ndp_mixer_delta;
extern const ndp_mlp ndp_mlp_gated, ndp_mlp_plain, ndp_mlp_experts;

/* Sizes of the heads of a kind of layer. */
ndp_head_sizes ndp_kind_heads(const ndp_facts *f, const ndp_layer_kind *k);

/* Returns the value of the first input of a kind, or NDP_NONE if the model has none. */
int ndp_unit_data(const ndp_unit_builder *b, ndp_input_kind kind);
/* What the layer's mixer keeps, by its row there; which row of a cache, or of the micro-batch, each token is. */
int ndp_unit_kept(const ndp_unit_builder *b, int row);
int ndp_unit_rows(const ndp_unit_builder *b);
/* The value of `n` glued parameters from `place` on; NDP_NONE if the unit lacks it. */
int ndp_unit_param(ndp_unit_builder *b, ndp_param place, int n);
/* The matrix of `n` glued projections from `place` on: a parameter, or what the op unpack makes of packed ones. */
int ndp_unit_weight(ndp_unit_builder *b, ndp_param place, int n);
/* norm(x) by the weight at `place` and the bias, where norms have one; x itself if the family has no such norm. */
int ndp_unit_norm(ndp_unit_builder *b, ndp_param place, ndp_param bias, int x);
/* y = x w^T + bias over `n` glued projections from `place` on, with their adapters (adapter.c); `bias`: NDP_NO_PARAM
 * for none. Every product with a weight is written here, but for the head's in training, which the loss computes. */
int ndp_unit_linear(ndp_unit_builder *b, const char *name, int x, ndp_param place, int n, ndp_param bias);
/* x times a factor, in place; x itself where that is 1. */
int ndp_unit_scale(ndp_unit_builder *b, const char *name, int x, double factor);
int ndp_unit_add(ndp_unit_builder *b, const char *name, int x, int y);
/* x times the sigmoid of `gate`, or its SiLU. */
int ndp_unit_gate(ndp_unit_builder *b, int x, int gate, bool sigmoid);
/* A gated MLP: gate and up from place `gate` on, with the biases from `gate_bias` on, and down. Biases as above. */
int ndp_unit_gated_mlp(ndp_unit_builder *b, int x, ndp_param gate, ndp_param gate_bias, ndp_param down,
                       ndp_param down_bias);

/* Adds the adapters of `n` glued projections from `place` on to y = x w^T, and then the bias. */
int ndp_unit_adapters(ndp_unit_builder *b, const char *name, int x, int y, ndp_param place, int n, ndp_param bias);
/* Adds the factors of the experts at `place` to y = x W^T of each expert's rows; y itself if they have none. how: of
 * products of x; NULL: nothing. */
int ndp_unit_stack_adapter(ndp_unit_builder *b, const char *name, int x, const ndp_op_attr *how, int y, ndp_param place,
                           int offsets);
/* True if one of `n` projections from `place` on has an adapter. */
bool ndp_unit_has_adapter(const ndp_unit_builder *b, ndp_param place, int n);

/* What the options and the model's configuration ask of routers: coefficients, 0 where there is no such loss. */
typedef struct ndp_router_losses {
    double balance, z_loss;
} ndp_router_losses;
ndp_router_losses ndp_router_losses_of(const ndp_facts *f, const ndp_model_opts *o);
/* NDP_EINVAL: options of routers that the model does not have; or a balance loss without a coefficient. */
ndp_status ndp_router_losses_check(const ndp_facts *f, const ndp_model_opts *o);
/* Fills an NDP_INPUT_UNIT_TABLE: the number of each unit. */
void ndp_units_fill(const ndp_model *m, int number, void *out);
/* Makes the inputs of a decoder. NDP_ENOMEM. */
ndp_status ndp_decoder_inputs(ndp_model *m);

/* Writes the graph of a block. */
void ndp_unit_block(ndp_unit_builder *b);

#endif
