/* Inside the data room: which records of each file the slices of their sources take. */
#ifndef NDP_DATA_CACHE_WINDOWS_H
#define NDP_DATA_CACHE_WINDOWS_H

#include "data/cache/corpus.h"
#include "data/cache/crew.h"

/* Sets c->windows if a source has a slice; its records are counted first, which reads its files. Tables must have been
 * converted. The leader counts, in the crew's work folder the file `windows` has the result. NDP_EINVAL: a file has no
 * records, or a slice takes none. If another rank fails, NDP_OK, and the crew is stopped. */
ndp_status ndp_windows_find(const ndp_crew *crew, ndp_corpus *c);
/* The same without a crew, for a dry run, which does not read everything: sources with tables or compressed files are
 * left whole. */
ndp_status ndp_windows_find_cheap(ndp_corpus *c);
/* The part of file f; the whole file without a slice. */
ndp_file_window ndp_corpus_window(const ndp_corpus *c, int64_t f);

#endif
