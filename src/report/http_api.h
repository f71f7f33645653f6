/* What the plugin ndp_http.so exports: a server that answers with what a function gives it. The plugin knows nothing of
 * this library, and the library does not include libmicrohttpd. */
#ifndef NDP_REPORT_HTTP_API_H
#define NDP_REPORT_HTTP_API_H

#include <stddef.h>

#define NDP_HTTP_API_VERSION 1
#define NDP_HTTP_API_SYMBOL "ndp_http_plugin"

enum { NDP_HTTP_HEADERS = 8 };

typedef struct ndp_http_answer {
    int status; /* 200 */
    const char *body;
    size_t size;
    struct {
        const char *name, *value;
    } headers[NDP_HTTP_HEADERS]; /* up to the first without a name */
} ndp_http_answer;

/* `host`: the value of that header; NULL: there is none. What `out` points to must be good until the next call; calls
 * follow each other, on one thread. */
typedef void ndp_http_answerer(void *user, const char *method, const char *path, const char *host,
                               ndp_http_answer *out);

typedef struct ndp_http_api {
    int version;
    /* Answers requests that come to a socket that listens, which it takes over, until `stop`. Connections that are too
     * many wait, those that say nothing are closed, and what is too long is refused. Returns NULL, or what is wrong. */
    const char *(*start)(int socket, ndp_http_answerer *answer, void *user, void **server);
    void (*stop)(void *server);
} ndp_http_api;

#endif
