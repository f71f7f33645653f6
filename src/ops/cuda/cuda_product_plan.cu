/* Plans of products: found by sizes, strides, types and alignments. A context makes one when the first product of its
 * kind runs, since neither handle nor addresses exist before, and keeps it. It holds no memory of the device. */
#include "device/cuda/cuda_cublaslt.hpp"
#include "ops/cuda/cuda_product_plan.hpp"

#include <array>
#include <map>
#include <new>

namespace {

/* The descriptors of a product. */
struct Descriptors {
    const ndp_cublaslt *lt;
    cublasLtMatmulDesc_t op = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;

    explicit Descriptors(const ndp_cublaslt *library) : lt(library) {}
    Descriptors(const Descriptors &) = delete;
    ~Descriptors() {
        for (cublasLtMatrixLayout_t l : {a, b, c, d})
            if (l)
                lt->MatrixLayoutDestroy(l);
        if (op)
            lt->MatmulDescDestroy(op);
    }
};

} // namespace

struct ndp_matmul_plan {
    Descriptors of;
    bool exists = false;
    cublasLtMatmulAlgo_t algo = {};

    explicit ndp_matmul_plan(const ndp_cublaslt *lt) : of(lt) {}
};

namespace {

typedef std::array<int64_t, 18> Key;

struct Products : ndp_cuda_kept {
    ndp_cublaslt lt = {};
    cublasLtHandle_t handle = nullptr;
    std::map<Key, ndp_matmul_plan> plans;

    ~Products() override {
        plans.clear();
        if (handle)
            lt.Destroy(handle);
    }
};

ndp_status failed(const ndp_cublaslt *lt, const char *what, cublasStatus_t st) {
    return NDP_FAIL(NDP_EIO, "cuBLASLt: %s: %s (its status %d)", what, lt->GetStatusString(st), (int)st);
}

#define LT_TRY(lt, call, what)                                                                                         \
    do {                                                                                                               \
        cublasStatus_t status_ = (lt)->call;                                                                           \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                                          \
            return failed((lt), (what), status_);                                                                      \
    } while (0)

/* Loads the library and makes a handle for the context's GPU, once. */
ndp_status products_of(ndp_device_context *c, Products **out) {
    if (!c->products) {
        std::unique_ptr<Products> made(new Products);
        NDP_TRY(ndp_cublaslt_load(&made->lt));
        if (cudaSetDevice(c->gpu) != cudaSuccess)
            return NDP_FAIL(NDP_EIO, "choosing a GPU: %s", cudaGetErrorString(cudaGetLastError()));
        LT_TRY(&made->lt, Create(&made->handle), "starting");
        c->products = std::move(made);
    }
    *out = static_cast<Products *>(c->products.get());
    return NDP_OK;
}

/* Bytes that the address is a multiple of, at most the 16 that any algorithm can use. */
uint32_t alignment(const void *p) {
    uintptr_t bits = (uintptr_t)p | 16;
    return (uint32_t)(bits & (~bits + 1));
}
/* That of d, and of the bias, which has no number of its own. */
uint32_t alignment_d(const ndp_matmul *m) { return alignment((const void *)((uintptr_t)m->d | (uintptr_t)m->bias)); }
const void *c_or_d(const ndp_matmul *m) { return m->c ? m->c : m->d; }

Key key_of(const ndp_matmul *m) {
    return {m->m,
            m->n,
            m->k,
            m->trans_a,
            m->trans_b,
            m->tf32,
            m->type,
            m->to_type,
            m->lda,
            m->ldb,
            m->c ? m->ldc : m->ldd,
            m->ldd,
            m->bias != nullptr,
            (int64_t)m->workspace_bytes,
            alignment(m->a),
            alignment(m->b),
            alignment(c_or_d(m)),
            alignment_d(m)};
}

cudaDataType type_of(ndp_dtype t) { return t == NDP_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

/* As stored. */
ndp_status make_layouts(const ndp_matmul *m, Descriptors *of) {
    const ndp_cublaslt *lt = of->lt;
    cudaDataType type = type_of(m->type), to = type_of(m->to_type);
    uint64_t rows = (uint64_t)m->m, cols = (uint64_t)m->n, k = (uint64_t)m->k;
    const char *what = "describing a matrix";
    LT_TRY(lt, MatrixLayoutCreate(&of->a, type, m->trans_a ? k : rows, m->trans_a ? rows : k, m->lda), what);
    LT_TRY(lt, MatrixLayoutCreate(&of->b, type, m->trans_b ? cols : k, m->trans_b ? k : cols, m->ldb), what);
    LT_TRY(lt, MatrixLayoutCreate(&of->c, to, rows, cols, m->c ? m->ldc : m->ldd), what);
    LT_TRY(lt, MatrixLayoutCreate(&of->d, to, rows, cols, m->ldd), what);
    return NDP_OK;
}

ndp_status set_bias(const ndp_matmul *m, const Descriptors *of) {
    if (m->bias)
        LT_TRY(of->lt, MatmulDescSetAttribute(of->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &m->bias, sizeof m->bias),
               "setting a bias");
    return NDP_OK;
}

/* fp32 is fp32, unless it may be tf32. */
ndp_status make_operation(const ndp_matmul *m, Descriptors *of) {
    const ndp_cublaslt *lt = of->lt;
    const char *what = "describing a product";
    cublasComputeType_t compute = m->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    int32_t a = m->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = m->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    LT_TRY(lt, MatmulDescCreate(&of->op, compute, CUDA_R_32F), what);
    LT_TRY(lt, MatmulDescSetAttribute(of->op, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a), what);
    LT_TRY(lt, MatmulDescSetAttribute(of->op, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b), what);
    if (m->bias)
        LT_TRY(lt, MatmulDescSetAttribute(of->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), what);
    return set_bias(m, of);
}

/* Parts of k may be summed only in fp32 and in a fixed order. */
ndp_status set_preference(const ndp_cublaslt *lt, const ndp_matmul *m, cublasLtMatmulPreference_t p) {
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (m->to_type == NDP_F32)
        reductions |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    uint64_t room = m->workspace_bytes;
    struct {
        cublasLtMatmulPreferenceAttributes_t what;
        uint32_t value;
    } words[] = {{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(m->a)},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(m->b)},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(c_or_d(m))},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_d(m)}};
    const char *what = "setting up a search";
    LT_TRY(lt, MatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room), what);
    for (const auto &w : words)
        LT_TRY(lt, MatmulPreferenceSetAttribute(p, w.what, &w.value, sizeof w.value), what);
    return NDP_OK;
}

