/* One option of a table: reads, writes, copies and releases the member that it describes, by its type. */
#include "options/option.h"

#include "options/meant.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field(const ndp_option *o, void *c) { return (char *)c + o->offset; }
static const void *const_field(const ndp_option *o, const void *c) { return (const char *)c + o->offset; }

static int count_words(const ndp_option *o) {
    int n = 0;
    while (o->words && o->words[n])
        n++;
    return n;
}

void ndp_option_expects(const ndp_option *o, ndp_str *out) {
    if (o->type == NDP_OPTION_INT || o->type == NDP_OPTION_INT64)
        ndp_str_addf(out, "a whole number from %lld to %lld%s", (long long)o->low, (long long)o->high,
                     o->open ? ", or auto" : "");
    else if (o->type == NDP_OPTION_NUMBER)
        ndp_str_addf(out, "a number in %s%s", o->interval, o->words ? ", or " : "");
    else if (o->type == NDP_OPTION_PAIR)
        ndp_str_addf(out, "[a, b], two numbers in %s", o->interval);
    else if (o->type == NDP_OPTION_BOOL)
        ndp_str_add(out, "true or false");
    else if (o->type == NDP_OPTION_ENTRIES)
        ndp_str_add(out, "a name, {path: NAME, KEY: VALUE, ...}, or a list of these");
    else if (o->type == NDP_OPTION_LIST)
        ndp_str_add(out, o->open    ? "NAME: VALUE, or a list or mapping of these"
                         : o->words ? "a list of "
                                    : "a string or a list of strings");
    else if (o->type == NDP_OPTION_MAPPINGS)
        ndp_str_add(out, "{KEY: VALUE, ...}, or a list of these");
    else if (!o->words)
        ndp_str_add(out, o->value ? "a string" : "a string or null");
    for (int i = 0, n = count_words(o); i < n; i++)
        ndp_str_add_choice(out, i, n, o->words[i]);
    if (o->also)
        ndp_str_addf(out, ", %s", o->also);
}

/* "'optimizer.lr' is 'fast', expected a number in [0, inf)" */
ndp_status ndp_option_unexpected(const ndp_option *o, ndp_yaml *y, struct fy_node *node) {
    const char *text = ndp_yaml_text(node);
    ndp_str s = {0};
    ndp_str_addf(&s, "'%s%s%s' is ", o->section, *o->section ? "." : "", o->key);
    if (!text)
        ndp_str_add(&s, fy_node_is_sequence(node) ? "a list" : fy_node_is_mapping(node) ? "a mapping" : "not a string");
    else if (ndp_yaml_is_null(node))
        ndp_str_add(&s, "empty");
    else
        ndp_str_addf(&s, ndp_yaml_is_plain(node) ? "'%.60s'" : "the string \"%.60s\"", text);
    ndp_str_add(&s, ", expected ");
    ndp_option_expects(o, &s);
    if (text && !ndp_yaml_is_null(node))
        ndp_meant_add(o, text, !ndp_yaml_is_plain(node), &s);
    return ndp_yaml_fail_str(y, node, &s);
}

static const char *plain_text(struct fy_node *node) { return ndp_yaml_is_plain(node) ? ndp_yaml_text(node) : NULL; }

static bool read_int(const ndp_option *o, const char *text, int64_t *out) {
    char *end;
    if (!text || !*text)
        return false;
    if (o->open && strcmp(text, "auto") == 0) {
        *out = 0;
        return true;
    }
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || *end || v < o->low || v > o->high)
        return false;
    *out = v;
    return true;
}

static bool in_interval(const char *interval, double v) {
    char *comma, *right;
    double low = strtod(interval + 1, &comma), high = strtod(comma + 1, &right);
    return (*interval == '[' ? v >= low : v > low) && (*right == ']' ? v <= high : v < high);
}

