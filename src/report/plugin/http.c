/* ndp_http.so: libmicrohttpd (LGPL-2.1 or later) behind http_api.h. Everything happens on one thread of its own, so a
 * slow client costs a connection, not a thread. Answers are copied; requests with a body are answered before it is
 * read, and their connection is closed. */
#include "report/http_api.h"

#include <microhttpd.h>
#include <stdlib.h>

enum { CONNECTIONS = 256, SECONDS = 10, REQUEST_BYTES = 32768 };

typedef struct http_plugin_server {
    struct MHD_Daemon *daemon;
    ndp_http_answerer *answer;
    void *user;
} http_plugin_server;

static enum MHD_Result on_request(void *server, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *data, size_t *size, void **state) {
    http_plugin_server *s = server;
    ndp_http_answer a = {0};
    (void)version, (void)data, (void)size, (void)state;
    s->answer(s->user, method, path, MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST), &a);
    struct MHD_Response *r = MHD_create_response_from_buffer(a.size, (void *)(size_t)a.body, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO; /* closes the connection */
    enum MHD_Result result = MHD_YES;
    for (int i = 0; i < NDP_HTTP_HEADERS && a.headers[i].name; i++)
        if (MHD_add_response_header(r, a.headers[i].name, a.headers[i].value) != MHD_YES)
            result = MHD_NO;
    if (result == MHD_YES)
        result = MHD_queue_response(c, (unsigned)a.status, r);
    MHD_destroy_response(r);
    return result;
}

static const char *plugin_start(int socket, ndp_http_answerer *answer, void *user, void **server) {
    http_plugin_server *s = malloc(sizeof *s);
    if (!s)
        return "not enough memory";
    *s = (http_plugin_server){.answer = answer, .user = user};
    s->daemon = MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request, s,
                                 MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                 (size_t)REQUEST_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!s->daemon) {
        free(s);
        return "libmicrohttpd does not start";
    }
    *server = s;
    return NULL;
}

static void plugin_stop(void *server) {
    http_plugin_server *s = server;
    MHD_stop_daemon(s->daemon);
    free(s);
}

extern const ndp_http_api ndp_http_plugin;
__attribute__((visibility("default")))
const ndp_http_api ndp_http_plugin = {.version = NDP_HTTP_API_VERSION, .start = plugin_start, .stop = plugin_stop};
