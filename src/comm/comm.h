/* Collectives and point-to-point messages behind one table of transports.
 *
 * A transport connects the ranks of a world: `self` (one rank), `local` (N ranks as threads of one process), `shm` (N
 * processes of one host), `mpi` (a plugin loaded at run time). A communicator is one rank's handle on one group of a
 * mesh. All its functions are collective over the group, and all ranks call them in the same order.
 *
 * Every operation is a begin and a wait; between the two the caller leaves the buffers alone. Ranks may wait for
 * operations of different communicators, and for messages, in different orders: a waiting rank does its share of
 * everything that it has begun. Sums are made in rank order, in fp32 (fp64 for fp64 data), so every rank and every run
 * gets the same bits.
 *
 * Queues. A transport is one of the host, whose operations move the host's memory while ranks wait, or one of a device
 * (ndp_transport_on_device), for the tensors of a step: each communicator has a queue of the device, a begin makes that
 * queue wait for the caller's queue, a wait makes the caller's queue wait for it, and the host waits for neither. Where
 * it waits for the caller's queue (ndp_transport_drain), it sees failures and the time limit as in any wait. A run has
 * both: metrics, agreement, tokens and checkpoints stay on the host's.
 *
 * Windows. A window is memory that peers on the same node access in place: through plain pointers between threads,
 * through a shared file between processes. Collectives on windows move only the bytes that have to move.
 *
 * Mismatch. Ranks that begin different operations (another kind, size, type or name) and ranks that wait for each other
 * in a cycle get NDP_ECOMM within seconds, with a message that names both sides and their operations. A wait beyond
 * $NDP_COMM_TIMEOUT seconds (300) fails, and names the missing rank, its last operation, and which rank it is blocked
 * on, also across nodes (watch/watchdog.c). With $NDP_JOURNAL = PREFIX every rank then writes its last 256 operations
 * to the file PREFIX.rankN.
 *
 * Failure. A rank that fails calls ndp_transport_abort; within seconds every wait of the others, on all nodes, returns
 * NDP_ECOMM with that rank and its message. A rank that gives up operations it has begun does so before it releases
 * their buffers, since peers may be reading them; after ndp_transport_abort, ndp_comm_destroy or a failed wait no peer
 * reads them any more.
 */
#ifndef NDP_COMM_COMM_H
#define NDP_COMM_COMM_H

#include "device/device.h"
#include "mesh/mesh.h"
#include "tensor/dtype.h"

typedef struct ndp_transport ndp_transport;
typedef struct ndp_comm ndp_comm;
typedef struct ndp_window ndp_window;

typedef enum ndp_reduce { NDP_SUM, NDP_MAX } ndp_reduce;

typedef enum ndp_work_kind {
    NDP_WORK_BARRIER,
    NDP_WORK_ALL_REDUCE,
    NDP_WORK_ALL_GATHER,
    NDP_WORK_REDUCE_SCATTER,
    NDP_WORK_BROADCAST,
    NDP_WORK_ALL_TO_ALL,
    NDP_WORK_SHIFT,
    NDP_WORK_SEND,
    NDP_WORK_RECV,
    NDP_WORK_KINDS
} ndp_work_kind;

/* ---- transports ---- */

/* One rank, no other. */
NDP_API ndp_status ndp_transport_self(ndp_transport **out);

/* Runs `body(transport, arg)` on `world` threads, one per rank, and joins them. The transport that a body gets is
 * released here. Returns the status of the rank that failed first, with a message that names it. A body that returns
 * NDP_EINTR was stopped, as all of them are: that is no failure, and NDP_EINTR is returned if there is none. */
NDP_API ndp_status ndp_local_world(int world, ndp_status (*body)(ndp_transport *, void *), void *arg);

/* Joins the world that ndp_launch started on this host (node/shm_world.h). NDP_EINVAL if it has not started this
 * process, or another process has joined as this rank. */
NDP_API ndp_status ndp_transport_shm(ndp_transport **out);

/* Joins the world that mpirun or srun started: loads the plugin `ndp_mpi.so` from beside the program or library (or
 * $NDP_PLUGIN_DIR). NDP_ENOTSUP, with what to install, if it is missing. */
NDP_API ndp_status ndp_transport_mpi(ndp_transport **out);

/* True for a rank that ndp_launch, mpirun, mpiexec or srun started, judged by the environment alone, without MPI.
 * *ranks: the number of ranks that the launcher states. */
bool ndp_launched(int *ranks);
/* The rank that the launcher gave this process; 0 without one. */
int ndp_launched_rank(void);

