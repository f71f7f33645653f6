/* Normalizers, pre-tokenizers and decoders of a tokenizer.json. Each kind of stage has a table of its types, in which
 * ndp_load_stages finds a stage's row and checks its options; then the row's function reads them and appends the parts
 * that the tokenizer runs. Called by tokenizer_load.c. */
#include "base/utf8.h"
#include "text/charsmap.h"
#include "text/loader.h"
#include "text/newer.h"
#include <string.h>

/* {"String": text} or {"Regex": pattern}, under "pattern". */
static ndp_status load_pattern(const ndp_loader *l, const ndp_stage *s, ndp_regex **out) {
    struct json_object *pattern = NULL;
    NDP_TRY(ndp_load_need(l, s->where, s->o, "pattern", json_type_object, &pattern));
    NDP_TRY(NDP_LOAD_KEYS(l, "a pattern", pattern, "String", "Regex"));
    struct json_object *literal = json_object_object_get(pattern, "String"),
                       *text = literal ? literal : json_object_object_get(pattern, "Regex");
    if (!json_object_is_type(text, json_type_string) || json_object_object_length(pattern) != 1)
        return NDP_FAIL(NDP_EFORMAT, "%s: the pattern of %s is neither a String nor a Regex", l->what, s->where);
    ndp_span span = {json_object_get_string(text), (size_t)json_object_get_string_len(text)};
    if (!literal)
        return ndp_regex_create(span, l->what, out);
    return span.n ? ndp_regex_create_literal(span, l->what, out)
                  : NDP_FAIL(NDP_EFORMAT, "%s: %s has an empty pattern", l->what, s->where);
}

/* A string that the stage keeps. */
static ndp_status load_content(const ndp_loader *l, const ndp_stage *s, const char *key, const char **out) {
    const char *content = "";
    NDP_TRY(ndp_load_string(l, s->where, s->o, key, &content));
    return ndp_load_keep(l, content, out);
}

/* ---- normalizers ---- */

/* Also of decoders: a kind without options, and a replacement. */
static ndp_status load_plain(const ndp_loader *l, const ndp_stage *s) {
    (void)l;
    return ndp_text_steps_add(s->out, (ndp_text_step){.kind = s->kind});
}

static ndp_status load_replace(const ndp_loader *l, const ndp_stage *s) {
    ndp_text_step step = {.kind = s->kind};
    NDP_TRY(load_content(l, s, "content", &step.content));
    NDP_TRY(load_pattern(l, s, &step.pattern));
    return ndp_text_steps_add(s->out, step);
}

static ndp_status load_prepend(const ndp_loader *l, const ndp_stage *s) {
    ndp_text_step n = {.kind = NDP_NORMALIZER_PREPEND};
    NDP_TRY(load_content(l, s, "prepend", &n.content));
    return ndp_text_steps_add(s->out, n);
}

static ndp_status load_strip(const ndp_loader *l, const ndp_stage *s) {
    bool left = true, right = true;
    NDP_TRY(ndp_json_bool(s->o, l->what, "strip_left", &left));
    NDP_TRY(ndp_json_bool(s->o, l->what, "strip_right", &right));
    return ndp_text_steps_add(s->out, (ndp_text_step){.kind = NDP_NORMALIZER_STRIP, .start = left, .stop = right});
}

static ndp_status load_precompiled(const ndp_loader *l, const ndp_stage *s) {
    const char *base64 = "";
    ndp_text_step n = {.kind = NDP_NORMALIZER_PRECOMPILED};
    NDP_TRY(ndp_load_string(l, s->where, s->o, "precompiled_charsmap", &base64));
    NDP_TRY(ndp_charsmap_create(base64, l->what, &n.charsmap));
    return ndp_text_steps_add(s->out, n);
}

static ndp_status add_replace(const ndp_loader *l, const ndp_stage *s, const char *regex, const char *content) {
    ndp_text_step step = {.kind = NDP_NORMALIZER_REPLACE, .content = content};
    NDP_TRY(ndp_regex_create((ndp_span){regex, strlen(regex)}, l->what, &step.pattern));
    return ndp_text_steps_add(s->out, step);
}

/* Removes control characters and turns space-like characters into spaces. */
static ndp_status load_nmt(const ndp_loader *l, const ndp_stage *s) {
    NDP_TRY(add_replace(l, s, "[\\x01-\\x08\\x0b\\x0e-\\x1f\\x7f\\x{8f}\\x{9f}]", ""));
    return add_replace(l, s, "[\\t\\n\\f\\r\\x{1680}\\x{200b}-\\x{200f}\\x{2028}\\x{2029}\\x{2581}\\x{feff}\\x{fffd}]",
                       " ");
}

