/* The public functions: arguments are checked, groups of one rank and dry runs are answered, everything else goes to
 * the transport's table. Each operation is entered in the rank's journal at its begin and its end. */
#include "comm/comm.h"
#include "base/clock.h"
#include "comm/impl.h"
#include "comm/nccl/nccl_transport.h"
#include "comm/rank_sum.h"
#include "comm/staged.h"
#include "comm/watch/health.h"
#include "comm/watch/lookout.h"
#include "comm/watch/waypoints.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- transports ---- */

int ndp_transport_rank(const ndp_transport *t) { return t->rank; }
int ndp_transport_world(const ndp_transport *t) { return t->world; }
int ndp_transport_node_ranks(const ndp_transport *t) { return t->node_ranks; }
int ndp_transport_host_of(const ndp_transport *t, int rank) { return t->host_of ? t->host_of[rank] : 0; }

/* The ranks before `end` on this rank's host. */
static int host_ranks_before(const ndp_transport *t, int end) {
    int n = 0;
    for (int r = 0; r < end; r++)
        n += ndp_transport_host_of(t, r) == ndp_transport_host_of(t, t->rank);
    return n;
}

int ndp_transport_host_ranks(const ndp_transport *t) { return host_ranks_before(t, t->world); }
int ndp_transport_host_rank(const ndp_transport *t) { return host_ranks_before(t, t->rank); }

static int common_divisor(int a, int b) { return b ? common_divisor(b, a % b) : a; }

/* A block may not contain a border between two nodes, so its size divides the place of every border. */
int ndp_node_block(const int *node_of, int world) {
    int n = world;
    for (int r = 1; r < world; r++)
        if (node_of[r] != node_of[r - 1])
            n = common_divisor(n, r);
    return n;
}

const char *ndp_transport_name(const ndp_transport *t) { return t->ops->name; }

const char *ndp_transport_note(const ndp_transport *t) { return t->note; }

void ndp_transport_set_exit_code(ndp_transport *t, int code) { t->exit_code = code; }

void ndp_transport_abort(ndp_transport *t, const char *message) {
    ndp_journal_write(t);
    if (t->ops->abort)
        t->ops->abort(t, message);
}

bool ndp_transport_fail(ndp_transport *t, const char *message) {
    if (!t->health)
        return true;
    ndp_journal_write(t);
    ndp_health_fail(t->health, t->rank, message);
    return t->health->rank == t->rank && ndp_lookout_lets_report(t);
}

bool ndp_transport_has_failed(const ndp_transport *t) { return t->health && atomic_load(&t->health->failed) != 0; }

bool ndp_transport_quits(ndp_transport *t, bool failed) {
    const char *why = ndp_error_message();
    if (!t->ops->quits || !t->health || !(failed || t->outstanding || ndp_transport_has_failed(t)))
        return true;
    ndp_health_fail(t->health, t->rank, *why ? why : "operations were begun and not waited for");
    return t->ops->quits(t);
}

void ndp_transport_destroy(ndp_transport *t) {
    if (t && t->device)
        ndp_waypoints_destroy(t);
    if (t && t->ops->destroy)
        t->ops->destroy(t);
}

/* ---- communicators ---- */

void ndp_comm_init(ndp_comm *c, ndp_transport *t, ndp_group group, const char *name) {
    c->transport = t;
    c->group = group;
    snprintf(c->name, sizeof c->name, "%s", name);
    ndp_comm_at(c, NULL, -1, -1);
}

ndp_status ndp_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out) {
    int64_t last = group.base + (int64_t)(group.count - 1) * group.stride;
    NDP_CHECK(group.count >= 1 && group.base >= 0 && (group.count == 1 || group.stride >= 1) && last < t->world,
              "group %s (base %d, stride %d, count %d) does not fit a world of %d ranks", name, group.base,
              group.stride, group.count, t->world);
    NDP_CHECK(group.rank >= 0 && group.rank < group.count && group.base + group.rank * group.stride == t->rank,
              "rank %d is not number %d of group %s (base %d, stride %d, count %d)", t->rank, group.rank, name,
              group.base, group.stride, group.count);
    return t->ops->comm_create(t, group, name, out);
}

void ndp_comm_report(ndp_comm *c, const char *message) {
    if (c->transport->health)
        ndp_health_report(c->transport->health, c->transport->rank, message);
}

ndp_status ndp_comm_connect(ndp_comm *c, const uint64_t *sends, const uint64_t *receives) {
    if (!c->transport->ops->comm_connect || c->group.count == 1)
        return NDP_OK;
    return c->transport->ops->comm_connect(c, sends, receives);
}

