/* Open MPI's hostfile, as its version 4.1 reads it: words and "=", with or without spaces between them. Relative hosts
 * (+n1) and hosts to leave out (^node-1), which only have a meaning inside an allocation, are refused. */
#include "launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAME = 255 };

/* ---- the list ---- */

void ndp_host_list_release(ndp_host_list *list) {
    for (int i = 0; i < list->n; i++) {
        free(list->items[i].name);
        free(list->items[i].user);
    }
    free(list->items);
    *list = (ndp_host_list){0};
}

/* "FILE:LINE", "VARIABLE". */
typedef struct source_text {
    char text[NDP_PATH + 16];
} source_text;

static source_text text_of(const ndp_host_source *at) {
    source_text t;
    snprintf(t.text, sizeof t.text, at->line ? "%s:%d" : "%s", at->what, at->line);
    return t;
}

static int shown(ndp_span s) { return (int)(s.n > 80 ? 80 : s.n); }

static ndp_status check_name(const ndp_host_source *at, const char *whose, ndp_span name) {
    bool ok = true;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        ok &= letter || (c && strchr("-_.:%", c));
    }
    NDP_CHECK(
        ok,
        "%s: '%.*s' is not the name of a %s, which has letters, digits and - _ . : %% alone; a line of a hostfile is "
        "[USER@]NAME [slots=N]",
        text_of(at).text, shown(name), name.data, whose);
    NDP_CHECK(name.n >= 1 && name.n <= MOST_NAME, "%s: a %s's name of %zu characters; 1 to %d are possible",
              text_of(at).text, whose, name.n, MOST_NAME);
    NDP_CHECK(*name.data != '-', "%s: '%.*s' is not the name of a %s: ssh would take it for an option",
              text_of(at).text, shown(name), name.data, whose);
    return NDP_OK;
}

ndp_status ndp_host_list_add(ndp_host_list *list, const ndp_host_source *at, ndp_span name, ndp_span user, int slots,
                             bool stated) {
    NDP_TRY(check_name(at, "host", name));
    if (user.n)
        NDP_TRY(check_name(at, "user", user));
    bool full = (list->n & (list->n - 1)) == 0; /* room for the next power of two */
    ndp_host *items = full ? realloc(list->items, (list->n ? (size_t)list->n * 2 : 1) * sizeof *items) : list->items;
    if (items) {
        list->items = items;
        items[list->n] = (ndp_host){.name = strndup(name.data, name.n),
                                    .user = user.n ? strndup(user.data, user.n) : NULL,
                                    .slots = slots,
                                    .stated = stated,
                                    .line = at->line};
        list->n++;
    }
    return NDP_MEMORY(items && items[list->n - 1].name && (items[list->n - 1].user || !user.n), "for a list of hosts");
}

static int by_name(const void *a, const void *b) {
    const ndp_host *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);
    return order ? order : *x < *y ? -1 : *x > *y;
}

/* Adds `more` to the first item of its name. */
static void add_slots(ndp_host *first, ndp_host *more) {
    first->slots = first->slots > NDP_MOST_SLOTS - more->slots ? NDP_MOST_SLOTS : first->slots + more->slots;
    first->stated |= more->stated;
    if (!first->user) {
        first->user = more->user;
        more->user = NULL;
    }
    free(more->user);
    free(more->name);
    more->name = NULL;
}

static ndp_status merge(ndp_host_list *list) {
    ndp_host **sorted = malloc(((size_t)list->n + 1) * sizeof *sorted);
    NDP_CHECK_MEMORY(sorted, "for a list of hosts");
    for (int i = 0; i < list->n; i++)
        sorted[i] = &list->items[i];
    qsort(sorted, (size_t)list->n, sizeof *sorted, by_name);
    for (int i = 1, first = 0; i < list->n; i++)
        if (strcmp(sorted[i]->name, sorted[first]->name) == 0)
            add_slots(sorted[first], sorted[i]);
        else
            first = i;
    free(sorted);
    int n = 0;
    for (int i = 0; i < list->n; i++)
        if (list->items[i].name)
            list->items[n++] = list->items[i];
    list->n = n;
    return n <= NDP_MOST_HOSTS ? NDP_OK : NDP_FAIL(NDP_EINVAL, "%d hosts; at most %d are supported", n, NDP_MOST_HOSTS);
}

ndp_status ndp_host_list_end(ndp_status st, ndp_host_list *list, ndp_host_list *out) {
    if (st == NDP_OK)
        st = merge(list);
    if (st == NDP_OK)
        *out = *list;
    else
        ndp_host_list_release(list);
    return st;
}

const ndp_host *ndp_host_find(const ndp_host_list *list, const char *name) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

/* ---- words ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

/* The next word of the line, "=" among them; empty at the end. */
static ndp_span next_word(ndp_span *line) {
    while (line->n && is_blank(*line->data))
        line->data++, line->n--;
    ndp_span word = {line->data, line->n && *line->data == '='};
    while (!(word.n && *word.data == '=') && word.n < line->n && !is_blank(word.data[word.n]) &&
           word.data[word.n] != '=')
        word.n++;
    line->data += word.n, line->n -= word.n;
    return word;
}

