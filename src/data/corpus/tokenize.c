/* ndp_tokenize: texts to lines of JSON. */
#include "base/hub.h"
#include "base/json.h"
#include "base/json_write.h"
#include "base/memory_limit.h"
#include "data/corpus/source.h"
#include "text/tokenizer.h"

#include <string.h>
#include <unistd.h>

typedef struct tokenize_run {
    const ndp_tokenize_opts *o;
    const char *file; /* name of the input in messages */
    bool (*emit)(void *user, const char *line, size_t length);
    void *user;
    ndp_tokenizer *tokenizer;
    ndp_ids ids;
    ndp_str line;
} tokenize_run;

/* The status that stops the run when the caller wants no more. */
static const ndp_status STOPPED = NDP_EINTR;

static ndp_status emit_line(tokenize_run *r) {
    NDP_CHECK_MEMORY(!r->line.failed, "for a line of output");
    bool go_on = r->emit(r->user, r->line.data, r->line.length);
    r->line.length = 0;
    return go_on ? NDP_OK : STOPPED;
}

/* ---- text to tokens ---- */

static void add_piece(tokenize_run *r, int32_t id) {
    ndp_span piece = ndp_tokenizer_token(r->tokenizer, id);
    char byte = (char)id; /* ids of `bytes` are bytes */
    if (!piece.data)
        piece = id < 256 ? (ndp_span){&byte, 1} : (ndp_span){id == 256 ? "<bos>" : "<eos>", 5};
    ndp_json_quote_bytes(&r->line, piece.data, piece.n);
}

static ndp_status encode(tokenize_run *r, const char *text, size_t n) {
    r->ids.n = 0;
    NDP_TRY(ndp_tokenizer_encode(r->tokenizer, text, n, r->o->special, &r->ids));
    if (r->o->form == NDP_TOKENS_COUNT) {
        ndp_str_addf(&r->line, "%lld", (long long)r->ids.n);
        return emit_line(r);
    }
    ndp_str_add(&r->line, "[");
    for (int64_t i = 0; i < r->ids.n; i++) {
        ndp_str_add(&r->line, i ? ", " : "");
        if (r->o->form == NDP_TOKENS_PIECES)
            add_piece(r, r->ids.items[i]);
        else
            ndp_str_addf(&r->line, "%d", r->ids.items[i]);
    }
    ndp_str_add(&r->line, "]");
    return emit_line(r);
}

/* ---- tokens to text ---- */

static ndp_status read_ids(tokenize_run *r, struct json_object *list, const char *where) {
    if (json_object_is_type(list, json_type_object))
        list = json_object_object_get(list, "ids");
    if (!json_object_is_type(list, json_type_array))
        return NDP_FAIL(NDP_EFORMAT, "%s: neither a list of ids nor a record with 'ids'", where);
    r->ids.n = 0;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *o = json_object_array_get_idx(list, i);
        int64_t id = json_object_is_type(o, json_type_int) ? json_object_get_int64(o) : -1;
        if (id < 0 || id >= ndp_tokenizer_vocab_size(r->tokenizer))
            return NDP_FAIL(NDP_EFORMAT, "%s: item %zu, %.40s, is not an id of this vocabulary of %d", where, i,
                            o ? json_object_to_json_string(o) : "null", ndp_tokenizer_vocab_size(r->tokenizer));
        NDP_TRY(ndp_ids_add(&r->ids, (int32_t)id));
    }
    return NDP_OK;
}

static ndp_status decode(tokenize_run *r, const char *text, size_t n, const char *where) {
    struct json_object *list = NULL;
    ndp_str decoded = {0};
    NDP_TRY(ndp_json_parse(text, n, where, &list));
    ndp_status st = read_ids(r, list, where);
    json_object_put(list);
    NDP_TRY(st);
    st = ndp_tokenizer_decode(r->tokenizer, r->ids.items, r->ids.n, !r->o->special, &decoded);
    if (st == NDP_OK) {
        ndp_json_quote_bytes(&r->line, decoded.data, decoded.length);
        st = emit_line(r);
    }
    ndp_str_release(&decoded);
    return st;
}

