/* ndp_pack on drawn lengths: every sample is once in the rows, whole, with what belongs to it; rows are as few as first
 * fit finds; and the same again. */
#include "base/rng.h"
#include "base/text.h"
#include "check.h"
#include "ndparallel/loop.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 400, SPAN = 96 };

typedef struct samples {
    int32_t ids[MOST * SPAN], labels[MOST * SPAN], documents[MOST * SPAN];
    double weights[MOST * SPAN];
    int64_t lengths[MOST];
} samples;

/* Lengths are small, large, or both. Some samples are of two documents. */
static void draw(samples *x, int64_t n, int64_t length, uint64_t seed) {
    int kind = (int)ndp_rng_below(seed, 1, 0, 3);
    for (int64_t i = 0; i < n; i++) {
        uint64_t small = 1 + ndp_rng_below(seed, 2, (uint64_t)i, (uint64_t)(length + 3) / 4),
                 any = 1 + ndp_rng_below(seed, 3, (uint64_t)i, (uint64_t)length);
        x->lengths[i] = (int64_t)(kind == 0 || (kind == 2 && i % 3) ? small : any);
        for (int64_t s = 0; s < SPAN; s++) {
            x->ids[i * SPAN + s] = (int32_t)(1 + i * SPAN + s);
            x->labels[i * SPAN + s] = (int32_t)(-i * SPAN - s);
            x->weights[i * SPAN + s] = (double)i + 0.001 * (double)s;
            x->documents[i * SPAN + s] = i % 5 == 0 && s > x->lengths[i] / 2;
        }
    }
}

static int64_t first_fit(const samples *x, int64_t n, int64_t length) {
    static int64_t left[MOST];
    int64_t rows = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t r = 0;
        while (r < rows && left[r] < x->lengths[i])
            r++;
        left[r] = (r == rows ? length : left[r]) - x->lengths[i];
        rows += r == rows;
    }
    return rows;
}

static void check_rows(const samples *x, int64_t n, int64_t length, const ndp_packed_batch *p, bool documents) {
    const ndp_batch *b = &p->batch;
    int64_t tokens = 0, padding = 0, *seen = calloc((size_t)(b->samples * length) + 1, sizeof *seen);
    assert_true(b->length == length && !b->lengths && !b->positions && b->global);
    if (b->samples > first_fit(x, n, length))
        fail_msg("%lld samples take %lld rows, by first fit %lld", (long long)n, (long long)b->samples,
                 (long long)first_fit(x, n, length));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = p->rows[i], place = p->places[i], at = row * length + place, from = i * SPAN;
        size_t count = (size_t)x->lengths[i];
        assert_true(row >= 0 && row < b->samples && place >= 0 && place + x->lengths[i] <= length);
        assert_memory_equal(b->ids + at, x->ids + from, count * sizeof *b->ids);
        assert_memory_equal(b->labels + at, x->labels + from, count * sizeof *b->labels);
        assert_memory_equal(b->weights + at, x->weights + from, count * sizeof *b->weights);
        assert_true(place == 0 || b->documents[at] != b->documents[at - 1]);
        for (int64_t s = 0; s < x->lengths[i]; s++) {
            assert_int_equal(seen[at + s]++, 0);
            bool own = documents && x->documents[from + s] != x->documents[from];
            assert_int_equal(b->documents[at + s] != b->documents[at], own);
        }
        tokens += x->lengths[i];
    }
    for (int64_t at = 0; at < b->samples * length; at++) {
        padding += b->documents[at] < 0;
        assert_true((seen[at] == 0) == (b->documents[at] < 0));
        assert_true(at % length == 0 || b->documents[at] < 0 || b->documents[at - 1] >= 0); /* it ends a row */
    }
    assert_int_equal(tokens + padding, b->samples * length);
    free(seen);
}

static void drawn_lengths(void **state) {
    (void)state;
    samples *x = malloc(sizeof *x);
    int cases = short_or_all(300, 3000);
    for (int k = 0; k < cases; k++) {
        int64_t length = 1 + (int64_t)ndp_rng_below((uint64_t)k, 8, 0, SPAN),
                n = (int64_t)ndp_rng_below((uint64_t)k, 9, 0, k % 10 ? 40 : MOST);
        ndp_packed_batch p, again;
        draw(x, n, length, (uint64_t)k);
        const ndp_batch b = {.ids = x->ids,
                             .labels = x->labels,
                             .weights = x->weights,
                             .documents = k % 2 ? x->documents : NULL,
                             .lengths = x->lengths,
                             .samples = n,
                             .length = SPAN,
                             .global = true};
        CHECK_OK(ndp_pack(&b, length, &p));
        check_rows(x, n, length, &p, k % 2);
        CHECK_OK(ndp_pack(&b, length, &again));
        assert_memory_equal(p.rows, again.rows, (size_t)n * sizeof *p.rows);
        assert_memory_equal(p.places, again.places, (size_t)n * sizeof *p.places);
        ndp_packed_batch_release(&p);
        ndp_packed_batch_release(&again);
    }
    free(x);
}

/* The longest first: 3 rows of 10 where first fit takes 4. Lengths that are left out are the batch's. */
static void fewer_rows_than_in_order(void **state) {
    (void)state;
    const int32_t ids[6 * 7] = {0};
    const int64_t lengths[] = {3, 3, 3, 7, 7, 7};
    ndp_packed_batch p;
    CHECK_OK(ndp_pack(&(ndp_batch){.ids = ids, .lengths = lengths, .samples = 6, .length = 7}, 10, &p));
    assert_int_equal(p.batch.samples, 3);
    assert_true(!p.batch.labels && !p.batch.weights && !p.batch.global);
    ndp_packed_batch_release(&p);
    CHECK_OK(ndp_pack(&(ndp_batch){.ids = ids, .samples = 6, .length = 5}, 10, &p));
    assert_int_equal(p.batch.samples, 3);
    ndp_packed_batch_release(&p);
    ndp_packed_batch_release(NULL);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    const int32_t ids[8] = {0}, padding[8] = {0, -1};
    const int64_t none[] = {4, 0}, more[] = {4, 5};
    ndp_packed_batch p;
    const struct {
        ndp_batch batch;
        int64_t length;
        const char *words;
    } cases[] = {
        {{.ids = ids, .samples = 2, .length = 4}, 0, "rows of 0 tokens"},
        {{.ids = ids, .samples = 2, .length = 4}, 3, "sample 0 has 4 tokens, must have 1 to 3"},
        {{.ids = ids, .samples = 2, .length = 4, .lengths = none}, 9, "sample 1 has 0 tokens, must have 1 to 4"},
        {{.ids = ids, .samples = 2, .length = 4, .lengths = more}, 9, "sample 1 has 5 tokens"},
        {{.samples = 2, .length = 4}, 9, "no ids"},
        {{.ids = ids, .samples = -1, .length = 4}, 9, "-1 samples"},
        {{.ids = ids, .documents = padding, .samples = 2, .length = 4}, 9, "sample 0, token 1 is padding"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++)
        CHECK_FAILS(ndp_pack(&cases[i].batch, cases[i].length, &p), NDP_EINVAL, cases[i].words);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_lengths),
        cmocka_unit_test(fewer_rows_than_in_order),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
