/* The elements of a merged tensor, as they are written: a range at a time, in fp64, rounded once.
 *
 *   W' = W + scale B A          as files hold W: [outputs, inputs], or [inputs, outputs] with the factors transposed
 *                               of a stack of experts, matrix by matrix
 *   DoRA:  (m / |W'|) W'        |W'|: the norm of the weights of one output, from a pass over the tensor before
 *
 * In memory are the factors of one tensor and a block of elements; pages of the files are given back once they are
 * read. Called by weights/merge.c through the writer of shards. */
#include "weights/merged_tensor.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK = 1 << 16, PART = 2048 }; /* elements: computed at a time, by one thread */

void ndp_merge_release(ndp_merge *m) {
    free(m->left);
    free(m->right);
    free(m->gain);
    free(m->block);
    *m = (ndp_merge){0};
}

/* ---- factors ---- */

static void forget_factors(ndp_merge *m) {
    free(m->left);
    free(m->right);
    free(m->gain);
    m->left = m->right = m->gain = NULL;
    m->loaded = NULL;
}

static ndp_status no_memory(const ndp_merged_tensor *t) {
    return NDP_FAIL(NDP_ENOMEM, "not enough memory to merge %s", t->base->spec.name);
}

/* Where the factor of one matrix is in its tensor: rows of `step` x cols elements from `first` on, of which it has
 * every `step`-th, from number `at` on. */
typedef struct factor_place {
    int64_t first, rows, cols, step, at;
} factor_place;

/* `member`: the matrix of a stack, whose experts share a tensor (ndp_adapted_tensor.stacked). */
static factor_place place_of(const ndp_adapted_tensor *t, ndp_factor part, int64_t member) {
    const ndp_tensor_spec *s = &t->parts[part]->spec;
    int64_t rows = s->shape[0], cols = s->ndim == 2 ? s->shape[1] : 1;
    int64_t experts = t->stacked ? t->members / t->group : 1, expert = t->stacked ? member / t->group : 0;
    if (!t->stacked)
        return (factor_place){0, rows, cols, 1, 0};
    if (part == NDP_FACTOR_A)
        return (factor_place){expert * rows / experts * cols, rows / experts, cols, 1, 0};
    return (factor_place){member % t->group * t->rows * cols, t->rows, cols / experts, experts, expert};
}

/* A factor [rows,cols], or its transpose, times `scale`. */
static ndp_status read_factor(const ndp_merged_tensor *t, ndp_factor part, int64_t member, bool transpose, double scale,
                              double **out) {
    const ndp_tensor_entry *e = t->tensor->parts[part];
    const factor_place p = place_of(t->tensor, part, member);
    int64_t n = p.rows * p.cols;
    double *x = malloc((size_t)(n * p.step) * sizeof *x + 1), *y = malloc((size_t)n * sizeof *y + 1);
    ndp_status st = x && y ? ndp_weights_read(t->merge->adapter, e->spec.name, p.first, n * p.step, x, NDP_F64, true)
                           : no_memory(t);
    for (int64_t i = 0; i < p.rows && st == NDP_OK; i++)
        for (int64_t k = 0; k < p.cols; k++)
            y[transpose ? k * p.rows + i : i * p.cols + k] = scale * x[(i * p.cols + k) * p.step + p.at];
    free(x);
    if (st != NDP_OK)
        free(y);
    if (st == NDP_OK)
        *out = y;
    return st;
}

/* ---- elements ---- */

/* Adds the product of the factors to `n` elements from `first` on. */
static void add_product(const ndp_merge *m, int64_t first, int64_t n, double *x) {
    for (int64_t done = 0, count; done < n; done += count) {
        int64_t row = (first + done) / m->cols, col = (first + done) % m->cols;
        count = m->cols - col < n - done ? m->cols - col : n - done;
        double *restrict y = x + done;
        for (int64_t j = 0; j < m->r; j++) {
            const double *restrict right = m->right + j * m->cols + col;
            double left = m->left[row * m->r + j];
            for (int64_t c = 0; c < count; c++)
                y[c] += left * right[c];
        }
    }
}

static int64_t output_of(const ndp_merged_tensor *t, int64_t element) {
    return t->tensor->transposed ? element % t->merge->cols : element / t->merge->cols;
}

/* Up to BLOCK elements in fp64, without DoRA's gain. */
static ndp_status read_values(const ndp_merged_tensor *t, int64_t first, int64_t n, double *x) {
    const ndp_merge *m = t->merge;
    const ndp_tensor_entry *whole = t->tensor->parts[NDP_NO_FACTOR];
    const ndp_weights *from = whole ? m->adapter : m->base;
    const char *name = whole ? whole->spec.name : t->base->spec.name;
    NDP_TRY(ndp_weights_read(from, name, first, n, x, NDP_F64, true));
    ndp_weights_forget(from, name, first, n);
    if (!m->left)
        return NDP_OK;
#pragma omp parallel for if (n * m->r > BLOCK)
    for (int64_t at = 0; at < n; at += PART)
        add_product(m, first - m->first + at, n - at < PART ? n - at : PART, x + at);
    return NDP_OK;
}

/* m / |W'| of each output; m: the factor `lengths`. */
static ndp_status find_gain(ndp_merged_tensor *t, ndp_factor lengths) {
    ndp_merge *m = t->merge;
    int64_t outputs = t->tensor->rows, elements = m->rows * m->cols;
    double *squares = calloc((size_t)outputs, sizeof *squares);
    ndp_status st = squares ? NDP_OK : no_memory(t);
    for (int64_t first = 0; first < elements && st == NDP_OK; first += BLOCK) {
        int64_t n = elements - first < BLOCK ? elements - first : BLOCK;
        st = read_values(t, first, n, m->block);
        for (int64_t i = 0; i < n && st == NDP_OK; i++)
            squares[output_of(t, first + i)] += m->block[i] * m->block[i];
    }
    if (st == NDP_OK)
        st = read_factor(t, lengths, 0, false, 1, &m->gain);
    for (int64_t i = 0; i < outputs && st == NDP_OK; i++)
        m->gain[i] /= sqrt(squares[i]);
    free(squares);
    return st;
}