/* The transport of a device's memory beside `host`, for the same ranks; it lives as long as `host` and the context,
 * both borrowed. Collective over the world. `self` and `local` move data by kernels and copies of the device; processes
 * use NCCL, a plugin `ndp_nccl.so` (NDP_ENOTSUP, with what to install, if it or its library is missing). */
NDP_API ndp_status ndp_transport_on_device(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                           ndp_transport **out);
/* The same on copies in the host's memory, moved by `host` (comm/staged.h). Works with every transport and device. */
NDP_API ndp_status ndp_transport_staged(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                        ndp_transport **out);

int ndp_transport_rank(const ndp_transport *t);
int ndp_transport_world(const ndp_transport *t);
const char *ndp_transport_name(const ndp_transport *t);
/* The largest n for which each of the blocks of ranks 0..n-1, n..2n-1, ... shares the memory of one node: the same
 * number on all ranks, which they may decide by. 1 where ranks lie on nodes in another order, or in other numbers; the
 * whole world for `self`, `local` and `shm`. */
int ndp_transport_node_ranks(const ndp_transport *t);
/* The host of a rank, as the lowest rank on it. */
int ndp_transport_host_of(const ndp_transport *t, int rank);
/* How many ranks are on this rank's host: they share its cores and its memory. Hosts may differ. */
int ndp_transport_host_ranks(const ndp_transport *t);
/* This rank's place among them, from 0. */
int ndp_transport_host_rank(const ndp_transport *t);
/* A one-line warning about this rank's node, or NULL. Borrowed. */
const char *ndp_transport_note(const ndp_transport *t);
/* From now on a failure leaves the journals of the ranks in this run folder, as journal.rankN. A run that takes the
 * folder over replaces the files `lock` and `job.yaml` in it: then nothing is written. */
void ndp_transport_keep_journals(ndp_transport *t, const char *folder);
/* Ends the run for all ranks: waits of the others return NDP_ECOMM with this message. Called by a rank that failed. */
void ndp_transport_abort(ndp_transport *t, const char *message);
/* Sets the exit code of a launcher whose ranks cannot end by themselves after an abort (mpirun, several hosts). */
void ndp_transport_set_exit_code(ndp_transport *t, int code);
/* Records the failure without waiting for other ranks. True for the rank whose record counts: the first of its node.
 */
bool ndp_transport_fail(ndp_transport *t, const char *message);
/* Some rank of this node has failed: nothing collective may follow. */
bool ndp_transport_has_failed(const ndp_transport *t);
/* Collective over the world after success; at once after a failure. Of a device: after the callers' queues are drained,
 * or have settled. NULL is fine. */
void ndp_transport_destroy(ndp_transport *t);

/* ---- communicators ---- */

/* Collective over the group (base, stride, count as the mesh computes it). `name` is for messages; copied. */
NDP_API ndp_status ndp_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out);
/* This rank has failed with `message` and is about to meet the others to say so: if they wait elsewhere, so that the
 * run ends, it ends with this. NULL: they have met. */
void ndp_comm_report(ndp_comm *c, const char *message);
/* Prepares messages on `c`, for transports that connect pairs of ranks and match messages by order (NCCL); the others
 * ignore it. sends[p], receives[p]: a number that stands for the sequence of messages to or from group rank p, in the
 * order of their begins; 0: there are none. Collective over the group, once, before the first message. NDP_ENOTSUP if
 * some rank receives in another order than its peer sends. */
NDP_API ndp_status ndp_comm_connect(ndp_comm *c, const uint64_t *sends, const uint64_t *receives);
/* Collectives of `c` run on the queue of `of` from now on, where each communicator of a transport has its own (NCCL): a
 * GPU runs few of them by themselves. For those of which no two operations are under way at once. Before the first
 * operation; `of` is destroyed later. */
void ndp_comm_share_queue(ndp_comm *c, ndp_comm *of);
void ndp_comm_destroy(ndp_comm *c);
int ndp_comm_rank(const ndp_comm *c);
int ndp_comm_size(const ndp_comm *c);
const char *ndp_comm_name(const ndp_comm *c);

/* Sets where in its program this rank begins or waits for the next operation on `c`, for messages about mismatched and
 * missing ranks: "#116.7 all_gather layers.3". instr and call: the instruction and the call in it; < 0: none. `what`: a
 * tensor's or unit's name, borrowed until that operation has ended; NULL: none. All ranks of a communicator give the
 * same name: collectives with different names do not match (NDP_ECOMM), since two layers of one size in another order
 * would be wrong data. */
void ndp_comm_at(ndp_comm *c, const char *what, int instr, int call);

/* Operations outstanding on one communicator: begun and not waited for. */
enum { NDP_MOST_COLLECTIVES = 8, NDP_MOST_SENDS = 16, NDP_MOST_RECEIVES = 32 };

