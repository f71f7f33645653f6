#include "config/import.h"

#include "config/import_parts.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- notes ---- */

ndp_status ndp_import_note(ndp_import *m, import_verdict verdict, const char *name, struct fy_node *node,
                           const char *why, const char *ours) {
    enum { MOST = 4096 };
    NDP_CHECK(m->seen_count < MOST, "%s: more than %d keys; a configuration has some tens", m->yaml.what, MOST);
    const char *kept = ndp_arena_strdup(&m->arena, name), *reason = ndp_arena_strdup(&m->arena, why ? why : "");
    if (!kept || !reason)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to import it", m->yaml.what);
    NDP_TRY(ndp_array_reserve(&m->seen, &m->seen_capacity, m->seen_count + 1, sizeof *m->seen));
    m->seen[m->seen_count++] = (import_seen){verdict, kept, m->y, node, reason, ours};
    return NDP_OK;
}

ndp_status ndp_import_refuse(ndp_import *m, const char *name, const char *value, struct fy_node *node, const char *why,
                             const char *ours) {
    char shown[200];
    snprintf(shown, sizeof shown, value ? "%.90s: %.90s" : "%.90s", name, value);
    return ndp_import_note(m, SEEN_REFUSED, shown, node, why, ours);
}

const import_seen *ndp_import_find(const ndp_import *m, const char *name) {
    for (int64_t i = m->seen_count; i-- > 0;)
        if (strcmp(m->seen[i].name, name) == 0)
            return &m->seen[i];
    return NULL;
}

ndp_status ndp_import_fail(ndp_import *m, const char *name, const char *fmt, ...) {
    const import_seen *seen = ndp_import_find(m, name);
    va_list args;
    va_start(args, fmt);
    char *message = NULL;
    if (vasprintf(&message, fmt, args) < 0)
        message = NULL;
    va_end(args);
    const char *said = message ? message : "not enough memory to say what is wrong";
    ndp_status st = seen && seen->node ? ndp_yaml_fail(seen->y, seen->node, "%s", said)
                                       : NDP_FAIL(NDP_EINVAL, "%s: %s", m->yaml.what, said);
    free(message);
    return st;
}

bool ndp_import_is_set(const ndp_import *m, const char *ours) {
    size_t n = ours ? strlen(ours) : 0;
    for (int i = 0; n && i < m->o->assignment_count; i++)
        if (strncmp(m->o->assignments[i], ours, n) == 0 && m->o->assignments[i][n] == '=')
            return true;
    return false;
}

/* ---- keys ---- */

/* How well a pattern of `n` letters fits a word: the number of letters they share, plus one for a whole word; 0: it
 * does not fit. */
static size_t fit(const char *pattern, size_t n, const char *word) {
    if (n && pattern[n - 1] == '*')
        return strncmp(pattern, word, n - 1) == 0 ? n : 0;
    return strncmp(pattern, word, n) == 0 && !word[n] ? n + 1 : 0;
}

/* Moves to the next of names separated by spaces and returns its length; 0 after the last. */
static size_t next_name(const char **names) {
    *names += strspn(*names, " ");
    return strcspn(*names, " ");
}

/* The key of a section for this name: the one that shares the most letters. */
static const import_key *find_key(const char *section, const char *name) {
    const import_key *best = NULL;
    size_t longest = 0;
    for (const import_table *const *t = ndp_import_tables; *t; t++)
        for (int i = 0; i < (*t)->n; i++) {
            const import_key *k = &(*t)->keys[i];
            const char *known = k->names;
            if (strcmp(k->section, section) != 0)
                continue;
            for (size_t n, fits; (n = next_name(&known)); known += n)
                if ((fits = fit(known, n, name)) > longest) {
                    best = k;
                    longest = fits;
                }
        }
    return best;
}

/* The name as the table has it: without the prefix that a section's keys may have. */
static const char *bare(const char *name, const char *prefix) {
    size_t n = prefix ? strlen(prefix) : 0;
    return n && strncmp(name, prefix, n) == 0 ? name + n : name;
}

