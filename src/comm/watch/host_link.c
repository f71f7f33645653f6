/* Connecting takes place while the ranks work: a rank tries all addresses of the next host at once, sends its token on
 * each that answers, and keeps the one that sends the token back. So an address that two hosts have alike (that of a
 * bridge of containers) does no harm. All sockets are non-blocking. */
#include "comm/watch/host_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TRIES = NDP_HOST_ADDRESSES, NEXT = 0, BEFORE = 1, FAREWELL = 1 };

struct ndp_host_link {
    int listener;
    uint64_t token; /* that this host expects */
    ndp_host_address to;
    int tries[TRIES], guests[TRIES]; /* connections of which it is not yet known whether they are right; -1: none */
    uint32_t sent;                   /* tries on which the token was sent, a bit each */
    int ends[2], ranks[2];           /* the two that are; -1: none, or ended in order */
};

/* ---- sockets ---- */

/* The kernel asks every two seconds after three, and gives up after NDP_LOST_SECONDS without an answer. */
static void watch(int fd) {
    static const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 3},
                   {IPPROTO_TCP, TCP_KEEPINTVL, 2},
                   {IPPROTO_TCP, TCP_KEEPCNT, NDP_LOST_SECONDS / 2},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * NDP_LOST_SECONDS}};
    for (int i = 0; i < NDP_COUNT(options); i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

static void drop(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Addresses of interfaces that are up, except that of the loop. */
static int own_addresses(uint32_t out[NDP_HOST_ADDRESSES]) {
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all))
        return 0;
    for (const struct ifaddrs *i = all; i && n < NDP_HOST_ADDRESSES; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
            !(i->ifa_flags & IFF_LOOPBACK))
            out[n++] = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr.s_addr;
    freeifaddrs(all);
    return n;
}

static int listen_anywhere(uint32_t *port) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) || listen(fd, TRIES) ||
        getsockname(fd, (struct sockaddr *)&at, &size))
        drop(&fd);
    *port = at.sin_port;
    return fd;
}

void ndp_host_link_listen(ndp_host_address *own, ndp_host_link **out) {
    ndp_host_link *l = calloc(1, sizeof *l);
    *own = (ndp_host_address){0};
    *out = NULL;
    if (!l)
        return;
    l->listener = listen_anywhere(&own->port);
    if (l->listener < 0 || own_addresses(own->address) == 0 ||
        getrandom(&own->token, sizeof own->token, 0) != sizeof own->token) {
        drop(&l->listener);
        free(l);
        *own = (ndp_host_address){0};
        return;
    }
    l->token = own->token;
    for (int i = 0; i < TRIES; i++)
        l->tries[i] = l->guests[i] = -1;
    l->ends[NEXT] = l->ends[BEFORE] = -1;
    *out = l;
}

/* ---- connecting ---- */

void ndp_host_link_connect(ndp_host_link *l, const ndp_host_address *to, int next, int before) {
    if (!l)
        return;
    l->to = *to;
    l->ranks[NEXT] = next;
    l->ranks[BEFORE] = before;
    for (int i = 0; i < TRIES && to->address[i]; i++) {
        struct sockaddr_in at = {
            .sin_family = AF_INET, .sin_port = (in_port_t)to->port, .sin_addr = {.s_addr = to->address[i]}};
        l->tries[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (l->tries[i] >= 0 && connect(l->tries[i], (struct sockaddr *)&at, sizeof at) && errno != EINPROGRESS)
            drop(&l->tries[i]);
    }
}

/* The end `which` is this connection; the others are not needed. */
static void keep(ndp_host_link *l, int which, int *fds, int chosen) {
    l->ends[which] = fds[chosen];
    fds[chosen] = -1;
    watch(l->ends[which]);
    for (int i = 0; i < TRIES; i++)
        drop(&fds[i]);
}

/* Sends the token of the other once connected, until it comes back. */
static void try_next(ndp_host_link *l) {
    for (int i = 0; i < TRIES && l->ends[NEXT] < 0; i++) {
        uint64_t answer = 0;
        if (l->tries[i] < 0)
            continue;
        ssize_t n = recv(l->tries[i], &answer, sizeof answer, MSG_DONTWAIT);
        bool waits = n < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS);
        if (n == sizeof answer && answer == ~l->to.token)
            keep(l, NEXT, l->tries, i);
        else if (!waits)
            drop(&l->tries[i]);
    }
}

/* A token is sent once: a connection that can be written to is connected. */
static void send_tokens(ndp_host_link *l) {
    for (int i = 0; i < TRIES; i++)
        if (l->tries[i] >= 0 && !(l->sent & 1u << i) &&
            send(l->tries[i], &l->to.token, sizeof l->to.token, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof l->to.token)
            l->sent |= 1u << i;
}

static void take_guests(ndp_host_link *l) {
    for (int i = 0; i < TRIES; i++)
        if (l->guests[i] < 0)
            l->guests[i] = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    for (int i = 0; i < TRIES && l->ends[BEFORE] < 0; i++) {
        uint64_t token = 0, answer = ~l->token;
        ssize_t n = l->guests[i] < 0 ? -1 : recv(l->guests[i], &token, sizeof token, MSG_DONTWAIT);
        if (n == sizeof token && token == l->token &&
            send(l->guests[i], &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof answer) {
            keep(l, BEFORE, l->guests, i);
            drop(&l->listener);
        } else if (l->guests[i] >= 0 && (n >= 0 || errno != EAGAIN))
            drop(&l->guests[i]);
    }
}

/* ---- looking ---- */

static ndp_link_news look_at(ndp_host_link *l, int which) {
    char byte;
    ssize_t n = l->ends[which] < 0 ? -1 : recv(l->ends[which], &byte, 1, MSG_DONTWAIT);
    int cause = n < 0 ? errno : 0;
    if (l->ends[which] < 0 || cause == EAGAIN || cause == EINTR)
        return NDP_LINK_SAME;
    drop(&l->ends[which]);
    if (n == 1)
        return NDP_LINK_SAME; /* a farewell */
    return n == 0 || cause == ECONNRESET ? NDP_LINK_ENDED : NDP_LINK_LOST;
}

ndp_link_news ndp_host_link_look(ndp_host_link *l, int *rank) {
    if (l->listener >= 0)
        take_guests(l);
    send_tokens(l);
    try_next(l);
    for (int which = NEXT; which <= BEFORE; which++) {
        ndp_link_news news = look_at(l, which);
        *rank = l->ranks[which];
        if (news != NDP_LINK_SAME)
            return news;
    }
    return NDP_LINK_SAME;
}

void ndp_host_link_part(ndp_host_link *l) {
    const char byte = FAREWELL;
    for (int which = NEXT; l && which <= BEFORE; which++)
        if (l->ends[which] >= 0 && send(l->ends[which], &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            continue; /* it has ended as well */
}

void ndp_host_link_close(ndp_host_link *l) {
    if (!l)
        return;
    drop(&l->listener);
    for (int i = 0; i < TRIES; i++) {
        drop(&l->tries[i]);
        drop(&l->guests[i]);
    }
    drop(&l->ends[NEXT]);
    drop(&l->ends[BEFORE]);
    free(l);
}
