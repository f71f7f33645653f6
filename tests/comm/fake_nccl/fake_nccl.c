/* A libnccl.so.2 for tests: it moves data between processes of one host through POSIX shared memory, in operations on
 * streams of the device `sim` (ndp_sim_submit_when). It is strict where NCCL hangs or gives wrong data: ranks whose
 * operations differ in kind, count, type, root or order get an asynchronous error.
 *
 * A communicator of n ranks is a file: an entry a rank and a mailbox for each ordered pair. Collective number k: each
 * rank waits until all have read number k - 1, puts its operation and its data into its entry, waits until all have,
 * compares the operations, and computes its result from the entries, in rank order. A send is complete when it has been
 * received, as a long one of NCCL is. An abort never returns while an operation of a communicator that is neither
 * aborted nor in the same group has not ended, since NCCL may wait for the device; versions before 2.22 have no such
 * groups, and end communicators one by one.
 *
 * FAKE_NCCL_VERSION: the version it states. FAKE_NCCL_ERROR_AT=N: operation N of a process, from 1, meets an
 * asynchronous error. FAKE_NCCL_STICK_AT=N: it does nothing, and does not end. FAKE_NCCL_STUCK=1: ranks never connect.
 * FAKE_NCCL_DIE=1: this process is killed while it connects. FAKE_NCCL_LOG=FILE: its calls, one a line. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

enum { MOST_RANKS = 16, DATA = 8 << 20, MOST_MESSAGES = 64, DELAY_POLLS = 3 };

typedef enum { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST, EXCHANGE, KINDS } kind;
static const char *const kind_names[KINDS] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclBroadcast",
                                              "ncclSend and ncclRecv"};

/* What ranks must have in common. */
typedef struct {
    uint32_t kind, type, op, root;
    uint64_t count;
} operation;

typedef struct {
    _Atomic uint64_t put, read; /* collectives whose data is in `data`, and whose result is computed */
    operation op;
    char data[DATA];
} entry;
typedef struct {
    _Atomic uint64_t sent, received;
    uint64_t count, type;
    char data[DATA];
} mailbox;
typedef struct {
    _Atomic uint32_t joined, splits, left;
    _Atomic int32_t colors[64][MOST_RANKS]; /* of each split: the color + 2 of each rank; 0: it has not come */
    int32_t keys[64][MOST_RANKS];
    entry of[MOST_RANKS];
    mailbox boxes[MOST_RANKS][MOST_RANKS]; /* from, to */
} world;

struct ncclComm {
    world *shared;
    char path[160];
    int ranks, rank, polls;
    _Atomic uint32_t state; /* an ncclResult_t */
    uint64_t collectives;   /* submitted */
    _Atomic int pending;    /* operations that have not ended; those of streams end in their threads */
    ncclComm_t next;        /* of this process */
    uint32_t splits;
    _Atomic bool aborted;
    bool finalized;
    char error[256];
    /* of the split in progress */
    ncclComm_t *split_out, split;
};

typedef struct {
    const void *send;
    void *recv;
    uint64_t count;
    uint32_t type;
    int peer;
    bool posted, done;
} message;

/* An operation on a stream. */
typedef struct {
    ncclComm_t comm;
    operation op;
    const void *in;
    void *out;
    uint64_t number;
    bool put, fails, sticks, done;
    int n;
    message messages[MOST_MESSAGES];
} task;

static struct {
    char error[256];
    int depth, operations, ids;
    task *group;
    cudaStream_t stream;
    ncclComm_t comms;
    bool aborts; /* the group ends communicators */
} here;

static int setting(const char *name) { return getenv(name) ? atoi(getenv(name)) : 0; }

static void note(const char *what, const ncclComm_t c) {
    FILE *file = getenv("FAKE_NCCL_LOG") ? fopen(getenv("FAKE_NCCL_LOG"), "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%d %s %s\n", (int)getpid(), what, c ? c->path : "");
    fclose(file);
}

static ncclResult_t refuse(ncclResult_t result, const char *why) {
    snprintf(here.error, sizeof here.error, "%s", why);
    return result;
}

/* The first error of a communicator counts. */
static int broken(ncclComm_t c, ncclResult_t result) {
    if (c->state == ncclSuccess || c->state == ncclInProgress)
        c->state = result;
    return -1;
}