static bool read_number(const ndp_option *o, const char *text, double *out) {
    char *end;
    if (text && o->words && strcmp(text, o->words[0]) == 0) {
        *out = 0;
        return true;
    }
    /* strtod also accepts hexadecimal, nan and inf */
    if (!text || !*text || strspn(text, "0123456789+-.eE") != strlen(text))
        return false;
    double v = strtod(text, &end);
    if (*end || !isfinite(v) || !in_interval(o->interval, v))
        return false;
    *out = v == 0 ? 0 : v; /* -0 would be written as another number */
    return true;
}

static ndp_status read_pair(const ndp_option *o, ndp_yaml *y, struct fy_node *node, double *out) {
    double v[2];
    if (!node || !fy_node_is_sequence(node) || fy_node_sequence_item_count(node) != 2)
        return ndp_option_unexpected(o, y, node);
    for (int i = 0; i < 2; i++) {
        struct fy_node *item = fy_node_sequence_get_by_index(node, i);
        NDP_TRY(ndp_yaml_follow(y, &item));
        if (!read_number(o, plain_text(item), &v[i]))
            return ndp_option_unexpected(o, y, item);
    }
    memcpy(out, v, sizeof v);
    return NDP_OK;
}

static ndp_status read_word(const ndp_option *o, ndp_yaml *y, struct fy_node *node, int *out) {
    const char *text = ndp_yaml_text(node);
    for (int i = 0; text && o->words[i]; i++)
        if (strcmp(text, o->words[i]) == 0) {
            *out = o->meanings ? o->meanings[i] : i;
            return NDP_OK;
        }
    return ndp_option_unexpected(o, y, node);
}

static ndp_status read_bool(const ndp_option *o, ndp_yaml *y, struct fy_node *node, bool *out) {
    const char *text = plain_text(node);
    bool yes = text && strcmp(text, "true") == 0;
    if (!yes && !(text && strcmp(text, "false") == 0))
        return ndp_option_unexpected(o, y, node);
    *out = yes;
    return NDP_OK;
}

static ndp_status fail_memory(void) { return NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration"); }

ndp_status ndp_option_copy_text(const char *text, char **out) {
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy)
        return fail_memory();
    free(*out);
    *out = copy;
    return NDP_OK;
}

static ndp_status read_text(const ndp_option *o, ndp_yaml *y, struct fy_node *node, char **out) {
    if (!o->value && ndp_yaml_is_null(node))
        return ndp_option_copy_text(NULL, out);
    const char *text = ndp_yaml_text(node);
    int index;
    if (!text || !*text || ndp_yaml_is_null(node))
        return ndp_option_unexpected(o, y, node);
    if (o->words)
        NDP_TRY(read_word(o, y, node, &index));
    return ndp_option_copy_text(text, out);
}

/* A mapping as items "name: value". */
static ndp_status read_pairs(const ndp_option *o, ndp_yaml *y, struct fy_node *mapping, ndp_strings *list) {
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(mapping, &place));) {
        struct fy_node *key = fy_node_pair_key(pair), *value = fy_node_pair_value(pair);
        NDP_TRY(ndp_yaml_follow(y, &value));
        const char *name = ndp_yaml_text(key), *text = ndp_yaml_text(value);
        if (!name || !*name || !text || !*text || ndp_yaml_is_null(value))
            return ndp_option_unexpected(o, y, mapping);
        char *item = ndp_format("%s: %s", name, text);
        ndp_status st = item ? ndp_strings_add(list, item) : NDP_FAIL(NDP_ENOMEM, "not enough memory for %s", o->key);
        free(item);
        NDP_TRY(st);
    }
    return NDP_OK;
}

static ndp_status read_item(const ndp_option *o, ndp_yaml *y, struct fy_node *item, ndp_strings *list) {
    NDP_TRY(ndp_yaml_follow(y, &item));
    if (o->open && fy_node_is_mapping(item))
        return read_pairs(o, y, item, list);
    const char *text = ndp_yaml_text(item);
    bool missing = !text || !*text || ndp_yaml_is_null(item);
    int index;
    if (!missing && o->words)
        NDP_TRY(read_word(o, y, item, &index));
    return missing ? ndp_option_unexpected(o, y, item) : ndp_strings_add(list, text);
}

