/* Walking over valid UTF-8. */
#ifndef NDP_DATA_UTF8_H
#define NDP_DATA_UTF8_H

#include <stddef.h>
#include <stdint.h>

static inline size_t ndp_utf8_length(unsigned char first) {
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

static inline uint32_t ndp_utf8_decode(const char *text, size_t length) {
    const unsigned char *p = (const unsigned char *)text;
    switch (length) {
    case 1:
        return p[0];
    case 2:
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    case 3:
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    default:
        return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    }
}

#endif
