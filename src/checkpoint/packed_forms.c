/* Forms of packed matrices: each is recognised by the names and shapes of what it is made of. */
#include "checkpoint/packed_forms.h"

#include "base/json.h"
#include "tensor/packed.h"
#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void ndp_packed_add(ndp_dequantised *d, const ndp_named_tensor *part) {
    d->parts[d->n] = *part;
    d->data[d->n++] = ndp_safetensors_data(part->file, part->entry);
}

/* Tensors of files lie at any byte. */
static float f32_at(const unsigned char *data, int64_t i) {
    float value;
    memcpy(&value, data + (size_t)i * sizeof value, sizeof value);
    return value;
}

/* Values are rounded to the type that the matrix is said to have, as the programs that store it have them. */
static float in_type(float x, ndp_dtype type) {
    char rounded[sizeof(double)];
    ndp_convert(&x, NDP_F32, rounded, type, 1);
    ndp_convert(rounded, type, &x, NDP_F32, 1);
    return x;
}

/* ---- what is looked for ---- */

/* Returns the tensor named by the first n bytes of `stem` and `suffix`; NULL: the set lacks it, or no memory. */
static const ndp_named_tensor *beside(ndp_weights *w, const char *stem, size_t n, const char *suffix) {
    const char *name = ndp_arena_format(&w->arena, "%.*s%s", (int)n, stem, suffix);
    return name ? ndp_weights_named(w, name) : NULL;
}

static bool is_type(const ndp_named_tensor *t, const char *type) { return t && strcmp(t->entry->type_name, type) == 0; }

static bool has_shape(const ndp_named_tensor *t, int64_t rows, int64_t cols) {
    const ndp_tensor_spec *s = &t->entry->spec;
    return s->ndim == 2 && s->shape[0] == rows && s->shape[1] == cols;
}

static bool is_number(const ndp_named_tensor *t) { return is_type(t, "F32") && t->entry->elements == 1; }

/* The name without its last word: "layers.0.mlp.up_proj." */
static size_t module_length(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) + 1 : 0;
}

static void ignore_beside(ndp_weights *w, ndp_dequantised *d, const char *name, const char *suffix) {
    const ndp_named_tensor *t = beside(w, name, module_length(name), suffix);
    for (int i = 0; t && i < NDP_FORM_UNREAD; i++)
        if (!d->unread[i]) {
            d->unread[i] = t->entry->spec.name;
            break;
        }
}

/* ---- fp8 ---- */

static void read_fp8(const ndp_dequantised *d, int64_t first, int64_t n, float *out) {
    const ndp_fp8 m = {d->data[0], d->data[1], d->rows, d->cols};
    ndp_fp8_read(&m, first, n, out);
}

static ndp_status find_fp8(ndp_weights *w, const ndp_named_tensor *t, ndp_dequantised *d) {
    const ndp_tensor_spec *m = &t->entry->spec;
    const ndp_named_tensor *scales =
        is_type(t, "F8_E4M3") && m->ndim == 2 ? beside(w, m->name, strlen(m->name), "_scale_inv") : NULL;
    if (!is_type(scales, "F32") || !has_shape(scales, ndp_fp8_blocks(m->shape[0]), ndp_fp8_blocks(m->shape[1])))
        return NDP_OK;
    *d = (ndp_dequantised){"fp8", m->name, NDP_BF16, read_fp8, m->shape[0], m->shape[1], .block = NDP_FP8_BLOCK};
    ndp_packed_add(d, t);
    ndp_packed_add(d, scales);
    return NDP_OK;
}

/* ---- NVFP4 ---- */

enum { NVFP4_BLOCK = 16 };

/* `offset` is the scale of the tensor. */
static void read_nvfp4(const ndp_dequantised *d, int64_t first, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        unsigned byte = d->data[0][(first + i) / 2];
        float scale = ndp_fp8_value(d->data[1][(first + i) / NVFP4_BLOCK]) * d->offset;
        out[i] = in_type(ndp_fp4_values[(first + i) % 2 ? byte >> 4 : byte & 15] * scale, d->dtype);
    }
}

