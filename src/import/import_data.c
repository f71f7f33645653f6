/* Data sets: each is read into m->set and added to the job, then rules for all of them follow. What Axolotl does with
 * each type is in its prompt_strategies/; what a record is here, in data/corpus/record.h. */
#include "data/corpus/slice.h"
#include "import/import_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ndp_import_forget_set(ndp_import *m) {
    char *texts[] = {m->set.path,
                     m->set.type,
                     m->set.ds_type,
                     m->set.template,
                     m->set.text,
                     m->set.messages,
                     m->set.prompt,
                     m->set.input,
                     m->set.response,
                     m->set.format,
                     m->set.no_input_format,
                     m->set.hub,
                     m->set.config,
                     m->set.revision,
                     m->set.split,
                     m->set.chosen,
                     m->set.rejected,
                     m->set.label,
                     m->set.role,
                     m->set.content,
                     m->set.train};
    for (int i = 0; i < NDP_COUNT(texts); i++)
        free(texts[i]);
    ndp_strings_release(&m->set.files);
    ndp_str_release(&m->set.own);
    memset(&m->set, 0, sizeof m->set);
}

static const char *either(const char *given, const char *otherwise) { return given ? given : otherwise; }

/* Sets a key of `data` from a data set. */
#define SHARE(m, key, ...) ndp_import_share(m, offsetof(ndp_config, data.key), __VA_ARGS__)

/* ---- types ---- */

static const char own_words[] =
    "it adds its own text to prompts, such as 'Below is an instruction that describes a task'; here prompts are "
    "rendered by data.chat_template. Turn the records into messages, with type: chat_template";
static const char own_style[] = "styles of alpaca are instruct, chat, chatml and phi, as in type: alpaca:chatml; write "
                                "the records with their prompts "
                                "as segments, with type: input_output";
static const char own_type[] = "supported types are alpaca, sharegpt, input_output, completion, chat_template, and the "
                               "prompt format that a template writes: format \"{instruction}\\n\\n{input}\\n\", "
                               "no_input_format \"{instruction}\\n\"";
static const char custom[] = "(custom)";

typedef struct set_type {
    const char *name; /* up to a colon, after which comes a style */
    ndp_record_kind format;
    const char *prompt, *input, *response; /* names of fields */
    const char *why;                       /* it is refused; NULL: it is not */
} set_type;

static const set_type types[] = {
    {"completion", NDP_RECORD_TEXT, 0, 0, 0, NULL},
    {"pretrain", NDP_RECORD_TEXT, 0, 0, 0, NULL},
    {"chat_template", NDP_RECORD_MESSAGES, 0, 0, 0, NULL},
    {custom, NDP_RECORD_INSTRUCTION, 0, 0, 0, NULL},
    {"alpaca", NDP_RECORD_ALPACA, 0, 0, 0, NULL},
    {"alpaca:instruct", NDP_RECORD_ALPACA, 0, 0, 0, NULL},
    {"alpaca:chat", NDP_RECORD_ALPACA_CHAT, 0, 0, 0, NULL},
    {"alpaca:chatml", NDP_RECORD_ALPACA_CHATML, 0, 0, 0, NULL},
    {"alpaca:phi", NDP_RECORD_ALPACA_PHI, 0, 0, 0, NULL},
    {"sharegpt", NDP_RECORD_SHAREGPT, 0, 0, 0, NULL},
    {"input_output", NDP_RECORD_INPUT_OUTPUT, 0, 0, 0, NULL},
    {"trl", NDP_RECORD_AUTO, 0, 0, 0, NULL},
    {"llamafactory", NDP_RECORD_INSTRUCTION, "instruction", "input", "output", NULL},
    {"alpaca_chat", NDP_RECORD_ALPACA_CHAT, 0, 0, 0, NULL},
    {"alpaca_chat.load_qa", NDP_RECORD_INSTRUCTION, "question", NULL, "answer", own_words},
    {"alpaca_instruct", NDP_RECORD_ALPACA, 0, 0, 0, NULL},
    {"gpteacher", NDP_RECORD_ALPACA, 0, 0, 0, NULL},
    {"alpaca_w_system", NDP_RECORD_ALPACA_SYSTEM_CHAT, 0, 0, 0, NULL},
    {"alpaca_w_system.load_chat", NDP_RECORD_ALPACA_SYSTEM_CHAT, 0, 0, 0, NULL},
    {"alpaca_w_system.load_instruct", NDP_RECORD_ALPACA_SYSTEM, 0, 0, 0, NULL},
    {"oasst", NDP_RECORD_INSTRUCTION, "INSTRUCTION", NULL, "RESPONSE", own_words},
    {"gpt4all", NDP_RECORD_INSTRUCTION, "prompt", NULL, "response", own_words},
    {"summarizetldr", NDP_RECORD_INSTRUCTION, "article", NULL, "summary", own_words},
    {"jeopardy", NDP_RECORD_JEOPARDY, 0, 0, 0, NULL},
    {"token_ids", NDP_RECORD_TOKEN_IDS, 0, 0, 0, NULL},
    {"", NDP_RECORD_AUTO, 0, 0, 0, own_type},
};