void ndp_comm_share_queue(ndp_comm *c, ndp_comm *of) {
    if (c->transport->ops->comm_share_queue && c->group.count > 1 && of->group.count > 1)
        c->transport->ops->comm_share_queue(c, of);
}

/* A rank that gives up operations it has begun ends the run, since peers are about to read its buffers. */
void ndp_comm_destroy(ndp_comm *c) {
    if (!c)
        return;
    const char *why = ndp_error_message();
    if (c->outstanding[0] || c->outstanding[1] || c->outstanding[2])
        ndp_health_fail(c->transport->health, c->transport->rank,
                        *why ? why : "operations were begun and not waited for");
    c->transport->ops->comm_destroy(c);
}

int ndp_comm_rank(const ndp_comm *c) { return c->group.rank; }
int ndp_comm_size(const ndp_comm *c) { return c->group.count; }
const char *ndp_comm_name(const ndp_comm *c) { return c->name; }

void ndp_comm_at(ndp_comm *c, const char *what, int instr, int call) {
    c->what = what;
    c->instr = instr;
    c->call = call;
}

/* ---- operations ---- */

/* On a device: one more operation of the caller's queue. */
static ndp_status queue_alone(const ndp_work *w) {
    const ndp_device *d = w->comm->transport->device;
    size_t bytes = ndp_work_part(w, 0, 0);
    const ndp_rank_sum sum = {.type = w->type,
                              .accumulate = true,
                              .ranks = 1,
                              .outs = 1,
                              .in = &(void *){(void *)w->in},
                              .out = &(void *){w->out},
                              .count = w->count};
    if (w->kind == NDP_WORK_REDUCE_SCATTER && w->accumulate)
        return d->sum(w->queue, &sum);
    return w->out == w->in ? NDP_OK : d->copy(w->queue, w->out, bytes, w->in, bytes, bytes, 1);
}

/* A group of one rank needs no transport: every operation is a local copy. */
static ndp_status run_alone(const ndp_work *w) {
    size_t bytes = ndp_work_part(w, 0, 0);
    bool moves = w->kind == NDP_WORK_ALL_GATHER || w->kind == NDP_WORK_ALL_TO_ALL || w->kind == NDP_WORK_SHIFT ||
                 w->kind == NDP_WORK_REDUCE_SCATTER;
    if (moves && w->comm->transport->device)
        return queue_alone(w);
    if (w->kind == NDP_WORK_REDUCE_SCATTER && w->accumulate)
        ndp_reduce_ranks((ndp_dtype)w->type, NDP_SUM, &(void *){(void *)w->in}, 1, &(void *){w->out}, 1, w->count,
                         true);
    else if (moves)
        ndp_copy_large(w->out, w->in, bytes);
    return NDP_OK;
}

/* The place in ndp_comm.outstanding. */
static int kind_counted(const ndp_work *w) { return w->kind == NDP_WORK_SEND ? 1 : w->kind == NDP_WORK_RECV ? 2 : 0; }

/* Transports have room for as many as this allows. */
static ndp_status check_outstanding(const ndp_work *w) {
    static const int most[] = {NDP_MOST_COLLECTIVES, NDP_MOST_SENDS, NDP_MOST_RECEIVES};
    static const char *const names[] = {"collectives", "sends", "receives"};
    int k = kind_counted(w);
    if (w->comm->outstanding[k] < most[k])
        return NDP_OK;
    return NDP_FAIL(NDP_EBUG, "more than %d %s outstanding on group %s", most[k], names[k], w->comm->name);
}

/* After an attempt to begin or to wait. */
static ndp_status ended(ndp_comm *c, ndp_work *w, ndp_status st, bool wait) {
    if (st == NDP_OK && wait && c->transport->journals)
        ndp_journal_end(&c->transport->journals[c->transport->rank], w);
    else if (st != NDP_OK)
        ndp_journal_write(c->transport);
    c->outstanding[kind_counted(w)] += st != NDP_OK ? 0 : wait ? -1 : 1;
    c->transport->outstanding += st != NDP_OK ? 0 : wait ? -1 : 1;
    if (st != NDP_OK || wait)
        w->comm = NULL;
    return st;
}

/* On a device: a waypoint of the caller's queue. In a wait the queue waits for other ranks, unless the host does. */
static ndp_status say_place(ndp_work *w, bool wait) {
    const ndp_comm *c = w->comm;
    ndp_waypoint at = {.at = {.instr = c->instr, .call = c->call}, .doing = ndp_work_kind_name(w->kind), .waits = wait};
    if (!c->transport->device || w->kind == NDP_WORK_BARRIER)
        return NDP_OK;
    snprintf(at.at.what, sizeof at.at.what, "%s", c->what ? c->what : c->name);
    if (wait && c->transport->journals)
        at.awaited = (ndp_work){.comm = w->comm, .kind = w->kind, .peer = w->peer, .record = w->record};
    return ndp_waypoint_submit(c->transport, w->queue, &at, 2, wait ? NULL : &w->waypoint);
}

