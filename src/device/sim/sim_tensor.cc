/* Products of a warp and asynchronous copies, for `sim`. */
#include "device/sim/sim_block.hpp"
#include "device/sim/sim_race.hpp"

#include <memory>
#include <vector>

namespace {

enum { WARP = 32, MOST_THREADS = 1024 };

/* What a lane brings to a product. */
struct Fragments {
    unsigned a[4], b[2];
};

struct Copy {
    void *to;
    const void *from;
    int bytes, group;
};

/* A thread of the block. Its next product uses fragments[products % 2]: a lane may begin one while others of its warp
 * still read the one before. */
struct Lane {
    Fragments fragments[2];
    unsigned products;
    int group;                /* of the copies that it begins */
    std::vector<Copy> copies; /* not yet waited for, in order */
};

/* The last product of a warp: what its lanes brought, as matrices, and their product. Rows of 8 are two vectors that
 * every x86-64 has registers for. */
typedef float Vector __attribute__((vector_size(16)));
struct Row {
    Vector low, high;
};
struct Product {
    const Lane *warp; /* NULL: it is not made */
    unsigned number;
    float a[16][16];
    union {
        Row b[16];
        float b_at[16][8];
    };
    union {
        Row d[16];
        float d_at[16][8];
    };
};

/* Of the block that this thread of the host executes. */
struct Tensor {
    Product product;
    Lane lanes[MOST_THREADS];
};
thread_local std::unique_ptr<Tensor> tensor;

/* The thread that runs. */
Lane *this_lane(Tensor *t) {
    const uint3 i = threadIdx;
    const dim3 n = blockDim;
    return &t->lanes[i.x + n.x * (i.y + n.y * i.z)];
}

void multiply(Product *p, unsigned slot) {
    for (int lane = 0; lane < WARP; lane++) {
        const Fragments *f = &p->warp[lane].fragments[slot];
        int g = lane / 4, i = lane % 4 * 2;
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) { /* a pair of bf16 each */
            float *a = &p->a[g + k % 2 * 8][i + k / 2 * 8];
            a[0] = __uint_as_float(f->a[k] << 16), a[1] = __uint_as_float(f->a[k] & 0xffff0000u);
        }
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            p->b_at[i + k * 8][g] = __uint_as_float(f->b[k] << 16);
            p->b_at[i + k * 8 + 1][g] = __uint_as_float(f->b[k] & 0xffff0000u);
        }
    }
    for (int r = 0; r < 16; r++) {
        Vector low = {}, high = {};
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++)
            low += p->a[r][k] * p->b[k].low, high += p->a[r][k] * p->b[k].high;
        p->d[r] = {low, high};
    }
}

} // namespace

void ndp_sim_tensor_begin(void) {
    if (!tensor)
        tensor = std::make_unique<Tensor>();
    for (Lane &l : tensor->lanes)
        l.products = 0, l.group = 0, l.copies.clear();
}

void ndp_sim_mma_16816(float d[4], const unsigned a[4], const unsigned b[2]) {
    Tensor *t = tensor.get();
    Product *p = &t->product;
    Lane *mine = this_lane(t);
    int lane = (int)(mine - t->lanes) % WARP;
    unsigned number = mine->products++;
    memcpy(mine->fragments[number % 2].a, a, sizeof mine->fragments[0].a);
    memcpy(mine->fragments[number % 2].b, b, sizeof mine->fragments[0].b);
    p->warp = nullptr;
    ndp_sim_sync_warp(0xffffffffu, "mma");
    if (p->warp != mine - lane || p->number != number) {
        p->warp = mine - lane, p->number = number;
        multiply(p, number % 2);
    }
    for (int i = 0; i < 4; i++)
        d[i] += p->d_at[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

void ndp_sim_copy_async(void *to, const void *from, int bytes) {
    Lane *l = this_lane(tensor.get());
    l->copies.push_back({to, from, bytes, l->group});
    if (ndp_sim_race_copy)
        ndp_sim_race_copy(to, from, (size_t)bytes);
}

void ndp_sim_copies_commit(void) { this_lane(tensor.get())->group++; }

void ndp_sim_copies_wait(int newest) {
    Lane *l = this_lane(tensor.get());
    size_t n = 0;
    for (; n < l->copies.size() && l->copies[n].group < l->group - newest; n++) {
        if (ndp_sim_race_copy)
            ndp_sim_race_copy(l->copies[n].to, l->copies[n].from, (size_t)l->copies[n].bytes);
        memset(l->copies[n].to, 0, 16);
        memcpy(l->copies[n].to, l->copies[n].from, (size_t)l->copies[n].bytes);
    }
    l->copies.erase(l->copies.begin(), l->copies.begin() + (long)n);
}
