/* YAML by libfyaml, whose errors and ours are shown in one form: file:line, the text of the line, and a caret below the
 * place. Lines are shortened to about 100 characters around the caret; columns are characters, not bytes. */
#include "options/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
    LARGEST = 1 << 20, /* bytes */
    ANCHORS = 128,
    SHOWN = 100, /* characters of a line */
    BEFORE = 70  /* of them before the caret */
};

/* Byte offset of a character of the line, or of its end. */
static size_t line_offset(const char *line, size_t length, int character) {
    size_t at = 0;
    for (; at < length; at++)
        if (((unsigned char)line[at] & 0xc0) != 0x80 && character-- == 0)
            break;
    return at;
}

/* Line and column, from 1, of a byte of the text. */
static void place_of(const ndp_yaml *y, size_t offset, int *line, int *column) {
    *line = *column = 1;
    for (size_t i = 0; i < offset; i++) {
        *line += y->text[i] == '\n';
        *column = y->text[i] == '\n' ? 1 : *column + (((unsigned char)y->text[i] & 0xc0) != 0x80);
    }
}

/* Start of a line; NULL if the text has fewer lines, or nothing follows the last newline. */
static const char *find_line(const ndp_yaml *y, int line) {
    const char *end = y->text + y->size, *at = y->text;
    for (int i = 1; i < line && at; i++) {
        at = memchr(at, '\n', (size_t)(end - at));
        at = at && at + 1 < end ? at + 1 : NULL;
    }
    return at;
}

ndp_status ndp_yaml_fail_at(const ndp_yaml *y, int line, int column, const char *message) {
    const char *end = y->text + y->size, *at = find_line(y, line);
    if (!at) { /* something is missing at the end: point past the last character */
        size_t last = y->size;
        while (last > 0 && (y->text[last - 1] == '\n' || y->text[last - 1] == ' '))
            last--;
        place_of(y, last, &line, &column);
        at = find_line(y, line);
    }
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t length = (size_t)((stop ? stop : end) - at);
    int first = column - 1 > BEFORE ? column - 1 - BEFORE : 0;
    size_t from = line_offset(at, length, first), to = line_offset(at, length, first + SHOWN);
    size_t caret = line_offset(at, length, column - 1);
    ndp_str s = {0};
    ndp_str_add(&s, y->what);
    if (!y->start)
        ndp_str_addf(&s, ":%d", line);
    ndp_str_addf(&s, ": %s\n  %.*s\n  ", message, (int)(to - from), at + from);
    for (size_t i = from; i < caret; i++) /* as wide as the text above it, tabs too */
        if (((unsigned char)at[i] & 0xc0) != 0x80)
            ndp_str_add(&s, at[i] == '\t' ? "\t" : " ");
    ndp_str_add(&s, "^");
    ndp_status st = NDP_FAIL(NDP_EINVAL, "%s", s.failed ? message : s.data);
    ndp_str_release(&s);
    return st;
}

/* The first error that the parser collected. */
static const struct fy_diag_error *collected(const ndp_yaml *y) {
    void *place = NULL;
    return fy_diag_errors_iterate(y->diag, &place);
}

/* What to do about an error of the parser, by the words it begins with. */
static const struct {
    const char *message, *fix;
} fixes[] = {
    {"tab character may not be used as indentation", "indent with spaces"},
    {"invalid indentation in mapping", "begin the keys of a section in the same column"},
    {"invalid multiline plain key",
     "begin the keys of a section in the same column, with a colon and a space after each"},
    {"invalid nested block mapping on the same line", "put a text with a colon in quotes, and a section on a new line"},
    {"plain scalar cannot start with", "put the text in quotes"},
    {"missing comma in flow mapping", "after a { there are commas between keys, and a } at the end"},
    {"missing document start", "the file is YAML: sections, with KEY: VALUE below each"},
};

static ndp_status fail_as_collected(const ndp_yaml *y, const char *otherwise) {
    const struct fy_diag_error *e = collected(y);
    if (!e)
        return ndp_yaml_fail_at(y, 1, 1 + y->start, otherwise);
    const char *fix = NULL;
    for (int i = 0; i < NDP_COUNT(fixes) && !fix; i++)
        fix = strncmp(e->msg, fixes[i].message, strlen(fixes[i].message)) == 0 ? fixes[i].fix : NULL;
    char *both = fix ? ndp_format("%s; %s", e->msg, fix) : NULL;
    ndp_status st = ndp_yaml_fail_at(y, e->line, e->column + (e->line == 1 ? y->start : 0), both ? both : e->msg);
    free(both);
    return st;
}

