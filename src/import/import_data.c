/* Data sets: each is read into m->set and added to the job, then rules for all of them follow. What Axolotl does with
 * each type is in its prompt_strategies/; what a record is here, in data/corpus/record.h. */
#include "data/corpus/slice.h"
#include "import/import_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ndp_import_forget_set(ndp_import *m) {
    char *texts[] = {m->set.path,     m->set.type,     m->set.ds_type,         m->set.template,
                     m->set.text,     m->set.messages, m->set.prompt,          m->set.input,
                     m->set.response, m->set.format,   m->set.no_input_format, m->set.hub,
                     m->set.config,   m->set.revision, m->set.split,           m->set.chosen,
                     m->set.rejected, m->set.role,     m->set.content,         m->set.train};
    for (int i = 0; i < NDP_COUNT(texts); i++)
        free(texts[i]);
    ndp_strings_release(&m->set.files);
    ndp_str_release(&m->set.own);
    memset(&m->set, 0, sizeof m->set);
}

static const char *either(const char *given, const char *otherwise) { return given ? given : otherwise; }

static bool same(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

/* ---- keys that apply to all files ---- */

enum {
    TEXT_FIELD,
    MESSAGES_FIELD,
    ROLE_FIELD,
    CONTENT_FIELD,
    TRAIN_FIELD,
    PROMPT_FIELD,
    INPUT_FIELD,
    RESPONSE_FIELD,
    CHOSEN_FIELD,
    REJECTED_FIELD,
    CHAT_TEMPLATE
};
static const struct {
    const char *ours;
    size_t offset; /* of a char * in ndp_config */
} shared_keys[] = {
    [TEXT_FIELD] = {"data.text_field", offsetof(ndp_config, data.text_field)},
    [MESSAGES_FIELD] = {"data.messages_field", offsetof(ndp_config, data.messages_field)},
    [ROLE_FIELD] = {"data.role_field", offsetof(ndp_config, data.role_field)},
    [CONTENT_FIELD] = {"data.content_field", offsetof(ndp_config, data.content_field)},
    [TRAIN_FIELD] = {"data.train_field", offsetof(ndp_config, data.train_field)},
    [PROMPT_FIELD] = {"data.prompt_field", offsetof(ndp_config, data.prompt_field)},
    [INPUT_FIELD] = {"data.input_field", offsetof(ndp_config, data.input_field)},
    [RESPONSE_FIELD] = {"data.response_field", offsetof(ndp_config, data.response_field)},
    [CHOSEN_FIELD] = {"data.chosen_field", offsetof(ndp_config, data.chosen_field)},
    [REJECTED_FIELD] = {"data.rejected_field", offsetof(ndp_config, data.rejected_field)},
    [CHAT_TEMPLATE] = {"data.chat_template", offsetof(ndp_config, data.chat_template)},
};

/* Gives a data set a value of its own for a key of `data`. */
static ndp_status add_own(ndp_import *m, const char *ours, const char *value) {
    ndp_str_addf(&m->set.own, ", %s: %s", strchr(ours, '.') + 1, value);
    return m->set.own.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration") : NDP_OK;
}

static ndp_status add_own_text(ndp_import *m, const char *ours, const char *value) {
    ndp_str text = {0};
    ndp_option_write_text(value, &text);
    ndp_status st = add_own(m, ours, text.data ? text.data : "null");
    ndp_str_release(&text);
    return st;
}

/* Sets such a key from a data set. Where it differs from that of a set before it, the data set's entry has it as its
 * own; only in the chat template all sets must agree. */
static ndp_status share(ndp_import *m, int key, const char *value, const char *name, struct fy_node *node) {
    char **ours = (char **)((char *)&m->job + shared_keys[key].offset);
    if (m->sets.shared & 1 << key) {
        char why[200];
        if (key != CHAT_TEMPLATE)
            return same(*ours, value) || ndp_import_is_set(&m->notes, shared_keys[key].ours)
                       ? NDP_OK
                       : add_own_text(m, shared_keys[key].ours, value);
        snprintf(why, sizeof why, "%s applies to all files: %.50s before, %.50s here", shared_keys[key].ours,
                 either(*ours, "the tokenizer's own"), either(value, "the tokenizer's own"));
        return same(*ours, value) ? NDP_OK : ndp_import_refuse(&m->notes, name, NULL, node, why, shared_keys[key].ours);
    }
    m->sets.shared |= 1 << key;
    return ndp_option_copy_text(value, ours);
}

/* ---- types ---- */

static const char own_words[] =
    "it adds its own text to prompts, such as 'Below is an instruction that describes a task'; here prompts are "
    "rendered by data.chat_template. Turn the records into messages, with type: chat_template";
static const char own_style[] = "of alpaca only the style without a name is supported; write the records with their "
                                "prompts as segments, with type: input_output";
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
    {"sharegpt", NDP_RECORD_SHAREGPT, 0, 0, 0, NULL},
    {"input_output", NDP_RECORD_INPUT_OUTPUT, 0, 0, 0, NULL},
    {"llamafactory", NDP_RECORD_INSTRUCTION, "instruction", "input", "output", NULL},
    {"alpaca_chat", NDP_RECORD_INSTRUCTION, "instruction", "input", "output", own_words},
    {"alpaca_chat.load_qa", NDP_RECORD_INSTRUCTION, "question", NULL, "answer", own_words},
    {"alpaca_instruct", NDP_RECORD_INSTRUCTION, "instruction", "input", "output", own_words},
    {"gpteacher", NDP_RECORD_INSTRUCTION, "instruction", "input", "response", own_words},
    {"oasst", NDP_RECORD_INSTRUCTION, "INSTRUCTION", NULL, "RESPONSE", own_words},
    {"gpt4all", NDP_RECORD_INSTRUCTION, "prompt", NULL, "response", own_words},
    {"summarizetldr", NDP_RECORD_INSTRUCTION, "article", NULL, "summary", own_words},
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
    {"passthrough", NDP_RECORD_PREFERENCE, NULL, 0, "", NULL},
    {"", NDP_RECORD_PREFERENCE, 0, 0, 0, pair_type},
};

