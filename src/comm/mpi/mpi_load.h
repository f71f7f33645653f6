/* Finds and loads the plugin ndp_mpi.so. */
#ifndef NDP_COMM_MPI_MPI_LOAD_H
#define NDP_COMM_MPI_MPI_LOAD_H

#include "base/status.h"
#include "comm/mpi/mpi_api.h"

/* Never unloaded: MPI cannot be initialised twice. NDP_ENOTSUP names the paths searched and what to install. */
NDP_API ndp_status ndp_mpi_load(const ndp_mpi_api **out);

#endif