/* The lists of a member, and how many: two of ENTRIES, one of a LIST and of MAPPINGS. Callers with a const struct only
 * read them. */
static int lists_of(const ndp_option *o, void *c, ndp_strings *lists[2]) {
    lists[0] = field(o, c);
    lists[1] = (ndp_strings *)(void *)((char *)c + o->own);
    return o->type == NDP_OPTION_ENTRIES ? 2 : o->type == NDP_OPTION_LIST || o->type == NDP_OPTION_MAPPINGS;
}

/* An item of a LIST or of ENTRIES, whose own options go to lists[1]. */
static ndp_status read_any_item(const ndp_option *o, ndp_yaml *y, struct fy_node *item, ndp_strings lists[2]) {
    if (o->type == NDP_OPTION_LIST)
        return read_item(o, y, item, &lists[0]);
    NDP_TRY(ndp_yaml_follow(y, &item));
    if (item && fy_node_is_mapping(item))
        return o->read_entry(o, y, item, &lists[0], &lists[1]);
    if (o->type == NDP_OPTION_MAPPINGS)
        return ndp_option_unexpected(o, y, item);
    NDP_TRY(read_item(o, y, item, &lists[0]));
    return ndp_strings_add(&lists[1], "");
}

/* A list, or one item without a list. What was there is replaced if all is read. */
static ndp_status read_list(const ndp_option *o, ndp_yaml *y, struct fy_node *node, void *into) {
    ndp_status st = NDP_OK;
    bool many = node && fy_node_is_sequence(node);
    int n = ndp_yaml_is_null(node) ? 0 : many ? fy_node_sequence_item_count(node) : 1;
    ndp_strings lists[2] = {{0}}, *out[2];
    void *place = NULL;
    for (int i = 0; i < n && st == NDP_OK; i++)
        st = read_any_item(o, y, many ? fy_node_sequence_iterate(node, &place) : node, lists);
    for (int i = 0, k = lists_of(o, into, out); i < k; i++) {
        ndp_strings_release(st == NDP_OK ? out[i] : &lists[i]);
        if (st == NDP_OK)
            *out[i] = lists[i];
    }
    return st;
}

bool ndp_option_digits(const ndp_option *o, const char *digits, void *into) {
    void *out = field(o, into);
    int64_t v;
    if (o->type == NDP_OPTION_NUMBER)
        return read_number(o, digits, out);
    if (!read_int(o, digits, &v))
        return false;
    if (o->type == NDP_OPTION_INT)
        *(int *)out = (int)v;
    else
        *(int64_t *)out = v;
    return true;
}

ndp_status ndp_option_read(const ndp_option *o, ndp_yaml *y, struct fy_node *node, void *into) {
    void *out = field(o, into);
    NDP_TRY(ndp_yaml_follow(y, &node));
    switch (o->type) {
    case NDP_OPTION_INT:
    case NDP_OPTION_INT64:
    case NDP_OPTION_NUMBER:
        return ndp_option_digits(o, plain_text(node), into) ? NDP_OK : ndp_option_unexpected(o, y, node);
    case NDP_OPTION_PAIR:
        return read_pair(o, y, node, out);
    case NDP_OPTION_BOOL:
        return read_bool(o, y, node, out);
    case NDP_OPTION_WORD:
        return read_word(o, y, node, out);
    case NDP_OPTION_TEXT:
        return read_text(o, y, node, out);
    case NDP_OPTION_ENTRIES:
    case NDP_OPTION_LIST:
    case NDP_OPTION_MAPPINGS:
        return read_list(o, y, node, into);
    }
    return NDP_FAIL(NDP_EBUG, "option %s.%s has no type", o->section, o->key);
}

/* A value that means itself in YAML: a word of small letters, which a word of the option may also begin with a digit,
 * or an empty list. False: the option has no such word, or it means another value. */
