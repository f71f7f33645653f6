/* Packing what is read, piece by piece of this rank's slices.
 *
 * Elements are numbered as ops read the matrix, row by row; files may hold it transposed, and then strips of rows are
 * read. What depends on the whole tensor, the absmax of its blocks, is kept for the next segment: parts of a fused
 * tensor share it. */
#include "weights/packed_weights.h"

#include "checkpoint/agree.h"
#include "model/tensors.h"
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8192 /* elements that are read at a time */, STRIP = 64 /* rows of a transposed tensor */ };

/* ---- reading a matrix ---- */

/* Where member `i` of those held here begins in its tensor of files, which may be the whole stack's. */
static int64_t member_origin(const ndp_segment *s, int64_t i) {
    int64_t elements = s->whole[0] * s->whole[1];
    return ndp_segment_tensor_elements(s) > elements ? (s->stack_first + i) * elements : 0;
}

typedef struct matrix_reader {
    ndp_run_reader *read;
    ndp_scales_reader *scales; /* NULL: none are known */
    void *user;
    ndp_dtype type;             /* that `read` gives */
    const ndp_segment *segment; /* the matrix, or the stack that it is a member of */
    ndp_segment tensor;         /* of files, where it is: */
    int64_t origin;             /* its first element there */
    char room[NDP_SEGMENT_NAME];
    /* Of a transposed one: rows [row, row + rows), one after the other. */
    float *strip;
    int64_t row, rows, capacity;
} matrix_reader;

static ndp_status read_file(const matrix_reader *m, int64_t first, int64_t n, float *out) {
    double block[BLOCK];
    NDP_TRY(m->read(m->user, &m->tensor, m->origin + first, n, block));
    ndp_convert(block, m->type, out, NDP_F32, n);
    return NDP_OK;
}

/* Reads the strip that has row `row`: STRIP elements of each column, which are neighbours in the file. */
static ndp_status read_strip(matrix_reader *m, int64_t row) {
    const int64_t *whole = m->segment->whole;
    float column[STRIP];
    NDP_TRY(ndp_array_reserve(&m->strip, &m->capacity, STRIP * whole[1], sizeof *m->strip));
    m->row = row / STRIP * STRIP;
    m->rows = whole[0] - m->row < STRIP ? whole[0] - m->row : STRIP;
    for (int64_t c = 0; c < whole[1]; c++) {
        NDP_TRY(read_file(m, c * whole[0] + m->row, m->rows, column));
        for (int64_t r = 0; r < m->rows; r++)
            m->strip[r * whole[1] + c] = column[r];
    }
    return NDP_OK;
}

/* Elements [first, first + n) of the whole matrix; n is at most BLOCK. */
static ndp_status read_elements(matrix_reader *m, int64_t first, int64_t n, float *out) {
    int64_t cols = m->segment->whole[1];
    if (!m->segment->transposed)
        return read_file(m, first, n, out);
    for (int64_t done = 0, now; done < n; done += now) {
        int64_t row = (first + done) / cols, col = (first + done) % cols;
        now = cols - col < n - done ? cols - col : n - done;
        if (row < m->row || row >= m->row + m->rows)
            NDP_TRY(read_strip(m, row));
        memcpy(out + done, m->strip + (row - m->row) * cols + col, (size_t)now * sizeof *out);
    }
    return NDP_OK;
}

/* ---- what depends on the whole tensor ---- */

typedef struct tensor_scales {
    const char *name; /* of the tensor, or of the stack; NULL: none yet */
    int64_t member;   /* of that */
    float *absmax;    /* of each block */
    uint8_t *codes;   /* of those */
    float *nested;
} tensor_scales;

static void scales_release(tensor_scales *s) {
    free(s->absmax);
    free(s->codes);
    free(s->nested);
    *s = (tensor_scales){0};
}

