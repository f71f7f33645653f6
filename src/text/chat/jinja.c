/* Requests to the processes that render, and their answers. A process does one rendering at a time; those that are idle
 * wait in a list. */
#include "text/chat/jinja.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/python.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* jinja.py ends by itself long before, unless something stopped it. */
enum { PATIENCE = 600 };

static const ndp_python_program renderer = {.what = "the program that renders chat templates",
                                            .library = ndp_python_answers,
                                            .source = ndp_python_jinja,
                                            .package = "Jinja",
                                            .install = "apt install python3-jinja2"};

struct ndp_jinja {
    char *what;
    struct json_object *setup; /* the first request to each process, and: */
    ndp_span first;            /* its text, which it owns: json-c writes it into the object, so no thread may do that */
    ndp_hash128 hash;
    char *engine;         /* "jinja 3.1.2"; NULL: no process has started yet */
    pthread_mutex_t lock; /* of the engine and of: */
    ndp_python **idle;
    int64_t n, capacity;
};

static ndp_span request_text(struct json_object *request, int flags) {
    ndp_span text = {NULL, 0};
    text.data = json_object_to_json_string_length(request, JSON_C_TO_STRING_PLAIN | flags, &text.n);
    return text;
}

ndp_status ndp_jinja_create(const char *what, ndp_span text, struct json_object *variables, struct json_object *special,
                            const char *date, ndp_jinja **out) {
    ndp_jinja *j = calloc(1, sizeof *j);
    char *name = strdup(what);
    struct json_object *setup = json_object_new_object();
    json_object_object_add(setup, "template", json_object_new_string_len(text.data, (int)text.n));
    json_object_object_add(setup, "variables", json_object_get(variables));
    if (special)
        json_object_object_add(setup, "special", json_object_get(special));
    json_object_object_add(setup, "date", json_object_new_string(date));
    const ndp_span key = request_text(setup, 0);
    const ndp_hash128 hash = key.data ? ndp_hash128_of(key.data, key.n) : (ndp_hash128){0};
    const ndp_span first = request_text(setup, JSON_C_TO_STRING_NOSLASHESCAPE);
    if (!j || !name || !first.data) {
        free(j);
        free(name);
        json_object_put(setup);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a chat template");
    }
    *j = (ndp_jinja){.what = name, .setup = setup, .first = first, .hash = hash};
    pthread_mutex_init(&j->lock, NULL);
    *out = j;
    return NDP_OK;
}

void ndp_jinja_destroy(ndp_jinja *j) {
    if (!j)
        return;
    for (int64_t i = 0; i < j->n; i++)
        ndp_python_kill(j->idle[i]);
    pthread_mutex_destroy(&j->lock);
    json_object_put(j->setup);
    free(j->idle);
    free(j->engine);
    free(j->what);
    free(j);
}

/* ---- requests ---- */

/* Of a process that did not answer: why it ended, if it did. Frees it. */
static ndp_status fail_process(const ndp_jinja *j, ndp_python *p, ndp_status st) {
    char *before = strdup(ndp_error_message());
    ndp_status end = ndp_python_end(p);
    st = end == NDP_OK ? NDP_FAIL(st, "%s: %s", j->what, before ? before : "no answer")
         : end == NDP_EFORMAT
             ? NDP_FAIL(NDP_EINVAL, "%s takes more than 10 s of CPU time for this conversation", j->what)
             : NDP_FAIL(end, "%s: %s", j->what, ndp_error_message());
    free(before);
    return st;
}

/* Sends a request and reads the answer, an object without `error`. Frees the process if it ended. */
static ndp_status ask(const ndp_jinja *j, ndp_python **p, ndp_span request, struct json_object **out) {
    ndp_str answer = {0};
    ndp_status st = request.data ? ndp_python_ask(*p, request.data, request.n, PATIENCE, &answer)
                                 : NDP_FAIL(NDP_ENOMEM, "not enough memory for a request");
    if (st != NDP_OK) {
        st = fail_process(j, *p, st);
        *p = NULL;
    } else
        st = ndp_json_parse(answer.data, answer.length, renderer.what, out);
    ndp_str_release(&answer);
    NDP_TRY(st);
    const char *error = NULL;
    st = ndp_json_string(*out, renderer.what, "error", &error);
    if (st == NDP_OK && error)
        st = NDP_FAIL(NDP_EFORMAT, "%s: %s", j->what, error);
    if (st != NDP_OK) {
        json_object_put(*out);
        *out = NULL;
    }
    return st;
}

/* ---- processes ---- */

static ndp_status start(ndp_jinja *j, ndp_python **p) {
    struct json_object *answer = NULL;
    const char *engine = NULL;
    ndp_status st = ndp_python_start(&renderer, NULL, p);
    if (st != NDP_OK)
        return NDP_FAIL(st, "%s is not built in: %s", j->what, ndp_error_message());
    st = ask(j, p, j->first, &answer);
    if (st == NDP_OK)
        st = ndp_json_string(answer, renderer.what, "engine", &engine);
    pthread_mutex_lock(&j->lock);
    if (st == NDP_OK && !j->engine && engine)
        j->engine = strdup(engine);
    pthread_mutex_unlock(&j->lock);
    json_object_put(answer);
    if (st != NDP_OK)
        ndp_python_kill(*p);
    return st;
}

static ndp_status take(ndp_jinja *j, ndp_python **p) {
    pthread_mutex_lock(&j->lock);
    *p = j->n ? j->idle[--j->n] : NULL;
    pthread_mutex_unlock(&j->lock);
    return *p ? NDP_OK : start(j, p);
}