static ndp_status begin(ndp_work work, ndp_work *w) {
    ndp_comm *c = work.comm;
    const char *what = ndp_work_kind_name(work.kind);
    NDP_CHECK(work.count >= 0 && work.count <= INT64_MAX / 8 / c->group.count, "%s on group %s: invalid count %lld",
              what, c->name, (long long)work.count);
    bool reduces = work.kind == NDP_WORK_ALL_REDUCE || work.kind == NDP_WORK_REDUCE_SCATTER;
    NDP_CHECK(!reduces || ndp_reduce_knows((ndp_dtype)work.type),
              "%s on group %s takes fp32, fp64, i64 or bf16, not %s", what, c->name,
              ndp_dtype_name((ndp_dtype)work.type));
    NDP_CHECK(work.peer >= 0 && work.peer < c->group.count &&
                  !(ndp_work_is_message(&work) && work.peer == c->group.rank),
              "%s on group %s of %d ranks: invalid peer rank %d", what, c->name, c->group.count, work.peer);
    NDP_CHECK(work.tag >= 0 && work.tag < NDP_TAG_SHIFT, "%s on group %s: tag %d is not in 0 .. 32766", what, c->name,
              work.tag);
    *w = work;
    if (c->group.count == 1)
        return run_alone(w);
    ndp_status st = check_outstanding(w);
    if (st == NDP_OK)
        st = say_place(w, false);
    if (st == NDP_OK && ndp_transport_has_failed(c->transport) && c->transport->health->rank == c->transport->rank)
        st = ndp_health_check(c->transport->health); /* this rank has not begun an earlier one */
    if (st != NDP_OK)
        return ended(c, w, st, false);
    c->operations += !ndp_work_is_message(w);
    if (c->transport->journals)
        ndp_journal_begin(&c->transport->journals[c->transport->rank], w);
    ndp_status begun = c->transport->ops->begin(w);
    /* The others are in it, and would compare it with this rank's next one. Wrong arguments are wrong on all ranks. */
    if (begun != NDP_OK && begun != NDP_ECOMM && begun != NDP_EINVAL)
        ndp_transport_fail(c->transport, ndp_error_message());
    ndp_comm_at(c, NULL, -1, -1);
    return ended(c, w, begun, false);
}

ndp_status ndp_comm_begin(ndp_comm *c, const ndp_comm_call *call, ndp_queue *after, ndp_work *w) {
    return begin((ndp_work){.comm = c,
                            .in = call->in,
                            .out = call->out,
                            .count = call->count,
                            .kind = (int)call->kind,
                            .type = (int)call->type,
                            .reduce = (int)call->reduce,
                            .peer = call->peer,
                            .tag = call->tag,
                            .accumulate = call->accumulate,
                            .rows = call->rows,
                            .back = call->back,
                            .stage = call->stage,
                            .queue = after},
                 w);
}

ndp_status ndp_comm_wait(ndp_work *w, ndp_queue *before) {
    ndp_comm *c = w->comm;
    if (!c)
        return NDP_FAIL(NDP_EBUG,
                        "ndp_wait on an operation that has not begun, failed to begin, or was waited for before");
    if (c->group.count == 1) {
        w->comm = NULL;
        return NDP_OK;
    }
    w->queue = before;
    double start = ndp_now();
    ndp_status st = say_place(w, true);
    if (st == NDP_OK)
        st = c->transport->ops->wait(w);
    w->waited = ndp_now() - start;
    ndp_comm_at(c, NULL, -1, -1);
    return ended(c, w, st, true);
}

ndp_status ndp_wait(ndp_work *w) { return ndp_comm_wait(w, NULL); }

ndp_status ndp_barrier(ndp_comm *c) {
    ndp_work w;
    NDP_TRY(begin((ndp_work){.comm = c, .kind = NDP_WORK_BARRIER}, &w));
    return ndp_wait(&w);
}

ndp_status ndp_all_reduce_begin(ndp_comm *c, void *buffer, int64_t count, ndp_dtype type, ndp_reduce op, ndp_work *w) {
    return begin((ndp_work){.comm = c,
                            .in = buffer,
                            .out = buffer,
                            .count = count,
                            .kind = NDP_WORK_ALL_REDUCE,
                            .type = (int)type,
                            .reduce = (int)op},
                 w);
}

ndp_status ndp_all_gather_begin(ndp_comm *c, const void *in, void *out, int64_t count, ndp_dtype type, ndp_work *w) {
    return begin(
        (ndp_work){.comm = c, .in = in, .out = out, .count = count, .kind = NDP_WORK_ALL_GATHER, .type = (int)type}, w);
}