static const char pair_type[] =
    "types of preference data are chat_template.default, chat_template.argilla, chat_template.argilla_chat, chatml.* "
    "and "
    "llama3.* (argilla, argilla_chat, icr, intel, prompt_pairs, ultra), passthrough, and none";

/* Types of preference data. `response` is the template that the texts are written with, as Axolotl calls it; "": they
 * are texts already. A prompt that has no name is what both answers begin with. */
static const set_type pair_types[] = {
    {"chat_template", NDP_RECORD_PREFERENCE, "messages", 0, NULL, NULL},
    {"chat_template.default", NDP_RECORD_PREFERENCE, "messages", 0, NULL, NULL},
    {"chat_template.argilla", NDP_RECORD_PREFERENCE, "prompt", 0, NULL, NULL},
    {"chat_template.argilla_chat", NDP_RECORD_PREFERENCE, NULL, 0, NULL, NULL},
    {"chatml", NDP_RECORD_PREFERENCE, "prompt", 0, "chatml", NULL},
    {"chatml.default", NDP_RECORD_PREFERENCE, "prompt", 0, "chatml", NULL},
    {"chatml.argilla", NDP_RECORD_PREFERENCE, "prompt", 0, "chatml", NULL},
    {"chatml.argilla_chat", NDP_RECORD_PREFERENCE, NULL, 0, "chatml", NULL},
    {"chatml.icr", NDP_RECORD_PREFERENCE, "input", 0, "chatml", NULL},
    {"chatml.intel", NDP_RECORD_PREFERENCE, "question", 0, "chatml", NULL},
    {"chatml.prompt_pairs", NDP_RECORD_PREFERENCE, "prompt", 0, "chatml", NULL},
    {"chatml.ultra", NDP_RECORD_PREFERENCE, "prompt", 0, "chatml", NULL},
    {"llama3", NDP_RECORD_PREFERENCE, "prompt", 0, "llama3", NULL},
    {"llama3.default", NDP_RECORD_PREFERENCE, "prompt", 0, "llama3", NULL},
    {"llama3.argilla_chat", NDP_RECORD_PREFERENCE, NULL, 0, "llama3", NULL},
    {"llama3.icr", NDP_RECORD_PREFERENCE, "input", 0, "llama3", NULL},
    {"llama3.intel", NDP_RECORD_PREFERENCE, "question", 0, "llama3", NULL},
    {"llama3.prompt_pairs", NDP_RECORD_PREFERENCE, "prompt", 0, "llama3", NULL},
    {"llama3.ultra", NDP_RECORD_PREFERENCE, "prompt", 0, "llama3", NULL},
    {"bradley_terry.chat_template", NDP_RECORD_PREFERENCE, "input", 0, NULL, NULL},
    {"passthrough", NDP_RECORD_PREFERENCE, NULL, 0, "", NULL},
    {"trl", NDP_RECORD_PREFERENCE, NULL, 0, "", NULL},
    {"llamafactory", NDP_RECORD_PREFERENCE, 0, 0, 0,
     "LLaMA-Factory joins a record's input to its instruction; pairs are read with formatting: sharegpt"},
    {"", NDP_RECORD_PREFERENCE, 0, 0, 0, pair_type},
};

