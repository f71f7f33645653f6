/* How a tokenizer finds words, as keys of a GGUF file. llama.cpp has two kinds that the text room's BPE is one of:
 *
 *   gpt2    byte-level: words are found by a regular expression, which llama.cpp knows by a name ("pre"). Its converter
 *           finds the name by the hash of an encoded text; here it is found by the stages of tokenizer.json.
 *   llama   SentencePiece's: spaces are U+2581, characters without a token are bytes.
 *
 * Called by gguf_tokenizer.c. */
#include "base/json.h"
#include "weights/gguf/gguf.h"

#include <string.h>

/* A stage as a line: its type, and the options that change words. */
static void add_stages(ndp_str *s, struct json_object *o) {
    static const char *const texts[] = {"behavior", "prepend_scheme", "prepend", "content"};
    static const char *const flags[] = {"invert", "individual_digits", "add_prefix_space"};
    struct json_object *list, *pattern = json_object_object_get(o, "pattern"), *regex;
    if (json_object_object_get_ex(o, "pretokenizers", &list) || json_object_object_get_ex(o, "normalizers", &list)) {
        for (size_t i = 0; i < json_object_array_length(list); i++)
            add_stages(s, json_object_array_get_idx(list, i));
        return;
    }
    const char *type = ndp_json_text(json_object_object_get(o, "type"));
    ndp_str_add(s, type ? type : "");
    for (int i = 0; i < NDP_COUNT(texts); i++) {
        const char *text = ndp_json_text(json_object_object_get(o, texts[i]));
        if (text)
            ndp_str_addf(s, " %s", text);
    }
    for (int i = 0; i < NDP_COUNT(flags); i++)
        if (json_object_get_boolean(json_object_object_get(o, flags[i])))
            ndp_str_addf(s, " %s", flags[i]);
    if (type && strcmp(type, "ByteLevel") == 0 &&
        (!json_object_object_get_ex(o, "use_regex", &regex) || json_object_get_boolean(regex)))
        ndp_str_add(s, " words");
    const char *text = ndp_json_text(json_object_object_get(pattern, "Regex"));
    text = text ? text : ndp_json_text(json_object_object_get(pattern, "String"));
    ndp_str_addf(s, text ? " %s\n" : "\n", text);
}

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OTHERS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define SLASHES " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define SPLIT(regex) "Split Isolated " regex "\n"

