/* Included first in each kernel of the plugin build/ulps/ndp_sim.so: what a GPU computes otherwise than the host. Its
 * functions are off by as many units in the last place as NVIDIA's "CUDA C++ Programming Guide" (mathematical
 * functions) states at most, up or down by the bits of the argument; products and sums are fused by the compiler
 * (-ffp-contract). */
#ifndef NDP_DEVICE_SIM_SIM_ULPS_HPP
#define NDP_DEVICE_SIM_SIM_ULPS_HPP

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

/* x moved by -ulps .. ulps units, by the argument's bits; what is exact on a GPU too (0, 1, inf, NaN) stays. */
static inline float ndp_sim_off(float x, float argument, int ulps) {
    uint32_t bits, by;
    memcpy(&by, &argument, sizeof by);
    memcpy(&bits, &x, sizeof bits);
    if (!std::isfinite(x) || x == 0 || x == 1)
        return x;
    by = (by ^ by >> 15) * 0x2c1b3c6du;
    bits += (by >> 8) % (uint32_t)(2 * ulps + 1) - (uint32_t)ulps;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float ndp_sim_expf(float x) { return ndp_sim_off(expf(x), x, 2); }
static inline float ndp_sim_exp2f(float x) { return ndp_sim_off(exp2f(x), x, 2); }
static inline float ndp_sim_logf(float x) { return ndp_sim_off(logf(x), x, 1); }
static inline float ndp_sim_log1pf(float x) { return ndp_sim_off(log1pf(x), x, 1); }
static inline float ndp_sim_tanhf(float x) { return ndp_sim_off(tanhf(x), x, 2); }
static inline float ndp_sim_erfcf(float x) { return ndp_sim_off(erfcf(x), x, 4); }
static inline float ndp_sim_rsqrtf(float x) { return ndp_sim_off(rsqrtf(x), x, 2); }
#define expf ndp_sim_expf
#define exp2f ndp_sim_exp2f
#define logf ndp_sim_logf
#define log1pf ndp_sim_log1pf
#define tanhf ndp_sim_tanhf
#define erfcf ndp_sim_erfcf
#define rsqrtf ndp_sim_rsqrtf

#endif
