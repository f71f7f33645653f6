/* Golden text: what a test prints is compared with a file that reviewers read. NDP_GOLDEN_WRITE=1 in the environment
 * writes the files instead, e.g.
 *     NDP_GOLDEN_WRITE=1 NDP_SOURCE_DIR=. build/test_passes && git diff tests
 * so a change of what a pass does is reviewed as a change of its text. */
#ifndef NDP_TESTS_GOLDEN_TEXT_H
#define NDP_TESTS_GOLDEN_TEXT_H

#include "base/text.h"
#include "check.h"

#include <stdlib.h>

static inline int line_length(const char *text) { return (int)strcspn(text, "\n"); }

static inline const char *next_line(const char *text) {
    text += line_length(text);
    return *text ? text + 1 : text;
}

/* Fails with the first line that differs, two lines before it and the texts from there on. */
static inline void fail_at_difference(const char *path, const char *want, const char *have) {
    enum { SHOWN = 4 };
    const char *before[2] = {want, want};
    int number = 1;
    while (*want && line_length(want) == line_length(have) && strncmp(want, have, (size_t)line_length(want)) == 0) {
        before[0] = before[1], before[1] = want;
        want = next_line(want), have = next_line(have), number++;
    }
    print_message("%s:%d differs (- the file, + this build; NDP_GOLDEN_WRITE=1 writes the file):\n", path, number);
    for (int i = 0; i < 2; i++)
        if (before[i] != want && (i == 1 || before[0] != before[1]))
            print_message("  %.*s\n", line_length(before[i]), before[i]);
    for (int i = 0; i < SHOWN && *want; i++, want = next_line(want))
        print_message("- %.*s\n", line_length(want), want);
    for (int i = 0; i < SHOWN && *have; i++, have = next_line(have))
        print_message("+ %.*s\n", line_length(have), have);
    fail_msg("%s:%d differs from what this build prints", path, number);
}

/* Compares the text with tests/<name>; releases it. */
static inline void check_golden(const char *name, ndp_str *text) {
    const char *root = getenv("NDP_SOURCE_DIR");
    char *path = ndp_format("%s/tests/%s", root ? root : ".", name), *want;
    size_t size;
    assert_false(text->failed);
    if (getenv("NDP_GOLDEN_WRITE")) {
        CHECK_OK(ndp_file_write_atomic(path, text->data, text->length));
    } else {
        CHECK_OK(ndp_file_read(path, &want, &size));
        if (strcmp(want, text->data) != 0)
            fail_at_difference(path, want, text->data);
        free(want);
    }
    free(path);
    ndp_str_release(text);
}

#endif