/* llama.cpp's names of the stages that it has, from its src/llama-vocab.cpp. */
static const struct {
    const char *name, *stages;
    bool whole_words, any; /* words of the vocabulary are not merged (ignore_merges); or whatever the file says of it */
} pres[] = {
    {"gpt-2", "ByteLevel words\n", .any = true},
    {"smollm", "Digits individual_digits\nByteLevel words\n", .any = true},
    {"llama-bpe", SPLIT(CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" OTHERS) "ByteLevel\n", .whole_words = true},
    {"dbrx", SPLIT(CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" OTHERS) "ByteLevel\n", .whole_words = false},
    {"qwen2", SPLIT(CONTRACTIONS "|" LETTERS "|\\p{N}|" OTHERS) "ByteLevel\n", .any = true},
    {"seed-coder",
     SPLIT(CONTRACTIONS "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|"
                        "\\s+") "ByteLevel\n",
     .any = true},
    {"gpt-4o", SPLIT(CASED(CONTRACTIONS "?") "|\\p{N}{1,3}|" SLASHES) "ByteLevel\n", .any = true},
    {"tekken", SPLIT(CASED("") "|\\p{N}|" SLASHES) "ByteLevel\n", .any = true},
    {"deepseek-v3",
     SPLIT("\\p{N}{1,3}") SPLIT("[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+")
         SPLIT("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
               "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+") "ByteLevel\n",
     .any = true},
};

/* The stages of both kinds that write spaces as U+2581, and whether one is put before a text. */
#define SPACE NDP_GGUF_SPACE
static const struct {
    const char *normalizers, *stages;
    bool prefix;
} pieces[] = {
    {"Prepend " SPACE "\nReplace " SPACE "  \n", "", true},
    {"Replace " SPACE "  \n", "", false},
    {"Replace " SPACE "  \n", "Split MergedWithPrevious  \n", false},
    {"", "Metaspace always\n", true},
    {"", "Metaspace first\n", true},
    {"", "Metaspace always add_prefix_space\n", true},
    {"", "Metaspace add_prefix_space\n", true},
    {"", "Metaspace never\n", false},
};

static ndp_status refuse(const ndp_gguf *g, const char *stages) {
    ndp_str known = {0};
    for (int i = 0; i < NDP_COUNT(pres); i++)
        ndp_str_addf(&known, i ? ", %s" : "%s", pres[i].name);
    ndp_status st = NDP_FAIL(
        NDP_ENOTSUP,
        "the tokenizer of '%s' splits words in a way that has no name in llama.cpp, which knows it by one (%s, and "
        "SentencePiece's); its stages are: %.400s",
        g->folder, known.failed ? "" : known.data, *stages ? stages : "none");
    ndp_str_release(&known);
    return st;
}

static void put_text(ndp_gguf *g, const char *key, const char *text) { ndp_gguf_put_text(g, key, text, strlen(text)); }

static ndp_status put_kind(ndp_gguf *g, ndp_gguf_words kind, bool whole, const char *normalizers, const char *stages) {
    for (int i = 0; i < NDP_COUNT(pres) && kind == NDP_GGUF_BYTE_LEVEL; i++)
        if (strcmp(stages, pres[i].stages) == 0 && (pres[i].any || pres[i].whole_words == whole)) {
            put_text(g, "tokenizer.ggml.model", "gpt2");
            put_text(g, "tokenizer.ggml.pre", pres[i].name);
            return NDP_OK;
        }
    for (int i = 0; i < NDP_COUNT(pieces) && kind == NDP_GGUF_PIECES; i++)
        if (strcmp(stages, pieces[i].stages) == 0 && strcmp(normalizers, pieces[i].normalizers) == 0) {
            put_text(g, "tokenizer.ggml.model", "llama");
            put_text(g, "tokenizer.ggml.pre", "default");
            ndp_gguf_put_bool(g, "tokenizer.ggml.add_space_prefix", pieces[i].prefix);
            return NDP_OK;
        }
    if (kind != NDP_GGUF_BYTES)
        return refuse(g, stages);
    put_text(g, "tokenizer.ggml.model", "gpt2");
    put_text(g, "tokenizer.ggml.pre", "gpt-2"); /* without merges any expression gives the same bytes */
    return NDP_OK;
}

/* llama.cpp normalizes no text of gpt2's; NFC is left to it, as its converter does. */
static ndp_status find_kind(ndp_gguf *g, struct json_object *model, const char *before, const char *words,
                            ndp_gguf_words *kind) {
    const char *type = ndp_json_text(json_object_object_get(model, "type"));
    struct json_object *merges = json_object_object_get(model, "merges");
    bool fallback = json_object_get_boolean(json_object_object_get(model, "byte_fallback")), none = !*before && !*words;
    if (type && strcmp(type, "BPE") != 0)
        return NDP_FAIL(NDP_ENOTSUP, "the tokenizer of '%s' is %s, which llama.cpp has in no decoder; BPE is written",
                        g->folder, type);
    *kind = strstr(words, "ByteLevel")                                  ? NDP_GGUF_BYTE_LEVEL
            : fallback && none && json_object_array_length(merges) == 0 ? NDP_GGUF_BYTES
                                                                        : NDP_GGUF_PIECES;
    if (*kind == NDP_GGUF_PIECES && !fallback)
        return refuse(g, words);
    return *kind == NDP_GGUF_BYTE_LEVEL && *before && strcmp(before, "NFC\n") != 0 ? refuse(g, before) : NDP_OK;
}

ndp_status ndp_gguf_words_keys(ndp_gguf *g, struct json_object *root, ndp_gguf_words *kind) {
    ndp_str normalizers = {0}, stages = {0};
    struct json_object *model = json_object_object_get(root, "model"), *o;
    bool whole = json_object_get_boolean(json_object_object_get(model, "ignore_merges"));
    if (json_object_object_get_ex(root, "normalizer", &o) && o)
        add_stages(&normalizers, o);
    if (json_object_object_get_ex(root, "pre_tokenizer", &o) && o)
        add_stages(&stages, o);
    const char *before = normalizers.data ? normalizers.data : "", *words = stages.data ? stages.data : "";
    ndp_status st = normalizers.failed || stages.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for a tokenizer")
                                                        : find_kind(g, model, before, words, kind);
    if (st == NDP_OK)
        st = put_kind(g, *kind, whole, before, words);
    ndp_str_release(&normalizers);
    ndp_str_release(&stages);
    return st;
}