/* All names of a section that are whole words, copied into `text`. */
static int names_of(const char *section, char *text, size_t size, const char **out, int most) {
    char *at = text;
    int n = 0;
    for (const import_table *const *t = ndp_import_tables; *t; t++)
        for (int i = 0; i < (*t)->n; i++) {
            const char *known = (*t)->keys[i].names;
            if (strcmp((*t)->keys[i].section, section) != 0)
                continue;
            for (size_t length; (length = next_name(&known)); known += length) {
                bool fits = n < most && length < (size_t)(text + size - at);
                if (known[length - 1] == '*' || !fits)
                    continue;
                out[n++] = at;
                at = (char *)mempcpy(at, known, length) + 1;
                at[-1] = '\0';
            }
        }
    return n;
}

static ndp_status note_unknown(ndp_import *m, struct fy_node *node, const char *section, const char *prefix,
                               const char *written, const char *name) {
    enum { MOST = 512, LETTERS = 16384 };
    const char *known[MOST];
    char names[LETTERS], why[160];
    const char *meant = ndp_nearest(bare(written, prefix), known, names_of(section, names, sizeof names, known, MOST));
    const char *before = bare(written, prefix) != written ? prefix : "";
    snprintf(why, sizeof why, "unknown key%s%s%.100s%s", meant ? "; did you mean '" : "", meant ? before : "",
             meant ? meant : "", meant ? "'?" : "");
    return ndp_import_note(m, SEEN_UNKNOWN, name, node, why, NULL);
}

/* "adapter: lora", where the value is short and plain. */
static const char *with_value(const char *name, struct fy_node *value, char *out, size_t size) {
    const char *text = ndp_yaml_text(value);
    snprintf(out, size, text && *text ? "%s: %.60s" : "%s", name, text);
    return out;
}

/* ---- values ---- */

static bool is_off(struct fy_node *value) {
    static const char *const off[] = {"false", "no", "off", "none", "null", "0", "0.0", ""};
    if (fy_node_is_sequence(value))
        return fy_node_sequence_item_count(value) == 0;
    if (fy_node_is_mapping(value))
        return fy_node_mapping_item_count(value) == 0;
    const char *text = ndp_yaml_text(value);
    for (int i = 0; text && i < NDP_COUNT(off); i++)
        if (strcasecmp(text, off[i]) == 0)
            return true;
    return false;
}

static bool is_word(const char *word, const char *text) {
    size_t n = strlen(word);
    return word[n - 1] == '*' ? strncasecmp(word, text, n - 1) == 0 : strcasecmp(word, text) == 0;
}

static ndp_status fail_word(ndp_import *m, const import_key *k, struct fy_node *value, const char *name) {
    const char *text = ndp_yaml_text(value), *known[64];
    int n = 0;
    ndp_str s = {0};
    for (; k->words[n].word && n < NDP_COUNT(known); n++) {
        known[n] = k->words[n].word;
        ndp_str_addf(&s, "%s%s", n ? ", " : "", known[n]);
    }
    const char *meant = text ? ndp_nearest(text, known, n) : NULL;
    ndp_status st = ndp_yaml_fail(m->y, value, "'%s' is '%.60s', expected one of %s%s%s%s", name,
                                  text                         ? text
                                  : fy_node_is_sequence(value) ? "a list"
                                                               : "a mapping",
                                  s.failed ? "the known words" : s.data, meant ? "; did you mean '" : "",
                                  meant ? meant : "", meant ? "'?" : "");
    ndp_str_release(&s);
    return st;
}

static const import_word *find_word(const import_key *k, const char *text) {
    for (const import_word *w = k->words; text && w->word; w++)
        if (is_word(w->word, text))
            return w;
    return NULL;
}

static ndp_status read_word(ndp_import *m, const import_key *k, struct fy_node *key, struct fy_node *value,
                            const char *name) {
    bool truth;
    const import_word *w = find_word(k, ndp_yaml_text(value));
    if (!w && ndp_import_truth(value, &truth))
        w = find_word(k, truth ? "true" : "false");
    if (!w)
        return fail_word(m, k, value, name);
    memcpy((char *)m + k->offset, &w->value, sizeof w->value);
    if (w->refused) {
        char shown[200];
        return ndp_import_note(m, SEEN_REFUSED, with_value(name, value, shown, sizeof shown), key, w->refused, k->ours);
    }
    return ndp_import_note(m, k->why ? SEEN_LEFT : SEEN_CARRIED, name, key, k->why, NULL);
}

