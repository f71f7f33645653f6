/* GPT-2's older pair of files, vocab.json and merges.txt, rewritten as an equivalent tokenizer.json: byte-level BPE
 * with GPT-2's stages around it. */
#include "text/loader.h"
#include <stdlib.h>
#include <string.h>

/* The stages are built into the classes of transformers that read such folders; other classes split words differently.
 */
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
                      "%s: vocab.json and merges.txt of a %s are not supported; save the tokenizer as tokenizer.json",
                      folder, name);
    json_object_put(root);
    free(path);
    return st;
}

/* One merge "a b" per line, after a first line with the version. */
static void add_merges(const char *text, ndp_str *out) {
    bool first = true, any = false;
    for (const char *line = text, *end; *line; line = *end ? end + 1 : end, first = false) {
        end = line + strcspn(line, "\n");
        size_t n = (size_t)(end - line) - (end > line && end[-1] == '\r');
        if (!n || (first && !strncmp(line, "#version", 8)))
            continue;
        ndp_str_add(out, any ? ",\"" : "\"");
        for (size_t i = 0; i < n; i++) {
            if (line[i] == '"' || line[i] == '\\')
                ndp_str_add(out, "\\");
            ndp_str_add_bytes(out, line + i, 1);
        }
        ndp_str_add(out, "\"");
        any = true;
    }
}

/* The token that ends GPT-2's documents. That it is special is the only fact that the two files do not state. */
static ndp_status find_end_of_text(ndp_json_cursor *c, ndp_str *out) {
    static const char name[] = "<|endoftext|>";
    NDP_TRY(ndp_json_expect(c, '{'));
    for (bool more, first = true;; first = false) {
        const char *token;
        size_t n;
        int64_t id;
        NDP_TRY(ndp_json_next_entry(c, '}', first, &more));
        if (!more)
            return NDP_OK;
        NDP_TRY(ndp_json_next_string(c, &token, &n));
        bool found = n == sizeof name - 1 && !memcmp(token, name, n);
        NDP_TRY(ndp_json_expect(c, ':'));
        NDP_TRY(ndp_json_next_int(c, &id));
        if (found)
            ndp_str_addf(out, "{\"content\":\"%s\",\"special\":true,\"id\":%lld}", name, (long long)id);
    }
}

ndp_status ndp_load_pair(const char *vocab, size_t vocab_size, const char *merges, const char *folder, ndp_str *out) {
    ndp_json_cursor c = {.text = vocab, .what = folder, .end = vocab_size};
    NDP_TRY(check_class(folder));
    ndp_str_add(out, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                     "\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":[");
    ndp_status st = find_end_of_text(&c, out);
    ndp_json_cursor_release(&c);
    NDP_TRY(st);
    ndp_str_add(out, "],\"model\":{\"type\":\"BPE\",\"vocab\":");
    ndp_str_add_bytes(out, vocab, vocab_size);
    ndp_str_add(out, ",\"merges\":[");
    add_merges(merges, out);
    ndp_str_add(out, "]}}");
    return out->failed ? NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", folder) : NDP_OK;
}
