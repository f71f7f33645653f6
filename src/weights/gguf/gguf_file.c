/* Writing a GGUF file: keys, the table of tensors, and their elements, which go from the folder's files to this one in
 * pieces of at most PIECE elements, or a matrix where it is transposed. Called by gguf_export.c and by tests. */
#include "weights/gguf/gguf.h"

#include "base/fault.h"
#include "checkpoint/shards.h"
#include "tensor/dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

/* ---- keys ---- */

static void add_u32(ndp_str *s, uint32_t v) { ndp_str_add_bytes(s, &v, sizeof v); }
static void add_u64(ndp_str *s, uint64_t v) { ndp_str_add_bytes(s, &v, sizeof v); }

static void add_text(ndp_str *s, const char *text, size_t n) {
    add_u64(s, n);
    ndp_str_add_bytes(s, text, n);
}

/* A key that does not begin with a room of its own, "general." or "tokenizer.", is one of the architecture. */
static void begin(ndp_gguf *g, const char *key, uint32_t type) {
    char whole[128];
    bool own = strncmp(key, "general.", 8) == 0 || strncmp(key, "tokenizer.", 10) == 0;
    snprintf(whole, sizeof whole, "%s%s%s", own ? "" : g->family->architecture, own ? "" : ".", key);
    add_text(&g->keys, whole, strlen(whole));
    add_u32(&g->keys, type);
    g->n_keys++;
}

void ndp_gguf_put_u32(ndp_gguf *g, const char *key, int64_t value) {
    begin(g, key, NDP_GGUF_U32);
    add_u32(&g->keys, (uint32_t)value);
}

void ndp_gguf_put_float(ndp_gguf *g, const char *key, double value) {
    float v = (float)value;
    begin(g, key, NDP_GGUF_FLOAT);
    ndp_str_add_bytes(&g->keys, &v, sizeof v);
}

void ndp_gguf_put_bool(ndp_gguf *g, const char *key, bool value) {
    begin(g, key, NDP_GGUF_BOOL);
    ndp_str_add_bytes(&g->keys, &(char){value}, 1);
}

void ndp_gguf_put_text(ndp_gguf *g, const char *key, const char *text, size_t n) {
    begin(g, key, NDP_GGUF_TEXT);
    add_text(&g->keys, text, n);
}

void ndp_gguf_put_list(ndp_gguf *g, const char *key, int type, int64_t n) {
    enum { LIST = 9 };
    begin(g, key, LIST);
    add_u32(&g->keys, (uint32_t)type);
    add_u64(&g->keys, (uint64_t)n);
}

void ndp_gguf_add_text(ndp_gguf *g, const char *text, size_t n) { add_text(&g->keys, text, n); }

/* ---- elements ---- */

/* The integer nearest to x, which has no more than 7 bits; halves go away from zero. */
static int round_away(float x) {
    float size = fabsf(x);
    int whole = (int)size;
    whole += size - (float)whole >= 0.5f;
    return x < 0 ? -whole : whole;
}

static void encode_block(const float *block, unsigned char *out) {
    float most = 0;
    for (int i = 0; i < NDP_GGUF_BLOCK; i++)
        most = fabsf(block[i]) > most ? fabsf(block[i]) : most;
    float d = most / 127, inverse = d > 0 && isfinite(1 / d) ? 1 / d : 0;
    ndp_convert(&d, NDP_F32, out, NDP_F16, 1);
    for (int i = 0; i < NDP_GGUF_BLOCK; i++)
        out[2 + i] = (unsigned char)(signed char)round_away(block[i] * inverse);
}

void ndp_gguf_encode_q8_0(const float *x, int64_t blocks, unsigned char *out) {
#pragma omp parallel for if (blocks > PIECE / NDP_GGUF_BLOCK / 4)
    for (int64_t b = 0; b < blocks; b++)
        encode_block(x + b * NDP_GGUF_BLOCK, out + b * NDP_GGUF_BLOCK_BYTES);
}

static int64_t bytes_of(ndp_gguf_type type, int64_t elements) {
    return type == NDP_GGUF_Q8_0  ? elements / NDP_GGUF_BLOCK * NDP_GGUF_BLOCK_BYTES
           : type == NDP_GGUF_F32 ? elements * 4
                                  : elements * 2;
}

static int64_t elements_of(const ndp_gguf_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->dims; i++)
        n *= t->shape[i];
    return n;
}

