/* 8-bit states: the dynamic maps and codes against bitsandbytes (tests/golden/codes.json), the op adamw8bit against its
 * formula on `ref` in fp64 and on the device of NDP_TEST_DEVICE, its tables, and steps against bitsandbytes' AdamW8bit.
 */
#include "optim/groups.h"

#include "base/json.h"
#include "base/rng.h"
#include "check.h"
#include "ops/op_test.h"
#include "ops/pieces.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

static ndp_dynamic_map maps[2]; /* of the first and of the second moment */

static int fill_maps(void **state) {
    (void)state;
    ndp_dynamic_fill(true, &maps[0]);
    ndp_dynamic_fill(false, &maps[1]);
    return 0;
}

/* ---- the reference file ---- */

static struct json_object *member(struct json_object *o, const char *name) {
    struct json_object *value;
    if (!json_object_object_get_ex(o, name, &value))
        fail_msg("codes.json has no %s", name);
    return value;
}

static struct json_object *item(struct json_object *list, size_t i) { return json_object_array_get_idx(list, i); }
static double number(struct json_object *list, size_t i) { return json_object_get_double(item(list, i)); }

static struct json_object *golden(void) {
    char *path = ndp_format("%s/tests/golden/codes.json", getenv("NDP_SOURCE_DIR"));
    struct json_object *all;
    CHECK_OK(ndp_json_read(path, &all));
    free(path);
    return all;
}

/* `numbers` of make_codes.py. */
static void numbers(int64_t n, uint64_t key, float *out) {
    const double scales[] = {1.0, 0.1, 0.01, 0.001, 0.0001};
    for (int64_t i = 0; i < n; i++) {
        uint64_t h = ((uint64_t)i * 2654435761u + key * 40503 + 12345) & 0xffffffffu;
        h = (h ^ (h >> 15)) * 2246822519u & 0xffffffffu;
        out[i] = (float)(((double)h / 2147483648.0 - 1.0) * scales[(h >> 8) % 5]);
    }
}

/* ---- maps and codes ---- */

static void maps_are_the_references(void **state) {
    (void)state;
    struct json_object *all = golden();
    const char *names[] = {"signed", "unsigned"};
    for (int m = 0; m < 2; m++) {
        struct json_object *list = member(all, names[m]);
        assert_int_equal(json_object_array_length(list), NDP_CODES);
        for (int code = 0; code < NDP_CODES; code++)
            if ((double)maps[m].values[code] != number(list, (size_t)code))
                fail_msg("%s %d is %.9g, bitsandbytes has %.9g", names[m], code, (double)maps[m].values[code],
                         number(list, (size_t)code));
    }
    json_object_put(all);
}

/* Of all codes, in fp64. */
static double least_distance(const float *map, double x) {
    double least = INFINITY;
    for (int code = 0; code < NDP_CODES; code++)
        least = fmin(least, fabs((double)map[code] - x));
    return least;
}

static int nearest(int m, float x) { return ndp_dynamic_nearest(m == 0, maps[m].last, x); }

/* Around each border of two codes, where one bit decides, and anywhere. */
static void codes_are_the_nearest(void **state) {
    (void)state;
    for (int m = 0; m < 2; m++) {
        for (int code = 0; code < NDP_CODES; code++)
            assert_int_equal(nearest(m, maps[m].values[code]), code);
        for (int code = 0; code < NDP_CODES - 1; code++) {
            float x = (float)(((double)maps[m].values[code] + (double)maps[m].values[code + 1]) / 2);
            for (int k = 0; k < 4; k++)
                x = nextafterf(x, -INFINITY);
            for (int k = 0; k < 8; k++, x = nextafterf(x, INFINITY))
                assert_true(fabs((double)maps[m].values[nearest(m, x)] - (double)x) ==
                            least_distance(maps[m].values, (double)x));
        }
        float x[1000];
        numbers(1000, 7, x);
        for (int i = 0; i < 1000; i++)
            assert_true(fabs((double)maps[m].values[nearest(m, x[i])] - (double)x[i]) ==
                        least_distance(maps[m].values, (double)x[i]));
        assert_int_equal(nearest(m, 2), NDP_CODES - 1);
        assert_int_equal(nearest(m, -2), 0);
    }
}

