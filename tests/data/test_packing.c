/* Rows: every prediction of the stream is in exactly one of them. */
#include "data/packing.h"

#include "base/rng.h"
#include "data/cache/cache.h"
#include "data/folder.h"
#include "data/row_table.h"

enum { MAX = 64 };

typedef struct rows {
    int32_t tokens[MAX], labels[MAX], positions[MAX], document_start[MAX];
} rows;

/* The cache of some files' contents; The caller frees. */
static char *prepare(const char *folder, const char *const *texts, int n) {
    ndp_tokenizer *t;
    char *files[8], *path;
    CHECK_OK(ndp_tokenizer_create("bytes", &t));
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "text%d.txt", i);
        files[i] = write_file(folder, name, texts[i], strlen(texts[i]));
    }
    ndp_dataset_options o = {.files = (const char *const *)files, .n_files = n, .cache_dir = folder, .tokenizer = t};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    ndp_tokenizer_destroy(t);
    for (int i = 0; i < n; i++)
        free(files[i]);
    return path;
}

static ndp_dataset *open_rows(char *path, const ndp_row_opts *o) {
    ndp_dataset *d;
    CHECK_OK(ndp_dataset_open(path, o, &d));
    free(path);
    return d;
}

static ndp_dataset *dataset(const char *folder, const char *text, int64_t length, bool mask) {
    return open_rows(prepare(folder, &text, 1), &(ndp_row_opts){.length = length, .document_mask = mask});
}

/* Another process cuts the cache: rows are read as if it held zeros, and then the file is named. */
static void a_cut_cache_is_named(void **state) {
    enum { N = 100000 };
    char *text = malloc(N + 1), *path;
    memset(text, 'a', N);
    text[N] = '\0';
    for (int cut = 0; cut < 3; cut++) {
        rows x;
        ndp_dataset *d;
        path = prepare(*state, &(const char *){text}, 1);
        CHECK_OK(ndp_dataset_open(path, &(ndp_row_opts){.length = MAX, .document_mask = true}, &d));
        CHECK_OK(ndp_dataset_check(d));
        assert_int_equal(truncate(path, cut == 0 ? 0 : cut == 1 ? 100 : 50000), 0);
        for (int64_t row = 0; row < ndp_dataset_rows(d); row++)
            CHECK_OK(ndp_dataset_row(d, row, x.tokens, x.labels, x.positions, x.document_start));
        CHECK_FAILS(ndp_dataset_check(d), NDP_EIO, path);
        ndp_dataset_close(d);
        unlink(path);
        free(path);
    }
    free(text);
}

static void a_changed_id_is_refused(void **state) {
    char *path = prepare(*state, &(const char *){"abc"}, 1);
    rows x;
    ndp_dataset *d;
    CHECK_OK(ndp_dataset_open(path, &(ndp_row_opts){.length = 8, .document_mask = true}, &d));
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fseek(f, (long)sizeof(ndp_cache_header) + 4, SEEK_SET), 0);
    assert_int_equal(fwrite("\xff\xff", 1, 2, f), 2);
    fclose(f);
    CHECK_FAILS(ndp_dataset_row(d, 0, x.tokens, x.labels, x.positions, x.document_start), NDP_EIO,
                "contains the id 65535, beyond its largest 256: it was changed while in use");
    ndp_dataset_close(d);
    free(path);
}

