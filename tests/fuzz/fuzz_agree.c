/* libFuzzer: what collectives bring when ranks agree on an error (checkpoint/agree.h) and on their programs
 * (step/program_agree.c), as another build or damaged memory might. A rank that failed never agrees on success. */
#include "checkpoint/agree.h"
#include "comm/impl.h"
#include "step/program.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A transport whose collectives bring the input, as far as it goes. */
typedef struct transport {
    ndp_transport base;
    const uint8_t *data;
    size_t n;
} transport;

static ndp_status begin(ndp_work *w) {
    (void)w;
    return NDP_OK;
}

static ndp_status wait(ndp_work *w) {
    transport *t = (transport *)w->comm->transport;
    size_t bytes = ndp_work_bytes(w), n = bytes < t->n ? bytes : t->n;
    if (n)
        memcpy(w->out, t->data, n);
    t->data += n;
    t->n -= n;
    return NDP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const ndp_transport_ops ops = {.name = "fuzz", .begin = begin, .wait = wait};
    const ndp_program empty = {0};
    ndp_comm c;
    if (size == 0)
        return 0;
    transport t = {
        .base = {.ops = &ops, .rank = data[0] % 4, .world = 4, .node_ranks = 4}, .data = data + 1, .n = size - 1};
    ndp_comm_init(&c, &t.base, (ndp_group){.base = 0, .stride = 1, .count = 4, .rank = data[0] % 4}, "fuzz");
    ndp_status mine = data[0] & 4 ? NDP_FAIL(NDP_EIO, "this rank failed") : NDP_OK;
    if (data[0] & 8)
        (void)!ndp_program_agree(&empty, 0, &c);
    else if (ndp_agree(&c, mine) == NDP_OK && mine != NDP_OK)
        __builtin_trap();
    return 0;
}
