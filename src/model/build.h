/* Inside the model room: the unit graphs of a decoder. */
#ifndef NDP_MODEL_BUILD_H
#define NDP_MODEL_BUILD_H

#include "model/model.h"

/* Fills model->graphs from its facts, tables and options. */
NDP_API ndp_status ndp_build_graphs(ndp_model *m);

/* Places in a block's parameter table. Biases follow DOWN: those of the attention, then those of the MLP. */
enum ndp_block_segment {
    NDP_SEG_INPUT_NORM,
    NDP_SEG_Q,
    NDP_SEG_K,
    NDP_SEG_V,
    NDP_SEG_O,
    NDP_SEG_POST_NORM,
    NDP_SEG_GATE,
    NDP_SEG_UP,
    NDP_SEG_DOWN,
    NDP_SEG_BIASES
};

#endif
