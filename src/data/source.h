/* Documents of files.
 *
 * Text files: the whole file is one document, or, where it has lines that are exactly <|endoftext|>, each stretch
 * between them; the line break before such a line, and then also the file's last one, belongs to the border. JSONL
 * files (.jsonl, .ndjson): one record a line, its text in a named field. Documents without a byte are left out.
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

#endif
