/* ndp_watch_serve. A request is answered on the server's thread, which alone reads the run from then on: it looks at
 * the folder, at most twice a second, and makes the page anew if there was something new. So nothing is locked, and
 * nothing is read between requests. */
#include "report/serve.h"

#include "base/clock.h"
#include "base/plugin.h"
#include "report/open_metrics.h"
#include "report/screen.h"
#include "report/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ndp_http_server {
    ndp_watch *watch;
    ndp_http_address address;
    const ndp_http_api *api; /* NULL: it does not listen */
    void *daemon;
    ndp_str body;
    char policy[256];
    double looked_at; /* 0: never */
};

/* ---- addresses ---- */

static bool is_loopback(const struct sockaddr_storage *at) {
    const struct sockaddr_in *v4 = (const void *)at;
    const struct sockaddr_in6 *v6 = (const void *)at;
    return at->ss_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
                                    : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
}

/* -1: it is no port. */
static int port_of(const char *text) {
    char *end;
    long port = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
    return port >= 0 && port <= 65535 && !*end ? (int)port : -1;
}

static bool set_address(ndp_http_address *a, int port) {
    struct sockaddr_in *v4 = (void *)&a->at;
    struct sockaddr_in6 *v6 = (void *)&a->at;
    char bare[sizeof a->host] = "";
    size_t n = strlen(a->host);
    const char *number = strcmp(a->host, "localhost") == 0 ? "127.0.0.1" : a->host;
    if (inet_pton(AF_INET, number, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        a->size = sizeof *v4;
        return true;
    }
    if (n < 3 || a->host[0] != '[' || a->host[n - 1] != ']')
        return false;
    memcpy(bare, a->host + 1, n - 2);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    a->size = sizeof *v6;
    return inet_pton(AF_INET6, bare, &v6->sin6_addr) == 1;
}

ndp_status ndp_http_address_parse(const char *text, bool any, ndp_http_address *out) {
    ndp_http_address a = {.host = "127.0.0.1", .any = any};
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    if (colon && colon != text && (size_t)(colon - text) < sizeof a.host)
        snprintf(a.host, sizeof a.host, "%.*s", (int)(colon - text), text);
    NDP_CHECK(
        port_of(port) >= 0 && (!colon || (size_t)(colon - text) < sizeof a.host) && set_address(&a, port_of(port)),
        "'%.80s' is no address to serve on; give 127.0.0.1:PORT, [::1]:PORT or a port, 0 for any that is free", text);
    NDP_CHECK(
        any || is_loopback(&a.at),
        "%s is not a loopback address: everyone who reaches it could read the job, its paths and its samples; give "
        "127.0.0.1:PORT, and forward it with ssh -L PORT:127.0.0.1:PORT, or add --http-any",
        a.host);
    *out = a;
    return NDP_OK;
}

/* Whether the header Host of a request names the address, or localhost. A page of another site that has made its own
 * name point to 127.0.0.1 (DNS rebinding) does not. */
static bool host_is_ours(const ndp_http_address *a, const char *host) {
    const char *const names[] = {a->host, "localhost", "127.0.0.1", "[::1]"};
    if (a->any)
        return true;
    for (int i = 0; host && i < NDP_COUNT(names); i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && (!host[n] || (host[n] == ':' && port_of(host + n + 1) >= 0)))
            return true;
    }
    return false;
}

/* ---- answers ---- */

static ndp_status look(struct ndp_http_server *s) {
    enum { A_SECOND = 2 };
    if (s->looked_at > 0 && ndp_now() - s->looked_at < 1.0 / A_SECOND)
        return NDP_OK;
    NDP_TRY(ndp_watch_look(s->watch));
    s->looked_at = ndp_now();
    return NDP_OK;
}

static ndp_status add_page(struct ndp_http_server *s) {
    ndp_page p = {.runs = &s->watch->run, .names = &s->watch->name, .n = 1};
    ndp_status st = ndp_page_write(&p);
    ndp_str_release(&s->body);
    s->body = p.out;
    return st;
}

static void say(struct ndp_http_server *s, ndp_http_answer *out, int status, const char *text) {
    s->body.length = 0;
    s->body.failed = false;
    ndp_str_addf(&s->body, "%s\n", text);
    out->status = status;
    out->headers[0].value = "text/plain; charset=utf-8";
}

/* The page loads itself again while the run goes on; that needs no script. */
static void answer_page(struct ndp_http_server *s, ndp_http_answer *out) {
    ndp_status st = look(s);
    if (st == NDP_OK)
        st = add_page(s);
    if (st != NDP_OK) {
        say(s, out, 503, ndp_error_message());
        return;
    }
    out->headers[0].value = "text/html; charset=utf-8";
    if (ndp_run_is_live(&s->watch->run)) {
        out->headers[5].name = "Refresh";
        out->headers[5].value = "10";
    }
}