/* The type that a word names; the last one if it is unknown. */
static const set_type *type_of(const set_type *t, const char *word) {
    size_t n = strcspn(word, ":");
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
    ndp_status st = item ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
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
    if (same(role, "assistant") || same(role, "gpt"))
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
    if (!kept || (template && !chosen))
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
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
    if (own && !(same(m->set.format, "{instruction}\n\n{input}\n") && same(m->set.no_input_format, "{instruction}\n")))
        NDP_TRY(ndp_import_refuse(&m->notes, name, "custom type", node, own_type, "data.format"));
    NDP_TRY(share(m, PROMPT_FIELD, prompt, name, node));
    NDP_TRY(share(m, RESPONSE_FIELD, response, name, node));
    if (input)
        NDP_TRY(share(m, INPUT_FIELD, input, name, node));
    return add_chat(m, own ? "plain" : m->set.template, name, node);
}

/* Without names of fields, records choose between role and from, content and value. */
static ndp_status share_message_fields(ndp_import *m, const char *name, struct fy_node *node) {
    const char *role = m->set.role, *content = m->set.content;
    if (same(role, "role") || same(role, "from"))
        role = NULL;
    if (same(content, "content") || same(content, "value"))
        content = NULL;
    NDP_TRY(share(m, ROLE_FIELD, role, name, node));
    return share(m, CONTENT_FIELD, content, name, node);
}

static ndp_status add_messages(ndp_import *m, const set_type *t, const char *name, struct fy_node *node) {
    if (t->format == NDP_RECORD_MESSAGES)
        NDP_TRY(share(m, MESSAGES_FIELD, either(m->set.messages, "messages"), name, node));
    NDP_TRY(share_message_fields(m, name, node));
    NDP_TRY(share(m, TRAIN_FIELD, m->set.train, name, node));
    return add_chat(m, m->set.template, name, node);
}

