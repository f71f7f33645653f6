/* Tensor cores and asynchronous copies: fragments of bf16 matrices, their products, copies from global to shared
 * memory.
 *
 * A product is of 16 x 16 by 16 x 8, summed in fp32. A warp holds its operands and its result in fragments, some
 * elements in each lane; with g = lane / 4 and i = 2 (lane % 4), those of a lane are:
 *
 *   a [16 x 16], 4 pairs    rows g, g + 8, g, g + 8; columns i, i + 1 in the first two pairs, i + 8, i + 9 in the
 * others b [16 x 8], 2 pairs     column g; rows i, i + 1 and i + 8, i + 9 d [16 x 8], 4 floats    row g, columns i, i +
 * 1; row g + 8, columns i, i + 1
 *
 * All lanes of a warp take part in each function whose name says mma or fragment. */
#ifndef NDP_OPS_CUDA_CUDA_MMA_CUH
#define NDP_OPS_CUDA_CUDA_MMA_CUH

#include "ops/cuda/cuda_kernel.cuh"

#ifdef NDP_SIM
#define NDP_UNROLL
#define NDP_ROLLED
#else
#define NDP_UNROLL _Pragma("unroll")
#define NDP_ROLLED _Pragma("unroll 1")
#endif

/* Two bf16 in a word, the first in its low half. */
static __device__ __forceinline__ unsigned ndp_bf16_pair(float x, float y) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    unsigned bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

#ifdef NDP_SIM

/* d += a b. */
static inline void ndp_mma(float d[4], const unsigned a[4], const unsigned *b) { ndp_sim_mma_16816(d, a, b); }

/* Elements (r, c) and (r, c + 1), or, of the transposed, (c, r) and (c + 1, r). */
static inline unsigned ndp_sim_pair(const __nv_bfloat16 *m, int ld, int r, int c, bool transposed) {
    __nv_bfloat16 x = m[transposed ? c * ld + r : r * ld + c], y = m[transposed ? (c + 1) * ld + r : r * ld + c + 1];
    return x.bits | (unsigned)y.bits << 16;
}
static inline void ndp_fragment_a(unsigned a[4], const __nv_bfloat16 *m, int ld) {
    int lane = ndp_sim_lane(), g = lane / 4, i = lane % 4 * 2;
    for (int k = 0; k < 4; k++)
        a[k] = ndp_sim_pair(m, ld, g + k % 2 * 8, i + k / 2 * 8, false);
}
static inline void ndp_fragment_a_across(unsigned a[4], const __nv_bfloat16 *m, int ld) {
    int lane = ndp_sim_lane(), g = lane / 4, i = lane % 4 * 2;
    for (int k = 0; k < 4; k++)
        a[k] = ndp_sim_pair(m, ld, g + k % 2 * 8, i + k / 2 * 8, true);
}
static inline void ndp_fragment_b(unsigned b[4], const __nv_bfloat16 *m, int ld) {
    int lane = ndp_sim_lane(), g = lane / 4, i = lane % 4 * 2;
    for (int k = 0; k < 4; k++)
        b[k] = ndp_sim_pair(m, ld, g + k / 2 * 8, i + k % 2 * 8, false);
}
static inline void ndp_fragment_b_across(unsigned b[4], const __nv_bfloat16 *m, int ld) {
    int lane = ndp_sim_lane(), g = lane / 4, i = lane % 4 * 2;
    for (int k = 0; k < 4; k++)
        b[k] = ndp_sim_pair(m, ld, g + k / 2 * 8, i + k % 2 * 8, true);
}

static inline void ndp_copy16(void *to, const void *from, int bytes) { ndp_sim_copy_async(to, from, bytes); }
static inline void ndp_copies_commit(void) { ndp_sim_copies_commit(); }
template <int NEWEST> static inline void ndp_copies_wait(void) { ndp_sim_copies_wait(NEWEST); }

/* 2^x; 0 where that is below the normal numbers. */
static inline float ndp_exp2(float x) { return x < -126.0f ? 0.0f : exp2f(x); }

