/* Rows that are filled by first fit (row_fit.h). Called by row_table.c, and by batch/pack.c for samples of the user's
 * own. */
#include "data/row_fit.h"

#include <string.h>

static void close_row(ndp_row_fit *f, int i) {
    f->n_open--;
    memmove(f->open + i, f->open + i + 1, (size_t)(f->n_open - i) * sizeof *f->open);
    memmove(f->left + i, f->left + i + 1, (size_t)(f->n_open - i) * sizeof *f->left);
}

static int fullest(const ndp_row_fit *f) {
    int best = 0;
    for (int i = 1; i < f->n_open; i++)
        best = f->left[i] < f->left[best] ? i : best;
    return best;
}

int64_t ndp_row_fit_place(ndp_row_fit *f, int32_t n, int32_t *place) {
    int i = 0;
    while (i < f->n_open && f->left[i] < n)
        i++;
    if (i == f->n_open) {
        if (f->n_open == f->most)
            close_row(f, fullest(f));
        i = f->n_open++;
        f->open[i] = f->rows++;
        f->left[i] = f->length;
    }
    int64_t row = f->open[i];
    if (place)
        *place = f->length - f->left[i];
    f->left[i] -= n;
    if (f->left[i] < f->least)
        close_row(f, i);
    return row;
}
