/* The Jinja text of a built-in chat template, for the folder of a model that was trained with it: what chat_render.c
 * writes and refuses, said once more for transformers and for servers. Both are made from the rows of chat_table.c, and
 * tests/text/test_chat_text.c holds them against each other. The tokenizer's tokens and the date are in the text as
 * they were in training: what a loader calls bos_token, or today, may be something else.
 *
 * Every tag begins with "-", so that no white space between tags is written, whatever a loader does with line breaks.
 */
#include "text/chat/chat_table.h"

#include <stdlib.h>
#include <string.h>

/* ---- literals ---- */

static void add_escaped(ndp_str *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        static const char from[] = "\\'\n\r\t", *const to[] = {"\\\\", "\\'", "\\n", "\\r", "\\t"};
        const char *special = text[i] ? strchr(from, text[i]) : NULL;
        if (special)
            ndp_str_add(out, to[special - from]);
        else
            ndp_str_add_bytes(out, &text[i], 1);
    }
}

/* A string in quotes; nothing for an empty one. */
static void add_literal(ndp_str *out, const char *text, size_t n) {
    if (!n)
        return;
    ndp_str_add(out, "'");
    add_escaped(out, text, n);
    ndp_str_add(out, "'");
}

/* A line with `{{- TEXT }}`, if there is a text. */
static void write_text(ndp_str *out, const char *indent, const ndp_str *text) {
    if (!text->length)
        return;
    ndp_str_addf(out, "%s{{- ", indent);
    add_literal(out, text->data, text->length);
    ndp_str_add(out, " }}\n");
}

static void refuse(ndp_str *out, const char *indent, const char *when, const char *reason) {
    ndp_str_addf(out, "%s{%%- if %s %%}\n%s    {{- raise_exception(", indent, when, indent);
    add_literal(out, reason, strlen(reason));
    ndp_str_addf(out, ") }}\n%s{%%- endif %%}\n", indent);
}

/* ---- before the messages ---- */

#define STARTS_WITH_SYSTEM "messages and messages[0].role == 'system'"

static void refuse_tools(ndp_str *out) {
    static const char reason[] = "This chat template has no place for tools.";
    refuse(out, "", "tools", reason);
    ndp_str_add(out, "{%- for message in messages %}\n");
    refuse(out, "    ", "message.role not in ['system', 'user', 'assistant'] or message.tool_calls", reason);
    ndp_str_add(out, "{%- endfor %}\n");
}

/* The last message that is a question, or the last of all (chat_render.c). */
static const char find_question[] =
    "{%- set found = namespace(question=messages | length - 1, more=true) %}\n"
    "{%- for message in messages[::-1] %}\n"
    "    {%- if found.more and message.role == 'user' and not (message.content.startswith('<tool_response>') and "
    "message.content.endswith('</tool_response>')) %}\n"
    "        {%- set found.question = messages | length - 1 - loop.index0 %}\n"
    "        {%- set found.more = false %}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n";

static const char find_system[] = "{%- set found = namespace(system='') %}\n"
                                  "{%- for message in messages %}\n"
                                  "    {%- if message.role == 'system' %}\n"
                                  "        {%- set found.system = message.content %}\n"
                                  "    {%- endif %}\n"
                                  "{%- endfor %}\n";

static void write_beginning(const ndp_chat *c, ndp_str *out) {
    const ndp_chat_template *t = c->template;
    ndp_str text = {0};
    if (t->begins == NDP_BEGIN_BOS || (t->begins == NDP_BEGIN_AS_TEXTS && c->adds_bos))
        ndp_str_add_bytes(&text, c->bos.n ? c->bos.data : "", c->bos.n);
    write_text(out, "", &text);
    text.length = 0;
    if (t->system || t->preamble) {
        ndp_str_add(&text, t->before[NDP_ROLE_SYSTEM]);
        ndp_chat_template_add_preamble(c, &text);
        ndp_str_add(&text, t->system ? t->system : "");
        ndp_str_add(&text, t->end[NDP_ROLE_SYSTEM]);
        ndp_str_add(&text, t->after[NDP_ROLE_SYSTEM]);
        ndp_str_add(out, "{%- if not (" STARTS_WITH_SYSTEM ") %}\n");
        write_text(out, "    ", &text);
        ndp_str_add(out, "{%- endif %}\n");
    }
    if (t->system_place == NDP_SYSTEM_START)
        ndp_str_add(out, "{{- found.system }}\n");
    out->failed |= text.failed;
    ndp_str_release(&text);
}

