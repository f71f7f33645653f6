/* Reads an imported file by the tables of keys. Each key of a mapping is looked up in the table of its section, its
 * value is read as its kind says, and what became of it is noted. Unknown keys and refusals do not end the walk: all of
 * them are reported at once (import_report.c). */
#include "import/import_parts.h"

#include "import/import_scalar.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

/* Moves to the next of names separated by spaces and returns its length; 0 after the last. */
static size_t next_name(const char **names) {
    *names += strspn(*names, " ");
    return strcspn(*names, " ");
}

/* The name as the table has it: without the prefix that a section's keys may have. */
static const char *bare(const char *name, const char *prefix) {
    size_t n = prefix ? strlen(prefix) : 0;
    return n && strncmp(name, prefix, n) == 0 ? name + n : name;
}

bool ndp_import_has_key(const char *section, const import_key *k) {
    const char *at = k->section;
    for (; *at && *at == *section; at++, section++)
        ;
    return !*at && (!*section || *section == ':');
}

/* The names of all rows, found by the hash of their text; and patterns, one behind the other. The tables are constant,
 * and so is this, once it is made. */
enum { MOST_NAMES = 2048, NO_NAME = MOST_NAMES };
typedef struct key_name {
    const char *text;
    size_t length;
    const import_key *key;
    int next;
} key_name;
static struct {
    key_name names[MOST_NAMES];
    int n, first[MOST_NAMES], patterns;
} names_known;
static pthread_once_t names_listed = PTHREAD_ONCE_INIT;

static unsigned hash_of(const char *text, size_t n) {
    unsigned h = 2166136261U;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619U;
    return h % MOST_NAMES;
}

/* From the last row to the first, so that lists have the order of the tables; of a row's names the order is the same.
 */
static void list_row(const import_key *k) {
    const char *text = k->names;
    for (size_t n; (n = next_name(&text)) && names_known.n < MOST_NAMES; text += n) {
        bool pattern = text[n - 1] == '*';
        int *head = pattern ? &names_known.patterns : &names_known.first[hash_of(text, n)];
        names_known.names[names_known.n] = (key_name){text, pattern ? n - 1 : n, k, *head};
        *head = names_known.n++;
    }
}

static void list_names(void) {
    int tables = 0;
    names_known.patterns = NO_NAME;
    for (int i = 0; i < MOST_NAMES; i++)
        names_known.first[i] = NO_NAME;
    while (ndp_import_tables[tables])
        tables++;
    while (tables-- > 0)
        for (int i = ndp_import_tables[tables]->n; i-- > 0;)
            list_row(&ndp_import_tables[tables]->keys[i]);
}

const import_key *ndp_import_key(const char *section, const char *prefix, const char *name) {
    pthread_once(&names_listed, list_names);
    const import_key *best = NULL;
    size_t longest =
        0; /* twice the letters of what fits, whole or a prefix, and one more if the row is the section's own */
    name = bare(name, prefix);
    size_t n = strlen(name);
    for (int at = names_known.first[hash_of(name, n)], whole = 1; whole >= 0; at = names_known.patterns, whole--)
        for (; at != NO_NAME; at = names_known.names[at].next) {
            const key_name *k = &names_known.names[at];
            size_t fits = 2 * (k->length + 1);
            if ((whole ? k->length != n : k->length > n) || memcmp(k->text, name, k->length) != 0 ||
                !ndp_import_has_key(section, k->key))
                continue;
            fits += strcmp(k->key->section, section) == 0;
            if (fits > longest) {
                best = k->key;
                longest = fits;
            }
        }
    return best;
}

/* Copies of names, for ndp_nearest. */
typedef struct name_list {
    char text[16384];
    size_t used;
    const char *items[512];
    int n;
} name_list;

static void add_names(name_list *l, const char *names, bool prefixes) {
    for (size_t length; (length = next_name(&names)); names += length) {
        bool fits = l->n < NDP_COUNT(l->items) && length < sizeof l->text - l->used;
        if (!fits || (names[length - 1] == '*' && !prefixes))
            continue;
        l->items[l->n++] = l->text + l->used;
        memcpy(l->text + l->used, names, length);
        l->text[l->used + length] = '\0';
        l->used += length + 1;
    }
}

