/* Plugins of Axolotl. */
#include "import/import_parts.h"

#include <stdio.h>
#include <string.h>

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* ---- plugins ---- */

/* Plugins that only affect speed or what is shown, or that other keys set up, are left out; any other is refused, since
 * it may change the training. */
static ndp_status read_plugin(ndp_import *m, struct fy_node *item, const char *name) {
    const char *plugin = ndp_yaml_text(item);
    static const char *const faster[] = {"CutCrossEntropyPlugin", "LigerPlugin", "KernelsPlugin",
                                         "ExpertParallelPlugin"};
    if (!plugin)
        return ndp_yaml_fail(m->notes.y, item, "expected the name of a plugin");
    bool tracker = ends_with(plugin, "SwanLabPlugin"), harmless = tracker;
    for (int i = 0; i < NDP_COUNT(faster) && !harmless; i++)
        harmless = ends_with(plugin, faster[i]);
    char shown[200];
    snprintf(shown, sizeof shown, "%.40s: %.100s", name, plugin);
    return ndp_import_note(&m->notes, harmless ? SEEN_LEFT : SEEN_REFUSED, shown, item,
                           tracker    ? "a tracker; metrics are in the run folder's metrics.jsonl (train.trackers)"
                           : harmless ? "ndparallel has its own kernels; there is nothing to compile or patch"
                                      : "a plugin of another program, which could change the training",
                           NULL);
}

ndp_status ndp_import_plugins(ndp_import *m, struct fy_node *value, const char *name) {
    return ndp_import_items(m, value, name, read_plugin);
}