/* The type that a word names, up to its style if that has no row; the last one if it is unknown. */
static const set_type *type_of(const set_type *t, const char *word) {
    size_t n = strcspn(word, ":");
    for (const set_type *styled = t; word[n] && *styled->name; styled++)
        if (strcmp(styled->name, word) == 0)
            return styled;
    while (*t->name && !(strlen(t->name) == n && strncmp(t->name, word, n) == 0))
        t++;
    return t;
}

/* A word, or a mapping that describes how prompts are written. */
ndp_status ndp_import_dataset_type(ndp_import *m, struct fy_node *value, const char *name) {
    const char *text = ndp_yaml_text(value);
    NDP_TRY(ndp_option_copy_text(text ? text : custom, &m->set.type));
    return text ? NDP_OK : ndp_import_walk(m, value, "prompter", NULL, name);
}

/* A split, or a slice of one (data/corpus/slice.h); a file is the training split (ndp_import_add_files). */
ndp_status ndp_import_dataset_split(ndp_import *m, struct fy_node *value, const char *name) {
    const char *text = ndp_yaml_text(value);
    size_t n = text ? strlen(text) : 0;
    ndp_slice slice;
    bool cut = text && ndp_slice_cut(text, &n, &slice);
    if (cut && n && strcspn(text, "[]%:+/@ ") >= n)
        return ndp_option_copy_text(text, &m->set.split);
    return ndp_import_refuse(&m->notes, name, text ? text : custom, value,
                             "one split is read, or a slice of it, such as train[:10%]; name each split as a data set",
                             ndp_import_files_key(m));
}

/* Adds a name of a role in the records, unless it has one already. */
static ndp_status name_role(ndp_import *m, const char *source, const char *role) {
    char *item = ndp_format("%s: %s", source, role);
    ndp_status st = NDP_MEMORY(item, "for the configuration");
    bool known = false;
    for (int i = 0; item && i < m->job.data.roles.n; i++)
        known |= strcmp(m->job.data.roles.items[i], item) == 0;
    if (st == NDP_OK && !known)
        st = ndp_strings_add(&m->job.data.roles, item);
    free(item);
    ndp_import_mark(m, offsetof(ndp_config, data.roles));
    return st;
}

/* The list of a role has the names that the records use for it. */
static ndp_status read_source_role(ndp_import *m, struct fy_node *item, const char *name) {
    const char *source = ndp_yaml_text(item), *target = strrchr(name, '.');
    ndp_role role, usual;
    target = target ? target + 1 : name;
    if (!source || !*source || !ndp_role_of(target, &role))
        return ndp_import_refuse(&m->notes, name, source, item, "a role is system, user or assistant",
                                 ndp_import_files_key(m));
    if (!ndp_role_of(source, &usual))
        return name_role(m, source, target);
    return usual == role
               ? NDP_OK
               : ndp_import_refuse(&m->notes, name, source, item,
                                   "this name has another role in records; rename it there", ndp_import_files_key(m));
}

/* user_tag: the name that the records have for a role. */
ndp_status ndp_import_tag(ndp_import *m, struct fy_node *value, const char *name) {
    const char *tag = strrchr(name, '.');
    char role[64];
    tag = tag ? tag + 1 : name;
    snprintf(role, sizeof role, "%.*s", (int)strcspn(tag, "_"), tag);
    return read_source_role(m, value, role);
}

ndp_status ndp_import_role(ndp_import *m, struct fy_node *value, const char *name) {
    return ndp_import_items(m, value, name, read_source_role);
}

static ndp_status read_trained_role(ndp_import *m, struct fy_node *item, const char *name) {
    const char *role = ndp_yaml_text(item);
    if (ndp_import_same(role, "assistant") || ndp_import_same(role, "gpt"))
        return NDP_OK;
    return ndp_import_refuse(&m->notes, name, role, item,
                             "training is on the assistant's turns, or on everything (data.train_on)", "data.train_on");
}

