/* Tables (.csv, .tsv, .parquet, .arrow) as JSONL: one record for each row, by a program in Python (table.py). CSV needs
 * only Python; the others also pyarrow. Values of CSV stay texts. Dates and times become texts in ISO form, NaN and
 * infinities null. */
#ifndef NDP_DATA_TABLE_TABLE_READER_H
#define NDP_DATA_TABLE_TABLE_READER_H

#include "base/text.h"

/* Part of the key of token caches: to be increased when table.py gives other records for the same file. */
enum { NDP_TABLE_VERSION = 1 };
/* Seconds that a reader may take for its next output. */
enum { NDP_TABLE_SILENCE = 120 };
/* What a reader may take of a host's memory: its share of the available memory, but within these bounds. */
#define NDP_TABLE_LEAST_MEMORY ((int64_t)384 << 20)
#define NDP_TABLE_MOST_MEMORY ((int64_t)1 << 30)
/* Rows may have so many bytes, as JSONL, and so many for each byte of the file: a small file can repeat a value, or
 * nothing, without end. */
#define NDP_TABLE_ALLOWANCE ((int64_t)64 << 20)
enum { NDP_TABLE_RATIO = 1000 };

/* A reader's output. Any status but NDP_OK stops the reading and is returned. */
typedef struct ndp_table_sink {
    ndp_status (*put)(void *user, const char *bytes, size_t n); /* the next bytes of the JSONL text */
    ndp_status (*row)(void *user);                              /* a row has ended; may be NULL */
    void *user;
} ndp_table_sink;

/* Reads the first `most` rows of a file, 0: all; at most `readers` processes of this host read at the same time. *rows:
 * how many were read. Errors name the file and the row, counted from 1 without the header: NDP_EFORMAT for a damaged
 * file, ragged rows, binary values, a row of more than NDP_RECORD_BYTES (source.h) or that needs more memory than the
 * reader's share, rows beyond the ratio above; NDP_EINVAL if Python is missing; NDP_EIO if the reader dies, writes
 * nothing for `silence` seconds, or writes anything but rows. */
ndp_status ndp_table_read(const char *path, int64_t most, int silence, int readers, const ndp_table_sink *sink,
                          int64_t *rows);

/* Reads rows into new memory, which the caller frees, until there are `most` rows (0: all) or `bytes` bytes. *complete:
 * there are no more. */
ndp_status ndp_table_head(const char *path, int64_t most, size_t bytes, char **out, size_t *n, bool *complete);

#endif