ndp_status ndp_load_normalizers(const ndp_loader *l, struct json_object *o) {
    static const ndp_stage_type types[] = {
        {"NFC", load_plain, .kind = NDP_NORMALIZER_NFC},
        {"NFD", load_plain, .kind = NDP_NORMALIZER_NFD},
        {"NFKC", load_plain, .kind = NDP_NORMALIZER_NFKC},
        {"NFKD", load_plain, .kind = NDP_NORMALIZER_NFKD},
        {"Lowercase", load_plain, .kind = NDP_NORMALIZER_LOWERCASE},
        {"StripAccents", load_plain, .kind = NDP_NORMALIZER_STRIP_ACCENTS},
        {"Replace", load_replace, NDP_NORMALIZER_REPLACE, {"pattern", "content"}},
        {"Prepend", load_prepend, .options = {"prepend"}},
        {"Strip", load_strip, .options = {"strip_left", "strip_right"}},
        {"Precompiled", load_precompiled, .options = {"precompiled_charsmap"}},
        {"Nmt", .load = load_nmt},
    };
    static const ndp_stage_types known = {"normalizer", "normalizers", types, NDP_COUNT(types)};
    return o ? ndp_load_stages(l, &known, &l->t->normalizers, o) : NDP_OK;
}

/* ---- pre-tokenizers ---- */

/* Takes ownership of the pattern. */
static ndp_status add_pretokenizer(const ndp_loader *l, ndp_pretokenizer s) {
    ndp_pretokenizers *all = &l->t->pretokenizers;
    if (all->n == NDP_PRETOKENIZERS) {
        ndp_regex_destroy(s.pattern);
        return NDP_FAIL(NDP_ENOTSUP, "%s: more than %d stages of pre-tokenizers are not supported", l->what,
                        NDP_PRETOKENIZERS);
    }
    all->items[all->n++] = s;
    return NDP_OK;
}

static ndp_status add_split(const ndp_loader *l, const char *regex, ndp_split_behavior behavior, bool invert) {
    ndp_pretokenizer s = {.kind = NDP_PRETOKENIZER_SPLIT, .behavior = behavior, .invert = invert};
    NDP_TRY(ndp_regex_create((ndp_span){regex, strlen(regex)}, l->what, &s.pattern));
    return add_pretokenizer(l, s);
}