static ndp_status find_nvfp4(ndp_weights *w, const ndp_named_tensor *t, ndp_dequantised *d) {
    static const char packed[] = "_packed";
    const ndp_tensor_spec *m = &t->entry->spec;
    size_t n = strlen(m->name);
    bool other = n >= sizeof packed && strcmp(m->name + n - (sizeof packed - 1), packed) == 0;
    if (m->dtype != NDP_U8 || m->ndim != 2 || m->shape[1] % (NVFP4_BLOCK / 2) != 0)
        return NDP_OK;
    n -= other ? sizeof packed - 1 : 0;
    const ndp_named_tensor *scales = beside(w, m->name, n, "_scale"),
                           *whole = beside(w, m->name, n, other ? "_global_scale" : "_scale_2");
    if (!is_type(scales, "F8_E4M3") || !is_number(whole) ||
        !has_shape(scales, m->shape[0], m->shape[1] / (NVFP4_BLOCK / 2)))
        return NDP_OK;
    *d = (ndp_dequantised){"NVFP4",
                           ndp_arena_format(&w->arena, "%.*s", (int)n, m->name),
                           NDP_BF16,
                           read_nvfp4,
                           m->shape[0],
                           2 * m->shape[1],
                           .block = NVFP4_BLOCK};
    NDP_CHECK_MEMORY(d->name, "for the names of %lld tensors", (long long)w->n);
    ndp_packed_add(d, t);
    ndp_packed_add(d, scales);
    ndp_packed_add(d, whole);
    d->offset = f32_at(d->data[2], 0);
    d->offset = other ? 1 / d->offset : d->offset;
    static const char *const unread[] = {"input_scale", "input_global_scale", "k_scale", "v_scale"};
    for (int i = 0; i < NDP_COUNT(unread); i++)
        ignore_beside(w, d, m->name, unread[i]);
    return NDP_OK;
}

/* ---- bitsandbytes ---- */

enum { BNB_CODES, BNB_ABSMAX, BNB_MAP, BNB_STATE, BNB_NESTED_ABSMAX, BNB_NESTED_MAP };

/* The scale of a block: rounded after the product and after the sum, as bitsandbytes does it. */
static float bnb_absmax(const ndp_dequantised *d, int64_t block) {
    if (d->nest == 0)
        return f32_at(d->data[BNB_ABSMAX], block);
    volatile float product = f32_at(d->data[BNB_NESTED_MAP], d->data[BNB_ABSMAX][block]) *
                             f32_at(d->data[BNB_NESTED_ABSMAX], block / d->nest);
    return product + d->offset;
}

static void read_bnb4(const ndp_dequantised *d, int64_t first, int64_t n, float *out) {
    int64_t block = -1;
    float absmax = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = first + i;
        unsigned byte = d->data[BNB_CODES][at / 2];
        if (at / d->block != block)
            absmax = bnb_absmax(d, block = at / d->block);
        out[i] = in_type(f32_at(d->data[BNB_MAP], at % 2 ? byte & 15 : byte >> 4) * absmax, d->dtype);
    }
}

static void read_bnb8(const ndp_dequantised *d, int64_t first, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        float scale = f32_at(d->data[1], (first + i) / d->cols);
        out[i] = in_type((float)(signed char)d->data[0][first + i] * scale * NDP_INT8_STEP, d->dtype);
    }
}

static ndp_status find_bnb8(ndp_weights *w, const ndp_named_tensor *t, ndp_dequantised *d) {
    const ndp_tensor_spec *m = &t->entry->spec;
    const ndp_named_tensor *scales =
        is_type(t, "I8") && m->ndim == 2 ? beside(w, m->name, module_length(m->name), "SCB") : NULL;
    if (!is_type(scales, "F32") || scales->entry->elements != m->shape[0])
        return NDP_OK;
    *d = (ndp_dequantised){"int8", m->name, NDP_BF16, read_bnb8, m->shape[0], m->shape[1], .block = 1};
    ndp_packed_add(d, t);
    ndp_packed_add(d, scales);
    ignore_beside(w, d, m->name, "weight_format");
    return NDP_OK;
}

static bool is_size(struct json_object *state, const char *key, int64_t *out) {
    struct json_object *value = json_object_object_get(state, key);
    *out = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;
    return *out >= 1 && *out <= 1 << 24;
}

static ndp_dtype stated_dtype(struct json_object *state) {
    const char *dtype = ndp_json_text(json_object_object_get(state, "dtype"));
    return dtype && strcmp(dtype, "float32") == 0   ? NDP_F32
           : dtype && strcmp(dtype, "float16") == 0 ? NDP_F16
                                                    : NDP_BF16;
}

/* Reads the sizes; false: some are missing or senseless. */
static bool read_state(struct json_object *state, ndp_dequantised *d, bool nested) {
    struct json_object *shape = json_object_object_get(state, "shape"),
                       *offset = json_object_object_get(state, "nested_offset");
    if (!json_object_is_type(shape, json_type_array) || json_object_array_length(shape) != 2 ||
        !is_size(state, "blocksize", &d->block) || (nested && !is_size(state, "nested_blocksize", &d->nest)) ||
        (nested && !json_object_is_type(offset, json_type_double) && !json_object_is_type(offset, json_type_int)))
        return false;
    d->rows = json_object_get_int64(json_object_array_get_idx(shape, 0));
    d->cols = json_object_get_int64(json_object_array_get_idx(shape, 1));
    d->offset = nested ? (float)json_object_get_double(offset) : 0;
    d->dtype = stated_dtype(state);
    return d->rows >= 1 && d->cols >= 1 && d->rows <= INT64_MAX / 8 / d->cols;
}

