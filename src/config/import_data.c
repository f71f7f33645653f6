/* The values that are more than a number or a word: data sets, plugins, DeepSpeed's own file. */
#include "config/import_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- data sets ---- */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

static bool is_one_of(const char *text, const char *const *words) {
    while (*words && strcmp(text, *words) != 0)
        words++;
    return *words != NULL;
}

static void forget_set(ndp_import *m) {
    char **texts[] = {&m->set.path, &m->set.field, &m->set.type, &m->set.ds_type};
    for (int i = 0; i < NDP_COUNT(texts); i++) {
        free(*texts[i]);
        *texts[i] = NULL;
    }
    for (int i = 0; i < m->set.files.n; i++)
        free(m->set.files.items[i]);
    free(m->set.files.items);
    m->set.files = (ndp_strings){0};
}

/* data.text_field is one for all files. */
static ndp_status add_field(ndp_import *m, const char *name, struct fy_node *node) {
    const char *field = m->set.field ? m->set.field : "text";
    char why[200];
    snprintf(why, sizeof why, "data.text_field is one for all files: '%.60s' before, '%.60s' here",
             m->text_field ? m->text_field : "", field);
    if (m->text_field && strcmp(m->text_field, field) != 0)
        return ndp_import_note(m, SEEN_REFUSED, name, node, why, "data.text_field");
    char *ours = strdup(field), *kept = m->text_field ? NULL : strdup(field);
    if (!ours || (!kept && !m->text_field)) {
        free(ours);
        free(kept);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    }
    free(m->job.data.text_field);
    m->job.data.text_field = ours;
    if (kept)
        m->text_field = kept;
    return NDP_OK;
}

/* One file of a data set, or why it is none. */
static ndp_status add_file(ndp_import *m, const char *path, const char *name, struct fy_node *node) {
    static const char *const read[] = {".jsonl", ".ndjson", ".txt", ".text", ".md", NULL};
    const char *dot = strrchr(path, '.');
    bool text = m->set.ds_type && strcmp(m->set.ds_type, "text") == 0;
    if (!(dot && is_one_of(dot, read)) && !text && !(ndp_path_exists(path) && !ndp_path_is_folder(path) && !dot)) {
        const char *why = dot && strcspn(dot, "/") == strlen(dot)
                              ? "files are read as JSONL (.jsonl) or plain text (.txt); convert it"
                              : "not a file; download the data set as JSONL or text and name its files";
        char shown[200];
        snprintf(shown, sizeof shown, "%.80s: %.100s", name, path);
        return ndp_import_note(m, SEEN_REFUSED, shown, node, why, "data.files");
    }
    if (ends_with(path, ".jsonl") || ends_with(path, ".ndjson"))
        NDP_TRY(add_field(m, name, node));
    enum { MOST = 1 << 16 };
    ndp_strings *files = &m->job.data.files;
    if (files->n >= MOST)
        return ndp_yaml_fail(m->y, node, "more than %d files", MOST);
    char **grown = realloc(files->items, sizeof *grown * ((size_t)files->n + 1)), *copy = strdup(path);
    if (grown)
        files->items = grown;
    if (!grown || !copy) {
        free(copy);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %d files", files->n + 1);
    }
    files->items[files->n++] = copy;
    return NDP_OK;
}

/* What a data set's keys, read into m->set, say. `json` or `text` as a path is the kind of its data_files. */
static ndp_status add_set(ndp_import *m, const char *name, struct fy_node *node) {
    static const char *const texts[] = {"completion", "pretrain", "text", NULL};
    static const char *const kinds[] = {"json", "text", NULL};
    char shown[200];
    if (m->set.type && !is_one_of(m->set.type, texts)) {
        snprintf(shown, sizeof shown, "%.80s.type: %.60s", name, m->set.type);
        NDP_TRY(ndp_import_note(m, SEEN_REFUSED, shown, node,
                                "only plain text is trained on (type: completion); write the prompts and answers out "
                                "as a JSONL field `text`",
                                "data.files"));
    }
    const char *path = m->set.path;
    if (!path && !m->set.files.n)
        return ndp_yaml_fail(m->y, node, "'%s' has no path", name);
    if (path && is_one_of(path, kinds) && m->set.files.n && !m->set.ds_type)
        m->set.ds_type = strdup(path);
    for (int i = 0; i < m->set.files.n; i++)
        NDP_TRY(add_file(m, m->set.files.items[i], name, node));
    return m->set.files.n ? NDP_OK : add_file(m, path, name, node);
}

/* A word, or a mapping that tells how prompts are written. */
ndp_status ndp_import_dataset_type(ndp_import *m, struct fy_node *value, const char *name) {
    const char *text = ndp_yaml_text(value);
    (void)name;
    free(m->set.type);
    m->set.type = strdup(text ? text : "of its own");
    return m->set.type ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
}