/* Conversations, of which the prompt is named, or texts as they are. */
static ndp_status add_pairs(ndp_import *m, const set_type *t, const char *name, struct fy_node *node) {
    bool listed = same(t->prompt, "messages"), odds = strcmp(t->name, "chat_template.argilla") == 0;
    const char *prompt = listed ? either(m->set.messages, t->prompt) : t->prompt;
    if (prompt)
        NDP_TRY(share(m, PROMPT_FIELD, prompt, name, node));
    NDP_TRY(share(m, CHOSEN_FIELD, m->set.chosen, name, node));
    NDP_TRY(share(m, REJECTED_FIELD, m->set.rejected, name, node));
    NDP_TRY(share_message_fields(m, name, node));
    if (odds)
        SAY(m, "%s: Axolotl begins such prompts with an empty message of the system, which is left out here\n", name);
    if (t->response && !*t->response)
        return NDP_OK;
    return add_chat(m,
                    t->response ? t->response
                    : odds      ? either(m->set.template, "chatml")
                                : m->set.template,
                    name, node);
}

/* The format of the first set is the job's; one with another has it as its own. */
static ndp_status share_format(ndp_import *m, ndp_record_kind format) {
    ndp_config with = {.data = {.format = format}};
    ndp_str word = {0};
    if (!m->sets.formats)
        m->sets.format = format;
    if (format == m->sets.format || ndp_import_is_set(&m->notes, "data.format"))
        return NDP_OK;
    for (int i = 0; i < ndp_option_count; i++)
        if (ndp_options[i].offset == offsetof(ndp_config, data.format))
            ndp_option_write(&ndp_options[i], &with, &word);
    ndp_status st = add_own(m, "data.format", word.data ? word.data : "auto");
    ndp_str_release(&word);
    return st;
}

