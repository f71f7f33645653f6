/* A model: its inputs, its flat parameter buffers, and a list of units (embedding, decoder blocks, head), each a graph
 * over up to NDP_SLOTS of the buffers. It knows no ranks. Units that compute the same share one graph. A tied table is
 * a buffer of its own that the first and the last unit use.
 *
 * The struct is what other rooms read; architectures (architecture.h) fill it. */
#ifndef NDP_MODEL_MODEL_H
#define NDP_MODEL_MODEL_H

#include "graph/graph.h"
#include "graph/passes.h"
#include "mesh/mesh.h"
#include "model/adapter.h"
#include "ops/preference.h"
#include "ops/router_losses.h"
#include "ops/token_weight.h"
#include "ops/update.h"

/* Units of a kind share a graph; which of their buffers are frozen, and what the backward goes through, makes more. */
enum { NDP_MAX_GRAPHS = 18 };

typedef struct ndp_architecture_table ndp_architecture_table;

typedef enum ndp_model_mode {
    NDP_MODEL_TRAIN, /* tokens -> loss, with the backward */
    NDP_MODEL_SCORE, /* tokens -> loss of every token */
    NDP_MODEL_CACHED /* tokens -> logits, keys and values appended to a cache */
} ndp_model_mode;

/* What mixtures of experts do beside routing by their own logits. Bits of ndp_model_opts.routes. */
typedef enum ndp_routes {
    NDP_ROUTES_GIVEN = 1,   /* the batch says which experts a row goes to (ndp_micro_batch.choices) */
    NDP_ROUTES_RECORDED = 2 /* they write the logits that they have, or would have, chosen by */
} ndp_routes;

/* Tensors that are updated alike: what optimizer.groups has as params. */
typedef struct ndp_group_names {
    const char *what; /* "entry 1 of optimizer.groups", for messages */
    const char *const *names;
    int n;
    bool any; /* a name may name nothing */
} ndp_group_names;

typedef struct ndp_model_opts {
    ndp_model_mode mode;
    int64_t rows;                     /* T: tokens of a micro-batch, or of a chunk */
    int64_t keys;                     /* rows of the KV cache (CACHED) */
    int64_t texts;                    /* that the cache is of, each of keys / texts rows (CACHED); 0: one */
    int64_t positions;                /* rows of the RoPE tables */
    ndp_dtype compute;                /* storage of activations and gathered weights: fp32, bf16, fp64 */
    ndp_dtype master;                 /* of master weights, gradients, optimizer state: fp32, or fp64 with fp64; */
    ndp_dtype weights, states;        /* bf16 instead of that, of master weights (with `compute` bf16), of the state */
    int window;                       /* of all layers; 0: what the model says */
    ndp_preference preference;        /* the loss of pairs of documents; kind 0: the loss of tokens, */
    ndp_token_weighting token_weight; /* which may have weights in training */
    int documents;                    /* of a micro-batch, with such a loss: an even number */
    int samples;                      /* of a micro-batch; 0: one */
    /* Rows of the user's own: in training each has a weight; a scoring pass keeps what it says of each. Not with a loss
     * of pairs. */
    bool own_rows;
    bool row_loss; /* in training the loss is a function of logits, run by the host (ndp_op_row_loss). The same */
    ndp_router_opts router;
    /* How the projections of layers are stored (tensor/packed.h), if they are frozen; NONE: in `compute`. */
    ndp_packing base;
    /* Names of units whose weights stay as they are, or patterns of names, as fnmatch(3) reads them. Borrowed. */
    const char *const *frozen;
    int n_frozen;
    /* Names of the tensors that are trained, as those of groups; all others stay as they are. None: all are trained. */
    const char *const *trained;
    int n_trained;
    ndp_adapter adapter; /* r > 0: all else is frozen */
    /* Which tensors are updated alike (model/group_names.h). Borrowed. */
    const ndp_group_names *groups;
    int n_groups;
    int routes; /* of mixtures, in training: ndp_routes; 0: they choose, and record nothing */
} ndp_model_opts;

/* The storage types of a buffer, each chosen by itself. An optimizer may refuse a choice. */
typedef struct ndp_storage {
    ndp_dtype compute;  /* of weights as ops read them */
    ndp_dtype kept;     /* of what is kept beside the master, and gathered: `compute`; bytes of a packed buffer, from
                           which the op unpack makes what ops read */
    ndp_dtype master;   /* of its owners; that of a frozen buffer is `kept`. NDP_SPLIT_REST: fp32, of which the upper
                           parts are what is kept, and these the rest (ops/rounding.h) */
    ndp_dtype gradient; /* also while ranks sum it */
    ndp_dtype state;    /* of the optimizer */
} ndp_storage;