/* The nearest code by a search of the map, and 0 for NaN: what the arithmetic must be equal to. */
static int searched(int m, float x) {
    const float *values = maps[m].values;
    int code = 0;
    for (int step = NDP_CODES / 2; step > 0; step /= 2)
        code += values[code + step] <= x ? step : 0;
    int next = code + (code < NDP_CODES - 1);
    return 2 * (double)x > (double)values[code] + (double)values[next] ? next : code;
}

static void check_code(int m, float x) {
    if (nearest(m, x) != searched(m, x))
        fail_msg("map %d: the code of %a is %d, the search finds %d", m, (double)x, nearest(m, x), searched(m, x));
}

/* x, the 2 n numbers next to it, and their negatives. */
static void check_around(int m, float x, int n) {
    float up = x, down = x;
    for (int k = 0; k <= n; k++, up = nextafterf(up, INFINITY), down = nextafterf(down, -INFINITY)) {
        check_code(m, up), check_code(m, -up);
        check_code(m, down), check_code(m, -down);
    }
}

/* Around values, borders between codes, and decades; numbers with every exponent and special ones; anywhere in
 * [-1.1, 1.1]. */
static void codes_are_those_of_a_search(void **state) {
    (void)state;
    const float special[] = {0,   FLT_TRUE_MIN, FLT_MIN, FLT_EPSILON, 1,     2,     FLT_MAX, INFINITY,
                             NAN, 1e-7f,        1e-6f,   1e-5f,       1e-4f, 1e-3f, 1e-2f,   1e-1f};
    for (int m = 0; m < 2; m++) {
        const float *v = maps[m].values;
        for (int i = 0; i < NDP_COUNT(special); i++)
            check_around(m, special[i], 100);
        for (int code = 0; code < NDP_CODES; code++) {
            check_around(m, v[code], 20);
            if (code < NDP_CODES - 1)
                check_around(m, (float)(((double)v[code] + (double)v[code + 1]) / 2), 100);
        }
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4093) {
            uint32_t word = (uint32_t)bits;
            float x;
            memcpy(&x, &word, sizeof x);
            check_code(m, x);
        }
        for (uint64_t i = 0; i < 200000; i++)
            check_code(m, (float)(2.2 * ndp_rng_uniform(3, 0, i) - 1.1));
    }
}

/* A tensor in blocks: the reference's scales, and codes that are at least as near as its own, which on the CPU are up
 * to 2^-14 farther than the nearest. Returns how many codes are others. */
static int compare_tensor(struct json_object *t, uint64_t key) {
    float x[4096];
    int64_t n = json_object_get_int64(member(t, "elements"));
    int m = json_object_get_boolean(member(t, "signed")) ? 0 : 1, others = 0;
    const char *hex = json_object_get_string(member(t, "codes"));
    assert_true(n <= 4096 && strlen(hex) == (size_t)(2 * n));
    numbers(n, key, x);
    for (int64_t i = 0; i < n && m == 1; i++)
        x[i] = fabsf(x[i]);
    for (int64_t b = 0; b * NDP_CODE_BLOCK < n; b++) {
        int64_t first = b * NDP_CODE_BLOCK, left = n - first;
        uint8_t codes[NDP_CODE_BLOCK];
        int count = left < NDP_CODE_BLOCK ? (int)left : NDP_CODE_BLOCK;
        float scale = ndp_dynamic_encode(m == 0, &maps[m], x + first, count, codes);
        assert_true((double)scale == number(member(t, "absmax"), (size_t)b));
        for (int i = 0; i < count; i++) {
            unsigned theirs;
            assert_int_equal(sscanf(hex + 2 * (first + i), "%2x", &theirs), 1);
            double part = (double)(x[first + i] / scale), ours = fabs((double)maps[m].values[codes[i]] - part);
            assert_true(ours == least_distance(maps[m].values, part));
            double apart = fabs((double)maps[m].values[theirs] - part);
            assert_true(ours <= apart && apart <= ours + 0x1p-14);
            others += theirs != codes[i];
        }
    }
    return others;
}

