/* The keys of another program as Markdown tables: what each becomes here, or why it becomes nothing. Everything is read
 * from the tables that an import uses, so the two cannot differ. Keys with the same answer share a row. */
#include "import/import_table.h"
#include "import/import_targets.h"

#include <stdlib.h>
#include <string.h>

typedef enum answer { CARRIED, LEFT_OUT, UNSUPPORTED, ANSWERS } answer;

static const struct {
    const char *part, *heading, *second, *third;
} chapters[ANSWERS] = {{"imported", "Imported", "here", ""},
                       {"left-out", "Left out: no effect on the result", "reason", NULL},
                       {"unsupported", "Not supported: the import stops", "reason", "`--set` of this key continues"}};

typedef struct key_row {
    answer in;
    const char *second, *third; /* in the arena of the page */
    ndp_str names;
} key_row;

typedef struct page {
    ndp_arena arena;
    key_row *rows;
    int64_t n, capacity;
} page;

/* Text between code spans as Markdown shows it. */
static void add_escaped(const char *text, ndp_str *out) {
    for (bool code = false; *text; text++) {
        code ^= *text == '`';
        ndp_str_addf(out, *text == '|' || (*text == '<' && !code) ? "\\%c" : "%c", *text);
    }
}

/* Adds names to the row with these answers, which may be new; NULL is the empty text. */
static ndp_status add(page *p, answer in, const char *names, const char *second, const char *third) {
    key_row *r = p->rows;
    second = second ? second : "";
    third = third ? third : "";
    while (r && r < p->rows + p->n && !(r->in == in && strcmp(r->second, second) == 0 && strcmp(r->third, third) == 0))
        r++;
    if (!r || r == p->rows + p->n) {
        NDP_TRY(ndp_array_reserve(&p->rows, &p->capacity, p->n + 1, sizeof *p->rows));
        r = &p->rows[p->n++];
        *r = (key_row){in, ndp_arena_strdup(&p->arena, second), ndp_arena_strdup(&p->arena, third), {0}};
    }
    bool words = strstr(names, "`: ") || (r->names.length && strstr(r->names.data, "`: "));
    ndp_str_addf(&r->names, "%s%s", !r->names.length ? "" : words ? "; " : ", ", names);
    return NDP_MEMORY(r->second && r->third && !r->names.failed, "for the keys");
}

/* "adam_beta1 adam_beta2" below "optim" as "`optim.adam_beta1`, `optim.adam_beta2`". */
static void add_names(const char *path, const char *names, ndp_str *out) {
    for (size_t n; names += strspn(names, " "), (n = strcspn(names, " ")); names += n)
        ndp_str_addf(out, "%s`%s%s%.*s`", out->length ? ", " : "", path, *path ? "." : "", (int)n, names);
}

static void add_keys(const char *keys, ndp_str *out) {
    for (size_t n; keys += strspn(keys, ", "), (n = strcspn(keys, ", ")); keys += n)
        ndp_str_addf(out, "%s`%.*s`", out->length ? ", " : "", (int)n, keys);
}

/* ---- kinds of keys ---- */

static bool has_refused_word(const import_key *k) {
    for (const import_word *w = k->words; w->words; w++)
        if (w->refused)
            return true;
    return false;
}

/* The words that are read, where some are not: "`linear`, `cosine`". */
static void add_read_words(const import_key *k, ndp_str *out) {
    for (const import_word *w = k->words; w && w->words && has_refused_word(k); w++)
        if (!w->refused)
            add_names("", w->words, out);
}

/* A row for each reason why words are not read: "`lr_scheduler`: `rex`". */
static ndp_status add_refused_words(page *p, const import_key *k, const char *names) {
    ndp_status st = NDP_OK;
    for (const import_word *w = k->words; st == NDP_OK && w->words; w++) {
        ndp_str words = {0}, line = {0}, ours = {0};
        if (!w->refused)
            continue;
        if (strcmp(w->words, "*") == 0)
            ndp_str_add(&words, "another value");
        else
            add_names("", w->words, &words);
        ndp_str_addf(&line, "%s: %s", names, words.data ? words.data : "");
        add_keys(k->ours ? k->ours : "", &ours);
        st = words.failed || line.failed || ours.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the keys")
                                                        : add(p, UNSUPPORTED, line.data, w->refused, ours.data);
        ndp_str_release(&words);
        ndp_str_release(&line);
        ndp_str_release(&ours);
    }
    return st;
}

/* A key that is read into a member, as a value or as one of several words. */
static ndp_status add_read(page *p, const import_key *k, const char *names) {
    char name[NDP_KEY_NAME];
    import_target t = {0};
    ndp_str ours = {0}, how = {0};
    if (k->kind == IMPORT_WORD)
        NDP_TRY(add_refused_words(p, k, names));
    if (k->why)
        return add(p, LEFT_OUT, names, k->why, NULL);
    bool changes_nothing = k->offset == offsetof(ndp_import, read.ignored);
    if (!changes_nothing && !ndp_import_target(k->offset, &t, name))
        return NDP_FAIL(NDP_EBUG, "nothing follows from the key %s", names);
    add_keys(changes_nothing ? "" : t.ours, &ours);
    add_read_words(k, &how);
    ndp_str_add(&how, how.length && t.how ? "; " : "");
    ndp_str_add(&how, changes_nothing ? ": as always here" : t.how ? t.how : "");
    ndp_status st = ours.failed || how.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the keys")
                                              : add(p, CARRIED, names, ours.data, how.data);
    ndp_str_release(&ours);
    ndp_str_release(&how);
    return st;
}