static ndp_status decode_lines(tokenize_run *r, const char *contents, size_t size) {
    long long number = 1;
    for (size_t at = 0, n; at < size; at += n + 1, number++) {
        const char *text = contents + at, *stop = memchr(text, '\n', size - at);
        n = stop ? (size_t)(stop - text) : size - at;
        if (n == 0 || (n == 1 && text[0] == '\r'))
            continue;
        char *where = ndp_format("%s:%lld", r->file, number);
        ndp_status st =
            where ? decode(r, text, n, where) : NDP_FAIL(NDP_ENOMEM, "not enough memory to read '%s'", r->file);
        free(where);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* ---- all ---- */

static ndp_status encode_document(void *user, const ndp_document *d) {
    ndp_status st = encode(user, d->text, d->n);
    return st == NDP_OK || st == STOPPED
               ? st
               : NDP_FAIL(NDP_EFORMAT, "%s:%lld: %s", d->path, (long long)d->line, ndp_error_message());
}

/* Standard input has no file name to tell its kind: it is a text, or JSONL if a field of its records is given. */
static ndp_status encode_stdin(tokenize_run *r, const char *contents, size_t size) {
    const ndp_record_format format = {.kind = NDP_RECORD_TEXT, .text = r->o->text_field};
    ndp_source_chunk c;
    NDP_TRY(ndp_source_begin(r->file, contents, size, &c));
    if (r->o->text_field)
        c.kind = NDP_SOURCE_JSONL;
    return ndp_source_cut(&c, 0, c.size) ? ndp_source_visit_chunk(&c, &format, encode_document, r) : NDP_OK;
}

static ndp_status run_stdin(tokenize_run *r) {
    char *contents;
    size_t size;
    r->file = "standard input";
    NDP_TRY(ndp_fd_read(STDIN_FILENO, r->file, (size_t)ndp_memory_available() / 2, &contents, &size));
    ndp_status st = r->o->form == NDP_TOKENS_TEXT ? decode_lines(r, contents, size) : encode_stdin(r, contents, size);
    free(contents);
    return st;
}

static ndp_status run_file(tokenize_run *r) {
    ndp_mapped file;
    NDP_TRY(ndp_file_map_as(NDP_FILE_DATA, r->o->file, &file));
    const char *contents = (const char *)file.data;
    ndp_status st = r->o->form == NDP_TOKENS_TEXT
                        ? decode_lines(r, contents, file.size)
                        : ndp_source_visit(r->o->file, contents, file.size, r->o->text_field, encode_document, r);
    return ndp_file_end(&file, st);
}

static ndp_status run_text(tokenize_run *r) {
    size_t n = strlen(r->o->text);
    return r->o->form == NDP_TOKENS_TEXT ? decode(r, r->o->text, n, "the list") : encode(r, r->o->text, n);
}

ndp_status ndp_tokenize(const ndp_tokenize_opts *o, bool (*emit)(void *user, const char *line, size_t length),
                        void *user) {
    NDP_NOT_NULL(o, emit);
    NDP_CHECK(o->tokenizer, "no tokenizer is given: a folder with a tokenizer.json, such a file, or \"bytes\"");
    NDP_CHECK(!o->file != !o->text, "give either a file or a text to tokenize, not %s", o->file ? "both" : "neither");
    tokenize_run r = {.o = o, .file = o->file, .emit = emit, .user = user};
    bool from_stdin = o->file && !strcmp(o->file, "-");
    char source[NDP_PATH];
    NDP_TRY(ndp_hub_find(NDP_HUB_MODEL, o->tokenizer, source));
    NDP_TRY(ndp_hub_explain(NDP_HUB_MODEL, o->tokenizer, source, ndp_tokenizer_create(source, &r.tokenizer)));
    ndp_status st = from_stdin ? run_stdin(&r) : o->file ? run_file(&r) : run_text(&r);
    ndp_tokenizer_destroy(r.tokenizer);
    ndp_ids_release(&r.ids);
    ndp_str_release(&r.line);
    return st == STOPPED ? NDP_OK : st;
}
