/* Keys of a configuration as text: what the option table says of them, for terminals, Markdown pages, manual pages and
 * completion. */
#include "config/names.h"

#include "base/json_write.h"

#include <stdio.h>
#include <string.h>

static bool of_optimizers(const ndp_option *o) { return strcmp(o->section, "optimizer") == 0; }

/* The optimizers that read a key which not all of them read: "adamw, lion". False: all read it. */
static bool add_optimizers(const ndp_option *o, const char *between, ndp_str *out) {
    bool any = false;
    for (int i = 0; i < NDP_OPTIMIZER_COUNT && of_optimizers(o); i++)
        if (ndp_optimizer_reads(ndp_optimizers[i], o->key)) {
            ndp_str_addf(out, "%s%s", any ? between : "", ndp_optimizers[i]->name);
            any = true;
        }
    return any;
}

static void add_meaning(const ndp_option *o, ndp_str *out) {
    if (add_optimizers(o, ", ", out))
        ndp_str_add(out, ": ");
    ndp_str_add(out, o->help);
}

/* "[0.9, 0.95], lion [0.9, 0.99]" */
static void add_defaults(const ndp_option *o, ndp_str *out) {
    ndp_str_add(out, o->value ? o->value : "null");
    for (int i = 0; i < NDP_OPTIMIZER_COUNT && of_optimizers(o); i++) {
        const ndp_optimizer_option *own = ndp_optimizer_reads(ndp_optimizers[i], o->key);
        if (own && own->value)
            ndp_str_addf(out, ", %s %s", ndp_optimizers[i]->name, own->value);
    }
}

void ndp_config_help(ndp_str *out) {
    for (int i = 0; i < ndp_option_count; i++) {
        const ndp_option *o = &ndp_options[i];
        if (ndp_option_opens_section(i))
            ndp_str_addf(out, "%s%s:\n", i ? "\n" : "", o->section);
        ndp_str_addf(out, "  %-22s ", o->key);
        add_meaning(o, out);
        ndp_str_addf(out, "\n  %-22s ", "");
        ndp_option_expects(o, out);
        ndp_str_add(out, "; default ");
        add_defaults(o, out);
        ndp_str_add(out, o->role == NDP_KEY_FREE ? "; may change on --resume\n" : "\n");
    }
}

/* ---- all about one key ---- */

static const struct {
    ndp_key_reader reader;
    const char *name;
} readers[] = {
    {NDP_READER_TRAIN, "train"},
    {NDP_READER_PLAN, "plan"},
    {NDP_READER_VERIFY, "verify"},
    {NDP_READER_EVALUATE, "evaluate"},
    {NDP_READER_RUN, "generate and checkpoint export with a run folder"},
};

/* "train, verify; if optimizer.name is adamw or lion" */
static void add_readers(const ndp_option *o, ndp_str *out) {
    const char *before = "";
    ndp_str names = {0};
    for (int i = 0; i < NDP_COUNT(readers); i++)
        if (o->readers & (int)readers[i].reader) {
            ndp_str_addf(out, "%s%s", before, readers[i].name);
            before = ", ";
        }
    if (add_optimizers(o, " or ", &names))
        ndp_str_addf(out, "; if optimizer.name is %s", names.failed ? "" : names.data);
    if (o->when)
        ndp_str_addf(out, "; if %s", o->when);
    ndp_str_release(&names);
}

static void add_resume(const ndp_option *o, ndp_str *out) {
    if (o->role == NDP_KEY_FREE)
        ndp_str_add(out, "may change");
    else
        ndp_str_addf(out, "%s, unless --accept %s.%s allows the change",
                     o->role == NDP_KEY_IDENTITY ? "must keep its value" : "what it names must stay the same",
                     o->section, o->key);
}

static void add_entry(const ndp_option *o, ndp_str *out) {
    ndp_str_addf(out, "{path: NAME, %s: VALUE} sets it for one entry of data.files", o->key);
}

/* One line of a description: its name, and what it says. */
typedef struct line {
    const char *name;
    void (*add)(const ndp_option *o, ndp_str *out);
} line;
static const line lines[] = {{"values", ndp_option_expects},
                             {"default", add_defaults},
                             {"read by", add_readers},
                             {"on --resume", add_resume},
                             {"per entry", add_entry}};

