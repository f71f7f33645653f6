/* cmocka and what every test of a status wants. */
#ifndef NDP_TESTS_CHECK_H
#define NDP_TESTS_CHECK_H

#include "base/status.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

/* 1 in the builds of the sanitizers that bring their own malloc, and are slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* 1 in builds for another processor, which qemu plays (CMakeLists.txt). */
#ifndef EMULATED
#define EMULATED 0
#endif

/* Seconds after which something is called hung: more than any of it takes where twenty other processes share two cores,
 * less than ctest waits (CMakeLists.txt). */
enum { HANGS = 1200 };

/* Generated cases and repeats: a test of the short suite runs some, the long test `long_NAME_all` (CMakeLists.txt) runs
 * all of them, by NDP_TEST_ALL=1. This is the number that goes with it. */
static inline int short_or_all(int in_short, int in_all) { return getenv("NDP_TEST_ALL") ? in_all : in_short; }

/* Generated cases by number: `make test` takes one of NDP_TEST_EVERY, `samples` one of `in_samples`, NDP_TEST_ALL all
 * of them. */
static inline int one_of_so_many(int in_samples) {
    const char *every = getenv("NDP_TEST_EVERY");
    return every ? atoi(every) : short_or_all(in_samples, 1);
}

/* NDP_TEST_EVERY=N: of cases like these `make test` runs one of N, the first among them; its part `samples` runs all
 * (CMakeLists.txt). */
static inline bool left_out(void) {
    static int at;
    const char *every = getenv("NDP_TEST_EVERY");
    return every && at++ % atoi(every) != 0;
}

#define CHECK_OK(expr)                                                                                                 \
    do {                                                                                                               \
        if ((expr) != NDP_OK)                                                                                          \
            fail_msg("%s: %s (%s)", #expr, ndp_error_message(), ndp_error_trail());                                    \
    } while (0)

/* Fails with `code` and a message that holds `words`. */
#define CHECK_FAILS(expr, code, words)                                                                                 \
    do {                                                                                                               \
        ndp_status status_ = (expr);                                                                                   \
        if (status_ != (code))                                                                                         \
            fail_msg("%s: status %d, expected %d (%s)", #expr, status_, (code), ndp_error_message());                  \
        if (!strstr(ndp_error_message(), (words)))                                                                     \
            fail_msg("%s: the message lacks '%s': %s", #expr, (words), ndp_error_message());                           \
    } while (0)

#endif