static ndp_status find_scales(matrix_reader *m, int64_t member, tensor_scales *s) {
    const ndp_segment *of = m->segment;
    int64_t n = of->whole[0] * of->whole[1], blocks = ndp_packed_blocks(n);
    float x[BLOCK];
    if (s->name && s->member == member && strcmp(s->name, of->name) == 0)
        return NDP_OK;
    scales_release(s);
    s->absmax = malloc((size_t)(blocks + 1) * sizeof *s->absmax);
    s->codes = malloc((size_t)blocks + 1);
    s->nested = malloc((size_t)ndp_packed_nested(n) * sizeof *s->nested);
    NDP_CHECK_MEMORY(s->absmax && s->codes && s->nested, "to pack %s", of->name);
    bool known =
        m->scales && !of->transposed && m->origin == 0 && m->scales(m->user, &m->tensor, n, s->codes, s->nested);
    for (int64_t first = 0; first < n && !known; first += BLOCK) {
        int64_t count = n - first < BLOCK ? n - first : BLOCK;
        NDP_TRY(read_elements(m, first, count, x));
        ndp_nf4_absmax(x, count, s->absmax + first / NDP_PACKED_BLOCK);
    }
    if (known)
        ndp_nf4_unpack_scales(s->codes, s->nested, 0, blocks, s->absmax);
    else
        ndp_nf4_nest(s->absmax, blocks, s->codes, s->nested);
    s->name = of->name, s->member = member;
    return NDP_OK;
}

/* ---- a piece of a packed matrix ---- */

typedef struct packer {
    ndp_engine *engine;
    int buffer;
    matrix_reader matrix;
    tensor_scales scales;
    ndp_packed layout;
    int64_t origin;     /* of the packed matrix in the slice */
    int64_t begin, end; /* bytes of it that are there */
    /* What is packed and not written yet: bytes of the matrix from `ready_at` on. */
    uint8_t bytes[BLOCK];
    int64_t ready_at, ready;
} packer;

static ndp_status flush(packer *k) {
    if (k->ready == 0)
        return NDP_OK;
    NDP_TRY(ndp_engine_write(k->engine, NDP_OWNED_MASTER, k->buffer, k->origin + k->ready_at, k->ready, 1, k->bytes));
    k->ready = 0;
    return NDP_OK;
}

/* Takes bytes from `at` of the packed matrix on, at most BLOCK. They are written with others that follow each other. */
static ndp_status put(packer *k, int64_t at, int64_t n, const void *bytes) {
    if (at != k->ready_at + k->ready || k->ready + n > BLOCK)
        NDP_TRY(flush(k));
    if (k->ready == 0)
        k->ready_at = at;
    memcpy(k->bytes + k->ready, bytes, (size_t)n);
    k->ready += n;
    return NDP_OK;
}

/* The number in the whole tensor of block `block` of the segment, and how many from it on follow each other there. */
static int64_t block_number(const ndp_segment *s, int64_t block, int64_t *together) {
    int64_t first = ndp_segment_first_block(s), row = ndp_segment_row_blocks(s), group = ndp_segment_row_group(s);
    int64_t own = (group > 0 ? group : 1) * s->cols / NDP_PACKED_BLOCK;
    *together = row > 0 ? own - block % own : INT64_MAX;
    return row > 0 ? first + block / own * row + block % own : first + block;
}

/* Codes of nf4, bytes [low, high), which begin with a block. */
static ndp_status pack_nf4(packer *k, int64_t low, int64_t high) {
    enum { BYTES = NDP_PACKED_BLOCK / 2, BLOCKS = BLOCK / NDP_PACKED_BLOCK };
    const ndp_segment *s = k->matrix.segment;
    int64_t all = s->whole[0] * s->whole[1], end = (high + BYTES - 1) / BYTES, together;
    float x[BLOCK];
    uint8_t codes[BLOCK / 2];
    for (int64_t block = low / BYTES, n; block < end; block += n) {
        int64_t number = block_number(s, block, &together), first = number * NDP_PACKED_BLOCK;
        n = end - block < BLOCKS ? end - block : BLOCKS;
        n = n < together ? n : together;
        int64_t count = all - first < n * NDP_PACKED_BLOCK ? all - first : n * NDP_PACKED_BLOCK;
        NDP_TRY(read_elements(&k->matrix, first, count, x));
        ndp_nf4_pack(x, count, k->scales.absmax + number, codes);
        NDP_TRY(put(k, block * BYTES, (count + 1) / 2, codes));
    }
    return NDP_OK;
}

