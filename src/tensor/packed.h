/* Packed matrices: weights of linear maps stored in 4 or 8 bits, as bitsandbytes stores them, bit for bit.
 *
 *   nf4    the elements in order, in blocks of 64: a code of 4 bits each, for one of 16 values in [-1, 1] (NF4,
 *          arXiv:2305.14314), times the largest magnitude of the block, its absmax. The absmax less their mean, the
 *          offset, are stored in 8 bits: codes of a dynamic map, in blocks of 256, times an fp32 scale each.
 *   int8   each row: codes from -127 to 127, times the absmax of the row / 127 (arXiv:2208.07339).
 *
 * Whole tensors of files are packed, before any cut, of a stack of experts each matrix by itself; blocks follow the
 * rows of the matrix as ops read it (files may hold it transposed), and continue from one row to the next. A rank has a
 * rectangle: its codes and scales, and the fp32 numbers of the whole tensor. In memory these are three parts, one after
 * the other, and the matrices of a stack follow each other:
 *
 *            codes                              scales                      nested
 *   nf4      two a byte, the first of them in   a byte for each block       fp32: the offset, then one for each 256
 *            the high half                                                  blocks of the whole tensor
 *   int8     a byte each, two's complement      fp32: absmax of each row    none
 *
 * job/ packs what it reads, segments.c lays packed matrices out, the op unpack makes the matrix that products read. */
#ifndef NDP_TENSOR_PACKED_H
#define NDP_TENSOR_PACKED_H

#include "tensor/view.h"
#include <stdbool.h>

typedef enum ndp_packing { NDP_PACKING_NONE, NDP_PACKING_NF4, NDP_PACKING_INT8, NDP_PACKINGS } ndp_packing;

enum {
    NDP_PACKED_BLOCK = 64, /* elements of an absmax */
    NDP_PACKED_NEST = 256, /* absmax of a scale */
    NDP_PACKED_ALIGN = 64  /* bytes: where parts begin */
};

/* "nf4", "int8"; "plain" for none: what users write. */
const char *ndp_packing_name(ndp_packing p);

typedef enum ndp_packed_part {
    NDP_PACKED_CODES,
    NDP_PACKED_SCALES,
    NDP_PACKED_NESTED,
    NDP_PACKED_PARTS
} ndp_packed_part;

/* Where the parts of packed matrices are. */
typedef struct ndp_packed {
    int64_t at[NDP_PACKED_PARTS];    /* bytes from the start of a matrix */
    ndp_view part[NDP_PACKED_PARTS]; /* a row for each matrix; no rows: absent */
    int64_t bytes;                   /* of a matrix, a multiple of NDP_PACKED_ALIGN */
} ndp_packed;
/* Of `n` rectangles of rows x cols, each of a tensor of `whole` elements. */
ndp_packed ndp_packed_of(ndp_packing p, int64_t n, int64_t rows, int64_t cols, int64_t whole);

static inline int64_t ndp_packed_blocks(int64_t elements) {
    return (elements + NDP_PACKED_BLOCK - 1) / NDP_PACKED_BLOCK;
}
/* The number in the whole tensor of the block of row t, column j of a rectangle with so many columns (op unpack says
 * what the others are). */
#define NDP_PACKED_NUMBER(first, row_blocks, group, cols, t, j)                                                        \
    ((first) + ((row_blocks) == 0 ? ((t) * (cols) + (j)) / NDP_PACKED_BLOCK                                            \
                : (group) > 0     ? (t) / (group) * (row_blocks) + ((t) % (group) * (cols) + (j)) / NDP_PACKED_BLOCK   \
                                  : (t) * (row_blocks) + (j) / NDP_PACKED_BLOCK))
/* Elements of the part NESTED of a tensor of so many. */
static inline int64_t ndp_packed_nested(int64_t elements) {
    return 1 + (ndp_packed_blocks(elements) + NDP_PACKED_NEST - 1) / NDP_PACKED_NEST;
}

extern const float ndp_nf4_values[16], ndp_dynamic_values[256]; /* of codes, ascending */

/* ---- packing ---- */

/* The absmax of each block of x; x begins where a block does. A block of fewer than 64 elements is the tensor's last.
 */
void ndp_nf4_absmax(const float *x, int64_t n, float *absmax);
/* Codes of all absmax of a tensor, and its part NESTED: the nearest codes for the fp32 scales. */
void ndp_nf4_nest(const float *absmax, int64_t blocks, uint8_t *codes, float *nested);
/* Codes of the elements, two a byte. `absmax`: those of their blocks, before they are packed themselves. */
void ndp_nf4_pack(const float *x, int64_t n, const float *absmax, uint8_t *codes);

/* Returns the absmax of a row, or of a part of one. */
float ndp_int8_absmax(const float *x, int64_t n);
void ndp_int8_pack(const float *x, int64_t n, float absmax, int8_t *codes);

/* ---- unpacking ---- */

/* The absmax of n blocks of which the first is block `first` of the tensor: rounded after the product and after the
 * sum, on every machine. */
void ndp_nf4_unpack_scales(const uint8_t *codes, const float *nested, int64_t first, int64_t n, float *out);
/* What a code of int8 is multiplied by, after the absmax of its row. */
#define NDP_INT8_STEP 7.874015718698502e-3f

#endif
