/* The stages of tokenizers one by one, as small tokenizer.json files. Expected values are those of the reference
 * library's source: read it where they surprise. */
#include "text/tokenizer.h"

#include "check.h"
#include <stdlib.h>

static ndp_tokenizer *parse(const char *text) {
    ndp_tokenizer *t = NULL;
    CHECK_OK(ndp_tokenizer_parse(text, strlen(text), "here", &t));
    return t;
}

/* All tokens of a text, separated by "|". */
static void check_tokens(const ndp_tokenizer *t, const char *text, const char *want) {
    ndp_ids ids = {0};
    ndp_str got = {0};
    ndp_str_add(&got, "");
    CHECK_OK(ndp_tokenizer_encode(t, text, strlen(text), false, &ids));
    for (int64_t i = 0; i < ids.n; i++) {
        ndp_span piece = ndp_tokenizer_token(t, ids.items[i]);
        ndp_str_add(&got, i ? "|" : "");
        ndp_str_add_bytes(&got, piece.data, piece.n);
    }
    if (strcmp(got.data ? got.data : "", want) != 0)
        fail_msg("'%s' gives '%s', expected '%s'", text, got.data, want);
    ndp_str_release(&got);
    ndp_ids_release(&ids);
}

static void check_decoded(const ndp_tokenizer *t, const char *want, const int32_t *ids, int64_t n) {
    ndp_str text = {0};
    ndp_str_add(&text, "");
    CHECK_OK(ndp_tokenizer_decode(t, ids, n, true, &text));
    assert_string_equal(text.data ? text.data : "", want);
    ndp_str_release(&text);
}
#define DECODES(t, want, ...)                                                                                          \
    check_decoded(t, want, (const int32_t[]){__VA_ARGS__}, NDP_COUNT(((const int32_t[]){__VA_ARGS__})))

/* A model in which every character is a token of its own: what normalizers leave is what one sees. Unknown ones are
 * bytes. */
static char *with_characters(const char *stages) {
    ndp_str s = {0};
    ndp_str_addf(&s, "{%s\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[],\"vocab\":{", stages);
    for (int i = 0; i < 256; i++)
        ndp_str_addf(&s, "\"<0x%02X>\":%d,", i, i);
    for (int c = 0x21, id = 256; c < 0x250; c++) {
        if (c == '"' || c == '\\' || (c >= 0x7f && c < 0xa0))
            continue;
        char text[3] = {(char)(c < 0x80 ? c : 0xc0 | c >> 6), (char)(c < 0x80 ? 0 : 0x80 | (c & 0x3f))};
        ndp_str_addf(&s, "%s\"%s\":%d", id > 256 ? "," : "", text, id);
        id++;
    }
    ndp_str_add(&s, ",\"\xe2\x96\x81\":1000,\" \":1001,\"\xcc\x81\":1002}}}");
    return ndp_str_detach(&s);
}

/* ---- normalizers ---- */

