/* Moving weights between files and the slices of an engine that a rank owns. Tensors have their names in the model
 * folder; each rank touches only its own elements. */
#ifndef NDP_JOB_WEIGHTS_H
#define NDP_JOB_WEIGHTS_H

#include "checkpoint/checkpoint.h"
#include "step/engine.h"

/* The tensors of a model or of its optimizer's state, to be written to files. */
typedef struct ndp_tensor_list {
    ndp_arena arena;
    ndp_tensor_spec *specs;
    int n;
    ndp_file_piece *pieces; /* what this rank writes; of replicas only the first writes */
    int n_pieces;
    int64_t capacity, piece_capacity;
} ndp_tensor_list;

/* Appends the tensors of one kind, with `prefix` before their names. Borrows the engine. */
NDP_API ndp_status ndp_tensor_list_add(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind,
                                       const char *prefix, ndp_dtype stored);
/* The tensors of a whole model, without pieces; of other kinds than NDP_OWNED_MASTER only those that are trained. */
NDP_API ndp_status ndp_tensor_list_of(ndp_tensor_list *list, const ndp_model *whole, ndp_owned_kind kind,
                                      ndp_dtype stored);
void ndp_tensor_list_release(ndp_tensor_list *list);

/* The type of exported weights: bf16 if that is what the model computes in, else that of the master weights. */
ndp_dtype ndp_export_type(const ndp_model_opts *o);

/* Loads the master weights from a Hugging Face folder and publishes them. One error lists all tensors that are missing,
 * extra or of another shape; another names a tensor with a NaN or infinity. */
NDP_API ndp_status ndp_weights_load(ndp_engine *e, const char *folder);
/* The same from a set of tensors that is open. The values are rounded to `rounded` first, the type of an export. */
NDP_API ndp_status ndp_weights_load_set(ndp_engine *e, const ndp_weights *w, ndp_dtype rounded);
/* Draws random master weights, the same on every layout, and publishes them. */
NDP_API ndp_status ndp_weights_draw(ndp_engine *e, uint64_t seed);

/* A run of elements of a tensor that this rank owns: of its weights, gradients or optimizer state. */
typedef struct ndp_owned_run {
    ndp_engine *engine;
    ndp_owned_kind kind;
    int buffer;
    ndp_run run;
} ndp_owned_run;
/* Calls `visit` for each run of a kind, until one returns an error. */
typedef ndp_status ndp_run_visitor(void *user, const ndp_owned_run *r);
NDP_API ndp_status ndp_engine_runs(ndp_engine *e, ndp_owned_kind kind, ndp_run_visitor *visit, void *user);
/* Reads elements [skip, skip + n) of a run into `out`, contiguous and converted to `type`. */
NDP_API ndp_status ndp_run_get(const ndp_owned_run *r, int64_t skip, int64_t n, void *out, ndp_dtype type);
/* Fills all runs of a kind. `read` reads elements [first, first + count) of the tensor to which `segment` belongs, in
 * the model's master type. */
typedef ndp_status ndp_run_reader(void *user, const ndp_segment *segment, int64_t first, int64_t count, void *out);
NDP_API ndp_status ndp_engine_fill(ndp_engine *e, ndp_owned_kind kind, ndp_run_reader *read, void *user);

#endif