static void tensors_are_the_references(void **state) {
    (void)state;
    struct json_object *all = golden(), *tensors = member(all, "tensors");
    int64_t n = 0, others = 0;
    assert_int_equal(json_object_array_length(tensors), 5);
    for (size_t i = 0; i < 5; i++) {
        others += compare_tensor(item(tensors, i), i);
        n += json_object_get_int64(member(item(tensors, i), "elements"));
    }
    print_message("%lld of %lld codes are nearer than bitsandbytes'\n", (long long)others, (long long)n);
    json_object_put(all);
}

static void blocks_of_zeros_stay_zero(void **state) {
    (void)state;
    float x[5] = {0};
    uint8_t codes[5];
    for (int m = 0; m < 2; m++) {
        assert_true(ndp_dynamic_encode(m == 0, &maps[m], x, 5, codes) == 0);
        for (int i = 0; i < 5; i++)
            assert_true(maps[m].values[codes[i]] == 0);
    }
}

/* ---- the op ---- */

enum { MOST = 5000, MOST_BLOCKS_OF = MOST / NDP_CODE_BLOCK + 10, MOST_PIECES = 8 };

/* A slice: weights, gradient, codes and scales, in fp64 and fp32, and what the update gets. */
typedef struct slice {
    ndp_dtype type;
    int64_t n, n_scales;
    int pieces;
    int64_t table[MOST_PIECES][NDP_PIECE_COLUMNS_PLACED];
    double w[MOST], g[MOST], scales[2][MOST_BLOCKS_OF];
    float w32[MOST], g32[MOST], scales32[2][MOST_BLOCKS_OF];
    uint8_t codes[2][MOST];
    uint16_t copy[MOST];
} slice;

#define OPTS                                                                                                           \
    { .name = NDP_ADAMW8BIT, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1 }
#define LR 3e-3
#define CLIP 0.75
enum { STEP = 7 };
static const ndp_optimizer_opts opts = OPTS;

static ndp_view row(void *data, ndp_dtype type, int64_t n) {
    return data ? (ndp_view){data, type, 1, n, n} : (ndp_view){0};
}

/* Pieces at [first, end) of the slice, ascending; every other one decays. */
static void lay_out(slice *s, int64_t n, const int64_t (*pieces)[2], int n_pieces) {
    int64_t place = 0;
    s->n = n, s->pieces = n_pieces;
    for (int i = 0; i < n_pieces; i++) {
        int64_t count = pieces[i][1] - pieces[i][0];
        const int64_t r[] = {pieces[i][0], count, ndp_piece_facts(1, i % 2), place};
        memcpy(s->table[i], r, sizeof r);
        place += ndp_code_blocks(pieces[i][0], count);
    }
    s->n_scales = place;
    assert_true(n <= MOST && place <= MOST_BLOCKS_OF && n_pieces <= MOST_PIECES);
}

static void fill_slice(slice *s, ndp_dtype type) {
    s->type = type;
    numbers(MOST, 1, s->w32);
    numbers(MOST, 2, s->g32);
    for (int i = 0; i < MOST; i++) {
        s->g32[i] = i % 7 == 0 ? 0 : s->g32[i];
        s->w[i] = (double)s->w32[i], s->g[i] = (double)s->g32[i];
        s->codes[0][i] = (uint8_t)ndp_rng_below(5, 0, (uint64_t)i, NDP_CODES);
        s->codes[1][i] = (uint8_t)(100 + ndp_rng_below(5, 1, (uint64_t)i, 156));
        s->copy[i] = 0x7777;
    }
    for (int b = 0; b < MOST_BLOCKS_OF; b++) /* no first moment is far above the root of the second */
        for (int k = 0; k < 2; k++) {
            s->scales32[k][b] = (k ? 0.01f : 0.05f) * (float)(1 + b % 3);
            s->scales[k][b] = (double)s->scales32[k][b];
        }
}

/* What an update gets besides a slice. */
typedef struct update_of {
    ndp_optimizer_opts o;
    double lr;
    int64_t update; /* from 0 */
    double clip;
} update_of;