/* A key with a reason, or with a reader of its own, which says in `why` what it does. */
static ndp_status add_reasoned(page *p, const import_key *k, const char *names) {
    ndp_str ours = {0};
    add_keys(k->ours ? k->ours : "", &ours);
    answer in = k->kind == IMPORT_REFUSED ? UNSUPPORTED : k->kind == IMPORT_LEFT || !ours.length ? LEFT_OUT : CARRIED;
    ndp_status st = ours.failed         ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the keys")
                    : in == CARRIED     ? add(p, in, names, ours.data, k->why)
                    : in == UNSUPPORTED ? add(p, in, names, k->why, ours.data)
                                        : add(p, in, names, k->why, NULL);
    ndp_str_release(&ours);
    return st;
}

static ndp_status add_section(page *p, const char *section, const char *path);

/* The keys of the section inside this key, as "fsdp_config.version". */
static ndp_status add_inside(page *p, const import_key *k, const char *path, const char *names) {
    ndp_status st = NDP_OK;
    if (k->prefix && !*path) {
        char note[80];
        snprintf(note, sizeof note, "its keys may have the prefix `%.30s`", k->prefix);
        st = add(p, CARRIED, names, "a section", note);
    }
    char *inner = ndp_format("%s%s%.*s", path, *path ? "." : "", (int)strcspn(k->names, " "), k->names);
    if (st == NDP_OK)
        st = inner ? add_section(p, k->inside, inner) : NDP_FAIL(NDP_ENOMEM, "not enough memory for the keys");
    free(inner);
    return st;
}

static ndp_status add_key(page *p, const import_key *k, const char *path) {
    ndp_str names = {0};
    add_names(path, k->names, &names);
    bool read = k->kind == IMPORT_VALUE || k->kind == IMPORT_WORD;
    ndp_status st = names.failed                ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the keys")
                    : k->kind == IMPORT_SECTION ? NDP_OK
                    : read                      ? add_read(p, k, names.data)
                                                : add_reasoned(p, k, names.data);
    if (st == NDP_OK && k->inside)
        st = add_inside(p, k, path, names.data);
    ndp_str_release(&names);
    return st;
}

/* Another row of these names counts: one of the section's own. */
static bool is_replaced(const import_key *k, const char *section) {
    for (const import_table *const *t = ndp_import_tables; *t && strcmp(k->section, section) != 0; t++)
        for (int i = 0; i < (*t)->n; i++)
            if (strcmp((*t)->keys[i].section, section) == 0 && strcmp((*t)->keys[i].names, k->names) == 0)
                return true;
    return false;
}

static ndp_status add_section(page *p, const char *section, const char *path) {
    for (const import_table *const *t = ndp_import_tables; *t; t++)
        for (int i = 0; i < (*t)->n; i++)
            if (ndp_import_has_key(section, &(*t)->keys[i]) && !is_replaced(&(*t)->keys[i], section))
                NDP_TRY(add_key(p, &(*t)->keys[i], path));
    return NDP_OK;
}

/* ---- the page ---- */

/* With a heading, if it is one of several. */
static void write_chapter(const page *p, answer in, const char *program, bool alone, ndp_str *out) {
    const char *third = chapters[in].third;
    if (!alone)
        ndp_str_addf(out, "%s### %s\n\n", in ? "\n" : "", chapters[in].heading);
    ndp_str_addf(out, "| %s | %s |", program, chapters[in].second);
    if (third)
        ndp_str_addf(out, " %s |\n|---|---|---|\n", third);
    else
        ndp_str_add(out, "\n|---|---|\n");
    for (const key_row *r = p->rows; r < p->rows + p->n; r++) {
        if (r->in != in)
            continue;
        ndp_str_addf(out, "| %s | ", r->names.data);
        add_escaped(r->second, out);
        ndp_str_add(out, third ? " | " : "");
        add_escaped(r->third, out);
        ndp_str_add(out, " |\n");
    }
}

static ndp_status check_words(const char *program, const char *part, const char **section) {
    static const char *const sections[][2] = {
        {"axolotl", "axolotl"},       {"llamafactory", "trainer:llamafactory"}, {"trl", "trainer:trl"},
        {"accelerate", "accelerate"}, {"deepspeed", "deepspeed:alone"},         {"transformers", "distributed"}};
    bool chapter = !part;
    *section = NULL;
    for (int i = 0; i < NDP_COUNT(sections); i++)
        if (strcmp(program, sections[i][0]) == 0)
            *section = sections[i][1];
    NDP_CHECK(*section, "--keys '%s': expected axolotl, llamafactory, trl, accelerate, deepspeed or transformers",
              program);
    for (int in = 0; in < ANSWERS && !chapter; in++)
        chapter = strcmp(part, chapters[in].part) == 0;
    NDP_CHECK(chapter, "--keys %s '%s': expected imported, left-out or unsupported, or nothing for all three", program,
              part);
    return NDP_OK;
}

ndp_status ndp_config_import_keys(const char *program, const char *part, char **markdown) {
    NDP_NOT_NULL(program, markdown);
    const char *section;
    NDP_TRY(check_words(program, part, &section));
    page p = {0};
    ndp_str out = {0};
    ndp_status st = add_section(&p, section, "");
    for (int in = 0; st == NDP_OK && in < ANSWERS; in++)
        if (!part || strcmp(part, chapters[in].part) == 0)
            write_chapter(&p, (answer)in, program, part != NULL, &out);
    for (key_row *r = p.rows; r && r < p.rows + p.n; r++)
        ndp_str_release(&r->names);
    free(p.rows);
    ndp_arena_release(&p.arena);
    char *text = ndp_str_detach(&out);
    if (st == NDP_OK && !text)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for the keys");
    if (st != NDP_OK) {
        free(text);
        return st;
    }
    *markdown = text;
    return NDP_OK;
}