static size_t size_of(uint32_t type) {
    static const uint8_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type < sizeof sizes ? sizes[type] : 0;
}

/* ---- sums ---- */

static float from_bf16(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint16_t to_bf16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#define REDUCE(T, SUM, GET, PUT)                                                                                       \
    for (uint64_t i = 0; i < count; i++) {                                                                             \
        SUM sum = GET(((const T *)in[0])[i]);                                                                          \
        for (int r = 1; r < ranks; r++) {                                                                              \
            SUM x = GET(((const T *)in[r])[i]);                                                                        \
            sum = max ? (x > sum ? x : sum) : sum + x;                                                                 \
        }                                                                                                              \
        ((T *)out)[i] = PUT(sum);                                                                                      \
    }                                                                                                                  \
    return true;

static bool reduce(uint32_t type, bool max, const char *const *in, int ranks, void *out, uint64_t count) {
    switch (type) {
    case ncclFloat32:
        REDUCE(float, float, , )
    case ncclFloat64:
        REDUCE(double, double, , )
    case ncclInt64:
        REDUCE(int64_t, int64_t, , )
    case ncclBfloat16:
        REDUCE(uint16_t, float, from_bf16, to_bf16)
    default:
        return false;
    }
}

/* ---- operations, as the device runs them ---- */

static bool all_have(const ncclComm_t c, uint64_t n, bool read) {
    for (int r = 0; r < c->ranks; r++)
        if ((read ? c->shared->of[r].read : c->shared->of[r].put) < n)
            return false;
    return true;
}

static size_t given(const task *t) {
    return t->op.count * size_of(t->op.type) * (t->op.kind == REDUCE_SCATTER ? (size_t)t->comm->ranks : 1);
}

/* The ranks' operations number t->number must be the same. */
static bool same_operation(const task *t) {
    const world *w = t->comm->shared;
    for (int r = 0; r < t->comm->ranks; r++) {
        const operation *o = &w->of[r].op;
        if (memcmp(o, &t->op, sizeof *o) == 0)
            continue;
        snprintf(t->comm->error, sizeof t->comm->error,
                 "operation %llu: rank %d has %s, count %llu, type %u, op %u, root %u; rank %d %s, count %llu, type "
                 "%u, op %u, root %u",
                 (unsigned long long)t->number, t->comm->rank, kind_names[t->op.kind], (unsigned long long)t->op.count,
                 t->op.type, t->op.op, t->op.root, r, kind_names[o->kind], (unsigned long long)o->count, o->type, o->op,
                 o->root);
        return false;
    }
    return true;
}

static bool finish_collective(const task *t) {
    const world *w = t->comm->shared;
    size_t bytes = t->op.count * size_of(t->op.type);
    const char *in[MOST_RANKS];
    for (int r = 0; r < t->comm->ranks; r++)
        in[r] = w->of[r].data + (t->op.kind == REDUCE_SCATTER ? bytes * (size_t)t->comm->rank : 0);
    if (t->op.kind == ALL_GATHER)
        for (int r = 0; r < t->comm->ranks; r++)
            memcpy((char *)t->out + bytes * (size_t)r, in[r], bytes);
    else if (t->op.kind == BROADCAST)
        memcpy(t->out, in[t->op.root], bytes);
    else
        return reduce(t->op.type, t->op.op == ncclMax, in, t->comm->ranks, t->out, t->op.count);
    return true;
}

static int try_collective(task *t) {
    ncclComm_t c = t->comm;
    entry *mine = &c->shared->of[c->rank];
    if (!t->put) {
        if (!all_have(c, t->number - 1, true))
            return 0;
        mine->op = t->op;
        memcpy(mine->data, t->in, given(t));
        mine->put = t->number;
        t->put = true;
    }
    if (!all_have(c, t->number, false))
        return 0;
    if (!same_operation(t) || !finish_collective(t))
        return broken(c, ncclInvalidUsage);
    mine->read = t->number;
    return 1;
}

/* 1: done, 0: not yet, -1: sizes differ. */
static int try_send(ncclComm_t c, message *m) {
    mailbox *b = &c->shared->boxes[c->rank][m->peer];
    if (!m->posted && b->sent == b->received) {
        b->count = m->count;
        b->type = m->type;
        memcpy(b->data, m->send, m->count * size_of(m->type));
        b->sent++;
        m->posted = true;
    }
    return m->posted && b->received == b->sent;
}

static int try_receive(ncclComm_t c, message *m) {
    mailbox *b = &c->shared->boxes[m->peer][c->rank];
    if (b->sent == b->received)
        return 0;
    if (b->count != m->count || b->type != m->type) {
        snprintf(c->error, sizeof c->error,
                 "rank %d sends %llu of type %llu to rank %d, which receives %llu of type %u", m->peer,
                 (unsigned long long)b->count, (unsigned long long)b->type, c->rank, (unsigned long long)m->count,
                 m->type);
        return broken(c, ncclInvalidUsage);
    }
    memcpy(m->recv, b->data, m->count * size_of(m->type));
    b->received++;
    return 1;
}

/* Messages of a pair of ranks and one direction are done in order. */
static bool first_of_pair(const task *t, int i) {
    for (int k = 0; k < i; k++)
        if (!t->messages[k].done && t->messages[k].peer == t->messages[i].peer &&
            !t->messages[k].send == !t->messages[i].send)
            return false;
    return true;
}

static int try_exchange(task *t) {
    bool all = true;
    for (int i = 0; i < t->n; i++) {
        message *m = &t->messages[i];
        int done = m->done ? 1 : !first_of_pair(t, i) ? 0 : m->send ? try_send(t->comm, m) : try_receive(t->comm, m);
        if (done < 0)
            return done;
        m->done = done;
        all = all && done;
    }
    return all;
}

/* An operation that has failed does not end before its communicator is aborted, as on a GPU. */
static int try_run(void *user) {
    task *t = user;
    ncclComm_t c = t->comm;
    bool runs = !c->aborted && c->state == ncclSuccess && !t->sticks;
    if (runs && t->fails)
        broken(c, ncclRemoteError);
    else if (runs)
        t->done = (t->op.kind == EXCHANGE ? try_exchange(t) : try_collective(t)) == 1;
    bool ends = t->done || c->aborted;
    if (ends) {
        c->pending--;
        free(t);
    }
    return ends;
}

/* ---- submission ---- */

static ncclResult_t submit(task *t, cudaStream_t stream) {
    int (*when)(void *, int (*)(void *), void *) = NULL;
    void *sim = dlopen("ndp_sim.so", RTLD_NOW | RTLD_NOLOAD);
    char path[4200];
    if (!sim && getenv("NDP_PLUGIN_DIR")) {
        snprintf(path, sizeof path, "%s/ndp_sim.so", getenv("NDP_PLUGIN_DIR"));
        sim = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    }
    if (sim)
        when = (int (*)(void *, int (*)(void *), void *))(intptr_t)dlsym(sim, "ndp_sim_submit_when");
    if (!when) {
        free(t);
        return refuse(ncclInvalidUsage, "the fake NCCL works on streams of the device sim only");
    }
    t->fails = ++here.operations == setting("FAKE_NCCL_ERROR_AT");
    t->sticks = here.operations == setting("FAKE_NCCL_STICK_AT");
    t->comm->pending++;
    return when(stream, try_run, t) == 0 ? ncclSuccess : refuse(ncclInvalidUsage, "the stream has failed");
}

static ncclResult_t check_comm(const ncclComm_t c, uint64_t bytes, uint32_t type) {
    if (!c || c->aborted)
        return refuse(ncclInvalidUsage, "the communicator is none, or was aborted");
    if (c->finalized)
        return refuse(ncclInvalidUsage, "the communicator was finalized");
    if (c->state == ncclInProgress)
        return refuse(ncclInvalidUsage, "the communicator is still in progress");
    if (c->state != ncclSuccess)
        return refuse(c->state, c->error);
    if (size_of(type) == 0 || bytes > DATA)
        return refuse(ncclInvalidUsage, "a type that does not exist, or more than 8 MiB");
    return ncclSuccess;
}

static ncclResult_t collective(kind k, const void *in, void *out, size_t count, ncclDataType_t type, uint32_t op,
                               int root, ncclComm_t c, cudaStream_t stream) {
    note(kind_names[k], c);
    size_t bytes = count * size_of(type) * (k == REDUCE_SCATTER && c ? (size_t)c->ranks : 1);
    ncclResult_t st = check_comm(c, bytes, type);
    if (st != ncclSuccess)
        return st;
    if (here.depth || root < 0 || root >= c->ranks || !in || !out || count == 0)
        return refuse(ncclInvalidUsage, "a root that does not exist, no buffer, nothing to move, or a group");
    task *t = calloc(1, sizeof *t);
    *t =
        (task){.comm = c, .op = {k, type, op, (uint32_t)root, count}, .in = in, .out = out, .number = ++c->collectives};
    return submit(t, stream);
}

PUBLIC ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t c,
                                  cudaStream_t stream) {
    return collective(ALL_GATHER, in, out, count, type, 0, 0, c, stream);
}
PUBLIC ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                      ncclComm_t c, cudaStream_t stream) {
    return collective(REDUCE_SCATTER, in, out, count, type, op, 0, c, stream);
}
PUBLIC ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t c, cudaStream_t stream) {
    return collective(ALL_REDUCE, in, out, count, type, op, 0, c, stream);
}
PUBLIC ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                                  cudaStream_t stream) {
    return collective(BROADCAST, in, out, count, type, 0, root, c, stream);
}