static void normalizers_change_texts(void **state) {
    (void)state;
    static const struct {
        const char *normalizer, *text, *want;
    } cases[] = {
        {"{\"type\":\"NFC\"}", "e\xcc\x81 x", "\xc3\xa9| |x"},
        {"{\"type\":\"NFC\"}", "\xc3\xa9", "\xc3\xa9"},
        {"{\"type\":\"NFC\"}", "A\xcc\x8a", "\xc3\x85"},
        {"{\"type\":\"NFD\"}", "\xc3\xa9", "e|\xcc\x81"},
        {"{\"type\":\"NFKC\"}", "\xef\xac\x81x\xc2\xb2", "f|i|x|2"},
        {"{\"type\":\"NFKD\"}", "\xef\xbc\xa1\xc3\xa9", "A|e|\xcc\x81"},
        {"{\"type\":\"Lowercase\"}", "AB\xc3\x84", "a|b|\xc3\xa4"},
        {"{\"type\":\"Lowercase\"}", "\xc4\xb0", "i|<0xCC>|<0x87>"},
        {"{\"type\":\"StripAccents\"}", "e\xcc\x81x", "e|x"},
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", " \xc2\xa0 a b\n\xe3\x80\x80", "a| |b"},
        {"{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}", " a ", " |a"},
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", " \n", ""},
        {"{\"type\":\"Prepend\",\"prepend\":\">\"}", "a", ">|a"},
        {"{\"type\":\"Prepend\",\"prepend\":\">\"}", "", ""},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"a.\"},\"content\":\"x\"}", "a.ab", "x|a|b"},
        {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a.|c+\"},\"content\":\"x\"}", "a.abccd", "x|x|x|d"},
        {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"^\"},\"content\":\">\"}", "ab", ">|a|b"},
        {"{\"type\":\"NFKC\"}", "\xe3\x8b\xbf\xe3\x8b\xbe",
         "<0xE3>|<0x8B>|<0xBF>|<0xE3>|<0x83>|<0xB2>"},                           /* one of Unicode 12 */
        {"{\"type\":\"StripAccents\"}", "a\xcc\x81\xdf\xbd", "a|<0xDF>|<0xBD>"}, /* of 11 */
        {"{\"type\":\"Nmt\"}",
         "a\x01\x08"
         "b\tc\xe2\x80\x8b"
         "d\x0b\x7f",
         "a|b| |c| |d"},
        {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"StripAccents\"},{\"type\":"
         "\"Sequence\","
         "\"normalizers\":[{\"type\":\"Lowercase\"}]}]}",
         "\xc3\x89T\xc3\x89", "e|t|e"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *stage = ndp_format("\"normalizer\":%s,", cases[i].normalizer), *file = with_characters(stage);
        ndp_tokenizer *t = parse(file);
        check_tokens(t, cases[i].text, cases[i].want);
        ndp_tokenizer_destroy(t);
        free(file);
        free(stage);
    }
}

/* Marks are ordered by class, in a time that is not the square of their number. */
static void long_runs_of_marks_are_ordered(void **state) {
    (void)state;
    enum { PAIRS = 200000 };
    char *file = with_characters("\"normalizer\":{\"type\":\"NFC\"},");
    ndp_tokenizer *t = parse(file);
    ndp_str text = {0};
    ndp_str_add(&text, "x");
    for (int i = 0; i < PAIRS; i++)
        ndp_str_add(&text, "\xcc\x81\xcc\xa3"); /* acute above (230), dot below (220) */
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(t, text.data, text.length, false, &ids));
    /* x with a dot below is not composed: x, then all dots (as bytes), then all acutes. */
    assert_int_equal(ids.n, 1 + 2 * PAIRS + PAIRS);
    assert_int_equal(ids.items[1], 0xcc);
    assert_int_equal(ids.items[2], 0xa3);
    assert_int_equal(ids.items[ids.n - 1], 1002);
    assert_int_equal(ids.items[2 * PAIRS + 1], 1002);
    ndp_ids_release(&ids);
    ndp_str_release(&text);
    ndp_tokenizer_destroy(t);
    free(file);
}

