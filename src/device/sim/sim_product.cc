/* cuBLASLt for `sim`: reads the descriptors and multiplies as they say, in fp64, rounding each result once. So a wrong
 * leading dimension, transpose, type or beta shows. What NVIDIA's library leaves undefined is refused: operands that
 * are less aligned than its algorithm was asked for, and a result that overlaps an operand. The workspace that it was
 * promised is overwritten. */
#include "device/cuda/cuda_cublaslt.hpp"
#include "device/sim/sim_refuse.hpp"
#include "device/sim/sim_runtime.hpp"

#include <cuda_bf16.h>
#include <vector>

/* ---- descriptors ---- */

struct ndp_sim_cublaslt {};
struct ndp_sim_layout {
    cudaDataType type;
    int64_t rows, cols, ld;

    size_t size() const { return type == CUDA_R_16BF ? 2 : 4; }
    const char *end(const void *data) const { return (const char *)data + ((cols - 1) * ld + rows) * (int64_t)size(); }
};
struct ndp_sim_matmul {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    bool trans_a, trans_b, biased;
    const void *bias;
};
struct ndp_sim_preference {
    uint64_t workspace;
    uint32_t reductions, alignment[4]; /* of A, B, C, D */
};

static thread_local const char *why = "";

static cublasStatus_t refuse(const char *reason) {
    why = reason;
    return CUBLAS_STATUS_INVALID_VALUE;
}