static ncclResult_t add_message(const message *m, ncclComm_t c, cudaStream_t stream) {
    note(m->send ? "ncclSend" : "ncclRecv", c);
    ncclResult_t st = check_comm(c, m->count * size_of(m->type), m->type);
    if (st != ncclSuccess)
        return st;
    if (!here.depth || m->peer < 0 || m->peer >= c->ranks || (!m->send && !m->recv))
        return refuse(ncclInvalidUsage,
                      "a message outside a group, to a rank that does not exist, or without a buffer");
    if (!here.group) {
        here.group = calloc(1, sizeof *here.group);
        *here.group = (task){.comm = c, .op = {.kind = EXCHANGE}};
        here.stream = stream;
    }
    if (here.group->comm != c || here.stream != stream || here.group->n == MOST_MESSAGES)
        return refuse(ncclInvalidUsage, "a group of several communicators or streams, or of more than 64 messages");
    here.group->messages[here.group->n++] = *m;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                             cudaStream_t stream) {
    return add_message(&(message){.send = in, .count = count, .type = type, .peer = peer}, c, stream);
}
PUBLIC ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                             cudaStream_t stream) {
    return add_message(&(message){.recv = out, .count = count, .type = type, .peer = peer}, c, stream);
}
static int version(void) { return getenv("FAKE_NCCL_VERSION") ? setting("FAKE_NCCL_VERSION") : 22809; }

