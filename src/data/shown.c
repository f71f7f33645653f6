/* Tokens as a text for people (shown.h). A token has no text of its own: what it adds depends on those before it, and a
 * character may be made of several. So stretches of tokens with the same marks are cut from the text of all of them,
 * where the text of the tokens before a border ends to agree with it. Called by job/. */
#include "data/shown.h"

#include "base/utf8.h"
#include <string.h>

/* What a stretch with these marks is put between: in plain text and on a terminal. */
static const char *const around[][2][2] = {
    [0] = {{"{", "}"}, {"\033[90m", "\033[0m"}},
    [NDP_SHOWN_ROW] = {{"", ""}, {"", ""}},
    [NDP_SHOWN_TRAINED] = {{"[", "]"}, {"\033[32m", "\033[0m"}},
    [NDP_SHOWN_ROW | NDP_SHOWN_TRAINED] = {{"[", "]"}, {"\033[32m", "\033[0m"}},
};

static void add_text(ndp_str *out, const char *text, size_t n) {
    for (size_t i = 0, length; i < n; i += length) {
        size_t most = ndp_utf8_length((unsigned char)text[i]);
        unsigned char c = (unsigned char)text[i];
        length = most >= 1 && most <= n - i && ndp_utf8_valid_prefix(text + i, most) == most ? most : 1;
        if (length == 1 && (c >= 0x7f || (c < ' ' && c != '\n' && c != '\t')))
            ndp_str_addf(out, "\\x%02x", c);
        else
            ndp_str_add_bytes(out, text + i, length);
    }
}

static void add_ids(ndp_str *out, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        ndp_str_addf(out, "%s%d", i ? " " : "", ids[i]);
}

/* Where the text of the first tokens ends in that of all. Where the last ones are parts of a character, before that. */
static ndp_status text_end(const ndp_tokenizer *t, const int32_t *ids, int64_t n, const ndp_str *whole, ndp_str *part,
                           size_t *end) {
    enum { BYTES = 4 }; /* of a character */
    size_t same = 0;
    for (int64_t less = 0; less < BYTES && less <= n; less++) {
        part->length = same = 0;
        NDP_TRY(ndp_tokenizer_decode(t, ids, n - less, false, part));
        while (same < part->length && same < whole->length && part->data[same] == whole->data[same])
            same++;
        if (same == part->length)
            break;
    }
    *end = same;
    return NDP_OK;
}

typedef struct shown_text {
    const ndp_tokenizer *t;
    const int32_t *ids;
    ndp_str whole, part;
    size_t at; /* in `whole` */
} shown_text;

static ndp_status add_stretch(shown_text *s, int64_t first, int64_t end, int64_t n, const char *const with[2], bool ids,
                              ndp_str *out) {
    size_t stop = s->whole.length;
    if (!ids && end < n)
        NDP_TRY(text_end(s->t, s->ids, end, &s->whole, &s->part, &stop));
    if (ids && first > 0)
        ndp_str_add(out, " ");
    ndp_str_add(out, with[0]);
    if (ids)
        add_ids(out, s->ids + first, end - first);
    else if (stop > s->at)
        add_text(out, s->whole.data + s->at, stop - s->at);
    ndp_str_add(out, with[1]);
    s->at = stop > s->at ? stop : s->at;
    return NDP_OK;
}

ndp_status ndp_shown_add(const ndp_tokenizer *t, const int32_t *ids, const uint8_t *marks, int64_t n,
                         ndp_shown_style style, ndp_str *out) {
    shown_text s = {.t = t, .ids = ids};
    bool as_ids = style.ids || ndp_tokenizer_why_no_texts(t);
    ndp_status st = as_ids ? NDP_OK : ndp_tokenizer_decode(t, ids, n, false, &s.whole);
    for (int64_t first = 0, end; first < n && st == NDP_OK; first = end) {
        bool trained = marks[first] & NDP_SHOWN_TRAINED;
        for (end = first + 1;
             end < n && (trained ? (marks[end] & NDP_SHOWN_TRAINED) != 0 : marks[end] == marks[first]);)
            end++;
        st = add_stretch(&s, first, end, n, around[marks[first]][style.colour], as_ids, out);
    }
    ndp_str_release(&s.whole);
    ndp_str_release(&s.part);
    return st == NDP_OK && out->failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory to show a record") : st;
}
