/* Weights between files and the owned slices of an engine. Tensors are those of the model folder, by their names there;
 * every rank touches only its own elements. */
#ifndef NDP_TRAIN_WEIGHTS_H
#define NDP_TRAIN_WEIGHTS_H

#include "checkpoint/checkpoint.h"
#include "step/engine.h"

/* The tensors of a model, or of its optimizer's state: lists that files are made of. */
typedef struct ndp_tensor_list {
    ndp_arena arena;
    ndp_tensor_spec *specs;
    int n;
    ndp_file_piece *pieces; /* what this rank writes: of replicas the first gives its own */
    int n_pieces;
    int64_t capacity, piece_capacity;
} ndp_tensor_list;

/* Appends the tensors of one kind; names are `prefix` + name. Borrows the engine. */
NDP_API ndp_status ndp_tensor_list_add(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind,
                                       const char *prefix, ndp_dtype stored);
void ndp_tensor_list_release(ndp_tensor_list *list);

/* Master weights from a Hugging Face folder: what is missing, extra or of another shape is one error; a NaN or infinity
 * is named. Publishes. */
NDP_API ndp_status ndp_weights_load(ndp_engine *e, const char *folder);
/* Random master weights, the same on every layout. Publishes. */
NDP_API ndp_status ndp_weights_draw(ndp_engine *e, uint64_t seed);

/* A run of a tensor's elements that this rank owns of a kind. */
typedef struct ndp_owned_run {
    ndp_engine *engine;
    ndp_owned_kind kind;
    int buffer;
    ndp_run run;
} ndp_owned_run;
/* Calls `visit` for each. */
typedef ndp_status ndp_run_visitor(void *user, const ndp_owned_run *r);
NDP_API ndp_status ndp_engine_runs(ndp_engine *e, ndp_owned_kind kind, ndp_run_visitor *visit, void *user);
/* Elements [skip, skip + n) of a run, as `type`, which follow each other in `out`. */
NDP_API ndp_status ndp_run_get(const ndp_owned_run *r, int64_t skip, int64_t n, void *out, ndp_dtype type);
/* Fills a run from where `read` takes elements [first, first + count) of tensor `name`, in the kind's storage. */
typedef ndp_status ndp_run_reader(void *user, const char *name, int64_t first, int64_t count, void *out);
NDP_API ndp_status ndp_run_fill(const ndp_owned_run *r, ndp_run_reader *read, void *user, const char *name);

#endif
