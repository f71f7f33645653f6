/* The op row_slopes on the host. Of a chunk of rows, of which R have labels, R x V logits and as many slopes are there
 * at a time:
 *
 *   logits of all slices --copy--> by slice --by row, capped--> [R,V] -> the function -> slopes [R,V]
 *   --times scale, this rank's columns--> slopes [rows,v] --copy--> the device
 *
 * Ranks of the tensor axis call the function with the same bits, and each takes its own columns of the answer. */
#include "step/loss_rows.h"

#include "parallel/row_cut.h"

#include <math.h>

/* Host memory of a call: parts of one block, the largest first. */
typedef struct block {
    char *logits, *slopes; /* [rows, V]; before the call slopes are what the device has, by slice, and after it logits
                              are what it gets */
    double *scales, *losses;
    int64_t *places;
    int32_t *labels, *all_labels; /* of rows that have one; of all */
    size_t bytes;
} block;

enum { ALIGN = 64 };

static char *take(block *b, char *base, size_t bytes) {
    char *at = base + b->bytes;
    b->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static block block_of(const ndp_view *logits, const ndp_view *all, int64_t vocab, char *base) {
    block b = {0};
    size_t size = ndp_dtype_size(logits->dtype), rows = (size_t)logits->rows;
    size_t gathered = (size_t)(all->rows * all->cols), plain = rows * (size_t)vocab;
    b.logits = take(&b, base, plain * size);
    b.slopes = take(&b, base, (gathered > plain ? gathered : plain) * size);
    b.scales = (double *)(void *)take(&b, base, rows * sizeof *b.scales);
    b.losses = (double *)(void *)take(&b, base, rows * sizeof *b.losses);
    b.places = (int64_t *)(void *)take(&b, base, rows * sizeof *b.places);
    b.labels = (int32_t *)(void *)take(&b, base, rows * sizeof *b.labels);
    b.all_labels = (int32_t *)(void *)take(&b, base, rows * sizeof *b.labels);
    return b;
}

size_t ndp_loss_rows_bytes(const ndp_program *p) {
    static char nowhere[ALIGN];
    size_t most = 0;
    for (int g = 0; g < p->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            const ndp_list *list = &p->opts.units[g].lists[phase];
            for (int i = 0; i < list->n; i++) {
                const ndp_call *c = &list->calls[i];
                if (c->op != &ndp_op_row_slopes)
                    continue;
                size_t bytes = block_of(&c->in[0].view, &c->in[1].view, c->attr.vocab, nowhere).bytes;
                most = bytes > most ? bytes : most;
            }
        }
    return most;
}

/* ---- numbers of either width ---- */

static double get(const char *from, ndp_dtype type, int64_t i) {
    return type == NDP_F64 ? ((const double *)(const void *)from)[i] : (double)((const float *)(const void *)from)[i];
}

static void set(char *to, ndp_dtype type, int64_t i, double x) {
    if (type == NDP_F64)
        ((double *)(void *)to)[i] = x;
    else
        ((float *)(void *)to)[i] = (float)x;
}

/* ---- the loss of a step that names none ---- */

static void cross_entropy(const ndp_loss_rows *rows) {
    for (int64_t i = 0; i < rows->n; i++) {
        const char *x = (const char *)rows->logits + (size_t)(i * rows->vocab) * ndp_dtype_size(rows->type);
        char *dx = (char *)rows->slopes + (size_t)(i * rows->vocab) * ndp_dtype_size(rows->type);
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < rows->vocab; j++)
            max = get(x, rows->type, j) > max ? get(x, rows->type, j) : max;
        for (int64_t j = 0; j < rows->vocab; j++)
            sum += exp(get(x, rows->type, j) - max);
        for (int64_t j = 0; j < rows->vocab; j++)
            set(dx, rows->type, j, exp(get(x, rows->type, j) - max) / sum - (j == rows->labels[i]));
        rows->losses[i] = log(sum) + max - get(x, rows->type, rows->labels[i]);
    }
}

/* ---- a call ---- */

static ndp_status fetch(const ndp_engine *e, const ndp_view *from, void *to) {
    return ndp_engine_copy(e, to, from->data, (size_t)(from->rows * from->cols) * ndp_dtype_size(from->dtype), true);
}

/* What rows of all slices are made of, one slice after the other. */
typedef struct slices {
    const ndp_view *all; /* as the device has it */
    int64_t parts, vocab;
} slices;

static int64_t first_id(const slices *s, int64_t part) { return s->vocab * part / s->parts; }

