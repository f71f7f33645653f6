#include "comm/node.h"
#include "base/arena.h"
#include "base/clock.h"
#include "comm/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static ndp_status file_create(size_t bytes, int *out) {
    int fd = memfd_create("ndparallel", MFD_CLOEXEC);
    if (fd < 0)
        return NDP_FAIL(errno == EMFILE || errno == ENFILE ? NDP_ENOMEM : NDP_ENOTSUP, "no shared memory file: %s%s",
                        strerror(errno), errno == EMFILE ? " (raise ulimit -n)" : "");
    if (ftruncate(fd, (off_t)ndp_memory_round(bytes)) != 0) {
        int error = errno;
        close(fd);
        return NDP_FAIL(NDP_ENOMEM, "no shared memory of %zu bytes: %s", bytes, strerror(error));
    }
    *out = fd;
    return NDP_OK;
}

static ndp_status file_map_peer(int pid, int fd, size_t bytes, void **out) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat info;
    if (file < 0 || fstat(file, &info) != 0) {
        int error = errno;
        if (file >= 0)
            close(file);
        return NDP_FAIL(NDP_ENOTSUP, "the memory of process %d cannot be opened (%s): %s", pid, path, strerror(error));
    }
    ndp_status st = (size_t)info.st_size >= ndp_memory_round(bytes)
                        ? ndp_memory_map(file, bytes, out)
                        : NDP_FAIL(NDP_ENOTSUP, "%s is not the memory that was announced", path);
    close(file);
    return st;
}

ndp_status ndp_node_init(ndp_node *n, int ranks, int rank, ndp_node_address *out) {
    void *card = NULL;
    *n = (ndp_node){.ranks = ranks, .rank = rank, .card_fd = -1, .peers = calloc((size_t)ranks, sizeof *n->peers)};
    if (!n->peers)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a node of %d ranks", ranks);
    NDP_TRY(file_create(sizeof(ndp_node_card), &n->card_fd));
    NDP_TRY(ndp_memory_map(n->card_fd, sizeof(ndp_node_card), &card));
    n->peers[rank].card = card;
    n->peers[rank].pid = getpid();
    n->peers[rank].card->token = (uint64_t)(ndp_now() * 1e9) ^ (uint64_t)getpid() << 40;
    *out = (ndp_node_address){.pid = getpid(), .fd = n->card_fd, .token = n->peers[rank].card->token};
    return NDP_OK;
}

ndp_status ndp_node_connect(ndp_node *n, const ndp_node_address *addresses) {
    for (int r = 0; r < n->ranks; r++) {
        void *card;
        if (r == n->rank)
            continue;
        NDP_TRY(file_map_peer(addresses[r].pid, addresses[r].fd, sizeof(ndp_node_card), &card));
        n->peers[r].card = card;
        n->peers[r].pid = addresses[r].pid;
        if (n->peers[r].card->token != addresses[r].token)
            return NDP_FAIL(NDP_ENOTSUP, "process %d is not the rank that was announced", addresses[r].pid);
    }
    return NDP_OK;
}

void ndp_node_release(ndp_node *n) {
    for (int r = 0; n->peers && r < n->ranks; r++) {
        for (int64_t s = 0; s < n->peers[r].capacity; s++)
            ndp_node_segment_drop(n, (ndp_ref){.owner = r, .segment = (int32_t)s});
        free(n->peers[r].mappings);
        ndp_memory_unmap(n->peers[r].card, sizeof(ndp_node_card));
    }
    if (n->card_fd >= 0)
        close(n->card_fd);
    free(n->peers);
    *n = (ndp_node){.card_fd = -1};
}

static ndp_status remember(ndp_node_peer *peer, int segment, void *data, size_t bytes) {
    int64_t before = peer->capacity;
    NDP_TRY(ndp_array_reserve(&peer->mappings, &peer->capacity, segment + 1, sizeof *peer->mappings));
    memset(peer->mappings + before, 0, (size_t)(peer->capacity - before) * sizeof *peer->mappings);
    peer->mappings[segment] = (ndp_node_mapping){data, bytes};
    return NDP_OK;
}

ndp_status ndp_node_segment_create(ndp_node *n, size_t bytes, ndp_ref *out) {
    ndp_node_peer *me = &n->peers[n->rank];
    int number = me->card->count, fd;
    if (number == NDP_NODE_SEGMENTS)
        return NDP_FAIL(NDP_ENOTSUP, "more than %d windows and communicators in one run", NDP_NODE_SEGMENTS);
    NDP_TRY(file_create(bytes, &fd));
    void *data = NULL;
    ndp_status st = ndp_memory_map(fd, bytes, &data);
    if (st == NDP_OK)
        st = remember(me, number, data, bytes);
    if (st != NDP_OK) {
        ndp_memory_unmap(data, bytes);
        close(fd);
        return st;
    }
    me->card->segment[number].fd = fd;
    me->card->segment[number].bytes = bytes;
    me->card->count = number + 1;
    *out = (ndp_ref){.owner = n->rank, .segment = number};
    return NDP_OK;
}

void ndp_node_segment_drop(ndp_node *n, ndp_ref ref) {
    ndp_node_peer *peer = &n->peers[ref.owner];
    if (ref.segment >= peer->capacity || !peer->mappings[ref.segment].data)
        return;
    ndp_memory_unmap(peer->mappings[ref.segment].data, peer->mappings[ref.segment].bytes);
    peer->mappings[ref.segment].data = NULL;
    if (ref.owner == n->rank)
        close(peer->card->segment[ref.segment].fd);
}

ndp_ref ndp_node_locate(void *node, const void *data, size_t bytes) {
    const ndp_node *n = node;
    const char *first = data;
    for (int r = 0; r < n->ranks; r++)
        for (int64_t s = 0; s < n->peers[r].capacity; s++) {
            const ndp_node_mapping *m = &n->peers[r].mappings[s];
            const char *start = m->data;
            if (start && first >= start && first + bytes <= start + m->bytes)
                return (ndp_ref){.owner = r, .segment = (int32_t)s, .offset = first - start};
        }
    return (ndp_ref){.owner = -1};
}

ndp_status ndp_node_resolve(void *node, ndp_ref ref, void **out) {
    ndp_node_peer *peer = &((ndp_node *)node)->peers[ref.owner];
    if (ref.segment >= peer->capacity || !peer->mappings[ref.segment].data) {
        size_t bytes = peer->card->segment[ref.segment].bytes;
        void *data = NULL;
        NDP_TRY(file_map_peer(peer->pid, peer->card->segment[ref.segment].fd, bytes, &data));
        ndp_status st = remember(peer, ref.segment, data, bytes);
        if (st != NDP_OK) {
            ndp_memory_unmap(data, bytes);
            return st;
        }
    }
    *out = (char *)peer->mappings[ref.segment].data + ref.offset;
    return NDP_OK;
}
