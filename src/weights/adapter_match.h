/* Which tensors of a model an adapter has something for. */
#ifndef NDP_WEIGHTS_ADAPTER_MATCH_H
#define NDP_WEIGHTS_ADAPTER_MATCH_H

#include "model/architecture.h"
#include "weights/adapter_folder.h"

/* A tensor of the model, as its files hold it, and what the adapter has for it. */
typedef struct ndp_adapted_tensor {
    const char *name;
    int ndim;
    int64_t rows, cols; /* of a matrix: outputs, inputs; of a vector: 1, its length */
    bool transposed;    /* files hold [inputs, outputs] */
    bool by_depth;      /* files hold [rows, 1, cols] */
    bool projection;    /* of a block */
    bool linear;        /* a projection, or a head that is not tied */
    bool expert;        /* one of a stack of matrices */
    /* Of a stack: the name of its parameter (ndp_stack_parameter), NULL: none; its matrices, those of one expert, and
     * which of them the tensor is, 0 if it is all of them. */
    const char *stack;
    int64_t members, group, member;
    bool stacked; /* its factors are those of all experts, as PEFT has them for a parameter */
    const ndp_tensor_entry *parts[NDP_ADAPTER_PARTS]; /* factors, and the tensor whole; NULL: absent */
} ndp_adapted_tensor;

/* Where the model ties its head to the embedding, the last tensor is the head. It is there only if the adapter saves
 * one of the two alone, or both with different values: the two are no longer one then, and without a part the head is
 * the model's embedding as it was. */
typedef struct ndp_adapter_match {
    ndp_adapted_tensor *tensors; /* in the order of the model */
    int n;
    bool own_head;
    ndp_adapted_tensor **by_name; /* all of them but such a head */
    int n_by_name;
    ndp_arena arena;
} ndp_adapter_match;

/* Checks that the adapter is one of this model: each of its tensors belongs to one of the model and has its shape, and
 * no factor is missing. Factors that the model itself has are not of its files. NDP_EINVAL names the tensor, both
 * shapes or the nearest names. Borrows the names of the model and the tensors of the adapter. The caller releases *out.
 */
NDP_API ndp_status ndp_adapter_match_make(const ndp_adapter_folder *a, const ndp_model_spec *s, const ndp_model *m,
                                          ndp_adapter_match *out);
/* The tensor of that name; NULL: the model's files have none. */
ndp_adapted_tensor *ndp_adapter_match_find(const ndp_adapter_match *match, const char *name);
void ndp_adapter_match_release(ndp_adapter_match *match);

#endif