/* An operation that has begun and is not yet waited for, in the caller's memory. Its fields belong to this room. At
 * most eight collectives are outstanding on one communicator, and they are waited for in the order of their begins. */
typedef struct ndp_work {
    ndp_comm *comm;
    const void *in;
    void *out;
    int64_t count; /* elements of one rank's part; bytes if the operation has no type */
    int kind, type, reduce;
    int peer, tag; /* group rank: root, destination or source */
    bool accumulate;
    const int32_t *rows; /* as in ndp_comm_call */
    bool back;
    void *stage;
    ndp_queue *queue;    /* the caller's: `after` in its begin, `before` in its wait */
    ndp_mark done;       /* the operation's end, in the queue of the communicator */
    uint32_t sequence;   /* of this communicator's operations, from 1 */
    uint32_t record;     /* in the journal */
    uint32_t waypoint;   /* of its begin (watch/waypoints.h); 0: none */
    bool in_place;       /* buffers were accessed where they are, without copies of them */
    double waited;       /* seconds that ndp_wait lasted; valid after it */
    uint64_t request[2]; /* the transport's */
} ndp_work;

/* What an operation does. Fields that its kind has no use for are 0. */
typedef struct ndp_comm_call {
    ndp_work_kind kind;
    const void *in;
    void *out;
    int64_t count;  /* elements of one rank's part; the layouts are those of the functions below */
    ndp_dtype type; /* NDP_U8 for kinds that only move bytes */
    ndp_reduce reduce;
    int peer, tag;
    bool accumulate;
    /* all_to_all with parts of different sizes: rank p hands rows[p * ranks + q] times `count` elements to rank q, in
     * rank order without gaps; with `back` rank q to rank p. The same numbers on all ranks, of the host's memory,
     * borrowed until the wait. NULL: `count` each. */
    const int32_t *rows;
    bool back;
    void *stage; /* staged transports: memory of the host for copies of `out` and `in` (comm/staged.h) */
} ndp_comm_call;

/* Begins an operation. On a transport of a device it runs after everything submitted to `after`, whose memory it works
 * on; elsewhere `after` is ignored (NULL). Collective over the group, except for messages. NDP_EINVAL: a count, a type
 * or a rank that does not exist. */
NDP_API ndp_status ndp_comm_begin(ndp_comm *c, const ndp_comm_call *call, ndp_queue *after, ndp_work *w);
/* Completes it. On a transport of a device: what is submitted to `before` from now on runs after the operation, and
 * after its peers no longer access this rank's buffers. */
NDP_API ndp_status ndp_comm_wait(ndp_work *w, ndp_queue *before);

/* ---- queues of the caller, on the transport of a device ---- */

/* Where in its program the caller is with a queue, for messages about hangs and failures: "#116.7 attention layers.3".
 */
typedef struct ndp_queue_place {
    const char *doing, *what; /* a constant, a phase or an op; a unit or tensor, copied */
    int instr, call;          /* < 0: none */
    int operations;           /* about how many are submitted next */
} ndp_queue_place;
/* Says where; begins and waits do it themselves (ndp_comm_at). Waits where the queue is hundreds of operations behind,
 * since a full queue would block the host, which could then see no failure. Errors as ndp_transport_drain. */
NDP_API ndp_status ndp_transport_at(ndp_transport *t, ndp_queue *q, const ndp_queue_place *at);
/* The calls of a unit are to be said as well (NDP_GPU_CALLS=1): this costs time. */
bool ndp_transport_names_calls(const ndp_transport *t);
/* Waits until all that was submitted to `q` has run, and does what a rank does in any wait. NDP_ECOMM: a rank has
 * failed or died, an operation has met an error, or the queue has not gone on for $NDP_COMM_TIMEOUT seconds: the
 * message says which rank is where. The operations of the device are ended then, by all ranks. NDP_EIO: the device has
 * failed; the message has the place of the queue. */
NDP_API ndp_status ndp_transport_drain(ndp_transport *t, ndp_queue *q);
/* Adds the place of the queue to the error of a device's function (NDP_EIO), and ends the run for all ranks: the device
 * does nothing more. Returns `st`. */
NDP_API ndp_status ndp_transport_explain(ndp_transport *t, ndp_status st);
/* The same for an error of the submission of what ndp_transport_at, a begin or a wait has named last, which it adds,
 * also to errors without a place: a device refuses an operation at once, or says then what has failed before. */
