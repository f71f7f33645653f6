/* The bytes of tokens add up to the text, whatever parts of characters they are. */
#include "text/token_bytes.h"

#include "check.h"
#include <stdlib.h>
#include <string.h>

/* The sum over the tokens of a text. *decoded: the length of what they decode to; NFC, for example, changes it. */
static int64_t sum_bytes(ndp_token_bytes *b, const ndp_tokenizer *t, const char *text, size_t n, int64_t *decoded) {
    ndp_ids ids = {0};
    ndp_str back = {0};
    int64_t sum = 0, bytes;
    CHECK_OK(ndp_tokenizer_encode(t, text, n, true, &ids));
    for (int64_t i = 0; i < ids.n; i++) {
        CHECK_OK(ndp_token_bytes_of(b, ids.items[i], i == ndp_tokenizer_prefix(t), &bytes));
        sum += bytes;
    }
    CHECK_OK(ndp_tokenizer_decode(t, ids.items, ids.n, true, &back));
    *decoded = (int64_t)back.length;
    ndp_str_release(&back);
    ndp_ids_release(&ids);
    return sum;
}

static void bytes_are_bytes(void **state) {
    (void)state;
    ndp_tokenizer *t;
    ndp_token_bytes b;
    CHECK_OK(ndp_tokenizer_create("bytes", &t));
    CHECK_OK(ndp_token_bytes_init(&b, t));
    int64_t n;
    assert_int_equal(sum_bytes(&b, t, "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", 11, &n), 11);
    CHECK_OK(ndp_token_bytes_of(&b, ndp_tokenizer_eos(t), false, &n));
    assert_int_equal(n, 0);
    CHECK_FAILS(ndp_token_bytes_of(&b, ndp_tokenizer_vocab_size(t), false, &n), NDP_EINVAL, "there is no token 258");
    ndp_token_bytes_release(&b);
    ndp_tokenizer_destroy(t);
}

/* Real tokenizers on the declaration of human rights in many languages, line by line. */
static void real_tokenizers(void **state) {
    (void)state;
    static const char *const names[] = {"tokenizers/gpt2", "tokenizers/qwen2.5", "tokenizers/smollm2",
                                        "models/stories15M"};
    const char *root = getenv("NDP_TEST_DATA");
    for (int i = 0; i < NDP_COUNT(names); i++) {
        char *path = ndp_format("%s/%s", root ? root : "", names[i]), *file, *text;
        if (!root || !ndp_path_exists(path)) {
            print_message("SKIPPED: needs %s in the folder that NDP_TEST_DATA names\n", names[i]);
            free(path);
            continue;
        }
        ndp_tokenizer *t;
        ndp_token_bytes b;
        size_t size;
        int64_t right = 0, same = 0, lines = 0;
        file = ndp_format("%s/corpora/udhr.jsonl", root);
        CHECK_OK(ndp_tokenizer_create(path, &t));
        CHECK_OK(ndp_token_bytes_init(&b, t));
        CHECK_OK(ndp_file_read(file, &text, &size));
        for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
            int64_t want, got = sum_bytes(&b, t, line, (size_t)(end - line), &want);
            right += got == want;
            same += got == end - line;
        }
        print_message("%s: the bytes of %lld lines of %lld, of %lld as they are in the file\n", names[i],
                      (long long)right, (long long)lines, (long long)same);
        assert_true(lines > 0);
        assert_int_equal(right, lines);
        assert_true(same >= lines * 9 / 10);
        ndp_token_bytes_release(&b);
        ndp_tokenizer_destroy(t);
        free(text), free(file), free(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_are_bytes), cmocka_unit_test(real_tokenizers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
