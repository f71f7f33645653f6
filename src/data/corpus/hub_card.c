/* The front matter of a data set's README.md, read by libfyaml. The forms of `data_files` are those that the `datasets`
 * library knows: a pattern, a list of patterns, a list of {split, path}, or a mapping from splits to patterns. Called
 * by hub_data.c. */
#include "data/corpus/hub_card.h"

#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PATTERNS = 1 << 16 }; /* the largest real cards have some thousands */

typedef struct card_reading {
    ndp_hub_card *card;
    const char *path; /* of the README.md */
    const char *config, *dir;
} card_reading;

static struct fy_node *value_of(struct fy_node *map, const char *key) {
    return fy_node_mapping_lookup_by_string(map, key, strlen(key));
}

/* NULL: not a text. */
static const char *text_of(struct fy_node *node) {
    return node && fy_node_is_scalar(node) ? fy_node_get_scalar0(node) : NULL;
}

static ndp_status fail_form(const card_reading *r) {
    return NDP_FAIL(NDP_EFORMAT, "%s: data_files of the configuration '%s' is neither a pattern nor a list of patterns",
                    r->path, r->config);
}

static ndp_status add_pattern(const card_reading *r, const char *split, struct fy_node *node) {
    const char *pattern = text_of(node);
    if (!pattern || !split)
        return fail_form(r);
    if (r->card->patterns.n == MOST_PATTERNS || strlen(pattern) >= NDP_PATH)
        return NDP_FAIL(NDP_EFORMAT, "%s: data_files has more than %d patterns, or one of more than %d bytes", r->path,
                        MOST_PATTERNS, NDP_PATH - 1);
    char *path = r->dir ? ndp_format("%s/%s", r->dir, pattern) : strdup(pattern);
    ndp_status st = path ? ndp_strings_add(&r->card->patterns, path) : NDP_FAIL(NDP_ENOMEM, "not enough memory");
    free(path);
    NDP_TRY(st);
    NDP_TRY(ndp_strings_add(&r->card->configs, r->config));
    return ndp_strings_add(&r->card->splits, split);
}

/* One pattern, or a list of them. */
static ndp_status add_patterns(const card_reading *r, const char *split, struct fy_node *node) {
    void *place = NULL;
    if (!node || !fy_node_is_sequence(node))
        return add_pattern(r, split, node);
    for (struct fy_node *item; (item = fy_node_sequence_iterate(node, &place));)
        NDP_TRY(add_pattern(r, split, item));
    return NDP_OK;
}

static ndp_status add_split(const card_reading *r, struct fy_node *item) {
    return fy_node_is_mapping(item) ? add_patterns(r, text_of(value_of(item, "split")), value_of(item, "path"))
                                    : add_pattern(r, "train", item);
}

static ndp_status add_files(const card_reading *r, struct fy_node *files) {
    void *place = NULL;
    if (fy_node_is_sequence(files))
        for (struct fy_node *item; (item = fy_node_sequence_iterate(files, &place));)
            NDP_TRY(add_split(r, item));
    else if (fy_node_is_mapping(files))
        for (struct fy_node_pair *p; (p = fy_node_mapping_iterate(files, &place));)
            NDP_TRY(add_patterns(r, text_of(fy_node_pair_key(p)), fy_node_pair_value(p)));
    else
        return add_pattern(r, "train", files);
    return NDP_OK;
}

static ndp_status add_config(card_reading *r, struct fy_node *item) {
    if (!fy_node_is_mapping(item))
        return NDP_OK;
    const char *name = text_of(value_of(item, "config_name")), *preferred = text_of(value_of(item, "default"));
    struct fy_node *files = value_of(item, "data_files");
    r->config = name ? name : "default";
    r->dir = text_of(value_of(item, "data_dir"));
    if (preferred && strcmp(preferred, "true") == 0 && !r->card->preferred && !(r->card->preferred = strdup(r->config)))
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to read '%s'", r->path);
    return files ? add_files(r, files) : NDP_OK;
}

/* The text between the first line, ---, and the next such line. False: there is none. */
static bool front_matter(char *text, char **begin, size_t *n) {
    if (strncmp(text, "---\n", 4) != 0 && strncmp(text, "---\r\n", 5) != 0)
        return false;
    *begin = strchr(text, '\n') + 1;
    char *end = strstr(*begin - 1, "\n---");
    *n = end ? (size_t)(end + 1 - *begin) : 0;
    return end != NULL && end + 1 > *begin;
}

static ndp_status read_yaml(card_reading *r, const char *text, size_t n) {
    const struct fy_parse_cfg quiet = {.flags = FYPCF_QUIET};
    struct fy_document *document = fy_document_build_from_string(&quiet, text, n);
    struct fy_node *root = document ? fy_document_root(document) : NULL;
    ndp_status st =
        document ? NDP_OK : NDP_FAIL(NDP_EFORMAT, "%s: the text between its lines --- is not YAML", r->path);
    struct fy_node *configs = root && fy_node_is_mapping(root) ? value_of(root, "configs") : NULL;
    void *place = NULL;
    if (configs && fy_node_is_sequence(configs))
        for (struct fy_node *item; st == NDP_OK && (item = fy_node_sequence_iterate(configs, &place));)
            st = add_config(r, item);
    fy_document_destroy(document);
    return st;
}

ndp_status ndp_hub_card_read(const char *folder, ndp_hub_card *out) {
    char path[NDP_PATH], *text, *yaml;
    size_t size, n;
    *out = (ndp_hub_card){0};
    card_reading r = {.card = out, .path = path};
    NDP_TRY(ndp_path_join(path, folder, "README.md"));
    if (!ndp_path_exists(path))
        return NDP_OK;
    NDP_TRY(ndp_file_read_as(NDP_FILE_CONFIG, path, &text, &size));
    ndp_status st = front_matter(text, &yaml, &n) ? read_yaml(&r, yaml, n) : NDP_OK;
    free(text);
    if (st != NDP_OK)
        ndp_hub_card_release(out);
    return st;
}

void ndp_hub_card_release(ndp_hub_card *c) {
    ndp_strings_release(&c->configs);
    ndp_strings_release(&c->splits);
    ndp_strings_release(&c->patterns);
    free(c->preferred);
    *c = (ndp_hub_card){0};
}