static void check(const int32_t *got, int n, const int32_t *want, const char *what, int row) {
    for (int i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("row %d: %s[%d] is %d, expected %d", row, what, i, got[i], want[i]);
}

/* Documents ^abcd, ^f, ^hi (^ is BOS) in rows of 4. */
#define THREE "abcd\n<|endoftext|>\nf\n<|endoftext|>\nhi"
enum { B = 256 };

static void check_row(const ndp_dataset *d, int r, const int32_t *tokens, const int32_t *labels,
                      const int32_t *positions, const int32_t *document_start) {
    rows x;
    CHECK_OK(ndp_dataset_row(d, r, x.tokens, x.labels, x.positions, x.document_start));
    check(x.tokens, 4, tokens, "tokens", r);
    check(x.labels, 4, labels, "labels", r);
    check(x.positions, 4, positions, "positions", r);
    check(x.document_start, 4, document_start, "document_start", r);
}

/* The d of ^abcd, and of ^hi behind ^f, has nothing to predict or no room. */
static void documents_are_cut_and_packed(void **state) {
    ndp_dataset *d = dataset(*state, THREE, 4, true);
    static const int32_t tokens[3][4] = {{B, 'a', 'b', 'c'}, {B, 'f', 0, 0}, {B, 'h', 'i', 0}};
    static const int32_t labels[3][4] = {{'a', 'b', 'c', 'd'}, {'f', -1, -1, -1}, {'h', 'i', -1, -1}};
    static const int32_t positions[3][4] = {{0, 1, 2, 3}, {0, 1, 0, 0}, {0, 1, 2, 0}};
    static const int32_t document_start[3][4] = {{0, 0, 0, 0}, {0, 0, 2, 3}, {0, 0, 0, 3}};
    assert_int_equal(ndp_dataset_rows(d), 3);
    assert_int_equal(ndp_dataset_tokens(d), 9);
    assert_int_equal(ndp_dataset_labels(d), 7);
    assert_int_equal(ndp_dataset_documents(d), 3);
    assert_true(ndp_dataset_fill(d) == 0.75);
    for (int r = 0; r < 3; r++)
        check_row(d, r, tokens[r], labels[r], positions[r], document_start[r]);
    ndp_dataset_close(d);
}

/* ^ab and ^cde share no row of 4, ^f goes in behind the first. */
static void the_first_row_with_room_is_taken(void **state) {
    ndp_dataset *d = dataset(*state, "c\n<|endoftext|>\ndef\n<|endoftext|>\ng", 4, true);
    assert_int_equal(ndp_dataset_rows(d), 2);
    check_row(d, 0, (int32_t[]){B, 'c', B, 'g'}, (int32_t[]){'c', -1, 'g', -1}, (int32_t[]){0, 1, 0, 1},
              (int32_t[]){0, 0, 2, 2});
    check_row(d, 1, (int32_t[]){B, 'd', 'e', 'f'}, (int32_t[]){'d', 'e', 'f', -1}, (int32_t[]){0, 1, 2, 3},
              (int32_t[]){0, 0, 0, 0});
    ndp_dataset_close(d);
}

static void without_packing_a_row_has_one_piece(void **state) {
    const char *text = THREE;
    for (int mask = 0; mask < 2; mask++) {
        ndp_dataset *d =
            open_rows(prepare(*state, &text, 1), &(ndp_row_opts){.length = 4, .document_mask = mask, .single = true});
        assert_int_equal(ndp_dataset_rows(d), 3);
        check_row(d, 1, (int32_t[]){B, 'f', 0, 0}, (int32_t[]){'f', -1, -1, -1}, (int32_t[]){0, 1, 0, 0},
                  (int32_t[]){0, 0, 2, 3});
        ndp_dataset_close(d);
    }
}

static void long_documents_may_be_refused(void **state) {
    const char *text = THREE;
    ndp_dataset *d = NULL;
    char *path = prepare(*state, &text, 1);
    ndp_row_opts o = {
        .length = 4, .document_mask = true, .overlong = NDP_OVERLONG_ERROR, .names = (const char *const[]){"here.txt"}};
    CHECK_FAILS(ndp_dataset_open(path, &o, &d), NDP_EINVAL, "here.txt: document 1 has 5 tokens, a row has 4");
    o.length = 5;
    CHECK_OK(ndp_dataset_open(path, &o, &d));
    ndp_dataset_close(d);
    free(path);
}

/* "abcd", "f", "hi" with a BOS each: the first one is too long for rows of 4. */
static void long_documents_may_be_dropped_or_truncated(void **state) {
    const char *text = THREE;
    for (int way = 0; way < 3; way++) { /* packed, one a row, one text */
        ndp_row_opts o = {.length = 4, .document_mask = way < 2, .single = way == 1, .overlong = NDP_OVERLONG_DROP};
        ndp_dataset *d = open_rows(prepare(*state, &text, 1), &o);
        assert_int_equal(ndp_dataset_losses(d).overlong, 1);
        assert_int_equal(ndp_dataset_documents(d), 2);
        assert_int_equal(ndp_dataset_tokens(d), way < 2 ? 5 : 4); /* the last token of one text is only a label */
        assert_int_equal(ndp_dataset_labels(d), way < 2 ? 3 : 4);
        ndp_dataset_close(d);
        o.overlong = NDP_OVERLONG_TRUNCATE;
        d = open_rows(prepare(*state, &text, 1), &o);
        assert_int_equal(ndp_dataset_losses(d).overlong, 1);
        assert_int_equal(ndp_dataset_losses(d).emptied, 0);
        assert_int_equal(ndp_dataset_documents(d), 3);
        assert_int_equal(ndp_dataset_tokens(d), way < 2 ? 9 : 8);
        check_row(d, 0, (int32_t[]){B, 'a', 'b', 'c'}, (int32_t[]){'a', 'b', 'c', way < 2 ? -1 : B},
                  (int32_t[]){0, 1, 2, 3}, (int32_t[]){0, 0, 0, 0});
        ndp_dataset_close(d);
    }
}

/* "f" is two tokens. One text has all of the others: the last token of it is only a label. */
static void short_documents_may_be_left_out(void **state) {
    const char *text = THREE;
    for (int way = 0; way < 3; way++) { /* packed, one a row, one text */
        ndp_row_opts o = {.length = 5, .document_mask = way < 2, .single = way == 1, .least_tokens = 2};
        ndp_dataset *d = open_rows(prepare(*state, &text, 1), &o);
        assert_int_equal(ndp_dataset_losses(d).scant, 0);
        assert_int_equal(ndp_dataset_documents(d), 3);
        ndp_dataset_close(d);
        o.least_tokens = 3;
        d = open_rows(prepare(*state, &text, 1), &o);
        assert_int_equal(ndp_dataset_losses(d).scant, 1);
        assert_int_equal(ndp_dataset_documents(d), 2);
        assert_int_equal(ndp_dataset_labels(d), way < 2 ? 6 : 7);
        ndp_dataset_close(d);
    }
    char *path = prepare(*state, &text, 1);
    ndp_row_opts o = {.length = 5, .document_mask = true, .least_tokens = 9};
    CHECK_FAILS(ndp_dataset_open(path, &o, &(ndp_dataset *){NULL}), NDP_EINVAL,
                "data.min_tokens leaves out 3 of 3 documents, those of fewer than 9 tokens; lower it");
    free(path);
}

static bool held_here(double part, const int *documents, int n, int64_t held[]) {
    int64_t k = 0;
    for (int i = 0; i < n; i++)
        if (documents[i] >= 0 && ndp_held_out(part, i))
            held[k++] = documents[i];
    held[k] = -1;
    return k > 0;
}

/* Of drawn documents, of which many are alike, in several sources, the first of each kind is left, whether it is held
 * out or not; training on other tokens of the same text is another kind. */
static void repeated_documents_may_be_left_out(void **state) {
    enum { N = 40, LENGTH = 3, KINDS = 9 };
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint64_t offsets[N + 1], ends[] = {N / 3, N};
        uint16_t ids[N * LENGTH];
        uint8_t trained[N * LENGTH / 8 + 1] = {0};
        int first[N], seen[KINDS] = {0}, kinds = 0;
        for (int i = 0; i < N; i++) {
            int kind = (int)(ndp_rng_uniform(seed, 1, (uint64_t)i) * KINDS), text = kind / 2;
            offsets[i] = (uint64_t)(i * LENGTH), offsets[i + 1] = offsets[i] + LENGTH;
            ids[i * LENGTH] = 1, ids[i * LENGTH + 1] = (uint16_t)(2 + text), ids[i * LENGTH + 2] = 3;
            for (int k = 1 + kind % 2, at; k < LENGTH; k++)
                at = i * LENGTH + k, trained[at >> 3] |= (uint8_t)(1 << (at & 7));
            first[i] = seen[kind]++ ? -1 : i;
            kinds += first[i] >= 0;
        }
        const ndp_token_cache c = {.offsets = offsets,
                                   .source_ends = ends,
                                   .ids = ids,
                                   .trained = trained,
                                   .id_bytes = 2,
                                   .n_sources = 2,
                                   .n_documents = N,
                                   .n_tokens = N * LENGTH,
                                   .largest_id = 20};
        for (int way = 0; way < 8; way++) {
            ndp_row_opts o = {.length = LENGTH,
                              .document_mask = true,
                              .single = way % 2,
                              .by_source = way / 2 % 2,
                              .unique = true,
                              .held_out = way >= 4 ? 0.2 : 0};
            int64_t held[N + 1], n_held = 0;
            bool any = held_here(o.held_out, first, N, held);
            while (held[n_held] >= 0)
                n_held++;
            ndp_dataset *d;
            CHECK_OK(ndp_dataset_create(&c, &o, &d));
            assert_int_equal(ndp_dataset_documents(d), kinds - n_held);
            for (int r = 0, i = 0; r < ndp_dataset_rows(d); r++, i++) { /* in the order of the data */
                while (first[i] < 0 || (o.held_out > 0 && ndp_held_out(o.held_out, i)))
                    i++;
                assert_int_equal(ndp_dataset_document_of(d, ndp_dataset_token(d, r, 0)), i);
            }
            ndp_dataset_close(d);
            o.validation = true;
            if (!any)
                continue;
            CHECK_OK(ndp_dataset_create(&c, &o, &d));
            assert_int_equal(ndp_dataset_documents(d), n_held);
            ndp_dataset_close(d);
        }
    }
}

