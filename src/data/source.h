/* Documents of files.
 *
 * Text files: the whole file is one document, or, where it has lines that are exactly <|endoftext|>, each stretch
 * between them; the line break before such a line, and then also the file's last one, belongs to the border. JSONL
 * files (.jsonl, .ndjson): one record a line, its text in a named field. Stretches of text without a byte are left out;
 * records without one are visited.
 */
#ifndef NDP_DATA_SOURCE_H
#define NDP_DATA_SOURCE_H

#include "base/text.h"

typedef struct ndp_document {
    const char *text; /* valid UTF-8; borrowed for the call */
    size_t n;
    const char *path;
    int64_t line; /* where it begins, from 1 */
    size_t end;   /* bytes of the file up to and with this document */
} ndp_document;

/* Anything but NDP_OK stops the reading and is passed up. */
typedef ndp_status ndp_document_visitor(void *user, const ndp_document *document);

typedef enum ndp_source_kind { NDP_SOURCE_TEXT, NDP_SOURCE_JSONL } ndp_source_kind;
/* By the file's name. NDP_ENOTSUP for kinds that are known but not built (.json, .parquet, .gz, ...). */
NDP_API ndp_status ndp_source_kind_of(const char *path, ndp_source_kind *out);

/* Visits the documents of `contents`, the bytes of the file `path`, in order. `text_field`: of JSONL records; NULL is
 * "text". NDP_EFORMAT with file and line (and byte): invalid UTF-8, damaged JSON, a record without that field. */
NDP_API ndp_status ndp_source_visit(const char *path, const char *contents, size_t size, const char *text_field,
                                    ndp_document_visitor *visit, void *user);

/* A stretch of a file that begins and ends where records do, so that several threads may share one. */
typedef struct ndp_source_chunk {
    const char *path, *contents; /* the whole file */
    size_t size;
    ndp_source_kind kind;
    size_t begin, end;
    int64_t line; /* of `begin`, from 1 */
} ndp_source_chunk;
/* An empty one, before the first. NDP_ENOTSUP as above. */
NDP_API ndp_status ndp_source_begin(const char *path, const char *contents, size_t size, ndp_source_chunk *out);
/* Goes on to the next chunk, of `want` bytes up to the end of a record; false when there is none. */
bool ndp_source_next(ndp_source_chunk *c, size_t want);
/* ndp_source_visit for a chunk: all of a file's chunks give what the file gives. */
NDP_API ndp_status ndp_source_visit_chunk(const ndp_source_chunk *c, const char *text_field,
                                          ndp_document_visitor *visit, void *user);

#endif
