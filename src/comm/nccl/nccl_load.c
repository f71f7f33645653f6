/* Loads ndp_nccl.so, which loads NVIDIA's library. */
#include "comm/nccl/nccl_load.h"
#include "base/plugin.h"

ndp_status ndp_nccl_load(const ndp_nccl_api **out) {
    static const ndp_plugin plugin = {
        .file = "ndp_nccl.so",
        .symbol = NDP_NCCL_API_SYMBOL,
        .version = NDP_NCCL_API_VERSION,
        .what = "NCCL",
        .remedy = "set NDP_PLUGIN_DIR to the folder of ndp_nccl.so, or train.collectives: staged"};
    const void *table;
    int number = 0;
    NDP_TRY(ndp_plugin_load(&plugin, &table));
    const ndp_nccl_api *api = table;
    const char *text = api->load(&number);
    if (text)
        return NDP_FAIL(NDP_ENOTSUP, "no NCCL: %s; or set train.collectives: staged", text);
    *out = api;
    return NDP_OK;
}
