/* GPT-2's older pair of files, vocab.json and merges.txt, as the tokenizer.json that says the same: byte-level BPE with
 * GPT-2's stages around it. */
#include "data/loader.h"
#include <stdlib.h>
#include <string.h>

/* What the classes of transformers that read such folders have built in; others cut words in other ways. */
static ndp_status check_class(const char *folder) {
    static const char *const known[] = {"GPT2Tokenizer", "GPT2TokenizerFast"};
    const char *name = known[0];
    char *path = ndp_format("%s/tokenizer_config.json", folder);
    struct json_object *root = NULL;
    ndp_status st = NDP_OK;
    if (path && ndp_path_exists(path))
        st = ndp_json_read(path, &root);
    if (st == NDP_OK && json_object_is_type(root, json_type_object))
        st = ndp_json_string(root, path, "tokenizer_class", &name);
    if (st == NDP_OK && strcmp(name, known[0]) != 0 && strcmp(name, known[1]) != 0)
        st = NDP_FAIL(NDP_ENOTSUP,
                      "%s: vocab.json and merges.txt of a %s are not built; save the tokenizer as tokenizer.json",
                      folder, name);
    json_object_put(root);
    free(path);
    return st;
}

/* A line each, "a b", behind a first line that tells the version. */
static ndp_status add_merges(const char *text, const char *what, struct json_object *list) {
    bool first = true;
    for (const char *line = text, *end; *line; line = *end ? end + 1 : end, first = false) {
        end = line + strcspn(line, "\n");
        size_t n = (size_t)(end - line) - (end > line && end[-1] == '\r');
        if (!n || (first && !strncmp(line, "#version", 8)))
            continue;
        struct json_object *merge = json_object_new_string_len(line, (int)n);
        if (!merge || json_object_array_add(list, merge) < 0) {
            json_object_put(merge);
            return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the merges", what);
        }
    }
    return NDP_OK;
}

/* The token that ends GPT-2's documents, which is all that the pair of files leaves out. */
static const char TEMPLATE[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\"},\"added_tokens\":[%s]}";
static const char END_OF_TEXT[] = "<|endoftext|>";

static ndp_status make_root(struct json_object *vocab, const char *merges, const char *what, struct json_object **out) {
    struct json_object *end = ndp_load_member(vocab, END_OF_TEXT), *list = json_object_new_array(), *root = NULL;
    char *added =
        json_object_is_type(end, json_type_int)
            ? ndp_format("{\"content\":\"%s\",\"special\":true,\"id\":%d}", END_OF_TEXT, json_object_get_int(end))
            : ndp_format("%s", "");
    char *frame = added ? ndp_format(TEMPLATE, added) : NULL;
    ndp_status st = list && frame ? ndp_json_parse(frame, strlen(frame), what, &root)
                                  : NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", what);
    if (st == NDP_OK)
        st = add_merges(merges, what, list);
    if (st == NDP_OK) {
        struct json_object *model = ndp_load_member(root, "model");
        json_object_object_add(model, "vocab", json_object_get(vocab));
        json_object_object_add(model, "merges", json_object_get(list));
        *out = json_object_get(root);
    }
    json_object_put(list);
    json_object_put(root);
    free(frame);
    free(added);
    return st;
}

ndp_status ndp_load_pair(const char *vocab, size_t vocab_size, const char *merges, const char *folder,
                         struct json_object **root) {
    struct json_object *words = NULL;
    char *what = ndp_format("%s/vocab.json", folder);
    if (!what)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a tokenizer");
    ndp_status st = check_class(folder);
    if (st == NDP_OK)
        st = ndp_json_parse(vocab, vocab_size, what, &words);
    if (st == NDP_OK)
        st = make_root(words, merges, what, root);
    json_object_put(words);
    free(what);
    return st;
}
