/* Inside the model room: the parameters of a decoder: which tensors each unit has, and in which of its buffers. */
#ifndef NDP_MODEL_TABLES_H
#define NDP_MODEL_TABLES_H

#include "model/facts.h"

/* The parameters that a decoder may have, unit by unit; families have some of them each. B_: the bias of the one
 * before. */
typedef enum ndp_param {
    NDP_NO_PARAM = -1,
    NDP_P_TOKENS,
    NDP_P_POSITIONS,
    NDP_P_INPUT_NORM,
    NDP_B_INPUT_NORM,
    NDP_P_Q,
    NDP_P_K,
    NDP_P_V,
    NDP_B_Q,
    NDP_B_K,
    NDP_B_V,
    NDP_P_Q_NORM,
    NDP_P_K_NORM,
    NDP_P_SINKS,
    NDP_P_DIRECT_Q, /* of latent attention, from here on: all of queries, or as two matrices with a norm between */
    NDP_P_Q_A,
    NDP_B_Q_A,
    NDP_P_Q_A_NORM,
    NDP_P_Q_B,
    NDP_P_KV_A,
    NDP_B_KV_A,
    NDP_P_KV_A_NORM,
    NDP_P_KV_B,
    NDP_P_GATED_Q, /* of gated attention: of each head a query, and what its result is multiplied by */
    NDP_P_GATED_GATE,
    NDP_P_GATED_K,
    NDP_P_GATED_V,
    NDP_B_GATED_Q,
    NDP_B_GATED_GATE,
    NDP_B_GATED_K,
    NDP_B_GATED_V,
    NDP_P_DELTA_Q, /* of the gated delta rule (delta.c) */
    NDP_P_DELTA_K,
    NDP_P_DELTA_V,
    NDP_P_DELTA_Z,
    NDP_P_DELTA_B,
    NDP_P_DELTA_A,
    NDP_P_TAPS_Q,
    NDP_P_TAPS_K,
    NDP_P_TAPS_V,
    NDP_P_DECAY,
    NDP_P_DECAY_STEP,
    NDP_P_DELTA_NORM,
    NDP_P_DELTA_O,
    NDP_P_O,
    NDP_B_O,
    NDP_P_ATTENTION_NORM,
    NDP_P_MLP_NORM,
    NDP_B_MLP_NORM,
    NDP_P_GATE,
    NDP_P_UP,
    NDP_B_GATE,
    NDP_B_UP,
    NDP_P_DOWN,
    NDP_B_DOWN,
    NDP_P_ROUTER,
    NDP_B_ROUTER,
    NDP_P_ROUTER_BIAS,
    NDP_P_EXPERT_GATE_UP,
    NDP_B_EXPERT_GATE_UP,
    NDP_P_EXPERT_DOWN,
    NDP_B_EXPERT_DOWN,
    NDP_P_SHARED_GATE,
    NDP_P_SHARED_UP,
    NDP_P_SHARED_DOWN,
    NDP_P_SHARED_PASS,
    NDP_P_MLP_OUT_NORM,
    NDP_P_LAYER_SCALAR,
    NDP_P_FINAL_NORM,
    NDP_B_FINAL_NORM,
    NDP_P_HEAD,
    NDP_PARAMS
} ndp_param;

/* Parts of units that have parameters of their own. A layer has NDP_PART_LAYER and the parts of its mixer and MLP. */
typedef enum ndp_table_part {
    NDP_PART_EMBEDDING = 1 << 0,
    NDP_PART_HEAD = 1 << 1,
    NDP_PART_LAYER = 1 << 2, /* of every layer */
    NDP_PART_ATTENTION = 1 << 3,
    NDP_PART_GATED_MLP = 1 << 4,
    NDP_PART_PLAIN_MLP = 1 << 5,
    NDP_PART_EXPERTS = 1 << 6,
    NDP_PART_LATENT = 1 << 7,
    NDP_PART_GATED = 1 << 8,
    NDP_PART_DELTA = 1 << 9
} ndp_table_part;

/* Kinds of units: the embedding, the kinds of layers, the head. */
enum { NDP_KIND_EMBEDDING, NDP_KIND_LAYER, NDP_UNIT_KINDS = NDP_LAYER_KINDS + 2 };
static inline int ndp_kind_head(const ndp_facts *f) { return NDP_KIND_LAYER + f->n_kinds; }
/* The kind of a unit. */
static inline int ndp_unit_kind(const ndp_facts *f, int unit) {
    return unit == 0 ? NDP_KIND_EMBEDDING : unit > f->layers ? ndp_kind_head(f) : NDP_KIND_LAYER + f->kind_of[unit - 1];
}

/* The buffers that a unit may have (tables.c says what each is for). */
enum {
    NDP_SLOT_OWN,
    NDP_SLOT_TIED,
    NDP_SLOT_STACKS = NDP_SLOT_TIED,
    NDP_SLOT_ADAPTER,
    NDP_SLOT_KEPT,
    NDP_SLOT_ROUTER = NDP_SLOT_KEPT,
    NDP_SLOT_EXPERT_ADAPTER,
    NDP_SLOT_FIXED,
    NDP_SLOT_EXPERT_BIAS
};

/* Where a parameter is: in which of the unit's buffers, and which segment of it. */
typedef struct ndp_place {
    int slot, segment; /* segment NDP_NONE: the unit lacks it */
} ndp_place;

/* Where each parameter of a unit is, and the factors of its adapter, by the projection that they are beside. */
typedef struct ndp_param_places {
    ndp_place at[NDP_PARAMS], factors[NDP_PARAMS][NDP_FACTORS];
} ndp_param_places;

/* For those who make units: an empty table of places; */
void ndp_places_clear(ndp_param_places *places);
/* whether opts.frozen and opts.trained leave a buffer of a unit to be trained; */
bool ndp_unit_trains(const ndp_model_opts *o, const char *unit, int slot);
/* moves a tensor that opts.trained names from *slot, where it is without, to that of what is trained; `before`: where
 * the one before it is. NDP_ENOTSUP: it is glued to that one, and only one of them is trained; */
ndp_status ndp_unit_trained_slot(const ndp_model *m, const ndp_unit *u, const ndp_segment *s, const ndp_facts *f,
                                 ndp_place before, int *slot);
/* appends a segment to a buffer of the unit, which is made if it has none in that slot: m->buffers has room for one;
 * NDP_EBUG: it has NDP_MOST_SEGMENTS already; */
ndp_status ndp_unit_append(ndp_model *m, ndp_unit *u, int slot, const ndp_segment *s, ndp_place *at);
/* appends the factors that opts.adapter asks for beside `n` glued projections from `place` on; */
ndp_status ndp_unit_factors(ndp_model *m, ndp_unit *u, ndp_param place, int n, ndp_param_places *of);
/* and those beside its experts, in a buffer of their own, which has the owners that experts have. */
ndp_status ndp_unit_expert_factors(ndp_model *m, ndp_unit *u, ndp_param_places *of);

/* Makes the buffers and units of a decoder, and finds the places of the parameters of each, in the model's arena.
 * NDP_ENOMEM. */
ndp_status ndp_tables_make(const ndp_facts *f, ndp_model *m, ndp_param_places **out);

#endif