/* Whether the parts have as many elements as the sizes say. */
static bool bnb_fits(const ndp_dequantised *d) {
    enum { VALUES = 16, NESTED_VALUES = 256 };
    const ndp_named_tensor *p = d->parts;
    int64_t n = d->rows * d->cols, blocks = (n + d->block - 1) / d->block;
    bool fits = (int64_t)p[BNB_CODES].entry->bytes == (n + 1) / 2 && p[BNB_ABSMAX].entry->elements == blocks &&
                is_type(&p[BNB_MAP], "F32") && p[BNB_MAP].entry->elements == VALUES;
    return d->nest == 0 ? fits && is_type(&p[BNB_ABSMAX], "F32")
                        : fits && is_type(&p[BNB_ABSMAX], "U8") && is_type(&p[BNB_NESTED_ABSMAX], "F32") &&
                              p[BNB_NESTED_ABSMAX].entry->elements == (blocks + d->nest - 1) / d->nest &&
                              is_type(&p[BNB_NESTED_MAP], "F32") && p[BNB_NESTED_MAP].entry->elements == NESTED_VALUES;
}

static ndp_status find_bnb4(ndp_weights *w, const ndp_named_tensor *t, ndp_dequantised *d) {
    const char *name = t->entry->spec.name;
    size_t n = strlen(name);
    const ndp_named_tensor *state = beside(w, name, n, ".quant_state.bitsandbytes__nf4");
    bool nf4 = state != NULL;
    if (!nf4 && !(state = beside(w, name, n, ".quant_state.bitsandbytes__fp4")))
        return NDP_OK;
    const ndp_named_tensor *const parts[NDP_FORM_PARTS] = {
        t,     beside(w, name, n, ".absmax"),        beside(w, name, n, ".quant_map"),
        state, beside(w, name, n, ".nested_absmax"), beside(w, name, n, ".nested_quant_map")};
    ndp_dequantised found = {nf4 ? "nf4" : "fp4", name, .read = read_bnb4};
    bool whole = true, nested = parts[BNB_NESTED_ABSMAX] && parts[BNB_NESTED_MAP];
    for (int i = 0; i < (nested ? NDP_FORM_PARTS : BNB_NESTED_ABSMAX) && whole; i++)
        if ((whole = parts[i] != NULL))
            ndp_packed_add(&found, parts[i]);
    struct json_object *json = NULL;
    NDP_TRY(ndp_json_parse((const char *)ndp_safetensors_data(state->file, state->entry), state->entry->bytes,
                           state->entry->spec.name, &json));
    whole = whole && read_state(json, &found, nested) && bnb_fits(&found);
    json_object_put(json);
    if (!whole)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: tensor %s is stored in 4 bits by bitsandbytes, but what is stored beside it, or what its "
                        "quant_state says, does not fit its size; copy the file again",
                        ndp_safetensors_path(t->file), name);
    *d = found;
    return NDP_OK;
}

ndp_status ndp_packed_find(ndp_weights *w, const ndp_named_tensor *t, ndp_dequantised *out) {
    static ndp_status (*const forms[])(ndp_weights *, const ndp_named_tensor *,
                                       ndp_dequantised *) = {find_fp8, find_nvfp4, find_bnb4, find_bnb8};
    *out = (ndp_dequantised){0};
    for (int i = 0; i < NDP_COUNT(forms) && !out->form; i++)
        NDP_TRY(forms[i](w, t, out));
    return NDP_OK;
}

/* ---- codes of nf4 ---- */

bool ndp_weights_nf4(const ndp_weights *w, const char *name, int64_t elements, uint8_t *codes, float *nested) {
    const ndp_named_tensor *t = ndp_weights_named(w, name);
    const ndp_dequantised *d = t ? t->packed : NULL;
    if (!d || strcmp(d->form, "nf4") != 0 || d->nest != NDP_PACKED_NEST || d->block != NDP_PACKED_BLOCK ||
        d->rows * d->cols != elements)
        return false;
    for (int i = 0; i < 16; i++)
        if (f32_at(d->data[BNB_MAP], i) != ndp_nf4_values[i])
            return false;
    for (int i = 0; i < 256; i++)
        if (f32_at(d->data[BNB_NESTED_MAP], i) != ndp_dynamic_values[i])
            return false;
    memcpy(codes, d->data[BNB_ABSMAX], (size_t)ndp_packed_blocks(elements));
    nested[0] = d->offset;
    memcpy(nested + 1, d->data[BNB_NESTED_ABSMAX], (size_t)(ndp_packed_nested(elements) - 1) * sizeof *nested);
    return true;
}
