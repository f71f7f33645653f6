/* Inputs: what the step hands to units beside activations and parameters. The model declares them as a list; a unit
 * names one by its place there. The kind says who writes it and when, the extent how many rows it has and so how the
 * axes cut it: memory, cutting and loading of a batch all follow from the list. */
#ifndef NDP_GRAPH_INPUT_H
#define NDP_GRAPH_INPUT_H

#include "tensor/dtype.h"

enum { NDP_MAX_INPUTS = 24 };

typedef enum ndp_extent {
    NDP_EXTENT_ONE,
    NDP_EXTENT_TOKENS,    /* rows of a unit */
    NDP_EXTENT_QUERIES,   /* rows that this rank's attention makes */
    NDP_EXTENT_KEYS,      /* rows that it sees; with a cache, the rows of the cache */
    NDP_EXTENT_POSITIONS, /* of a table by position */
    NDP_EXTENT_UNITS,     /* of the whole model */
    NDP_EXTENT_TEXTS,     /* that a cache is of */
    NDP_EXTENT_DOCUMENTS, /* of a micro-batch of preference data; no axis cuts them */
    NDP_EXTENTS
} ndp_extent;

typedef enum ndp_input_kind {
    /* Of every micro-batch, written by ndp_engine_load; i32, but for the router's and the last ones. */
    NDP_INPUT_TOKENS,       /* ids */
    NDP_INPUT_LABELS,       /* the ids to predict; -1: ignored */
    NDP_INPUT_POSITIONS,    /* of a row in its document */
    NDP_INPUT_STARTS,       /* the first row of its document: the first that a row may see */
    NDP_INPUT_STATE_STARTS, /* the same: where layers with a state begin anew, counted from row 0 of this rank's as if
                               the rows before its piece stood before it (ops/row_pieces.h) */
    NDP_INPUT_SAMPLES,      /* the sample of a row in the micro-batch; -1: padding */
    NDP_INPUT_KEYS,         /* random words: what is dropped of a row follows from its own */
    NDP_INPUT_ROWS,         /* the row itself: its number in the micro-batch, or in the cache */
    NDP_INPUT_CHOICES,      /* of a row, for each mixture of experts its own: the experts that it goes to */
    NDP_INPUT_ROUTER,       /* the same: the logits of its router, written by units; wide */
    NDP_INPUT_DOCUMENTS,    /* the document of a row, with marks (ops/preference.h); -1: none */
    NDP_INPUT_REFERENCE,    /* fp64, of a document: the log-probability of its answer under the reference model */
    NDP_INPUT_WEIGHTS,      /* fp64, of a row: what its loss is multiplied by in the sum; */
    NDP_INPUT_SCALES,       /* and its gradient: the same, divided by what the loss is a mean over */
    NDP_INPUT_ROW_NUMBERS,  /* wide, of a row, written by units: what the head says of it (ndp_row_numbers) */
    NDP_INPUT_SCORES,       /* fp64, of a document, written by units: that under this model, and the answer's tokens */
    /* Of the engine. */
    NDP_INPUT_TABLE,        /* written once, by `fill` */
    NDP_INPUT_UNIT_TABLE,   /* the same, one row (NDP_EXTENT_ONE) for each of NDP_EXTENT_UNITS; a unit is handed its own
                             */
    NDP_INPUT_LENT,         /* memory of the engine's user, for each unit its own (ndp_engine_lend) */
    NDP_INPUT_LOSS_SCALE,   /* one, fp64: 1 / valid tokens of the update, or 1 / its pairs */
    NDP_INPUT_NLL_SCALE,    /* one, fp64: 1 / tokens of the update that count in the nll of preference data */
    NDP_INPUT_ROUTER_SCALE, /* one, fp64: 1 / rows of the update that are not padding */
    NDP_INPUT_ROUTER_SUMS,  /* one row, fp64: the running sums of the losses of routers, which backwards add to */
    NDP_INPUT_LOADS,        /* one row, fp64, of each mixture its own: how often the experts are chosen; forwards add */
    NDP_INPUT_LOSS /* one row, fp64: the running sum of token losses, which units add to; of preference data, sums
                      over pairs (NDP_PAIR_SUMS) */
} ndp_input_kind;
static inline bool ndp_input_is_of_batch(ndp_input_kind k) { return k <= NDP_INPUT_SCORES; }
/* Of these each mixture has rows of its own, one mixture after the other; a unit is handed its own. */
static inline bool ndp_input_is_of_mixtures(ndp_input_kind k) {
    return k == NDP_INPUT_CHOICES || k == NDP_INPUT_ROUTER;
}
static inline bool ndp_input_is_table(ndp_input_kind k) { return k == NDP_INPUT_TABLE || k == NDP_INPUT_UNIT_TABLE; }

struct ndp_model;

typedef struct ndp_input {
    const char *name;
    ndp_input_kind kind;
    ndp_extent extent;
    int64_t cols;
    ndp_dtype type;
    /* Tables: writes all rows. `number` is the model's own. */
    void (*fill)(const struct ndp_model *m, int number, void *out);
    int number;
} ndp_input;

/* Of the units of a rank that are mixtures of experts. */
typedef struct ndp_mixtures {
    int n, experts, choices; /* how many they are; experts of each; choices of a row */
    bool sigmoid;            /* routers choose by keys (ops/route.h), in open groups */
    int groups, open_groups;
} ndp_mixtures;

typedef struct ndp_inputs {
    ndp_input items[NDP_MAX_INPUTS];
    int n;
    int64_t rows[NDP_EXTENTS]; /* of each extent, on this rank */
    ndp_mixtures mixtures;
} ndp_inputs;

static inline size_t ndp_input_bytes(const ndp_inputs *inputs, int i) {
    const ndp_input *in = &inputs->items[i];
    ndp_extent extent = in->kind == NDP_INPUT_UNIT_TABLE ? NDP_EXTENT_UNITS : in->extent;
    int64_t times = ndp_input_is_of_mixtures(in->kind) ? inputs->mixtures.n : 1;
    return (size_t)(times * inputs->rows[extent] * in->cols) * ndp_dtype_size(in->type);
}

/* Returns the place of the nth input of a kind, counted from 0, or -1 if the model has fewer. */
static inline int ndp_inputs_find_nth(const ndp_inputs *inputs, ndp_input_kind kind, int n) {
    for (int i = 0; i < inputs->n; i++)
        if (inputs->items[i].kind == kind && n-- == 0)
            return i;
    return -1;
}
/* Return the place of the first input of a kind, and that of the input with a name; -1 if there is none. */
static inline int ndp_inputs_find(const ndp_inputs *inputs, ndp_input_kind kind) {
    return ndp_inputs_find_nth(inputs, kind, 0);
}
static inline int ndp_inputs_named(const ndp_inputs *inputs, const char *name) {
    for (int i = 0; i < inputs->n; i++)
        if (strcmp(inputs->items[i].name, name) == 0)
            return i;
    return -1;
}

/* Appends an input and returns its place. A model never has more than there is room for. */
static inline int ndp_inputs_add(ndp_inputs *inputs, ndp_input input) {
    inputs->items[inputs->n] = input;
    return inputs->n++;
}

#endif