/* A conversation whose answer is cut off has nothing to predict: it is left out, and counted. */
static void truncated_documents_may_be_emptied(void **state) {
    const uint64_t offsets[] = {0, 8, 11}, ends[] = {2};
    const uint16_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const uint8_t trained[] = {0xf0, 0x07}; /* tokens 4 to 7 of the first, all of the second */
    const ndp_token_cache c = {.offsets = offsets,
                               .source_ends = ends,
                               .ids = ids,
                               .trained = trained,
                               .id_bytes = 2,
                               .n_sources = 1,
                               .n_documents = 2,
                               .n_tokens = 11,
                               .largest_id = 11};
    ndp_dataset *d;
    (void)state;
    for (int length = 4; length <= 5; length++) {
        ndp_row_opts o = {.length = length, .document_mask = true, .overlong = NDP_OVERLONG_TRUNCATE};
        CHECK_OK(ndp_dataset_create(&c, &o, &d));
        assert_int_equal(ndp_dataset_losses(d).overlong, 1);
        assert_int_equal(ndp_dataset_losses(d).emptied, length == 4);
        assert_int_equal(ndp_dataset_documents(d), length == 4 ? 1 : 2);
        assert_int_equal(ndp_dataset_labels(d), length == 4 ? 2 : 3);
        ndp_dataset_close(d);
    }
}