/* The training split is what a file is; another one, or a part of it, is not. */
ndp_status ndp_import_dataset_split(ndp_import *m, struct fy_node *value, const char *name) {
    const char *text = ndp_yaml_text(value);
    char shown[200];
    if (text && strcmp(text, "train") == 0)
        return NDP_OK;
    snprintf(shown, sizeof shown, "%.100s: %.80s", name, text ? text : "of its own");
    return ndp_import_note(m, SEEN_REFUSED, shown, value, "a file is read whole; write the part of it that is meant",
                           "data.files");
}

/* A mapping, or the path alone. */
static ndp_status read_set(ndp_import *m, struct fy_node *item, const char *name) {
    ndp_status st = NDP_OK;
    NDP_TRY(ndp_yaml_follow(m->y, &item));
    forget_set(m);
    const char *path = ndp_yaml_text(item);
    if (path && *path) {
        m->set.path = strdup(path);
        st = m->set.path ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    } else
        st = ndp_import_walk(m, item, "dataset", NULL, name);
    return st == NDP_OK ? add_set(m, name, item) : st;
}

/* A list of data sets, or one. */
ndp_status ndp_import_datasets(ndp_import *m, struct fy_node *value, const char *name) {
    if (!fy_node_is_sequence(value))
        return read_set(m, value, name);
    void *place = NULL;
    int i = 0;
    for (struct fy_node *item; (item = fy_node_sequence_iterate(value, &place)); i++) {
        char numbered[64];
        snprintf(numbered, sizeof numbered, "%.40s[%d]", name, i);
        NDP_TRY(read_set(m, item, numbered));
    }
    return NDP_OK;
}

/* ---- plugins ---- */

/* Those that only make it faster are left, others may do anything. */
ndp_status ndp_import_plugins(ndp_import *m, struct fy_node *value, const char *name) {
    static const char *const faster[] = {"CutCrossEntropyPlugin", "LigerPlugin", "KernelsPlugin"};
    bool many = fy_node_is_sequence(value);
    void *place = NULL;
    struct fy_node *item = many ? fy_node_sequence_iterate(value, &place) : value;
    for (; item; item = many ? fy_node_sequence_iterate(value, &place) : NULL) {
        NDP_TRY(ndp_yaml_follow(m->y, &item));
        const char *plugin = ndp_yaml_text(item);
        if (!plugin)
            return ndp_yaml_fail(m->y, item, "a plugin is a word");
        bool harmless = false;
        for (int i = 0; i < NDP_COUNT(faster) && !harmless; i++)
            harmless = ends_with(plugin, faster[i]);
        char shown[200];
        snprintf(shown, sizeof shown, "%.40s: %.100s", name, plugin);
        NDP_TRY(ndp_import_note(m, harmless ? SEEN_LEFT : SEEN_REFUSED, shown, item,
                                harmless ? "kernels are this program's own; there is nothing to compile or patch"
                                         : "a plugin of another program, which may change the training",
                                NULL));
    }
    return NDP_OK;
}

/* ---- DeepSpeed ---- */

static bool is_file(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* Files are named zero1.json, zero3_bf16.json, zero_stage2_config.json: enough to know the stage of one that is not
 * here. */
static int stage_of_name(const char *path) {
    const char *file = strrchr(path, '/'), *zero = strstr(file ? file : path, "zero");
    const char *digit = zero ? strpbrk(zero, "123") : NULL;
    return digit ? *digit - '0' : 3;
}

static ndp_status read_file(ndp_import *m, const char *path) {
    size_t size;
    char *what = ndp_arena_strdup(&m->arena, path);
    if (!what)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    NDP_TRY(ndp_file_read(path, &m->deepspeed_text, &size));
    m->y = &m->deepspeed_yaml;
    ndp_status st = ndp_yaml_open(m->y, what, m->deepspeed_text, size, 0);
    if (st == NDP_OK && !m->y->root)
        st = NDP_FAIL(NDP_EINVAL, "%s: empty; expected DeepSpeed's configuration", path);
    if (st == NDP_OK)
        st = ndp_import_walk(m, m->y->root, "deepspeed", NULL, "");
    m->y = &m->yaml;
    return st;
}

/* DeepSpeed's keys, or the file that has them. */
ndp_status ndp_import_deepspeed(ndp_import *m, struct fy_node *value, const char *name) {
    const char *path = ndp_yaml_text(value);
    if (!path)
        return ndp_import_walk(m, value, "deepspeed", NULL, name);
    if (m->deepspeed_text)
        return ndp_yaml_fail(m->y, value, "'%s' names a second file of DeepSpeed's", name);
    if (is_file(path))
        return read_file(m, path);
    if (m->zero_stage < 0)
        m->zero_stage = stage_of_name(path);
    ndp_str_addf(&m->remarks, "%s: %s is not here; taken as ZeRO stage %d, which changes memory and not the result\n",
                 name, path, m->zero_stage);
    return NDP_OK;
}
