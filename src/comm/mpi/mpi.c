/* The plugin ndp_mpi.so: MPI-3.1 calls and nothing else. It is compiled against the installed MPI and loaded at run
 * time, so that the program also runs without MPI. */
#include "comm/mpi/mpi_api.h"

#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request does not fit its handle");

/* MPI counts are ints: a longer message is one element of a type of that many bytes. Types live as long as their
 * communicator, since a pending collective may use them. */
typedef struct message_type {
    int64_t bytes;
    MPI_Datatype type;
} message_type;

typedef struct plugin_comm {
    MPI_Comm comm;
    message_type *types;
    int n_types;
} plugin_comm;

static _Thread_local char error_text[MPI_MAX_ERROR_STRING + 1];

static const char *check(int code) {
    if (code == MPI_SUCCESS)
        return NULL;
    int length = 0;
    if (MPI_Error_string(code, error_text, &length) != MPI_SUCCESS)
        return "an MPI error without a text";
    error_text[length] = '\0';
    return error_text;
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const char *text_ = check(call);                                                                               \
        if (text_)                                                                                                     \
            return text_;                                                                                              \
    } while (0)

static const char *lowest_rank_of_node(int rank, int *out) {
    MPI_Comm node;
    TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node));
    *out = rank;
    TRY(MPI_Bcast(out, 1, MPI_INT, 0, node));
    return check(MPI_Comm_free(&node));
}

/* MPI writes to the sockets of peers. If a peer is killed, SIGPIPE would also kill this rank, and mpirun would report
 * whichever of the two it hears of first. */
static void ignore_broken_pipes(void) {
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

static const char *plugin_init(ndp_mpi_world *out) {
    int running, finished, provided;
    TRY(MPI_Finalized(&finished));
    if (finished)
        return "MPI was finalised before and cannot be joined twice by one process";
    TRY(MPI_Initialized(&running));
    if (!running) {
        ignore_broken_pipes();
        TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided));
    }
    out->ours = !running;
    TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    TRY(MPI_Comm_rank(MPI_COMM_WORLD, &out->rank));
    TRY(MPI_Comm_size(MPI_COMM_WORLD, &out->size));
    return lowest_rank_of_node(out->rank, &out->node);
}

/* The name and version: up to the first comma or line end. */
static const char *plugin_library(void) {
    static _Thread_local char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS)
        return "an unknown MPI";
    version[strcspn(version, ",\n")] = '\0';
    return version;
}

static void plugin_finalize(void) { MPI_Finalize(); }
static void plugin_abort(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

static const char *create(int base, int stride, int count, plugin_comm *c) {
    MPI_Group world, members;
    int range[1][3] = {{base, base + (count - 1) * stride, count > 1 ? stride : 1}};
    TRY(MPI_Comm_group(MPI_COMM_WORLD, &world));
    TRY(MPI_Group_range_incl(world, 1, range, &members));
    TRY(MPI_Comm_create_group(MPI_COMM_WORLD, members, 0, &c->comm));
    TRY(MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN));
    TRY(MPI_Group_free(&members));
    return check(MPI_Group_free(&world));
}

static const char *plugin_comm_create(int base, int stride, int count, void **out) {
    plugin_comm *c = calloc(1, sizeof *c);
    if (!c)
        return "not enough memory for a communicator";
    const char *text = create(base, stride, count, c);
    if (text) {
        free(c);
        return text;
    }
    *out = c;
    return NULL;
}

static void plugin_comm_destroy(void *comm) {
    plugin_comm *c = comm;
    for (int i = 0; i < c->n_types; i++)
        MPI_Type_free(&c->types[i].type);
    MPI_Comm_free(&c->comm);
    free(c->types);
    free(c);
}

/* `bytes` bytes as pieces of 1 GiB, followed by the rest. */
static const char *span_type(int64_t bytes, MPI_Datatype *out) {
    const int64_t piece = 1 << 30;
    if (bytes / piece > INT_MAX)
        return "a message beyond 2^61 bytes";
    MPI_Datatype giga, parts[2];
    int counts[2] = {(int)(bytes / piece), (int)(bytes % piece)};
    MPI_Aint places[2] = {0, (MPI_Aint)(bytes / piece * piece)};
    TRY(MPI_Type_contiguous((int)piece, MPI_BYTE, &giga));
    parts[0] = giga;
    parts[1] = MPI_BYTE;
    TRY(MPI_Type_create_struct(2, counts, places, parts, out));
    TRY(MPI_Type_commit(out));
    return check(MPI_Type_free(&giga));
}

/* The type of `bytes` bytes, which the communicator keeps. */
static const char *type_of(plugin_comm *c, int64_t bytes, MPI_Datatype *type) {
    for (int i = 0; i < c->n_types; i++)
        if (c->types[i].bytes == bytes) {
            *type = c->types[i].type;
            return NULL;
        }
    message_type *grown = realloc(c->types, (size_t)(c->n_types + 1) * sizeof *grown);
    if (!grown)
        return "not enough memory for a datatype";
    c->types = grown;
    const char *text = span_type(bytes, type);
    if (!text)
        c->types[c->n_types++] = (message_type){bytes, *type};
    return text;
}

