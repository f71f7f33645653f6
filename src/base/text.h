/* Growing strings, paths and files: the basics that every room needs. */
#ifndef NDP_BASE_TEXT_H
#define NDP_BASE_TEXT_H

#include "base/status.h"
#include <stdarg.h>

/* Borrowed bytes, not terminated. */
typedef struct ndp_span {
    const char *data;
    size_t n;
} ndp_span;

/* A growing string; `{0}` is an empty one. `data` is terminated once anything was added. The first failed allocation
 * sets `failed`, and later calls do nothing, so callers check once, at the end. */
typedef struct ndp_str {
    char *data;
    size_t length, capacity;
    bool failed;
} ndp_str;

void ndp_str_add(ndp_str *s, const char *text);
void ndp_str_add_bytes(ndp_str *s, const void *bytes, size_t n);
/* Word i of n that a user may choose from, one after the other: "a", ", b", " or c". */
void ndp_str_add_choice(ndp_str *s, int i, int n, const char *word);
void ndp_str_addf(ndp_str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The shortest digits that read back as the same number; integers without an exponent. */
void ndp_str_add_number(ndp_str *s, double v);
void ndp_str_release(ndp_str *s);
/* Transfers the text to the caller; NULL: out of memory. The string is empty afterwards. */
char *ndp_str_detach(ndp_str *s);

/* A list of strings that it owns; `{0}` is an empty one. */
typedef struct ndp_strings {
    char **items;
    int n;
} ndp_strings;
/* Appends a copy. NDP_ENOMEM. */
NDP_API ndp_status ndp_strings_add(ndp_strings *list, const char *text);
void ndp_strings_release(ndp_strings *list);

/* printf into a new string, owned by the caller; NULL: out of memory. */
char *ndp_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *ndp_vformat(const char *fmt, va_list args) __attribute__((format(printf, 1, 0)));

/* What a file is read as. Each kind has a limit (file.c): a larger file is rejected before it fills the memory. One
 * that is missing is NDP_EINVAL, as most likely the user misspelled its name; of the kinds that we write, OWN and
 * MANIFEST, NDP_EIO. */
typedef enum ndp_file_kind {
    NDP_FILE_DATA, /* mapped, without a limit */
    NDP_FILE_OWN,  /* the same, of a run or a cache */
    NDP_FILE_ANY,
    NDP_FILE_JOB,
    NDP_FILE_CONFIG, /* config.json, tokenizer_config.json and the like */
    NDP_FILE_TOKENIZER,
    NDP_FILE_TEMPLATE,
    NDP_FILE_INDEX,
    NDP_FILE_MANIFEST,
    NDP_FILE_HOSTS,
    NDP_FILE_CLUSTER,
} ndp_file_kind;

/* Opens a regular file for reading; the caller closes it. Symbolic links are followed. A folder, pipe, socket or device
 * is rejected without blocking (NDP_EIO), and so is a file above its kind's limit (NDP_EFORMAT). All files from outside
 * are opened here, or by ndp_file_read_as and ndp_file_map, which do the same. */
ndp_status ndp_file_open(ndp_file_kind kind, const char *path, int *fd);
/* Reads the whole file and adds a NUL after its `*size` bytes; the caller frees. NDP_EIO names the path and the cause.
 */
ndp_status ndp_file_read_as(ndp_file_kind kind, const char *path, char **data, size_t *size);
/* The same for NDP_FILE_ANY. */
ndp_status ndp_file_read(const char *path, char **data, size_t *size);
/* Reads a file of `kind` and evaluates `parsed`, the status of what makes sense of its `text` and `size`, which names
 * the path in its messages. The text is freed afterwards. */
#define NDP_FILE_PARSE(kind, path, text, size, parsed)                                                                 \
    ({                                                                                                                 \
        char *text;                                                                                                    \
        size_t size;                                                                                                   \
        ndp_status parse_status_ = ndp_file_read_as(kind, path, &text, &size);                                         \
        if (parse_status_ == NDP_OK) {                                                                                 \
            parse_status_ = (parsed);                                                                                  \
            free(text);                                                                                                \
        }                                                                                                              \
        parse_status_;                                                                                                 \
    })
/* As ndp_file_read, for the rest of an open file or pipe, up to `most` bytes (NDP_ENOMEM: there are more); `name`
 * stands for it in messages. Does not close it. */
ndp_status ndp_fd_read(int fd, const char *name, size_t most, char **data, size_t *size);
/* Writes all of it at `at`; -1: not all, with errno. The kernel begins to write it to the disk at once: fsync then has
 * less to wait for, and a control group whose limit is near waits for these pages. It kills a process (version 1) if
 * all pages that it could take back are still to be written and none is being written. */
NDP_API int ndp_write_at(int fd, const void *data, size_t size, int64_t at);
/* Writes under a name that may be the user's: `plan --schedule FILE`, a trace, job.yaml. What the name stands for is
 * found first, through all links. A file, or a place for one: writes a temporary file beside it, syncs and renames it,
 * so that afterwards it is the old one or the whole new one, with the permissions of the old one; links to it stay. A
 * device, a pipe, or an open file of this process (/dev/stdout, /dev/fd/3) is written to, never replaced. NDP_EIO names
 * the path and the cause: among others a folder, a socket, and a pipe that nothing has opened for 5 seconds. */
NDP_API ndp_status ndp_file_write_atomic(const char *path, const void *data, size_t size);
/* Could ndp_file_write_atomic write there now? Leaves everything as it is: of a file, it creates and removes the
 * temporary one; a device or pipe is not opened. Does not know whether the disk has room. NDP_EIO names the path and
 * the cause; NDP_EINVAL: the path is empty. */
NDP_API ndp_status ndp_output_check(const char *path);
/* A file mapped read-only. Its bytes may change, or be lost if another process truncates the file; lost bytes read as
 * zeros. So readers must be safe for any bytes, and call ndp_file_check before using a result. */
typedef struct ndp_mapped {
    const unsigned char *data;
    size_t size;
    char *path;
    struct ndp_file_watch *watch; /* NULL: an empty file */
} ndp_mapped;
ndp_status ndp_file_map_as(ndp_file_kind kind, const char *path, ndp_mapped *out);
/* The same for NDP_FILE_OWN. */
ndp_status ndp_file_map(const char *path, ndp_mapped *out);
void ndp_file_unmap(ndp_mapped *m);
/* NDP_EIO names the file if bytes of it were lost since it was mapped. Costs a stat. `{0}` is fine. */
NDP_API ndp_status ndp_file_check(const ndp_mapped *m);
/* Gives the memory of these bytes back, and of what was mapped around them; they are read from the file again. `{0}` is
 * fine. */
void ndp_file_forget(const ndp_mapped *m, size_t at, size_t n);
/* Unmaps a file that was read with the status `st`. Returns the error of ndp_file_check, as lost bytes may be why
 * reading failed, otherwise `st`. */
NDP_API ndp_status ndp_file_end(ndp_mapped *m, ndp_status st);

/* The path FOLDER/NAME. NDP_EINVAL: it is longer than the system's paths are. */
enum { NDP_PATH = 4096 };
NDP_API ndp_status ndp_path_join(char out[NDP_PATH], const char *folder, const char *name);
/* The folder that contains `path`, owned by the caller; NULL: out of memory. */
char *ndp_path_parent(const char *path);
/* False only if nothing has that name. True for a dangling link, and if the path cannot be examined: opening it then
 * reports why. */
bool ndp_path_exists(const char *path);
bool ndp_path_is_folder(const char *path);
/* NULL for a folder; otherwise the reason why it is not one: "No such file or directory". */
const char *ndp_path_why_no_folder(const char *path);
/* mkdir -p; the new folders are durable. */
ndp_status ndp_folder_create(const char *path);
/* Removes a folder and everything below it; a missing one is fine. */
ndp_status ndp_folder_remove(const char *path);
/* Calls `visit` for each entry of a folder, in any order, until one fails. A missing folder has none. NDP_EIO: it
 * cannot be listed. */
typedef ndp_status ndp_folder_visitor(void *user, const char *folder, const char *name);
NDP_API ndp_status ndp_folder_visit(const char *folder, ndp_folder_visitor *visit, void *user);
/* Makes the entries of a folder durable (fsync of the folder). */
ndp_status ndp_folder_sync(const char *path);

bool ndp_ends_with(const char *text, const char *end);

/* "1.5 GiB" into `out` (at least 16 bytes); returns `out`. */
char *ndp_human_bytes(double bytes, char out[16]);

/* The name of the entry of a folder nearest to `name`, and the same for a path of which only the folder exists; owned
 * by the caller. NULL: none is near enough, or the folder cannot be read. */
char *ndp_nearest_entry(const char *folder, const char *name);
char *ndp_nearest_path(const char *path);

/* Whether an extended pattern of fnmatch(3) repeats what repeats, "+(*)" or "*(+(a)b)": comparing it may take time that
 * doubles with each letter of a name. */
NDP_API bool ndp_pattern_repeats(const char *pattern);

/* The number that `n` <= 7 hexadecimal digits write; -1: one of them is not such a digit. */
int32_t ndp_hex_number(const char *digits, int n);

/* Offset of the first byte that is not valid UTF-8, or n. */
size_t ndp_utf8_valid_prefix(const char *text, size_t n);

#endif