/* A table of two entries, "A" to "xy" and U+00C4 to "": a double array written by hand, as Darts-clone lays it out. */
static void precompiled_tables_replace(void **state) {
    (void)state;
    static const char table[] = "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"},";
    enum { UNITS = 1024 };
    uint32_t units[UNITS] = {0};
    units[0] = 1u << 10;                         /* the root: children at 1 ^ c */
    units[1 ^ 'A'] = 200u << 10 | 1u << 8 | 'A'; /* has a leaf, at (1 ^ 'A') ^ 200 */
    units[1 ^ 'A' ^ 200] = 1u << 31;             /* value 0: "xy" */
    units[1 ^ 0xc3] = 300u << 10 | 0xc3;
    units[(1 ^ 0xc3 ^ 300) ^ 0x84] = 600u << 10 | 1u << 8 | 0x84;
    units[(1 ^ 0xc3 ^ 300) ^ 0x84 ^ 600] = 1u << 31 | 3; /* value 3: "" */
    unsigned char blob[4 + sizeof units + 4] = {sizeof units & 255, sizeof units >> 8};
    memcpy(blob + 4, units, sizeof units);
    memcpy(blob + 4 + sizeof units, "xy\0", 4);
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ndp_str base64 = {0};
    for (size_t i = 0; i < sizeof blob; i += 3) {
        uint32_t bits = (uint32_t)blob[i] << 16 | (i + 1 < sizeof blob ? (uint32_t)blob[i + 1] << 8 : 0) |
                        (i + 2 < sizeof blob ? blob[i + 2] : 0);
        for (int k = 0; k < 4; k++)
            ndp_str_addf(&base64, "%c", i + (size_t)k > sizeof blob ? '=' : digits[bits >> (18 - 6 * k) & 63]);
    }
    char *stage = ndp_format(table, base64.data), *file = with_characters(stage);
    ndp_tokenizer *t = parse(file);
    check_tokens(t, "aAb", "a|x|y|b");
    check_tokens(t, "\xc3\x84q\xc3\x85", "q|\xc3\x85");
    check_tokens(t, "A\xcc\x81",
                 "x|y"); /* a grapheme below 6 bytes takes the entry that it begins with: the mark goes */
    ndp_tokenizer_destroy(t);
    free(file);
    free(stage);
    ndp_str_release(&base64);
}

/* ---- pre-tokenizers ---- */

/* Words are seen as tokens: the unigram model has all of them. */
static void pretokenizers_cut_texts(void **state) {
    (void)state;
#define SPLIT(pattern, behavior, invert)                                                                               \
    "{\"type\":\"Split\",\"pattern\":{" pattern "},\"behavior\":\"" behavior "\",\"invert\":" invert "}"
#define DASH "\"String\":\"-\""
    static const struct {
        const char *stage, *text, *want;
    } cases[] = {
        {SPLIT(DASH, "Removed", "false"), "a-b--c-", "a|b|c"},
        {SPLIT(DASH, "Isolated", "false"), "a-b--c-", "a|-|b|-|-|c|-"},
        {SPLIT(DASH, "MergedWithPrevious", "false"), "a-b--c-", "a-|b-|-|c-"},
        {SPLIT(DASH, "MergedWithNext", "false"), "a-b--c-", "a|-b|-|-c|-"},
        {SPLIT(DASH, "Contiguous", "false"), "a-b--c-", "a|-|b|--|c|-"},
        {SPLIT(DASH, "Removed", "true"), "a-b--c-", "-|-|-|-"},
        {SPLIT(DASH, "MergedWithNext", "true"), "a-b--c-", "a-|b-|-|c-"},
        {SPLIT(DASH, "Contiguous", "true"), "--a", "--|a"},
        {SPLIT("\"Regex\":\"[0-9]{2}\"", "Isolated", "false"), "a123b", "a|12|3b"},
        {"{\"type\":\"Digits\",\"individual_digits\":true}", "a12\xc2\xb2", "a|1|2|\xc2\xb2"},
        {"{\"type\":\"Digits\",\"individual_digits\":false}",
         "a12\xc2\xb2"
         "b",
         "a|12\xc2\xb2|b"},
        {"{\"type\":\"Punctuation\"}", "a,b$\xc2\xab", "a|,|b|$|\xc2\xab"},
        {"{\"type\":\"Punctuation\",\"behavior\":\"Removed\"}", "a,b", "a|b"},
        {"{\"type\":\"Punctuation\"}", "a\xe2\xb9\x82-\xe2\xb9\x83", "a|\xe2\xb9\x82|-|\xe2\xb9\x83"},
        {"{\"type\":\"Punctuation\"}", "a\xe2\xb9\x83", "a\xe2\xb9\x83"}, /* U+2E43 is of Unicode 9 */
        {"{\"type\":\"BertPreTokenizer\"}", " a,b  $\xc2\xab", "a|,|b|$|\xc2\xab"},
        {"{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"-\"}", "a--b-c ", "a|b|c "},
        {"{\"type\":\"Whitespace\"}", "ab,, c\xc2\xb2", "ab|,,|c|\xc2\xb2"},
        {"{\"type\":\"WhitespaceSplit\"}",
         " ab,\n c\xc2\xa0"
         "d",
         "ab,|c|d"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}", "a b  c", "_a|_b|_|_c"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}", " a", "_a"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\"}", "a b", "a|_b"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}", "a b", "a|_b"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\",\"split\":false}", "a b", "_a_b"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Digits\"}]}", "a1 22b",
         "a|1|22|b"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}", "a  b'll 12",
         "a|\xc4\xa0|\xc4\xa0"
         "b|'ll|\xc4\xa0"
         "12"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}", "a b",
         "\xc4\xa0"
         "a\xc4\xa0"
         "b"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
         "false}," SPLIT("\"Regex\":\"\\u0120\"", "Removed", "false") "]}",
         "a b", "a|b"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_str file = {0}, words = {0};
        ndp_str_add(&words, cases[i].want);
        ndp_str_addf(&file, "{\"pre_tokenizer\":%s,\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0]",
                     cases[i].stage);
        const char *known[64];
        int n = 0;
        for (char *word = strtok(words.data, "|"); word; word = strtok(NULL, "|")) {
            int k = 0;
            while (k < n && strcmp(known[k], word) != 0)
                k++;
            if (k == n) {
                known[n++] = word;
                ndp_str_addf(&file, ",[\"%s\",-%d]", word, 1);
            }
        }
        ndp_str_add(&file, "]}}");
        ndp_tokenizer *t = parse(file.data);
        check_tokens(t, cases[i].text, cases[i].want);
        ndp_tokenizer_destroy(t);
        ndp_str_release(&file);
        ndp_str_release(&words);
    }
}

