/* A folder for a test, and files in it. */
#ifndef NDP_TESTS_DATA_FOLDER_H
#define NDP_TESTS_DATA_FOLDER_H

#include "base/text.h"
#include "check.h"
#include <stdlib.h>
#include <unistd.h>

/* A fresh folder, as *state; removed afterwards. */
static inline int make_folder(void **state) {
    char *folder = strdup("/tmp/ndp-data-XXXXXX");
    *state = folder;
    return folder && mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state) {
    ndp_status st = ndp_folder_remove(*state);
    free(*state);
    return st == NDP_OK ? 0 : -1;
}

/* Writes FOLDER/name; the path, freed by the caller. */
static inline char *write_file(const char *folder, const char *name, const char *contents, size_t n) {
    char *path = ndp_format("%s/%s", folder, name);
    assert_non_null(path);
    CHECK_OK(ndp_file_write_atomic(path, contents, n));
    return path;
}

#endif