/* Those of the matrix that has element `first`. */
static ndp_status load_factors(ndp_merged_tensor *t, int64_t first) {
    ndp_merge *m = t->merge;
    const ndp_adapted_tensor *of = t->tensor;
    bool swap = of->transposed;
    ndp_factor left = swap ? NDP_FACTOR_A : NDP_FACTOR_B, right = swap ? NDP_FACTOR_B : NDP_FACTOR_A;
    forget_factors(m);
    if (!m->block && !(m->block = malloc(BLOCK * sizeof *m->block)))
        return no_memory(t);
    m->rows = swap ? of->cols : of->rows;
    m->cols = swap ? of->rows : of->cols;
    int64_t inner = of->stacked ? first / (of->rows * of->cols) : 0, member = of->member + inner;
    m->first = inner * of->rows * of->cols;
    if (of->parts[NDP_FACTOR_A]) {
        m->r = place_of(of, NDP_FACTOR_A, member).rows;
        NDP_TRY(read_factor(t, left, member, swap, m->scale, &m->left));
        NDP_TRY(read_factor(t, right, member, swap, 1, &m->right));
    }
    ndp_factor lengths = ndp_form_rules[m->form].lengths;
    if (lengths != NDP_NO_FACTOR && of->parts[lengths])
        NDP_TRY(find_gain(t, lengths));
    m->loaded = t;
    return NDP_OK;
}

/* ---- rounding ---- */

/* The float on the way to a shorter type: rounded to odd, so that rounding it again is rounding once. */
static float round_to_odd(double x) {
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if ((double)f == x || bits & 1 || isnan(f))
        return f;
    bits = fabs((double)f) > fabs(x) ? bits - 1 : bits + 1;
    memcpy(&f, &bits, 4);
    return f;
}

/* To nearest, ties to even, once. */
static void round_once(const double *x, int64_t n, void *out, ndp_dtype type) {
    float block[PART];
    if (type == NDP_F64 || type == NDP_F32)
        ndp_convert(x, NDP_F64, out, type, n);
    else
        for (int64_t first = 0; first < n; first += PART) {
            int64_t count = n - first < PART ? n - first : PART;
            for (int64_t i = 0; i < count; i++)
                block[i] = round_to_odd(x[first + i]);
            ndp_convert(block, NDP_F32, (char *)out + (size_t)first * ndp_dtype_size(type), type, count);
        }
}

/* The first element that is not finite once it is rounded; n: there is none. */
static int64_t find_infinite(const double *x, int64_t n, const void *rounded, ndp_dtype type) {
    float block[PART];
    for (int64_t first = 0; first < n; first += PART) {
        int64_t count = n - first < PART ? n - first : PART;
        if (type != NDP_F64)
            ndp_convert((const char *)rounded + (size_t)first * ndp_dtype_size(type), type, block, NDP_F32, count);
        for (int64_t i = 0; i < count; i++)
            if (!(type == NDP_F64 ? isfinite(x[first + i]) : isfinite(block[i])))
                return first + i;
    }
    return n;
}

static ndp_status read_block(const ndp_merged_tensor *t, int64_t first, int64_t n, void *out) {
    ndp_merge *m = t->merge;
    NDP_TRY(read_values(t, first, n, m->block));
    for (int64_t i = 0; i < n && m->gain; i++)
        m->block[i] *= m->gain[output_of(t, first + i)];
    ndp_dtype type = t->base->spec.dtype;
    round_once(m->block, n, out, type);
    int64_t bad = find_infinite(m->block, n, out, type);
    return bad == n ? NDP_OK
                    : NDP_FAIL(NDP_EFORMAT,
                               "%s: element %lld is %g once the adapter is merged, which is not finite as %s; does the "
                               "adapter belong to this model?",
                               t->tensor->name, (long long)(first + bad), m->block[bad], ndp_dtype_name(type));
}

/* ---- the source ---- */

static ndp_status read_merged(void *user, int64_t first, int64_t n, int64_t stride, void *out) {
    ndp_merged_tensor *t = user;
    if (stride != 1)
        return NDP_FAIL(NDP_EBUG, "a merged tensor is read with a stride of %lld", (long long)stride);
    const ndp_merge *m = t->merge;
    for (int64_t done = 0, count, at = first; done < n; done += count, at += count) {
        bool other = t->tensor->stacked && (at < m->first || at >= m->first + m->rows * m->cols);
        if (m->loaded != t || other)
            NDP_TRY(load_factors(t, at));
        int64_t end = t->tensor->stacked ? m->first + m->rows * m->cols - at : n;
        count = n - done < BLOCK ? n - done : BLOCK;
        count = count < end ? count : end;
        NDP_TRY(read_block(t, first + done, count, (char *)out + (size_t)done * ndp_dtype_size(t->base->spec.dtype)));
    }
    return NDP_OK;
}

ndp_file_piece ndp_merged_tensor_init(ndp_merged_tensor *t, ndp_merge *m, const ndp_adapted_tensor *tensor,
                                      const ndp_tensor_entry *base, int number) {
    *t = (ndp_merged_tensor){{read_merged, t}, m, tensor, base};
    return (ndp_file_piece){.tensor = number, .count = base->elements, .dtype = base->spec.dtype, .source = &t->source};
}
