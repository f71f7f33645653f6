#include "tensor/segments.h"

#include "base/rng.h"
#include "check.h"
#include <stdlib.h>

enum { MOST = 24 };

static int64_t size_of(const ndp_segment *s) { return s->rows * s->cols; }

/* A table of `n` tensors, vectors and matrices, odd sizes, a third of them glued. */
static void random_table(uint64_t seed, ndp_segments *s, ndp_segment items[MOST]) {
    s->items = items;
    s->n = (int)ndp_rng_below(seed, 0, 0, MOST + 1);
    for (int i = 0; i < s->n; i++) {
        uint64_t at = (uint64_t)i;
        bool vector = ndp_rng_below(seed, 1, at, 3) == 0;
        items[i] = (ndp_segment){.name = "x",
                                 .ndim = vector ? 1 : 2,
                                 .rows = vector ? 1 : 1 + (int64_t)ndp_rng_below(seed, 2, at, 40),
                                 .cols = 1 + (int64_t)ndp_rng_below(seed, 3, at, 200),
                                 .glued = i > 0 && ndp_rng_below(seed, 4, at, 3) == 0,
                                 .copies = 1};
    }
    ndp_segments_layout(s);
}

static void check_offsets(const ndp_segments *s) {
    int64_t end = 0;
    for (int i = 0; i < s->n; i++) {
        const ndp_segment *seg = &s->items[i];
        if (seg->glued)
            assert_int_equal(seg->offset, end);
        else
            assert_int_equal(seg->offset % NDP_SEGMENT_ALIGN, 0);
        assert_true(seg->offset >= end && seg->offset < end + NDP_SEGMENT_ALIGN);
        end = seg->offset + size_of(seg);
    }
    assert_int_equal(s->elements, end);
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
            assert_int_equal(p.segment->offset + p.tensor_first, index * slice + p.slice_first);
            assert_int_equal(p.tensor_first, covered[i]);
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
        static const int shards[] = {1, 2, 3, 4, 5, 7, 8, 16, 61, 1024};
        for (int i = 0; i < NDP_COUNT(shards); i++)
            check_pieces(&s, shards[i]);
    }
}

/* Worked by hand: q [4 x 30], k [2 x 30] and v glued behind it, a norm of 30 on its own line. */
static void example_by_hand(void **state) {
    (void)state;
    ndp_segment items[] = {{.name = "q", .rows = 4, .cols = 30, .ndim = 2},
                           {.name = "k", .rows = 2, .cols = 30, .ndim = 2, .glued = true},
                           {.name = "v", .rows = 2, .cols = 30, .ndim = 2, .glued = true},
                           {.name = "norm", .rows = 1, .cols = 30, .ndim = 1}};
    ndp_segments s = {items, 4, 0};
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
    assert_int_equal(p.tensor_first, 12);
    assert_int_equal(p.slice_first, 0);
    assert_int_equal(p.count, 48);
    assert_true(ndp_segments_piece(&s, 2, 1, &cursor, &p));
    assert_string_equal(p.segment->name, "norm");
    assert_int_equal(p.tensor_first, 0);
    assert_int_equal(p.slice_first, 64);
    assert_int_equal(p.count, 30);
    assert_false(ndp_segments_piece(&s, 2, 1, &cursor, &p));
    cursor = 0;
    assert_false(ndp_segments_piece(&s, 8, 7, &cursor, &p)); /* padding only */
}

/* 2^31 elements and more: a table of 405B's embedding, cut for 1024 ranks. */
static void large_tensors_do_not_overflow(void **state) {
    (void)state;
    ndp_segment items[] = {{.name = "embed", .rows = 128256, .cols = 16384, .ndim = 2},
                           {.name = "head", .rows = 128256, .cols = 16384, .ndim = 2}};
    ndp_segments s = {items, 2, 0};
    ndp_segments_layout(&s);
    assert_true(s.elements == 2 * 128256LL * 16384);
    check_pieces(&s, 1024);
    check_pieces(&s, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_cover_every_tensor_once),
                                       cmocka_unit_test(example_by_hand),
                                       cmocka_unit_test(large_tensors_do_not_overflow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
