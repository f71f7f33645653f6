/* What an operation is: its kind and its size. */
#ifndef NDP_COMM_WORK_H
#define NDP_COMM_WORK_H

#include "comm/comm.h"

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

/* The last tag that every MPI has. Callers have those below. */
enum { NDP_TAG_SHIFT = 32767 };

const char *ndp_work_kind_name(int kind);

/* A send or a receive. */
static inline bool ndp_work_is_message(const ndp_work *w) {
    return w->kind == NDP_WORK_SEND || w->kind == NDP_WORK_RECV;
}

/* Bytes of one rank's part. */
static inline size_t ndp_work_bytes(const ndp_work *w) { return (size_t)w->count * ndp_dtype_size((ndp_dtype)w->type); }

#endif