ndp_status ndp_import_roles_to_train(ndp_import *m, struct fy_node *value, const char *name) {
    if (fy_node_is_sequence(value) && fy_node_sequence_item_count(value) == 0)
        return ndp_import_refuse(&m->notes, name, "[]", value, "training is on every turn of the assistant",
                                 "data.train_on");
    return ndp_import_items(m, value, name, read_trained_role);
}

/* ---- a data set ---- */

static ndp_status add_chat(ndp_import *m, const char *template, const char *name, struct fy_node *node) {
    const char *kept = ndp_arena_strdup(&m->notes.arena, name),
               *chosen = template ? ndp_arena_strdup(&m->notes.arena, template) : NULL;
    NDP_CHECK_MEMORY(kept && (!template || chosen), "for the configuration");
    NDP_TRY(ndp_array_reserve(&m->sets.chats, &m->sets.chat_capacity, m->sets.chat_count + 1, sizeof *m->sets.chats));
    m->sets.chats[m->sets.chat_count++] = (import_chat){kept, node, chosen};
    return NDP_OK;
}

/* A custom prompt must be what the template `plain` writes: the question, an empty line and the input if there is one,
 * a line break. In both the answer ends with the tokenizer's end token. */
static ndp_status add_questions(ndp_import *m, const set_type *t, const char *name, struct fy_node *node) {
    const char *prompt = either(m->set.prompt, either(t->prompt, "instruction")),
               *input = either(m->set.input, t->input),
               *response = either(m->set.response, either(t->response, "output"));
    bool own = strcmp(t->name, custom) == 0;
    if (own && !(ndp_import_same(m->set.format, "{instruction}\n\n{input}\n") &&
                 ndp_import_same(m->set.no_input_format, "{instruction}\n")))
        NDP_TRY(ndp_import_refuse(&m->notes, name, "custom type", node, own_type, "data.format"));
    NDP_TRY(SHARE(m, prompt_field, prompt, name, node));
    NDP_TRY(SHARE(m, response_field, response, name, node));
    if (input)
        NDP_TRY(SHARE(m, input_field, input, name, node));
    return add_chat(m, own ? "plain" : m->set.template, name, node);
}

/* Without names of fields, records choose between role and from, content and value. */
static ndp_status share_message_fields(ndp_import *m, const char *name, struct fy_node *node) {
    const char *role = m->set.role, *content = m->set.content;
    if (ndp_import_same(role, "role") || ndp_import_same(role, "from"))
        role = NULL;
    if (ndp_import_same(content, "content") || ndp_import_same(content, "value"))
        content = NULL;
    NDP_TRY(SHARE(m, role_field, role, name, node));
    return SHARE(m, content_field, content, name, node);
}

static ndp_status add_messages(ndp_import *m, const set_type *t, const char *name, struct fy_node *node) {
    if (t->format == NDP_RECORD_MESSAGES)
        NDP_TRY(SHARE(m, messages_field, either(m->set.messages, "messages"), name, node));
    NDP_TRY(share_message_fields(m, name, node));
    NDP_TRY(ndp_import_share_drop(m));
    NDP_TRY(SHARE(m, train_field, m->set.train, name, node));
    return add_chat(m, m->set.template, name, node);
}

/* Conversations, of which the prompt is named, or texts as they are. */
static ndp_status add_pairs(ndp_import *m, const set_type *t, const char *name, struct fy_node *node) {
    bool listed = ndp_import_same(t->prompt, "messages"), odds = strcmp(t->name, "chat_template.argilla") == 0;
    const char *prompt = listed ? either(m->set.messages, t->prompt) : t->prompt;
    if (prompt)
        NDP_TRY(SHARE(m, prompt_field, prompt, name, node));
    NDP_TRY(SHARE(m, chosen_field, m->set.chosen, name, node));
    NDP_TRY(SHARE(m, rejected_field, m->set.rejected, name, node));
    NDP_TRY(share_message_fields(m, name, node));
    if (odds)
        SAY(m, "%s: Axolotl begins such prompts with an empty message of the system, which is left out here\n", name);
    if (strcmp(t->name, "bradley_terry.chat_template") == 0)
        SAY(m,
            "%s: where the system's text of a record is empty, Axolotl writes an empty message of the system; here "
            "there is none\n",
            name);
    if (t->response && !*t->response)
        return NDP_OK;
    return add_chat(m,
                    t->response ? t->response
                    : odds      ? either(m->set.template, "chatml")
                                : m->set.template,
                    name, node);
}

