/* Tokenizing speed on one thread: bench_tokenizer TOKENIZER FILE... prints MB/s, best of 5. */
#include "base/clock.h"
#include "data/tokenizer.h"

#include <stdio.h>

static ndp_status bench_file(const ndp_tokenizer *t, const char *path) {
    char *text;
    size_t size;
    NDP_TRY(ndp_file_read(path, &text, &size));
    double best = 1e30;
    ndp_ids ids = {0};
    ndp_status st = NDP_OK;
    for (int i = 0; i < 5 && st == NDP_OK; i++) {
        double begin = ndp_now();
        ids.n = 0;
        st = ndp_tokenizer_encode(t, text, size, false, &ids);
        double seconds = ndp_now() - begin;
        best = seconds < best ? seconds : best;
    }
    if (st == NDP_OK)
        printf("%-60s %9zu bytes %8lld tokens %7.1f MB/s\n", path, size, (long long)ids.n, (double)size / best * 1e-6);
    ndp_ids_release(&ids);
    free(text);
    return st;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s TOKENIZER FILE...\n", argv[0]);
        return 2;
    }
    ndp_tokenizer *t = NULL;
    double begin = ndp_now();
    ndp_status st = ndp_tokenizer_create(argv[1], &t);
    if (st == NDP_OK)
        printf("%s: loaded in %.1f ms\n", argv[1], (ndp_now() - begin) * 1e3);
    for (int i = 2; i < argc && st == NDP_OK; i++)
        st = bench_file(t, argv[i]);
    if (st != NDP_OK)
        fprintf(stderr, "%s\n", ndp_error_message());
    ndp_tokenizer_destroy(t);
    return st != NDP_OK;
}
