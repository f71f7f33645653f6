/* Inside the checkpoint room: the forms in which published folders store matrices in fewer bits. Several tensors of
 * files are one matrix, which is computed where it is read.
 *
 *   fp8        NAME [rows, cols] of E4M3, NAME_scale_inv in fp32 for each block of 128 x 128 (fp8.h): DeepSeek-V3,
 * Qwen3 NVFP4      NAME [rows, cols / 2] of pairs of E2M1, the low half first; NAME_scale [rows, cols / 16] of E4M3 for
 * each 16 of a row, times NAME_scale_2, one fp32: modelopt. Or NAME_packed, NAME_scale and NAME_global_scale, by which
 * scales are divided: compressed-tensors nf4, fp4   NAME, bytes of pairs of codes, the high half first, for values of
 * NAME.quant_map; NAME.absmax for each block, in fp32, or as codes for values of NAME.nested_quant_map, times
 * NAME.nested_absmax, plus an offset; NAME.quant_state.bitsandbytes__nf4 is JSON with the shape and the sizes of
 * blocks: bitsandbytes int8       NAME [rows, cols] in 8 bits, times MODULE.SCB / 127 for each row: bitsandbytes MXFP4
 * stacks of experts (mxfp4.h): gpt-oss
 *
 * Scales of activations beside them (input_scale and the like) are not read. */
#ifndef NDP_CHECKPOINT_PACKED_FORMS_H
#define NDP_CHECKPOINT_PACKED_FORMS_H

#include "checkpoint/folder_stacks.h"
#include "checkpoint/fp8.h"
#include "checkpoint/mxfp4.h"

enum { NDP_FORM_PARTS = 6, NDP_FORM_UNREAD = 4 };

struct ndp_dequantised {
    const char *form; /* "NVFP4", for messages */
    const char *name; /* of the matrix, from the set's arena */
    ndp_dtype dtype;  /* that it is said to have */
    /* Elements [first, first + n), row by row. */
    void (*read)(const struct ndp_dequantised *d, int64_t first, int64_t n, float *out);
    int64_t rows, cols; /* of MXFP4 inputs, outputs */
    int64_t block, nest;
    float offset;
    ndp_named_tensor parts[NDP_FORM_PARTS]; /* what it is made of, the codes first */
    const unsigned char *data[NDP_FORM_PARTS];
    int n;
    const char *unread[NDP_FORM_UNREAD]; /* names of others that belong to it; NULL: none */
};

/* Recognises tensor `t` as the codes of a matrix: fills *out; its form is NULL if it is not one, or its parts do not
 * fit together. NDP_EFORMAT: it is one and damaged; NDP_ENOMEM. */
ndp_status ndp_packed_find(ndp_weights *w, const ndp_named_tensor *t, ndp_dequantised *out);
/* Adds a part. */
void ndp_packed_add(ndp_dequantised *d, const ndp_named_tensor *part);

#endif