/* "auto" for a number leaves it to the program, as if it were missing. */
static ndp_status read_value(ndp_import *m, const import_key *k, struct fy_node *key, struct fy_node *value,
                             const char *name) {
    const char *text = ndp_yaml_text(value);
    bool number = k->type != NDP_OPTION_TEXT && k->type != NDP_OPTION_LIST;
    if (number && text && strcmp(text, "auto") == 0)
        return NDP_OK;
    ndp_option o = {"",      name,          k->offset,       NDP_KEY_FREE,
                    k->type, .low = k->low, .high = k->high, .interval = k->interval};
    char digits[NDP_IMPORT_DIGITS];
    if (!number)
        NDP_TRY(ndp_option_read(&o, m->y, value, m));
    else if (!ndp_import_digits(value, k->type != NDP_OPTION_NUMBER, digits) || !ndp_option_digits(&o, digits, m))
        return ndp_option_unexpected(&o, m->y, value);
    return ndp_import_note(m, SEEN_CARRIED, name, key, NULL, NULL);
}

/* Marks the key of ours that a value was read into. */
static ndp_status mark_target(ndp_import *m, const import_key *k) {
    size_t job = offsetof(ndp_import, job);
    bool ours = k->offset >= job && k->offset < job + sizeof m->job;
    return ours ? ndp_import_mark(m, k->offset - job) : NDP_OK;
}

static ndp_status read_key(ndp_import *m, const import_key *k, struct fy_node *key, struct fy_node *value,
                           const char *name) {
    char shown[200];
    NDP_TRY(ndp_yaml_follow(m->y, &value));
    if (ndp_import_is_null(value)) /* missing */
        return NDP_OK;
    switch (k->kind) {
    case IMPORT_VALUE:
        NDP_TRY(mark_target(m, k));
        return read_value(m, k, key, value, name);
    case IMPORT_WORD:
        NDP_TRY(mark_target(m, k));
        return read_word(m, k, key, value, name);
    case IMPORT_SECTION:
        NDP_TRY(ndp_import_note(m, SEEN_CARRIED, name, key, NULL, NULL));
        return ndp_import_walk(m, value, k->inside, k->prefix, name);
    case IMPORT_EACH:
        NDP_TRY(ndp_import_note(m, SEEN_CARRIED, name, key, NULL, NULL));
        return k->each(m, value, name);
    case IMPORT_LEFT:
        return ndp_import_note(m, SEEN_LEFT, name, key, k->why, NULL);
    case IMPORT_REFUSED:
        if (is_off(value))
            return NDP_OK;
        return ndp_import_note(m, SEEN_REFUSED, with_value(name, value, shown, sizeof shown), key, k->why, k->ours);
    }
    return NDP_FAIL(NDP_EBUG, "key %s has no kind", name);
}

ndp_status ndp_import_walk(ndp_import *m, struct fy_node *node, const char *section, const char *prefix,
                           const char *name) {
    NDP_TRY(ndp_yaml_follow(m->y, &node));
    if (!fy_node_is_mapping(node))
        return ndp_yaml_fail(m->y, node, "'%s' is a section: expected KEY: VALUE below it", name);
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(node, &place));) {
        struct fy_node *key = fy_node_pair_key(pair);
        const char *written = ndp_yaml_text(key);
        m->y->near = key ? key : m->y->near;
        if (!written)
            return ndp_yaml_fail(m->y, key, "a key is a word");
        char dotted[200];
        snprintf(dotted, sizeof dotted, "%.90s%s%.90s", name, *name ? "." : "", written);
        const import_key *k = find_key(section, bare(written, prefix));
        if (k)
            NDP_TRY(read_key(m, k, key, fy_node_pair_value(pair), dotted));
        else
            NDP_TRY(note_unknown(m, key, section, prefix, written, dotted));
    }
    return NDP_OK;
}