/* "first": only where the text begins, not behind an added token. */
static void metaspace_first_is_of_the_text(void **state) {
    (void)state;
    ndp_tokenizer *t =
        parse("{\"added_tokens\":[{\"id\":4,\"content\":\"<x>\"}],\"pre_tokenizer\":{\"type\":\"Metaspace\","
              "\"replacement\":\"_\",\"prepend_scheme\":\"first\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
              "\"vocab\":[[\"?\",0],[\"_a\",-1],[\"a\",-2],[\"_\",-3]]}}");
    check_tokens(t, "a<x>a a", "_a|<x>|a|_a");
    check_tokens(t, "<x>a", "<x>|a");
    ndp_tokenizer_destroy(t);
}

/* Nor where normalizers took what the text began with. */
static void metaspace_first_needs_the_first_character(void **state) {
    (void)state;
    static const struct {
        const char *normalizer, *text, *want;
    } cases[] = {
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}", "a", "_|a"},
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}", " a", "a"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"xa\"},\"content\":\"b\"}", "xa", "b"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"b\"}", "xa", "_|b|a"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"xa\"},\"content\":\"bb\"}", "xa", "b|b"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"bb\"}", "xa", "_|b|b|a"},
        {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"^\"},\"content\":\"b\"}", "xa", "_|b|x|a"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"\"}", "axa", "_|a|a"},
        {"{\"type\":\"StripAccents\"}",
         "\xcc\x81"
         "a",
         "a"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *stages = ndp_format("\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
                                  "\"prepend_scheme\":\"first\"},",
                                  cases[i].normalizer);
        char *file = with_characters(stages);
        ndp_tokenizer *t = parse(file);
        check_tokens(t, cases[i].text, cases[i].want);
        ndp_tokenizer_destroy(t);
        free(file);
        free(stages);
    }
}

/* ---- added tokens ---- */

/* What the first character becomes may be cut: each of its pieces begins where the text does. Expected is what the
 * reference gives. */
