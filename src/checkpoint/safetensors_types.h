/* The names of element types in safetensors files. Internal to the room. */
#ifndef NDP_CHECKPOINT_SAFETENSORS_TYPES_H
#define NDP_CHECKPOINT_SAFETENSORS_TYPES_H

#include "tensor/dtype.h"

typedef struct ndp_safetensors_type {
    const char *name;
    size_t size;
    ndp_dtype dtype; /* NDP_DTYPES: only its size is known */
} ndp_safetensors_type;

/* The first eight are indexed by their ndp_dtype. */
static const ndp_safetensors_type ndp_safetensors_types[] = {
    {"F32", 4, NDP_F32},     {"BF16", 2, NDP_BF16},      {"F16", 2, NDP_F16},        {"F64", 8, NDP_F64},
    {"I32", 4, NDP_I32},     {"U16", 2, NDP_U16},        {"U8", 1, NDP_U8},          {"I64", 8, NDP_I64},
    {"BOOL", 1, NDP_DTYPES}, {"I8", 1, NDP_DTYPES},      {"I16", 2, NDP_DTYPES},     {"U32", 4, NDP_DTYPES},
    {"U64", 8, NDP_DTYPES},  {"F8_E4M3", 1, NDP_DTYPES}, {"F8_E5M2", 1, NDP_DTYPES}, {"F8_E8M0", 1, NDP_DTYPES},
};

static inline bool ndp_dtype_is_float(ndp_dtype t) {
    return t == NDP_F32 || t == NDP_BF16 || t == NDP_F16 || t == NDP_F64;
}
/* Whether elements stored as `from` can be read as `to`. */
static inline bool ndp_dtype_converts(ndp_dtype from, ndp_dtype to) {
    return from < NDP_DTYPES && (from == to || (ndp_dtype_is_float(from) && ndp_dtype_is_float(to)));
}

#endif
