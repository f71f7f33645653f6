/* The checker across processes: compares the programs of a communicator's ranks before the first step.
 *
 * All ranks reduce one number, a hash of the operations that they begin on the channel, by its largest and smallest
 * value. If these are equal, that is all. If not, rank 0 broadcasts its list as text, and each rank that differs
 * reports the first difference. The engine calls ndp_program_agree once per communicator, in the order of channels. */
#include "base/rng.h"
#include "step/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 192, MOST_SENT = 1 << 18 }; /* operations: 50 MB of texts */
typedef char event_text[TEXT];

/* The text without the number of the instruction, which may differ: ranks own different slices. */
static const char *operation(const char *text) { return strchr(text, ' ') ? strchr(text, ' ') : text; }

/* How many operations a channel has, and a hash of their texts in order. */
static uint64_t hash_of(const ndp_program *p, int channel, int64_t *n) {
    ndp_comm_event e;
    event_text text;
    uint64_t hash = 0;
    *n = 0;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_ALL_ITERATIONS); ndp_program_comm_event(p, &c, &e);) {
        if (!e.begin || ndp_comm_event_channel(&e) != channel)
            continue;
        ndp_comm_event_text(&e, text, TEXT);
        hash = (hash * 0x9E3779B97F4A7C15u) ^ ndp_rng_stream(operation(text));
        ++*n;
    }
    return hash ^ (uint64_t)*n;
}

/* The texts of a channel's n operations, in order. */
static ndp_status list_texts(const ndp_program *p, int channel, int64_t n, event_text **out) {
    ndp_comm_event e;
    *out = calloc((size_t)n + 1, sizeof **out);
    NDP_CHECK_MEMORY(*out, "to compare programs");
    int64_t i = 0;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_ALL_ITERATIONS); ndp_program_comm_event(p, &c, &e);)
        if (e.begin && ndp_comm_event_channel(&e) == channel)
            ndp_comm_event_text(&e, (*out)[i++], TEXT);
    return NDP_OK;
}

static ndp_status reduce(ndp_comm *c, int64_t *x) {
    ndp_work w;
    NDP_TRY(ndp_all_reduce_begin(c, x, 2, NDP_I64, NDP_MAX, &w));
    return ndp_wait(&w);
}

static ndp_status broadcast(ndp_comm *c, void *data, int64_t bytes) {
    ndp_work w;
    NDP_TRY(ndp_broadcast_begin(c, data, bytes, 0, &w));
    return ndp_wait(&w);
}

static ndp_status name_both(ndp_comm *c, event_text *mine, int64_t n, event_text *first, int64_t of_first) {
    const char *none = "at its end";
    for (int64_t i = 0; i < n || i < of_first; i++) {
        const char *a = i < n ? mine[i] : none, *b = i < of_first ? first[i] : none;
        if (strcmp(operation(a), operation(b)) != 0)
            return NDP_FAIL(NDP_EBUG, "the programs of group %s differ: its rank %d is %s%s where its rank 0 is %s%s",
                            ndp_comm_name(c), ndp_comm_rank(c), a == none ? "" : "at ", a, b == none ? "" : "at ", b);
    }
    return NDP_OK;
}

static ndp_status compare_lists(ndp_comm *c, event_text *mine, int64_t n) {
    int64_t of_first = n;
    NDP_TRY(broadcast(c, &of_first, sizeof of_first));
    if (of_first < 0 || of_first > MOST_SENT)
        return NDP_FAIL(NDP_EBUG,
                        "the programs of group %s differ: that of its rank 0 has %lld operations, that of %d %lld",
                        ndp_comm_name(c), (long long)of_first, ndp_comm_rank(c), (long long)n);
    event_text *first = calloc((size_t)of_first + 1, sizeof *first);
    NDP_CHECK_MEMORY(first, "to compare programs");
    if (ndp_comm_rank(c) == 0 && n)
        memcpy(first, mine, (size_t)n * sizeof *first);
    ndp_status st = broadcast(c, first, of_first * (int64_t)sizeof *first);
    for (int64_t i = 0; i < of_first; i++) /* not trusted: from another process */
        first[i][TEXT - 1] = '\0';
    if (st == NDP_OK)
        st = name_both(c, mine, n, first, of_first);
    free(first);
    return st;
}

/* ---- messages ---- */

/* What both sides of a message have in common. */
static void message_text(const ndp_comm_event *m, int me, event_text out) {
    bool send = m->call->op->collective == NDP_SEND;
    int peer = m->call->attr.peer;
    snprintf(out, TEXT, "from %d to %d: %s, micro-batch %d, %lld bytes", send ? me : peer, send ? peer : me,
             m->call->what, m->micro_batch, (long long)m->bytes);
}

/* The sum over the ranks of a hash of each send, less one of each receive, is 0 where every message has both sides.
 * Otherwise the sides of each pair of ranks are summed apart, to name it. */
static ndp_status agree_on_messages(const ndp_program *p, int channel, ndp_comm *c) {
    int size = ndp_comm_size(c), me = ndp_comm_rank(c);
    int64_t *pairs = calloc((size_t)(size * size) + 1, sizeof *pairs); /* from, then to; the last one: all */
    NDP_CHECK_MEMORY(pairs, "to compare programs");
    ndp_comm_event e;
    event_text text;
    for (ndp_comm_event_cursor at = NDP_COMM_EVENTS(NDP_ALL_ITERATIONS); ndp_program_comm_event(p, &at, &e);) {
        if (!e.begin || ndp_comm_event_channel(&e) != channel)
            continue;
        bool send = e.call->op->collective == NDP_SEND;
        int peer = e.call->attr.peer, from = send ? me : peer, to = send ? peer : me;
        message_text(&e, me, text);
        int64_t hash = (int64_t)(ndp_rng_stream(text) >> 24);
        pairs[from * size + to] += send ? hash : -hash;
    }
    ndp_work w;
    ndp_status st = ndp_all_reduce_begin(c, pairs, (int64_t)size * size, NDP_I64, NDP_SUM, &w);
    if (st == NDP_OK)
        st = ndp_wait(&w);
    for (int i = 0; st == NDP_OK && i < size * size; i++)
        if (pairs[i] != 0)
            st = NDP_FAIL(NDP_EBUG,
                          "the programs of group %s differ: what its rank %d sends to its rank %d on channel %s is not "
                          "what that one receives",
                          ndp_comm_name(c), i / size, i % size, ndp_channel_name(channel));
    free(pairs);
    return st;
}

ndp_status ndp_program_agree(const ndp_program *p, int channel, ndp_comm *c) {
    if (ndp_comm_size(c) == 1)
        return NDP_OK;
    if (channel == NDP_CHANNEL_FORWARD || channel == NDP_CHANNEL_BACKWARD)
        return agree_on_messages(p, channel, c);
    int64_t n, number = (int64_t)(hash_of(p, channel, &n) >> 2), range[2] = {number, -number}; /* largest, smallest */
    NDP_TRY(reduce(c, range));
    if ((uint64_t)range[0] + (uint64_t)range[1] == 0)
        return NDP_OK;
    event_text *texts;
    NDP_TRY(list_texts(p, channel, n, &texts));
    ndp_status st = compare_lists(c, texts, n);
    free(texts);
    return st;
}
