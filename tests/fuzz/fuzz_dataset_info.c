/* Any text as the dataset_info.json of a LLaMA-Factory job that names two of its entries: imported or refused with a
 * message; what was imported is written as a job that our own parser reads back to the same. The first byte chooses the
 * stage. */
#include "import/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok) {
    if (!ok)
        abort();
}

/* A folder of this process, which is left behind with its last file. */
static const char *folder(void) {
    static char path[64];
    if (!*path) {
        strcpy(path, "/dev/shm/ndp-info-XXXXXX");
        require(mkdtemp(path) != NULL);
    }
    return path;
}

static void write_info(const uint8_t *data, size_t size) {
    char path[96];
    snprintf(path, sizeof path, "%s/dataset_info.json", folder());
    FILE *f = fopen(path, "wb");
    require(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void check_written(const ndp_config *c, const char *job) {
    ndp_config back;
    ndp_str first = {0}, second = {0};
    require(ndp_config_init(&back) == NDP_OK);
    require(ndp_config_write(c, &first) == NDP_OK);
    require(ndp_config_parse(&back, job, strlen(job), "written") == NDP_OK);
    require(ndp_config_write(&back, &second) == NDP_OK);
    require(strcmp(first.data, second.data) == 0);
    ndp_str_release(&first);
    ndp_str_release(&second);
    ndp_config_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const stages[] = {"sft", "pt", "dpo", "kto"};
    if (size == 0)
        return 0;
    char text[256], *job = NULL, *notes = NULL;
    ndp_config c;
    ndp_import_opts o = {.ranks = 2, .force = data[0] & 4};
    write_info(data + 1, size - 1);
    snprintf(text, sizeof text,
             "model_name_or_path: m\nstage: %s\ndo_train: true\ndataset: a, b\ntemplate: qwen\ndataset_dir: %s\n",
             stages[data[0] & 3], folder());
    require(ndp_config_init(&c) == NDP_OK);
    if (ndp_config_import_text(&c, text, strlen(text), "fuzz", &o, &job, &notes) == NDP_OK)
        check_written(&c, job);
    else
        require(ndp_error_message()[0] != '\0' && !job && !notes);
    ndp_config_release(&c);
    free(job);
    free(notes);
    return 0;
}
