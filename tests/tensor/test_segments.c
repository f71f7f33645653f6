#include "tensor/segments.h"

#include "base/rng.h"
#include "check.h"
#include <stdlib.h>

enum { MOST = 24 };

static int64_t size_of(const ndp_segment *s) { return ndp_segment_elements(s); }

/* A table of `n` tensors, vectors and matrices, odd sizes, a third of them glued, summed over one of three sets. */
static void random_table(uint64_t seed, ndp_segments *s, ndp_segment items[MOST]) {
    *s = (ndp_segments){.items = items, .n = (int)ndp_rng_below(seed, 0, 0, MOST + 1)};
    for (int i = 0; i < s->n; i++) {
        uint64_t at = (uint64_t)i;
        bool vector = ndp_rng_below(seed, 1, at, 3) == 0;
        items[i] = ndp_segment_whole("x", vector ? 1 : 2, vector ? 1 : 1 + (int64_t)ndp_rng_below(seed, 2, at, 40),
                                     1 + (int64_t)ndp_rng_below(seed, 3, at, 200), NDP_DIM_WHOLE, NDP_DIM_WHOLE);
        items[i].glued = i > 0 && ndp_rng_below(seed, 4, at, 3) == 0;
        items[i].sums = 1 + (ndp_groups)ndp_rng_below(seed, 5, at, 3);
    }
    ndp_segments_layout(s);
}

/* The last segment of a glued group. */
static int last_of_group(const ndp_segments *s, int i) {
    while (i + 1 < s->n && s->items[i + 1].glued)
        i++;
    return i;
}

static void check_offsets(const ndp_segments *s) {
    int64_t end = 0;
    for (int i = 0; i < s->n; i++) {
        const ndp_segment *seg = &s->items[s->order[i]];
        if (seg->glued)
            assert_int_equal(seg->offset, end);
        else
            assert_int_equal(seg->offset % NDP_SEGMENT_ALIGN, 0);
        assert_true(seg->offset >= end && seg->offset < end + NDP_SEGMENT_ALIGN);
        end = seg->offset + size_of(seg);
    }
    assert_int_equal(s->elements, end);
}

/* A glued segment follows the one before it. Groups with equal sums are side by side, in the order of the table. */
static void check_order(const ndp_segments *s) {
    for (int i = 1; i < s->n; i++) {
        int before = s->order[i - 1], here = s->order[i];
        ndp_groups a = s->items[last_of_group(s, before)].sums, b = s->items[last_of_group(s, here)].sums;
        assert_true(s->items[here].glued ? here == before + 1 : a < b || (a == b && before < here));
    }
}

/* Slices are equal, aligned, cover the buffer, and are no longer than that needs. */
static int64_t check_slice(const ndp_segments *s, int shards) {
    int64_t slice = ndp_segments_slice(s, shards);
    assert_int_equal(slice % NDP_SEGMENT_ALIGN, 0);
    assert_true(slice * shards >= s->elements);
    assert_true(slice * shards < s->elements + (int64_t)shards * NDP_SEGMENT_ALIGN);
    return slice;
}

/* The pieces of all slices cover every element of every tensor once, in order, and nothing else; each is maximal. */
static void check_pieces(const ndp_segments *s, int shards) {
    int64_t slice = check_slice(s, shards), covered[MOST] = {0};
    const ndp_segment *last = NULL;
    for (int index = 0; index < shards; index++) {
        ndp_piece p;
        int64_t end = 0;
        bool first = true;
        for (int cursor = 0; ndp_segments_piece(s, shards, index, &cursor, &p); first = false) {
            int i = (int)(p.segment - s->items);
            assert_in_range(i, 0, s->n - 1);
            assert_true(p.count > 0 && p.slice_first >= end);
            assert_true(first || p.segment != last);
            end = p.slice_first + p.count;
            assert_true(end <= slice);
            assert_int_equal(p.segment->offset + covered[i], index * slice + p.slice_first);
            covered[i] += p.count;
            last = p.segment;
        }
    }
    for (int i = 0; i < s->n; i++)
        assert_int_equal(covered[i], size_of(&s->items[i]));
}

static void pieces_cover_every_tensor_once(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        ndp_segment items[MOST];
        ndp_segments s;
        random_table(seed, &s, items);
        check_offsets(&s);
        check_order(&s);
        static const int shards[] = {1, 2, 3, 4, 5, 7, 8, 16, 61, 1024};
        for (int i = 0; i < NDP_COUNT(shards); i++)
            check_pieces(&s, shards[i]);
    }
}