static ndp_status note_unknown(ndp_import *m, struct fy_node *node, const char *section, const char *prefix,
                               const char *written, const char *name) {
    name_list known = {.n = 0};
    char why[160];
    for (const import_table *const *t = ndp_import_tables; *t; t++)
        for (int i = 0; i < (*t)->n; i++)
            if (ndp_import_has_key(section, &(*t)->keys[i]))
                add_names(&known, (*t)->keys[i].names, false);
    if (strcmp(written, "<<") == 0)
        return ndp_import_note(&m->notes, SEEN_UNKNOWN, name, node, "a merge key of YAML 1.1: write its keys here",
                               NULL);
    if (strncmp(written, "//", 2) == 0 || strncmp(written, "/*", 2) == 0)
        return ndp_import_note(&m->notes, SEEN_UNKNOWN, name, node, "a comment, which JSON does not have: remove it",
                               NULL);
    if (strncmp(written, "_comment", 8) == 0)
        return ndp_import_note(&m->notes, SEEN_LEFT, name, node, "a comment", NULL);
    const char *meant = ndp_nearest(bare(written, prefix), known.items, known.n);
    const char *before = bare(written, prefix) != written ? prefix : "";
    snprintf(why, sizeof why, "unknown key%s%s%.100s%s", meant ? "; did you mean '" : "", meant ? before : "",
             meant ? meant : "", meant ? "'?" : "");
    return ndp_import_note(&m->notes, SEEN_UNKNOWN, name, node, why, NULL);
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

static bool is_word(const char *word, size_t n, const char *text) {
    if (word[n - 1] == '*')
        return strncasecmp(word, text, n - 1) == 0;
    return strncasecmp(word, text, n) == 0 && !text[n];
}

static ndp_status fail_word(ndp_import *m, const import_key *k, struct fy_node *value, const char *name) {
    const char *text = ndp_yaml_text(value);
    name_list known = {.n = 0};
    ndp_str s = {0};
    for (const import_word *w = k->words; w->words; w++)
        add_names(&known, w->words, true);
    for (int i = 0; i < known.n; i++)
        ndp_str_addf(&s, "%s%s", i ? ", " : "", known.items[i]);
    const char *meant = text ? ndp_nearest(text, known.items, known.n) : NULL;
    ndp_status st = ndp_yaml_fail(m->notes.y, value, "'%s' is '%.60s', expected one of %s%s%s%s", name,
                                  text                         ? text
                                  : fy_node_is_sequence(value) ? "a list"
                                                               : "a mapping",
                                  s.failed ? "the known words" : s.data, meant ? "; did you mean '" : "",
                                  meant ? meant : "", meant ? "'?" : "");
    ndp_str_release(&s);
    return st;
}

static const import_word *find_word(const import_key *k, const char *text) {
    for (const import_word *w = k->words; text && w->words; w++) {
        const char *words = w->words;
        for (size_t n; (n = next_name(&words)); words += n)
            if (is_word(words, n, text))
                return w;
    }
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
    if (w->refused)
        return ndp_import_refuse(&m->notes, name, ndp_yaml_text(value), key, w->refused, k->ours);
    return ndp_import_note(&m->notes, k->why ? SEEN_LEFT : SEEN_CARRIED, name, key, k->why, NULL);
}

/* Marks the key of ours that a value was read into. */
static void mark_target(ndp_import *m, const import_key *k) {
    size_t job = offsetof(ndp_import, job);
    if (k->offset >= job && k->offset < job + sizeof m->job)
        ndp_import_mark(m, k->offset - job);
}

/* "auto" leaves a number to the program, as if the key were missing. */
static ndp_status read_value(ndp_import *m, const import_key *k, struct fy_node *key, struct fy_node *value,
                             const char *name) {
    const char *text = ndp_yaml_text(value);
    bool numbers = k->type != NDP_OPTION_TEXT && k->type != NDP_OPTION_LIST,
         number = numbers && k->type != NDP_OPTION_PAIR;
    if (numbers && text && strcmp(text, "auto") == 0)
        return NDP_OK;
    ndp_option o = {.section = "",
                    .key = name,
                    .offset = k->offset,
                    .role = NDP_KEY_FREE,
                    .type = k->type,
                    .low = k->low,
                    .high = k->high,
                    .interval = k->interval};
    char digits[NDP_IMPORT_DIGITS];
    if (!number)
        NDP_TRY(ndp_option_read(&o, m->notes.y, value, m));
    else if (!ndp_import_digits(value, k->type != NDP_OPTION_NUMBER, digits) || !ndp_option_digits(&o, digits, m))
        return ndp_option_unexpected(&o, m->notes.y, value);
    mark_target(m, k);
    return ndp_import_note(&m->notes, SEEN_CARRIED, name, key, NULL, NULL);
}

static ndp_status read_key(ndp_import *m, const import_key *k, struct fy_node *key, struct fy_node *value,
                           const char *name) {
    NDP_TRY(ndp_yaml_follow(m->notes.y, &value));
    if (ndp_import_is_null(value)) /* missing */
        return NDP_OK;
    switch (k->kind) {
    case IMPORT_VALUE:
        return read_value(m, k, key, value, name);
    case IMPORT_WORD:
        mark_target(m, k);
        return read_word(m, k, key, value, name);
    case IMPORT_SECTION:
        NDP_TRY(ndp_import_note(&m->notes, SEEN_CARRIED, name, key, NULL, NULL));
        return ndp_import_walk(m, value, k->inside, k->prefix, name);
    case IMPORT_EACH:
        NDP_TRY(ndp_import_note(&m->notes, SEEN_CARRIED, name, key, NULL, NULL));
        return k->each(m, value, name);
    case IMPORT_LEFT:
        return ndp_import_note(&m->notes, SEEN_LEFT, name, key, k->why, NULL);
    case IMPORT_REFUSED:
        if (is_off(value))
            return NDP_OK;
        return ndp_import_refuse(&m->notes, name, ndp_yaml_text(value), key, k->why, k->ours);
    }
    return NDP_FAIL(NDP_EBUG, "key %s has no kind", name);
}

ndp_status ndp_import_walk(ndp_import *m, struct fy_node *node, const char *section, const char *prefix,
                           const char *name) {
    NDP_TRY(ndp_yaml_follow(m->notes.y, &node));
    if (!fy_node_is_mapping(node))
        return ndp_yaml_fail(m->notes.y, node, "'%s' is a section: expected KEY: VALUE below it", name);
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(node, &place));) {
        struct fy_node *key = fy_node_pair_key(pair);
        const char *written = ndp_yaml_text(key);
        m->notes.y->near = key ? key : m->notes.y->near;
        if (!written)
            return ndp_yaml_fail(m->notes.y, key, "expected a word as the key");
        char dotted[200];
        snprintf(dotted, sizeof dotted, "%.90s%s%.90s", name, *name ? "." : "", written);
        const import_key *k = ndp_import_key(section, prefix, written);
        if (k)
            NDP_TRY(read_key(m, k, key, fy_node_pair_value(pair), dotted));
        else
            NDP_TRY(note_unknown(m, key, section, prefix, written, dotted));
    }
    return NDP_OK;
}

ndp_status ndp_import_items(ndp_import *m, struct fy_node *value, const char *name,
                            ndp_status (*each)(ndp_import *m, struct fy_node *item, const char *name)) {
    bool many = fy_node_is_sequence(value);
    void *place = NULL;
    struct fy_node *item = many ? fy_node_sequence_iterate(value, &place) : value;
    for (; item; item = many ? fy_node_sequence_iterate(value, &place) : NULL) {
        NDP_TRY(ndp_yaml_follow(m->notes.y, &item));
        NDP_TRY(each(m, item, name));
    }
    return NDP_OK;
}
