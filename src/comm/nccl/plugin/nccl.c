/* The plugin ndp_nccl.so: NCCL's calls and nothing else. <nccl.h> is the header beside this file, or NVIDIA's; the
 * library is loaded at run time. */
#include "comm/nccl/nccl_api.h"
#include "comm/nccl/plugin/library.h"
#include "tensor/dtype.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ncclUniqueId) == NDP_NCCL_ID_BYTES, "an id does not fit its place");

/* X(name) for each function nccl<name> that we call. */
#define FUNCTIONS(X)                                                                                                   \
    X(GetVersion)                                                                                                      \
    X(GetUniqueId)                                                                                                     \
    X(CommInitRankConfig)                                                                                              \
    X(CommSplit)                                                                                                       \
    X(CommFinalize)                                                                                                    \
    X(CommDestroy)                                                                                                     \
    X(CommAbort)                                                                                                       \
    X(GetErrorString)                                                                                                  \
    X(GetLastError)                                                                                                    \
    X(CommGetAsyncError)                                                                                               \
    X(AllGather)                                                                                                       \
    X(ReduceScatter)                                                                                                   \
    X(AllReduce)                                                                                                       \
    X(Broadcast)                                                                                                       \
    X(Send)                                                                                                            \
    X(Recv)                                                                                                            \
    X(GroupStart)                                                                                                      \
    X(GroupEnd)

/* The first version with ncclCommSplit, the first that ends several communicators in one group, and the first that
 * names communicators. */
enum { OLDEST = 21800, WITH_GROUPED_ABORTS = 22200, WITH_NAMES = 22700 };

static struct {
#define MEMBER(name) __typeof__(nccl##name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    int version;
} nccl;

/* NCCL's handle stays at its place: NCCL writes it when a split has ended. */
typedef struct nccl_handle {
    ncclComm_t comm;
    struct nccl_handle *parent; /* of a split that is in progress */
    bool aborted;
    char name[32]; /* NCCL keeps a pointer */
} nccl_handle;

static _Thread_local char text[768];

