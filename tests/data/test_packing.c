/* Rows: every prediction of the stream is in exactly one of them. */
#include "data/packing.h"

#include "data/folder.h"

enum { MAX = 64 };

typedef struct rows {
    int32_t tokens[MAX], labels[MAX], positions[MAX], starts[MAX];
} rows;

static ndp_dataset *dataset(const char *folder, const char *text, int64_t length, bool mask) {
    ndp_tokenizer *t;
    char *file = write_file(folder, "text.txt", text, strlen(text)), *path;
    CHECK_OK(ndp_tokenizer_create("bytes", &t));
    ndp_dataset_options o = {.files = (const char *const[]){file}, .n_files = 1, .cache_dir = folder, .tokenizer = t};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    ndp_dataset *d;
    CHECK_OK(ndp_dataset_open(path, length, mask, &d));
    ndp_tokenizer_destroy(t);
    free(file);
    free(path);
    return d;
}

static void check(const int32_t *got, int n, const int32_t *want, const char *what, int row) {
    for (int i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("row %d: %s[%d] is %d, expected %d", row, what, i, got[i], want[i]);
}

/* Documents ^abcd, ^f, ^hi (^ is BOS) in rows of 4. */
#define THREE "abcd\n<|endoftext|>\nf\n<|endoftext|>\nhi"
enum { B = 256 };

static void documents_are_cut_and_packed(void **state) {
    ndp_dataset *d = dataset(*state, THREE, 4, true);
    static const int32_t tokens[3][4] = {{B, 'a', 'b', 'c'}, {'d', B, 'f', B}, {'h', 'i', 0, 0}};
    static const int32_t labels[3][4] = {{'a', 'b', 'c', 'd'}, {-1, 'f', -1, 'h'}, {'i', -1, -1, -1}};
    static const int32_t positions[3][4] = {{0, 1, 2, 3}, {0, 0, 1, 0}, {0, 1, 0, 0}};
    static const int32_t starts[3][4] = {{0, 0, 0, 0}, {0, 1, 1, 3}, {0, 0, 2, 3}};
    static const int64_t valid[3] = {4, 2, 1};
    assert_int_equal(ndp_dataset_rows(d), 3);
    assert_int_equal(ndp_dataset_tokens(d), 10);
    assert_int_equal(ndp_dataset_documents(d), 3);
    assert_int_equal(ndp_dataset_largest_id(d), 256);
    for (int r = 0; r < 3; r++) {
        rows x;
        CHECK_OK(ndp_dataset_row(d, r, x.tokens, x.labels, x.positions, x.starts));
        check(x.tokens, 4, tokens[r], "tokens", r);
        check(x.labels, 4, labels[r], "labels", r);
        check(x.positions, 4, positions[r], "positions", r);
        check(x.starts, 4, starts[r], "starts", r);
        assert_int_equal(ndp_dataset_valid(d, r), valid[r]);
    }
    ndp_dataset_close(d);
}

static void without_the_mask_the_stream_is_one_text(void **state) {
    ndp_dataset *d = dataset(*state, THREE, 4, false);
    static const int32_t labels[3][4] = {{'a', 'b', 'c', 'd'}, {B, 'f', B, 'h'}, {'i', -1, -1, -1}};
    static const int32_t plain[4] = {0, 1, 2, 3}, zeros[4] = {0};
    for (int r = 0; r < 3; r++) {
        rows x;
        CHECK_OK(ndp_dataset_row(d, r, x.tokens, x.labels, x.positions, x.starts));
        check(x.labels, 4, labels[r], "labels", r);
        check(x.positions, r < 2 ? 4 : 2, plain, "positions", r);
        check(x.starts, r < 2 ? 4 : 2, zeros, "starts", r);
        assert_int_equal(ndp_dataset_valid(d, r), r < 2 ? 4 : 1);
    }
    ndp_dataset_close(d);
}

/* Any row length: as many labels as the stream has predictions, each the token that follows; the invariants of starts
 * and positions hold; the cheap count is the true one. */
static void every_prediction_is_in_one_row(void **state) {
    static const char TEXT[] =
        "a\n<|endoftext|>\nbb\n<|endoftext|>\nccc\n<|endoftext|>\ndddddddddddddd\n<|endoftext|>\ne";
    for (int mask = 0; mask < 2; mask++)
        for (int length = 1; length <= 32; length++) {
            ndp_dataset *d = dataset(*state, TEXT, length, mask);
            int64_t total = 0, tokens = 0;
            for (int64_t r = 0; r < ndp_dataset_rows(d); r++) {
                rows x, next;
                int64_t valid = 0;
                CHECK_OK(ndp_dataset_row(d, r, x.tokens, x.labels, x.positions, x.starts));
                bool more = r + 1 < ndp_dataset_rows(d);
                if (more)
                    CHECK_OK(ndp_dataset_row(d, r + 1, next.tokens, next.labels, next.positions, next.starts));
                for (int t = 0; t < length; t++) {
                    valid += x.labels[t] >= 0;
                    assert_int_equal(x.positions[t], t - x.starts[t]);
                    assert_true(t == 0 || x.starts[t] == t || x.starts[t] == x.starts[t - 1]);
                    if (x.labels[t] >= 0 && (t + 1 < length || more))
                        assert_int_equal(x.labels[t], t + 1 < length ? x.tokens[t + 1] : next.tokens[0]);
                    if (mask && x.tokens[t] == B)
                        assert_int_equal(x.starts[t], t);
                    assert_true(x.tokens[t] >= 0 && x.tokens[t] <= 256);
                }
                assert_int_equal(ndp_dataset_valid(d, r), valid);
                total += valid;
                tokens += length;
            }
            assert_int_equal(total, ndp_dataset_tokens(d) - (mask ? 5 : 1));
            assert_true(tokens >= ndp_dataset_tokens(d) - 1);
            ndp_dataset_close(d);
        }
}

static void out_of_range_is_an_error(void **state) {
    ndp_dataset *d = dataset(*state, THREE, 4, true), *none = NULL;
    rows x;
    CHECK_FAILS(ndp_dataset_row(d, 3, x.tokens, x.labels, x.positions, x.starts), NDP_EINVAL, "row 3");
    CHECK_FAILS(ndp_dataset_row(d, -1, x.tokens, x.labels, x.positions, x.starts), NDP_EINVAL, "row -1");
    assert_int_equal(ndp_dataset_valid(d, 3), 0);
    CHECK_FAILS(ndp_dataset_open("/no/such/cache", 4, true, &none), NDP_EIO, "/no/such/cache");
    CHECK_FAILS(ndp_dataset_open("/no/such/cache", 0, true, &none), NDP_EINVAL, "sequence length");
    assert_null(none);
    ndp_dataset_close(d);
}

static void a_corpus_without_predictions_is_refused(void **state) {
    static const char ONE[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    ndp_tokenizer *t;
    CHECK_OK(ndp_tokenizer_parse(ONE, strlen(ONE), "one", &t));
    char *file = write_file(*state, "a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"a\"}\n", 26), *path;
    ndp_dataset_options o = {.files = (const char *const[]){file}, .n_files = 1, .cache_dir = *state, .tokenizer = t};
    ndp_dataset *d = NULL;
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    CHECK_FAILS(ndp_dataset_open(path, 8, true, &d), NDP_EINVAL, "2 tokens in 2 documents leave no token to predict");
    assert_null(d);
    CHECK_OK(ndp_dataset_open(path, 8, false, &d));
    ndp_dataset_close(d);
    ndp_tokenizer_destroy(t);
    free(file);
    free(path);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(documents_are_cut_and_packed),
        TEST(without_the_mask_the_stream_is_one_text),
        TEST(every_prediction_is_in_one_row),
        TEST(out_of_range_is_an_error),
        TEST(a_corpus_without_predictions_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
