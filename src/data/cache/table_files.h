/* Inside the data room: tables (table_reader.h) of a corpus, converted to JSONL once by the crew that builds a cache.
 */
#ifndef NDP_DATA_CACHE_TABLE_FILES_H
#define NDP_DATA_CACHE_TABLE_FILES_H

#include "data/cache/corpus.h"
#include "data/cache/crew.h"

/* Replaces every table of the corpus by its rows as JSONL, a file rows-F of the work folder, which goes with it. The
 * ranks of the crew that see the corpus share the work: each file is read once, by one of them. If a rank fails, the
 * others return NDP_OK and the crew is stopped. */
ndp_status ndp_tables_convert(const ndp_crew *crew, ndp_corpus *c);

#endif