/* Takes the library's first proposal that fits. */
ndp_status choose(Products *p, const ndp_matmul *m, cublasLtMatmulPreference_t preference, ndp_matmul_plan *plan) {
    enum { PROPOSALS = 8 };
    cublasLtMatmulHeuristicResult_t found[PROPOSALS] = {};
    const Descriptors &of = plan->of;
    int n = 0;
    cublasStatus_t st =
        p->lt.MatmulAlgoGetHeuristic(p->handle, of.op, of.a, of.b, of.c, of.d, preference, PROPOSALS, found, &n);
    if (st != CUBLAS_STATUS_SUCCESS && st != CUBLAS_STATUS_NOT_SUPPORTED)
        return failed(&p->lt, "searching an algorithm", st);
    for (int i = 0; i < n && !plan->exists; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= m->workspace_bytes) {
            plan->algo = found[i].algo;
            plan->exists = true;
        }
    return NDP_OK;
}

ndp_status make(Products *p, const ndp_matmul *m, ndp_matmul_plan *plan) {
    NDP_TRY(make_layouts(m, &plan->of));
    NDP_TRY(make_operation(m, &plan->of));
    cublasLtMatmulPreference_t preference;
    LT_TRY(&p->lt, MatmulPreferenceCreate(&preference), "setting up a search");
    ndp_status st = set_preference(&p->lt, m, preference);
    if (st == NDP_OK)
        st = choose(p, m, preference, plan);
    p->lt.MatmulPreferenceDestroy(preference);
    return st;
}

} // namespace

ndp_status ndp_matmul_find(ndp_queue *q, const ndp_matmul *m, const ndp_matmul_plan **out) {
    Products *p = nullptr;
    NDP_TRY(products_of(q->context, &p));
    Key key = key_of(m);
    auto at = p->plans.find(key);
    if (at == p->plans.end()) {
        at = p->plans.try_emplace(key, &p->lt).first;
        ndp_status st = make(p, m, &at->second);
        if (st != NDP_OK) {
            p->plans.erase(at);
            return st;
        }
    }
    *out = at->second.exists ? &at->second : nullptr;
    return NDP_OK;
}

ndp_status ndp_matmul_run(ndp_queue *q, const ndp_matmul *m, const ndp_matmul_plan *plan) {
    const Products *p = static_cast<const Products *>(q->context->products.get());
    const Descriptors &of = plan->of;
    NDP_TRY(set_bias(m, &of));
    LT_TRY(&p->lt,
           Matmul(p->handle, of.op, &m->alpha, m->a, of.a, m->b, of.b, &m->beta, c_or_d(m), of.c, m->d, of.d,
                  &plan->algo, m->workspace, m->workspace_bytes, q->stream),
           "a product");
    return NDP_OK;
}