/* Axolotl's alpaca_chat has the style that this key names. */
static bool has_conversation(const set_type *t, struct fy_node *set) {
    return strcmp(t->name, "alpaca_chat") == 0 && fy_node_is_mapping(set) &&
           fy_node_mapping_lookup_by_string(set, "conversation", FY_NT);
}

/* Adds the current data set, whose keys are in m->set. */
ndp_status ndp_import_add_set(ndp_import *m, const char *name, struct fy_node *node, const char *silent_type) {
    bool pairs = ndp_import_has_pairs(m);
    /* without a type Axolotl reads token ids */
    const char *type = either(m->set.type, pairs ? "passthrough" : either(silent_type, "token_ids"));
    const set_type *t = type_of(pairs ? pair_types : types, type);
    if (t->why) {
        char typed[120];
        snprintf(typed, sizeof typed, "%.100s.type", name);
        NDP_TRY(ndp_import_refuse(&m->notes, typed, type, node, t->why, "data.format"));
    } else if (ndp_record_is_alpaca(t->format) &&
               ((strchr(type, ':') && !strchr(t->name, ':')) || has_conversation(t, node)))
        NDP_TRY(ndp_import_refuse(&m->notes, name, type, node, own_style, "data.format"));
    NDP_TRY(ndp_import_share_format(m, t->format));
    m->sets.formats |= 1 << t->format;
    if (t->format == NDP_RECORD_AUTO && !t->why && m->set.text)
        NDP_TRY(SHARE(m, text_field, m->set.text, name, node));
    if (t->format == NDP_RECORD_TEXT)
        NDP_TRY(SHARE(m, text_field, either(m->set.text, "text"), name, node));
    if (t->format == NDP_RECORD_MESSAGES || t->format == NDP_RECORD_SHAREGPT)
        NDP_TRY(add_messages(m, t, name, node));
    if (t->format == NDP_RECORD_INSTRUCTION)
        NDP_TRY(add_questions(m, t, name, node));
    if (t->format == NDP_RECORD_PREFERENCE)
        NDP_TRY(add_pairs(m, t, name, node));
    return ndp_import_add_files(m, name, node);
}

/* A mapping, or the path alone. */
static ndp_status read_set(ndp_import *m, struct fy_node *item, const char *name, const char *silent_type) {
    NDP_TRY(ndp_yaml_follow(m->notes.y, &item));
    ndp_import_forget_set(m);
    const char *path = ndp_yaml_text(item);
    NDP_TRY(path && *path ? ndp_option_copy_text(path, &m->set.path) : ndp_import_walk(m, item, "dataset", NULL, name));
    return ndp_import_add_set(m, name, item, silent_type);
}

/* A list of data sets, or one of them. */
ndp_status ndp_import_datasets(ndp_import *m, struct fy_node *value, const char *name) {
    const char *silent_type = strcmp(name, "pretraining_dataset") == 0 ? "pretrain" : NULL;
    m->sets.held_out = strcmp(name, "test_datasets") == 0;
    if (!fy_node_is_sequence(value))
        return read_set(m, value, name, silent_type);
    void *place = NULL;
    int i = 0;
    for (struct fy_node *item; (item = fy_node_sequence_iterate(value, &place)); i++) {
        char numbered[64];
        snprintf(numbered, sizeof numbered, "%.40s[%d]", name, i);
        NDP_TRY(read_set(m, item, numbered, silent_type));
    }
    return NDP_OK;
}
