/* What an operation is: its kind and its size. */
#ifndef NDP_COMM_WORK_H
#define NDP_COMM_WORK_H

#include "comm/comm.h"

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
