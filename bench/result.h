/* Results as rows of a file, beside what a benchmark prints for people: tools/bench-results collects them. */
#ifndef BENCH_RESULT_H
#define BENCH_RESULT_H

#include <stdio.h>
#include <stdlib.h>

/* Appends "name value unit ratio", divided by tabs, to the file that NDP_BENCH_ROWS names; does nothing without it.
 * `name` says what was measured, with its threads or sizes, and stays the same from run to run. `ratio`: our time over
 * that of the floor, which was measured in the same run, so 1 is the floor; 0: it has no floor. */
static inline void bench_result(const char *name, double value, const char *unit, double ratio) {
    const char *path = getenv("NDP_BENCH_ROWS");
    FILE *f = path ? fopen(path, "a") : NULL;
    char floor[16] = "-";
    if (!path)
        return;
    if (ratio > 0)
        snprintf(floor, sizeof floor, "%.3f", ratio);
    if (!f || fprintf(f, "%s\t%.4g\t%s\t%s\n", name, value, unit, floor) < 0) {
        perror(path);
        exit(1);
    }
    fclose(f);
}

#endif