/* Row t, of all slices. */
static void join_row(const slices *s, const char *from, int64_t rows, int64_t t, double cap, char *to) {
    size_t size = ndp_dtype_size(s->all->dtype);
    for (int64_t p = 0; p < s->parts; p++)
        memcpy(to + (size_t)first_id(s, p) * size, from + (size_t)((p * rows + t) * s->all->cols) * size,
               (size_t)(first_id(s, p + 1) - first_id(s, p)) * size);
    for (int64_t j = 0; cap > 0 && j < s->vocab; j++)
        set(to, s->all->dtype, j, cap * tanh(get(to, s->all->dtype, j) / cap));
}

/* Slopes of n rows, times their scales, and by logits as they were before the cap. */
static void scale_slopes(const ndp_loss_rows *rows, const double *scales, double cap) {
    for (int64_t i = 0; i < rows->n; i++)
        for (int64_t j = i * rows->vocab; j < (i + 1) * rows->vocab; j++) {
            double slope = get(rows->slopes, rows->type, j) * scales[i];
            if (cap > 0)
                slope *= 1 - pow(get(rows->logits, rows->type, j) / cap, 2);
            set(rows->slopes, rows->type, j, slope);
        }
}

static void run_function(const ndp_engine *e, const ndp_loss_rows *rows) {
    size_t bytes = (size_t)(rows->n * rows->vocab) * ndp_dtype_size(rows->type);
    memset(rows->slopes, 0, bytes);
    memset(rows->losses, 0, (size_t)rows->n * sizeof *rows->losses);
    if (rows->n > 0 && e->step.loss.run)
        e->step.loss.run(e->step.loss.user, rows);
    else if (rows->n > 0)
        cross_entropy(rows);
}

/* The answer, as the op has it: rows without labels have none. */
static ndp_status hand_out(const ndp_engine *e, const ndp_op_call *o, const slices *s, const ndp_loss_rows *rows,
                           const block *b) {
    const ndp_view *slopes = &o->out[1], *nll = &o->out[0];
    size_t size = ndp_dtype_size(slopes->dtype), wide = ndp_dtype_size(rows->type);
    int64_t first = s->parts > 1 ? first_id(s, e->opts.step.mesh.coord[NDP_TP]) : 0;
    char *losses = (char *)(void *)b->places; /* which are not needed any more */
    for (int64_t t = 0, i = 0; t < slopes->rows; t++) {
        char *to = b->logits + (size_t)(t * slopes->cols) * size;
        set(losses, nll->dtype, t, b->all_labels[t] >= 0 ? rows->losses[i] : 0);
        if (b->all_labels[t] < 0)
            memset(to, 0, (size_t)slopes->cols * size);
        else
            ndp_convert((const char *)rows->slopes + (size_t)(i++ * rows->vocab + first) * wide, rows->type, to,
                        slopes->dtype, slopes->cols);
    }
    NDP_TRY(ndp_engine_copy(e, nll->data, losses, (size_t)nll->rows * wide, true));
    return ndp_engine_copy(e, slopes->data, b->logits, (size_t)(slopes->rows * slopes->cols) * size, true);
}

ndp_status ndp_loss_rows_run(ndp_engine *e, const ndp_instr *in, const ndp_call *c, const ndp_op_call *o) {
    const ndp_view *own = &o->in[0], *all = o->in[1].data ? &o->in[1] : own;
    const slices s = {all, c->attr.parts, c->attr.vocab};
    block b = block_of(own, &o->in[1], s.vocab, e->host.loss_rows);
    ndp_row_cut cut = ndp_cut_rows(e->model.opts.rows, &e->opts.step.mesh, &e->opts.step.parallel);
    int64_t first = (int64_t)(c->in[2].offset / sizeof *b.labels); /* labels are an input: this call's begin there */
    int64_t n = 0, rows = own->rows;
    NDP_TRY(fetch(e, all, b.slopes));
    NDP_TRY(fetch(e, &o->in[2], b.all_labels));
    NDP_TRY(fetch(e, &o->in[3], b.scales));
    for (int64_t t = 0; t < rows; t++) {
        if (b.all_labels[t] < 0)
            continue;
        join_row(&s, b.slopes, rows, t, c->attr.cap, b.logits + (size_t)(n * s.vocab) * ndp_dtype_size(own->dtype));
        b.labels[n] = b.all_labels[t];
        b.places[n] = ndp_row_cut_at(&cut, NDP_EXTENT_TOKENS, first + t);
        b.scales[n++] = b.scales[o->in[3].rows > 1 ? t : 0];
    }
    const ndp_loss_rows given = {.micro_batch = ndp_micro_batch_at(in, &e->at),
                                 .n = n,
                                 .vocab = s.vocab,
                                 .type = own->dtype,
                                 .places = b.places,
                                 .labels = b.labels,
                                 .logits = b.logits,
                                 .slopes = b.slopes,
                                 .losses = b.losses};
    run_function(e, &given);
    scale_slopes(&given, b.scales, c->attr.cap);
    return hand_out(e, o, &s, &given, &b);
}