static bool parse_plain(const ndp_option *o, const char *value, void *into) {
    bool yes = strcmp(value, "true") == 0, no = strcmp(value, "false") == 0, null = strcmp(value, "null") == 0,
         plain = !null && ((*value >= 'a' && *value <= 'z') || (*value == '.' && value[1] == '/')) &&
                 !value[strspn(value, "abcdefghijklmnopqrstuvwxyz_0123456789/.-")];
    ndp_strings *lists[2];
    int n =
        strcmp(value, "[]") == 0 || (plain && o->type == NDP_OPTION_LIST && !o->words) ? lists_of(o, into, lists) : 0;
    for (int i = 0; i < n; i++)
        ndp_strings_release(lists[i]);
    if (n > 0)
        return !plain || ndp_strings_add(lists[0], value) == NDP_OK;
    if (o->type == NDP_OPTION_BOOL && (yes || no))
        *(bool *)field(o, into) = yes;
    else if (o->type == NDP_OPTION_TEXT && null && !o->value)
        return ndp_option_copy_text(NULL, field(o, into)) == NDP_OK;
    else if (o->type == NDP_OPTION_TEXT && plain && !o->words)
        return ndp_option_copy_text(value, field(o, into)) == NDP_OK;
    else
        for (int i = 0; o->type == NDP_OPTION_WORD && o->words[i]; i++)
            if (strcmp(o->words[i], value) == 0) {
                *(int *)field(o, into) = o->meanings ? o->meanings[i] : i;
                return true;
            }
    return o->type == NDP_OPTION_BOOL && (yes || no);
}

/* The parser of YAML takes a while, and a configuration has more than a hundred defaults: most values need none. */
ndp_status ndp_option_parse(const ndp_option *o, const char *value, void *into) {
    ndp_yaml y;
    if ((o->type <= NDP_OPTION_NUMBER && ndp_option_digits(o, value, into)) || parse_plain(o, value, into))
        return NDP_OK;
    ndp_status st = ndp_yaml_open(&y, "defaults", value, strlen(value), 0);
    if (st == NDP_OK)
        st = ndp_option_read(o, &y, y.root, into);
    ndp_yaml_close(&y);
    return st;
}

/* In double quotes, the only style that can hold every string. */
void ndp_option_write_text(const char *text, ndp_str *out) {
    if (!text) {
        ndp_str_add(out, "null");
        return;
    }
    ndp_str_add(out, "\"");
    for (size_t n; *text; text += n) {
        uint32_t c;
        bool visible;
        n = ndp_yaml_character(text, &c, &visible);
        if (c == '"' || c == '\\')
            ndp_str_addf(out, "\\%c", (char)c);
        else if (visible)
            ndp_str_add_bytes(out, text, n);
        else
            ndp_str_addf(out, "\\U%08x", c);
    }
    ndp_str_add(out, "\"");
}

/* An entry of a list: its name, or with `own`, "{format: alpaca}", the mapping {path: NAME, format: alpaca}. */
static void write_entry(const char *name, const char *own, ndp_str *out) {
    ndp_str_add(out, *own ? "{path: " : "");
    ndp_option_write_text(name, out);
    if (*own)
        ndp_str_addf(out, ", %s", own + 1);
}

static const char *word_of(const ndp_option *o, int value) {
    int i = 0;
    while (o->words[i + 1] && (o->meanings ? o->meanings[i] : i) != value)
        i++;
    return o->words[i];
}