/* Scales of nf4: those of blocks [low, high). */
static ndp_status pack_scales(packer *k, int64_t low, int64_t high) {
    int64_t together;
    for (int64_t block = low, n; block < high; block += n) {
        int64_t number = block_number(k->matrix.segment, block, &together);
        n = high - block < together ? high - block : together;
        n = n < BLOCK ? n : BLOCK;
        NDP_TRY(put(k, k->layout.at[NDP_PACKED_SCALES] + block, n, k->scales.codes + number));
    }
    return NDP_OK;
}

/* The absmax of row `row` of the segment: of all columns, of which this rank may have some. */
static ndp_status row_absmax(packer *k, int64_t row, float *out) {
    const ndp_segment *s = k->matrix.segment;
    float x[BLOCK];
    *out = 0;
    for (int64_t col = 0, n; col < s->whole[1]; col += n) {
        n = s->whole[1] - col < BLOCK ? s->whole[1] - col : BLOCK;
        NDP_TRY(read_elements(&k->matrix, ndp_segment_at(s, 0, row) * s->whole[1] + col, n, x));
        float most = ndp_int8_absmax(x, n);
        *out = most > *out ? most : *out;
    }
    return NDP_OK;
}

/* Codes of int8: bytes [low, high), each an element. */
static ndp_status pack_int8(packer *k, int64_t low, int64_t high) {
    const ndp_segment *s = k->matrix.segment;
    float x[BLOCK], absmax = 0;
    int8_t codes[BLOCK];
    for (int64_t i = low, of = -1, n; i < high; i += n) {
        int64_t row = i / s->cols, col = i % s->cols;
        if (row != of)
            NDP_TRY(row_absmax(k, row, &absmax));
        of = row;
        n = s->cols - col < high - i ? s->cols - col : high - i;
        n = n < BLOCK ? n : BLOCK;
        NDP_TRY(read_elements(&k->matrix, ndp_segment_at(s, 0, row) * s->whole[1] + s->first[1] + col, n, x));
        ndp_int8_pack(x, n, absmax, codes);
        NDP_TRY(put(k, i, n, codes));
    }
    return NDP_OK;
}

/* Scales of int8: bytes [low, high), fp32 of rows. */
static ndp_status pack_rows(packer *k, int64_t low, int64_t high) {
    for (int64_t row = low / 4; row < high / 4; row++) {
        float absmax;
        NDP_TRY(row_absmax(k, row, &absmax));
        NDP_TRY(put(k, k->layout.at[NDP_PACKED_SCALES] + row * 4, 4, &absmax));
    }
    return NDP_OK;
}

static ndp_status pack_nested(packer *k, int64_t low, int64_t high) {
    for (int64_t at = low, n; at < high; at += n) {
        n = high - at < BLOCK ? high - at : BLOCK;
        NDP_TRY(put(k, k->layout.at[NDP_PACKED_NESTED] + at, n, (const char *)k->scales.nested + at));
    }
    return NDP_OK;
}

/* Packs the bytes of one part that are in the slice. */
static ndp_status pack_part(packer *k, ndp_packed_part part, ndp_packing how) {
    static ndp_status (*const pack[NDP_PACKINGS][NDP_PACKED_PARTS])(packer *, int64_t, int64_t) = {
        [NDP_PACKING_NF4] = {pack_nf4, pack_scales, pack_nested}, [NDP_PACKING_INT8] = {pack_int8, pack_rows, NULL}};
    const ndp_view *v = &k->layout.part[part];
    int64_t at = k->layout.at[part], bytes = v->cols * (int64_t)ndp_dtype_size(v->dtype);
    int64_t low = k->begin - at > 0 ? k->begin - at : 0, high = k->end - at < bytes ? k->end - at : bytes;
    return low < high ? pack[how][part](k, low, high) : NDP_OK;
}

/* Packs what the piece has of member `i`; an ordinary segment is its own member 0. */
static ndp_status pack_member(packer *k, const ndp_segments *table, const ndp_piece *p, int64_t i) {
    const ndp_shard *shard = ndp_engine_shard(k->engine, k->buffer);
    matrix_reader *m = &k->matrix;
    m->segment = p->segment;
    m->tensor = ndp_segment_of_tensor(p->segment, i, m->room);
    m->origin = member_origin(p->segment, i);
    m->rows = 0;
    k->layout = ndp_segment_packed(table, p->segment);
    k->origin = p->segment->offset + i * k->layout.bytes - shard->index * shard->slice;
    k->begin = p->slice_first - k->origin;
    k->end = k->begin + p->count;
    if (table->packing == NDP_PACKING_NF4)
        NDP_TRY(find_scales(m, p->segment->stack_first + i, &k->scales));
    for (int part = 0; part < NDP_PACKED_PARTS; part++)
        NDP_TRY(pack_part(k, (ndp_packed_part)part, table->packing));
    return flush(k);
}