/* The count and the type for `bytes`. */
static const char *measure(plugin_comm *c, int64_t bytes, int *count, MPI_Datatype *type) {
    int one = bytes > INT_MAX;
    *count = one ? 1 : (int)bytes;
    *type = MPI_BYTE;
    return one ? type_of(c, bytes, type) : NULL;
}

/* MPI_REQUEST_NULL, whatever its value, is stored as 0. */
static void store_request(MPI_Request r, uint64_t *out) {
    *out = 0;
    if (r != MPI_REQUEST_NULL)
        memcpy(out, &r, sizeof r);
}

/* Starts `call`, which uses c, n, type and &r, on messages of `bytes` bytes. */
#define START(bytes, call)                                                                                             \
    do {                                                                                                               \
        plugin_comm *c = comm;                                                                                         \
        MPI_Request r = MPI_REQUEST_NULL;                                                                              \
        MPI_Datatype type;                                                                                             \
        int n;                                                                                                         \
        const char *text = measure(c, (bytes), &n, &type);                                                             \
        if (text)                                                                                                      \
            return text;                                                                                               \
        TRY(call);                                                                                                     \
        store_request(r, request);                                                                                     \
        return NULL;                                                                                                   \
    } while (0)

static const char *plugin_barrier(void *comm, uint64_t *request) {
    MPI_Request r;
    TRY(MPI_Ibarrier(((plugin_comm *)comm)->comm, &r));
    store_request(r, request);
    return NULL;
}

static const char *plugin_all_gather(void *comm, const void *in, void *out, int64_t bytes, uint64_t *request) {
    START(bytes, MPI_Iallgather(in ? in : MPI_IN_PLACE, n, type, out, n, type, c->comm, &r));
}

static const char *plugin_all_to_all(void *comm, const void *in, void *out, int64_t bytes, uint64_t *request) {
    START(bytes, MPI_Ialltoall(in, n, type, out, n, type, c->comm, &r));
}

static const char *plugin_all_to_all_rows(void *comm, const void *in, void *out, int64_t bytes, const int *counts,
                                          uint64_t *request) {
    plugin_comm *c = comm;
    MPI_Request r = MPI_REQUEST_NULL;
    MPI_Datatype row;
    int n;
    TRY(MPI_Comm_size(c->comm, &n));
    const char *text = type_of(c, bytes, &row);
    if (text)
        return text;
    TRY(MPI_Ialltoallv(in, counts, counts + 2 * n, row, out, counts + n, counts + 3 * n, row, c->comm, &r));
    store_request(r, request);
    return NULL;
}

static const char *plugin_broadcast(void *comm, void *buffer, int64_t bytes, int root, uint64_t *request) {
    START(bytes, MPI_Ibcast(buffer, n, type, root, c->comm, &r));
}

static const char *plugin_send(void *comm, const void *buffer, int64_t bytes, int to, int tag, uint64_t *request) {
    START(bytes, MPI_Isend(buffer, n, type, to, tag, c->comm, &r));
}

static const char *plugin_recv(void *comm, void *buffer, int64_t bytes, int from, int tag, uint64_t *request) {
    START(bytes, MPI_Irecv(buffer, n, type, from, tag, c->comm, &r));
}

static const char *plugin_test(uint64_t *request, int *done, int64_t *received) {
    *done = 1;
    if (*request == 0)
        return NULL;
    MPI_Request r;
    MPI_Status status;
    MPI_Count bytes;
    memcpy(&r, request, sizeof r);
    TRY(MPI_Test(&r, done, &status));
    if (!*done)
        return NULL;
    *request = 0;
    if (received) {
        TRY(MPI_Get_elements_x(&status, MPI_BYTE, &bytes));
        *received = bytes;
    }
    return NULL;
}

static const char *plugin_probe(void *comm, int *there, int *from, int *tag) {
    MPI_Status status;
    TRY(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ((plugin_comm *)comm)->comm, there, &status));
    if (*there) {
        *from = status.MPI_SOURCE;
        *tag = status.MPI_TAG;
    }
    return NULL;
}

extern const ndp_mpi_api ndp_mpi_plugin;
__attribute__((visibility("default"))) const ndp_mpi_api ndp_mpi_plugin = {
    .version = NDP_MPI_API_VERSION,
    .init = plugin_init,
    .library = plugin_library,
    .finalize = plugin_finalize,
    .abort = plugin_abort,
    .comm_create = plugin_comm_create,
    .comm_destroy = plugin_comm_destroy,
    .barrier = plugin_barrier,
    .all_gather = plugin_all_gather,
    .all_to_all = plugin_all_to_all,
    .all_to_all_rows = plugin_all_to_all_rows,
    .broadcast = plugin_broadcast,
    .send = plugin_send,
    .recv = plugin_recv,
    .test = plugin_test,
    .probe = plugin_probe,
};
