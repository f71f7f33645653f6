/* Tokenizing speed on one thread, by its own clock, which stands still while others have the core; and loading.
 * Usage: bench_tokenizer [TOKENIZER FILE...], else those of $NDP_TEST_DATA. "first" is with an empty cache of words,
 * "again" the best of 5 more. */
#include "result.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ndp_status time_text(const ndp_tokenizer *t, const char *text, size_t size, ndp_ids *ids, double *seconds) {
    double begin = thread_seconds();
    ids->n = 0;
    ndp_status st = ndp_tokenizer_encode(t, text, size, false, ids);
    *seconds = thread_seconds() - begin;
    return st;
}

static ndp_status bench_text(const char *tokenizer, const char *path, const char *text, size_t size) {
    ndp_tokenizer *t = NULL;
    double load = thread_seconds(), first = 0, best = 1e30;
    NDP_TRY(ndp_tokenizer_create(tokenizer, &t));
    load = thread_seconds() - load;
    ndp_ids ids = {0};
    ndp_status st = time_text(t, text, size, &ids, &first);
    for (int i = 0; i < 5 && st == NDP_OK; i++) {
        double seconds;
        st = time_text(t, text, size, &ids, &seconds);
        best = seconds < best ? seconds : best;
    }
    if (st == NDP_OK) {
        const char *name = strrchr(path, '/');
        printf("  %-24s %9zu bytes %8lld tokens  first %6.1f MB/s  again %6.1f MB/s  loaded in %5.0f ms\n",
               name ? name + 1 : path, size, (long long)ids.n, (double)size / first * 1e-6, (double)size / best * 1e-6,
               load * 1e3);
        const char *folder = strrchr(tokenizer, '/');
        char what[256];
        snprintf(what, sizeof what, "%s with %s, cached words", name ? name + 1 : path,
                 folder ? folder + 1 : tokenizer);
        bench_result(what, (double)size / best * 1e-6, "MB/s", 0);
    }
    ndp_ids_release(&ids);
    ndp_tokenizer_destroy(t);
    return st;
}

static ndp_status bench(const char *tokenizer, char *const *files, int n) {
    printf("%s\n", tokenizer);
    for (int i = 0; i < n; i++) {
        char *text;
        size_t size;
        NDP_TRY(ndp_file_read(files[i], &text, &size));
        ndp_status st = bench_text(tokenizer, files[i], text, size);
        free(text);
        NDP_TRY(st);
    }
    return NDP_OK;
}

static ndp_status bench_known(const char *root) {
    static const char *const tokenizers[] = {"tokenizers/gpt2", "tokenizers/qwen2.5", "tokenizers/smollm2",
                                             "tokenizers/smollm3-base", "models/stories15M"};
    static const char *const corpora[] = {"tinyshakespeare.txt", "wikitext2-test.txt", "udhr.jsonl"};
    enum { CORPORA = sizeof corpora / sizeof corpora[0] };
    char *files[CORPORA];
    ndp_status st = NDP_OK;
    for (int i = 0; i < CORPORA; i++)
        files[i] = ndp_format("%s/corpora/%s", root, corpora[i]);
    for (int i = 0; i < NDP_COUNT(tokenizers) && st == NDP_OK; i++) {
        char *tokenizer = ndp_format("%s/%s", root, tokenizers[i]);
        st = bench(tokenizer, files, CORPORA);
        free(tokenizer);
    }
    for (int i = 0; i < CORPORA; i++)
        free(files[i]);
    return st;
}

int main(int argc, char **argv) {
    const char *root = getenv("NDP_TEST_DATA");
    if (argc < 3 && !root) {
        printf("NDP_TEST_DATA is not set; usage: %s TOKENIZER FILE...\n", argv[0]);
        return 0;
    }
    ndp_status st = argc < 3 ? bench_known(root) : bench(argv[1], argv + 2, argc - 2);
    if (st != NDP_OK)
        fprintf(stderr, "%s\n", ndp_error_message());
    return st != NDP_OK;
}
