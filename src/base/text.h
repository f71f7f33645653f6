/* Growing strings, paths, files: the small text work that every room needs. */
#ifndef NDP_BASE_TEXT_H
#define NDP_BASE_TEXT_H

#include "base/status.h"

/* Borrowed bytes, not terminated. */
typedef struct ndp_span {
    const char *data;
    size_t n;
} ndp_span;

/* A growing string; `{0}` is an empty one. `data` is always terminated once anything was added. The first failed
 * allocation sets `failed` and all later calls do nothing, so that it is checked once, at the end. */
typedef struct ndp_str {
    char *data;
    size_t length, capacity;
    bool failed;
} ndp_str;

void ndp_str_add(ndp_str *s, const char *text);
void ndp_str_add_bytes(ndp_str *s, const void *bytes, size_t n);
void ndp_str_addf(ndp_str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The shortest digits that read back to the same number; whole ones without an exponent. */
void ndp_str_add_number(ndp_str *s, double v);
void ndp_str_release(ndp_str *s);
/* The text, owned by the caller now; NULL when memory ran out. The string is empty again. */
char *ndp_str_detach(ndp_str *s);

/* printf into a fresh string, owned by the caller; NULL when memory ran out. */
char *ndp_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* What a file is read as. Each kind has a limit (file.c): a larger file is refused by name before it fills the memory.
 */
typedef enum ndp_file_kind {
    NDP_FILE_DATA, /* mapped: no limit */
    NDP_FILE_ANY,
    NDP_FILE_JOB,
    NDP_FILE_CONFIG, /* config.json, tokenizer_config.json and their like */
    NDP_FILE_TOKENIZER,
    NDP_FILE_TEMPLATE,
    NDP_FILE_INDEX,
    NDP_FILE_MANIFEST,
    NDP_FILE_HOSTS,
} ndp_file_kind;

/* Opens a regular file for reading; the caller closes. Symbolic links are followed. A folder, pipe, socket or device is
 * refused without waiting for it (NDP_EIO), a file above the limit of its kind too (NDP_EFORMAT). Every file that
 * somebody else wrote is opened here, or by ndp_file_read_as and ndp_file_map, which do the same. */
ndp_status ndp_file_open(ndp_file_kind kind, const char *path, int *fd);
/* The whole file, NUL-terminated behind its `*size` bytes; the caller frees. NDP_EIO names the path and the cause. */
ndp_status ndp_file_read_as(ndp_file_kind kind, const char *path, char **data, size_t *size);
/* The same of NDP_FILE_ANY. */
ndp_status ndp_file_read(const char *path, char **data, size_t *size);
/* The same of what is left in an open file or pipe, up to `most` bytes (NDP_ENOMEM: there are more); `name` stands for
 * it in messages. Does not close it. */
ndp_status ndp_fd_read(int fd, const char *name, size_t most, char **data, size_t *size);
/* Writes beside, syncs, renames: the file is either the old one or the whole new one. */
ndp_status ndp_file_write_atomic(const char *path, const void *data, size_t size);
/* A file mapped read-only. Its bytes may change, or be lost when another process cuts the file; lost bytes read as
 * zeros. So a reader makes sure that any bytes are harmless, and calls ndp_file_check before it uses the result.
 */
typedef struct ndp_mapped {
    const unsigned char *data;
    size_t size;
    char *path;
    struct ndp_file_watch *watch; /* NULL: an empty file */
} ndp_mapped;
ndp_status ndp_file_map(const char *path, ndp_mapped *out);
void ndp_file_unmap(ndp_mapped *m);
/* NDP_EIO names the file when bytes of it were lost since it was mapped. Costs a stat. `{0}` is fine. */
NDP_API ndp_status ndp_file_check(const ndp_mapped *m);
/* Unmaps a file that was read with the result `st`; returns it, or the error of ndp_file_check: lost bytes may be why
 * the reading failed. */
NDP_API ndp_status ndp_file_end(ndp_mapped *m, ndp_status st);

/* False only where nothing has the name: true for a link to nothing, and where the path cannot be looked at, so that
 * the open reports why. */
bool ndp_path_exists(const char *path);
bool ndp_path_is_folder(const char *path);
/* NULL for a folder; else why it is none: "No such file or directory". */
const char *ndp_path_why_no_folder(const char *path);
/* mkdir -p; what it makes is durable. */
ndp_status ndp_folder_create(const char *path);
/* Removes a folder and all below it; a missing one is fine. */
ndp_status ndp_folder_remove(const char *path);
/* Makes the entries of a folder durable (fsync on the folder). */
ndp_status ndp_folder_sync(const char *path);

/* "1.5 GiB" into `out` (at least 16 bytes); returns `out`. */
char *ndp_human_bytes(double bytes, char out[16]);

/* The candidate nearest to `word` by edit distance, or NULL when none is near enough to be what was meant. */
const char *ndp_nearest(const char *word, const char *const *candidates, int n);

/* Offset of the first byte that is not valid UTF-8, or n. */
size_t ndp_utf8_valid_prefix(const char *text, size_t n);

#endif
