/* Documents of files.
 *
 * Text files: the whole file is one document, unless it has lines that are exactly <|endoftext|>: these separate
 * documents. The line break before such a line belongs to the separator, and then so does the file's last one. JSONL
 * files (.jsonl, .ndjson): one record per line (record.h). JSON files (.json): one list of records. These may be
 * compressed (unpack.h): corpus.jsonl.zst. Tables (.csv, .tsv, .parquet, .arrow): one record per row; they are
 * converted to JSONL first (python/table_reader.h), and a chunk of one has the converted text. Empty documents of text
 * files are skipped; empty records are visited. A UTF-8 byte order mark is skipped; all other bytes are kept, \r and
 * zeros included. Files of ids (.bin, bin.h) have no text: visitors of text reject them.
 */
#ifndef NDP_DATA_CORPUS_SOURCE_H
#define NDP_DATA_CORPUS_SOURCE_H

#include "data/corpus/record.h"

typedef enum ndp_source_kind {
    NDP_SOURCE_TEXT,
    NDP_SOURCE_JSONL,
    NDP_SOURCE_JSON,
    NDP_SOURCE_IDS,
    NDP_SOURCE_TABLE
} ndp_source_kind;
/* Whether the file's name says its kind; a file without such a name is a text. */
bool ndp_source_is_known(const char *path, ndp_source_kind *kind);
/* By the file's name. NDP_ENOTSUP for kinds that are known but not supported (.zip, a compressed table, ...). */
NDP_API ndp_status ndp_source_kind_of(const char *path, ndp_source_kind *out);

/* Visits the documents of `contents`, the bytes of the file `path` as stored on disk, in order. Records are texts in
 * the field `text_field` (NULL: "text"). NDP_EFORMAT, with file and line (and byte): invalid UTF-8, damaged JSON, a
 * record without that field. */
NDP_API ndp_status ndp_source_visit(const char *path, const char *contents, size_t size, const char *text_field,
                                    ndp_document_visitor *visit, void *user);

/* A stretch of an unpacked file that starts and ends at record boundaries (in files of ids, at id boundaries), so that
 * several threads or ranks can work on one file. */
typedef struct ndp_source_chunk {
    const char *path, *contents; /* the whole file, without a byte order mark */
    size_t size, mark;           /* of the byte order mark */
    ndp_source_kind kind;
    size_t begin, end;
    int64_t line;        /* of `begin`, from 1; 1 until ndp_source_count_lines */
    int64_t first, last; /* of a .json list only records [first, last) */
} ndp_source_chunk;
/* An empty chunk of a file. NDP_ENOTSUP as above. */
NDP_API ndp_status ndp_source_begin(const char *path, const char *contents, size_t size, ndp_source_chunk *out);
/* Sets the chunk to the records that belong to the bytes [from, to). However a file is cut, each record belongs to
 * exactly one range. Reads only the bytes near the range. False if no record belongs to it. A .json list belongs as a
 * whole to the range that contains its start. */
bool ndp_source_cut(ndp_source_chunk *c, size_t from, size_t to);
/* Counts the lines before the chunk, for messages. Reads the file up to there. */
void ndp_source_count_lines(ndp_source_chunk *c);
/* Visits the documents of a chunk; all chunks of a file together give the file's documents. NDP_EFORMAT also for a
 * record of more than NDP_RECORD_BYTES or NDP_RECORD_VALUES, so that memory stays bounded whatever the file contains.
 */
NDP_API ndp_status ndp_source_visit_chunk(const ndp_source_chunk *c, const ndp_record_format *format,
                                          ndp_document_visitor *visit, void *user);
#define NDP_RECORD_BYTES ((size_t)64 << 20)
#define NDP_RECORD_VALUES ((size_t)1 << 20)
/* At least as many values as a text of JSON has, by its punctuation: "{}," is 3 bytes of text but 700 of memory. */
size_t ndp_record_values(const char *text, size_t n);

#endif
