/* Records of a file by number: how many there are, and where some of them lie. */
#ifndef NDP_DATA_CORPUS_SOURCE_RECORDS_H
#define NDP_DATA_CORPUS_SOURCE_RECORDS_H

#include "data/corpus/source.h"

/* The records of a whole, unpacked file; of a table, of its rows as JSONL. Blank lines are not records. NDP_EINVAL: it
 * is a text or a file of ids. NDP_EFORMAT: a .json file is not a list. */
NDP_API ndp_status ndp_source_count_records(const ndp_source_chunk *file, int64_t *n);
/* The bytes [begin, stop) of records [first, end) of a file whose records are lines. */
void ndp_source_find_records(const ndp_source_chunk *file, int64_t first, int64_t end, size_t *begin, size_t *stop);

#endif