/* ---- a file ---- */

/* The dialect that knows the most keys of the file. */
static ndp_status choose_dialect(ndp_import *m) {
    int most = 0;
    if (!m->yaml.root || !fy_node_is_mapping(m->yaml.root))
        return ndp_yaml_fail(&m->yaml, m->yaml.root, "expected the keys of an Axolotl or Accelerate configuration");
    for (int d = 0; d < ndp_import_dialect_count; d++) {
        int known = 0;
        void *place = NULL;
        for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(m->yaml.root, &place));) {
            const char *name = ndp_yaml_text(fy_node_pair_key(pair));
            known += name && find_key(ndp_import_dialects[d].section, bare(name, "parallelism_config_")) != NULL;
        }
        if (known > most) {
            most = known;
            m->dialect = &ndp_import_dialects[d];
        }
    }
    if (!m->dialect)
        return ndp_yaml_fail(
            &m->yaml, m->yaml.root,
            "no key of an Axolotl or Accelerate configuration, such as base_model, distributed_type or "
            "parallelism_config");
    return NDP_OK;
}

static ndp_status assign(ndp_import *m) {
    for (int i = 0; i < m->o->assignment_count; i++)
        NDP_TRY(ndp_config_set(&m->job, m->o->assignments[i]));
    return NDP_OK;
}

static ndp_status run(ndp_import *m, const char *text, size_t size, const char *what) {
    NDP_TRY(ndp_config_init(&m->job));
    NDP_TRY(ndp_yaml_open(&m->yaml, what, text, size, 0));
    NDP_TRY(choose_dialect(m));
    for (int i = 0; m->dialect->defaults[i]; i++)
        NDP_TRY(ndp_config_set(&m->job, m->dialect->defaults[i]));
    NDP_TRY(ndp_import_walk(m, m->yaml.root, m->dialect->section, "parallelism_config_", ""));
    NDP_TRY(assign(m)); /* what follows sees the user's keys, */
    NDP_TRY(ndp_import_finish(m));
    NDP_TRY(assign(m)); /* and does not replace them */
    ndp_import_say_schedule(m);
    return ndp_import_judge(m);
}

static void release(ndp_import *m) {
    for (int k = 0; k < m->fsdp.n; k++)
        free(m->fsdp.items[k]);
    free(m->fsdp.items);
    ndp_import_forget_set(m);
    ndp_yaml_close(&m->yaml);
    ndp_yaml_close(&m->deepspeed_yaml);
    free(m->deepspeed_text);
    free(m->chat_template);
    free(m->chats);
    free(m->seen);
    free(m->imported);
    ndp_str_release(&m->remarks);
    ndp_arena_release(&m->arena);
    ndp_config_release(&m->job);
}

ndp_status ndp_config_import_text(ndp_config *c, const char *text, size_t size, const char *what,
                                  const ndp_import_opts *o, char **job, char **notes) {
    char *written = NULL;
    ndp_import m = {
        .o = o, .y = &m.yaml, .zero_stage = -1, .max_steps = -1, .warmup = -1, .warmup_ratio = -1, .min_lr_ratio = -1};
    ndp_status st = run(&m, text, size, what);
    if (st == NDP_OK)
        st = ndp_import_job(&m, &written);
    if (st == NDP_OK)
        st = ndp_import_report(&m, notes);
    if (st == NDP_OK) {
        *job = written;
        written = NULL;
        ndp_config_release(c);
        *c = m.job;
        memset(&m.job, 0, sizeof m.job);
    }
    free(written);
    release(&m);
    return st;
}

ndp_status ndp_config_import(ndp_config *c, const char *path, const ndp_import_opts *o, char **job, char **notes) {
    char *text;
    size_t size;
    NDP_TRY(ndp_file_read_as(NDP_FILE_JOB, path, &text, &size));
    ndp_status st = ndp_config_import_text(c, text, size, path, o, job, notes);
    free(text);
    return st;
}