/* Adds the current data set, whose keys are in m->set. */
ndp_status ndp_import_add_set(ndp_import *m, const char *name, struct fy_node *node, const char *silent_type) {
    bool pairs = ndp_import_has_pairs(m);
    const char *type = either(m->set.type, pairs ? "passthrough" : silent_type);
    const set_type *t = type_of(pairs ? pair_types : types, either(type, ""));
    if (!type)
        NDP_TRY(ndp_import_refuse(
            &m->notes, name, "no type", node,
            "Axolotl reads token ids (input_ids, labels) there; here ids are read from .bin files, and texts with "
            "type: completion",
            "data.format"));
    else if (t->why) {
        char typed[120];
        snprintf(typed, sizeof typed, "%.100s.type", name);
        NDP_TRY(ndp_import_refuse(&m->notes, typed, type, node, t->why, "data.format"));
    } else if (t->format == NDP_RECORD_ALPACA && strchr(type, ':'))
        NDP_TRY(ndp_import_refuse(&m->notes, name, type, node, own_style, "data.format"));
    NDP_TRY(share_format(m, t->format));
    m->sets.formats |= 1 << t->format;
    if (t->format == NDP_RECORD_TEXT)
        NDP_TRY(share(m, TEXT_FIELD, either(m->set.text, "text"), name, node));
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

/* ---- all data sets together ---- */

/* Names of chat templates in Axolotl and here. */
static const struct {
    const char *theirs, *ours;
} chat_templates[] = {
    {"tokenizer_default", NULL},
    {"plain", "plain"},
    /* Axolotl's texts render the trained parts the same. phi_35 writes no <|endoftext|> at the end, qwen3 another
     * prompt.
     */
    {"chatml", "chatml"},
    {"qwen_25", "qwen2.5"},
    {"qwen3", "qwen3"},
    {"llama3", "llama3"},
    {"gemma", "gemma2"},
    {"gemma3", "gemma3"},
    {"phi_35", "phi3.5"},
    {"mistral_v1", "mistral-v0.1"},
    {"mistral_v2v3", "mistral-v0.3"},
    {"mistral_v3_tekken", "mistral-nemo"},
};

static ndp_status finish_chats(ndp_import *m) {
    for (int64_t i = 0; i < m->sets.chat_count; i++) {
        const import_chat *c = &m->sets.chats[i];
        const import_seen *whole = ndp_import_find(&m->notes, "chat_template");
        const char *name = either(c->template, either(m->read.chat_template, "tokenizer_default"));
        int k = 0;
        while (k < NDP_COUNT(chat_templates) && strcmp(chat_templates[k].theirs, name) != 0)
            k++;
        if (k < NDP_COUNT(chat_templates))
            NDP_TRY(share(m, CHAT_TEMPLATE, chat_templates[k].ours, c->name, c->node));
        else
            NDP_TRY(ndp_import_refuse(&m->notes, c->template ? c->name : "chat_template", name,
                                      c->template || !whole ? c->node : whole->node, NDP_IMPORT_NO_TEMPLATE,
                                      "data.chat_template"));
    }
    m->job.data.train_on = m->read.train_on_inputs == WORD_YES ? NDP_TRAIN_ON_ALL : NDP_TRAIN_ON_ASSISTANT;
    if (m->sets.chat_count || m->sets.formats >= 1 << NDP_RECORD_ALPACA)
        ndp_import_mark(m, offsetof(ndp_config, data.train_on));
    if (m->sets.chat_count && m->read.train_on_inputs != WORD_YES)
        SAY(m, "training is on all that follows the assistant's header, including the token that ends the turn\n");
    else if (m->sets.formats & 1 << NDP_RECORD_MESSAGES)
        SAY(m, "data.train_on: all includes the template's text between messages; %s trains on the messages only\n",
            m->dialect->program);
    return NDP_OK;
}

static void finish_format(ndp_import *m) { m->job.data.format = m->sets.formats ? m->sets.format : NDP_RECORD_AUTO; }

/* Long texts continue in the next row in both programs; a long conversation is treated as Axolotl treats it. */
static void finish_lengths(ndp_import *m) {
    static const ndp_overlong of[] = {NDP_OVERLONG_DROP, [EXCESS_DROP] = NDP_OVERLONG_DROP,
                                      [EXCESS_TRUNCATE] = NDP_OVERLONG_TRUNCATE, [EXCESS_RAISE] = NDP_OVERLONG_ERROR};
    const int texts = 1 << NDP_RECORD_TEXT;
    if (!m->sets.formats || m->sets.formats == texts)
        return;
    m->job.data.overlong = of[m->read.excess];
    ndp_import_mark(m, offsetof(ndp_config, data.overlong));
    if (m->sets.formats & texts)
        SAY(m, "data.overlong also applies to texts longer than a row, which %s continues in another one\n",
            m->dialect->program);
}

static ndp_status finish_held_out(ndp_import *m) {
    const char *key = ndp_import_is_axolotl(m) ? "val_set_size" : "val_size";
    if (m->read.val_set_size > 0 && m->job.data.validation_files.n)
        return ndp_import_fail(&m->notes, key, "'%s' and '%s' both set the held-out data; give one of them", key,
                               ndp_import_is_axolotl(m) ? "test_datasets" : "eval_dataset");
    if (m->read.val_set_size == 1)
        return ndp_import_fail(&m->notes, key, "'%s' is 1, expected a fraction below 1 or a number of records", key);
    char number[32];
    snprintf(number, sizeof number, "%.10g", m->read.val_set_size);
    if (m->read.val_set_size > 1)
        return ndp_import_refuse(&m->notes, key, number, ndp_import_node(&m->notes, key),
                                 "data.validation_fraction is a fraction: this number / the number of records",
                                 "data.validation_fraction");
    if (m->read.val_set_size > 0)
        m->job.data.validation_fraction = m->read.val_set_size;
    return NDP_OK;
}

ndp_status ndp_import_finish_data(ndp_import *m) {
    NDP_TRY(finish_chats(m));
    finish_format(m);
    finish_lengths(m);
    m->job.data.packing = m->read.packing == WORD_YES;
    ndp_import_mark(m, offsetof(ndp_config, data.packing));
    if (m->read.multipack_attention)
        m->job.data.document_mask = m->read.multipack_attention == WORD_YES;
    if (m->read.curriculum == WORD_YES)
        m->job.data.shuffle = m->read.shuffle_merged != WORD_NO;
    if (m->read.curriculum == WORD_YES && m->read.shuffle_merged != WORD_NO)
        SAY(m, "curriculum_sampling without shuffle_merged_datasets: false shuffles once; here the order is shuffled "
               "every "
               "epoch\n");
    if (!m->job.data.files.n && !m->sets.formats && !ndp_import_find(&m->notes, "dataset"))
        SAY(m, "no datasets: set data.files\n");
    return finish_held_out(m);
}