/* As on a device where an operation hangs. */
static void end_aborts(void) {
    here.aborts = false;
    for (ncclComm_t c = here.comms; c; c = c->next)
        if (c->pending > 0 && !c->aborted && version() >= 22200) {
            note("an abort waits for", c);
            for (;;)
                pause();
        }
}

PUBLIC ncclResult_t ncclGroupStart(void) {
    here.depth++;
    return ncclSuccess;
}
PUBLIC ncclResult_t ncclGroupEnd(void) {
    if (here.depth == 0)
        return refuse(ncclInvalidUsage, "a group that was not started");
    if (here.depth == 1 && here.aborts)
        end_aborts();
    task *t = --here.depth == 0 ? here.group : NULL;
    here.group = here.depth ? here.group : NULL;
    return t ? submit(t, here.stream) : ncclSuccess;
}

/* ---- communicators ---- */

static ncclResult_t open_world(ncclComm_t c) {
    int fd = shm_open(c->path, O_RDWR | O_CREAT, 0600);
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(world)) == 0)
        memory = mmap(NULL, sizeof(world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (memory == MAP_FAILED)
        return refuse(ncclInvalidUsage, strerror(errno));
    c->shared = memory;
    c->shared->joined++;
    return ncclSuccess;
}

static ncclComm_t new_comm(const char *path, int ranks, int rank) {
    ncclComm_t c = calloc(1, sizeof *c);
    snprintf(c->path, sizeof c->path, "%s", path);
    c->ranks = ranks;
    c->rank = rank;
    c->state = ncclInProgress;
    c->next = here.comms;
    here.comms = c;
    return c;
}

PUBLIC ncclResult_t ncclGetVersion(int *out) {
    *out = version();
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/fake-nccl-%d-%d", (int)getpid(), here.ids++);
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config) {
    if (config->magic != 0xcafebeef || config->blocking != 0 || ranks < 1 || ranks > MOST_RANKS || rank < 0 ||
        rank >= ranks || strncmp(id.internal, "/fake-nccl-", 11) != 0)
        return refuse(ncclInvalidUsage, "a wrong configuration, rank or id");
    note("ncclCommInitRankConfig", NULL);
    if (setting("FAKE_NCCL_DIE"))
        raise(SIGKILL);
    *comm = new_comm(id.internal, ranks, rank);
    note("ncclCommInitRankConfig", *comm);
    ncclResult_t st = open_world(*comm);
    return st == ncclSuccess ? ncclInProgress : st;
}

/* The parent is in progress until all its ranks have come. */
PUBLIC ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    note("ncclCommSplit", c);
    ncclResult_t st = check_comm(c, 0, ncclUint8);
    if (st != ncclSuccess)
        return st;
    if (c->splits == 64 || config->magic != 0xcafebeef || config->blocking != 0)
        return refuse(ncclInvalidUsage, "more than 64 splits, or a wrong configuration");
    uint32_t k = c->splits++;
    c->shared->keys[k][c->rank] = key;
    c->shared->colors[k][c->rank] = color + 2;
    c->split_out = out;
    *out = NULL;
    c->state = ncclInProgress;
    return ncclInProgress;
}