static bool is_word(ndp_span word, const char *const *names) {
    for (; *names; names++)
        if (strlen(*names) == word.n && memcmp(*names, word.data, word.n) == 0)
            return true;
    return false;
}

/* -1: not a number from 0 to NDP_MOST_SLOTS. */
static int number(ndp_span word) {
    int n = 0;
    for (size_t i = 0; i < word.n && n >= 0; i++)
        n = word.data[i] < '0' || word.data[i] > '9' || n > NDP_MOST_SLOTS ? -1 : n * 10 + (word.data[i] - '0');
    return word.n && n <= NDP_MOST_SLOTS ? n : -1;
}

/* ---- a line ---- */

/* NAME:RANKS is how some other launchers have it; Open MPI would take it for a name. */
static ndp_status check_colon(const ndp_host_source *at, ndp_span name) {
    const char *colon = memchr(name.data, ':', name.n), *end = name.data + name.n;
    NDP_CHECK(!colon || memchr(colon + 1, ':', (size_t)(end - colon - 1)),
              "%s:%d: '%.*s': a hostfile has the number of ranks as a word, '%.*s slots=%.*s'", at->what, at->line,
              (int)name.n, name.data, (int)(colon - name.data), name.data, (int)(end - colon - 1), colon + 1);
    return NDP_OK;
}

typedef struct host_words {
    ndp_span name, user;
    int slots, most; /* -1: not stated */
} host_words;

/* KEY = VALUE, of which the key has been read. */
static ndp_status read_value(const ndp_host_source *at, ndp_span key, ndp_span *line, host_words *out) {
    static const char *const slots[] = {"slots", "count", "cpu", NULL}, *const most[] = {"max_slots", "max-slots",
                                                                                         "slots_max", "slots-max",
                                                                                         "max_count", "max-count",
                                                                                         "count_max", "count-max",
                                                                                         "max_cpu",   "max-cpu",
                                                                                         "cpu_max",   "cpu-max",
                                                                                         NULL},
                             *const user[] = {"username", "user-name", "user_name", NULL};
    bool is_slots = is_word(key, slots), is_most = is_word(key, most);
    NDP_CHECK(is_slots || is_most || is_word(key, user),
              "%s:%d: '%.*s' is not known; a line is [USER@]NAME [slots=N] [max_slots=N]", at->what, at->line,
              shown(key), key.data);
    ndp_span equal = next_word(line), value = next_word(line);
    int n = number(value);
    NDP_CHECK(equal.n && *equal.data == '=' && value.n && (n >= 0 || !(is_slots || is_most)),
              "%s:%d: '%.*s' needs a %s behind '='", at->what, at->line, (int)key.n, key.data,
              is_slots || is_most ? "number from 0 to 16383" : "name");
    if (is_slots)
        out->slots = n;
    else if (is_most)
        out->most = n;
    else
        NDP_TRY(check_name(at, "user", out->user = value));
    return NDP_OK;
}

static ndp_status read_line(const ndp_host_source *at, ndp_span line, ndp_host_list *out) {
    host_words w = {.name = next_word(&line), .slots = -1, .most = -1};
    if (!w.name.n)
        return NDP_OK;
    const char *sign = memchr(w.name.data, '@', w.name.n);
    if (sign) {
        w.user = (ndp_span){w.name.data, (size_t)(sign - w.name.data)};
        w.name = (ndp_span){sign + 1, w.name.n - w.user.n - 1};
    }
    NDP_TRY(check_colon(at, w.name));
    if (sign)
        NDP_TRY(check_name(at, "user", w.user));
    for (ndp_span key; (key = next_word(&line)).n;)
        NDP_TRY(read_value(at, key, &line, &w));
    int slots = w.slots >= 0 ? w.slots : w.most;
    NDP_CHECK(w.most < 0 || slots <= w.most, "%s:%d: %d slots, more than max_slots, %d", at->what, at->line, slots,
              w.most);
    return ndp_host_list_add(out, at, w.name, w.user, slots >= 0 ? slots : 1, slots >= 0);
}

/* ---- the file ---- */

ndp_status ndp_hosts_parse(const char *text, size_t size, const char *what, ndp_host_list *out) {
    ndp_host_list list = {0};
    ndp_status st = NDP_OK;
    ndp_host_source at = {what, 0};
    for (const char *p = text, *end = text + size; p < end && st == NDP_OK;) {
        const char *next = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((next ? next : end) - p);
        const char *comment = memchr(p, '#', n);
        at.line++;
        st = read_line(&at, (ndp_span){p, comment ? (size_t)(comment - p) : n}, &list);
        p = next ? next + 1 : end;
    }
    return ndp_host_list_end(st, &list, out);
}

ndp_status ndp_hosts_read(const char *hostfile, ndp_host_list *out) {
    return NDP_FILE_PARSE(NDP_FILE_HOSTS, hostfile, text, size, ndp_hosts_parse(text, size, hostfile, out));
}

ndp_status ndp_hosts_check(const char *hostfile) {
    ndp_host_list list;
    NDP_TRY(ndp_launch_hosts(hostfile, &list));
    ndp_host_list_release(&list);
    return NDP_OK;
}
