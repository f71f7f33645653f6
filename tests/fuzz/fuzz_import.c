/* Any text as another program's configuration: imported or refused with a message, with and without force; what was
 * imported is written as a job, the notes as comments, that our own parser reads back to the same. The first byte
 * chooses the options. */
#include "import/import.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok) {
    if (!ok)
        abort();
}

static void import(const char *text, size_t size, const ndp_import_opts *o) {
    ndp_config c, back;
    char *job = NULL, *notes = NULL;
    require(ndp_config_init(&c) == NDP_OK);
    if (ndp_config_import_text(&c, text, size, "fuzz", o, &job, &notes) != NDP_OK) {
        require(ndp_error_message()[0] != '\0' && !job && !notes);
        ndp_config_release(&c);
        return;
    }
    require(job != NULL && notes != NULL && ndp_utf8_valid_prefix(notes, strlen(notes)) == strlen(notes) &&
            c.batch.global_batch_size >= c.batch.micro_batch_size);
    ndp_str first = {0}, second = {0}, written = {0};
    require(ndp_config_init(&back) == NDP_OK);
    require(ndp_config_write(&c, &first) == NDP_OK);
    ndp_str_add(&written, job);
    for (const char *line = notes, *end; *line; line = end + (*end == '\n')) {
        end = strchrnul(line, '\n');
        ndp_str_addf(&written, "# %.*s\n", (int)(end - line), line);
    }
    require(ndp_config_parse(&back, written.data, written.length, "written") == NDP_OK);
    require(ndp_config_write(&back, &second) == NDP_OK);
    require(strcmp(first.data, second.data) == 0);
    ndp_str_release(&written);
    ndp_str_release(&first);
    ndp_str_release(&second);
    ndp_config_release(&c);
    ndp_config_release(&back);
    free(job);
    free(notes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const sets[] = {"train.steps=7", "data.files=[a.txt]"};
    if (size == 0)
        return 0;
    ndp_import_opts o = {.ranks = data[0] & 15, .force = data[0] & 16};
    if (data[0] & 32) {
        o.assignments = sets;
        o.assignment_count = 2;
    }
    char *text = malloc(size - 1 ? size - 1 : 1); /* ends where the input does: a reader beyond it is caught */
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    import(text, size - 1, &o);
    free(text);
    return 0;
}