/* ---- messages ---- */

/* An answer's thoughts and content, as chat_render.c has them. */
static const char recent_thoughts[] =
    "        {%- set thoughts = '' %}\n"
    "        {%- if message.reasoning_content is string %}\n"
    "            {%- set thoughts = message.reasoning_content %}\n"
    "        {%- elif '</think>' in content %}\n"
    "            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n"
    "            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
    "        {%- endif %}\n"
    "        {%- if loop.index0 > found.question and (loop.last or thoughts) %}\n"
    "            {%- set content = '<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') "
    "%}\n"
    "        {%- endif %}\n";

static const char *content_of(const ndp_chat_template *t, ndp_role role) {
    bool answer = role == NDP_ROLE_ASSISTANT;
    return answer && t->thinking == NDP_THINK_DROPPED                                 ? "content.split('</think>')[-1]"
           : t->strips == NDP_STRIP_ALL || (answer && t->strips == NDP_STRIP_ANSWERS) ? "(content | trim)"
                                                                                      : "content";
}

static void write_content(const ndp_chat *c, ndp_role role, ndp_str *out) {
    const ndp_chat_template *t = c->template;
    ndp_str after = {0};
    ndp_str_add(&after, t->end[role]);
    if (c->eos.n && (t->eos == NDP_EOS_MESSAGE || (role == NDP_ROLE_ASSISTANT && t->eos == NDP_EOS_ANSWER)))
        ndp_str_add_bytes(&after, c->eos.data, c->eos.n);
    ndp_str_add(&after, t->after[role]);
    ndp_str_addf(out, "        {{- %s%s",
                 t->system_place == NDP_SYSTEM_FIRST                           ? "(system if loop.first else '') + "
                 : t->system_place == NDP_SYSTEM_LAST && role == NDP_ROLE_USER ? "(system if loop.last else '') + "
                                                                               : "",
                 content_of(t, role));
    ndp_str_add(out, after.length ? " + " : "");
    add_literal(out, after.data, after.length);
    ndp_str_add(out, " }}\n");
    out->failed |= after.failed;
    ndp_str_release(&after);
}

static void write_role(const ndp_chat *c, ndp_role role, const char *branch, ndp_str *out) {
    const ndp_chat_template *t = c->template;
    bool system = role == NDP_ROLE_SYSTEM;
    ndp_str text = {0};
    ndp_str_addf(out, "    {%%- %s message.role == '%s'%s %%}\n", branch, ndp_role_name(role),
                 system && t->skips_empty ? " and content" : "");
    if (role == NDP_ROLE_ASSISTANT && t->thinking == NDP_THINK_RECENT)
        ndp_str_add(out, recent_thoughts);
    ndp_str_add(&text, t->before[role]);
    if (t->joins && role == NDP_ROLE_ASSISTANT)
        ndp_str_add(out, "        {%- if loop.first or loop.previtem.role != 'assistant' %}\n");
    write_text(out, "        ", &text);
    if (t->joins && role == NDP_ROLE_ASSISTANT)
        ndp_str_add(out, "        {%- endif %}\n");
    text.length = 0;
    if (system)
        ndp_chat_template_add_preamble(c, &text);
    if (text.length) {
        ndp_str_add(out, "        {%- if loop.first %}\n");
        write_text(out, "            ", &text);
        ndp_str_add(out, "        {%- endif %}\n");
    }
    write_content(c, role, out);
    out->failed |= text.failed;
    ndp_str_release(&text);
}