#else

static __device__ __forceinline__ void ndp_mma(float d[4], const unsigned a[4], const unsigned *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ unsigned ndp_shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

/* Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void ndp_load_matrices(unsigned r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ndp_shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void ndp_load_matrices_across(unsigned r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ndp_shared_address(row))
                 : "memory");
}

/* `m`: 16 x 16 in shared memory, rows 16-byte aligned and ld elements apart. It is a. */
static __device__ __forceinline__ void ndp_fragment_a(unsigned a[4], const __nv_bfloat16 *m, int ld) {
    int lane = threadIdx.x % NDP_WARP;
    ndp_load_matrices(a, m + lane % 16 * ld + lane / 16 * 8);
}
/* Its transposed is a. */
static __device__ __forceinline__ void ndp_fragment_a_across(unsigned a[4], const __nv_bfloat16 *m, int ld) {
    int lane = threadIdx.x % NDP_WARP;
    ndp_load_matrices_across(a, m + (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8);
}
/* Its transposed is two b: columns 0-7 and 8-15, two words each. */
static __device__ __forceinline__ void ndp_fragment_b(unsigned b[4], const __nv_bfloat16 *m, int ld) {
    int lane = threadIdx.x % NDP_WARP;
    ndp_load_matrices(b, m + (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8);
}
/* It is two b itself. */
static __device__ __forceinline__ void ndp_fragment_b_across(unsigned b[4], const __nv_bfloat16 *m, int ld) {
    int lane = threadIdx.x % NDP_WARP;
    ndp_load_matrices_across(b, m + lane % 16 * ld + lane / 16 * 8);
}

/* Begins to copy 16 bytes to shared memory, both sides aligned to that: `bytes` of them, and zeros after. */
static __device__ __forceinline__ void ndp_copy16(void *to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ndp_shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
/* The copies that this thread began since the last commit become a group. */
static __device__ __forceinline__ void ndp_copies_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until all groups of this thread but the NEWEST have arrived. Other threads see them after a barrier. */
template <int NEWEST> static __device__ __forceinline__ void ndp_copies_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(NEWEST) : "memory");
}

static __device__ __forceinline__ float ndp_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif

/* d [16 x 8N] += a b^T; b: 8N rows of K elements in shared memory. a_at(k, fragment) gives columns 16k .. of a. */
template <int N, int K, typename A>
static __device__ __forceinline__ void ndp_products(float (&d)[N][4], const A &a_at, const __nv_bfloat16 *b, int ld) {
    NDP_UNROLL
    for (int k = 0; k < K / 16; k++) {
        unsigned a[4], two[4];
        a_at(k, a);
        NDP_UNROLL
        for (int j = 0; j < N / 2; j++) {
            ndp_fragment_b(two, b + j * 16 * ld + k * 16, ld);
            ndp_mma(d[2 * j], a, two);
            ndp_mma(d[2 * j + 1], a, two + 2);
        }
    }
}

/* d [16 x 8N] += p b, p [16 x 8M] rounded to bf16; b: 8M rows of 8N elements in shared memory. */
template <int N, int M>
static __device__ __forceinline__ void ndp_products_across(float (&d)[N][4], const float (&p)[M][4],
                                                           const __nv_bfloat16 *b, int ld) {
    NDP_UNROLL
    for (int k = 0; k < M / 2; k++) {
        unsigned a[4], two[4];
        NDP_UNROLL
        for (int i = 0; i < 4; i++)
            a[i] = ndp_bf16_pair(p[2 * k + i / 2][i % 2 * 2], p[2 * k + i / 2][i % 2 * 2 + 1]);
        NDP_UNROLL
        for (int j = 0; j < N / 2; j++) {
            ndp_fragment_b_across(two, b + k * 16 * ld + j * 16, ld);
            ndp_mma(d[2 * j], a, two);
            ndp_mma(d[2 * j + 1], a, two + 2);
        }
    }
}

#endif
