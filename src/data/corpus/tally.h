/* What reading records met, counted: records that were skipped, by reason, with the first of each named; and known
 * fields that were not read. Tallies of consecutive stretches of data, merged in order, give the tally of the whole. */
#ifndef NDP_DATA_CORPUS_TALLY_H
#define NDP_DATA_CORPUS_TALLY_H

#include "base/text.h"

typedef enum ndp_tally_kind { NDP_TALLY_SKIPPED, NDP_TALLY_UNREAD, NDP_TALLY_KINDS } ndp_tally_kind;

enum { NDP_TALLY_NAMED = 3 };

typedef struct ndp_tally_row {
    ndp_tally_kind kind;
    int source;        /* entry of data.files */
    char *what;        /* the reason; the field */
    int64_t n;         /* records */
    ndp_strings named; /* messages about the first NDP_TALLY_NAMED; each names its place */
} ndp_tally_row;

/* Rows in the order of their first record. `{0}` is an empty one. */
typedef struct ndp_tally {
    ndp_tally_row *rows;
    int64_t n, capacity;
} ndp_tally;

/* Counts a record. `message`: NULL: it is not named. */
NDP_API ndp_status ndp_tally_add(ndp_tally *t, ndp_tally_kind kind, const char *what, const char *message);
/* Adds what the next stretch of data, which belongs to this source, met. */
NDP_API ndp_status ndp_tally_merge(ndp_tally *t, const ndp_tally *next, int source);
/* Whether merging would take messages from `next`. */
bool ndp_tally_names(const ndp_tally *t, const ndp_tally *next);
/* Records of this kind, of one source, or (-1) of all. */
int64_t ndp_tally_count(const ndp_tally *t, ndp_tally_kind kind, int source);
void ndp_tally_clear(ndp_tally *t);

/* As lines: "KIND SOURCE N WHAT", then each message after a tab. Control characters become spaces. */
void ndp_tally_write(const ndp_tally *t, ndp_str *out);
/* Reads what ndp_tally_write wrote; `text` need not end with a zero. NDP_EFORMAT: it has another form. */
NDP_API ndp_status ndp_tally_read(const char *text, size_t n, int sources, ndp_tally *out);

#endif
