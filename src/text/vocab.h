/* A vocabulary: strings <-> ids. */
#ifndef NDP_TEXT_VOCAB_H
#define NDP_TEXT_VOCAB_H

#include "base/text.h"

/* Larger ids are treated as damage: the tables below are as long as the largest id. */
#define NDP_VOCAB_MAX_ID ((1 << 24) - 1)

typedef struct ndp_vocab_word {
    uint32_t at, length; /* in `text` */
    bool used;           /* false: a hole in the ids */
} ndp_vocab_word;

/* `tag`: upper bits of the string's hash; most strings differ in it, which saves comparing them. */
typedef struct ndp_vocab_slot {
    uint32_t tag;
    int32_t id; /* -1: free */
} ndp_vocab_slot;

typedef struct ndp_vocab {
    ndp_str text;          /* all strings, concatenated */
    ndp_vocab_word *words; /* [n], by id */
    int64_t n, capacity;
    ndp_vocab_slot *slots; /* open addressing, `mask` + 1 slots */
    uint32_t mask, filled;
} ndp_vocab;

/* How ndp_vocab_find treats a string. */
typedef enum ndp_vocab_search {
    NDP_VOCAB_NOT_FOUND,  /* not at all: it is only the text of its id */
    NDP_VOCAB_FOUND_ONCE, /* finds it; a second equal string is an error */
    NDP_VOCAB_FOUND_LAST  /* finds the last of equal strings */
} ndp_vocab_search;

/* NDP_EFORMAT: the id is taken or out of range, or the string exists and must be unique. `what` names the file. */
NDP_API ndp_status ndp_vocab_add(ndp_vocab *v, const char *what, const char *text, size_t length, int64_t id,
                                 ndp_vocab_search search);
/* The id of a string, or -1. */
int32_t ndp_vocab_find(const ndp_vocab *v, const char *text, size_t length);
/* The same among all strings, including NDP_VOCAB_NOT_FOUND ones. Compares with each: O(n). */
int32_t ndp_vocab_find_any(const ndp_vocab *v, const char *text, size_t length);
/* The string of an id (not terminated), or NULL. */
const char *ndp_vocab_text(const ndp_vocab *v, int64_t id, size_t *length);
/* The ids of "<0x00>" to "<0xFF>"; -1 where missing, and for all of them without `byte_fallback`. */
void ndp_vocab_find_bytes(const ndp_vocab *v, bool byte_fallback, int32_t byte_ids[256]);
/* True if every byte of the text has an id. */
bool ndp_vocab_has_bytes(const int32_t byte_ids[256], const char *text, size_t length);
void ndp_vocab_release(ndp_vocab *v);

#endif