static void run_slice(slice *s, const update_of *u, int threads, bool copied) {
    const ndp_exec exec = {.device = s->type == NDP_F64 ? &ndp_device_ref : tested(), .threads = threads};
    bool wide = s->type == NDP_F64;
    double constants[2][NDP_OPTIMIZER_CONSTANTS] = {{0}}, clip = u->clip; /* with weight decay, and without */
    ndp_optimizer_opts plain = u->o;
    plain.weight_decay = 0;
    ndp_optimizers[NDP_ADAMW8BIT]->constants(&u->o, u->lr, u->update, constants[0]);
    ndp_optimizers[NDP_ADAMW8BIT]->constants(&plain, u->lr, u->update, constants[1]);
    void *w = wide ? (void *)s->w : s->w32, *g = wide ? (void *)s->g : s->g32;
    ndp_view scales[] = {row(wide ? (void *)s->scales[0] : s->scales32[0], s->type, s->n_scales),
                         row(wide ? (void *)s->scales[1] : s->scales32[1], s->type, s->n_scales)};
    ndp_op_call call = {.op = &ndp_op_adamw8bit,
                        .attr = &(ndp_op_attr){0},
                        .exec = &exec,
                        .in = {row(w, s->type, s->n),
                               row(g, s->type, s->n),
                               {s->table, NDP_I64, s->pieces, NDP_PIECE_COLUMNS_PLACED, NDP_PIECE_COLUMNS_PLACED},
                               {constants, NDP_F64, 2, NDP_OPTIMIZER_CONSTANTS, NDP_OPTIMIZER_CONSTANTS},
                               row(&clip, NDP_F64, 1),
                               row(s->codes[0], NDP_U8, s->n),
                               row(s->codes[1], NDP_U8, s->n),
                               scales[0],
                               scales[1]},
                        .out = {row(w, s->type, s->n), row(copied ? s->copy : NULL, NDP_BF16, s->n)}};
    ndp_op_call shapes = call;
    CHECK_OK(call.op->shape(&shapes));
    run_call(&call);
    for (int i = 0; i < MOST && !wide; i++)
        s->w[i] = (double)s->w32[i];
    for (int b = 0; b < MOST_BLOCKS_OF && !wide; b++)
        s->scales[0][b] = (double)s->scales32[0][b], s->scales[1][b] = (double)s->scales32[1][b];
}

/* Element i's moments after the step, by the formula in fp64, from what is stored before. */
static void expect(const slice *s, bool decays, int64_t i, int64_t block, double *w, double moment[2]) {
    double g = s->g[i] * CLIP, b1 = opts.betas[0], b2 = opts.betas[1], step = STEP;
    moment[0] = b1 * s->scales[0][block] * (double)maps[0].values[s->codes[0][i]] + (1 - b1) * g;
    moment[1] = b2 * s->scales[1][block] * (double)maps[1].values[s->codes[1][i]] + (1 - b2) * g * g;
    *w = s->w[i] * (1 - (decays ? LR * opts.weight_decay : 0)) -
         LR / (1 - pow(b1, step)) * moment[0] / (sqrt(moment[1]) / sqrt(1 - pow(b2, step)) + opts.eps);
}

static void check_block(const slice *before, const slice *after, const int64_t *piece, int64_t first, int64_t end,
                        int64_t block, bool copied) {
    double eps = before->type == NDP_F64 ? 2.3e-16 : 1.2e-7, moment[NDP_CODE_BLOCK][2], most[2] = {0}, w;
    for (int64_t i = first; i < end; i++) {
        expect(before, ndp_piece_group(piece) == 0, i, block, &w, moment[i - first]);
        for (int k = 0; k < 2; k++)
            most[k] = fmax(most[k], fabs(moment[i - first][k]));
        if (!(fabs(after->w[i] - w) <= 2 * eps * (2 * fabs(before->w[i]) + 20 * LR)))
            fail_msg("weight %lld is %.17g, expected %.17g", (long long)i, after->w[i], w);
        if (copied)
            assert_int_equal(after->copy[i], ndp_f32_to_bf16((float)after->w[i]));
    }
    for (int k = 0; k < 2; k++) {
        double scale = after->scales[k][block];
        assert_true(fabs(scale - most[k]) <= 4 * eps * most[k]);
        for (int64_t i = first; i < end; i++) {
            double part = moment[i - first][k] / scale, off = fabs((double)maps[k].values[after->codes[k][i]] - part);
            if (!(off <= least_distance(maps[k].values, part) + 8 * eps))
                fail_msg("state %d of %lld: code %d is off by %g, the nearest by %g", k, (long long)i,
                         after->codes[k][i], off, least_distance(maps[k].values, part));
        }
    }
}

