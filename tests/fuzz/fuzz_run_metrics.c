/* libFuzzer: any bytes as metrics.jsonl. Every line is counted once, columns keep their order, and reading in two parts
 * at a line's end gives the same. */
#include "report/run_metrics.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok) {
    if (!ok)
        abort();
}

static void check_columns(const ndp_curve_columns *c) {
    require(c->n <= NDP_COLUMNS);
    for (int i = 0; i < c->n; i++)
        require(c->at[i].n >= 0 &&
                (c->at[i].n == 0 || (c->at[i].least <= c->at[i].mean && c->at[i].mean <= c->at[i].greatest)));
    require(c->n == 0 || c->at[c->n - 1].n > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_run_metrics whole = {0}, parts = {0}, newest = {0};
    char *text = malloc(size ? size : 1); /* its end is the end of the memory */
    memcpy(text, data, size);
    const char *end = memchr(text, '\n', size);
    size_t first = end ? (size_t)(end - text) + 1 : 0;
    int64_t lines = 0;
    for (size_t i = 0; i < size; i++)
        lines += text[i] != '\n' && (i == 0 || text[i - 1] == '\n');
    require(ndp_run_metrics_add(&whole, text, size) == NDP_OK && ndp_run_metrics_add(&parts, text, first) == NDP_OK &&
            ndp_run_metrics_add(&parts, text + first, size - first) == NDP_OK);
    require(whole.lines + whole.damaged == lines && parts.lines == whole.lines && parts.n_curves == whole.n_curves);
    for (int i = 0; i < whole.n_curves; i++)
        for (int over = 0; over < NDP_OVERS; over++) {
            check_columns(&whole.curves[i].over[over]);
            require(parts.curves[i].over[over].n == whole.curves[i].over[over].n);
        }
    require(ndp_run_metrics_newest(&newest, text, size) == NDP_OK && (newest.lines > 0 || whole.lines == 0));
    ndp_run_metrics_release(&whole);
    ndp_run_metrics_release(&parts);
    ndp_run_metrics_release(&newest);
    free(text);
    return 0;
}
