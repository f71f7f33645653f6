/* Rendering with a built-in chat template. A conversation is: beginning, then for each message `before`, content,
 * `end`, `after`; what the assistant writes of it is trained on. Called by record.c, and by infer/ with a generation
 * prompt. */
#include "base/utf8.h"
#include "text/chat/chat_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- contents ---- */

/* The length of this character if it is white space for Python's str.strip, which templates call; otherwise 0. */
static size_t space_length(const char *text, size_t most) {
    size_t n = ndp_utf8_length((unsigned char)*text);
    uint32_t c = n <= most ? ndp_utf8_decode(text, n) : 'x';
    return ndp_is_space(c) || (c >= 0x1c && c <= 0x1f) ? n : 0;
}

static ndp_span strip(ndp_span s) {
    for (size_t n; s.n && (n = space_length(s.data, s.n)); s.n -= n)
        s.data += n;
    while (s.n) {
        size_t at = ndp_utf8_before(s.data, s.n);
        if (space_length(s.data + at, s.n - at) != s.n - at)
            break;
        s.n = at;
    }
    return s;
}

typedef struct rendering {
    const ndp_chat *chat;
    const ndp_chat_template *t;
    const ndp_message *messages;
    int64_t n, question;
    int64_t first; /* the first turn: 1 after a system prompt that is not a message of its own */
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

/* Whether the system prompt, the first message, is written before the content of this one. */
static bool takes_system(const rendering *r, int64_t i) {
    if (r->first == 0)
        return false;
    return r->t->system_place == NDP_SYSTEM_FIRST ? i == r->first
                                                  : i == r->n - 1 && r->messages[i].role == NDP_ROLE_USER;
}

static void add_content(const rendering *r, int64_t i) {
    const ndp_message *m = &r->messages[i];
    bool answer = m->role == NDP_ROLE_ASSISTANT;
    if (takes_system(r, i)) {
        add_span(r->text, r->messages[0].content);
        ndp_str_add(r->text, "\n\n");
    }
    if (answer && r->t->thinking == NDP_THINK_RECENT)
        add_recent_thoughts(r, i);
    else if (answer && r->t->thinking == NDP_THINK_DROPPED)
        add_span(r->text, behind_last(m->content, END_THINK));
    else if (r->t->strips == NDP_STRIP_ALL || (answer && r->t->strips == NDP_STRIP_ANSWERS))
        add_span(r->text, strip(m->content));
    else
        add_span(r->text, m->content);
}

/* ---- messages ---- */

/* "2024-07-26" as "26 Jul 2024"; any other text as it is. */
static void add_date(ndp_str *text, const char *date) {
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    int year, month, day;
    if (sscanf(date, "%d-%d-%d", &year, &month, &day) == 3 && month >= 1 && month <= 12)
        ndp_str_addf(text, "%02d %s %04d", day, months[month - 1], year);
    else
        ndp_str_add(text, date);
}

void ndp_chat_template_add_preamble(const ndp_chat *c, ndp_str *text) {
    ndp_str_add(text, c->template->preamble ? c->template->preamble : "");
    if (c->template->dated) {
        add_date(text, c->date ? c->date : NDP_CHAT_DATE);
        ndp_str_add(text, "\n\n");
    }
}

/* Where the assistant begins to write in its message, which starts at `start`. */
static size_t answer_begin(const ndp_chat_template *t, size_t start) {
    const char *before = t->before[NDP_ROLE_ASSISTANT];
    size_t n = strlen(t->prompt);
    return start + (strncmp(before, t->prompt, n) == 0 ? n : strlen(before));
}

static ndp_status add_message(const rendering *r, int64_t i, ndp_rendering *out) {
    const ndp_chat_template *t = r->t;
    ndp_role role = r->messages[i].role;
    bool answer = role == NDP_ROLE_ASSISTANT,
         goes_on = t->joins && answer && i > r->first && r->messages[i - 1].role == NDP_ROLE_ASSISTANT;
    size_t begin = goes_on ? r->text->length : answer_begin(t, r->text->length);
    ndp_str_add(r->text, goes_on ? "" : t->before[role]);
    if (i == 0 && role == NDP_ROLE_SYSTEM)
        ndp_chat_template_add_preamble(r->chat, r->text);
    add_content(r, i);
    ndp_str_add(r->text, t->end[role]);
    if (t->eos == NDP_EOS_MESSAGE || (answer && t->eos == NDP_EOS_ANSWER))
        add_span(r->text, r->chat->eos);
    size_t end = r->text->length;
    ndp_str_add(r->text, t->after[role]);
    if (!answer || end == begin)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&out->spans, &out->capacity, out->n + 1, sizeof *out->spans));
    out->spans[out->n++] = (ndp_range){begin, end};
    return NDP_OK;
}

/* ---- conversations ---- */

static bool starts_with_system(const rendering *r) { return r->n > 0 && r->messages[0].role == NDP_ROLE_SYSTEM; }