static void metaspace_first_is_of_all_its_pieces(void **state) {
    (void)state;
    static const struct {
        const char *normalizer, *text, *want;
    } cases[] = {
        {"{\"type\":\"NFC\"}", "..a", "_|.|.|a"},
        {"{\"type\":\"NFKC\"}", "\u2026a", "_|.|_|.|_|.|a"},
        {"{\"type\":\"NFKC\"}", "a\u2026", "_|a|.|.|."},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"..\"}", "xa", "_|.|_|.|a"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"ax\"},\"content\":\"..\"}", "axa", ".|.|a"},
        {"{\"type\":\"Prepend\",\"prepend\":\".\"}", "a.a", "_|.|_|a|.|a"},
        {"{\"type\":\"Prepend\",\"prepend\":\".\"}", "..a", "_|.|_|.|.|a"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *stages = ndp_format(
            "\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
            "\"pattern\":{\"String\":\".\"},\"behavior\":\"Isolated\"},{\"type\":\"Metaspace\",\"replacement\":"
            "\"_\",\"prepend_scheme\":\"first\"}]},",
            cases[i].normalizer);
        char *file = with_characters(stages);
        ndp_tokenizer *t = parse(file);
        check_tokens(t, cases[i].text, cases[i].want);
        ndp_tokenizer_destroy(t);
        free(file);
        free(stages);
    }
}

/* White space that one token took and the next one is made of. */
static void added_tokens_of_white_space(void **state) {
    (void)state;
    static const char file[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<r>\",\"rstrip\":true},{\"id\":4,\"content\":\"  \",%s},"
        "{\"id\":5,\"content\":\"  "
        "b\"}],\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],[\" \",-1]]}}";
    char *plain = ndp_format(file, "\"lstrip\":false"), *both = ndp_format(file, "\"lstrip\":true,\"rstrip\":true");
    ndp_tokenizer *t = parse(plain);
    check_tokens(t, "<r>  ba", "<r>|  b|a");
    check_tokens(t, "<r>   a", "<r>|  | |a"); /* what lies behind the second is text again */
    ndp_tokenizer_destroy(t);
    t = parse(both);
    check_tokens(t, "<r>   a", "<r>|a");
    check_tokens(t, "a    a", "a|  |a");
    ndp_tokenizer_destroy(t);
    free(plain);
    free(both);
}

static void added_tokens_have_flags(void **state) {
    (void)state;
    ndp_tokenizer *t = parse(
        "{\"added_tokens\":[{\"id\":6,\"content\":\"<l>\",\"lstrip\":true},{\"id\":7,\"content\":\"<r>\",\"rstrip\":"
        "true},"
        "{\"id\":8,\"content\":\"word\",\"single_word\":true},{\"id\":9,\"content\":\"<n>\",\"normalized\":true}],"
        "\"normalizer\":{\"type\":\"Lowercase\"},"
        "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],[\" "
        "\",-1],[\"w\",-1],[\"ord\",-1],[\"s\",-1]]}}");
    check_tokens(t, "a  <l> a", "a|<l>| |a");
    check_tokens(t, "a <r>\n\xe3\x80\x80 a", "a| |<r>|a");
    check_tokens(t, "<r>  <l>a", "<r>|<l>|a"); /* the white space goes with the first */
    check_tokens(t, "a word words", "a| |word| |w|ord|s");
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(t, "a<N>a", 5, false, &ids));
    assert_int_equal(ids.items[1], 9); /* found in the normalized text */
    ids.n = 0;
    CHECK_OK(ndp_tokenizer_encode(t, "a<L>a", 5, false, &ids));
    assert_true(ids.items[1] != 6); /* looked for in the text as it came */
    ndp_ids_release(&ids);
    ndp_tokenizer_destroy(t);
}

/* ---- the unigram model ---- */

