/* The built-in chat templates, and rendering with them. A conversation is: beginning, then for each message `before`,
 * content, `end`, `after`; the content and `end` of an assistant's message are learned. Called by record.c, and by
 * infer/ with a generation prompt. */
#include "data/corpus/chat.h"

#include "base/json.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* How a chain of thought in <think> tags in an assistant's content is rendered. */
typedef enum thinking {
    THINK_AS_IS,
    THINK_DROPPED, /* everything up to the last </think> is dropped */
    THINK_RECENT   /* normalized in turns after the last question, dropped before */
} thinking;

typedef enum beginning {
    BEGIN_EMPTY,
    BEGIN_BOS,     /* the tokenizer's begin token */
    BEGIN_AS_TEXTS /* the same, if the tokenizer puts it before every text */
} beginning;

typedef struct ndp_chat_template {
    const char *name;
    uint64_t hash; /* XXH3-64 of the template text in the tokenizer's folder; 0: chosen by name only */
    beginning begins;
    const char *system; /* default system prompt; NULL: none */
    /* A message is before, content, end, after; the assistant generates content and end. */
    const char *before[NDP_ROLES], *end[NDP_ROLES], *after[NDP_ROLES];
    const char *prompt; /* generation prompt: the assistant continues here */
    bool eos;           /* the tokenizer's end token ends the assistant's message */
    bool system_first;  /* the last system prompt is moved to the front */
    thinking thinking;
} chat_template;

/* "<|im_start|>user\n" ... "<|im_end|>\n" */
#define CHATML                                                                                                         \
    .before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},                               \
    .end = {"<|im_end|>", "<|im_end|>", "<|im_end|>"}, .after = {"\n", "\n", "\n"},                                    \
    .prompt = "<|im_start|>assistant\n"

static const chat_template templates[] = {
    {.name = "chatml", CHATML},
    {.name = "qwen2.5",
     .hash = 0x2469c9508f79506e,
     .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
     CHATML},
    {.name = "qwen3", .hash = 0x0283f874ff58d644, CHATML, .thinking = THINK_RECENT},
    {.name = "deepseek-r1",
     .hash = 0xf47cfd234bfcd76a,
     .begins = BEGIN_BOS,
     .before = {"", "<｜User｜>", "<｜Assistant｜>"},
     .end = {"", "", "<｜end▁of▁sentence｜>"},
     .after = {"", "", ""},
     .prompt = "<｜Assistant｜><think>\n",
     .system_first = true,
     .thinking = THINK_DROPPED},
    /* For base models: the texts, separated by line breaks. */
    {.name = "plain",
     .begins = BEGIN_AS_TEXTS,
     .before = {"", "", ""},
     .end = {"", "", ""},
     .after = {"\n", "\n", ""},
     .prompt = "",
     .eos = true},
};

bool ndp_role_of(const char *name, ndp_role *out) {
    static const struct {
        const char *name;
        ndp_role role;
    } roles[] = {{"system", NDP_ROLE_SYSTEM},
                 {"user", NDP_ROLE_USER},
                 {"human", NDP_ROLE_USER},
                 {"assistant", NDP_ROLE_ASSISTANT},
                 {"gpt", NDP_ROLE_ASSISTANT}};
    for (int i = 0; i < NDP_COUNT(roles); i++)
        if (!strcmp(name, roles[i].name)) {
            *out = roles[i].role;
            return true;
        }
    return false;
}

/* ---- choosing ---- */

static void add_names(ndp_str *out) {
    for (int i = 0; i < NDP_COUNT(templates); i++)
        ndp_str_addf(out, "%s%s", i ? ", " : "", templates[i].name);
}

static ndp_status by_name(const char *name, const chat_template **out) {
    for (int i = 0; i < NDP_COUNT(templates); i++)
        if (!strcmp(name, templates[i].name)) {
            *out = &templates[i];
            return NDP_OK;
        }
    ndp_str names = {0};
    add_names(&names);
    ndp_status st = NDP_FAIL(NDP_EINVAL, "data.chat_template: there is no '%s'; the built-in templates are %s", name,
                             names.data ? names.data : "");
    ndp_str_release(&names);
    return st;
}

/* Ignores white space at the end of a template: editors add and remove it. */
static const chat_template *by_text(const char *text, size_t n) {
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == '\t'))
        n--;
    uint64_t hash = XXH3_64bits(text, n);
    for (int i = 0; i < NDP_COUNT(templates); i++)
        if (templates[i].hash && templates[i].hash == hash)
            return &templates[i];
    return NULL;
}

