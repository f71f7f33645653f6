/* Non-temporal stores of SSE2, which every x86-64 has; plain copies elsewhere. */
#include "comm/cpu/stream.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

void ndp_stream_block(void *to, const void *from, size_t bytes) {
    size_t head = (16 - (uintptr_t)to % 16) % 16, at = head < bytes ? head : bytes;
    memcpy(to, from, at);
    for (; at + 64 <= bytes; at += 64)
        for (size_t k = at; k < at + 64; k += 16)
            _mm_stream_si128((__m128i *)((char *)to + k), _mm_loadu_si128((const __m128i *)((const char *)from + k)));
    memcpy((char *)to + at, (const char *)from + at, bytes - at);
}

void ndp_stream_end(void) { _mm_sfence(); }

#else

void ndp_stream_block(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void ndp_stream_end(void) {}

#endif
