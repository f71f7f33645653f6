/* Files of other programs (foreign.h), known by keys that a job file does not have. */
#include "config/foreign.h"

#include "base/text.h"
#include "config/names.h"
#include <stdlib.h>
#include <string.h>

bool ndp_foreign_is_toml(const char *text, size_t size) {
    char *copy = strndup(text, size), *rest = NULL;
    bool table = false, key = false;
    for (char *line = copy ? strtok_r(copy, "\r\n", &rest) : NULL; line && !key; line = strtok_r(NULL, "\r\n", &rest)) {
        line += strspn(line, " \t");
        size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
        if (line[0] == '\0' || line[0] == '#')
            continue;
        if (line[0] == '[' && line[strcspn(line, "]")] == ']' && !strchr(line, ','))
            table = true;
        else if (n == 0 || !table)
            break;
        else
            key = line[n + strspn(line + n, " \t")] == '=';
    }
    free(copy);
    return key;
}

typedef struct foreign_file {
    const char *key;                 /* at the top level, in such files only */
    const char *is, *before, *after; /* what to do, around the file's name; `after` NULL: without it */
} foreign_file;

#define CONVERT "convert it: ndparallel config import ", " -o converted.yaml"
#define A_MODEL "a model's config.json", "a job file names it as model: {config: ", "}"
#define FILL_IN "`ndparallel config --defaults` prints a job file to fill in", NULL

static const foreign_file foreign_files[] = {
    {"base_model", "a file of Axolotl", CONVERT},
    {"compute_environment", "a file of `accelerate config`", CONVERT},
    {"distributed_type", "a file of `accelerate config`", CONVERT},
    {"architectures", A_MODEL},
    {"model_type", A_MODEL},
    {"zero_optimization", "a file of DeepSpeed", FILL_IN},
    {"train_micro_batch_size_per_gpu", "a file of DeepSpeed", FILL_IN},
};

static ndp_status refuse_as(const foreign_file *f, ndp_yaml *y, struct fy_node *key) {
    return ndp_yaml_fail(y, key, "%s, not a job file; %s%s%s", f->is, f->before, f->after ? y->what : "",
                         f->after ? f->after : "");
}

ndp_status ndp_foreign_refuse(ndp_yaml *y) {
    const foreign_file *found = NULL;
    struct fy_node *at = NULL;
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(y->root, &place));) {
        struct fy_node *key = fy_node_pair_key(pair), *value = fy_node_pair_value(pair);
        const char *name = ndp_yaml_text(key);
        if (name && ndp_names_is_section(name) && value && fy_node_is_mapping(value))
            return NDP_OK;
        for (int i = 0; name && !found && i < NDP_COUNT(foreign_files); i++)
            if (strcmp(name, foreign_files[i].key) == 0) {
                found = &foreign_files[i];
                at = key;
            }
    }
    return found ? refuse_as(found, y, at) : NDP_OK;
}