/* What is in no piece stays as it was. */
static void check_slice(const slice *before, const slice *after, bool copied) {
    static bool inside[MOST];
    memset(inside, 0, sizeof inside);
    int64_t blocks = 0;
    for (int p = 0; p < before->pieces; p++) {
        const int64_t *piece = before->table[p];
        int64_t first = piece[NDP_PIECE_FIRST], end = first + piece[NDP_PIECE_COUNT];
        for (int64_t at = first, next; at < end; at = next, blocks++) {
            next = (at / NDP_CODE_BLOCK + 1) * NDP_CODE_BLOCK;
            next = next < end ? next : end;
            check_block(before, after, piece, at, next, blocks, copied);
            memset(inside + at, 1, (size_t)(next - at));
        }
    }
    assert_int_equal(blocks, before->n_scales);
    for (int i = 0; i < MOST; i++) {
        bool same = after->w[i] == before->w[i] && after->codes[0][i] == before->codes[0][i] &&
                    after->codes[1][i] == before->codes[1][i];
        assert_true(inside[i] || same);
        assert_true(after->g[i] == before->g[i]);
        if (!inside[i] || !copied)
            assert_int_equal(after->copy[i], 0x7777);
    }
    for (int64_t b = blocks; b < MOST_BLOCKS_OF; b++)
        assert_true(after->scales[0][b] == before->scales[0][b] && after->scales[1][b] == before->scales[1][b]);
}

static const struct {
    int64_t n;
    int n_pieces;
    int64_t pieces[MOST_PIECES][2];
} layouts[] = {
    {256, 1, {{0, 256}}},
    {4992, 1, {{0, 4992}}},
    {4864, 4, {{0, 2600}, {2600, 2601}, {2601, 3328}, {3328, 4800}}}, /* glued: blocks end and begin inside of others */
    {1024, 3, {{3, 5}, {256, 1000}, {1000, 1024}}},
    {512, 2, {{255, 257}, {511, 512}}},
    {256, 0, {{0, 0}}},
    {768, 2, {{100, 100}, {256, 600}}}, /* an empty one */
};

static slice before, after, other;
static const update_of usual = {OPTS, LR, STEP - 1, CLIP};

static void updates_follow_the_formula(void **state) {
    (void)state;
    for (int k = 0; k < NDP_COUNT(layouts) * 4; k++) {
        bool copied = k & 1;
        lay_out(&before, layouts[k / 4].n, layouts[k / 4].pieces, layouts[k / 4].n_pieces);
        fill_slice(&before, k & 2 ? NDP_F64 : NDP_F32);
        after = before;
        run_slice(&after, &usual, 2, copied);
        check_slice(&before, &after, copied);
    }
}

static void threads_change_no_bit(void **state) {
    (void)state;
    static slice many;
    for (int l = 0; l < NDP_COUNT(layouts); l++) {
        lay_out(&after, layouts[l].n, layouts[l].pieces, layouts[l].n_pieces);
        fill_slice(&after, NDP_F32);
        many = after;
        run_slice(&after, &usual, 1, true);
        for (int threads = 2; threads <= 5; threads++) {
            other = many;
            run_slice(&other, &usual, threads, true);
            assert_memory_equal(&after, &other, sizeof after);
        }
    }
}

static void a_step_that_is_not_finite_changes_nothing(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        lay_out(&before, layouts[2].n, layouts[2].pieces, layouts[2].n_pieces);
        fill_slice(&before, k ? NDP_F64 : NDP_F32);
        before.g[7] = INFINITY, before.g32[7] = INFINITY;
        after = before;
        run_slice(&after, &(update_of){OPTS, LR, STEP - 1, NAN}, 2, true);
        assert_memory_equal(&after, &before, sizeof after);
    }
}