/* q8_0 of numbers above 127 times fp16's largest has an infinite d. */
static ndp_status encode(const ndp_gguf_tensor *t, const float *x, int64_t n, void *out) {
    double most = t->type == NDP_GGUF_F16 ? 65504 : t->type == NDP_GGUF_Q8_0 ? 65504 * 127.0 : INFINITY;
    for (int64_t i = 0; i < n && isfinite(most); i++)
        if (fabsf(x[i]) > most)
            return NDP_FAIL(NDP_EFORMAT, "%s has the number %g, beyond the range of its type (%g); use bf16", t->name,
                            (double)x[i], most);
    if (t->type == NDP_GGUF_Q8_0)
        ndp_gguf_encode_q8_0(x, n / NDP_GGUF_BLOCK, out);
    else
        ndp_convert(x, NDP_F32, out,
                    t->type == NDP_GGUF_F32   ? NDP_F32
                    : t->type == NDP_GGUF_F16 ? NDP_F16
                                              : NDP_BF16,
                    n);
    return NDP_OK;
}

/* ---- the folder's elements ---- */

typedef struct gguf_reader {
    const ndp_weights *weights;
    const ndp_gguf_tensor *t;
    float *matrix; /* of a transposed one, its elements from `at` on, of a member */
    int64_t at;
    const char *member;
} gguf_reader;

/* The element with which a row of a member begins; *outer: that of its matrix. */
static int64_t row_start(const ndp_gguf_tensor *t, int64_t row, int64_t *outer) {
    int64_t rest = row / t->extent[1];
    *outer = t->first + rest % t->extent[2] * t->stride[2] + rest / t->extent[2] * t->stride[3];
    return *outer + row % t->extent[1] * t->stride[1];
}

static ndp_status read_run(const gguf_reader *r, const char *member, int64_t first, int64_t n, float *out) {
    NDP_TRY(ndp_weights_read(r->weights, member, first, n, out, NDP_F32, true));
    ndp_weights_forget(r->weights, member, first, n);
    return NDP_OK;
}

/* One whose elements are apart: its matrix is read as a whole, once. */
static ndp_status read_apart(gguf_reader *r, const char *member, int64_t start, int64_t outer, float *out) {
    const ndp_gguf_tensor *t = r->t;
    if (r->member != member || r->at != outer) {
        int64_t span = (t->extent[0] - 1) * t->stride[0] + (t->extent[1] - 1) * t->stride[1] + 1;
        float *matrix = realloc(r->matrix, (size_t)span * sizeof *matrix);
        NDP_CHECK_MEMORY(matrix, "for the %lld elements of a matrix of %s", (long long)span, member);
        r->matrix = matrix, r->member = member, r->at = outer;
        NDP_TRY(read_run(r, member, outer, span, matrix));
    }
    for (int64_t i = 0; i < t->extent[0]; i++)
        out[i] = r->matrix[start - outer + i * t->stride[0]];
    return NDP_OK;
}

/* Rows [row, row + n) of all members; those that follow each other in one are read at once. */
static ndp_status read_rows(gguf_reader *r, int64_t row, int64_t n, float *out) {
    const ndp_gguf_tensor *t = r->t;
    int64_t columns = t->extent[0], rows = t->extent[1] * t->extent[2] * t->extent[3];
    for (int64_t done = 0, count; done < n; done += count) {
        int64_t at = row + done, outer, start = row_start(t, at % rows, &outer);
        const char *member = t->members[at / rows];
        count = 1;
        if (t->stride[0] != 1 && columns > 1) {
            NDP_TRY(read_apart(r, member, start, outer, out + done * columns));
            continue;
        }
        int64_t next;
        while (done + count < n && at % rows + count < rows &&
               row_start(t, at % rows + count, &next) == start + count * columns)
            count++;
        NDP_TRY(read_run(r, member, start, count * columns, out + done * columns));
    }
    for (int64_t i = 0; i < n * columns && t->add != 0; i++)
        out[i] += t->add;
    return NDP_OK;
}

/* ---- the file ---- */

typedef struct writer {
    const ndp_gguf *g;
    const char *path;
    int fd;
    int64_t size;
    float *elements; /* of a piece; */
    void *bytes;     /* the same in the file's type */
    int64_t room;    /* elements of each */
} writer;

static ndp_status need_room(writer *w, int64_t n) {
    if (n <= w->room)
        return NDP_OK;
    float *elements = realloc(w->elements, (size_t)n * sizeof *elements);
    w->elements = elements ? elements : w->elements;
    void *bytes = realloc(w->bytes, (size_t)n * sizeof *elements);
    w->bytes = bytes ? bytes : w->bytes;
    NDP_CHECK_MEMORY(elements && bytes, "for %lld elements of a tensor", (long long)n);
    w->room = n;
    return NDP_OK;
}