static void nothing_left_is_refused(void **state) {
    const char *text = THREE;
    char *path = prepare(*state, &text, 1);
    ndp_dataset *d = NULL;
    ndp_row_opts o = {.length = 1, .document_mask = true, .overlong = NDP_OVERLONG_DROP};
    CHECK_FAILS(ndp_dataset_open(path, &o, &d), NDP_EINVAL,
                "data.overlong leaves out or truncates 3 of 3 documents, those of more than 1 tokens");
    free(path);
}

/* The first documents of every source, with each way of packing, and among them those that are held out. */
static void the_first_documents_of_each_source(void **state) {
    const char *texts[] = {THREE, "k\n<|endoftext|>\nl\n<|endoftext|>\nm\n<|endoftext|>\nn", "o"};
    for (int by_source = 0; by_source < 2; by_source++) {
        ndp_row_opts o = {.length = 8, .document_mask = true, .most_documents = 2, .by_source = by_source};
        ndp_dataset *d = open_rows(prepare(*state, texts, 3), &o);
        assert_int_equal(ndp_dataset_documents(d), 5);
        assert_int_equal(ndp_dataset_losses(d).beyond, 3);
        bool seen[128] = {0};
        for (int64_t r = 0; r < ndp_dataset_rows(d); r++) {
            rows x;
            CHECK_OK(ndp_dataset_row(d, r, x.tokens, x.labels, x.positions, x.document_start));
            for (int t = 0; t < 8; t++)
                if (x.labels[t] >= 0 && x.labels[t] < 128)
                    seen[x.labels[t]] = true;
        }
        assert_true(seen['a'] && seen['f'] && seen['k'] && seen['l'] && seen['o']);
        assert_false(seen['h'] || seen['m'] || seen['n']);
        ndp_dataset_close(d);
    }
}

static void without_the_mask_the_stream_is_one_text(void **state) {
    ndp_dataset *d = dataset(*state, THREE, 4, false);
    static const int32_t labels[3][4] = {{'a', 'b', 'c', 'd'}, {B, 'f', B, 'h'}, {'i', -1, -1, -1}};
    static const int32_t plain[4] = {0, 1, 2, 3}, zeros[4] = {0};
    for (int r = 0; r < 3; r++) {
        rows x;
        CHECK_OK(ndp_dataset_row(d, r, x.tokens, x.labels, x.positions, x.document_start));
        check(x.labels, 4, labels[r], "labels", r);
        check(x.positions, r < 2 ? 4 : 2, plain, "positions", r);
        check(x.document_start, r < 2 ? 4 : 2, zeros, "document_start", r);
    }
    ndp_dataset_close(d);
}

/* Any row length, every way: as many labels as there are predictions, each the token that follows; the invariants of
 * document_start and positions hold. */
static void every_prediction_is_in_one_row(void **state) {
    static const char TEXT[] =
        "a\n<|endoftext|>\nbb\n<|endoftext|>\nccc\n<|endoftext|>\ndddddddddddddd\n<|endoftext|>\ne";
    for (int way = 0; way < 4; way++)
        for (int length = 1; length <= 32; length++) {
            const char *text = TEXT;
            bool mask = way & 1, single = way & 2;
            ndp_dataset *d = open_rows(prepare(*state, &text, 1),
                                       &(ndp_row_opts){.length = length, .document_mask = mask, .single = single});
            int64_t total = 0, seen[128] = {0};
            for (int64_t r = 0; r < ndp_dataset_rows(d); r++) {
                rows x;
                int64_t valid = 0;
                CHECK_OK(ndp_dataset_row(d, r, x.tokens, x.labels, x.positions, x.document_start));
                for (int t = 0; t < length; t++) {
                    valid += x.labels[t] >= 0;
                    if (x.labels[t] >= 0 && x.labels[t] < 128)
                        seen[x.labels[t]]++;
                    assert_int_equal(x.positions[t], t - x.document_start[t]);
                    assert_true(t == 0 || x.document_start[t] == t || x.document_start[t] == x.document_start[t - 1]);
                    if (x.labels[t] >= 0 && t + 1 < length)
                        assert_int_equal(x.labels[t], x.tokens[t + 1]);
                    if (mask && x.tokens[t] == B)
                        assert_int_equal(x.document_start[t], t);
                    assert_true(x.tokens[t] >= 0 && x.tokens[t] <= 256);
                }
                assert_true(valid > 0);
                total += valid;
            }
            assert_int_equal(total, ndp_dataset_labels(d));
            assert_int_equal(total, 26 - (mask || single ? 5 : 1));
            for (int c = 'a'; c <= 'e'; c++) /* each letter is predicted as often as it stands there */
                assert_int_equal(seen[c], c == 'd' ? 14 : c == 'e' ? 1 : c - 'a' + 1);
            ndp_dataset_close(d);
        }
}

