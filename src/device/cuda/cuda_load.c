/* Loads ndp_cuda.so or ndp_sim.so, and hands it the functions that it calls. */
#include "device/cuda/cuda_load.h"
#include "base/plugin.h"

static ndp_status fail(const char *file, int line, ndp_status code, const char *message) {
    return ndp_fail_at(file, line, code, "%s", message);
}

ndp_status ndp_cuda_load(bool sim, bool start, const ndp_cuda_api **out) {
    static const ndp_cuda_host host = {.fail = fail, .trail = ndp_trail_add};
    static const ndp_plugin plugins[] = {
        {.file = "ndp_cuda.so",
         .symbol = NDP_CUDA_API_SYMBOL,
         .version = NDP_CUDA_API_VERSION,
         .what = "CUDA",
         .remedy =
             "build it with `make cuda` (Debian package: ndparallel-cuda), or set NDP_PLUGIN_DIR to the folder of "
             "ndp_cuda.so; `--device cpu` trains without a GPU"},
        {.file = "ndp_sim.so",
         .symbol = NDP_CUDA_API_SYMBOL,
         .version = NDP_CUDA_API_VERSION,
         .what = "device sim",
         .remedy = "it is built with the tests (`make test`)"}};
    const void *table;
    NDP_TRY(ndp_plugin_load(&plugins[sim], &table));
    *out = table;
    return start ? (*out)->start(&host) : NDP_OK;
}