ndp_status ndp_yaml_fail(ndp_yaml *y, struct fy_node *node, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *message = ndp_vformat(fmt, args);
    va_end(args);
    if (!message)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for an error message", y->what);
    const char *text = ndp_yaml_text(node);
    if (y->near && text && !*text && ndp_yaml_is_plain(node)) /* an empty node, whose place depends on libfyaml */
        node = y->near;
    if (node)
        fy_node_report(node, FYET_ERROR, "%s", message);
    ndp_status st = fail_as_collected(y, message);
    free(message);
    return st;
}

ndp_status ndp_yaml_fail_str(ndp_yaml *y, struct fy_node *node, ndp_str *message) {
    ndp_status st = message->failed ? NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for an error message", y->what)
                                    : ndp_yaml_fail(y, node, "%s", message->data);
    ndp_str_release(message);
    return st;
}

static ndp_status refuse_bytes(const ndp_yaml *y) {
    NDP_CHECK(y->size <= LARGEST, "%s: %zu bytes; a configuration has at most %d", y->what, y->size, LARGEST);
    size_t valid = ndp_utf8_valid_prefix(y->text, y->size);
    const char *zero = memchr(y->text, 0, valid);
    size_t bad = zero ? (size_t)(zero - y->text) : valid;
    if (bad == y->size)
        return NDP_OK;
    int line, column;
    place_of(y, bad, &line, &column);
    return ndp_yaml_fail_at(y, line, column, zero ? "a zero byte" : "not valid UTF-8");
}

/* ---- duplicate keys ---- */

typedef struct listed_key {
    struct fy_node *node;
    const char *text;
    size_t length;
    int at; /* in its mapping */
} listed_key;

static int by_text(const void *a, const void *b) {
    const listed_key *one = a, *other = b;
    size_t both = one->length < other->length ? one->length : other->length;
    int order = both ? memcmp(one->text, other->text, both) : 0;
    if (order == 0 && one->length != other->length)
        return one->length < other->length ? -1 : 1;
    return order ? order : one->at - other->at;
}

/* The first key of a mapping that an earlier one is equal to; NULL: none. Keys that are no texts are left to others. */
static struct fy_node *find_duplicate(struct fy_node *mapping, listed_key *keys) {
    int n = 0;
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(mapping, &place));) {
        struct fy_node *key = fy_node_pair_key(pair);
        size_t length = 0;
        const char *text = key && fy_node_is_scalar(key) ? fy_node_get_scalar(key, &length) : NULL;
        if (text)
            keys[n] = (listed_key){key, text, length, n};
        n += text != NULL;
    }
    qsort(keys, (size_t)n, sizeof *keys, by_text);
    const listed_key *first = NULL;
    for (int i = 1; i < n; i++)
        if (keys[i].length == keys[i - 1].length && memcmp(keys[i].text, keys[i - 1].text, keys[i].length) == 0)
            first = !first || keys[i].at < first->at ? &keys[i] : first;
    return first ? first->node : NULL;
}

/* The parser would compare each key of a mapping with all others, which takes minutes for as many as fit in a text. Its
 * nodes are at most 64 deep. */
static ndp_status refuse_duplicates(ndp_yaml *y, struct fy_node *node) {
    void *place = NULL;
    if (node && fy_node_is_sequence(node))
        for (struct fy_node *item; (item = fy_node_sequence_iterate(node, &place));)
            NDP_TRY(refuse_duplicates(y, item));
    if (!node || !fy_node_is_mapping(node))
        return NDP_OK;
    int count = fy_node_mapping_item_count(node);
    listed_key *keys = calloc(count > 0 ? (unsigned)count : 1, sizeof *keys);
    if (!keys)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %d keys", y->what, count);
    struct fy_node *duplicate = find_duplicate(node, keys);
    free(keys);
    if (duplicate)
        return ndp_yaml_fail(y, duplicate, "duplicate key");
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(node, &place));) {
        NDP_TRY(refuse_duplicates(y, fy_node_pair_key(pair)));
        NDP_TRY(refuse_duplicates(y, fy_node_pair_value(pair)));
    }
    return NDP_OK;
}

/* The parser compares each anchor and alias with all anchors. Text in quotes and comments may look like an anchor:
 * there are fewer than this counts. */