NDP_API ndp_status ndp_transport_explain_submission(ndp_transport *t, ndp_status st);
/* After a failure: waits some seconds. False: the queue does not end, and its memory must not be given back. */
bool ndp_transport_settles(ndp_transport *t, ndp_queue *q);
/* Before a rank gives back the device memory that peers may reach; it begins nothing any more. `failed`: it ends by an
 * error. Then, or where a rank has failed or operations were not waited for, the run ends for all ranks, and this waits
 * some seconds until no queue of a peer reaches the memory. False: one may, so the memory must be kept. */
bool ndp_transport_quits(ndp_transport *t, bool failed);

/* ---- on the host: the same, one function a kind ---- */

NDP_API ndp_status ndp_barrier(ndp_comm *c);

/* buffer[count] of every rank becomes the reduction over the group. fp32, fp64, i64 (bf16: summed in fp32). */
NDP_API ndp_status ndp_all_reduce_begin(ndp_comm *c, void *buffer, int64_t count, ndp_dtype type, ndp_reduce op,
                                        ndp_work *w);
/* out[size x count]: rank r's part at r x count. `in` is this rank's part, and may already be at its place in `out`. */
NDP_API ndp_status ndp_all_gather_begin(ndp_comm *c, const void *in, void *out, int64_t count, ndp_dtype type,
                                        ndp_work *w);
/* in[size x count] of every rank; out[count] = (accumulate ? out : 0) + sum over ranks of their part `rank`. */
NDP_API ndp_status ndp_reduce_scatter_begin(ndp_comm *c, const void *in, void *out, int64_t count, ndp_dtype type,
                                            bool accumulate, ndp_work *w);
NDP_API ndp_status ndp_broadcast_begin(ndp_comm *c, void *buffer, int64_t bytes, int root, ndp_work *w);
/* Messages from one rank with one tag (0 .. 32766) arrive in the order they were sent, and go to the receives of that
 * tag in the order of their begins; waits may come in any order. At most 16 sends and 32 receives are outstanding on
 * one communicator.
 *
 * Between ranks of a node the receiver copies the sender's memory while it waits for anything, even if the sender
 * computes; then the send's wait returns. Between nodes MPI moves data only while it is called, so a long message may
 * be delayed until its sender also waits. */
NDP_API ndp_status ndp_send_begin(ndp_comm *c, const void *buffer, int64_t bytes, int to, int tag, ndp_work *w);
NDP_API ndp_status ndp_recv_begin(ndp_comm *c, void *buffer, int64_t bytes, int from, int tag, ndp_work *w);
/* in and out hold `size` parts of `bytes` each: part p of `in` goes to rank p, part p of `out` comes from rank p. */
NDP_API ndp_status ndp_all_to_all_begin(ndp_comm *c, const void *in, void *out, int64_t bytes, ndp_work *w);
/* A ring: `in` of rank r arrives in `out` of rank (r + 1) % size, `bytes` on every rank. */
NDP_API ndp_status ndp_shift_begin(ndp_comm *c, const void *in, void *out, int64_t bytes, ndp_work *w);
/* Completes an operation. After it the buffers are the caller's again: no peer accesses them any more. */
NDP_API ndp_status ndp_wait(ndp_work *w);

/* ---- memory that peers access in place ---- */

/* Where to map buffers that peers on this node are to read and write in place: for threads any memory, for processes
 * the file that the ranks of a node share. map: zeroed, 2 MiB-aligned, huge pages advised, pages taken at once;
 * NDP_ENOMEM. Where processes cannot share memory it is private memory. Valid as long as the transport; all memory is
 * unmapped before. */
ndp_memory_source ndp_transport_memory(ndp_transport *t);

/* Collective over the group, before the first operation on this memory; a transport may send peers its address here.
 * Operations of every communicator of the transport recognise buffers inside data[0 .. bytes) and work on them in
 * place, if the memory comes from ndp_transport_memory; any other memory is copied, as if it were not registered.
 * (Buffers of one operation may lie at different offsets on different ranks.) The memory stays the caller's, which
 * unmaps it after ndp_window_destroy. */
NDP_API ndp_status ndp_window_register(ndp_comm *c, void *data, size_t bytes, ndp_window **out);
/* Collective over the group. One and the same zeroed memory for all its ranks: a gathered parameter buffer of which
 * each rank writes its own slice; an all_gather on it is a barrier. It lives until the last rank destroys its window.
 * NDP_ENOTSUP if the group spans nodes or its processes cannot share memory: the caller then takes private memory and
 * real collectives. */
NDP_API ndp_status ndp_window_share(ndp_comm *c, size_t bytes, ndp_window **out);
void *ndp_window_data(const ndp_window *w);
/* Not collective. No operation on the memory is pending. NULL is fine. */
void ndp_window_destroy(ndp_window *w);

#endif
