/* libFuzzer: a file of records from memory, its first byte says of which kind and for which chat template. Documents
 * that are accepted have spans in order inside their text, encode to the ids of their text, and come out of chunks as
 * they come out of the whole file. */
#include "data/corpus/encode.h"
#include "data/corpus/source.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char TOKENIZER[] =
    "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\" "
    "\":3,\"\\n\":4,\"\\n\\n\":5},"
    "\"merges\":[\"a b\",\"\\n "
    "\\n\"]},\"added_tokens\":[{\"id\":6,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":"
    "false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":7,\"content\":\"<|im_end|>\",\"single_word\":"
    "false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}]}";

typedef struct seen {
    const ndp_tokenizer *t;
    int64_t documents, tokens;
} seen;

static void check(bool fine) {
    if (!fine)
        __builtin_trap();
}

static ndp_status visit(void *user, const ndp_document *d) {
    seen *s = user;
    if (d->rejected) {
        check(!d->rejected->rejected);
        NDP_TRY(visit(user, d->rejected));
    }
    ndp_ids ids = {0}, whole = {0};
    ndp_places borders = {0};
    size_t at = 0;
    for (int64_t i = 0; i < (d->partly ? d->n_spans : 0); i++) {
        check(d->spans[i].begin >= at && d->spans[i].end > d->spans[i].begin && d->spans[i].end <= d->n);
        at = d->spans[i].end;
    }
    ndp_status st = ndp_encode_document(s->t, d, NULL, &ids, &borders, NULL);
    if (st == NDP_OK) {
        check((d->rendered ? ndp_tokenizer_encode_rendered(s->t, d->text, d->n, &whole)
                           : ndp_tokenizer_encode(s->t, d->text, d->n, true, &whole)) == NDP_OK &&
              whole.n == ids.n && (ids.n == 0 || !memcmp(ids.items, whole.items, (size_t)ids.n * sizeof *ids.items)));
        check(borders.n == (d->partly ? 2 * d->n_spans : 0));
        for (int64_t i = 0; i < borders.n; i++)
            check(borders.items[i] >= (i ? borders.items[i - 1] : 0) && borders.items[i] <= ids.n);
        s->documents++;
        s->tokens += ids.n;
    }
    ndp_ids_release(&ids);
    ndp_ids_release(&whole);
    free(borders.items);
    return st;
}

static ndp_status visit_chunks(const char *path, const char *contents, size_t size, size_t want,
                               const ndp_record_format *f, seen *s) {
    ndp_source_chunk c;
    NDP_TRY(ndp_source_begin(path, contents, size, &c));
    for (size_t at = 0; at < size; at += want)
        if (ndp_source_cut(&c, at, at + want))
            NDP_TRY(ndp_source_visit_chunk(&c, f, visit, s));
    return NDP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {"a.jsonl", "a.json", "a.txt"};
    static const char *const names[] = {"plain", "chatml", "qwen3", "deepseek-r1"};
    static ndp_tokenizer *t;
    ndp_chat chat;
    if (size == 0 || (!t && ndp_tokenizer_parse(TOKENIZER, strlen(TOKENIZER), "fuzz", &t) != NDP_OK))
        return 0;
    check(ndp_chat_init(&chat, t, "bytes", names[data[0] / 4 % 4], NULL) == NDP_OK);
    chat.eos = (ndp_span){"</s>", 4};
    ndp_record_format f = {.kind = (ndp_record_kind)(data[0] / 16 % 8), .chat = &chat, .train_all = data[0] / 128 != 0};
    if (f.train_all && f.kind == NDP_RECORD_TEXT) /* a text is trained on as a whole anyway */
        f.kind = NDP_RECORD_PREFERENCE, f.train_all = false;
    ndp_tally tally = {0};
    f.skip = data[0] / 4 % 2; /* with some of the templates */
    f.tally = &tally;
    const char *path = paths[data[0] % 3], *contents = (const char *)data + 1;
    seen whole = {.t = t}, cut = {.t = t};
    ndp_status st = visit_chunks(path, contents, size - 1, size, &f, &whole);
    if (st == NDP_OK)
        check(visit_chunks(path, contents, size - 1, 5, &f, &cut) == NDP_OK && cut.documents == whole.documents &&
              cut.tokens == whole.tokens);
    ndp_tally_clear(&tally);
    ndp_chat_release(&chat);
    return 0;
}