/* Moments too small for a normal float end at zero, and so does their scale. */
static void tiny_moments_end_at_zero(void **state) {
    (void)state;
    lay_out(&after, 256, (const int64_t[][2]){{0, 256}}, 1);
    fill_slice(&after, NDP_F32);
    for (int i = 0; i < 256; i++)
        after.g32[i] = 0, after.w32[i] = 1;
    after.scales32[0][0] = after.scales32[1][0] = 1e-40f;
    after.table[0][NDP_PIECE_FACTS] = ndp_piece_facts(1, 1);
    run_slice(&after, &(update_of){OPTS, LR, STEP - 1, 1}, 1, false);
    for (int i = 0; i < 256; i++)
        assert_true(after.w32[i] == 1 && maps[0].values[after.codes[0][i]] == 0 &&
                    maps[1].values[after.codes[1][i]] == 0);
    assert_true(after.scales32[0][0] == 0 && after.scales32[1][0] == 0);
}

static void shapes_are_checked(void **state) {
    (void)state;
    const ndp_view w = {.dtype = NDP_F32, .rows = 1, .cols = 6, .ld = 6},
                   c = {.dtype = NDP_U8, .rows = 1, .cols = 6, .ld = 6},
                   short_ = {.dtype = NDP_U8, .rows = 1, .cols = 5, .ld = 5},
                   s = {.dtype = NDP_F32, .rows = 1, .cols = 2, .ld = 2}, none = {0};
    const ndp_view p = {.dtype = NDP_I64, .rows = 2, .cols = NDP_PIECE_COLUMNS_PLACED, .ld = NDP_PIECE_COLUMNS_PLACED},
                   plain = {.dtype = NDP_I64, .rows = 2, .cols = NDP_PIECE_COLUMNS, .ld = NDP_PIECE_COLUMNS};
    const ndp_view k = {.dtype = NDP_F64, .rows = 1, .cols = NDP_OPTIMIZER_CONSTANTS, .ld = NDP_OPTIMIZER_CONSTANTS},
                   one = {.dtype = NDP_F64, .rows = 1, .cols = 1};
    const struct {
        bool fits;
        ndp_view in[NDP_CODED_OPERANDS];
    } cases[] = {{true, {w, w, p, k, one, c, c, s, s}},       {true, {w, w, none, k, none, c, c, s, s}},
                 {false, {w, w, plain, k, one, c, c, s, s}},  {false, {w, w, p, k, one, w, c, s, s}},
                 {false, {w, w, p, k, one, c, short_, s, s}}, {false, {w, w, p, k, one, c, c, c, s}},
                 {false, {w, w, p, k, one, c, c, s, none}},   {false, {w, w, p, k, one, c, none, s, s}},
                 {false, {c, w, p, k, one, c, c, s, s}}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_op_call call = {.op = &ndp_op_adamw8bit, .attr = &(ndp_op_attr){0}};
        memcpy(call.in, cases[i].in, sizeof cases[i].in);
        ndp_status st = call.op->shape(&call);
        if (st != (cases[i].fits ? NDP_OK : NDP_EBUG))
            fail_msg("case %d: status %d", i, st);
    }
}

/* ---- steps against the reference ---- */

/* Bytes from hex. */
static void unhex(struct json_object *from, void *out, size_t n) {
    const char *hex = json_object_get_string(from);
    assert_int_equal(strlen(hex), 2 * n);
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        ((unsigned char *)out)[i] = (unsigned char)byte;
    }
}

static void take_step(slice *s, struct json_object *step) {
    const char *codes[] = {"m", "v"}, *scales[] = {"m_absmax", "v_absmax"};
    unhex(member(step, "weights"), s->w32, (size_t)s->n * sizeof(float));
    for (int k = 0; k < 2; k++) {
        unhex(member(step, codes[k]), s->codes[k], (size_t)s->n);
        for (int64_t b = 0; b < s->n_scales; b++)
            s->scales32[k][b] = (float)number(member(step, scales[k]), (size_t)b);
    }
}

