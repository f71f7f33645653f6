/* Called by checkpoint.c and train/background.c. While the thread works, the rank's fault points are the thread's, but
 * for those of lines that are appended, which no save does: so the n-th operation is the same one each time. */
#include "checkpoint/writer_thread.h"

#include "base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void take_faults(ndp_writer_thread *w) {
    if (!w->writes)
        return;
    ndp_faults rank = {0};
    w->faults = ndp_faults_swap(rank);
    rank.of[NDP_FAULT_APPEND] = w->faults.of[NDP_FAULT_APPEND];
    (void)ndp_faults_swap(rank);
}

static void give_faults_back(ndp_writer_thread *w) {
    if (!w->writes)
        return;
    ndp_faults rank = ndp_faults_swap((ndp_faults){0});
    w->faults.of[NDP_FAULT_APPEND] = rank.of[NDP_FAULT_APPEND];
    (void)ndp_faults_swap(w->faults);
}

static void do_work(ndp_writer_thread *w) {
    double began = ndp_now(), processor = ndp_thread_now();
    w->st = w->work(w->arg);
    w->why = w->st == NDP_OK ? NULL : strdup(ndp_error_message());
    w->seconds += ndp_now() - began;
    w->processor += ndp_thread_now() - processor;
}

static void *run(void *arg) {
    ndp_writer_thread *w = arg;
    (void)ndp_faults_swap(w->faults);
    do_work(w);
    w->faults = ndp_faults_swap((ndp_faults){0});
    atomic_store_explicit(&w->working, false, memory_order_release);
    return NULL;
}

/* A small stack, as that of the lock's thread (heartbeat.c). */
static bool start(ndp_writer_thread *w) {
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    enum { STACK = 512 << 10 };
    sigset_t all, before;
    pthread_attr_t attr;
    if (pthread_attr_init(&attr))
        return false;
    sigfillset(&all);
    for (int i = 0; i < NDP_COUNT(own); i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_attr_setstacksize(&attr, STACK) == 0 && pthread_create(&w->thread, &attr, run, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return started;
}

void ndp_writer_thread_begin(ndp_writer_thread *w, ndp_status (*work)(void *arg), void *arg) {
    w->work = work, w->arg = arg;
    w->begun = true;
    take_faults(w);
    atomic_store_explicit(&w->working, true, memory_order_relaxed);
    w->apart = start(w);
    if (w->apart)
        return;
    give_faults_back(w);
    do_work(w);
    atomic_store_explicit(&w->working, false, memory_order_relaxed);
}

ndp_status ndp_writer_thread_end(ndp_writer_thread *w) {
    if (!w->begun)
        return NDP_OK;
    w->begun = false;
    if (w->apart) {
        pthread_join(w->thread, NULL);
        give_faults_back(w);
    }
    if (w->st != NDP_OK)
        ndp_error_set(w->st, w->why ? w->why : "not enough memory for the message of a failed save");
    free(w->why);
    w->why = NULL;
    return w->st;
}