static void answer_metrics(struct ndp_http_server *s, ndp_http_answer *out) {
    if (look(s) != NDP_OK) {
        say(s, out, 503, ndp_error_message());
        return;
    }
    s->body.length = 0;
    s->body.failed = false;
    ndp_open_metrics_add(&s->body, &s->watch->run, s->watch->name);
    out->headers[0].value = NDP_OPEN_METRICS_TYPE;
}

void ndp_serve_answer(void *server, const char *method, const char *path, const char *host, ndp_http_answer *out) {
    struct ndp_http_server *s = server;
    *out = (ndp_http_answer){.status = 200,
                             .headers = {{"Content-Type", "text/plain"},
                                         {"X-Content-Type-Options", "nosniff"},
                                         {"Cache-Control", "no-store"},
                                         {"Referrer-Policy", "no-referrer"},
                                         {"Content-Security-Policy", s->policy}}};
    if (!host_is_ours(&s->address, host))
        say(s, out, 403, "This server answers requests to its own address alone; another name needs --http-any.");
    else if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        say(s, out, 405, "GET and HEAD alone.");
        out->headers[5].name = "Allow";
        out->headers[5].value = "GET, HEAD";
    } else if (strcmp(path, "/") == 0)
        answer_page(s, out);
    else if (strcmp(path, "/metrics") == 0)
        answer_metrics(s, out);
    else
        say(s, out, 404, "There are / and /metrics alone.");
    if (s->body.failed || !s->body.data) {
        ndp_str_release(&s->body);
        out->status = 503;
    }
    out->body = s->body.data ? s->body.data : "";
    out->size = s->body.length;
}

/* ---- listening ---- */

struct ndp_http_server *ndp_serve_create(ndp_watch *w, const ndp_http_address *a) {
    struct ndp_http_server *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->watch = w;
    s->address = *a;
    snprintf(s->policy, sizeof s->policy,
             "default-src 'none'; style-src 'sha256-%s'; img-src data:; connect-src 'self'; base-uri 'none'; "
             "form-action 'none'; frame-ancestors 'none'",
             ndp_page_style_sha256);
    return s;
}

void ndp_serve_end(struct ndp_http_server *s) {
    if (!s)
        return;
    if (s->api)
        s->api->stop(s->daemon);
    ndp_str_release(&s->body);
    free(s);
}

static ndp_status load_plugin(const ndp_http_api **out) {
    static const ndp_plugin plugin = {.file = "ndp_http.so",
                                      .symbol = NDP_HTTP_API_SYMBOL,
                                      .version = NDP_HTTP_API_VERSION,
                                      .what = "HTTP server",
                                      .remedy = "install libmicrohttpd (Debian: libmicrohttpd12 to run, "
                                                "libmicrohttpd-dev and `make` to build), or set NDP_PLUGIN_DIR to the "
                                                "folder of ndp_http.so; `ndparallel report` writes the page to a file"};
    const void *table;
    NDP_TRY(ndp_plugin_load(&plugin, &table));
    *out = table;
    return NDP_OK;
}

/* -1, with errno: it cannot. */
static int listen_on(const ndp_http_address *a) {
    enum { WAITING = 128 };
    int fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&a->at, a->size) == 0 && listen(fd, WAITING) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Port and family lie at the same places in both kinds of address. */
static int port_at(const struct sockaddr_storage *at) {
    return ntohs(at->ss_family == AF_INET ? ((const struct sockaddr_in *)(const void *)at)->sin_port
                                          : ((const struct sockaddr_in6 *)(const void *)at)->sin6_port);
}

static ndp_status start(struct ndp_http_server *s, const ndp_http_api *api, int *port) {
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    int fd = listen_on(&s->address);
    NDP_CHECK(fd >= 0, "cannot serve on %s:%d: %s; give another port, or 0 for any that is free", s->address.host,
              port_at(&s->address.at), strerror(errno));
    const char *wrong = getsockname(fd, (struct sockaddr *)&bound, &size) != 0
                            ? strerror(errno)
                            : api->start(fd, ndp_serve_answer, s, &s->daemon);
    if (wrong) {
        close(fd);
        return NDP_FAIL(NDP_EIO, "cannot serve on %s: %s", s->address.host, wrong);
    }
    s->api = api;
    *port = port_at(&bound);
    return NDP_OK;
}

ndp_status ndp_watch_serve(ndp_watch *w, const char *address, bool any, char **url) {
    NDP_NOT_NULL(w, address, url);
    ndp_http_address a;
    const ndp_http_api *api;
    int port = 0;
    NDP_TRY(ndp_http_address_parse(address, any, &a));
    NDP_CHECK(!w->server, "this run is served already");
    NDP_TRY(load_plugin(&api));
    struct ndp_http_server *s = ndp_serve_create(w, &a);
    ndp_status st = s ? start(s, api, &port) : NDP_FAIL(NDP_ENOMEM, "not enough memory to serve a run");
    char *text = st == NDP_OK ? ndp_format("http://%s:%d/", a.host, port) : NULL;
    if (st == NDP_OK && !text)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory to serve a run");
    if (st != NDP_OK) {
        ndp_serve_end(s);
        return st;
    }
    w->server = s;
    *url = text;
    return NDP_OK;
}