static ndp_status refuse_anchors(const ndp_yaml *y) {
    int n = 0;
    for (size_t i = 0; i + 1 < y->size; i++)
        if (y->text[i] == '&' && (i == 0 || strchr(" \t\r\n[{,:", y->text[i - 1])) &&
            !strchr(" \t\r\n&", y->text[i + 1]) && ++n > ANCHORS) {
            int line, column;
            char message[64];
            place_of(y, i, &line, &column);
            snprintf(message, sizeof message, "more than %d anchors", ANCHORS);
            return ndp_yaml_fail_at(y, line, column, message);
        }
    return NDP_OK;
}

ndp_status ndp_yaml_open(ndp_yaml *y, const char *what, const char *text, size_t size, int start) {
    *y = (ndp_yaml){.what = what, .text = text, .size = size, .start = start};
    NDP_TRY(refuse_bytes(y));
    NDP_TRY(refuse_anchors(y));
    struct fy_diag_cfg diag;
    fy_diag_cfg_default(&diag);
    diag.fp = NULL;
    diag.colorize = false;
    y->diag = fy_diag_create(&diag);
    if (y->diag)
        fy_diag_set_collect_errors(y->diag, true);
    /* Aliases are followed one at a time: resolving all of them copies, so a few lines could fill the memory. */
    struct fy_parse_cfg parse = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_ALLOW_DUPLICATE_KEYS,
                                 .diag = y->diag};
    y->parser = y->diag ? fy_parser_create(&parse) : NULL;
    if (!y->parser || fy_parser_set_string(y->parser, text + start, size - (size_t)start))
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to parse %zu bytes of YAML", what, size);
    y->document = fy_parse_load_document(y->parser);
    struct fy_document *second = y->document ? fy_parse_load_document(y->parser) : NULL;
    ndp_status st = NDP_OK;
    if (second) {
        struct fy_node *root = fy_document_root(second);
        st = root ? ndp_yaml_fail(y, root, "a second document; a configuration has one")
                  : NDP_FAIL(NDP_EINVAL, "%s: several documents; a configuration has one", what);
        fy_parse_document_destroy(y->parser, second);
    } else if (fy_parser_get_stream_error(y->parser))
        st = fail_as_collected(y, "not a YAML document");
    if (st == NDP_OK && y->document)
        y->root = fy_document_root(y->document);
    return st == NDP_OK ? refuse_duplicates(y, y->root) : st;
}

void ndp_yaml_close(ndp_yaml *y) {
    if (y->document)
        fy_parse_document_destroy(y->parser, y->document);
    if (y->parser)
        fy_parser_destroy(y->parser);
    if (y->diag)
        fy_diag_destroy(y->diag);
    *y = (ndp_yaml){0};
}

ndp_status ndp_yaml_follow(ndp_yaml *y, struct fy_node **node) {
    if (!*node || !fy_node_is_alias(*node))
        return NDP_OK;
    struct fy_node *target = fy_node_resolve_alias(*node);
    if (!target || fy_node_is_alias(target))
        return ndp_yaml_fail(y, *node, "no anchor has this name");
    *node = target;
    return NDP_OK;
}

const char *ndp_yaml_text(struct fy_node *node) {
    if (!node)
        return "";
    size_t length;
    const char *text = fy_node_is_scalar(node) ? fy_node_get_scalar(node, &length) : NULL;
    if (!text || memchr(text, 0, length))
        return NULL;
    return fy_node_get_scalar0(node);
}

bool ndp_yaml_is_plain(struct fy_node *node) {
    struct fy_token *token = node ? fy_node_get_scalar_token(node) : NULL;
    return !token || fy_token_scalar_style(token) == FYSS_PLAIN;
}

size_t ndp_yaml_character(const char *text, uint32_t *character, bool *visible) {
    utf8proc_int32_t c;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &c);
    utf8proc_category_t kind = n > 0 ? utf8proc_category(c) : UTF8PROC_CATEGORY_CC;
    *character = (uint32_t)c;
    *visible = kind != UTF8PROC_CATEGORY_CC && kind != UTF8PROC_CATEGORY_CF && kind != UTF8PROC_CATEGORY_CN &&
               kind != UTF8PROC_CATEGORY_ZL && kind != UTF8PROC_CATEGORY_ZP;
    return n > 0 ? (size_t)n : 1;
}

bool ndp_yaml_is_null(struct fy_node *node) {
    const char *text = ndp_yaml_text(node);
    return text && ndp_yaml_is_plain(node) && (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}