static void give_back(ndp_jinja *j, ndp_python *p) {
    if (!p)
        return;
    pthread_mutex_lock(&j->lock);
    bool room = ndp_array_reserve(&j->idle, &j->capacity, j->n + 1, sizeof *j->idle) == NDP_OK;
    if (room)
        j->idle[j->n++] = p;
    pthread_mutex_unlock(&j->lock);
    if (!room)
        ndp_python_kill(p);
}

/* ---- rendering ---- */

static struct json_object *text_of(ndp_span s) { return json_object_new_string_len(s.data ? s.data : "", (int)s.n); }

static struct json_object *message_of(const ndp_message *m) {
    if (m->json)
        return json_object_get(m->json);
    struct json_object *o = json_object_new_object();
    json_object_object_add(o, "role", json_object_new_string(ndp_role_name(m->role)));
    json_object_object_add(o, "content", text_of(m->content));
    if (m->reasoning.data)
        json_object_object_add(o, "reasoning_content", text_of(m->reasoning));
    return o;
}

static struct json_object *request_of(const ndp_conversation *c, bool generation_prompt) {
    struct json_object *request = json_object_new_object(), *messages = json_object_new_array();
    for (int64_t i = 0; i < c->n; i++)
        json_object_array_add(messages, message_of(&c->messages[i]));
    json_object_object_add(request, "messages", messages);
    if (c->tools)
        json_object_object_add(request, "tools", json_object_get(c->tools));
    if (c->documents)
        json_object_object_add(request, "documents", json_object_get(c->documents));
    if (c->variables)
        json_object_object_add(request, "variables", json_object_get(c->variables));
    json_object_object_add(request, "prompt", json_object_new_boolean(generation_prompt));
    return request;
}

static ndp_status fail_answer(const ndp_jinja *j) {
    return NDP_FAIL(NDP_EBUG, "%s: %s gave no text, or wrong places in it", j->what, renderer.what);
}

static ndp_status read_spans(const ndp_jinja *j, struct json_object *spans, ndp_rendering *out) {
    size_t done = 0;
    for (size_t i = 0; i < json_object_array_length(spans); i++) {
        struct json_object *span = json_object_array_get_idx(spans, i);
        if (!json_object_is_type(span, json_type_array) || json_object_array_length(span) != 2)
            return fail_answer(j);
        size_t begin = (size_t)json_object_get_int64(json_object_array_get_idx(span, 0)),
               end = (size_t)json_object_get_int64(json_object_array_get_idx(span, 1));
        if (begin < done || end <= begin || end > out->text.length)
            return fail_answer(j);
        done = end;
        NDP_TRY(ndp_array_reserve(&out->spans, &out->capacity, out->n + 1, sizeof *out->spans));
        out->spans[out->n++] = (ndp_range){begin, end};
    }
    return NDP_OK;
}

static ndp_status read_answer(const ndp_jinja *j, struct json_object *answer, ndp_rendering *out) {
    struct json_object *text = json_object_object_get(answer, "text"), *spans = json_object_object_get(answer, "spans");
    const char *unsure = NULL;
    if (!json_object_is_type(text, json_type_string))
        return fail_answer(j);
    ndp_str_add(&out->text, "");
    ndp_str_add_bytes(&out->text, json_object_get_string(text), (size_t)json_object_get_string_len(text));
    NDP_TRY(ndp_json_string(answer, renderer.what, "unsure", &unsure));
    if (unsure)
        ndp_str_add(&out->unsure, unsure);
    NDP_CHECK_MEMORY(!out->text.failed && !out->unsure.failed, "for a conversation");
    return json_object_is_type(spans, json_type_array) ? read_spans(j, spans, out) : NDP_OK;
}

ndp_status ndp_jinja_render(ndp_jinja *j, const ndp_conversation *c, bool generation_prompt, ndp_rendering *out) {
    ndp_python *p = NULL;
    struct json_object *request = NULL, *answer = NULL;
    NDP_TRY(take(j, &p));
    request = request_of(c, generation_prompt);
    ndp_status st = ask(j, &p, request_text(request, JSON_C_TO_STRING_NOSLASHESCAPE), &answer);
    if (st == NDP_OK)
        st = read_answer(j, answer, out);
    give_back(j, p);
    json_object_put(request);
    json_object_put(answer);
    return st;
}

ndp_span ndp_jinja_template(const ndp_jinja *j) {
    struct json_object *text = json_object_object_get(j->setup, "template");
    return (ndp_span){json_object_get_string(text), (size_t)json_object_get_string_len(text)};
}

/* ---- keys ---- */

ndp_hash128 ndp_jinja_hash(const ndp_jinja *j) { return j->hash; }

ndp_status ndp_jinja_add_key(ndp_jinja *j, ndp_str *out) {
    ndp_python *p;
    NDP_TRY(take(j, &p));
    give_back(j, p);
    const ndp_hash128 h[] = {j->hash, ndp_hash128_of(ndp_python_answers, strlen(ndp_python_answers)),
                             ndp_hash128_of(ndp_python_jinja, strlen(ndp_python_jinja))};
    ndp_str_add(out, j->engine);
    for (int i = 0; i < NDP_COUNT(h); i++)
        ndp_str_addf(out, " %016llx%016llx", (unsigned long long)h[i].high, (unsigned long long)h[i].low);
    return NDP_OK;
}

void ndp_jinja_describe(ndp_jinja *j, ndp_str *out) {
    const char *text = ndp_jinja_template(j).data;
    ndp_str_addf(out, "%s, rendered by %s", j->what, j->engine ? j->engine : "jinja");
    if (strstr(text, "strftime_now"))
        ndp_str_addf(out, ", which writes %s as today",
                     json_object_get_string(json_object_object_get(j->setup, "date")));
}