/* The same step from the same weights and states, in another order of roundings; its code may not be the nearest. */
static void compare_step(const slice *s, const slice *want, double rate) {
    for (int64_t i = 0; i < s->n; i++) {
        double off = fabs((double)s->w32[i] - (double)want->w32[i]);
        if (!(off <= 2.4e-7 * (fabs((double)want->w32[i]) + 20 * rate)))
            fail_msg("weight %lld is %.9g, bitsandbytes has %.9g", (long long)i, (double)s->w32[i],
                     (double)want->w32[i]);
        for (int k = 0; k < 2; k++) {
            double a = (double)maps[k].values[s->codes[k][i]], b = (double)maps[k].values[want->codes[k][i]];
            assert_true(fabs(a - b) <=
                        (k ? 1.0 : 2.0) * 0.9 / 128 + 1e-6); /* neighbours, or both where they are close */
            assert_true(abs(s->codes[k][i] - want->codes[k][i]) <= 1 || fabs(a - b) <= 0x1p-13);
        }
    }
    for (int k = 0; k < 2; k++)
        for (int64_t b = 0; b < s->n_scales; b++)
            assert_true(fabsf(s->scales32[k][b] - want->scales32[k][b]) <= 3e-7f * want->scales32[k][b]);
}

static void steps_are_the_references(void **state) {
    (void)state;
    struct json_object *all = golden(), *a = member(all, "adamw"), *steps = member(a, "steps");
    int64_t n = json_object_get_int64(member(a, "elements"));
    const ndp_optimizer_opts o = {.name = NDP_ADAMW8BIT,
                                  .betas = {number(member(a, "betas"), 0), number(member(a, "betas"), 1)},
                                  .eps = json_object_get_double(member(a, "eps")),
                                  .weight_decay = json_object_get_double(member(a, "weight_decay"))};
    double rate = json_object_get_double(member(a, "lr"));
    static slice s, want;
    lay_out(&s, n, (const int64_t[][2]){{0, n}}, 1);
    s.type = NDP_F32;
    want = s;
    numbers(n, 100, s.w32);
    assert_int_equal(json_object_array_length(steps), 3);
    for (size_t step = 0; step < 3; step++) {
        numbers(n, 101 + step, s.g32);
        run_slice(&s, &(update_of){o, rate, (int64_t)step, 1}, 2, false);
        take_step(&want, item(steps, step));
        compare_step(&s, &want, rate);
        take_step(&s, item(steps, step));
    }
    json_object_put(all);
}

/* ---- tables ---- */

/* Embeddings and small tensors are updated as always and have states of their own; blocks follow each other in the
 * scales. Whatever the number of slices, no block is in two of them. */