static ndp_status pack_piece(packer *k, const ndp_segments *table, const ndp_piece *p) {
    const ndp_shard *shard = ndp_engine_shard(k->engine, k->buffer);
    int64_t begin = p->slice_first + shard->index * shard->slice - p->segment->offset,
            bytes = ndp_segment_packed(table, p->segment).bytes;
    for (int64_t i = begin / bytes; i * bytes < begin + p->count; i++)
        NDP_TRY(pack_member(k, table, p, i));
    return NDP_OK;
}

static ndp_status pack_buffer(packer *k) {
    const ndp_segments *table = &ndp_engine_model(k->engine)->buffers[k->buffer].segments;
    const ndp_shard *shard = ndp_engine_shard(k->engine, k->buffer);
    ndp_piece p;
    for (int at = 0; ndp_segments_piece(table, shard->shards, shard->index, &at, &p);)
        NDP_TRY(pack_piece(k, table, &p));
    return NDP_OK;
}

ndp_status ndp_engine_pack(ndp_engine *e, ndp_run_reader *read, ndp_scales_reader *scales, void *user) {
    const ndp_model *m = ndp_engine_model(e);
    packer k = {.engine = e, .matrix = {.read = read, .scales = scales, .user = user, .type = m->opts.master}};
    ndp_status st = NDP_OK;
    for (k.buffer = 0; st == NDP_OK && k.buffer < m->n_buffers; k.buffer++)
        if (ndp_buffer_is_packed(&m->buffers[k.buffer]) && ndp_engine_has(e, NDP_OWNED_MASTER, k.buffer))
            st = pack_buffer(&k);
    free(k.matrix.strip);
    scales_release(&k.scales);
    return st;
}

/* ---- unpacking, for comparisons ---- */

/* The packed matrix of one rank of tp: where it is in the tensor, and its bytes, each a number, so that they are summed
 * over the world. */
enum { FIRST_ROW, FIRST_COL, ROWS, COLS, HEAD };

/* Copies what this rank owns of member `i` of those of the segment that it holds. Of replicas the first has it. */
static ndp_status copy_owned(ndp_engine *e, int buffer, const ndp_segment *s, int64_t i, double *to) {
    const ndp_segments *table = &ndp_engine_model(e)->buffers[buffer].segments;
    const ndp_shard *shard = ndp_engine_shard(e, buffer);
    int64_t bytes = ndp_segment_packed(table, s).bytes, slice = shard->index * shard->slice;
    ndp_piece p;
    for (int at = 0; ndp_segments_piece(table, shard->shards, shard->index, &at, &p);) {
        uint8_t block[BLOCK];
        int64_t first = s->offset + i * bytes - slice, end = first + bytes;
        first = first > p.slice_first ? first : p.slice_first;
        end = end < p.slice_first + p.count ? end : p.slice_first + p.count;
        for (int64_t n; p.segment == s && first < end; first += n) {
            n = end - first < BLOCK ? end - first : BLOCK;
            NDP_TRY(ndp_engine_read(e, NDP_OWNED_MASTER, buffer, first, n, 1, block));
            for (int64_t b = 0; b < n; b++)
                to[HEAD + first + slice - s->offset - i * bytes + b] = block[b];
        }
    }
    if (shard->index == 0) {
        to[FIRST_ROW] = (double)s->first[0], to[FIRST_COL] = (double)s->first[1];
        to[ROWS] = (double)s->rows, to[COLS] = (double)s->cols;
    }
    return NDP_OK;
}

/* This rank's buffer and segment of that name and part; NULL: another stage has it. */
static const ndp_segment *find_own(ndp_engine *e, const ndp_segment *whole, int *buffer) {
    for (ndp_segment_walk w = {.model = ndp_engine_model(e)}; ndp_segment_next(&w);) {
        const ndp_segment *s = w.segment;
        *buffer = w.buffer;
        if (strcmp(s->name, whole->name) == 0 && s->base[0] == whole->base[0] && s->base[1] == whole->base[1] &&
            s->ndim == whole->ndim)
            return s;
    }
    return NULL;
}

