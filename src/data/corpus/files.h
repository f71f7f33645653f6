/* Which files a name stands for: one file, all files in a folder, all that match a pattern, or a split of a data set.
 */
#ifndef NDP_DATA_CORPUS_FILES_H
#define NDP_DATA_CORPUS_FILES_H

#include "data/corpus/slice.h"

typedef struct ndp_file_list {
    ndp_strings paths;
    int64_t left_out; /* files in folders whose names are of no known kind */
} ndp_file_list;

/* Appends the files of `name`, sorted by the bytes of their names, so that the order is the same on every machine. For
 * a folder: all files in and below it whose names mark them as text (.txt, .text, .md), records or ids (source.h),
 * without hidden ones, and without dataset_info.json and state.json if there are .arrow files. Links are followed,
 * except to a folder that contains them. A name that does not exist and contains * ? or [ is a pattern, as in a shell;
 * one of the form org/name:split, without the ending of a data file, is a data set in the Hub cache (hub_data.h).
 * NDP_EINVAL: a folder or a pattern without a file, a data set that is not in the cache, a URL. Whether a plain name
 * exists is not checked here; opening it reports that.
 *
 * `split` (NULL: none) is the split of a data set, which its name then lacks; files are the split train. *slice: the
 * part of the split that it, or the name, has in brackets. NDP_EINVAL: the brackets hold no slice. */
NDP_API ndp_status ndp_file_list_add(ndp_file_list *l, const char *name, const char *split, ndp_slice *slice);

#endif
