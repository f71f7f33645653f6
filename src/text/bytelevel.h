/* GPT-2's bytes as printable characters: those that are printable in ISO 8859-1 stand for themselves, the other 68 for
 * U+0100.. in their order. */
#ifndef NDP_TEXT_BYTELEVEL_H
#define NDP_TEXT_BYTELEVEL_H

#include "base/utf8.h"

static inline uint32_t ndp_byte_character(unsigned char byte) {
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte >= 0x7f && byte <= 0xa0)
        return 0x121u + byte - 0x7f;
    return byte == 0xad ? 0x143 : byte;
}

/* The byte that a character stands for, or -1. */
static inline int ndp_character_byte(uint32_t c) {
    if (c >= 0x100 && c <= 0x120)
        return (int)(c - 0x100);
    if (c >= 0x121 && c <= 0x142)
        return (int)(c - 0x121 + 0x7f);
    if (c == 0x143)
        return 0xad;
    return c < 0x100 && ndp_byte_character((unsigned char)c) == c ? (int)c : -1;
}

#endif
