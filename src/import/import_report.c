/* What the user reads about an import: one line per reason, with the keys that it applies to and their lines in the
 * file. */
#include "import/import_notes.h"

#include <stdlib.h>
#include <string.h>

/* From 1; 0: not in the file. A list or mapping has the line of its first scalar. */
static int line_of(const import_seen *s) {
    struct fy_node *node = s->node;
    while (node && !fy_node_is_scalar(node)) {
        void *place = NULL;
        if (fy_node_is_sequence(node))
            node = fy_node_sequence_iterate(node, &place);
        else {
            struct fy_node_pair *pair = fy_node_mapping_iterate(node, &place);
            node = pair ? fy_node_pair_key(pair) : NULL;
        }
    }
    struct fy_token *token = node ? fy_node_get_scalar_token(node) : NULL;
    const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
    return mark ? mark->line + 1 : 0;
}

static void add_name(const ndp_import_notes *n, const import_seen *s, ndp_str *out) {
    ndp_str_add(out, s->name);
    if (s->y != n->file)
        ndp_str_addf(out, " (%s:%d)", s->y->what, line_of(s));
    else if (line_of(s))
        ndp_str_addf(out, " (line %d)", line_of(s));
}

static bool is_settled(const ndp_import_notes *n, const import_seen *s) {
    return s->verdict == SEEN_REFUSED && ndp_import_is_set(n, s->ours);
}

/* The lists of the report. */
enum { LEFT_OUT, SETTLED, FORCED, UNKNOWN, CHAPTERS };

static int chapter_of(const ndp_import_notes *n, const import_seen *s) {
    return s->verdict == SEEN_LEFT      ? LEFT_OUT
           : s->verdict == SEEN_UNKNOWN ? UNKNOWN
           : s->verdict == SEEN_CARRIED ? CHAPTERS
           : is_settled(n, s)           ? SETTLED
                                        : FORCED;
}

/* All keys of a chapter, those with one reason on one line. */
static void add_chapter(const ndp_import_notes *n, int in, const char *title, ndp_str *out) {
    bool titled = false;
    for (int64_t i = 0; i < n->seen_count; i++) {
        bool listed = chapter_of(n, &n->seen[i]) != in;
        for (int64_t k = 0; k < i && !listed; k++)
            listed = chapter_of(n, &n->seen[k]) == in && strcmp(n->seen[k].why, n->seen[i].why) == 0;
        if (listed)
            continue;
        ndp_str_add(out, titled ? "" : title);
        titled = true;
        for (int64_t k = i; k < n->seen_count; k++)
            if (chapter_of(n, &n->seen[k]) == in && strcmp(n->seen[k].why, n->seen[i].why) == 0) {
                ndp_str_add(out, k == i ? "  " : ", ");
                add_name(n, &n->seen[k], out);
            }
        ndp_str_addf(out, ": %s\n", n->seen[i].why);
    }
}

/* Keys and paths may hold any bytes; notes are lines of printable UTF-8, which fit into a comment. */
static void add_printable(const char *text, ndp_str *out) {
    for (size_t n; *text; text += n) {
        uint32_t c;
        bool visible;
        n = ndp_yaml_character(text, &c, &visible);
        if (visible || *text == '\n')
            ndp_str_add_bytes(out, text, n);
        else
            ndp_str_add(out, "?");
    }
}

ndp_status ndp_import_report(const ndp_import_notes *n, const char *kind, char **notes) {
    static const char *const titles[CHAPTERS] = {[LEFT_OUT] = "not carried over, with no effect on the result:\n",
                                                 [SETTLED] = "not carried over, settled by --set:\n",
                                                 [FORCED] = "NOT CARRIED OVER, BY --force; these change the result:\n",
                                                 [UNKNOWN] = "not carried over, by --force; unknown keys:\n"};
    ndp_str s = {0};
    ndp_str_addf(&s, "imported from %s, %s\n", n->file->what, kind);
    ndp_str_add(&s, n->remarks.data ? n->remarks.data : "");
    for (int i = CHAPTERS; i-- > 0;)
        add_chapter(n, i, titles[i], &s);
    ndp_str printable = {0};
    add_printable(s.data ? s.data : "", &printable);
    bool failed = s.failed || printable.failed || n->remarks.failed;
    ndp_str_release(&s);
    char *whole = ndp_str_detach(&printable);
    if (failed || !whole) {
        free(whole);
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to import it", n->file->what);
    }
    *notes = whole;
    return NDP_OK;
}

static void add_complaint(const import_seen *s, ndp_str *out) {
    ndp_str_addf(out, "'%s': %s", s->name, s->why);
    if (s->ours)
        ndp_str_addf(out, "; or --set %s=...", s->ours);
}

/* The first key with its position and a caret; below it as many of the others as fit into a message. */
ndp_status ndp_import_judge(ndp_import_notes *n) {
    enum { LONGEST = 1400 };
    const import_seen *first = NULL;
    int count = 0, listed = 0;
    ndp_str caret = {0}, others = {0};
    for (int64_t i = 0; i < n->seen_count && !n->o->force; i++) {
        const import_seen *s = &n->seen[i];
        int in = chapter_of(n, s);
        if (in != FORCED && in != UNKNOWN)
            continue;
        if (count++ == 0) {
            first = s;
            add_complaint(s, &caret);
        } else if (others.length < LONGEST) {
            ndp_str_addf(&others, line_of(s) ? "\nline %d: " : "\n", line_of(s));
            add_complaint(s, &others);
            listed++;
        }
    }
    ndp_status st = NDP_OK;
    if (first) {
        if (listed < count - 1)
            ndp_str_addf(&others, "\nand %d more", count - 1 - listed);
        const char *words = caret.failed ? first->why : caret.data;
        st = first->node ? ndp_yaml_fail(first->y, first->node, "%s", words) : ndp_import_fail(n, "", "%s", words);
        if (!others.failed)
            st = NDP_FAIL(n->unloadable && count == 1 ? NDP_ENOTSUP : st, "%s%s\n--force imports without %s",
                          ndp_error_message(), others.data ? others.data : "", count > 1 ? "them" : "it");
    }
    ndp_str_release(&caret);
    ndp_str_release(&others);
    return st;
}