static bool has_line(const ndp_option *o, const line *l) { return l->add != add_entry || o->entry; }

static void describe_in_text(const ndp_option *o, ndp_str *out) {
    ndp_str_addf(out, "%s.%s: ", o->section, o->key);
    add_meaning(o, out);
    ndp_str_add(out, "\n");
    for (int i = 0; i < NDP_COUNT(lines); i++)
        if (has_line(o, &lines[i])) {
            ndp_str_addf(out, "  %-13s", lines[i].name);
            lines[i].add(o, out);
            ndp_str_add(out, "\n");
        }
}

/* ---- Markdown ---- */

/* A cell of the table, with the characters escaped that would not appear as they are. */
static void add_cell(const ndp_option *o, void (*add)(const ndp_option *, ndp_str *), ndp_str *out) {
    ndp_str text = {0};
    add(o, &text);
    for (size_t i = 0; i < text.length; i++)
        ndp_str_addf(out, strchr("|*<\\", text.data[i]) ? "\\%c" : "%c", text.data[i]);
    ndp_str_add(out, " |");
    out->failed |= text.failed;
    ndp_str_release(&text);
}

static void describe_in_markdown(const ndp_option *o, ndp_str *out) {
    static void (*const cells[])(const ndp_option *, ndp_str *) = {ndp_option_expects, add_defaults, add_meaning};
    ndp_str_addf(out, "| `%s.%s` |", o->section, o->key);
    for (int i = 0; i < NDP_COUNT(cells); i++) {
        ndp_str_add(out, " ");
        add_cell(o, cells[i], out);
    }
    ndp_str_add(out, "\n");
}

/* ---- JSON ---- */

static void put_words(const ndp_option *o, ndp_json_out *out) {
    if (!o->words) {
        ndp_json_put_null(out, "words");
        return;
    }
    ndp_json_open(out, "words", '[');
    for (const char *const *w = o->words; *w; w++)
        ndp_json_put_text(out, NULL, *w);
    ndp_json_close(out, ']');
}

static void put_range(const ndp_option *o, ndp_json_out *out) {
    bool whole = o->type == NDP_OPTION_INT || o->type == NDP_OPTION_INT64;
    if (whole) {
        ndp_json_put_int(out, "low", o->low);
        ndp_json_put_int(out, "high", o->high);
    } else {
        ndp_json_put_null(out, "low");
        ndp_json_put_null(out, "high");
    }
    ndp_json_put_text(out, "interval", o->interval);
}

/* The optimizers that read a key which not all of them read, each with its default; of another key null. */
static void put_optimizers(const ndp_option *o, ndp_json_out *out) {
    bool any = false;
    for (int i = 0; i < NDP_OPTIMIZER_COUNT && of_optimizers(o); i++) {
        const ndp_optimizer_option *own = ndp_optimizer_reads(ndp_optimizers[i], o->key);
        if (!own)
            continue;
        if (!any)
            ndp_json_open(out, "optimizers", '{');
        any = true;
        ndp_json_put_text(out, ndp_optimizers[i]->name, own->value ? own->value : o->value);
    }
    if (any)
        ndp_json_close(out, '}');
    else
        ndp_json_put_null(out, "optimizers");
}

static void put_readers(const ndp_option *o, ndp_json_out *out) {
    ndp_json_open(out, "read_by", '[');
    for (int i = 0; i < NDP_COUNT(readers); i++)
        if (o->readers & (int)readers[i].reader)
            ndp_json_put_text(out, NULL, readers[i].name);
    ndp_json_close(out, ']');
}

