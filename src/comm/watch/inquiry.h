/* How ranks that share no memory learn where the others are: a rank that waits for long asks, by small messages on a
 * communicator of its own, and every rank that waits answers. What is heard of a rank is put in the place of its
 * journal (journal.h), so that the watchdog reads near and far ranks alike.
 *
 * A rank that fails tells all others here. A rank that computes does not answer; the ranks that share its node's memory
 * can, since they read its journal: they are asked in turn when it is silent. At most one unanswered question is on its
 * way from one rank to another. Nobody ever waits for an answer, and nothing is allocated after the start. */
#ifndef NDP_COMM_WATCH_INQUIRY_H
#define NDP_COMM_WATCH_INQUIRY_H

#include "comm/watch/journal.h"
#include "comm/mpi/mpi_api.h"

enum { NDP_INQUIRY_SLOTS = 16 };

typedef struct ndp_question {
    uint32_t number;     /* of the asker's wait */
    int32_t about;       /* the world rank */
    ndp_awaited whether; /* has it begun this? */
} ndp_question;

/* Its times are ages in seconds: nodes have clocks of their own. */
typedef struct ndp_answer {
    uint32_t number;
    int32_t about;
    ndp_arrival arrival;
    ndp_standing standing;
} ndp_answer;

/* The run is over. */
typedef struct ndp_failure {
    int32_t rank;
    char message[1024];
} ndp_failure;

/* What this rank knows of another. Times are of this node's clock; 0: never. */
typedef struct ndp_far {
    uint32_t wait; /* the wait of this rank to which all but `owes` belongs */
    double asked;  /* the oldest question about it that it has not answered itself */
    double heard;  /* the last answer about it, of whomever */
    double tried;  /* the last question about it, to whomever */
    int32_t tries; /* since it answered itself */
    ndp_arrival arrival;
    bool owes; /* an answer, whatever about */
} ndp_far;

/* A message on its way; request = 0: free. */
typedef struct ndp_inquiry_slot {
    uint64_t request;
    union {
        ndp_question question;
        ndp_answer answer;
        ndp_failure failure;
    } data;
} ndp_inquiry_slot;

typedef struct ndp_inquiry {
    const ndp_mpi_api *api;
    ndp_transport *t;
    const int *node_of; /* by world rank, borrowed: equal where ranks read each other's journals */
    void *comm;
    ndp_far *far; /* by world rank */
    ndp_inquiry_slot out[NDP_INQUIRY_SLOTS], in;
    int in_from, in_tag; /* of the message that is being received */
    ndp_failure failure; /* what this rank told */
    ndp_awaited awaited; /* what this rank waits for */
    uint32_t wait;       /* the number of its wait; 0: it is awake */
} ndp_inquiry;

/* Collective over the world. */
ndp_status ndp_inquiry_create(const ndp_mpi_api *api, ndp_transport *t, const int *node_of, ndp_inquiry **out);
/* quiet: MPI is not told, since peers may be gone. NULL is fine. */
void ndp_inquiry_destroy(ndp_inquiry *q, bool quiet);

/* Tells the ranks of other nodes that this one failed; they hear it when they wait. Once; NULL is fine. */
void ndp_inquiry_tell_failure(ndp_inquiry *q, const char *message);
/* Lets what was told travel. NULL is fine. */
void ndp_inquiry_progress(ndp_inquiry *q);

/* Answers what others have asked and takes their answers, or their failure; called now and then by a rank that sleeps
 * in a wait for `a` (NULL: for peers on its node). A NULL inquiry is fine. */
ndp_status ndp_inquiry_serve(ndp_inquiry *q, const ndp_awaited *a);

/* True where a rank's journal is to be read, not asked for. NULL: always. */
bool ndp_inquiry_is_near(const ndp_inquiry *q, int rank);
/* Of a near rank. */
ndp_arrival ndp_inquiry_judge(const ndp_transport *t, int rank, const ndp_awaited *a);
/* Asks about a far rank where it is, and whether it has begun what this rank waits for; not more often than is good. */
ndp_status ndp_inquiry_ask(ndp_inquiry *q, int rank);
/* What has been heard of a far rank since this rank sleeps; NULL: nothing. */
const ndp_far *ndp_inquiry_heard(const ndp_inquiry *q, int rank);
/* For how many seconds a rank has owed an answer to a question of this wait; 0: it does not, or is near. */
double ndp_inquiry_silence(const ndp_inquiry *q, int rank);

#endif