static void tables_put_coded_tensors_last(void **state) {
    (void)state;
    ndp_segment items[] = {ndp_segment_whole("norm", 1, 1, 70, NDP_DIM_WHOLE, NDP_DIM_WHOLE),
                           ndp_segment_whole("q", 2, 50, 90, NDP_DIM_WHOLE, NDP_DIM_WHOLE),
                           ndp_segment_whole("k", 2, 49, 91, NDP_DIM_WHOLE, NDP_DIM_WHOLE), /* glued, at 4500 */
                           ndp_segment_whole("small", 2, 63, 65, NDP_DIM_WHOLE, NDP_DIM_WHOLE),
                           ndp_segment_whole("least", 2, 64, 64, NDP_DIM_WHOLE, NDP_DIM_WHOLE),
                           ndp_segment_whole("table", 2, 100, 64, NDP_DIM_VOCAB, NDP_DIM_WHOLE)};
    const bool coded[] = {false, true, true, false, true, false};
    ndp_segments s = {.items = items, .n = NDP_COUNT(items), .align = NDP_CODE_BLOCK};
    items[2].glued = true;
    for (int i = 0; i < s.n; i++)
        items[i].coded = coded[i];
    ndp_segments_layout(&s);
    ndp_arena arena = {0};
    ndp_update_groups g;
    CHECK_OK(ndp_update_groups_make(&opts, &arena, &g));
    for (int i = 0; i < s.n; i++)
        assert_true(items[i].glued || items[i].offset % NDP_CODE_BLOCK == 0);
    for (int shards = 1; shards < 12; shards++) {
        int64_t length = ndp_segments_slice(&s, shards), blocks = 0, rest = 0;
        assert_int_equal(length % NDP_CODE_BLOCK, 0);
        for (int index = 0; index < shards; index++) {
            int64_t table[8][NDP_PIECE_COLUMNS_PLACED], place[2] = {0};
            ndp_piece_counts n = ndp_pieces_count(&g, &s, shards, index);
            ndp_pieces_fill(&g, &s, shards, index, table[0]);
            for (int64_t r = 0; r < n.all; r++) {
                int64_t at = index * length + table[r][NDP_PIECE_FIRST], k = s.n - 1;
                while (items[k].offset > at)
                    k--;
                bool last = r >= n.all - n.of[1];
                assert_int_equal(coded[k], last);
                assert_int_equal(table[r][NDP_PIECE_PLACE], place[last]);
                for (int64_t e = 0, first = table[r][NDP_PIECE_FIRST]; e < table[r][NDP_PIECE_COUNT]; e++)
                    assert_int_equal(ndp_pieces_place(&g, &s, shards, index, first + e),
                                     place[last] + (last ? (first + e) / 256 - first / 256 : e));
                place[last] +=
                    last ? ndp_code_blocks(table[r][NDP_PIECE_FIRST], table[r][NDP_PIECE_COUNT]) : table[r][1];
            }
            assert_true(place[0] == n.kept[0] && n.kept[0] == n.kept[1] && place[1] == n.blocks);
            rest += place[0], blocks += place[1];
        }
        assert_int_equal(rest, 70 + 63 * 65 + 6400);
        assert_int_equal(blocks, 18 + 18 + 16); /* k begins in the middle of a block of the buffer */
    }
    ndp_arena_release(&arena);
}

static void what_is_kept(void **state) {
    (void)state;
    const ndp_segment large = {.ndim = 2, .coded = true}, small = {.ndim = 2};
    ndp_arena arena = {0};
    ndp_update_groups g;
    CHECK_OK(ndp_update_groups_make(&opts, &arena, &g));
    assert_true(ndp_update_opts_of(&g, &large)->name == NDP_ADAMW8BIT &&
                ndp_update_opts_of(&g, &small)->name == NDP_ADAMW);
    assert_true(ndp_update_states(&g) == 2 && ndp_update_codes(&g));
    for (int name = 0; name < NDP_OPTIMIZER_COUNT; name++) {
        assert_int_equal(ndp_optimizer_codes((ndp_optimizer_name)name), name == NDP_ADAMW8BIT);
        assert_int_equal(ndp_update_align(&(ndp_optimizer_opts){.name = (ndp_optimizer_name)name}),
                         name == NDP_ADAMW8BIT ? NDP_CODE_BLOCK : 0);
    }
    ndp_arena_release(&arena);
    assert_string_equal(ndp_optimizers[NDP_ADAMW8BIT]->state[0], "optimizer.m."); /* checkpoints have these names */
    assert_string_equal(ndp_optimizers[NDP_ADAMW8BIT]->state[1], "optimizer.v.");
    assert_string_equal(ndp_optimizers[NDP_ADAMW8BIT]->scales[0], "optimizer.m_absmax.");
    assert_string_equal(ndp_optimizers[NDP_ADAMW8BIT]->scales[1], "optimizer.v_absmax.");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(maps_are_the_references),
                                       cmocka_unit_test(codes_are_the_nearest),
                                       cmocka_unit_test(codes_are_those_of_a_search),
                                       cmocka_unit_test(tensors_are_the_references),
                                       cmocka_unit_test(blocks_of_zeros_stay_zero),
                                       cmocka_unit_test(updates_follow_the_formula),
                                       cmocka_unit_test(threads_change_no_bit),
                                       cmocka_unit_test(a_step_that_is_not_finite_changes_nothing),
                                       cmocka_unit_test(tiny_moments_end_at_zero),
                                       cmocka_unit_test(shapes_are_checked),
                                       cmocka_unit_test(steps_are_the_references),
                                       cmocka_unit_test(tables_put_coded_tensors_last),
                                       cmocka_unit_test(what_is_kept)};
    return end_of_ops(cmocka_run_group_tests(tests, fill_maps, NULL));
}