static void poll_split(ncclComm_t c) {
    world *w = c->shared;
    uint32_t k = c->splits - 1;
    int mine = w->colors[k][c->rank], n = 0, rank = 0;
    char path[160];
    for (int r = 0; r < c->ranks; r++) {
        if (w->colors[k][r] == 0)
            return;
        bool same = w->colors[k][r] == mine;
        n += same;
        rank += same && (w->keys[k][r] < w->keys[k][c->rank] || (w->keys[k][r] == w->keys[k][c->rank] && r < c->rank));
    }
    if (mine != NCCL_SPLIT_NOCOLOR + 2) {
        snprintf(path, sizeof path, "%.40s-%u.%d", c->path, k, mine);
        ncclComm_t split = new_comm(path, n, rank);
        if (open_world(split) != ncclSuccess)
            split->state = ncclInvalidUsage;
        *c->split_out = split;
    }
    c->split_out = NULL;
    c->state = ncclSuccess;
}

/* A communicator is ready some polls after all have come. */
static void poll_init(ncclComm_t c) {
    bool all = c->shared && c->shared->joined >= (uint32_t)c->ranks;
    if (all && !setting("FAKE_NCCL_STUCK") && ++c->polls > DELAY_POLLS)
        c->state = ncclSuccess;
}

PUBLIC ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
    if (!c || c->aborted)
        return refuse(ncclInvalidUsage, "the communicator is none, or was aborted");
    if (c->state == ncclInProgress && c->split_out)
        poll_split(c);
    else if (c->state == ncclInProgress)
        poll_init(c);
    *error = c->state;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommFinalize(ncclComm_t c) {
    note("ncclCommFinalize", c);
    ncclResult_t st = check_comm(c, 0, ncclUint8);
    if (st == ncclSuccess)
        c->finalized = true;
    return st;
}

/* Handles are kept: tasks may still name them. */
static void leave(ncclComm_t c) {
    if (c->shared && ++c->shared->left == (uint32_t)c->ranks)
        shm_unlink(c->path);
    if (c->shared)
        munmap(c->shared, sizeof(world));
    c->shared = NULL;
    c->aborted = true;
}

PUBLIC ncclResult_t ncclCommDestroy(ncclComm_t c) {
    note("ncclCommDestroy", c);
    leave(c);
    return ncclSuccess;
}
PUBLIC ncclResult_t ncclCommAbort(ncclComm_t c) {
    note("ncclCommAbort", c);
    if (here.depth && version() < 22200)
        return refuse(ncclInvalidUsage, "an abort in a group");
    c->aborted = true;
    shm_unlink(c->path); /* others may not leave */
    here.aborts = true;
    if (!here.depth)
        end_aborts();
    return ncclSuccess;
}

PUBLIC const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError    ? "remote process exited or there was a network error"
           : result == ncclInvalidUsage ? "invalid usage"
           : result == ncclInProgress   ? "NCCL operation in progress"
                                        : "an error";
}
PUBLIC const char *ncclGetLastError(ncclComm_t c) { return c && *c->error ? c->error : here.error; }
