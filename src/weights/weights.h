/* Moving weights between files and the slices of an engine that a rank owns. Tensors have their names in the model
 * folder; each rank touches only its own elements. */
#ifndef NDP_WEIGHTS_H
#define NDP_WEIGHTS_H

#include "checkpoint/checkpoint.h"
#include "job/job.h"
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

/* Which tensors of a model. Without an adapter, all are in each of them. */
typedef enum ndp_tensor_part {
    NDP_TENSORS_ALL,
    NDP_TENSORS_FOLDER, /* those of its model folder: no factors */
    NDP_TENSORS_RUN     /* what a run may change and saves: factors, and modules that are trained whole */
} ndp_tensor_part;

/* Appends the tensors of one kind, with ndp_engine_prefix before their names; none that are packed: a run reads these
 * from its model folder again. Borrows the engine. */
NDP_API ndp_status ndp_tensor_list_add(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind,
                                       ndp_tensor_part part, ndp_dtype stored);
/* Appends a vector of n elements that is named like a tensor, with `prefix` before its name; */
ndp_status ndp_tensor_list_vector(ndp_tensor_list *list, const char *prefix, const char *name, int64_t n,
                                  ndp_dtype stored);
/* and a part of one that this rank writes, elements [first, first + count): those of the slice of that kind from `at`
 * on. `after`: the vector is one of the list's tensors from that number on. */
NDP_API ndp_status ndp_tensor_list_part(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind, int buffer,
                                        int after, const char *prefix, const char *name, int64_t first, int64_t at,
                                        int64_t count);
/* Appends a piece: the elements of tensor number `tensor` of the list are those of `e` in a set, which gives their
 * memory back as they are read. `finite`: others are refused (ndp_weights_read). Borrows both. */
ndp_status ndp_tensor_list_stored(ndp_tensor_list *list, int tensor, const ndp_weights *w, const ndp_tensor_entry *e,
                                  bool finite);
/* The type in checkpoints. Scales of codes are as wide as gradients. */
static inline ndp_dtype ndp_checkpoint_type(const ndp_model_opts *o, ndp_owned_kind kind) {
    bool state = kind == NDP_OWNED_STATE0 || kind == NDP_OWNED_STATE1;
    bool bf16 = kind == NDP_OWNED_MASTER ? o->weights == NDP_BF16 : state && o->states == NDP_BF16;
    return bf16 ? NDP_BF16 : kind == NDP_OWNED_CODES0 || kind == NDP_OWNED_CODES1 ? NDP_U8 : o->master;
}
/* The tensors of a whole model, without pieces; of other kinds than NDP_OWNED_MASTER only those that are trained. */
NDP_API ndp_status ndp_tensor_list_of(ndp_tensor_list *list, const ndp_model *whole, ndp_owned_kind kind,
                                      ndp_tensor_part part, ndp_dtype stored);
/* Checks that a set has the tensors of that part of a model, and no others but those that its architecture ignores.
 * NDP_EFORMAT lists what differs. */
NDP_API ndp_status ndp_weights_fit(const ndp_weights *w, const ndp_model *whole, ndp_tensor_part part);
/* Gives the tensors of files the names that the model has (ndp_weights_rename). */
NDP_API ndp_status ndp_weights_rename_for(ndp_weights *w, const ndp_model *whole);
/* The same for a model's files: of experts that they hold as one stack a tensor each, and what is packed dequantised.
 * NDP_ENOMEM. */
NDP_API ndp_status ndp_weights_name(ndp_weights *w, const ndp_model *whole);
/* Gives the tensors of a list the names that the set's files have for them, and appends those of the set that the model
 * carries (the architecture's `carries`), as they are. `writes`: with their pieces, which one rank of a world has.
 * Borrows the set. */
NDP_API ndp_status ndp_tensor_list_carry(ndp_tensor_list *list, const ndp_weights *w, const ndp_model *whole,
                                         bool writes);
/* Gives all tensors the names that PEFT's files have: NDP_ADAPTER_PREFIX before them, where it is not. NDP_ENOMEM. */
NDP_API ndp_status ndp_tensor_list_wrap(ndp_tensor_list *list);
/* Appends a tensor `again`, whose shape and elements are those of the tensor `name`. */
NDP_API ndp_status ndp_tensor_list_repeat(ndp_tensor_list *list, const char *name, const char *again);
void ndp_tensor_list_release(ndp_tensor_list *list);
/* Bytes of the tensors of a checkpoint, all ranks' together: weights and optimizer states. */
NDP_API ndp_status ndp_checkpoint_bytes(const ndp_engine *e, int64_t *bytes);
/* The bytes of them that this rank has, or would have if it were of the first replica, which alone saves. */
NDP_API int64_t ndp_checkpoint_own_bytes(const ndp_engine *e);

/* Where the weights of an engine come from. */
typedef struct ndp_weight_sources {
    const char *folder; /* a Hugging Face folder; NULL: random weights */
    uint64_t seed;      /* of random weights, and of the factors of a new adapter */
    /* What a run has changed (NDP_TENSORS_RUN): an open set of tensors, whose values are rounded to `rounded` first,
     * the type of an export. NULL: as it begins. */
    const ndp_weights *own;
    ndp_dtype rounded;
    const char *adapter; /* in place of `own`: a PEFT folder */
} ndp_weight_sources;

/* Fills the master weights, the same on every layout, and publishes them. One error lists all tensors that are missing,
 * extra or of another shape; another names a tensor with a NaN or infinity. A new adapter begins as PEFT's does: A is
 * uniform in +- 1 / sqrt(columns), B is 0, and the lengths of DoRA are those of the rows of the base. */
NDP_API ndp_status ndp_weights_start(ndp_engine *e, const ndp_weight_sources *s);
/* NDP_EIO if weights are to be loaded and model.path has none; and the errors of an adapter in adapter.path. Call it
 * before the tokenizer is opened: such a folder often lacks both, and the missing weights are the error to report. */
NDP_API ndp_status ndp_job_find_weights(const ndp_job *j);
/* Where a job's weights come from, before any step. Borrows the job. */
ndp_weight_sources ndp_job_weights(const ndp_job *j);
/* The same from a folder, or at random. */
NDP_API ndp_status ndp_weights_load(ndp_engine *e, const char *folder);
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
/* The other way. */
NDP_API ndp_status ndp_run_put(const ndp_owned_run *r, int64_t skip, int64_t n, const void *in, ndp_dtype type);
/* Fills all runs of a kind that are of that part of the model (packed weights have none). `read` reads elements [first,
 * first + count) of the tensor to which `segment` belongs, in the model's master type, and codes as they are. Of a
 * pattern `segment` is the member that the tensor is (ndp_segment_of_tensor). */
typedef ndp_status ndp_run_reader(void *user, const ndp_segment *segment, int64_t first, int64_t count, void *out);
NDP_API ndp_status ndp_engine_fill(ndp_engine *e, ndp_owned_kind kind, ndp_tensor_part part, ndp_run_reader *read,
                                   void *user);

#endif
