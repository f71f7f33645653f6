/* A vocabulary: strings <-> ids. */
#ifndef NDP_TEXT_VOCAB_H
#define NDP_TEXT_VOCAB_H

#include "base/text.h"

/* Larger ids are taken for damage: the table below is as long as the largest id. */
#define NDP_VOCAB_MAX_ID ((1 << 24) - 1)

typedef struct ndp_vocab_word {
    uint32_t at, length; /* in `text` */
    bool used;           /* ids may have holes */
} ndp_vocab_word;

/* `tag`: of the string's hash, so that most strings are told apart without being looked at. */
typedef struct ndp_vocab_slot {
    uint32_t tag;
    int32_t id; /* -1: free */
} ndp_vocab_slot;

typedef struct ndp_vocab {
    ndp_str text;          /* all strings, one behind the other */
    ndp_vocab_word *words; /* [n], by id */
    int64_t n, capacity;
    ndp_vocab_slot *slots; /* open addressing; as many as `mask` + 1 */
    uint32_t mask, filled;
} ndp_vocab;

/* How a string is found by ndp_vocab_find. */
typedef enum ndp_vocab_search {
    NDP_VOCAB_NOT_FOUND,  /* it only is the text of its id */
    NDP_VOCAB_FOUND_ONCE, /* twice the same string is an error */
    NDP_VOCAB_FOUND_LAST  /* the last of equal strings is found */
} ndp_vocab_search;

/* NDP_EFORMAT when the id is taken or out of range, or the string is there and may not be; `what` names the file in the
 * message. */
NDP_API ndp_status ndp_vocab_add(ndp_vocab *v, const char *what, const char *text, size_t length, int64_t id,
                                 ndp_vocab_search search);
/* The id of a string, or -1. */
int32_t ndp_vocab_find(const ndp_vocab *v, const char *text, size_t length);
/* The same over all strings, also those that ndp_vocab_find does not find (tokens that were only added): looks at each.
 */
int32_t ndp_vocab_find_any(const ndp_vocab *v, const char *text, size_t length);
/* The string of an id (not terminated), or NULL. */
const char *ndp_vocab_text(const ndp_vocab *v, int64_t id, size_t *length);
/* The ids of "<0x00>" to "<0xFF>", -1 for those that are not there; without `byte_fallback` -1 for all. */
void ndp_vocab_find_bytes(const ndp_vocab *v, bool byte_fallback, int32_t byte_ids[256]);
/* Does every byte of a text have one? */
bool ndp_vocab_has_bytes(const int32_t byte_ids[256], const char *text, size_t length);
void ndp_vocab_release(ndp_vocab *v);

#endif
