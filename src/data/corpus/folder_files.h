/* What is in a folder and below it. */
#ifndef NDP_DATA_CORPUS_FOLDER_FILES_H
#define NDP_DATA_CORPUS_FOLDER_FILES_H

#include "base/text.h"

/* Appends to `paths` the files in and below a folder that are `wanted`, except hidden ones, the names of each folder
 * sorted by their bytes; adds the number of the others to *left_out. A dangling link is a file. NDP_EIO: a folder
 * cannot be read. */
NDP_API ndp_status ndp_folder_files(const char *folder, bool (*wanted)(const char *path), ndp_strings *paths,
                                    int64_t *left_out);

#endif
