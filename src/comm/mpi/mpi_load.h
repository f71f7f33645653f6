/* Finds and loads the plugin ndp_mpi.so. */
#ifndef NDP_COMM_MPI_MPI_LOAD_H
#define NDP_COMM_MPI_MPI_LOAD_H

#include "base/status.h"
#include "comm/mpi/mpi_api.h"

/* Looks into $NDP_PLUGIN_DIR if that is set, else beside the program, beside this library, and in ../lib/ndparallel of
 * either. Never unloaded: MPI cannot be joined twice. NDP_ENOTSUP says where it looked and what to do. */
NDP_API ndp_status ndp_mpi_load(const ndp_mpi_api **out);

#endif