static void add_beginning(const rendering *r) {
    const ndp_chat_template *t = r->t;
    if (t->begins == NDP_BEGIN_BOS || (t->begins == NDP_BEGIN_AS_TEXTS && r->chat->adds_bos))
        add_span(r->text, r->chat->bos);
    if ((t->system || t->preamble) && !starts_with_system(r)) {
        ndp_str_add(r->text, t->before[NDP_ROLE_SYSTEM]);
        ndp_chat_template_add_preamble(r->chat, r->text);
        if (t->system)
            ndp_str_add(r->text, t->system);
        ndp_str_add(r->text, t->end[NDP_ROLE_SYSTEM]);
        ndp_str_add(r->text, t->after[NDP_ROLE_SYSTEM]);
    }
    for (int64_t i = r->n - 1; t->system_place == NDP_SYSTEM_START && i >= 0; i--)
        if (r->messages[i].role == NDP_ROLE_SYSTEM) {
            add_span(r->text, r->messages[i].content);
            break;
        }
}

static bool is_skipped(const rendering *r, int64_t i) {
    const ndp_message *m = &r->messages[i];
    return m->role == NDP_ROLE_SYSTEM &&
           (r->t->system_place == NDP_SYSTEM_START || (r->t->skips_empty && m->content.n == 0));
}

static ndp_status fail_turn(const rendering *r, int64_t i, const char *reason) {
    return NDP_FAIL(NDP_EFORMAT, "message %lld: the chat template %s refuses it: %s", (long long)i + 1, r->t->name,
                    reason);
}

static ndp_status check_roles(const rendering *r) {
    const ndp_chat_template *t = r->t;
    if (t->no_system && starts_with_system(r))
        return fail_turn(r, 0, t->no_system);
    for (int64_t i = r->first; i < r->n; i++) {
        bool even = (i - r->first) % 2 == 0;
        if (t->alternates && (r->messages[i].role == NDP_ROLE_USER) != even)
            return fail_turn(r, i, t->alternates);
        if (t->late_system && r->messages[i].role == NDP_ROLE_SYSTEM)
            return fail_turn(r, i, t->late_system);
    }
    return NDP_OK;
}

/* A row has no place for tools, what they answer, calls of them, documents, and variables. */
static ndp_status check_tools(const ndp_chat_template *t, const ndp_conversation *c) {
    bool tools = c->tools;
    const char *other = c->documents ? "documents" : c->variables ? "chat_template_kwargs" : NULL;
    if (other)
        return NDP_FAIL(NDP_EFORMAT,
                        "the conversation has '%s', which the built-in chat template %s does not read; "
                        "data.chat_template: jinja renders the tokenizer's own one, with Python",
                        other, t->name);
    for (int64_t i = 0; i < c->n && !tools; i++) {
        struct json_object *o = c->messages[i].json, *calls = o ? json_object_object_get(o, "tool_calls") : NULL;
        tools = c->messages[i].role == NDP_ROLE_TOOL ||
                (json_object_is_type(calls, json_type_array) && json_object_array_length(calls) > 0);
    }
    return tools ? NDP_FAIL(
                       NDP_EFORMAT,
                       "the conversation has tools, which the built-in chat template %s does not; data.chat_template: "
                       "jinja renders the tokenizer's own one, with Python",
                       t->name)
                 : NDP_OK;
}

static ndp_status add_conversation(const rendering *r, bool generation_prompt, ndp_rendering *out) {
    NDP_TRY(check_roles(r));
    add_beginning(r);
    for (int64_t i = r->first; i < r->n; i++)
        if (!is_skipped(r, i))
            NDP_TRY(add_message(r, i, out));
    if (generation_prompt)
        ndp_str_add(r->text, r->t->prompt);
    else if (r->t->eos == NDP_EOS_TEXT)
        add_span(r->text, r->chat->eos);
    return NDP_MEMORY(!r->text->failed, "for a conversation");
}

ndp_status ndp_chat_template_render(const ndp_chat *c, const ndp_conversation *conversation, bool generation_prompt,
                                    ndp_rendering *out) {
    const ndp_chat_template *t = c->template;
    const ndp_message *messages = conversation->messages;
    int64_t n = conversation->n;
    if ((t->eos == NDP_EOS_ANSWER || t->eos == NDP_EOS_MESSAGE) && !c->eos.n)
        return NDP_FAIL(NDP_ENOTSUP,
                        "the chat template %s ends an answer with the tokenizer's end token, and this one has none",
                        t->name);
    NDP_TRY(check_tools(t, conversation));
    rendering r = {c, t, messages, n, last_question(messages, n), 0, &out->text};
    bool merged = t->system_place == NDP_SYSTEM_FIRST || t->system_place == NDP_SYSTEM_LAST;
    r.first = merged && starts_with_system(&r);
    ndp_str_add(&out->text, "");
    return add_conversation(&r, generation_prompt, out);
}
