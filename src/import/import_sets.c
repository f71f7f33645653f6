/* What all data sets of an import have together: keys that the first one sets and others may have as their own; then
 * the rules for all of them. */
#include "import/import_parts.h"

#include <stdio.h>
#include <string.h>

/* Gives a data set a value of its own for a key of `data`. */
static ndp_status add_own(ndp_import *m, const char *key, const char *value) {
    ndp_str_addf(&m->set.own, ", %s: %s", key, value);
    return NDP_MEMORY(!m->set.own.failed, "for the configuration");
}

static ndp_status add_own_text(ndp_import *m, const char *key, const char *value) {
    ndp_str text = {0};
    ndp_option_write_text(value, &text);
    ndp_status st = add_own(m, key, text.data ? text.data : "null");
    ndp_str_release(&text);
    return st;
}

static const ndp_option *option_at(size_t offset) {
    int i = 0;
    while (i < ndp_option_count - 1 && ndp_options[i].offset != offset)
        i++;
    return &ndp_options[i];
}

/* Where the value differs from that of a set before it, the data set's entry has it as its own; only in the chat
 * template all sets must agree. */
ndp_status ndp_import_share(ndp_import *m, size_t offset, const char *value, const char *name, struct fy_node *node) {
    const ndp_option *o = option_at(offset);
    char **ours = (char **)((char *)&m->job + offset), key[64], why[240];
    bool *shared = &m->sets.shared[o - ndp_options];
    snprintf(key, sizeof key, "%s.%s", o->section, o->key);
    if (!*shared) {
        *shared = true;
        return ndp_option_copy_text(value, ours);
    }
    if (ndp_import_same(*ours, value))
        return NDP_OK;
    if (offset != offsetof(ndp_config, data.chat_template))
        return ndp_import_is_set(&m->notes, key) ? NDP_OK : add_own_text(m, o->key, value);
    snprintf(why, sizeof why, "%s applies to all files: %.50s before, %.50s here", key,
             *ours ? *ours : "the tokenizer's own", value ? value : "the tokenizer's own");
    return ndp_import_refuse(&m->notes, name, NULL, node, why, key);
}

ndp_status ndp_import_share_drop(ndp_import *m) {
    bool drop = m->set.drop_system == WORD_YES;
    bool *shared = &m->sets.shared[option_at(offsetof(ndp_config, data.drop_system)) - ndp_options];
    if (!*shared)
        m->job.data.drop_system = drop;
    *shared = true;
    return m->job.data.drop_system == drop ? NDP_OK : add_own(m, "drop_system", drop ? "true" : "false");
}

ndp_status ndp_import_share_format(ndp_import *m, ndp_record_kind format) {
    ndp_config with = {.data = {.format = format}};
    ndp_str word = {0};
    if (!m->sets.formats)
        m->sets.format = format;
    if (format == m->sets.format || ndp_import_is_set(&m->notes, "data.format"))
        return NDP_OK;
    ndp_option_write(option_at(offsetof(ndp_config, data.format)), &with, &word);
    ndp_status st = add_own(m, "format", word.data ? word.data : "auto");
    ndp_str_release(&word);
    return st;
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
    {"qwen3_5", "qwen3.5"},
    {"qwen2_vl", "qwen2"},
    {"llama3", "llama3"},
    {"gemma", "gemma2"},
    {"gemma3", "gemma3"},
    {"gemma4", "gemma4"},
    {"gemma4_unified", "gemma4"},
    {"phi_3", "phi3-bos"},
    {"phi_35", "phi3.5"},
    {"mistral_v1", "mistral-v0.1"},
    {"mistral_v2v3", "mistral-v0.3"},
    {"mistral_v3_tekken", "mistral-nemo"},
    {"pixtral", "mistral-nemo"},
};

static ndp_status finish_chats(ndp_import *m) {
    for (int64_t i = 0; i < m->sets.chat_count; i++) {
        const import_chat *c = &m->sets.chats[i];
        const import_seen *whole = ndp_import_find(&m->notes, "chat_template");
        const char *name = c->template             ? c->template
                           : m->read.chat_template ? m->read.chat_template
                                                   : "tokenizer_default";
        int k = 0;
        while (k < NDP_COUNT(chat_templates) && strcmp(chat_templates[k].theirs, name) != 0)
            k++;
        if (k < NDP_COUNT(chat_templates))
            NDP_TRY(ndp_import_share(m, offsetof(ndp_config, data.chat_template), chat_templates[k].ours, c->name,
                                     c->node));
        else
            NDP_TRY(ndp_import_refuse(&m->notes, c->template ? c->name : "chat_template", name,
                                      c->template || !whole ? c->node : whole->node, NDP_IMPORT_NO_TEMPLATE,
                                      "data.chat_template"));
    }
    m->job.data.train_on = m->read.train_on_inputs == WORD_YES ? NDP_TRAIN_ON_ALL
                           : m->read.whole_turns               ? NDP_TRAIN_ON_TURN
                                                               : NDP_TRAIN_ON_ASSISTANT;
    if (m->sets.chat_count || m->sets.formats >= 1 << NDP_RECORD_ALPACA)
        ndp_import_mark(m, offsetof(ndp_config, data.train_on));
    if (m->sets.chat_count && m->read.train_on_inputs != WORD_YES)
        SAY(m, "training is on all that follows the assistant's header, including the token that ends the turn\n");
    else if (m->sets.formats & 1 << NDP_RECORD_MESSAGES)
        SAY(m, "data.train_on: all includes the template's text between messages; %s trains on the messages only\n",
            m->dialect->program);
    return NDP_OK;
}

/* Pairs whose files are left to the user have no other. */
static void finish_format(ndp_import *m) {
    m->job.data.format = m->sets.formats ? m->sets.format : m->read.pairs ? NDP_RECORD_PREFERENCE : NDP_RECORD_AUTO;
    if (m->read.pairs)
        ndp_import_mark(m, offsetof(ndp_config, data.format));
}

/* Long texts continue in the next row in both programs; a long conversation is treated as Axolotl treats it. */
static void finish_lengths(ndp_import *m) {
    static const ndp_overlong of[] = {NDP_OVERLONG_DROP, [EXCESS_DROP] = NDP_OVERLONG_DROP,
                                      [EXCESS_TRUNCATE] = NDP_OVERLONG_TRUNCATE, [EXCESS_RAISE] = NDP_OVERLONG_ERROR};
    const int texts = 1 << NDP_RECORD_TEXT;
    if (m->read.pairs && m->job.data.min_tokens > 0) {
        m->job.data.min_tokens = 0;
        SAY(m, "min_sample_len: Axolotl reads it without `rl` only; data.min_tokens leaves out short pairs\n");
    } else if (m->sets.formats & texts && m->job.data.min_tokens > 0)
        SAY(m, "min_sample_len: Axolotl also leaves out the short rest of a text longer than a row\n");
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
    m->job.data.unique = m->read.unique == WORD_YES;
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
