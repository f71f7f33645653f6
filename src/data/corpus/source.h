/* Documents of files.
 *
 * Text files: the whole file is one document, or, where it has lines that are exactly <|endoftext|>, each stretch
 * between them; the line break before such a line, and then also the file's last one, belongs to the border. JSONL
 * files (.jsonl, .ndjson): one record a line (record.h). JSON files (.json): one list of records. Stretches of text
 * without a byte are left out; records without one are visited. Each also compressed (unpack.h): corpus.jsonl.zst.
 * A byte order mark of UTF-8 is no text and is left out; other bytes are kept as they are, \r and zeros too.
 * Files of ids (.bin, bin.h) have no text: who wants documents of text refuses them.
 */
#ifndef NDP_DATA_CORPUS_SOURCE_H
#define NDP_DATA_CORPUS_SOURCE_H

#include "data/corpus/record.h"

typedef enum ndp_source_kind { NDP_SOURCE_TEXT, NDP_SOURCE_JSONL, NDP_SOURCE_JSON, NDP_SOURCE_IDS } ndp_source_kind;
/* By the file's name. NDP_ENOTSUP for kinds that are known but not built (.parquet, .zip, ...). */
NDP_API ndp_status ndp_source_kind_of(const char *path, ndp_source_kind *out);

/* Visits the documents of `contents`, the bytes of the file `path` as it lies on the disk, in order; records are texts
 * in a field of that name, NULL for "text". NDP_EFORMAT with file and line (and byte): invalid UTF-8, damaged JSON, a
 * record without that field. */
NDP_API ndp_status ndp_source_visit(const char *path, const char *contents, size_t size, const char *text_field,
                                    ndp_document_visitor *visit, void *user);

/* A stretch of an unpacked file that begins and ends where records do, so that several threads, or ranks, may share
 * one. Of files of ids: where ids do. */
typedef struct ndp_source_chunk {
    const char *path, *contents; /* the whole file, behind a byte order mark */
    size_t size, mark;           /* of the mark */
    ndp_source_kind kind;
    size_t begin, end;
    int64_t line; /* of `begin`, from 1; as long as nobody has counted, 1 */
} ndp_source_chunk;
/* Of a file, nothing of it yet. NDP_ENOTSUP as above. */
NDP_API ndp_status ndp_source_begin(const char *path, const char *contents, size_t size, ndp_source_chunk *out);
/* The records that belong to the bytes [from, to): whatever a file is cut into, each record belongs to one piece. Only
 * what lies near the piece is read. False where the piece has none. A .json list belongs to the first piece, whole. */
bool ndp_source_cut(ndp_source_chunk *c, size_t from, size_t to);
/* Counts the lines before the chunk, for messages: this reads the file up to there. */
void ndp_source_count_lines(ndp_source_chunk *c);
/* Visits the documents of a chunk: all of a file's chunks give what the file gives. NDP_EFORMAT also where a record has
 * more than NDP_RECORD_BYTES or NDP_RECORD_VALUES: memory stays bounded whatever the file holds. */
NDP_API ndp_status ndp_source_visit_chunk(const ndp_source_chunk *c, const ndp_record_format *format,
                                          ndp_document_visitor *visit, void *user);
#define NDP_RECORD_BYTES ((size_t)64 << 20)
#define NDP_RECORD_VALUES ((size_t)1 << 20)

#endif