typedef struct ndp_buffer {
    const char *name;
    ndp_segments segments;
    ndp_storage storage;
    bool base;      /* of the model beside whose weights an adapter is trained: never trained */
    bool trainable; /* false: frozen; only gathered, and stored as it is gathered, with no other master */
    bool moves; /* not trained, but changed after each update by the loads of experts: a router's bias (bias_rate) */
    ndp_group_kind owners; /* each of its ranks owns a slice */
} ndp_buffer;

typedef struct ndp_unit {
    const char *name;
    int graph;              /* index in model->graphs */
    int number, stage;      /* of a rank's model: its place in the whole model, and its pipeline stage */
    int mixture;            /* its number among the model's mixtures of experts; NDP_NONE: an MLP, or no block */
    int buffers[NDP_SLOTS]; /* index in model->buffers, NDP_NONE */
} ndp_unit;

typedef struct ndp_model {
    const ndp_architecture_table *architecture;
    const void *facts; /* its own, in the arena */
    ndp_model_opts opts;
    ndp_arena arena;
    ndp_buffer *buffers;
    int n_buffers;
    ndp_unit *units;
    int n_units;
    ndp_graph graphs[NDP_MAX_GRAPHS];
    int n_graphs;
    ndp_inputs *inputs;    /* in the arena */
    ndp_pass_trace passes; /* of a rank's model: those that made it of the whole one */
} ndp_model;

/* The storage that the options ask for, of a buffer that is not packed. */
static inline ndp_storage ndp_storage_of(const ndp_model_opts *o, bool trainable) {
    bool bf16 = o->weights == NDP_BF16, split = !bf16 && o->compute == NDP_BF16 && o->master == NDP_F32;
    return (ndp_storage){.compute = o->compute,
                         .kept = o->compute,
                         .master = !trainable || bf16 ? o->compute
                                   : split            ? NDP_SPLIT_REST
                                                      : o->master,
                         .gradient = o->master,
                         .state = o->states == NDP_BF16 ? NDP_BF16 : o->master};
}

/* True if weights are in two parts. */
static inline bool ndp_storage_is_split(const ndp_storage *s) { return s->master == NDP_SPLIT_REST; }
/* True if an update of a model with these options rounds at random. */
static inline bool ndp_model_rounds(const ndp_model_opts *o) { return o->states == NDP_BF16 || o->weights == NDP_BF16; }

static inline bool ndp_buffer_is_packed(const ndp_buffer *b) { return b->segments.packing != NDP_PACKING_NONE; }

/* Begins a model: options, and a copy of the facts; nothing else. NDP_ENOMEM. */
ndp_status ndp_model_init(const ndp_architecture_table *a, const void *facts, const ndp_model_opts *opts,
                          ndp_model *out);
/* Part of building a model: sets which of its buffers are trained, by the names of the units that have them
 * (opts.frozen), and how they are stored. NDP_EINVAL: a name is that of no unit, nothing is left to train, or what is
 * trained is packed. NDP_ENOTSUP: the model has nothing that could be packed, as opts.base asks. */
ndp_status ndp_model_freeze(ndp_model *m);
/* Whether opts.frozen names the unit. */
bool ndp_model_is_frozen(const ndp_model_opts *o, const char *unit);
/* Inputs of a scoring pass over rows of the user's own, in order: the nll [T,1], and values [T,2], as xent has them. */
enum { NDP_ROW_NUMBERS = 2 };
extern const char *const ndp_row_numbers[NDP_ROW_NUMBERS];
/* Parts of building one (head.c): the inputs of the loss that depend on the options; */
void ndp_head_inputs(ndp_model *m);
/* and the loss of tokens at the end of a graph: of rows x by the table w. attr: of the op xent. */
void ndp_head_loss(const ndp_model *m, ndp_graph *g, int x, int w, const ndp_op_attr *attr);
void ndp_model_release(ndp_model *m);

/* How many layers have a router with losses of its own; below all that is trained they have no gradient, and are left
 * out. */
int ndp_model_router_losses(const ndp_model *m);

/* The number of kv heads, as the tables say; 0: no tensor has any. */
int ndp_model_kv_heads(const ndp_model *m);

#endif
