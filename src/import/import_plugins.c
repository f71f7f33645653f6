/* Values that are more than a number or a word: plugins, and DeepSpeed's own file. */
#include "import/import_parts.h"

#include <stdio.h>
#include <string.h>

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* ---- plugins ---- */

/* Plugins that only affect speed are left out; any other is refused, since it may change the training. */
static ndp_status read_plugin(ndp_import *m, struct fy_node *item, const char *name) {
    static const char *const faster[] = {"CutCrossEntropyPlugin", "LigerPlugin", "KernelsPlugin"};
    const char *plugin = ndp_yaml_text(item);
    if (!plugin)
        return ndp_yaml_fail(m->notes.y, item, "expected the name of a plugin");
    bool harmless = false;
    for (int i = 0; i < NDP_COUNT(faster) && !harmless; i++)
        harmless = ends_with(plugin, faster[i]);
    char shown[200];
    snprintf(shown, sizeof shown, "%.40s: %.100s", name, plugin);
    return ndp_import_note(&m->notes, harmless ? SEEN_LEFT : SEEN_REFUSED, shown, item,
                           harmless ? "ndparallel has its own kernels; there is nothing to compile or patch"
                                    : "a plugin of another program, which could change the training",
                           NULL);
}

ndp_status ndp_import_plugins(ndp_import *m, struct fy_node *value, const char *name) {
    return ndp_import_items(m, value, name, read_plugin);
}

/* ---- DeepSpeed ---- */

/* Files are named zero1.json, zero3_bf16.json, zero_stage2_config.json, so the name of a missing one gives its stage.
 */
static int stage_of_name(const char *path) {
    const char *file = strrchr(path, '/'), *zero = strstr(file ? file : path, "zero");
    const char *digit = zero ? strpbrk(zero, "123") : NULL;
    return digit ? *digit - '0' : 3;
}

static ndp_status read_file(ndp_import *m, const char *path) {
    size_t size;
    char *what = ndp_arena_strdup(&m->notes.arena, path);
    if (!what)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    NDP_TRY(ndp_file_read_as(NDP_FILE_JOB, path, &m->deepspeed_text, &size));
    m->notes.y = &m->deepspeed_yaml;
    ndp_status st = ndp_yaml_open(m->notes.y, what, m->deepspeed_text, size, 0);
    if (st == NDP_OK && !m->notes.y->root)
        st = NDP_FAIL(NDP_EINVAL, "%s: empty; expected a DeepSpeed configuration", path);
    if (st == NDP_OK)
        st = ndp_import_walk(m, m->notes.y->root, "deepspeed", NULL, "");
    m->notes.y = &m->yaml;
    return st;
}

/* DeepSpeed's keys, or the file that has them. */
ndp_status ndp_import_deepspeed(ndp_import *m, struct fy_node *value, const char *name) {
    const char *path = ndp_yaml_text(value);
    if (!path)
        return ndp_import_walk(m, value, "deepspeed", NULL, name);
    if (m->deepspeed_text)
        return ndp_yaml_fail(m->notes.y, value, "'%s' names a second DeepSpeed file", name);
    if (ndp_path_exists(path))
        return read_file(m, path);
    if (m->read.zero_stage < 0)
        m->read.zero_stage = stage_of_name(path);
    ndp_str_addf(&m->notes.remarks,
                 "%s: %s was not found; assuming ZeRO stage %d, which affects memory, not the result\n", name, path,
                 m->read.zero_stage);
    return NDP_OK;
}
