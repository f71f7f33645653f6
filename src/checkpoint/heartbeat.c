/* The thread of a lock's holder: it sleeps, increments the counter in the lock file, and sleeps again, until
 * ndp_heartbeat_end. Only the bytes of the counter are written, so a reader always sees a whole text. Called by lock.c.
 */
#include "checkpoint/heartbeat.h"

#include "base/clock.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* fdatasync, since NFS would otherwise hold the counter back for half a minute. */
static void write_counter(ndp_heartbeat *b) {
    char text[NDP_HOLDER_TEXT];
    int counter;
    b->holder.counter++;
    ndp_holder_text(&b->holder, text, &counter);
    if (pwrite(b->fd, text + counter, NDP_HOLDER_COUNTER, counter) == NDP_HOLDER_COUNTER)
        (void)fdatasync(b->fd);
}

static struct timespec in_seconds(double seconds) {
    double at = ndp_now() + seconds, whole = floor(at);
    return (struct timespec){(time_t)whole, (long)((at - whole) * 1e9)};
}

static void *beat(void *arg) {
    ndp_heartbeat *b = arg;
    pthread_mutex_lock(&b->mutex);
    while (!b->ending) {
        struct timespec next = in_seconds(b->seconds);
        while (!b->ending && pthread_cond_timedwait(&b->wake, &b->mutex, &next) == 0)
            ;
        if (!b->ending)
            write_counter(b);
    }
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

/* Leaves signals to the other threads. A stack of the usual 8 MiB would count as memory in use where RLIMIT_AS or
 * RLIMIT_DATA is compared with a plan, whose process has no such thread. */
static int start(ndp_heartbeat *b) {
    enum { STACK = 128 << 10 };
    sigset_t all, before;
    pthread_attr_t attr;
    int error = pthread_attr_init(&attr);
    if (error)
        return error;
    pthread_attr_setstacksize(&attr, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&b->thread, &attr, beat, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error;
}

static void release(ndp_heartbeat *b) {
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->mutex);
    close(b->fd);
}

ndp_status ndp_heartbeat_begin(ndp_heartbeat *b, int fd, const ndp_holder *holder, double patience) {
    const double most = 2, beats = 15; /* some may be late */
    pthread_condattr_t monotonic;
    *b = (ndp_heartbeat){.fd = fd, .seconds = fmin(most, patience / beats), .holder = *holder};
    pthread_mutex_init(&b->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&b->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int error = start(b);
    if (error == 0)
        return NDP_OK;
    release(b);
    return NDP_FAIL(NDP_ENOMEM, "cannot start the thread that keeps the lock of the run folder: %s", strerror(error));
}

void ndp_heartbeat_end(ndp_heartbeat *b) {
    pthread_mutex_lock(&b->mutex);
    b->ending = true;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->mutex);
    pthread_join(b->thread, NULL);
    release(b);
}