static void describe_in_json(const ndp_option *o, ndp_json_out *out) {
    static const char *const types[] = {
        [NDP_OPTION_INT] = "integer",      [NDP_OPTION_INT64] = "integer",   [NDP_OPTION_NUMBER] = "number",
        [NDP_OPTION_PAIR] = "pair",        [NDP_OPTION_BOOL] = "boolean",    [NDP_OPTION_WORD] = "word",
        [NDP_OPTION_TEXT] = "string",      [NDP_OPTION_ENTRIES] = "entries", [NDP_OPTION_LIST] = "list",
        [NDP_OPTION_MAPPINGS] = "mappings"};
    static const char *const roles[] = {[NDP_KEY_FREE] = "may change",
                                        [NDP_KEY_IDENTITY] = "must keep its value",
                                        [NDP_KEY_CONTENTS] = "must keep its contents"};
    ndp_str values = {0};
    char name[NDP_KEY_NAME];
    snprintf(name, sizeof name, "%s.%s", o->section, o->key);
    ndp_option_expects(o, &values);
    ndp_json_open(out, NULL, '{');
    ndp_json_put_text(out, "key", name);
    ndp_json_put_text(out, "type", types[o->type]);
    ndp_json_put_text(out, "values", values.data);
    put_words(o, out);
    put_range(o, out);
    ndp_json_put_text(out, "default", o->value);
    put_optimizers(o, out);
    ndp_json_put_text(out, "help", o->help);
    put_readers(o, out);
    ndp_json_put_text(out, "when", o->when);
    ndp_json_put_text(out, "on_resume", roles[o->role]);
    ndp_json_put_bool(out, "per_entry", o->entry);
    ndp_json_close(out, '}');
    out->text.failed |= values.failed;
    ndp_str_release(&values);
}

/* ---- fields ---- */

/* Its words, for completion; a switch has two, and `auto` is the one word of a number. */
static void describe_in_fields(const ndp_option *o, ndp_str *out) {
    static const char *const switches[] = {"true", "false", NULL}, *const open[] = {"auto", NULL};
    bool number = o->type == NDP_OPTION_INT && o->open;
    const char *const *words = o->type == NDP_OPTION_BOOL ? switches : number ? open : o->words;
    ndp_str_addf(out, "%s.%s\t", o->section, o->key);
    for (int i = 0; words && words[i]; i++)
        ndp_str_addf(out, "%s%s", i ? " " : "", words[i]);
    ndp_str_addf(out, "\t%s\n", o->help);
}

/* ---- choosing keys ---- */

static void describe(const ndp_option *o, ndp_keys_format format, ndp_json_out *out) {
    bool first = out->text.length == 0;
    if (format == NDP_KEYS_JSON)
        describe_in_json(o, out);
    else if (format == NDP_KEYS_FIELDS)
        describe_in_fields(o, &out->text);
    else if (format == NDP_KEYS_TEXT) {
        ndp_str_add(&out->text, first ? "" : "\n");
        describe_in_text(o, &out->text);
    } else {
        ndp_str_add(&out->text, first ? "| key | values | default | meaning |\n|---|---|---|---|\n" : "");
        describe_in_markdown(o, &out->text);
    }
}

static ndp_status describe_all(const char *const *names, int n, ndp_keys_format format, ndp_json_out *out) {
    bool wanted[NDP_MOST_OPTIONS];
    for (int i = 0; i < n || i == 0; i++) {
        NDP_TRY(ndp_names_find(n ? names[i] : NULL, wanted));
        for (int k = 0; k < ndp_option_count; k++)
            if (wanted[k])
                describe(&ndp_options[k], format, out);
    }
    return NDP_OK;
}

ndp_status ndp_config_describe(const char *const *names, int n, ndp_keys_format format, char **text) {
    NDP_NOT_NULL(text);
    if (n)
        NDP_NOT_NULL(names);
    ndp_json_out out = {0};
    if (format == NDP_KEYS_JSON) {
        ndp_json_open(&out, NULL, '{');
        ndp_json_open(&out, "keys", '[');
    }
    ndp_status st = describe_all(names, n, format, &out);
    if (st != NDP_OK) {
        ndp_str_release(&out.text);
        return st;
    }
    if (format == NDP_KEYS_JSON) {
        ndp_json_close(&out, ']');
        ndp_json_close(&out, '}');
    }
    char *whole = ndp_str_detach(&out.text);
    NDP_CHECK_MEMORY(whole, "for a text");
    *text = whole;
    return NDP_OK;
}
