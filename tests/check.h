/* cmocka and what every test of a status wants. */
#ifndef NDP_TESTS_CHECK_H
#define NDP_TESTS_CHECK_H

#include "base/status.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

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