/* chat_template of a tokenizer_config.json: a text, or a list of {name, template} with a "default". */
static struct json_object *template_of_config(struct json_object *root) {
    struct json_object *t = json_object_object_get(root, "chat_template");
    if (!json_object_is_type(t, json_type_array))
        return json_object_is_type(t, json_type_string) ? t : NULL;
    for (size_t i = 0; i < json_object_array_length(t); i++) {
        struct json_object *o = json_object_array_get_idx(t, i), *text = json_object_object_get(o, "template");
        const char *name = ndp_json_text(json_object_object_get(o, "name"));
        if (name && !strcmp(name, "default") && json_object_is_type(text, json_type_string))
            return text;
    }
    return NULL;
}

/* Reads the tokenizer's template into `text`, which stays empty if there is none. */
static ndp_status read_text(const char *folder, ndp_str *text) {
    char *jinja = ndp_format("%s/chat_template.jinja", folder),
         *config = ndp_format("%s/tokenizer_config.json", folder);
    ndp_status st = jinja && config ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a chat template");
    struct json_object *root = NULL;
    char *contents = NULL;
    size_t size;
    if (st == NDP_OK && ndp_path_exists(jinja)) {
        st = ndp_file_read_as(NDP_FILE_TEMPLATE, jinja, &contents, &size);
        if (st == NDP_OK)
            ndp_str_add_bytes(text, contents, size);
    } else if (st == NDP_OK && ndp_path_exists(config)) {
        st = ndp_json_read(config, &root);
        struct json_object *found = st == NDP_OK ? template_of_config(root) : NULL;
        if (found)
            ndp_str_add_bytes(text, json_object_get_string(found), (size_t)json_object_get_string_len(found));
    }
    json_object_put(root);
    free(contents);
    free(jinja);
    free(config);
    return st;
}

/* Chooses by the tokenizer's own template, or records why that is impossible. */
static ndp_status choose_own(ndp_chat *c, const char *source) {
    ndp_str text = {0}, why = {0};
    char *folder = ndp_tokenizer_folder(source);
    ndp_status st = folder ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a chat template");
    if (st == NDP_OK && strcmp(source, "bytes"))
        st = read_text(folder, &text);
    if (st == NDP_OK && text.length)
        c->template = by_text(text.data, text.length);
    if (st == NDP_OK && !c->template) {
        ndp_str_addf(&why, "the tokenizer %s has %s; data.chat_template chooses a built-in one: ", source,
                     text.length ? "a chat template that is not built in" : "no chat template");
        add_names(&why);
        c->why = ndp_str_detach(&why);
    }
    ndp_str_release(&text);
    free(folder);
    return st;
}

ndp_status ndp_chat_init(ndp_chat *c, const ndp_tokenizer *t, const char *source, const char *name) {
    ndp_chat chat = {.bos = ndp_tokenizer_token(t, ndp_tokenizer_bos(t)),
                     .eos = ndp_tokenizer_token(t, ndp_tokenizer_eos(t))};
    ndp_ids empty = {0};
    ndp_status st = ndp_tokenizer_encode(t, "", 0, true, &empty);
    chat.adds_bos = st == NDP_OK && empty.n && empty.items[0] == ndp_tokenizer_bos(t);
    ndp_ids_release(&empty);
    NDP_TRY(st);
    NDP_TRY(name ? by_name(name, &chat.template) : choose_own(&chat, source));
    *c = chat;
    return NDP_OK;
}

void ndp_chat_release(ndp_chat *c) {
    free(c->why);
    *c = (ndp_chat){0};
}

const char *ndp_chat_name(const ndp_chat *c) { return c->template ? c->template->name : "none"; }

/* ---- chains of thought ---- */

static const char THINK[] = "<think>", END_THINK[] = "</think>";

static ndp_span strip_lines(ndp_span s, bool left, bool right) {
    for (; left && s.n && s.data[0] == '\n'; s.data++, s.n--)
        ;
    for (; right && s.n && s.data[s.n - 1] == '\n'; s.n--)
        ;
    return s;
}

/* The text before the first `tag`, or after the last; the whole text if there is no tag. */
static ndp_span before_first(ndp_span s, const char *tag) {
    const char *hit = s.n ? memmem(s.data, s.n, tag, strlen(tag)) : NULL;
    return hit ? (ndp_span){s.data, (size_t)(hit - s.data)} : s;
}

static ndp_span behind_last(ndp_span s, const char *tag) {
    const char *hit;
    while (s.n && (hit = memmem(s.data, s.n, tag, strlen(tag)))) {
        hit += strlen(tag);
        s = (ndp_span){hit, s.n - (size_t)(hit - s.data)};
    }
    return s;
}

static bool holds(ndp_span s, const char *tag) { return s.n && memmem(s.data, s.n, tag, strlen(tag)); }

static bool is_tool_response(ndp_span s) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    size_t a = sizeof open - 1, b = sizeof close - 1;
    return s.n >= b && s.n >= a && !memcmp(s.data, open, a) && !memcmp(s.data + s.n - b, close, b);
}