ndp_status ndp_cublaslt_load(ndp_cublaslt *out) {
#define OURS(name) out->name = cublasLt##name;
    NDP_CUBLASLT(OURS)
    return NDP_OK;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = new ndp_sim_cublaslt{};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_INVALID_VALUE ? why : "not supported";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale) {
    *d = new ndp_sim_matmul{compute, scale, false, false, false, nullptr};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    delete d;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes) {
    if (bytes != (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof(void *) : 4))
        return refuse("an attribute of a product has another size");
    int32_t word;
    memcpy(&word, value, 4);
    if (what == CUBLASLT_MATMUL_DESC_TRANSA)
        d->trans_a = word == CUBLAS_OP_T;
    else if (what == CUBLASLT_MATMUL_DESC_TRANSB)
        d->trans_b = word == CUBLAS_OP_T;
    else if (what == CUBLASLT_MATMUL_DESC_EPILOGUE)
        d->biased = word == CUBLASLT_EPILOGUE_BIAS;
    else
        memcpy(&d->bias, value, sizeof d->bias);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
    if (rows == 0 || cols == 0 || ld < (int64_t)rows)
        return refuse("a matrix is empty, or its columns overlap");
    *l = new ndp_sim_layout{type, (int64_t)rows, (int64_t)cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) {
    *p = new ndp_sim_preference{0, 7, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void *value,
                                                    size_t bytes) {
    if (bytes != (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4))
        return refuse("an attribute of a search has another size");
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        memcpy(&p->workspace, value, 8);
    else if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        memcpy(&p->reductions, value, 4);
    else
        memcpy(&p->alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, 4);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check(const ndp_sim_matmul *d, const ndp_sim_layout *a, const ndp_sim_layout *b,
                            const ndp_sim_layout *c, const ndp_sim_layout *to) {
    int64_t k = d->trans_a ? a->rows : a->cols;
    bool tf32 = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type == CUDA_R_32F;
    if ((d->compute != CUBLAS_COMPUTE_32F && !tf32) || d->scale != CUDA_R_32F)
        return refuse("a product that is not computed in fp32");
    if (a->type != b->type || c->type != to->type || (a->type == CUDA_R_32F && to->type != CUDA_R_32F))
        return refuse("no product of these types");
    if ((d->trans_a ? a->cols : a->rows) != to->rows || (d->trans_b ? b->rows : b->cols) != to->cols ||
        (d->trans_b ? b->cols : b->rows) != k || c->rows != to->rows || c->cols != to->cols)
        return refuse("the matrices do not fit");
    return CUBLAS_STATUS_SUCCESS;
}

/* One algorithm, which takes all the workspace that it may. As NVIDIA's library has fewer algorithms than products,
 * there is none that adds a bias to a single row or column. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t to, cublasLtMatmulPreference_t p, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int *n) {
    cublasStatus_t st = check(d, a, b, c, to);
    if (st != CUBLAS_STATUS_SUCCESS)
        return st;
    bool repeats = !(p->reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) &&
                   (to->type == CUDA_R_32F || !(p->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE));
    if (most < 1 || !repeats)
        return refuse("partial sums may be rounded to bf16");
    *n = 0;
    int answer = ndp_sim_answer("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
    if (answer != NDP_SIM_EXECUTES)
        return (cublasStatus_t)answer; /* no algorithm, also with CUBLAS_STATUS_SUCCESS */
    if (d->biased && (to->rows == 1 || to->cols == 1))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    results[(*n)++] = {{{p->workspace, p->alignment[0], p->alignment[1], p->alignment[2], p->alignment[3]}},
                       p->workspace,
                       CUBLAS_STATUS_SUCCESS,
                       1,
                       {}};
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

namespace {

/* Blocks of the result and of k; a tile is what the inner loop keeps in registers. */
enum { ROWS = 128, COLS = 96, DEPTH = 256, TILE_ROWS = 16, TILE_COLS = 8 };

struct Product {
    ndp_sim_matmul d;
    ndp_sim_layout a, b, c, to;
    const void *a_data, *b_data, *c_data;
    void *to_data;
    float alpha, beta;
};

double get(const ndp_sim_layout &l, const void *data, int64_t r, int64_t c) {
    int64_t i = c * l.ld + r;
    if (l.type == CUDA_R_32F)
        return ((const float *)data)[i];
    return __bfloat162float(((const __nv_bfloat16 *)data)[i]);
}

void set(const ndp_sim_layout &l, void *data, int64_t r, int64_t c, double x) {
    int64_t i = c * l.ld + r;
    if (l.type == CUDA_R_32F)
        ((float *)data)[i] = (float)x;
    else
        ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn((float)x);
}

/* sums [TILE_COLS][TILE_ROWS] += the product of a panel of a, TILE_ROWS values for each k, and one of b. */
inline __attribute__((always_inline)) void add_tile(const double *a, const double *b, int64_t k, double *sums) {
    typedef double lanes __attribute__((vector_size(64)));
    enum { VECTORS = TILE_ROWS / 8 };
    lanes s[TILE_COLS][VECTORS];
    memcpy(s, sums, sizeof s);
    for (int64_t l = 0; l < k; l++, a += TILE_ROWS, b += TILE_COLS) {
        lanes x[VECTORS];
        memcpy(x, a, sizeof x);
        for (int j = 0; j < TILE_COLS; j++)
            for (int v = 0; v < VECTORS; v++)
                s[j][v] += x[v] * b[j];
    }
    memcpy(sums, s, sizeof s);
}
void add_tile_generic(const double *a, const double *b, int64_t k, double *sums) { add_tile(a, b, k, sums); }
#ifdef __x86_64__
__attribute__((target("avx512f"), optimize("O3"))) void add_tile_avx512(const double *a, const double *b, int64_t k,
                                                                        double *sums) {
    add_tile(a, b, k, sums);
}
auto best_tile() { return __builtin_cpu_supports("avx512f") ? add_tile_avx512 : add_tile_generic; }
#else
auto best_tile() { return add_tile_generic; }
#endif

/* A block of an operand in panels of `width` rows of op(x) (or columns, for b), zeros where it ends. */
template <typename F> void pack(int64_t n, int64_t k, int width, double *out, F element) {
    for (int64_t first = 0; first < n; first += width)
        for (int64_t l = 0; l < k; l++)
            for (int64_t i = first; i < first + width; i++)
                *out++ = i < n ? element(i, l) : 0;
}

int64_t up_to(int64_t most, int64_t n) { return n < most ? n : most; }

struct Room {
    std::vector<double> a, b, sums;
    Room() : a(ROWS * DEPTH), b(COLS * DEPTH), sums(ROWS * COLS) {}
};

/* The sums of rows i.. and columns j.., by tiles. */
void sum_block(const Product &p, int64_t i, int64_t rows, int64_t j, int64_t cols, Room *room) {
    auto tile = best_tile();
    int64_t depth = p.d.trans_a ? p.a.rows : p.a.cols;
    std::fill(room->sums.begin(), room->sums.end(), 0.0);
    for (int64_t l = 0; l < depth; l += DEPTH) {
        int64_t k = up_to(DEPTH, depth - l);
        pack(rows, k, TILE_ROWS, room->a.data(), [&](int64_t r, int64_t s) {
            return p.d.trans_a ? get(p.a, p.a_data, l + s, i + r) : get(p.a, p.a_data, i + r, l + s);
        });
        pack(cols, k, TILE_COLS, room->b.data(), [&](int64_t c, int64_t s) {
            return p.d.trans_b ? get(p.b, p.b_data, j + c, l + s) : get(p.b, p.b_data, l + s, j + c);
        });
        double *sums = room->sums.data();
        for (int64_t c = 0; c < cols; c += TILE_COLS)
            for (int64_t r = 0; r < rows; r += TILE_ROWS, sums += TILE_ROWS * TILE_COLS)
                tile(&room->a[(size_t)(r * k)], &room->b[(size_t)(c * k)], k, sums);
    }
}

void store_block(const Product &p, int64_t i, int64_t rows, int64_t j, int64_t cols, const Room &room) {
    int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t tile = c / TILE_COLS * tiles + r / TILE_ROWS;
            double x = room.sums[(size_t)(tile * TILE_ROWS * TILE_COLS + c % TILE_COLS * TILE_ROWS + r % TILE_ROWS)];
            x *= p.alpha;
            if (p.beta != 0)
                x += (double)p.beta * get(p.c, p.c_data, i + r, j + c);
            if (p.d.biased)
                x += get({p.to.type, p.to.rows, 1, p.to.rows}, p.d.bias, i + r, 0);
            set(p.to, p.to_data, i + r, j + c, x);
        }
}

void multiply(const Product &p) {
    Room room;
    for (int64_t j = 0; j < p.to.cols; j += COLS)
        for (int64_t i = 0; i < p.to.rows; i += ROWS) {
            int64_t rows = up_to(ROWS, p.to.rows - i), cols = up_to(COLS, p.to.cols - j);
            sum_block(p, i, rows, j, cols, &room);
            store_block(p, i, rows, j, cols, room);
        }
}

bool aligned(const void *data, uint64_t bytes) { return (uintptr_t)data % bytes == 0; }

/* Whether two matrices share elements. Those of one stride may be columns of the same memory; of two strides in the
 * same memory it is not known. */
bool overlap(const ndp_sim_layout &l, const void *x, const ndp_sim_layout &to_layout, const void *to) {
    int64_t stride = l.ld * (int64_t)l.size(), apart = ((const char *)x - (const char *)to) % stride;
    if ((const char *)x >= to_layout.end(to) || (const char *)to >= l.end(x) ||
        stride != to_layout.ld * (int64_t)to_layout.size())
        return false;
    apart += apart < 0 ? stride : 0;
    return apart < to_layout.rows * (int64_t)to_layout.size() || apart + l.rows * (int64_t)l.size() > stride;
}

} // namespace

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *to,
                              cublasLtMatrixLayout_t to_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    Product p = {
        *d, *a_layout, *b_layout, *c_layout, *to_layout, a, b, c, to, *(const float *)alpha, *(const float *)beta};
    cublasStatus_t st = check(d, &p.a, &p.b, &p.c, &p.to);
    if (st != CUBLAS_STATUS_SUCCESS)
        return st;
    size_t room = algo->data[0];
    if (!aligned(a, algo->data[1]) || !aligned(b, algo->data[2]) || (p.beta != 0 && !aligned(c, algo->data[3])) ||
        !aligned(to, algo->data[4]) || (p.d.biased && !aligned(p.d.bias, algo->data[4])))
        return refuse("an operand is less aligned than the algorithm needs");
    if (room > workspace_bytes || (uintptr_t)workspace % 16)
        return refuse("the workspace is smaller than the algorithm needs, or not aligned to 16 bytes");
    if (overlap(p.a, a, p.to, to) || overlap(p.b, b, p.to, to) ||
        (p.beta != 0 && overlap(p.c, c, p.to, to) && (c != to || p.c.ld != p.to.ld)))
        return refuse("the result overlaps an operand");
    ndp_sim_submit(stream, [=] {
        if (room)
            memset(workspace, 0xff, room);
        multiply(p);
    });
    return CUBLAS_STATUS_SUCCESS;
}
