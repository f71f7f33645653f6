/* Loads ndp_mpi.so. */
#include "comm/mpi/mpi_load.h"
#include "base/plugin.h"

ndp_status ndp_mpi_load(const ndp_mpi_api **out) {
    /* Global: Open MPI's own plugins expect to find its symbols. */
    static const ndp_plugin plugin = {
        .file = "ndp_mpi.so",
        .symbol = NDP_MPI_API_SYMBOL,
        .version = NDP_MPI_API_VERSION,
        .global = true,
        .what = "MPI",
        .remedy = "install Open MPI (Debian: openmpi-bin, and libopenmpi-dev to build "
                  "the plugin), set NDP_PLUGIN_DIR to the folder of ndp_mpi.so, or run all ranks in one "
                  "process (transport local)"};
    const void *table;
    NDP_TRY(ndp_plugin_load(&plugin, &table));
    *out = table;
    return NDP_OK;
}
