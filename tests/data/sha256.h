/* SHA-256 (FIPS 180-4), for comparing with published digests. */
#ifndef NDP_TESTS_DATA_SHA256_H
#define NDP_TESTS_DATA_SHA256_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint32_t sha256_rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* The first 32 bits of the fractional part of p^(1/root) for the n-th prime p, found by integer search. */
static inline uint32_t sha256_constant(int n, int root) {
    int p = 1;
    for (int found = -1; found < n;) {
        p++;
        int d = 2;
        while (d * d <= p && p % d)
            d++;
        found += d * d > p;
    }
    unsigned __int128 target = (unsigned __int128)p << (root == 2 ? 64 : 96);
    uint64_t low = 0, high = 1ull << 37; /* the largest x with x^root <= p 2^(32 root) */
    while (high - low > 1) {
        uint64_t x = low + (high - low) / 2;
        unsigned __int128 power = (unsigned __int128)x * x;
        if (root == 3)
            power *= x;
        if (power <= target)
            low = x;
        else
            high = x;
    }
    return (uint32_t)low;
}

static inline void sha256_block(uint32_t h[8], const uint32_t k[64], const unsigned char *p) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (sha256_rotate(a, 7) ^ sha256_rotate(a, 18) ^ a >> 3) +
               (sha256_rotate(b, 17) ^ sha256_rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t1 = v[7] + (sha256_rotate(e, 6) ^ sha256_rotate(e, 11) ^ sha256_rotate(e, 25)) +
                      ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        uint32_t t2 = (sha256_rotate(a, 2) ^ sha256_rotate(a, 13) ^ sha256_rotate(a, 22)) +
                      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

static inline void sha256_hex(const void *data, size_t n, char out[65]) {
    uint32_t h[8], k[64];
    for (int i = 0; i < 64; i++)
        k[i] = sha256_constant(i, 3);
    for (int i = 0; i < 8; i++)
        h[i] = sha256_constant(i, 2);
    size_t whole = n / 64 * 64;
    for (size_t at = 0; at < whole; at += 64)
        sha256_block(h, k, (const unsigned char *)data + at);
    unsigned char tail[128] = {0};
    size_t rest = n - whole, size = rest < 56 ? 64 : 128;
    if (rest)
        memcpy(tail, (const unsigned char *)data + whole, rest);
    tail[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        tail[size - 1 - (size_t)i] = (unsigned char)((uint64_t)n * 8 >> 8 * i);
    for (size_t at = 0; at < size; at += 64)
        sha256_block(h, k, tail + at);
    for (int i = 0; i < 8; i++)
        snprintf(out + 8 * i, 9, "%08x", h[i]);
}

#endif