/* Documents of many lengths: each token in one row, and little padding. */
static void rows_are_nearly_full(void **state) {
    enum { DOCUMENTS = 5000, LENGTH = 64 };
    ndp_str text = {0};
    int64_t tokens = 0;
    for (int i = 0; i < DOCUMENTS; i++) {
        int n = 1 + (int)(ndp_rng_uniform(1, 1, (uint64_t)i) * ndp_rng_uniform(1, 2, (uint64_t)i) * 60);
        ndp_str_addf(&text, "%s%.*s", i ? "\n<|endoftext|>\n" : "", n,
                     "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnop");
        tokens += n + 1;
    }
    ndp_dataset *d = dataset(*state, text.data, LENGTH, true);
    int64_t documents = 0;
    for (int64_t r = 0; r < ndp_dataset_rows(d); r++) {
        rows x;
        CHECK_OK(ndp_dataset_row(d, r, x.tokens, x.labels, x.positions, x.document_start));
        for (int t = 0; t < LENGTH; t++)
            documents += x.tokens[t] == B;
    }
    print_message("%lld rows, %.2f%% full\n", (long long)ndp_dataset_rows(d), 100 * ndp_dataset_fill(d));
    assert_int_equal(documents, DOCUMENTS);
    assert_int_equal(ndp_dataset_documents(d), DOCUMENTS);
    assert_int_equal(ndp_dataset_tokens(d), tokens);
    assert_int_equal(ndp_dataset_labels(d), tokens - DOCUMENTS);
    assert_true(ndp_dataset_fill(d) > 0.98);
    ndp_dataset_close(d);
    ndp_str_release(&text);
}