static ndp_status load_behavior(const ndp_loader *l, const ndp_stage *s, ndp_split_behavior *out) {
    static const char *const names[NDP_SPLIT_BEHAVIORS] = {
        [NDP_SPLIT_REMOVED] = "Removed",
        [NDP_SPLIT_ISOLATED] = "Isolated",
        [NDP_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [NDP_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [NDP_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name = "";
    NDP_TRY(ndp_load_string(l, s->where, s->o, "behavior", &name));
    for (int i = 0; i < NDP_SPLIT_BEHAVIORS; i++)
        if (!strcmp(name, names[i])) {
            *out = (ndp_split_behavior)i;
            return NDP_OK;
        }
    return NDP_FAIL(NDP_EFORMAT, "%s: %s: unknown behavior '%s'", l->what, s->where, name);
}

static ndp_status load_split(const ndp_loader *l, const ndp_stage *s) {
    ndp_pretokenizer p = {.kind = NDP_PRETOKENIZER_SPLIT};
    NDP_TRY(load_behavior(l, s, &p.behavior));
    NDP_TRY(ndp_json_bool(s->o, l->what, "invert", &p.invert));
    NDP_TRY(load_pattern(l, s, &p.pattern));
    return add_pretokenizer(l, p);
}

/* GPT-2's expression, built into the reference. */
#define GPT2_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* `trim_offsets` concerns offsets, which are not computed here. */
static ndp_status load_byte_level(const ndp_loader *l, const ndp_stage *s) {
    bool space = true, regex = true, trim;
    NDP_TRY(ndp_json_bool(s->o, l->what, "add_prefix_space", &space));
    NDP_TRY(ndp_json_bool(s->o, l->what, "use_regex", &regex));
    NDP_TRY(ndp_json_bool(s->o, l->what, "trim_offsets", &trim));
    for (int i = 0; i < l->t->pretokenizers.n; i++)
        if (l->t->pretokenizers.items[i].kind == NDP_PRETOKENIZER_BYTES)
            return NDP_FAIL(NDP_ENOTSUP, "%s: two pre_tokenizers of type ByteLevel are not supported", l->what);
    if (space)
        NDP_TRY(add_pretokenizer(l, (ndp_pretokenizer){.kind = NDP_PRETOKENIZER_PREPEND, .content = " "}));
    if (regex)
        NDP_TRY(add_split(l, GPT2_WORDS, NDP_SPLIT_ISOLATED, false));
    return add_pretokenizer(l, (ndp_pretokenizer){.kind = NDP_PRETOKENIZER_BYTES});
}

static ndp_status load_digits(const ndp_loader *l, const ndp_stage *s) {
    bool individual = false;
    NDP_TRY(ndp_json_bool(s->o, l->what, "individual_digits", &individual));
    return add_split(l, "\\p{N}", individual ? NDP_SPLIT_ISOLATED : NDP_SPLIT_CONTIGUOUS, false);
}

/* Includes ASCII symbols, and two characters that newer Unicode no longer calls punctuation. */
#define PUNCTUATION "[\\p{P}\\x{166d}\\x{111c9}$+<=>^`|~&&[^" NDP_NEWER_PUNCTUATION "]]"

static ndp_status load_punctuation(const ndp_loader *l, const ndp_stage *s) {
    ndp_split_behavior behavior = NDP_SPLIT_ISOLATED;
    if (json_object_object_get(s->o, "behavior"))
        NDP_TRY(load_behavior(l, s, &behavior));
    return add_split(l, PUNCTUATION, behavior, false);
}

/* For this expression the reference uses another engine, to which joiners are word characters. */
static ndp_status load_whitespace(const ndp_loader *l, const ndp_stage *s) {
    (void)s;
    return add_split(l, "[\\w\\u200c\\u200d]+|[^\\w\\u200c\\u200d\\s]+", NDP_SPLIT_REMOVED, true);
}

static ndp_status load_whitespace_split(const ndp_loader *l, const ndp_stage *s) {
    (void)s;
    return add_split(l, "\\s+", NDP_SPLIT_REMOVED, false);
}

static ndp_status load_bert(const ndp_loader *l, const ndp_stage *s) {
    (void)s;
    NDP_TRY(add_split(l, "\\s", NDP_SPLIT_REMOVED, false));
    return add_split(l, PUNCTUATION, NDP_SPLIT_ISOLATED, false);
}

static ndp_status load_delimiter(const ndp_loader *l, const ndp_stage *s) {
    const char *delimiter = "";
    ndp_pretokenizer p = {.kind = NDP_PRETOKENIZER_SPLIT, .behavior = NDP_SPLIT_REMOVED};
    NDP_TRY(ndp_load_string(l, s->where, s->o, "delimiter", &delimiter));
    if (!delimiter[0])
        return NDP_FAIL(NDP_EFORMAT, "%s: %s has no delimiter", l->what, s->where);
    NDP_TRY(ndp_regex_create_literal((ndp_span){delimiter, strlen(delimiter)}, l->what, &p.pattern));
    return add_pretokenizer(l, p);
}

/* ---- Metaspace, encoding and decoding ---- */

typedef enum metaspace_scheme { ALWAYS, FIRST, NEVER, SCHEMES } metaspace_scheme;

typedef struct metaspace {
    const char *replacement; /* one character, in the arena */
    metaspace_scheme scheme;
    bool split;
} metaspace;

static ndp_status load_scheme(const ndp_loader *l, const ndp_stage *s, metaspace_scheme *out) {
    static const char *const names[SCHEMES] = {"always", "first", "never"};
    bool add_space = true;
    const char *name = NULL;
    NDP_TRY(ndp_json_bool(s->o, l->what, "add_prefix_space", &add_space)); /* the older option */
    NDP_TRY(ndp_json_string(s->o, l->what, "prepend_scheme", &name));
    int scheme = add_space ? ALWAYS : NEVER;
    if (name)
        for (scheme = 0; scheme < SCHEMES && strcmp(name, names[scheme]) != 0;)
            scheme++;
    if (scheme == SCHEMES)
        return NDP_FAIL(NDP_EFORMAT, "%s: %s: unknown prepend_scheme '%s'", l->what, s->where, name);
    *out = (metaspace_scheme)scheme;
    if (!add_space && *out != NEVER)
        return NDP_FAIL(NDP_EFORMAT, "%s: add_prefix_space and prepend_scheme of %s contradict each other", l->what,
                        s->where);
    return NDP_OK;
}

#define METASPACE_OPTIONS                                                                                              \
    { "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split" }

static ndp_status load_metaspace(const ndp_loader *l, const ndp_stage *s, metaspace *out) {
    const char *replacement = "";
    *out = (metaspace){.split = true};
    NDP_TRY(ndp_load_string(l, s->where, s->o, "replacement", &replacement));
    if (!replacement[0] || strlen(replacement) != ndp_utf8_length((unsigned char)replacement[0]))
        return NDP_FAIL(NDP_EFORMAT, "%s: the replacement '%s' of %s is not one character", l->what, replacement,
                        s->where);
    NDP_TRY(ndp_json_bool(s->o, l->what, "split", &out->split));
    NDP_TRY(load_scheme(l, s, &out->scheme));
    return ndp_load_keep(l, replacement, &out->replacement);
}

static ndp_status load_pre_metaspace(const ndp_loader *l, const ndp_stage *s) {
    metaspace m;
    ndp_pretokenizer p = {.kind = NDP_PRETOKENIZER_REPLACE};
    NDP_TRY(load_metaspace(l, s, &m));
    p.content = m.replacement;
    NDP_TRY(ndp_regex_create_literal((ndp_span){" ", 1}, l->what, &p.pattern));
    NDP_TRY(add_pretokenizer(l, p));
    if (m.scheme != NEVER)
        NDP_TRY(add_pretokenizer(l, (ndp_pretokenizer){.kind = NDP_PRETOKENIZER_PREPEND,
                                                       .content = m.replacement,
                                                       .first_only = m.scheme == FIRST}));
    if (!m.split)
        return NDP_OK;
    p = (ndp_pretokenizer){.kind = NDP_PRETOKENIZER_SPLIT, .behavior = NDP_SPLIT_MERGED_WITH_NEXT};
    NDP_TRY(ndp_regex_create_literal((ndp_span){m.replacement, strlen(m.replacement)}, l->what, &p.pattern));
    return add_pretokenizer(l, p);
}

/* A final ByteLevel stage is left to the model, which only does it for words that are not in its cache. */
ndp_status ndp_load_pretokenizers(const ndp_loader *l, struct json_object *o) {
    static const ndp_stage_type types[] = {
        {"ByteLevel", load_byte_level, .options = {"add_prefix_space", "trim_offsets", "use_regex"}},
        {"Split", load_split, .options = {"pattern", "behavior", "invert"}},
        {"Digits", load_digits, .options = {"individual_digits"}},
        {"Metaspace", load_pre_metaspace, .options = METASPACE_OPTIONS},
        {"Whitespace", .load = load_whitespace},
        {"WhitespaceSplit", .load = load_whitespace_split},
        {"Punctuation", load_punctuation, .options = {"behavior"}},
        {"BertPreTokenizer", .load = load_bert},
        {"CharDelimiterSplit", load_delimiter, .options = {"delimiter"}},
    };
    static const ndp_stage_types known = {"pre_tokenizer", "pretokenizers", types, NDP_COUNT(types)};
    ndp_pretokenizers *all = &l->t->pretokenizers;
    if (o)
        NDP_TRY(ndp_load_stages(l, &known, NULL, o));
    l->t->words.byte_level = all->n && all->items[all->n - 1].kind == NDP_PRETOKENIZER_BYTES;
    all->n -= l->t->words.byte_level;
    return NDP_OK;
}

/* ---- decoders ---- */

static ndp_status load_strip_decoder(const ndp_loader *l, const ndp_stage *s) {
    int64_t start = 0, stop = 0;
    ndp_text_step d = {.kind = NDP_DECODER_STRIP};
    NDP_TRY(load_content(l, s, "content", &d.content));
    NDP_TRY(ndp_json_int(s->o, l->what, "start", 0, INT32_MAX, &start));
    NDP_TRY(ndp_json_int(s->o, l->what, "stop", 0, INT32_MAX, &stop));
    if (!d.content[0])
        return NDP_FAIL(NDP_EFORMAT, "%s: %s has no content", l->what, s->where);
    d.start = (int)start;
    d.stop = (int)stop;
    return ndp_text_steps_add(s->out, d);
}

static ndp_status load_metaspace_decoder(const ndp_loader *l, const ndp_stage *s) {
    metaspace m;
    ndp_text_step d = {.kind = NDP_DECODER_METASPACE};
    NDP_TRY(load_metaspace(l, s, &m));
    d.start = m.scheme != NEVER;
    NDP_TRY(ndp_regex_create_literal((ndp_span){m.replacement, strlen(m.replacement)}, l->what, &d.pattern));
    return ndp_text_steps_add(s->out, d);
}

/* The options of ByteLevel are the pre-tokenizer's and have no effect here. */
ndp_status ndp_load_decoders(const ndp_loader *l, struct json_object *o) {
    static const ndp_stage_type types[] = {
        {"Replace", load_replace, NDP_DECODER_REPLACE, {"pattern", "content"}},
        {"Strip", load_strip_decoder, .options = {"content", "start", "stop"}},
        {"Metaspace", load_metaspace_decoder, .options = METASPACE_OPTIONS},
        {"ByteLevel", load_plain, NDP_DECODER_BYTE_LEVEL, {"add_prefix_space", "trim_offsets", "use_regex"}},
        {"ByteFallback", load_plain, .kind = NDP_DECODER_BYTE_FALLBACK},
        {"Fuse", load_plain, .kind = NDP_DECODER_FUSE},
    };
    static const ndp_stage_types known = {"decoder", "decoders", types, NDP_COUNT(types)};
    l->t->join_by_space = !o;
    return o ? ndp_load_stages(l, &known, &l->t->decoders, o) : NDP_OK;
}