/* The last message that is a question, or the last of all if there is none. */
static int64_t last_question(const ndp_message *messages, int64_t n) {
    for (int64_t i = n - 1; i >= 0; i--)
        if (messages[i].role == NDP_ROLE_USER && !is_tool_response(messages[i].content))
            return i;
    return n - 1;
}

/* ---- rendering ---- */

typedef struct rendering {
    const ndp_chat *chat;
    const ndp_message *messages;
    int64_t n, question;
    ndp_str *text;
} rendering;

static void add_span(ndp_str *text, ndp_span s) {
    if (s.n)
        ndp_str_add_bytes(text, s.data, s.n);
}

static void add_recent_thoughts(const rendering *r, int64_t i) {
    const ndp_message *m = &r->messages[i];
    ndp_span content = m->content, thoughts = {"", 0};
    if (m->reasoning.data)
        thoughts = m->reasoning;
    else if (holds(content, END_THINK)) {
        thoughts = strip_lines(before_first(content, END_THINK), false, true);
        thoughts = strip_lines(behind_last(thoughts, THINK), true, false);
        content = strip_lines(behind_last(content, END_THINK), true, false);
    }
    if (i > r->question && (i == r->n - 1 || thoughts.n)) {
        ndp_str_add(r->text, "<think>\n");
        add_span(r->text, strip_lines(thoughts, true, true));
        ndp_str_add(r->text, "\n</think>\n\n");
        content = strip_lines(content, true, false);
    }
    add_span(r->text, content);
}

static void add_content(const rendering *r, int64_t i) {
    const ndp_message *m = &r->messages[i];
    thinking how = m->role == NDP_ROLE_ASSISTANT ? r->chat->template->thinking : THINK_AS_IS;
    if (how == THINK_RECENT)
        add_recent_thoughts(r, i);
    else
        add_span(r->text, how == THINK_DROPPED ? behind_last(m->content, END_THINK) : m->content);
}

static ndp_status add_message(const rendering *r, int64_t i, ndp_rendering *out) {
    const chat_template *t = r->chat->template;
    ndp_role role = r->messages[i].role;
    ndp_str_add(r->text, t->before[role]);
    size_t begin = r->text->length;
    add_content(r, i);
    ndp_str_add(r->text, t->end[role]);
    if (role == NDP_ROLE_ASSISTANT && t->eos)
        add_span(r->text, r->chat->eos);
    size_t end = r->text->length;
    ndp_str_add(r->text, t->after[role]);
    if (role != NDP_ROLE_ASSISTANT || end == begin)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&out->spans, &out->capacity, out->n + 1, sizeof *out->spans));
    out->spans[out->n++] = (ndp_range){begin, end};
    return NDP_OK;
}

static void add_beginning(const rendering *r) {
    const chat_template *t = r->chat->template;
    if (t->begins == BEGIN_BOS || (t->begins == BEGIN_AS_TEXTS && r->chat->adds_bos))
        add_span(r->text, r->chat->bos);
    if (t->system && (r->n == 0 || r->messages[0].role != NDP_ROLE_SYSTEM)) {
        ndp_str_add(r->text, t->before[NDP_ROLE_SYSTEM]);
        ndp_str_add(r->text, t->system);
        ndp_str_add(r->text, t->end[NDP_ROLE_SYSTEM]);
        ndp_str_add(r->text, t->after[NDP_ROLE_SYSTEM]);
    }
    for (int64_t i = r->n - 1; t->system_first && i >= 0; i--)
        if (r->messages[i].role == NDP_ROLE_SYSTEM) {
            add_span(r->text, r->messages[i].content);
            break;
        }
}

ndp_status ndp_chat_render(const ndp_chat *c, const ndp_message *messages, int64_t n, bool generation_prompt,
                           ndp_rendering *out) {
    const chat_template *t = c->template;
    if (!t)
        return NDP_FAIL(NDP_ENOTSUP, "%s", c->why ? c->why : "the tokenizer has no chat template");
    if (t->eos && !c->eos.n)
        return NDP_FAIL(NDP_ENOTSUP,
                        "the chat template %s ends an answer with the tokenizer's end token, and this one has none",
                        t->name);
    rendering r = {c, messages, n, last_question(messages, n), &out->text};
    out->text.length = 0;
    out->n = 0;
    ndp_str_add(&out->text, "");
    add_beginning(&r);
    for (int64_t i = 0; i < n; i++)
        if (!t->system_first || messages[i].role != NDP_ROLE_SYSTEM)
            NDP_TRY(add_message(&r, i, out));
    if (generation_prompt)
        ndp_str_add(&out->text, t->prompt);
    return out->text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for a conversation") : NDP_OK;
}

void ndp_rendering_release(ndp_rendering *r) {
    ndp_str_release(&r->text);
    free(r->spans);
    *r = (ndp_rendering){0};
}
