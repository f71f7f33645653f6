/* Status and error trail.
 *
 * A function that can fail returns ndp_status and sets its outputs only on success. The code that first detects an
 * error calls NDP_FAIL once, with the numbers and the remedy; all callers pass the status up with NDP_TRY, which adds
 * file:line to the trail. The message belongs to the calling thread, like errno: a rank may be a thread. */
#ifndef NDP_BASE_STATUS_H
#define NDP_BASE_STATUS_H

#include <ndparallel/ndparallel.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Records a formatted message, replacing this thread's earlier one, and returns `code` (never NDP_OK). To add a place
 * or a remedy to the earlier message, pass ndp_error_message() as an argument. */
ndp_status ndp_fail_at(const char *file, int line, ndp_status code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* There was no memory for `bytes`, and the caller goes on with less (a text that is cut): this thread's next error,
 * which may be a consequence, also says that, and is no mistake of the user. */
void ndp_memory_lacked(size_t bytes);

/* Adds one frame to the trail of the current error. */
void ndp_trail_add(const char *file, int line);

/* Replaces this thread's error by another thread's, when a rank thread ends. */
void ndp_error_set(ndp_status code, const char *message);

/* This thread's error as a whole, for what takes turns on it (base/turns.h): returns it, and sets `next`. */
typedef struct ndp_error_state {
    struct error_text *text;
    bool lost;
    size_t lacked;
} ndp_error_state;
ndp_error_state ndp_error_swap(ndp_error_state next);
/* Frees it. */
void ndp_error_forget(void);

#define NDP_FAIL(code, ...) ndp_fail_at(__FILE__, __LINE__, (code), __VA_ARGS__)

/* Returns on error, adding this line to the trail. */
#define NDP_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        ndp_status try_status_ = (expr);                                                                               \
        if (try_status_ != NDP_OK) {                                                                                   \
            ndp_trail_add(__FILE__, __LINE__);                                                                         \
            return try_status_;                                                                                        \
        }                                                                                                              \
    } while (0)

/* Jumps to `label` on error, with the status in the local variable `st`. */
#define NDP_TRY_GOTO(expr, label)                                                                                      \
    do {                                                                                                               \
        st = (expr);                                                                                                   \
        if (st != NDP_OK) {                                                                                            \
            ndp_trail_add(__FILE__, __LINE__);                                                                         \
            goto label;                                                                                                \
        }                                                                                                              \
    } while (0)

/* Checks for mistakes of the user; never compiled out. */
#define NDP_CHECK(cond, ...)                                                                                           \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            return NDP_FAIL(NDP_EINVAL, __VA_ARGS__);                                                                  \
    } while (0)

/* NDP_OK if there is what was to be allocated, else the error "not enough memory ..."; the second one returns that. */
#define NDP_MEMORY(has, ...) ((has) ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory " __VA_ARGS__))
#define NDP_CHECK_MEMORY(has, ...)                                                                                     \
    do {                                                                                                               \
        if (!(has))                                                                                                    \
            return NDP_FAIL(NDP_ENOMEM, "not enough memory " __VA_ARGS__);                                             \
    } while (0)

/* Checks the arguments of a public function: NDP_EINVAL names the first of these pointers that is NULL. */
ndp_status ndp_check_not_null(const char *file, int line, const char *function, const char *names,
                              const void *const *pointers, int n);
#define NDP_NOT_NULL(...)                                                                                              \
    do {                                                                                                               \
        const void *const pointers_[] = {__VA_ARGS__};                                                                 \
        ndp_status null_status_ =                                                                                      \
            ndp_check_not_null(__FILE__, __LINE__, __func__, #__VA_ARGS__, pointers_, NDP_COUNT(pointers_));           \
        if (null_status_ != NDP_OK)                                                                                    \
            return null_status_;                                                                                       \
    } while (0)

#define NDP_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

#endif