static void write_messages(const ndp_chat *c, ndp_str *out) {
    const ndp_chat_template *t = c->template;
    bool merges = t->system_place == NDP_SYSTEM_FIRST || t->system_place == NDP_SYSTEM_LAST;
    bool start = t->system_place == NDP_SYSTEM_START;
    if (merges)
        ndp_str_add(out, "{%- set system = messages[0].content + '\\n\\n' if " STARTS_WITH_SYSTEM " else '' %}\n"
                         "{%- set turns = messages[1:] if " STARTS_WITH_SYSTEM " else messages %}\n");
    ndp_str_addf(out, "{%%- for message in %s %%}\n", merges ? "turns" : "messages");
    ndp_str_add(out, "    {%- set content = message.content %}\n");
    if (t->alternates)
        refuse(out, "    ", "(message.role == 'user') != (loop.index0 % 2 == 0)", t->alternates);
    if (t->late_system)
        refuse(out, "    ", "message.role == 'system'", t->late_system);
    if (!start)
        write_role(c, NDP_ROLE_SYSTEM, "if", out);
    write_role(c, NDP_ROLE_USER, start ? "if" : "elif", out);
    write_role(c, NDP_ROLE_ASSISTANT, "elif", out);
    ndp_str_add(out, "    {%- endif %}\n{%- endfor %}\n");
}

/* ---- the whole text ---- */

static void write_end(const ndp_chat *c, ndp_str *out) {
    const ndp_chat_template *t = c->template;
    ndp_str prompt = {0}, eos = {0};
    ndp_str_add(&prompt, t->prompt);
    if (t->eos == NDP_EOS_TEXT && c->eos.n)
        ndp_str_add_bytes(&eos, c->eos.data, c->eos.n);
    if (prompt.length || eos.length) {
        ndp_str_add(out, "{%- if add_generation_prompt %}\n");
        write_text(out, "    ", &prompt);
        ndp_str_add(out, eos.length ? "{%- else %}\n" : "");
        write_text(out, "    ", &eos);
        ndp_str_add(out, "{%- endif %}\n");
    }
    out->failed |= prompt.failed || eos.failed;
    ndp_str_release(&prompt);
    ndp_str_release(&eos);
}

void ndp_chat_template_text(const ndp_chat *c, ndp_str *out) {
    const ndp_chat_template *t = c->template;
    refuse_tools(out);
    if (t->no_system)
        refuse(out, "", STARTS_WITH_SYSTEM, t->no_system);
    if (t->system_place == NDP_SYSTEM_START)
        ndp_str_add(out, find_system);
    if (t->thinking == NDP_THINK_RECENT)
        ndp_str_add(out, find_question);
    write_beginning(c, out);
    write_messages(c, out);
    write_end(c, out);
    out->length -= !out->failed; /* no line break at the end: loaders may write it */
}

/* ---- finding a text again ---- */

static bool is_text_of(const ndp_chat *c, ndp_span text) {
    ndp_str own = {0};
    ndp_chat_template_text(c, &own);
    bool is = !own.failed && own.length == text.n && memcmp(own.data, text.data, text.n) == 0;
    ndp_str_release(&own);
    return is;
}

/* The date in a text of a dated row, as it is written there; NULL: it is another text. The caller frees it. */
static char *date_in(const ndp_chat *c, ndp_span text) {
    static const char mark[] = "\x01";
    ndp_chat other = *c;
    ndp_str own = {0};
    other.date = mark;
    ndp_chat_template_text(&other, &own);
    size_t at = own.failed ? 0 : strcspn(own.data, mark), n = 0;
    bool same = at && at < text.n && memcmp(own.data, text.data, at) == 0;
    while (same && at + n < text.n && text.data[at + n] != '\\')
        n++;
    ndp_str_release(&own);
    return n ? strndup(text.data + at, n) : NULL;
}

static bool is_row(ndp_chat *c, const ndp_chat_template *row, ndp_span text) {
    c->template = row;
    char *date = row->dated ? date_in(c, text) : NULL;
    if (date)
        c->date = date;
    if (is_text_of(c, text)) {
        c->own_date = date;
        return true;
    }
    free(date);
    return false;
}

bool ndp_chat_template_find_text(ndp_chat *c, ndp_span text) {
    for (int bare = 0; bare < 2; bare++)
        for (int i = 0; ndp_chat_template_at(i); i++) {
            ndp_chat other = *c;
            if (bare)
                other.bare = true, other.bos = other.eos = (ndp_span){"", 0};
            if (is_row(&other, ndp_chat_template_at(i), text)) {
                *c = other;
                return true;
            }
        }
    return false;
}