ndp_status ndp_reduce_scatter_begin(ndp_comm *c, const void *in, void *out, int64_t count, ndp_dtype type,
                                    bool accumulate, ndp_work *w) {
    return begin((ndp_work){.comm = c,
                            .in = in,
                            .out = out,
                            .count = count,
                            .kind = NDP_WORK_REDUCE_SCATTER,
                            .type = (int)type,
                            .accumulate = accumulate},
                 w);
}

static ndp_work work_of_bytes(ndp_comm *c, ndp_work_kind kind, const void *in, void *out, int64_t bytes, int peer) {
    return (ndp_work){
        .comm = c, .in = in, .out = out, .count = bytes, .kind = (int)kind, .type = (int)NDP_U8, .peer = peer};
}

ndp_status ndp_broadcast_begin(ndp_comm *c, void *buffer, int64_t bytes, int root, ndp_work *w) {
    return begin(work_of_bytes(c, NDP_WORK_BROADCAST, buffer, buffer, bytes, root), w);
}

ndp_status ndp_all_to_all_begin(ndp_comm *c, const void *in, void *out, int64_t bytes, ndp_work *w) {
    return begin(work_of_bytes(c, NDP_WORK_ALL_TO_ALL, in, out, bytes, 0), w);
}

ndp_status ndp_shift_begin(ndp_comm *c, const void *in, void *out, int64_t bytes, ndp_work *w) {
    return begin(work_of_bytes(c, NDP_WORK_SHIFT, in, out, bytes, 0), w);
}

ndp_status ndp_send_begin(ndp_comm *c, const void *buffer, int64_t bytes, int to, int tag, ndp_work *w) {
    ndp_work work = work_of_bytes(c, NDP_WORK_SEND, buffer, NULL, bytes, to);
    work.tag = tag;
    return begin(work, w);
}

ndp_status ndp_recv_begin(ndp_comm *c, void *buffer, int64_t bytes, int from, int tag, ndp_work *w) {
    ndp_work work = work_of_bytes(c, NDP_WORK_RECV, NULL, buffer, bytes, from);
    work.tag = tag;
    return begin(work, w);
}

/* ---- transports of a device ---- */

ndp_transport ndp_transport_beside(ndp_transport *host, const ndp_transport_ops *ops, const ndp_device *d,
                                   ndp_device_context *context) {
    return (ndp_transport){.ops = ops,
                           .rank = host->rank,
                           .world = host->world,
                           .node_ranks = host->node_ranks,
                           .host_of = host->host_of,
                           .device = d,
                           .context = context,
                           .host = host,
                           .health = host->health,
                           .timeout = host->timeout,
                           .crowded = host->crowded,
                           .journals = host->journals,
                           .state_query = host->state_query,
                           .hosts = host->hosts,
                           .lookout = host->lookout};
}

static ndp_status with_waypoints(ndp_transport *t, ndp_transport **out) {
    ndp_status st = ndp_waypoints_create(t);
    if (st != NDP_OK) {
        ndp_transport_destroy(t);
        return st;
    }
    *out = t;
    return NDP_OK;
}

ndp_status ndp_transport_on_device(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                   ndp_transport **out) {
    ndp_transport *t;
    NDP_TRY(host->ops->on_device ? host->ops->on_device(host, d, context, &t)
                                 : ndp_nccl_transport(host, d, context, &t));
    return with_waypoints(t, out);
}

ndp_status ndp_transport_staged(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                ndp_transport **out) {
    ndp_transport *t;
    NDP_TRY(ndp_staged_transport(host, d, context, &t));
    return with_waypoints(t, out);
}

/* ---- memory ---- */

static ndp_status source_map(void *transport, size_t bytes, void **out) {
    ndp_transport *t = transport;
    return t->ops->memory_map(t, bytes, out);
}

static void source_unmap(void *transport, void *data, size_t bytes) {
    ndp_transport *t = transport;
    if (data)
        t->ops->memory_unmap(t, data, bytes);
}

ndp_memory_source ndp_transport_memory(ndp_transport *t) {
    return (ndp_memory_source){.user = t, .map = source_map, .unmap = source_unmap};
}

ndp_status ndp_window_register(ndp_comm *c, void *data, size_t bytes, ndp_window **out) {
    return c->transport->ops->window_register(c, data, bytes, out);
}

ndp_status ndp_window_share(ndp_comm *c, size_t bytes, ndp_window **out) {
    return c->transport->ops->window_share(c, bytes, out);
}

void *ndp_window_data(const ndp_window *w) { return w->data; }

void ndp_window_destroy(ndp_window *w) {
    if (w)
        w->transport->ops->window_destroy(w);
}
