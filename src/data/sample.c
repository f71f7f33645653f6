/* Reading the heads of all sources, for a dry run.
 *
 * The head of each file is found first (take_head), without parsing it, so that it ends with a whole record where it
 * can; then it is tokenized by the code of a real run (share.h). Compressed files are unpacked as far as needed, eight
 * times further each time. Threads read one source each. Called by plan/plan.c. */
#include "data/sample.h"

#include "data/cache/corpus.h"
#include "data/cache/file_share.h"
#include "data/cache/windows.h"
#include "data/corpus/unpack.h"
#include "data/table/table_reader.h"
#include <string.h>

/* The head of one source, while it is read. */
typedef struct source_head {
    ndp_file_share share; /* of the current file */
    ndp_file_share all;   /* of all files so far */
    size_t bytes;
    int64_t records;
    bool cut;               /* something was left out */
    ndp_file_window window; /* of the current file */
} source_head;

/* ---- the head of a file ---- */

/* Where a text of about `most` bytes may end: not inside a character. */
static size_t text_head(const char *text, size_t most) {
    size_t at = most;
    while (at > 0 && most - at < 4 && (text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

static bool is_blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r' && text[i] != '\n')
            return false;
    return true;
}

/* JSONL: the end of the last line that is wanted. The first line may be longer than `most`; 0: it does not end here. */
static size_t lines_head(const char *text, size_t size, size_t most, int64_t *records) {
    int64_t left = *records;
    size_t at = 0;
    while (at < size) {
        const char *stop = memchr(text + at, '\n', size - at);
        size_t end = stop ? (size_t)(stop - text) + 1 : size;
        bool blank = is_blank(text + at, end - at), first = left == *records;
        if (!blank && (left == 0 || (end > most && !first)))
            break;
        if (!stop && end > most && first)
            return 0;
        left -= !blank;
        at = end;
    }
    *records -= left;
    return at;
}

/* The same for the records of a JSON list: the position of the comma after the last wanted one. If the list ends
 * before, or the text is not a list, the end of the text. */
static size_t list_head(const char *text, size_t size, size_t most, int64_t *records) {
    int64_t left = *records;
    size_t found = 0;
    int depth = 0;
    bool string = false;
    for (size_t at = 0; at < size && left > 0 && (at < most || left == *records); at++) {
        char c = text[at];
        if (string && c == '\\') {
            at++;
        } else if (c == '"') {
            string = !string;
        } else if (!string && (c == '[' || c == '{')) {
            if (depth++ == 0 && c == '{')
                return size;
        } else if (!string && (c == ']' || c == '}')) {
            if (--depth == 0)
                return size;
        } else if (!string && c == ',' && depth == 1) {
            found = at;
            left--;
        }
    }
    *records -= left;
    return found;
}

/* A copy of the first `n` bytes of a JSON list, closed with a bracket. */
static char *closed_list(const char *text, size_t n) {
    char *copy = malloc(n + 1);
    if (copy) {
        memcpy(copy, text, n);
        copy[n] = ']';
    }
    return copy;
}

/* Reduces a file to its head, of about `most` bytes and at most *records records. *records becomes their number, if
 * they were counted. *copy: memory to be freed after use. *found: false if no record ends within the known bytes; the
 * chunk is then unchanged. */
static ndp_status take_head(ndp_source_chunk *c, size_t most, int64_t *records, char **copy, bool *found) {
    size_t end = c->size;
    *copy = NULL;
    if (c->kind == NDP_SOURCE_JSONL || c->kind == NDP_SOURCE_TABLE)
        end = lines_head(c->contents, c->size, most, records);
    else if (c->kind == NDP_SOURCE_JSON)
        end = list_head(c->contents, c->size, most, records);
    else if (c->kind == NDP_SOURCE_TEXT && c->size > most)
        end = text_head(c->contents, most);
    *found = end > 0;
    if (end == 0 || end == c->size)
        return NDP_OK;
    c->size = end;
    if (c->kind != NDP_SOURCE_JSON)
        return NDP_OK;
    *copy = closed_list(c->contents, end);
    c->contents = *copy;
    c->size = end + 1;
    return NDP_MEMORY(*copy, "to read %s", c->path);
}

/* Reduces a file to the part that a slice takes. Returns the lines before it. */
static int64_t enter_window(const ndp_file_window *w, ndp_source_chunk *c) {
    int64_t lines = 0;
    size_t stop = w->stop < c->size ? w->stop : c->size;
    if (c->kind == NDP_SOURCE_JSON || w->end == INT64_MAX)
        return 0;
    for (size_t i = 0; i < w->begin; i++)
        lines += c->contents[i] == '\n';
    c->contents += w->begin;
    c->size = stop - w->begin;
    return lines;
}

/* Encodes the head of a file whose first `size` bytes are known, or all of them (`complete`). *done: false if more
 * bytes are needed to find the end of the first record. */
static ndp_status encode_head(source_head *h, const char *path, const char *contents, size_t size, bool complete,
                              bool *done) {
    size_t most = NDP_SAMPLE_BYTES - h->bytes;
    int64_t left = NDP_SAMPLE_RECORDS - h->records, records = left;
    ndp_source_chunk *c = &h->share.chunk;
    char *copy;
    NDP_TRY(ndp_source_begin(path, contents, size, c));
    int64_t lines = enter_window(&h->window, c);
    size_t all = c->size;
    NDP_TRY(take_head(c, most, &records, &copy, done));
    *done = *done || complete;
    if (!*done || !ndp_source_cut(c, 0, c->kind == NDP_SOURCE_IDS ? most : c->size)) {
        free(copy);
        return NDP_OK;
    }
    c->line += lines;
    bool counts = c->kind == NDP_SOURCE_TEXT; /* documents of a text are found only when they are visited */
    h->share.most = counts ? left : 0;
    ndp_file_share_encode(&h->share);
    free(copy);
    h->cut |= h->share.stopped || c->end < all || !complete;
    h->records += counts ? h->share.ends.n : records;
    h->bytes += c->end;
    return ndp_file_share_check(&h->share);
}

static ndp_status encode_packed(source_head *h, const char *path, const ndp_mapped *file) {
    ndp_source_kind kind;
    NDP_TRY(ndp_source_kind_of(path, &kind));
    /* A file of ids is unpacked whole: its size tells whether it is complete. */
    size_t want = kind == NDP_SOURCE_IDS ? SIZE_MAX : NDP_SAMPLE_BYTES + 1;
    for (bool done = false; !done; want *= 8) {
        char *contents;
        size_t n;
        NDP_TRY(ndp_unpack_head(path, file->data, file->size, want, &contents, &n));
        ndp_status st = encode_head(h, path, contents, n, n < want, &done);
        free(contents);
        NDP_TRY(st);
    }
    return NDP_OK;
}

static ndp_status encode_table(source_head *h, const char *path) {
    char *rows;
    size_t n;
    bool complete, done;
    NDP_TRY(ndp_table_head(path, NDP_SAMPLE_RECORDS - h->records, NDP_SAMPLE_BYTES - h->bytes, &rows, &n, &complete));
    ndp_status st = encode_head(h, path, rows, n, complete, &done);
    free(rows);
    return st;
}

static ndp_status encode_file(source_head *h, const char *path, const ndp_mapped *file) {
    ndp_source_kind kind;
    bool done;
    NDP_TRY(ndp_source_kind_of(path, &kind));
    if (kind == NDP_SOURCE_TABLE)
        return encode_table(h, path);
    return ndp_is_packed(path) ? encode_packed(h, path, file)
                               : encode_head(h, path, (const char *)file->data, file->size, true, &done);
}

static ndp_status add_share(source_head *h) {
    const ndp_file_share *s = &h->share;
    ndp_file_share *all = &h->all;
    int64_t first = all->ids.n;
    NDP_TRY(ndp_array_reserve(&all->ids.items, &all->ids.capacity, first + s->ids.n, sizeof *all->ids.items));
    if (s->ids.n)
        memcpy(all->ids.items + first, s->ids.items, (size_t)s->ids.n * sizeof *all->ids.items);
    all->ids.n += s->ids.n;
    all->texts += s->texts;
    NDP_TRY(ndp_tally_merge(&all->tally, &s->tally, 0));
    NDP_TRY(ndp_file_share_append(s, first, &all->ends, &all->turns, &all->questions));
    int64_t last = all->ends.n ? all->ends.items[all->ends.n - 1] : 0;
    return last < all->ids.n ? ndp_places_add(&all->ends, all->ids.n) : NDP_OK; /* the head ends inside a document */
}

/* ---- sources ---- */

static ndp_status read_source(source_head *h, const ndp_corpus *c, int source) {
    int64_t f = source ? c->source_ends[source - 1] : 0;
    for (; f < c->source_ends[source]; f++) {
        const char *path = c->files.paths.items[f];
        const ndp_mapped *file = &c->mapped[f];
        if (h->records >= NDP_SAMPLE_RECORDS || h->bytes >= NDP_SAMPLE_BYTES) {
            h->cut = true;
            break;
        }
        h->share.ids.n = h->share.ends.n = h->share.turns.n = h->share.questions.n = h->share.texts = 0;
        ndp_tally_clear(&h->share.tally);
        h->window = ndp_corpus_window(c, f);
        if (h->window.begin >= h->window.stop && file->size > 0)
            continue;
        NDP_TRY(encode_file(h, path, file));
        NDP_TRY(add_share(h));
    }
    return NDP_OK;
}

static ndp_status read_sources(const ndp_dataset_options *o, const ndp_corpus *c, source_head *heads) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(ndp_dataset_threads(o))
    for (int i = 0; i < c->n_sources; i++) {
        heads[i].share.o = o;
        heads[i].share.format = ndp_dataset_format(o, i);
        ndp_file_share_end(&heads[i].all, read_source(&heads[i], c, i));
    }
    for (int i = 0; i < c->n_sources; i++)
        NDP_TRY(ndp_file_share_check(&heads[i].all));
    return NDP_OK;
}

/* ---- the cache ---- */

/* The sizes of a cache of these heads; no arrays yet. */
static ndp_token_cache count(const source_head *heads, int n) {
    ndp_token_cache c = {.n_sources = n, .id_bytes = 4};
    for (int i = 0; i < n; i++) {
        c.n_tokens += heads[i].all.ids.n;
        c.n_documents += heads[i].all.ends.n;
        c.n_texts += heads[i].all.texts;
        c.n_questions += heads[i].all.questions.n;
        c.head |= heads[i].cut;
    }
    return c;
}

static void fill(const source_head *heads, ndp_token_cache *c, uint32_t *ids, uint64_t *offsets, uint64_t *ends,
                 uint64_t *questions, uint8_t *trained) {
    int64_t at = 0, document = 0, question = 0;
    for (int i = 0; i < c->n_sources; i++) {
        const ndp_file_share *h = &heads[i].all;
        for (int64_t k = 0; k < h->ends.n; k++)
            offsets[document++] = (uint64_t)(k ? at + h->ends.items[k - 1] : at);
        for (int64_t k = 0; k < h->questions.n; k++)
            questions[question++] = (uint64_t)(at + h->questions.items[k]);
        bool trains = true;
        for (int64_t k = 0, turn = 0; k < h->ids.n; k++, at++) {
            for (; turn < h->turns.n && h->turns.items[turn] == k; turn++)
                trains = !trains;
            ids[at] = (uint32_t)h->ids.items[k];
            c->largest_id = h->ids.items[k] > c->largest_id ? h->ids.items[k] : c->largest_id;
            trained[at >> 3] |= (uint8_t)(trains << (at & 7));
        }
        ends[i] = (uint64_t)document;
    }
    offsets[document] = (uint64_t)at;
}

static ndp_status make_cache(const source_head *heads, int n, ndp_token_cache *out) {
    ndp_token_cache c = count(heads, n);
    size_t offsets = 8 * (size_t)(c.n_documents + 1), ids = ((size_t)c.n_tokens * 4 + 7) / 8 * 8, ends = 8 * (size_t)n,
           questions = 8 * (size_t)c.n_questions;
    char *memory = calloc(1, offsets + ends + questions + ids + (size_t)c.n_tokens / 8 + 1);
    NDP_CHECK_MEMORY(memory, "to read the head of the data");
    c.memory = memory;
    c.offsets = (const uint64_t *)(const void *)memory;
    c.source_ends = (const uint64_t *)(const void *)(memory + offsets);
    c.questions = (const uint64_t *)(const void *)(memory + offsets + ends);
    char *at = memory + offsets + ends + questions; /* ids, then bits */
    c.ids = at;
    for (int i = 0; i < n; i++)
        if (heads[i].all.turns.n)
            c.trained = (const uint8_t *)at + ids;
    fill(heads, &c, (uint32_t *)(void *)at, (uint64_t *)(void *)memory, (uint64_t *)(void *)(memory + offsets),
         (uint64_t *)(void *)(memory + offsets + ends), (uint8_t *)at + ids);
    ndp_status st = NDP_OK;
    for (int i = 0; i < n && st == NDP_OK; i++)
        st = ndp_tally_merge(&c.tally, &heads[i].all.tally, i);
    if (st == NDP_OK)
        *out = c;
    else
        ndp_token_cache_close(&c);
    return st;
}

static void release(source_head *heads, int n) {
    for (int i = 0; heads && i < n; i++) {
        ndp_file_share_release(&heads[i].share);
        ndp_file_share_release(&heads[i].all);
    }
    free(heads);
}

static ndp_status sample(const ndp_dataset_options *o, const ndp_corpus *c, ndp_token_cache *out) {
    source_head *heads = calloc((size_t)c->n_sources, sizeof *heads);
    ndp_status st = heads ? read_sources(o, c, heads) : NDP_FAIL(NDP_ENOMEM, "not enough memory to read the data");
    st = ndp_corpus_check_read(c, 0, c->files.paths.n, st);
    if (st == NDP_OK)
        st = make_cache(heads, c->n_sources, out);
    release(heads, c->n_sources);
    if (st == NDP_OK && out->n_documents == 0 && !out->head)
        st = ndp_corpus_fail_empty(c, &out->tally);
    return st;
}

ndp_status ndp_dataset_sample(const ndp_dataset_options *o, ndp_token_cache *out) {
    ndp_corpus c;
    ndp_token_cache made = {0};
    NDP_CHECK(o->n_files > 0, "no data: data.files names no file");
    NDP_TRY(ndp_corpus_open(o, &c));
    ndp_status st = ndp_windows_find_cheap(&c);
    if (st == NDP_OK)
        st = sample(o, &c, &made);
    ndp_corpus_close(&c);
    if (st == NDP_OK)
        *out = made;
    else
        ndp_token_cache_close(&made);
    return st;
}