static ndp_status write_at(const writer *w, const void *data, int64_t n, int64_t at) {
    return ndp_write_at(w->fd, data, (size_t)n, at) ? ndp_write_failed(w->path, w->size) : NDP_OK;
}

static ndp_status write_rows(writer *w, gguf_reader *r, int64_t row, int64_t n, int64_t *at) {
    int64_t elements = n * r->t->extent[0], bytes = bytes_of(r->t->type, elements);
    NDP_TRY(need_room(w, elements));
    NDP_TRY(read_rows(r, row, n, w->elements));
    NDP_TRY(encode(r->t, w->elements, elements, w->bytes));
    NDP_TRY(write_at(w, w->bytes, bytes, *at));
    *at += bytes;
    return NDP_OK;
}

static ndp_status write_tensor(writer *w, const ndp_gguf_tensor *t, int64_t at) {
    if (t->values)
        return write_at(w, t->values, bytes_of(NDP_GGUF_F32, elements_of(t)), at);
    gguf_reader r = {.weights = w->g->weights, .t = t};
    int64_t rows = elements_of(t) / t->extent[0], most = PIECE / t->extent[0] ? PIECE / t->extent[0] : 1;
    ndp_status st = NDP_OK;
    for (int64_t row = 0; row < rows && st == NDP_OK; row += most)
        st = write_rows(w, &r, row, rows - row < most ? rows - row : most, &at);
    free(r.matrix);
    return st;
}

static int64_t aligned(int64_t n) { return (n + NDP_GGUF_ALIGN - 1) / NDP_GGUF_ALIGN * NDP_GGUF_ALIGN; }

/* All that is before the data, filled up to where that begins; *size: of the data. */
static void add_head(const ndp_gguf *g, ndp_str *s, int64_t *size) {
    enum { VERSION = 3 };
    ndp_str_add(s, "GGUF");
    add_u32(s, VERSION);
    add_u64(s, (uint64_t)g->n);
    add_u64(s, (uint64_t)g->n_keys);
    ndp_str_add_bytes(s, g->keys.data, g->keys.length);
    *size = 0;
    for (int64_t i = 0; i < g->n; i++) {
        const ndp_gguf_tensor *t = &g->tensors[i];
        add_text(s, t->name, strlen(t->name));
        add_u32(s, (uint32_t)t->dims);
        for (int d = 0; d < t->dims; d++)
            add_u64(s, (uint64_t)t->shape[d]);
        add_u32(s, t->type);
        add_u64(s, (uint64_t)*size);
        *size += aligned(bytes_of(t->type, elements_of(t)));
    }
    while (s->length % NDP_GGUF_ALIGN && !s->failed)
        ndp_str_add_bytes(s, "", 1);
}

static ndp_status fill(writer *w, const ndp_str *head) {
    int64_t at = (int64_t)head->length;
    if (ndp_file_reserve(w->fd, w->size))
        return ndp_write_failed(w->path, w->size);
    NDP_TRY(write_at(w, head->data, at, 0));
    for (int64_t i = 0; i < w->g->n; i++) {
        const ndp_gguf_tensor *t = &w->g->tensors[i];
        NDP_TRY(write_tensor(w, t, at));
        at += aligned(bytes_of(t->type, elements_of(t)));
    }
    if (ndp_fault(NDP_FAULT_SYNC) || fsync(w->fd))
        return NDP_FAIL(NDP_EIO, "cannot make '%s' durable: %s", w->path, strerror(errno));
    return NDP_OK;
}

ndp_status ndp_gguf_write(const ndp_gguf *g, const char *path) {
    writer w = {.g = g, .path = path};
    ndp_str head = {0};
    add_head(g, &head, &w.size);
    w.size += (int64_t)head.length;
    ndp_status st = g->keys.failed || head.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for '%s'", path) : NDP_OK;
    w.fd = st != NDP_OK || ndp_fault(NDP_FAULT_WRITE) ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (st == NDP_OK)
        st = w.fd < 0 ? ndp_write_failed(path, w.size) : fill(&w, &head);
    if (w.fd >= 0)
        close(w.fd);
    free(w.elements);
    free(w.bytes);
    ndp_str_release(&head);
    return st;
}

void ndp_gguf_release(ndp_gguf *g) {
    ndp_arena_release(&g->arena);
    ndp_str_release(&g->keys);
    free(g->tensors);
    *g = (ndp_gguf){0};
}
