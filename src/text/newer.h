/* The reference mixes Unicode versions: its normalization and its marks follow Unicode 9, the punctuation of its
 * pre-tokenizers follows Unicode 8. It leaves characters added later alone, and so does this tokenizer. */
#ifndef NDP_TEXT_NEWER_H
#define NDP_TEXT_NEWER_H

#include <stdbool.h>
#include <stdint.h>

/* A mark, or a character with a decomposition, that is newer than Unicode 9. */
bool ndp_newer_than_unicode_9(uint32_t c);

/* Punctuation newer than Unicode 8, as ranges for a character class. */
#define NDP_NEWER_PUNCTUATION                                                                                          \
    "\\x{61d}\\x{9fd}\\x{a76}\\x{c77}\\x{c84}\\x{1b7d}-\\x{1b7e}\\x{2e43}-\\x{2e4f}"                                   \
    "\\x{2e52}-\\x{2e5d}\\x{10ead}\\x{10f55}-\\x{10f59}\\x{10f86}-\\x{10f89}"                                          \
    "\\x{1144b}-\\x{1144f}\\x{1145a}-\\x{1145b}\\x{1145d}\\x{11660}-\\x{1166c}\\x{116b9}\\x{1183b}"                    \
    "\\x{11944}-\\x{11946}\\x{119e2}\\x{11a3f}-\\x{11a46}\\x{11a9a}-\\x{11a9c}\\x{11a9e}-\\x{11aa2}"                   \
    "\\x{11c41}-\\x{11c45}\\x{11c70}-\\x{11c71}\\x{11ef7}-\\x{11ef8}\\x{11fff}\\x{12ff1}-\\x{12ff2}"                   \
    "\\x{16e97}-\\x{16e9a}\\x{16fe2}\\x{1e95e}-\\x{1e95f}"

#endif