void ndp_option_write(const ndp_option *o, const void *from, ndp_str *out) {
    const void *at = const_field(o, from);
    if (o->type == NDP_OPTION_INT && o->open && *(const int *)at == 0)
        ndp_str_add(out, "auto");
    else if (o->type == NDP_OPTION_INT)
        ndp_str_addf(out, "%d", *(const int *)at);
    else if (o->type == NDP_OPTION_INT64)
        ndp_str_addf(out, "%lld", (long long)*(const int64_t *)at);
    else if (o->type == NDP_OPTION_NUMBER && o->words && *(const double *)at == 0)
        ndp_str_add(out, o->words[0]);
    else if (o->type == NDP_OPTION_NUMBER)
        ndp_str_add_number(out, *(const double *)at);
    else if (o->type == NDP_OPTION_PAIR) {
        ndp_str_add(out, "[");
        ndp_str_add_number(out, ((const double *)at)[0]);
        ndp_str_add(out, ", ");
        ndp_str_add_number(out, ((const double *)at)[1]);
        ndp_str_add(out, "]");
    } else if (o->type == NDP_OPTION_BOOL)
        ndp_str_add(out, *(const bool *)at ? "true" : "false");
    else if (o->type == NDP_OPTION_WORD)
        ndp_str_add(out, word_of(o, *(const int *)at));
    else if (o->type == NDP_OPTION_TEXT)
        ndp_option_write_text(*(char *const *)at, out);
    else {
        ndp_strings *lists[2];
        int n = lists_of(o, (void *)from, lists);
        const ndp_strings *list = lists[0], *own = n == 2 ? lists[1] : &(ndp_strings){0};
        ndp_str_add(out, "[");
        for (int i = 0; i < list->n; i++) {
            ndp_str_add(out, i ? ", " : "");
            if (o->type == NDP_OPTION_MAPPINGS)
                ndp_str_add(out, list->items[i]);
            else
                write_entry(list->items[i], i < own->n ? own->items[i] : "", out);
        }
        ndp_str_add(out, "]");
    }
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool same_lists(const ndp_option *o, const void *a, const ndp_option *as, const void *b) {
    ndp_strings *one[2], *other[2];
    int n = lists_of(o, (void *)a, one);
    lists_of(as, (void *)b, other);
    for (int k = 0; k < n; k++) {
        if (one[k]->n != other[k]->n)
            return false;
        for (int i = 0; i < one[k]->n; i++)
            if (!same_text(one[k]->items[i], other[k]->items[i]))
                return false;
    }
    return true;
}

bool ndp_option_is_same(const ndp_option *o, const void *a, const ndp_option *as, const void *b) {
    static const size_t sizes[] = {[NDP_OPTION_INT] = sizeof(int),       [NDP_OPTION_INT64] = sizeof(int64_t),
                                   [NDP_OPTION_NUMBER] = sizeof(double), [NDP_OPTION_PAIR] = 2 * sizeof(double),
                                   [NDP_OPTION_BOOL] = sizeof(bool),     [NDP_OPTION_WORD] = sizeof(int)};
    const void *one = const_field(o, a), *other = const_field(as, b);
    if (o->type == NDP_OPTION_TEXT)
        return same_text(*(char *const *)one, *(char *const *)other);
    if (o->type == NDP_OPTION_LIST || o->type == NDP_OPTION_ENTRIES || o->type == NDP_OPTION_MAPPINGS)
        return same_lists(o, a, as, b);
    return memcmp(one, other, sizes[o->type]) == 0;
}

void ndp_option_release(const ndp_option *o, void *from) {
    ndp_strings *lists[2];
    char **text = field(o, from);
    for (int i = 0, n = lists_of(o, from, lists); i < n; i++)
        ndp_strings_release(lists[i]);
    if (o->type == NDP_OPTION_TEXT) {
        free(*text);
        *text = NULL;
    }
}

ndp_status ndp_option_copy(const ndp_option *o, const void *from, void *to) {
    ndp_strings *lists[2], *copies[2];
    int n = lists_of(o, (void *)from, lists);
    ndp_status st = NDP_OK;
    lists_of(o, to, copies);
    for (int k = 0; k < n; k++) {
        *copies[k] = (ndp_strings){0};
        for (int i = 0; i < lists[k]->n && st == NDP_OK; i++)
            st = ndp_strings_add(copies[k], lists[k]->items[i]);
    }
    if (o->type != NDP_OPTION_TEXT)
        return st;
    char *const *text = const_field(o, from), **copy = field(o, to);
    *copy = NULL;
    return ndp_option_copy_text(*text, copy);
}
