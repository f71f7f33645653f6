/* The text of an error is memory of its own, freed where its thread ends: the initial-exec variable of base/watched.c
 * puts all that is thread-local in the library into the static TLS block, where dlopen finds little room. */
#include "base/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct error_text {
    char message[2048];
    char trail[1024];
} error_text;

/* Per thread, not per process, since ranks may be threads. */
static _Thread_local error_text *own; /* NULL: no error so far */
static _Thread_local bool lost;       /* there was no memory for the last one */
static _Thread_local size_t lacked;   /* bytes that there was no memory for, since the last one; 0: none */

static pthread_key_t key;
static bool has_key;

static void forget(void *text) {
    free(text);
    own = NULL;
}

static void create_key(void) { has_key = pthread_key_create(&key, forget) == 0; }

/* To write to; NULL: no memory. */
static error_text *text_of_thread(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, create_key);
    if (!own && has_key)
        own = calloc(1, sizeof *own);
    if (own && pthread_setspecific(key, own) != 0)
        forget(own);
    lost = !own;
    return own;
}

ndp_error_state ndp_error_swap(ndp_error_state next) {
    ndp_error_state now = {own, lost, lacked};
    own = next.text, lost = next.lost, lacked = next.lacked;
    if (has_key)
        pthread_setspecific(key, own);
    return now;
}

void ndp_error_forget(void) {
    forget(own);
    if (has_key)
        pthread_setspecific(key, NULL);
}

void ndp_memory_lacked(size_t bytes) { lacked = bytes > 0 ? bytes : 1; }

/* Adds to the message that there was no memory before. */
static ndp_status add_lacked(ndp_status code, char *message, size_t room) {
    size_t bytes = lacked, n = strlen(message);
    if (!bytes || code == NDP_ENOMEM || code == NDP_EINTR)
        return code; /* a caller may put an error of its own in the place of this one */
    lacked = 0;
    snprintf(message + n, room - n, "; before that there was not enough memory for %zu bytes", bytes);
    return code == NDP_EINVAL || code == NDP_EFORMAT ? NDP_ENOMEM : code;
}

ndp_status ndp_fail_at(const char *file, int line, ndp_status code, const char *fmt, ...) {
    char message[sizeof own->message]; /* the earlier message may be an argument */
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    code = add_lacked(code, message, sizeof message);
    if (text_of_thread()) {
        memcpy(own->message, message, strlen(message) + 1);
        own->trail[0] = '\0';
    }
    ndp_trail_add(file, line);
    return code;
}

void ndp_trail_add(const char *file, int line) {
    if (!own)
        return;
    size_t used = strlen(own->trail);
    snprintf(own->trail + used, sizeof own->trail - used, "%s%s:%d", used ? " < " : "", file, line);
}

ndp_status ndp_check_not_null(const char *file, int line, const char *function, const char *names,
                              const void *const *pointers, int n) {
    for (int i = 0; i < n; i++) {
        if (!pointers[i])
            return ndp_fail_at(file, line, NDP_EINVAL, "%s: %.*s is NULL", function, (int)strcspn(names, ","), names);
        names += strcspn(names, ",");
        names += strspn(names, ", ");
    }
    return NDP_OK;
}

void ndp_error_set(ndp_status code, const char *message) {
    lost = false;
    if (code != NDP_OK)
        text_of_thread();
    if (own) {
        snprintf(own->message, sizeof own->message, "%s", code == NDP_OK ? "" : message);
        own->trail[0] = '\0';
    }
}

const char *ndp_error_message(void) {
    return own ? own->message : lost ? "not enough memory for the message of this error" : "";
}
const char *ndp_error_trail(void) { return own ? own->trail : ""; }

int ndp_exit_code(ndp_status st) {
    bool mistake = st == NDP_EINVAL || st == NDP_EFORMAT;
    return st == NDP_OK ? 0 : mistake ? 2 : st == NDP_EINTR ? 130 : 1;
}