static const char *failed(const char *what, ncclResult_t result, ncclComm_t comm) {
    const char *detail = nccl.GetLastError(comm);
    snprintf(text, sizeof text, "%s: %s%s%s", what, nccl.GetErrorString(result), detail && *detail ? ": " : "",
             detail ? detail : "");
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static const char *check(const char *what, ncclResult_t result, ncclComm_t comm) {
    return result == ncclSuccess || result == ncclInProgress ? NULL : failed(what, result, comm);
}

/* ---- the library ---- */

static const char *find_functions(void *library) {
#define FIND(name)                                                                                                     \
    nccl.name = (__typeof__(nccl.name))(__INTPTR_TYPE__)dlsym(library, "nccl" #name);                                  \
    missing = nccl.name || missing ? missing : "nccl" #name;
    const char *missing = NULL;
    FUNCTIONS(FIND)
#undef FIND
    return missing;
}

static const char *plugin_load(int *number) {
    void *library = nccl.version ? NULL : ndp_nccl_find(text, sizeof text);
    if (!library && !nccl.version)
        return text;
    const char *missing = library ? find_functions(library) : NULL;
    if (nccl.GetVersion && !nccl.version)
        nccl.GetVersion(&nccl.version);
    *number = nccl.version;
    if (nccl.version >= OLDEST && !missing)
        return NULL;
    snprintf(text, sizeof text,
             "libnccl.so.2 has version %d.%d.%d%s%s, and 2.18 is the oldest that can be used: `python3 -m pip install "
             "nvidia-nccl-cu13`",
             *number / 10000, *number / 100 % 100, *number % 100, missing ? " and no " : "", missing ? missing : "");
    nccl.version = 0;
    return text;
}

static const char *plugin_unique_id(void *out) { return check("ncclGetUniqueId", nccl.GetUniqueId(out), NULL); }

/* ---- communicators ---- */

static ncclConfig_t config_of(const nccl_handle *c) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (nccl.version >= WITH_NAMES)
        config.commName = c->name;
    return config;
}

static nccl_handle *new_comm(const char *name) {
    nccl_handle *c = calloc(1, sizeof *c);
    if (c)
        snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

static const char *plugin_comm_init(const void *id, int count, int rank, const char *name, void **out) {
    nccl_handle *c = new_comm(name);
    if (!c)
        return "not enough memory for a communicator";
    ncclUniqueId unique;
    memcpy(&unique, id, sizeof unique);
    ncclConfig_t config = config_of(c);
    const char *error =
        check("ncclCommInitRankConfig", nccl.CommInitRankConfig(&c->comm, count, unique, rank, &config), NULL);
    if (error)
        free(c);
    else
        *out = c;
    return error;
}

static const char *plugin_comm_split(void *parent, bool member, int rank, const char *name, void **out) {
    nccl_handle *from = parent, *c = new_comm(name);
    *out = NULL;
    if (!c)
        return "not enough memory for a communicator";
    ncclConfig_t config = config_of(c);
    const char *error =
        check("ncclCommSplit", nccl.CommSplit(from->comm, member ? 0 : NCCL_SPLIT_NOCOLOR, rank, &c->comm, &config),
              from->comm);
    c->parent = from;
    if (error)
        free(c);
    else
        *out = c;
    return error;
}

static const char *state_of(ncclComm_t comm, bool *ready) {
    ncclResult_t state = ncclSuccess, result = nccl.CommGetAsyncError(comm, &state);
    if (result != ncclSuccess)
        return failed("ncclCommGetAsyncError", result, comm);
    *ready = state == ncclSuccess;
    return check("NCCL", state, comm);
}

static const char *plugin_comm_poll(void *comm, bool *ready) {
    nccl_handle *c = comm;
    *ready = false;
    if (c->aborted)
        return "NCCL: the communicator was aborted";
    if (c->parent) {
        const char *error = state_of(c->parent->comm, ready);
        if (error || !*ready)
            return error;
        c->parent = NULL;
    }
    *ready = true;
    return c->comm ? state_of(c->comm, ready) : NULL;
}

static const char *plugin_comm_finalize(void *comm) {
    nccl_handle *c = comm;
    return c->comm ? check("ncclCommFinalize", nccl.CommFinalize(c->comm), c->comm) : NULL;
}

static void plugin_comm_release(void *comm) {
    nccl_handle *c = comm;
    if (c->comm && !c->aborted)
        nccl.CommDestroy(c->comm);
    free(c);
}

static void plugin_comm_abort(void *const *comms, int n) {
    bool group = nccl.version >= WITH_GROUPED_ABORTS && nccl.GroupStart() == ncclSuccess;
    for (int i = 0; i < n; i++) {
        nccl_handle *c = comms[i];
        if (c->comm && !c->aborted)
            nccl.CommAbort(c->comm);
        c->aborted = true;
    }
    if (group)
        nccl.GroupEnd();
}

/* ---- operations ---- */

static ncclDataType_t type_of(int type) {
    switch ((ndp_dtype)type) {
    case NDP_F32:
        return ncclFloat32;
    case NDP_BF16:
        return ncclBfloat16;
    case NDP_F16:
        return ncclFloat16;
    case NDP_F64:
        return ncclFloat64;
    case NDP_I32:
        return ncclInt32;
    case NDP_I64:
        return ncclInt64;
    default:
        return ncclUint8;
    }
}

/* NCCL has no type of 16 bits for integers: they are moved as bytes. */
static size_t count_of(int64_t count, int type) { return (size_t)count * (type == NDP_U16 ? 2 : 1); }

static const char *plugin_all_gather(void *comm, void *stream, const void *in, void *out, int64_t count, int type) {
    ncclComm_t c = ((nccl_handle *)comm)->comm;
    return check("ncclAllGather", nccl.AllGather(in, out, count_of(count, type), type_of(type), c, stream), c);
}

static const char *plugin_reduce_scatter(void *comm, void *stream, const void *in, void *out, int64_t count, int type) {
    ncclComm_t c = ((nccl_handle *)comm)->comm;
    return check("ncclReduceScatter",
                 nccl.ReduceScatter(in, out, count_of(count, type), type_of(type), ncclSum, c, stream), c);
}

static const char *plugin_all_reduce(void *comm, void *stream, const void *in, void *out, int64_t count, int type,
                                     bool max) {
    ncclComm_t c = ((nccl_handle *)comm)->comm;
    return check("ncclAllReduce",
                 nccl.AllReduce(in, out, count_of(count, type), type_of(type), max ? ncclMax : ncclSum, c, stream), c);
}

static const char *plugin_broadcast(void *comm, void *stream, void *buffer, int64_t bytes, int root) {
    ncclComm_t c = ((nccl_handle *)comm)->comm;
    return check("ncclBroadcast", nccl.Broadcast(buffer, buffer, (size_t)bytes, ncclUint8, root, c, stream), c);
}

static const char *move(ncclComm_t c, void *stream, const ndp_nccl_message *m) {
    if (m->send)
        return check("ncclSend", nccl.Send(m->send, (size_t)m->bytes, ncclUint8, m->peer, c, stream), c);
    return check("ncclRecv", nccl.Recv(m->recv, (size_t)m->bytes, ncclUint8, m->peer, c, stream), c);
}

/* A group that was started is also ended. */
static const char *plugin_exchange(void *comm, void *stream, const ndp_nccl_message *messages, int n) {
    static _Thread_local char first[sizeof text];
    ncclComm_t c = ((nccl_handle *)comm)->comm;
    const char *error = check("ncclGroupStart", nccl.GroupStart(), c);
    if (error)
        return error;
    for (int i = 0; i < n && !error; i++)
        error = move(c, stream, &messages[i]);
    if (error)
        error = memcpy(first, text, sizeof text);
    const char *ended = check("ncclGroupEnd", nccl.GroupEnd(), c);
    return error ? error : ended;
}

extern const ndp_nccl_api ndp_nccl_plugin;
__attribute__((visibility("default"))) const ndp_nccl_api ndp_nccl_plugin = {
    .version = NDP_NCCL_API_VERSION,
    .load = plugin_load,
    .unique_id = plugin_unique_id,
    .comm_init = plugin_comm_init,
    .comm_split = plugin_comm_split,
    .comm_poll = plugin_comm_poll,
    .comm_finalize = plugin_comm_finalize,
    .comm_release = plugin_comm_release,
    .comm_abort = plugin_comm_abort,
    .all_gather = plugin_all_gather,
    .reduce_scatter = plugin_reduce_scatter,
    .all_reduce = plugin_all_reduce,
    .broadcast = plugin_broadcast,
    .exchange = plugin_exchange,
};
