/* Mapped files that lose their bytes.
 *
 * When another process truncates a mapped file, or its disk fails, the kernel answers the next access to a lost page
 * with SIGBUS. The access may come from anywhere: an OpenMP loop, a hash, json-c, PCRE2. So nothing is unwound. The
 * handler records the loss and maps pages of zeros over the file; the reader continues and then calls ndp_file_check,
 * which names the file. Nothing read from a file is valid before that check.
 *
 * The list of mapped files is global mutable state, since a signal handler receives no other context. New entries are
 * pushed at its head; an entry never moves and is never freed or reused (48 bytes per mapping), so the handler walks
 * the list without a lock. */
#include "base/watched.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct ndp_file_watch {
    _Atomic uintptr_t begin; /* 0: no longer mapped */
    uintptr_t end;           /* of its last page */
    atomic_bool lost;
    dev_t device;
    ino_t inode;
    ndp_file_watch *next;
};

static _Atomic(ndp_file_watch *) watches;
/* A handler that was installed before ours; kept forever like a watch, and reused if it returns. */
typedef struct earlier {
    struct sigaction action;
    struct earlier *next;
} earlier;

static _Atomic(earlier *) before; /* signals that are not ours go there */
/* initial-exec: a handler must not allocate */
static _Thread_local bool passing_on __attribute__((tls_model("initial-exec")));

static uintptr_t page_bytes(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }

static ndp_file_watch *find(uintptr_t at) {
    for (ndp_file_watch *w = atomic_load(&watches); w; w = w->next) {
        uintptr_t begin = atomic_load(&w->begin);
        if (begin && at >= begin && at < w->end)
            return w;
    }
    return NULL;
}

/* Zeroes from the page of `at` to the end: what follows a lost page is also lost. */
static bool put_zeros(const ndp_file_watch *w, uintptr_t at) {
    uintptr_t page = at / page_bytes() * page_bytes();
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return mmap((void *)page, w->end - page, PROT_READ, flags, -1, 0) != MAP_FAILED;
}

/* Acts as if our handler did not exist. If the earlier handler passes the signal back to ours, the process ends. */
static void pass_on(int signal, siginfo_t *info, void *context) {
    const struct sigaction *to = &atomic_load(&before)->action;
    bool full = to->sa_flags & SA_SIGINFO, ignored = !full && to->sa_handler == SIG_IGN;
    if (passing_on || (!full && to->sa_handler == SIG_DFL) || (ignored && info->si_code > 0)) {
        sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        raise(signal); /* delivered when the handler returns */
        return;
    }
    passing_on = true;
    if (full)
        to->sa_sigaction(signal, info, context);
    else if (!ignored)
        to->sa_handler(signal);
    passing_on = false;
}

static void on_bus_error(int signal, siginfo_t *info, void *context) {
    int error = errno;
    ndp_file_watch *w =
        info->si_code > 0 ? find((uintptr_t)info->si_addr) : NULL; /* otherwise the signal was sent by a process */
    if (w)
        atomic_store(&w->lost, true); /* before zeros become visible */
    if (!w || !put_zeros(w, (uintptr_t)info->si_addr))
        pass_on(signal, info, context);
    errno = error;
}

/* The record of a handler; NULL: out of memory. */
static earlier *note(earlier **all, const struct sigaction *action) {
    for (earlier *e = *all; e; e = e->next)
        if (e->action.sa_flags == action->sa_flags && e->action.sa_handler == action->sa_handler)
            return e;
    earlier *e = malloc(sizeof *e);
    if (e) {
        *e = (earlier){*action, *all};
        *all = e;
    }
    return e;
}

/* Installs our handler again if another one was installed meanwhile, as that one may not call ours. */
static bool install(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static earlier *all;
    struct sigaction now, a = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigemptyset(&a.sa_mask);
    pthread_mutex_lock(&mutex);
    sigaction(SIGBUS, NULL, &now);
    bool ours = now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error;
    earlier *e = ours ? NULL : note(&all, &now);
    if (e) {
        atomic_store(&before, e);
        sigaction(SIGBUS, &a, NULL);
    }
    pthread_mutex_unlock(&mutex);
    return ours || e;
}

ndp_file_watch *ndp_file_watch_begin(const void *data, size_t size, const struct stat *info) {
    ndp_file_watch *w = install() ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return NULL;
    w->end = ((uintptr_t)data + size + page_bytes() - 1) / page_bytes() * page_bytes();
    w->device = info->st_dev;
    w->inode = info->st_ino;
    atomic_store(&w->begin, (uintptr_t)data);
    w->next = atomic_load(&watches);
    while (!atomic_compare_exchange_weak(&watches, &w->next, w))
        ;
    return w;
}

void ndp_file_watch_end(ndp_file_watch *w) { atomic_store(&w->begin, 0); }

ndp_status ndp_file_watch_check(const ndp_file_watch *w, const char *path, size_t size) {
    struct stat now;
    /* Truncation within the last page raises no signal. A new file under this name loses nothing: ours still exists. */
    bool there = stat(path, &now) == 0 && now.st_dev == w->device && now.st_ino == w->inode;
    if (there && (size_t)now.st_size < size)
        return NDP_FAIL(NDP_EIO, "'%s' was cut from %zu to %lld bytes while it was in use; restore it and start again",
                        path, size, (long long)now.st_size);
    if (atomic_load(&w->lost))
        return NDP_FAIL(NDP_EIO,
                        "'%s' (%zu bytes) could not be read to its end while it was in use: it was cut, or its disk "
                        "failed; restore it and start again",
                        path, size);
    return NDP_OK;
}
