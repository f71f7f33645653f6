/* Inside the model room: parameter tables and the unit graphs over them. */
#ifndef NDP_MODEL_UNIT_BUILDER_H
#define NDP_MODEL_UNIT_BUILDER_H

#include "model/model.h"

/* The parameters that a decoder may have, unit by unit; families have some of them each. B_: the bias of the one
 * before.
 */
typedef enum ndp_param {
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
    NDP_P_MLP_OUT_NORM,
    NDP_P_FINAL_NORM,
    NDP_B_FINAL_NORM,
    NDP_P_HEAD,
    NDP_PARAMS
} ndp_param;

typedef enum ndp_part_of { NDP_OF_EMBEDDING, NDP_OF_BLOCK, NDP_OF_HEAD } ndp_part_of;

/* Appends the parameters of a unit to a table: `at` gets the number of each there, NDP_NONE for those it has not.
 * `prefix` goes before the names of a block. NDP_ENOMEM. */
ndp_status ndp_table_fill(const ndp_facts *f, ndp_part_of unit, const char *prefix, ndp_arena *arena,
                          ndp_segments *segments, int at[NDP_PARAMS]);

/* Makes model->inputs. NDP_ENOMEM. */
ndp_status ndp_build_inputs(ndp_model *m);

/* Fills model->graphs from its facts, tables and options: the embedding, a block of each kind, the head. `at`: see
 * above.
 */
ndp_status ndp_build_graphs(ndp_model *m, const int at[NDP_PARAMS]);

#endif
