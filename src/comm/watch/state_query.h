/* How ranks that share no memory learn each other's state. A rank that waits for long sends small requests on a
 * communicator of its own, and every rank that waits replies. The reply is stored in the table of journals (journal.h),
 * so the watchdog reads ranks of this node and of others alike.
 *
 * A rank that computes does not reply. Ranks of its node can read its journal, so while it is silent they are asked in
 * turn. At most one request from one rank to another is unanswered. No rank ever waits for a reply, and nothing is
 * allocated after the start. A rank that fails notifies all other nodes by the same communicator. */
#ifndef NDP_COMM_WATCH_STATE_QUERY_H
#define NDP_COMM_WATCH_STATE_QUERY_H

#include "comm/mpi/mpi_api.h"
#include "comm/watch/journal.h"

enum { NDP_STATE_QUERY_SLOTS = 16 };

typedef struct ndp_state_request {
    uint32_t wait;            /* of the rank that asks */
    int32_t about;            /* world rank */
    ndp_expected_op expected; /* has that rank begun this? */
} ndp_state_request;

/* Times are ages in seconds, since every node has a clock of its own. */
typedef struct ndp_state_reply {
    uint32_t wait; /* of the request */
    int32_t about;
    ndp_peer_progress progress;
    ndp_rank_state state;
} ndp_state_reply;

/* Ends the run. */
typedef struct ndp_failure_notice {
    int32_t rank;
    char message[1024];
} ndp_failure_notice;

/* What this rank knows about one of another node. Times are of this node's clock; 0: never. */
typedef struct ndp_remote_state {
    uint32_t wait;           /* the wait of this rank that all but reply_pending belongs to */
    double unanswered_since; /* the oldest request about it that it has not answered itself */
    double last_reply;       /* about it, from any rank */
    double last_request;     /* about it, to any rank */
    int32_t requests;        /* since it last answered itself */
    ndp_peer_progress progress;
    bool reply_pending; /* it has not yet answered a request, about whichever rank */
} ndp_remote_state;

/* A message in flight; request = 0: free. */
typedef struct ndp_state_query_slot {
    uint64_t request;
    union {
        ndp_state_request request;
        ndp_state_reply reply;
        ndp_failure_notice failure;
    } data;
} ndp_state_query_slot;

typedef struct ndp_state_query {
    const ndp_mpi_api *api;
    ndp_transport *t;
    const int *node_of; /* by world rank, borrowed: equal for ranks that can read each other's journals */
    void *comm;
    ndp_remote_state *remote; /* by world rank */
    ndp_state_query_slot out[NDP_STATE_QUERY_SLOTS], in;
    int in_from, in_tag;        /* of the message that is being received; in_from < 0: none */
    ndp_failure_notice failure; /* sent by this rank */
    ndp_expected_op expected;   /* what this rank waits for */
    uint32_t wait;              /* the number of its wait; 0: it does not wait */
} ndp_state_query;

/* Collective over the world. */
ndp_status ndp_state_query_create(const ndp_mpi_api *api, ndp_transport *t, const int *node_of, ndp_state_query **out);
/* quiet: without MPI calls, since peers may be gone. NULL is fine. */
void ndp_state_query_destroy(ndp_state_query *q, bool quiet);

/* Sends the ranks of other nodes the failure of this one; they receive it in their next wait. Once; NULL is fine. */
void ndp_state_query_send_failure(ndp_state_query *q, const char *message);
/* Lets MPI move what was sent. NULL is fine. */
void ndp_state_query_progress(ndp_state_query *q);

/* Answers requests and takes replies and failures; called now and then by a rank that waits for `e` (NULL: for a peer
 * of its node). NULL is fine for q. */
ndp_status ndp_state_query_serve(ndp_state_query *q, const ndp_expected_op *e);

/* True if the rank's journal can be read here. NULL: always. */
bool ndp_state_query_is_local(const ndp_state_query *q, int rank);
/* Whether a local rank has begun `e`. */
ndp_peer_progress ndp_state_query_local_progress(const ndp_transport *t, int rank, const ndp_expected_op *e);
/* Requests the state of a rank of another node, and whether it has begun what this rank waits for. Limits its own
 * rate. */
ndp_status ndp_state_query_send(ndp_state_query *q, int rank);
/* What replies said about a rank of another node since this rank began to wait; NULL: none has arrived. */
const ndp_remote_state *ndp_state_query_remote(const ndp_state_query *q, int rank);
/* Seconds for which a rank has not answered a request of this wait; 0: it has, or is local. */
double ndp_state_query_silence(const ndp_state_query *q, int rank);

#endif