/* Worked by hand: q [4 x 30], k [2 x 30] and v glued after it, a norm of 30 on its own line. */
static void example_by_hand(void **state) {
    (void)state;
    ndp_segment items[] = {ndp_segment_whole("q", 2, 4, 30, NDP_DIM_HEADS, NDP_DIM_WHOLE),
                           ndp_segment_whole("k", 2, 2, 30, NDP_DIM_KV_HEADS, NDP_DIM_WHOLE),
                           ndp_segment_whole("v", 2, 2, 30, NDP_DIM_KV_HEADS, NDP_DIM_WHOLE),
                           ndp_segment_whole("norm", 1, 1, 30, NDP_DIM_WHOLE, NDP_DIM_WHOLE)};
    items[1].glued = items[2].glued = true;
    ndp_segments s = {.items = items, .n = 4};
    ndp_segments_layout(&s);
    static const int64_t offsets[] = {0, 120, 180, 256};
    for (int i = 0; i < 4; i++)
        assert_int_equal(items[i].offset, offsets[i]);
    assert_int_equal(s.elements, 286);
    assert_int_equal(ndp_segments_slice(&s, 1), 320);
    assert_int_equal(ndp_segments_slice(&s, 2), 192);
    assert_int_equal(ndp_segments_slice(&s, 8), 64);

    ndp_piece p;
    int cursor = 0;
    assert_true(ndp_segments_piece(&s, 2, 1, &cursor, &p));
    assert_string_equal(p.segment->name, "v");
    assert_int_equal(p.slice_first, 0);
    assert_int_equal(p.count, 48);
    assert_true(ndp_segments_piece(&s, 2, 1, &cursor, &p));
    assert_string_equal(p.segment->name, "norm");
    assert_int_equal(p.slice_first, 64);
    assert_int_equal(p.count, 30);
    assert_false(ndp_segments_piece(&s, 2, 1, &cursor, &p));
    cursor = 0;
    assert_false(ndp_segments_piece(&s, 8, 7, &cursor, &p)); /* padding only */

    items[0].sums |= NDP_GROUP_BIT(NDP_GROUP_TP); /* q is glued to v, which stays before the norm */
    ndp_segments_layout(&s);
    assert_int_equal(items[3].offset, 256);
    items[2].sums |= NDP_GROUP_BIT(NDP_GROUP_TP);
    ndp_segments_layout(&s);
    static const int64_t behind[] = {64, 184, 244, 0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(items[i].offset, behind[i]);
}

/* 2^31 elements and more: a table of 405B's embedding, cut for 1024 ranks. */
static void large_tensors_do_not_overflow(void **state) {
    (void)state;
    ndp_segment items[] = {ndp_segment_whole("embed", 2, 128256, 16384, NDP_DIM_VOCAB, NDP_DIM_WHOLE),
                           ndp_segment_whole("head", 2, 128256, 16384, NDP_DIM_VOCAB, NDP_DIM_WHOLE)};
    ndp_segments s = {.items = items, .n = 2};
    ndp_segments_layout(&s);
    assert_true(s.elements == 2 * 128256LL * 16384);
    check_pieces(&s, 1024);
    check_pieces(&s, 3);
}

/* Counts the elements of whole tensors that the runs of a table's slices give, and holds each against the buffer: its
 * value there is its place in the file. */
static void count_runs(const ndp_segments *s, int shards, int tensors, int (*seen)[7 * 11]) {
    for (int index = 0; index < shards; index++) {
        ndp_run run;
        int64_t slice = ndp_segments_slice(s, shards);
        for (int64_t at = 0; ndp_segments_run(s, shards, index, &at, &run);)
            for (int64_t k = 0; k < run.count; k++) {
                const ndp_segment *seg = run.segment;
                int64_t local = index * slice + run.slice_first + k * run.stride - seg->offset;
                int64_t row = ndp_segment_at(seg, 0, local / seg->cols),
                        col = ndp_segment_at(seg, 1, local % seg->cols);
                int64_t place = seg->transposed ? col * seg->whole[0] + row : row * seg->whole[1] + col;
                assert_int_equal(run.tensor_first + k, place);
                seen[(seg - s->items) % tensors][place]++;
            }
    }
}

/* What three ranks of the tensor axis hold, cut into slices: every element of the whole tensors once. */
static void runs_of_all_ranks_make_whole_tensors(void **state) {
    (void)state;
    enum { RANKS = 3, TENSORS = 4 };
    static const int cut_axis[TENSORS] = {0, 1, 1, 0};
    int seen[TENSORS][7 * 11] = {0};
    int64_t slice = -1;
    for (int r = 0; r < RANKS; r++) {
        ndp_segment items[TENSORS] = {ndp_segment_whole("rows", 2, 7, 11, NDP_DIM_FFN, NDP_DIM_WHOLE),
                                      ndp_segment_whole("columns", 2, 7, 11, NDP_DIM_WHOLE, NDP_DIM_FFN),
                                      ndp_segment_whole("vector", 1, 1, 11, NDP_DIM_WHOLE, NDP_DIM_FFN),
                                      ndp_segment_whole("turned", 2, 7, 11, NDP_DIM_FFN, NDP_DIM_WHOLE)};
        items[3].transposed = true;
        ndp_segments s = {.items = items, .n = TENSORS};
        for (int i = 0; i < TENSORS; i++) {
            int64_t n = items[i].whole[cut_axis[i]], first = n * r / RANKS;
            ndp_segment_cut(&items[i], cut_axis[i], first, n * (r + 1) / RANKS - first, (n + RANKS - 1) / RANKS);
        }
        ndp_segments_layout(&s);
        assert_true(slice < 0 || slice == ndp_segments_slice(&s, 2)); /* alike on all ranks */
        slice = ndp_segments_slice(&s, 2);
        count_runs(&s, 2, TENSORS, seen);
    }
    for (int i = 0; i < TENSORS; i++)
        for (int64_t k = 0; k < (i == 2 ? 11 : 77); k++)
            assert_int_equal(seen[i][k], 1);
}

/* Three parts of one tensor [7 x 11] in files, as they stand there and transposed, on two ranks that share each. */
static void parts_of_a_fused_tensor_make_it_whole(void **state) {
    (void)state;
    enum { RANKS = 2, PARTS = 3 };
    static const int64_t rows[PARTS] = {4, 2, 1};
    for (int transposed = 0; transposed < 2; transposed++) {
        int seen[1][7 * 11] = {0};
        for (int r = 0; r < RANKS; r++) {
            ndp_segment items[PARTS];
            int64_t base = 0;
            for (int i = 0; i < PARTS; base += rows[i++]) {
                items[i] = ndp_segment_whole("qkv", 2, rows[i], 11, NDP_DIM_HEADS, NDP_DIM_WHOLE);
                ndp_segment_fuse(&items[i], 0, base, 7);
                items[i].transposed = transposed;
                items[i].glued = i > 0;
                int64_t first = rows[i] * r / RANKS, end = rows[i] * (r + 1) / RANKS;
                ndp_segment_cut(&items[i], 0, first, end - first, (rows[i] + 1) / RANKS);
            }
            ndp_segments s = {.items = items, .n = PARTS};
            ndp_segments_layout(&s);
            count_runs(&s, 1 + 2 * r, 1, seen);
        }
        for (int64_t k = 0; k < 77; k++)
            assert_int_equal(seen[0][k], 1);
    }
}

/* Three parts of one tensor, a matrix or a vector, that take turns: 2 rows of each for each of 3 heads, which two ranks
 * of the tensor axis share unevenly, in three slices each. */
static void parts_in_turn_make_it_whole(void **state) {
    (void)state;
    enum { RANKS = 2, PARTS = 3, HEADS = 3, GRAIN = 2, ALL = PARTS * HEADS * GRAIN, COLS = 4 };
    for (int ndim = 1; ndim <= 2; ndim++) {
        int seen[1][7 * 11] = {0}, axis = ndim == 1;
        int64_t cols = ndim == 2 ? COLS : 1;
        for (int r = 0; r < RANKS; r++) {
            ndp_segment items[PARTS];
            for (int i = 0; i < PARTS; i++) {
                int64_t rows = HEADS * GRAIN, first = HEADS * r / RANKS * GRAIN, end = HEADS * (r + 1) / RANKS * GRAIN;
                items[i] =
                    ndp_segment_whole("qkv", ndim, axis ? 1 : rows, axis ? rows : COLS,
                                      axis ? NDP_DIM_WHOLE : NDP_DIM_HEADS, axis ? NDP_DIM_HEADS : NDP_DIM_WHOLE);
                items[i].grain[axis] = GRAIN, items[i].glued = i > 0;
                ndp_segment_fuse_in_turn(&items[i], axis, i * GRAIN, PARTS * GRAIN, ALL);
                ndp_segment_cut(&items[i], axis, first, end - first, (HEADS + 1) / RANKS * GRAIN);
                for (int64_t k = 0; k < end - first; k++) {
                    int64_t at = (first + k) / GRAIN * PARTS * GRAIN + i * GRAIN + k % GRAIN;
                    assert_int_equal(ndp_segment_at(&items[i], axis, k), at);
                    for (int of = 0; of <= i; of++) /* the other parts have it not */
                        assert_true((ndp_segment_find(&items[of], axis, at) == k) == (of == i));
                }
            }
            ndp_segments s = {.items = items, .n = PARTS};
            ndp_segments_layout(&s);
            count_runs(&s, 3, 1, seen);
        }
        for (int64_t k = 0; k < ALL * cols; k++)
            assert_int_equal(seen[0][k], 1);
    }
}

/* ---- stacks ---- */

enum { MEMBERS = 4, STACK_ROWS = 5, STACK_COLS = 7, STACK_ALL = MEMBERS * STACK_ROWS * STACK_COLS };

/* How a stack of four matrices [5, 7] is held. */
typedef struct stacking {
    bool pattern, transposed, vector;
    int axis; /* that the tensor axis cuts; 2: none */
} stacking;

/* A norm, the stack in two parts that are fused in files along their rows (2 and 3 of them), the second one glued, and
 * another norm, on rank r of `tp`. A stack of vectors is in one part. */
static int stack_table(const stacking *how, int r, int tp, ndp_segments *s, ndp_segment items[4]) {
    static const int64_t rows[] = {2, 3};
    int parts = how->vector ? 1 : 2, n = 0;
    items[n++] = ndp_segment_whole("before", 1, 1, 9, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
    for (int i = 0; i < parts; i++) {
        ndp_segment *one = &items[n++];
        *one = ndp_segment_whole(how->pattern ? "experts.%d.weight" : "experts.weight", how->vector ? 1 : 2,
                                 how->vector ? 1 : rows[i], STACK_COLS, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
        ndp_segment_pile(one, MEMBERS, 1), one->transposed = how->transposed, one->glued = i > 0;
        if (!how->vector)
            ndp_segment_fuse(one, 0, i * rows[0], STACK_ROWS);
        if (how->axis < 2) {
            int64_t all = one->part[how->axis], first = all * r / tp;
            ndp_segment_cut(one, how->axis, first, all * (r + 1) / tp - first, (all + tp - 1) / tp);
        }
    }
    items[n++] = ndp_segment_whole("after", 1, 1, 3, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
    *s = (ndp_segments){.items = items, .n = n};
    ndp_segments_layout(s);
    return n;
}

/* The place in files of element `local` of a segment; *tensor: the number of the tensor. */
static int64_t place_of(const stacking *how, const ndp_segment *s, int64_t local, int64_t *tensor) {
    int64_t member = local / (s->rows * s->cols), in = local % (s->rows * s->cols);
    int64_t row = s->first[0] + in / s->cols, col = s->first[1] + in % s->cols;
    int64_t place = s->transposed ? col * s->whole[0] + row : row * s->whole[1] + col;
    *tensor = how->pattern ? member : 0;
    return how->pattern ? place : member * s->whole[0] * s->whole[1] + place;
}

/* Every element of a slice is in one run, with its place; those of all ranks and slices are all elements once. */
static void check_stack_runs(const stacking *how, int tp, int shards) {
    int seen[MEMBERS][STACK_ALL] = {0};
    int64_t all = how->vector ? MEMBERS * STACK_COLS : STACK_ALL, of_one = how->pattern ? all / MEMBERS : all;
    for (int r = 0; r < (how->axis < 2 ? tp : 1); r++) {
        ndp_segment items[4];
        ndp_segments s;
        stack_table(how, r, tp, &s, items);
        int64_t slice = ndp_segments_slice(&s, shards), runs = 0;
        for (int index = 0; index < shards; index++) {
            ndp_run run;
            for (int64_t at = 0; ndp_segments_run(&s, shards, index, &at, &run); runs += run.count)
                for (int64_t k = 0; k < run.count && ndp_segment_is_stack(run.segment); k++) {
                    int64_t local = index * slice + run.slice_first + k * run.stride - run.segment->offset, tensor;
                    assert_in_range(local, 0, run.segment->length - 1);
                    assert_int_equal(local / (run.segment->rows * run.segment->cols), run.member);
                    assert_int_equal(place_of(how, run.segment, local, &tensor), run.tensor_first + k);
                    seen[tensor][run.tensor_first + k]++;
                }
        }
        int64_t elements = 0;
        for (int i = 0; i < s.n; i++) {
            assert_int_equal(items[i].length, ndp_segment_elements(&items[i]));
            elements += items[i].length;
        }
        assert_int_equal(runs, elements);
    }
    for (int t = 0; t < MEMBERS; t++)
        for (int64_t k = 0; k < STACK_ALL; k++)
            assert_int_equal(seen[t][k], k < of_one && (how->pattern || t == 0));
}

static void runs_of_stacks_make_their_tensors(void **state) {
    (void)state;
    for (int how = 0; how < 2 * 2 * 3; how++)
        for (int tp = 1; tp <= 3; tp++)
            for (int shards = 1; shards <= 5; shards++) {
                check_stack_runs(&(stacking){how & 1, how & 2, false, how / 4}, tp, shards);
                check_stack_runs(&(stacking){how & 1, false, true, 2 - (how & 2) / 2}, tp, shards);
            }
}

/* On all ranks of the tensor axis the buffer is as long and the pieces begin at the same places. A stack takes what its
 * members take one after the other, each with the length that it has here. */
static void a_stack_is_laid_out_as_its_members(void **state) {
    (void)state;
    for (int axis = 0; axis < 2; axis++)
        for (int r = 0; r < 3; r++) {
            ndp_segment one[4], apart[1 + 2 * MEMBERS + 1];
            ndp_segments a, b = {.items = apart};
            stack_table(&(stacking){.pattern = true, .axis = axis}, r, 3, &a, one);
            apart[b.n++] = one[0];
            for (int i = 1; i < 3; i++)
                for (int k = 0; k < MEMBERS; k++) {
                    apart[b.n] = one[i];
                    ndp_segment_pile(&apart[b.n], 0, 0);
                    apart[b.n++].glued = i > 1 || k > 0;
                }
            apart[b.n++] = one[3];
            ndp_segments_layout(&b);
            assert_int_equal(a.elements, b.elements);
            for (int i = 1; i < 3; i++)
                for (int k = 0; k < MEMBERS; k++) {
                    ndp_segment member = ndp_segment_member(&one[i], k);
                    const ndp_segment *same = &apart[1 + (i - 1) * MEMBERS + k];
                    assert_true(member.offset == same->offset && member.length == same->length && member.stack == 0);
                }
            check_pieces(&a, 1), check_pieces(&a, 4);
        }
}

/* Of NDP_STACK_INNER each element is in one run, with its place in a matrix [2 x 5, 7 x 4]; 2 x 4 members, cut over tp,
 * or over ep by groups of two. */
static void check_inner_runs(int tp, int ep, int axis, int shards) {
    enum { ROWS = STACK_ROWS, COLS = STACK_COLS, PAIR = 2, WHOLE = PAIR * STACK_ALL };
    int seen[WHOLE] = {0};
    for (int r = 0; r < tp * ep; r++) {
        ndp_segment s = ndp_segment_whole("factor", 2, ROWS, COLS, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
        ndp_segment_pile(&s, PAIR * MEMBERS, PAIR), s.form = NDP_STACK_INNER;
        ndp_segment_cut_stack(&s, ep, r / tp);
        int64_t all = s.part[axis], first = all * (r % tp) / tp;
        ndp_segment_cut(&s, axis, first, all * (r % tp + 1) / tp - first, (all + tp - 1) / tp);
        ndp_segments table = {.items = &s, .n = 1};
        ndp_segments_layout(&table);
        int64_t slice = ndp_segments_slice(&table, shards);
        for (int index = 0; index < shards; index++) {
            ndp_run run;
            for (int64_t at = 0; ndp_segments_run(&table, shards, index, &at, &run);)
                for (int64_t k = 0; k < run.count; k++) {
                    int64_t local = index * slice + run.slice_first + k * run.stride, in = local % (s.rows * s.cols);
                    int64_t member = s.stack_first + local / (s.rows * s.cols);
                    int64_t row = member % PAIR * ROWS + s.first[0] + in / s.cols, col = s.first[1] + in % s.cols;
                    assert_in_range(local, 0, s.length - 1);
                    assert_in_range(run.slice_first + k * run.stride, 0, slice - 1);
                    assert_int_equal((row * COLS + col) * MEMBERS + member / PAIR, run.tensor_first + k);
                    assert_int_equal(run.member, (local - k * run.stride) / (s.rows * s.cols));
                    seen[run.tensor_first + k]++;
                }
        }
    }
    for (int i = 0; i < WHOLE; i++)
        assert_int_equal(seen[i], 1);
}

static void runs_of_inner_stacks_make_their_tensor(void **state) {
    (void)state;
    for (int tp = 1; tp <= 3; tp++)
        for (int ep = 1; ep <= 3; ep++)
            for (int shards = 1; shards <= 5; shards++)
                check_inner_runs(tp, ep, 0, shards), check_inner_runs(tp, ep, 1, shards);
}

static void tensors_of_stacks_have_names(void **state) {
    char room[NDP_SEGMENT_NAME];
    (void)state;
    ndp_segment s = ndp_segment_whole("mlp.experts.%d.up.weight", 2, 3, 5, NDP_DIM_FFN, NDP_DIM_WHOLE);
    assert_string_equal(ndp_segment_tensor_name(&s, 0, room), s.name); /* it is no stack */
    assert_int_equal(ndp_segment_tensors(&s), 1);
    ndp_segment_pile(&s, 128, 1);
    assert_int_equal(ndp_segment_tensors(&s), 128);
    assert_int_equal(ndp_segment_tensor_elements(&s), 15);
    assert_string_equal(ndp_segment_tensor_name(&s, 0, room), "mlp.experts.0.up.weight");
    assert_string_equal(ndp_segment_tensor_name(&s, 127, room), "mlp.experts.127.up.weight");
    ndp_segment one = ndp_segment_of_tensor(&s, 12, room);
    assert_string_equal(one.name, "mlp.experts.12.up.weight");
    assert_true(one.stack == 0 && one.offset == s.offset + 12 * 15 && one.length == 15);
    static const char *const named[] = {"mlp.experts.0.up.weight", "mlp.experts.9.up.weight",
                                        "mlp.experts.127.up.weight"},
                             *const others[] = {"mlp.experts.128.up.weight",
                                                "mlp.experts.%d.up.weight",
                                                "mlp.experts.01.up.weight",
                                                "mlp.experts..up.weight",
                                                "mlp.experts.1.down.weight",
                                                "mlp.experts.1",
                                                "mlp.expert",
                                                "mlp.experts.-1.up.weight",
                                                "mlp.experts.1.up.weight.x",
                                                "xmlp.experts.1.up.weight",
                                                "mlp.experts.99999999999999999999.up.weight"};
    for (int i = 0; i < NDP_COUNT(named); i++)
        assert_true(ndp_segment_is_named(&s, named[i]));
    for (int i = 0; i < NDP_COUNT(others); i++)
        if (ndp_segment_is_named(&s, others[i]))
            fail_msg("%s is not one of its members", others[i]);
    s.name = "mlp.experts.up";
    assert_int_equal(ndp_segment_tensors(&s), 1);
    assert_int_equal(ndp_segment_tensor_elements(&s), 128 * 15);
    assert_string_equal(ndp_segment_tensor_name(&s, 5, room), "mlp.experts.up");
    assert_true(ndp_segment_of_tensor(&s, 5, room).stack == 128);
    assert_true(ndp_segment_is_named(&s, "mlp.experts.up") && !ndp_segment_is_named(&s, "mlp.experts.up.0"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_cover_every_tensor_once),
                                       cmocka_unit_test(example_by_hand),
                                       cmocka_unit_test(runs_of_all_ranks_make_whole_tensors),
                                       cmocka_unit_test(parts_of_a_fused_tensor_make_it_whole),
                                       cmocka_unit_test(parts_in_turn_make_it_whole),
                                       cmocka_unit_test(large_tensors_do_not_overflow),
                                       cmocka_unit_test(runs_of_stacks_make_their_tensors),
                                       cmocka_unit_test(runs_of_inner_stacks_make_their_tensor),
                                       cmocka_unit_test(a_stack_is_laid_out_as_its_members),
                                       cmocka_unit_test(tensors_of_stacks_have_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
