/* A run by HTTP: the report and /metrics. */
#ifndef NDP_REPORT_SERVE_H
#define NDP_REPORT_SERVE_H

#include "base/status.h"
#include "report/http_api.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* Where to listen: "127.0.0.1:9000", "localhost:9000", "[::1]:9000", or a port alone, of 127.0.0.1. */
typedef struct ndp_http_address {
    char host[64]; /* as it is written in a URL, without the port: "127.0.0.1", "[::1]" */
    struct sockaddr_storage at;
    socklen_t size;
    bool any; /* requests may name any host */
} ndp_http_address;
/* NDP_EINVAL: it is no such address; or it is not loopback, and not `any`. */
NDP_API ndp_status ndp_http_address_parse(const char *text, bool any, ndp_http_address *out);

struct ndp_http_server;
struct ndp_watch;
/* Answers a request about a watched run; `server` is its struct ndp_http_server. */
ndp_http_answerer ndp_serve_answer;
/* A server that does not listen, for ndp_serve_answer. NULL: out of memory. */
struct ndp_http_server *ndp_serve_create(struct ndp_watch *w, const ndp_http_address *a);
/* Ends it; NULL is fine. */
void ndp_serve_end(struct ndp_http_server *s);

#endif