static void unigram_takes_the_best_sum(void **state) {
    (void)state;
    ndp_tokenizer *t =
        parse("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1.0],[\"b\",-2.0],"
              "[\"ab\",-3.5],[\"abc\",-4.0],[\"bc\",-1.5],[\"aaaa\",-4.0]]}}");
    check_tokens(t, "ab", "a|b");
    check_tokens(t, "abc", "a|bc");
    check_tokens(t, "aaaa", "aaaa");   /* a tie: the way found first, from the earliest begin, stays */
    check_tokens(t, "xya", "<unk>|a"); /* unknown characters are one token */
    check_tokens(t, "axbyy", "a|<unk>|b|<unk>");
    check_tokens(t, "c", "<unk>");
    ndp_tokenizer_destroy(t);
    t = parse(
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"ab\",-9],[\"a\",-2],[\"b\",-2],"
        "[\"ab\",-1]]}}"); /* the last of equal pieces counts */
    check_tokens(t, "ab", "ab");
    assert_int_equal(ndp_tokenizer_id(t, "ab"), 4);
    ndp_tokenizer_destroy(t);
    t = parse(
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0],[\"a\",-1],"
        "[\"<0xC3>\",-9],[\"<0xA4>\",-9],[\"xyz\",-1]]}}");
    check_tokens(t, "a\xc3\xa4", "a|<0xC3>|<0xA4>");
    check_tokens(t, "a\xc3\xb6", "a|<unk>"); /* not all of its bytes are there */
    ndp_tokenizer_destroy(t);
    ndp_ids ids = {0};
    t = parse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]]}}");
    CHECK_FAILS(ndp_tokenizer_encode(t, "ab", 2, false, &ids), NDP_EINVAL, "U+0062");
    ndp_ids_release(&ids);
    ndp_tokenizer_destroy(t);
}

/* The vocabulary's strings move when an added token makes it grow. */
static void unigram_outlives_added_tokens(void **state) {
    (void)state;
    enum { LENGTH = 1 << 20 };
    char *token = malloc(LENGTH + 1);
    memset(token, 'x', LENGTH);
    token[LENGTH] = '\0';
    char *file = ndp_format("{\"added_tokens\":[{\"id\":4,\"content\":\"%s\"}],\"model\":{\"type\":\"Unigram\","
                            "\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],[\"b\",-1],[\"ab\",-1]]}}",
                            token);
    ndp_tokenizer *t = parse(file);
    check_tokens(t, "abba", "ab|b|a");
    ndp_tokenizer_destroy(t);
    free(file);
    free(token);
}

/* Cut where no token reaches across or not: the same as one lattice over all of it. */
static void unigram_stretches_join_up(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    ndp_tokenizer *t =
        parse("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1.5],[\"ab\",-2],"
              "[\"ba\",-2.25],[\"b\",-1.25],[\"c\",-1]]}}");
    char *text = malloc(N);
    for (int i = 0; i < N; i++)
        text[i] = "abacab"[i % 6];
    ndp_ids all = {0}, one = {0};
    CHECK_OK(ndp_tokenizer_encode(t, text, N - N % 6, false, &all));
    CHECK_OK(ndp_tokenizer_encode(t, text, 6, false, &one));
    /* "c" stands alone, "b" + "a" meet at the borders: the pattern of tokens repeats from the second period on. */
    size_t length = 0;
    for (int64_t i = 0; i < all.n; i++)
        length += ndp_tokenizer_token(t, all.items[i]).n;
    assert_int_equal(length, N - N % 6);
    int64_t period = 0;
    while (ndp_tokenizer_token(t, all.items[period]).data[0] != 'c')
        period++;
    int64_t next = period + 1;
    while (ndp_tokenizer_token(t, all.items[next]).data[0] != 'c')
        next++;
    for (int64_t i = next; i < all.n - (next - period); i++)
        assert_int_equal(all.items[i], all.items[i - (next - period)]);
    free(text);
    ndp_ids_release(&all);
    ndp_ids_release(&one);
    ndp_tokenizer_destroy(t);
}

