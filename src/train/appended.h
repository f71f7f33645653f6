/* Inside the train room: a file that grows by whole records, such as lines. A record is written at the end of those
 * before it, so after a failure the same bytes go to the same place, and the file never has a part of a record that
 * another one follows. Records that could not be written (a full disk) are kept, and written before the next one. */
#ifndef NDP_TRAIN_APPENDED_H
#define NDP_TRAIN_APPENDED_H

#include "base/text.h"

typedef struct ndp_appended {
    int fd; /* 0: not open */
    char *path;
    const char *unit; /* what messages call a record */
    int64_t end;      /* bytes of the records in the file */
    ndp_str kept;
    int64_t missing, lost; /* records that are not in the file; those of them that are not kept either */
} ndp_appended;

/* Opens `path`, which it owns from here on (NULL: out of memory), and creates it if it is missing; the next record goes
 * to `end`. On failure too, ndp_appended_close releases it. */
ndp_status ndp_appended_open(ndp_appended *f, char *path, const char *unit, int64_t end);
/* Rank 0, before that: cuts the file after its first lines, those that `keeps` is true for; the rest was never saved.
 * *end: bytes that stay; 0 if there is no file. NDP_EIO. */
ndp_status ndp_appended_cut(const char *path, bool (*keeps)(void *user, const char *line, size_t n), void *user,
                            int64_t *end);
/* Lets `add` append a record to what is kept, and writes that. NDP_EIO: it could not be written and is kept, up to 64
 * MiB; later records are lost. */
ndp_status ndp_appended_add(ndp_appended *f, void (*add)(ndp_str *out, const void *record), const void *record);
/* Tries once more to write the records that are kept. NDP_EIO says how many records are not in the file. */
ndp_status ndp_appended_flush(ndp_appended *f);
void ndp_appended_close(ndp_appended *f);

#endif