/* Held out and not: every document is in one of the two, and rows of one have nothing of the other. */
static void documents_are_held_out(void **state) {
    ndp_str text = {0};
    for (int i = 0; i < 400; i++)
        ndp_str_addf(&text, "%s%d", i ? "\n<|endoftext|>\n" : "", 1000 + i);
    const char *texts = text.data;
    char *path = prepare(*state, &texts, 1);
    int64_t documents[2];
    int seen[400] = {0};
    for (int part = 0; part < 2; part++) {
        ndp_row_opts o = {.length = 32, .document_mask = true, .held_out = 0.2, .validation = part};
        ndp_dataset *d;
        CHECK_OK(ndp_dataset_open(path, &o, &d));
        documents[part] = ndp_dataset_documents(d);
        for (int64_t r = 0; r < ndp_dataset_rows(d); r++) {
            rows x;
            CHECK_OK(ndp_dataset_row(d, r, x.tokens, x.labels, x.positions, x.document_start));
            for (int t = 0; t + 4 < 32; t++)
                if (x.tokens[t] == B) {
                    int number = 0;
                    for (int k = 1; k <= 4; k++)
                        number = 10 * number + x.tokens[t + k] - '0';
                    seen[number - 1000]++;
                    assert_int_equal(ndp_held_out(0.2, number - 1000), part);
                }
        }
        ndp_dataset_close(d);
    }
    for (int i = 0; i < 400; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(documents[0] + documents[1], 400);
    assert_in_range(documents[1], 60, 100);
    ndp_dataset *none = NULL;
    ndp_row_opts o = {.length = 32, .document_mask = true, .held_out = 1e-9, .validation = true};
    CHECK_FAILS(ndp_dataset_open(path, &o, &none), NDP_EINVAL, "the validation set is empty: data.validation_fraction");
    free(path);
    ndp_str_release(&text);
}

/* By source, rows hold documents of one alone. */
static void rows_may_keep_sources_apart(void **state) {
    const char *texts[2] = {"a\n<|endoftext|>\na", "bb\n<|endoftext|>\nb"};
    ndp_dataset *d =
        open_rows(prepare(*state, texts, 2), &(ndp_row_opts){.length = 8, .document_mask = true, .by_source = true});
    int64_t first, n;
    assert_int_equal(ndp_dataset_sources(d), 2);
    for (int i = 0; i < 2; i++) {
        rows x;
        ndp_dataset_source(d, i, &first, &n);
        assert_int_equal(first, i);
        assert_int_equal(n, 1);
        CHECK_OK(ndp_dataset_row(d, first, x.tokens, x.labels, x.positions, x.document_start));
        for (int t = 0; t < 8; t++)
            assert_true(x.tokens[t] != (i ? 'a' : 'b'));
    }
    ndp_dataset_close(d);
}

/* A cache of two documents and one source, with up to 8 bits of tokens that are trained on. */
static void write_cache(const char *path, const uint16_t *ids, uint64_t n, const uint64_t *offsets, uint64_t documents,
                        uint64_t bits) {
    ndp_str s = {0};
    ndp_cache_header h = {.version = NDP_CACHE_VERSION,
                          .id_bytes = 2,
                          .n_documents = documents,
                          .n_tokens = n,
                          .n_sources = 1,
                          .partly = 1,
                          .largest_id = B};
    memcpy(h.magic, NDP_CACHE_MAGIC, sizeof h.magic);
    h.hash = ndp_cache_header_hash(&h);
    ndp_str_add_bytes(&s, &h, sizeof h);
    ndp_str_add_bytes(&s, ids, ndp_cache_ids_bytes(&h));
    ndp_str_add_bytes(&s, offsets, 8 * (documents + 1));
    ndp_str_add_bytes(&s, &documents, 8);
    ndp_str_add_bytes(&s, &bits, 8);
    CHECK_OK(ndp_file_write_atomic(path, s.data, s.length));
    ndp_str_release(&s);
}

/* Labels are the tokens that are trained on; a piece without one has no row. */
static void only_what_is_learned_has_labels(void **state) {
    char *path = ndp_format("%s/cache", (char *)*state);
    /* ^abc^dd: c and the last d are trained on */
    static const uint16_t ids[8] = {B, 'a', 'b', 'c', B, 'd', 'd', 0};
    write_cache(path, ids, 7, (const uint64_t[]){0, 4, 7}, 2, 0x48);
    ndp_dataset *d;
    ndp_row_opts o = {.length = 2, .document_mask = true, .overlong = NDP_OVERLONG_CUT};
    CHECK_OK(ndp_dataset_open(path, &o, &d));
    assert_int_equal(ndp_dataset_rows(d), 2);
    assert_int_equal(ndp_dataset_labels(d), 2);
    rows x;
    CHECK_OK(ndp_dataset_row(d, 0, x.tokens, x.labels, x.positions, x.document_start));
    check(x.tokens, 2, (int32_t[]){'b', 'c'}, "tokens", 0);
    check(x.labels, 2, (int32_t[]){'c', -1}, "labels", 0);
    CHECK_OK(ndp_dataset_row(d, 1, x.tokens, x.labels, x.positions, x.document_start));
    check(x.labels, 2, (int32_t[]){-1, 'd'}, "labels", 1);
    ndp_dataset_close(d);
    free(path);
}

/* ---- conversations ---- */

enum { IDS = 400, LENGTHS = 40, TALKS = 31 };

/* Documents of turns: stretches that are not trained on and ones that are, twice or once; some begin with an answer. */
typedef struct talks {
    uint64_t offsets[TALKS + 1], ends[1], questions[IDS];
    uint16_t ids[IDS];
    uint8_t trained[IDS / 8];
    ndp_token_cache cache;
} talks;

static int draw(uint64_t seed, int *i, int most) {
    return 1 + (int)(ndp_rng_uniform(seed, 1, (uint64_t)(*i)++) * most);
}

static void make_talks(talks *x, uint64_t seed) {
    int n = 0, at = 0, i = 0, questions = 0;
    *x = (talks){.offsets = {0}};
    for (; n < TALKS && at < IDS; n++) {
        bool answer = draw(seed, &i, 5) == 1;
        for (int turns = draw(seed, &i, 5); turns > 0 && at < IDS; turns--) {
            if (at > (int)x->offsets[n])
                x->questions[questions++] = (uint64_t)at;
            for (int stretch = 2 * draw(seed, &i, 2); stretch > 0 && at < IDS; stretch--, answer = !answer)
                for (int k = draw(seed, &i, 9); k > 0 && at < IDS; k--, at++)
                    x->trained[at / 8] |= (uint8_t)(answer << at % 8);
        }
        x->offsets[n + 1] = (uint64_t)at;
    }
    for (int k = 0; k < IDS; k++)
        x->ids[k] = (uint16_t)k; /* ids are places */
    x->ends[0] = (uint64_t)n;
    x->cache = (ndp_token_cache){.offsets = x->offsets,
                                 .source_ends = x->ends,
                                 .questions = x->questions,
                                 .ids = x->ids,
                                 .trained = x->trained,
                                 .id_bytes = 2,
                                 .n_sources = 1,
                                 .n_documents = n,
                                 .n_tokens = at,
                                 .n_questions = questions,
                                 .largest_id = IDS};
}

/* The last question, or beginning of a document, at or before a token; and where its turn ends. */
static int64_t turn_of(const talks *x, int64_t at, int64_t *end) {
    int64_t begin = 0;
    *end = x->cache.n_tokens;
    for (int64_t d = 0; d <= x->cache.n_documents; d++) {
        int64_t place = (int64_t)x->offsets[d];
        begin = place <= at ? place : begin;
        *end = place > at && place < *end ? place : *end;
    }
    for (int64_t k = 0; k < x->cache.n_questions; k++) {
        int64_t place = (int64_t)x->questions[k];
        begin = place <= at && place > begin ? place : begin;
        *end = place > at && place < *end ? place : *end;
    }
    return begin;
}

static int64_t document_of(const talks *x, int64_t at) {
    int64_t d = 0;
    while ((int64_t)x->offsets[d + 1] <= at)
        d++;
    return d;
}

/* Rows of one piece each. What is predicted is in a row with the beginning of its turn, unless the document begins with
 * what is trained on; every turn that has room in a row is wholly in one; what is left out is counted. */
static int64_t check_turns(const talks *x, const ndp_dataset *d, int64_t length) {
    int64_t predicted = 0;
    bool in_row[IDS] = {false};
    rows r;
    for (int64_t i = 0; i < ndp_dataset_rows(d); i++) {
        CHECK_OK(ndp_dataset_row(d, i, r.tokens, r.labels, r.positions, r.document_start));
        int64_t first = r.tokens[0], document = document_of(x, first), end;
        bool text = ndp_token_cache_trained(&x->cache, (int64_t)x->offsets[document]);
        for (int64_t t = 0; t < length; t++) {
            int64_t at = r.labels[t];
            if (at < 0)
                continue;
            assert_true(!in_row[at] && document_of(x, at) == document);
            in_row[at] = true;
            predicted++;
            if (!text && turn_of(x, at, &end) < first)
                fail_msg("row %lld, from token %lld on, predicts %lld without its question", (long long)i,
                         (long long)first, (long long)at);
        }
    }
    for (int64_t at = 1, end; at < x->cache.n_tokens; at++) {
        int64_t begin = turn_of(x, at, &end);
        bool fits = end - begin <= length && at > (int64_t)x->offsets[document_of(x, at)];
        if (fits && ndp_token_cache_trained(&x->cache, at) && !in_row[at])
            fail_msg("token %lld, of a turn of %lld, is in no row of %lld", (long long)at, (long long)(end - begin),
                     (long long)length);
    }
    return predicted;
}

static void answers_have_their_question(void **state) {
    (void)state;
    talks x;
    int64_t out = 0;
    for (uint64_t seed = 0; seed < 60; seed++)
        for (int64_t length = 2; length < LENGTHS; length += 3) {
            make_talks(&x, seed);
            ndp_row_opts o = {.length = length, .document_mask = true, .single = true, .overlong = NDP_OVERLONG_CUT};
            ndp_dataset *cut, *d;
            CHECK_OK(ndp_dataset_create(&x.cache, &o, &cut));
            int64_t all = ndp_dataset_labels(cut);
            ndp_dataset_close(cut);
            o.overlong = NDP_OVERLONG_AUTO;
            if (ndp_dataset_create(&x.cache, &o, &d) != NDP_OK) /* nothing is left */
                continue;
            int64_t predicted = check_turns(&x, d, length);
            assert_int_equal(ndp_dataset_labels(d), predicted);
            assert_int_equal(ndp_dataset_losses(d).unasked_labels + predicted, all);
            out += ndp_dataset_losses(d).unasked;
            ndp_dataset_close(d);
        }
    assert_true(out > 1000);
}

/* Packed, and as one text: nothing is trained on without its question either, and texts go on. */
static void however_rows_are_filled(void **state) {
    (void)state;
    talks x;
    make_talks(&x, 7);
    static const uint8_t all[IDS / 8] = {[0 ... IDS / 8 - 1] = 0xff};
    for (int way = 0; way < 2; way++) {
        ndp_row_opts o = {.length = 11, .document_mask = way == 0};
        ndp_dataset *d;
        CHECK_OK(ndp_dataset_create(&x.cache, &o, &d));
        assert_true(ndp_dataset_losses(d).unasked > 0 && ndp_dataset_labels(d) > 0);
        ndp_dataset_close(d);
        ndp_token_cache texts = x.cache;
        texts.trained = all;
        CHECK_OK(ndp_dataset_create(&texts, &o, &d));
        assert_int_equal(ndp_dataset_losses(d).unasked, 0);
        assert_int_equal(ndp_dataset_labels(d), texts.n_tokens - (way == 0 ? texts.n_documents : 1));
        ndp_dataset_close(d);
    }
}

static bool same_rows(const ndp_dataset *a, const ndp_dataset *b) {
    static rows x, y;
    bool same = ndp_dataset_rows(a) == ndp_dataset_rows(b);
    for (int64_t r = 0; same && r < ndp_dataset_rows(a); r++) {
        memset(&x, 0, sizeof x);
        memset(&y, 0, sizeof y);
        CHECK_OK(ndp_dataset_row(a, r, x.tokens, x.labels, x.positions, x.document_start));
        CHECK_OK(ndp_dataset_row(b, r, y.tokens, y.labels, y.positions, y.document_start));
        same = memcmp(&x, &y, sizeof x) == 0;
    }
    return same;
}

/* The identity of a run takes both for the same where no document was cut between turns (train/identity.c). */
static void rows_of_auto_and_cut_differ_by_turns(void **state) {
    (void)state;
    talks x;
    int differ = 0, alike = 0;
    for (uint64_t seed = 0; seed < 60; seed++)
        for (int64_t length = 2; length <= MAX; length += 2)
            for (int way = 0; way < 3; way++) {
                make_talks(&x, seed);
                ndp_row_opts o = {.length = length, .document_mask = way > 0, .single = way == 1};
                o.most_documents = 1 + (int64_t)seed % 3;
                ndp_dataset *d[2];
                if (ndp_dataset_create(&x.cache, &o, &d[0]) != NDP_OK) /* nothing is left */
                    continue;
                o.overlong = NDP_OVERLONG_CUT;
                CHECK_OK(ndp_dataset_create(&x.cache, &o, &d[1]));
                bool same = same_rows(d[0], d[1]), turns = ndp_dataset_losses(d[0]).between_turns > 0;
                if (!turns && !same)
                    fail_msg("seed %d, rows of %d, way %d: other rows", (int)seed, (int)length, way);
                assert_int_equal(ndp_dataset_losses(d[1]).between_turns, 0);
                differ += !same;
                alike += !turns;
                ndp_dataset_close(d[0]);
                ndp_dataset_close(d[1]);
            }
    assert_true(differ > 300 && alike > 100);
}

static void out_of_range_is_an_error(void **state) {
    ndp_dataset *d = dataset(*state, THREE, 4, true), *none = NULL;
    rows x;
    CHECK_FAILS(ndp_dataset_row(d, 3, x.tokens, x.labels, x.positions, x.document_start), NDP_EINVAL, "row 3");
    CHECK_FAILS(ndp_dataset_row(d, -1, x.tokens, x.labels, x.positions, x.document_start), NDP_EINVAL, "row -1");
    CHECK_FAILS(ndp_dataset_open("/no/such/cache", &(ndp_row_opts){.length = 4}, &none), NDP_EIO, "/no/such/cache");
    CHECK_FAILS(ndp_dataset_open("/no/such/cache", &(ndp_row_opts){.length = 0}, &none), NDP_EINVAL, "sequence length");
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
    CHECK_FAILS(ndp_dataset_open(path, &(ndp_row_opts){.length = 8, .document_mask = true}, &d), NDP_EINVAL,
                "2 tokens in 2 documents leave no token to predict");
    assert_null(d);
    CHECK_OK(ndp_dataset_open(path, &(ndp_row_opts){.length = 8}, &d));
    ndp_dataset_close(d);
    ndp_tokenizer_destroy(t);
    free(file);
    free(path);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cut_cache_is_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_changed_id_is_refused, make_folder, remove_folder),
        TEST(documents_are_cut_and_packed),
        TEST(the_first_row_with_room_is_taken),
        TEST(without_packing_a_row_has_one_piece),
        TEST(long_documents_may_be_refused),
        TEST(long_documents_may_be_dropped_or_truncated),
        TEST(short_documents_may_be_left_out),
        cmocka_unit_test(repeated_documents_may_be_left_out),
        cmocka_unit_test(truncated_documents_may_be_emptied),
        TEST(nothing_left_is_refused),
        TEST(the_first_documents_of_each_source),
        TEST(rows_are_nearly_full),
        TEST(documents_are_held_out),
        TEST(rows_may_keep_sources_apart),
        TEST(only_what_is_learned_has_labels),
        TEST(without_the_mask_the_stream_is_one_text),
        TEST(every_prediction_is_in_one_row),
        TEST(answers_have_their_question),
        TEST(however_rows_are_filled),
        TEST(rows_of_auto_and_cut_differ_by_turns),
        TEST(out_of_range_is_an_error),
        TEST(a_corpus_without_predictions_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