/* ---- decoders ---- */

#define UNIGRAM(vocab) "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[" vocab "]}}"

static void decoders_join_tokens(void **state) {
    (void)state;
    ndp_tokenizer *t = parse(
        "{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}," UNIGRAM("[\"_a\",0],[\"_b_\",0],[\"_\",0]"));
    DECODES(t, "a b ", 0, 1);
    DECODES(t, "  a", 2, 2, 0);
    ndp_tokenizer_destroy(t);
    t = parse("{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\"}," UNIGRAM(
        "[\"_a\",0]"));
    DECODES(t, " a a", 0, 0);
    ndp_tokenizer_destroy(t);
    /* "\u0120" is a space, "\u00c3" and "\u00a4" are the bytes of one letter, "\u4e2d" stands for no byte. */
    t = parse("{\"decoder\":{\"type\":\"ByteLevel\"}," UNIGRAM(
        "[\"\\u0120a\",0],[\"\\u00c3\",0],[\"\\u00a4\",0],[\"\\u0120\\u4e2d\",0],[\"\\u00e2\\u0138\",0]"));
    DECODES(t, " a\xc3\xa4", 0, 1, 2);
    DECODES(t, "\xef\xbf\xbd a", 1, 0);
    DECODES(t, "\xef\xbf\xbd\xef\xbf\xbd", 2, 2);
    DECODES(t,
            "\xef\xbf\xbd"
            "\xc3\xa4",
            4, 1, 2); /* the begin of a longer character is one U+FFFD */
    DECODES(t, "\xc4\xa0\xe4\xb8\xad", 3);
    ndp_tokenizer_destroy(t);
    t = parse("{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"_+\"},"
              "\"content\":\" \"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
              "\",\"start\":1,\"stop\":1}]}," UNIGRAM("[\"__a\",0],[\"b_\",0]"));
    DECODES(t, "ab", 0, 1);
    DECODES(t, "a a", 0, 0);
    ndp_tokenizer_destroy(t);
}

/* ---- post-processors ---- */

static void post_processors_add_tokens(void **state) {
    (void)state;
    ndp_tokenizer *t = parse(
        "{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\",\"trim_offsets\":false},"
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"b\",\"type_id\":0}},{\"Sequence\":{"
        "\"id\":\"A\","
        "\"type_id\":0}},{\"SpecialToken\":{\"id\":\"e\",\"type_id\":0}}],\"special_tokens\":{\"b\":{\"id\":\"b\","
        "\"ids\":[1],"
        "\"tokens\":[\"b\"]},\"e\":{\"id\":\"e\",\"ids\":[2,1],\"tokens\":[\"e\",\"b\"]}}}]}," UNIGRAM(
            "[\"a\",0],[\"b\",0],[\"e\",0]"));
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(t, "a", 1, true, &ids));
    const int32_t want[] = {1, 0, 2, 1};
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.items, want, sizeof want);
    assert_int_equal(ndp_tokenizer_bos(t), 1);
    assert_int_equal(ndp_tokenizer_eos(t), 1);
    ndp_ids_release(&ids);
    ndp_tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalizers_change_texts),
        cmocka_unit_test(long_runs_of_marks_are_ordered),
        cmocka_unit_test(precompiled_tables_replace),
        cmocka_unit_test(pretokenizers_cut_texts),
        cmocka_unit_test(metaspace_first_is_of_the_text),
        cmocka_unit_test(metaspace_first_needs_the_first_character),
        cmocka_unit_test(metaspace_first_is_of_all_its_pieces),
        cmocka_unit_test(added_tokens_of_white_space),
        cmocka_unit_test(added_tokens_have_flags),
        cmocka_unit_test(unigram_takes_the_best_sum),
        cmocka_unit_test(unigram_stretches_join_up),
        cmocka_unit_test(unigram_outlives_added_tokens),
        cmocka_unit_test(decoders_join_tokens),
        cmocka_unit_test(post_processors_add_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
