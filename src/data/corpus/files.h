/* Which files a name stands for: itself, all in a folder, or all that match a pattern. */
#ifndef NDP_DATA_CORPUS_FILES_H
#define NDP_DATA_CORPUS_FILES_H

#include "base/text.h"

typedef struct ndp_file_list {
    char **paths;
    int64_t n, capacity;
    int64_t left_out; /* files of folders that have no name of a kind that is read */
} ndp_file_list;
void ndp_file_list_release(ndp_file_list *l);

/* Appends the files of `name`, by their names' bytes, so that every machine has the same order. A folder: all files in
 * and below it that are named as text (.txt, .text, .md), records or ids are (source.h), hidden ones left out.
 * Links are followed, but not to a folder that they lie in. A name that is not there and has * ? or [ in it is a
 * pattern, as in a shell. NDP_EINVAL: a folder or a pattern without a file. A plain name is not looked for: who reads
 * it says what is wrong. */
NDP_API ndp_status ndp_file_list_add(ndp_file_list *l, const char *name);

#endif
