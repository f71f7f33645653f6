/* Inside the model room: a model of a program's own while it is built. own_builder.c has units and tensors,
 * own_inputs.c the inputs, own_ops.c the ops. */
#ifndef NDP_MODEL_OWN_BUILDER_H
#define NDP_MODEL_OWN_BUILDER_H

#include "model/block.h"
#include "model/own_table.h"

/* What is known of a value that the program may name. */
typedef struct ndp_own_value {
    bool made, used; /* made: it is one of these */
    bool changed;    /* by an op in place: nothing may read it any more */
    ndp_dim dim;     /* what its columns are: WHOLE, or how the tensor axis cuts them */
    int64_t grain;
} ndp_own_value;

/* Values are numbered unit by unit: a number says which unit's it is. */
struct ndp_model_builder {
    ndp_model *m; /* units and buffers are malloc'ed until the end */
    ndp_own_facts *f;
    ndp_graph graph;       /* of the unit that is written; kept if no unit before has the same */
    ndp_own_value *values; /* by value of it */
    int64_t value_room, unit_room, buffer_room;
    int first_with[NDP_MAX_GRAPHS]; /* by graph: its first unit */
    int dropouts;                   /* of the unit, so far */
    bool trains;                    /* a unit before this one is trained */
    bool ended;                     /* the head is written */
    ndp_status st;                  /* of the first error */
};

/* The unit that is written; NULL, and an error: there is none, or the last one has ended. */
ndp_unit *ndp_own_unit(ndp_model_builder *b, const char *what);
/* The value of the graph behind a number, which is used now; NDP_NONE, and an error, if it is none. */
int ndp_own_use(ndp_model_builder *b, const char *what, int number);
/* Whether an op has used it already. */
bool ndp_own_is_read(const ndp_model_builder *b, int number);
/* The number of a value, or 0 after an error. `dim`, `grain`: of its columns. */
int ndp_own_number(ndp_model_builder *b, int value, ndp_dim dim, int64_t grain);

/* Appends a tensor of the unit, UNIT.NAME and the ending, to the buffer that it belongs to. `s`: all but its name. */
void ndp_own_tensor(ndp_model_builder *b, const char *name, const char *ending, ndp_segment s, ndp_place *at);
/* Appends the factors of an adapter beside `n` glued projections from `place` on, which are declared. */
void ndp_own_factors(ndp_model_builder *b, ndp_param place, int n, ndp_param_places *places);
/* The parameter at a place; 0 after an error. */
int ndp_own_param(ndp_model_builder *b, ndp_place at);
/* An input of the model, by its name, which it has from now on. */
typedef enum ndp_own_input {
    NDP_OWN_TOKENS,
    NDP_OWN_LABELS,
    NDP_OWN_LOSS_SCALE,
    NDP_OWN_LOSS,
    NDP_OWN_POSITIONS,
    NDP_OWN_STARTS,
    NDP_OWN_QUERIES,
    NDP_OWN_LOWEST,
    NDP_OWN_KEYS,
    NDP_OWN_ROW_KEYS,
    NDP_OWN_UNITS,
    NDP_OWN_INPUTS
} ndp_own_input;
int ndp_own_data(ndp_model_builder *b, ndp_own_input input);
/* Those that every model has (own_inputs.c). */
ndp_status ndp_own_begin_inputs(ndp_model_builder *b);
/* The table of angles with these numbers. */
int ndp_own_angles(ndp_model_builder *b, double theta, int dim);

#endif
