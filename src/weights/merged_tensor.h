/* Inside the weights room: a tensor of a model with an adapter merged, as the source of its elements in a file. */
#ifndef NDP_WEIGHTS_MERGED_TENSOR_H
#define NDP_WEIGHTS_MERGED_TENSOR_H

#include "weights/adapter_match.h"

/* What the tensors of one merge share. */
typedef struct ndp_merge {
    const ndp_weights *base, *adapter;
    ndp_adapter_form form;
    double scale;
    struct ndp_merged_tensor *loaded; /* whose factors are in memory; NULL: none */
    int64_t first, rows, cols, r;     /* of that tensor, or the matrix of a stack from element `first` on, as its file
                                         has it; columns of `left` */
    double *left, *right;             /* [rows,r], [r,cols]: their product, scale included, is what is added */
    double *gain;                     /* of each output, with lengths: what W' is multiplied by; NULL: nothing */
    double *block;
} ndp_merge;
void ndp_merge_release(ndp_merge *m);

typedef struct ndp_merged_tensor {
    ndp_piece_source source; /* of its elements, in the type `base` has; set by ndp_merged_tensor_init */
    ndp_merge *merge;        /* borrowed */
    const ndp_adapted_tensor *tensor;
    const ndp_tensor_entry *base;
} ndp_merged_tensor;

/* Makes the tensor that `tensor` becomes, with the type of `base`, as tensor `number` of a list. Elements are read in
 * the order of the file, so that its factors are loaded once. NDP_EFORMAT, on reading: an element of what is merged, or
 * of the result, is not finite. */
ndp_file_piece ndp_merged_tensor_init(ndp_merged_tensor *t, ndp_merge *m, const ndp_adapted_tensor *tensor,
                                      const ndp_tensor_entry *base, int number);

#endif
