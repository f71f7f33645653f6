/* The optimizer's update of one large tensor, adamw, also with weights in two halves and with numbers in bf16, and
 * adamw8bit: nanoseconds an element (best of 15), and the ratio
 * to copying memory, as many bytes read and written, in the same run.
 *
 * Usage: bench_update [threads], default 1. */
#include "clock.h"
#include "ops/pieces.h"
#include "ops/shape.h"
#include "optim/groups.h"
#include "result.h"

#include <string.h>

enum { RUNS = 15, ELEMENTS = 1 << 24, BLOCKS = ELEMENTS / NDP_CODE_BLOCK };

static double least(double seconds, double other) { return other > 0 && other < seconds ? other : seconds; }

static ndp_view row(ndp_dtype type, int64_t n) {
    ndp_view v = {aligned_alloc(64, (size_t)n * ndp_dtype_size(type)), type, 1, n, n};
    if (!v.data)
        exit(1);
    memset(v.data, 0, (size_t)n * ndp_dtype_size(type));
    return v;
}

static double copy_seconds(size_t bytes, int threads) {
    char *from = aligned_alloc(64, bytes), *to = aligned_alloc(64, bytes);
    double best = 0;
    if (!from || !to)
        exit(1);
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    for (int r = 0; r < RUNS; r++) {
        double start = bench_now(threads);
#pragma omp parallel for num_threads(threads)
        for (int t = 0; t < threads; t++)
            memcpy(to + bytes / (size_t)threads * (size_t)t, from + bytes / (size_t)threads * (size_t)t,
                   bytes / (size_t)threads);
        best = least(bench_now(threads) - start, best);
    }
    free(from);
    free(to);
    return best;
}

/* Gradients over five decades, other ones each run: as training has them, so that codes are spread over the map. */
static void fill_gradient(const ndp_view *g, int run) {
    const float scales[] = {1e-1f, 1e-2f, 1e-3f, 1e-4f, 1e-5f};
    float *x = g->data;
    for (int64_t i = 0; i < g->cols; i++) {
        uint32_t h = (uint32_t)(i * 2654435761u) + (uint32_t)run * 40503u;
        h = (h ^ (h >> 15)) * 2246822519u;
        x[i] = ((float)h * 0x1p-31f - 1) * scales[(h >> 8) % 5];
    }
}

/* The operands of an update of one piece. */
typedef struct update {
    ndp_exec exec;
    ndp_optimizer_opts opts;
    ndp_dtype weights, states;
    double constants[NDP_OPTIMIZER_CONSTANTS];
    int64_t piece[NDP_PIECE_COLUMNS_ROUNDED];
    ndp_op_attr attr;
    ndp_op_call call;
} update;

static void make_operands(update *u) {
    const ndp_optimizer *o = ndp_optimizers[u->opts.name];
    const bool coded = ndp_optimizer_codes(u->opts.name);
    const bool rounds = u->weights == NDP_BF16 || u->states == NDP_BF16;
    const int columns = rounds ? NDP_PIECE_COLUMNS_ROUNDED : o->kinds ? NDP_PIECE_COLUMNS_PLACED : NDP_PIECE_COLUMNS;
    u->piece[NDP_PIECE_ROWS] = u->piece[NDP_PIECE_PITCH] = u->piece[NDP_PIECE_COLS] = 1 << 12;
    u->piece[NDP_PIECE_COUNT] = ELEMENTS, u->piece[NDP_PIECE_FACTS] = ndp_piece_facts(1, 0);
    ndp_view *in = u->call.in;
    in[NDP_UPDATE_WEIGHT] = row(u->weights, ELEMENTS), in[NDP_UPDATE_GRAD] = row(NDP_F32, ELEMENTS);
    for (int i = 0; i < NDP_OPTIMIZER_STATES; i++) {
        in[NDP_UPDATE_STATE + i] = row(coded ? NDP_U8 : u->states, ELEMENTS);
        in[NDP_UPDATE_SCALES + i] = coded ? row(NDP_F32, BLOCKS) : (ndp_view){0};
    }
    in[NDP_UPDATE_PIECES] = (ndp_view){u->piece, NDP_I64, 1, columns, columns};
    in[NDP_UPDATE_CONSTANTS] = (ndp_view){u->constants, NDP_F64, 1, NDP_OPTIMIZER_CONSTANTS, NDP_OPTIMIZER_CONSTANTS};
    u->call.out[0] = in[NDP_UPDATE_WEIGHT];
    if (u->weights == NDP_SPLIT_REST)
        u->call.out[1] = row(NDP_BF16, ELEMENTS);
    u->call.op = o->op, u->call.attr = &u->attr, u->call.exec = &u->exec;
}

/* Frees the operands. Returns the bytes that an update reads and writes: all but the gradient are written too. */
static double drop_operands(update *u) {
    double bytes = 2 * ndp_view_bytes(&u->call.out[1]);
    free(u->call.out[1].data);
    for (int i = 0; i < NDP_CODED_OPERANDS; i++)
        if (i != NDP_UPDATE_PIECES && i != NDP_UPDATE_CONSTANTS && u->call.in[i].data) {
            bytes += (i == NDP_UPDATE_GRAD ? 1 : 2) * ndp_view_bytes(&u->call.in[i]);
            free(u->call.in[i].data);
        }
    return bytes;
}

/* What is measured. */
typedef struct update_kind {
    const char *name;
    ndp_optimizer_name optimizer;
    ndp_dtype weights, states;
} update_kind;
static const update_kind kinds[] = {{"adamw", NDP_ADAMW, NDP_F32, NDP_F32},
                                    {"adamw, two halves", NDP_ADAMW, NDP_SPLIT_REST, NDP_F32},
                                    {"adamw, bf16", NDP_ADAMW, NDP_BF16, NDP_BF16},
                                    {"adamw8bit", NDP_ADAMW8BIT, NDP_F32, NDP_F32}};

static double update_seconds(const update_kind *kind, int threads, double *bytes) {
    const ndp_optimizer_name name = kind->optimizer;
    update u = {.exec = {.device = &ndp_device_cpu, .threads = threads},
                .weights = kind->weights,
                .states = kind->states,
                .opts = {.name = name, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1}};
    double best = 0;
    make_operands(&u);
    for (int r = -2; r < RUNS; r++) {
        ndp_optimizers[name]->constants(&u.opts, 1e-4, r + 2, u.constants);
        fill_gradient(&u.call.in[NDP_UPDATE_GRAD], r);
        double start = bench_now(threads);
        if (u.exec.device->kernels[u.call.op->id]->run(&u.call) != NDP_OK)
            exit(1);
        if (r >= 0)
            best = least(bench_now(threads) - start, best);
    }
    *bytes = drop_operands(&u);
    return best;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    bench_begin(argv);
    if (threads < 1)
        return fprintf(stderr, "threads: at least 1\n"), 2;
    for (int i = 0; i < NDP_COUNT(kinds); i++) {
        double bytes, seconds = update_seconds(&kinds[i], threads, &bytes);
        double floor = copy_seconds((size_t)(bytes / 2) / 4096 * 4096, threads);
        printf("%-17s %d threads: %6.3f ns an element, %5.1f GB/s, %6.2f of copying memory (%.1f GB/s)\n",
               kinds[i].name, threads, seconds / ELEMENTS * 1e9, bytes / seconds * 1e-9, seconds / floor,
               bytes / floor * 1e-9);
        char what[64];
        snprintf(what, sizeof what, "%s, %d threads", kinds[i].name, threads);
        bench_result(what, seconds / ELEMENTS * 1e9, "ns/element", seconds / floor);
    }
    return 0;
}