/* The values of a rank's matrix, in the places that files have for them. */
static ndp_status write_values(ndp_packing how, const ndp_segment *whole, const double *from, uint8_t *bytes,
                               double *out) {
    ndp_segment s = *whole;
    s.first[0] = (int64_t)from[FIRST_ROW], s.first[1] = (int64_t)from[FIRST_COL];
    s.rows = (int64_t)from[ROWS], s.cols = (int64_t)from[COLS];
    ndp_packed p = ndp_packed_of(how, 1, s.rows, s.cols, s.whole[0] * s.whole[1]);
    float *values = malloc((size_t)(s.rows * s.cols + 1) * sizeof *values);
    ndp_op_attr attr = {.type = NDP_F32,
                        .first = how == NDP_PACKING_NF4 ? ndp_segment_first_block(&s) : 0,
                        .row_blocks = how == NDP_PACKING_NF4 ? ndp_segment_row_blocks(&s) : 0,
                        .row_group = how == NDP_PACKING_NF4 ? ndp_segment_row_group(&s) : 0};
    ndp_op_call c = {.op = &ndp_op_unpack, .attr = &attr, .out = {{values, NDP_F32, s.rows, s.cols, s.cols}}};
    NDP_CHECK_MEMORY(values, "to unpack %s", whole->name);
    for (int64_t i = 0; i < p.bytes; i++)
        bytes[i] = (uint8_t)from[HEAD + i];
    for (int i = 0; i < NDP_PACKED_PARTS; i++) {
        c.in[i] = p.part[i];
        c.in[i].data = p.part[i].rows > 0 ? bytes + p.at[i] : NULL;
    }
    ndp_status st = ndp_device_ref.kernels[NDP_OP_unpack]->run(&c);
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t col = 0; col < s.cols; col++) {
            int64_t row = ndp_segment_at(&s, 0, r), column = s.first[1] + col;
            out[s.transposed ? column * s.whole[0] + row : row * s.whole[1] + column] =
                (double)values[r * s.cols + col];
        }
    free(values);
    return st;
}

/* Copies what this rank owns of member `i` of all, if it has that: to the part of its place on the tensor axis, which
 * cuts all but experts that have an owner. */
static ndp_status copy_member(ndp_engine *e, const ndp_segment *s, int64_t i, int64_t step, double *all) {
    const ndp_mesh *mesh = &ndp_engine_program(e)->opts.step.mesh;
    int buffer;
    const ndp_segment *own = find_own(e, s, &buffer);
    bool whole = ndp_segment_is_stack(s) && mesh->layout.size[NDP_EP] > 1;
    if (!own || mesh->coord[NDP_DP_REPLICATE] != 0 || i < own->stack_first ||
        i >= own->stack_first + ndp_segment_matrices(own))
        return NDP_OK;
    return copy_owned(e, buffer, own, i - own->stack_first, all + (whole ? 0 : mesh->coord[NDP_TP] * step));
}

ndp_status ndp_engine_unpack(ndp_engine *e, ndp_comm *world, const ndp_segment *s, int64_t i, ndp_packing how,
                             double *out) {
    int64_t tp = ndp_engine_program(e)->opts.step.mesh.layout.size[NDP_TP];
    int64_t most = ndp_packed_of(how, 1, s->part[0], s->part[1], s->whole[0] * s->whole[1]).bytes, step = HEAD + most;
    double *all = calloc((size_t)(tp * step), sizeof *all);
    uint8_t *bytes = malloc((size_t)most + 1);
    ndp_status st = NDP_MEMORY(all && bytes, "to unpack %s", s->name);
    if (st == NDP_OK)
        st = copy_member(e, s, i, step, all);
    if (st == NDP_OK)
        st = ndp_reduce_now(world, all, tp * step, NDP_F64, NDP_SUM);
    for (int64_t t = 0; t < tp && st == NDP_OK; t++)
        st = write_values(how, s, all + t * step, bytes, out + member_origin(s, i));
    free(all);
    free(bytes);
    return st;
}
