/* The folder that Open MPI keeps its files in while a run lasts. */
#ifndef NDP_HOST_MPI_FOLDER_H
#define NDP_HOST_MPI_FOLDER_H

#include <ndparallel/ndparallel.h>

/* A folder below $TMPDIR (/tmp) for session folders and shared segments. Processes that hold `lock` are its users; a
 * folder without users belongs to a run that was killed. */
typedef struct ndp_mpi_folder {
    char *path;
    int lock; /* closes on exec, unless it is passed on */
} ndp_mpi_folder;

/* Removes what killed runs of this user have left, then makes a new folder. */
NDP_API ndp_status ndp_mpi_folder_create(ndp_mpi_folder *out);
/* For a rank that mpirun started with such a folder, before it joins: on the launcher's host it is in use already; on
 * any other the first rank holds the lock until its process ends, and removes what killed runs have left there. */
void ndp_mpi_folder_keep(void);
/* Removes it with all that lies in it. */
void ndp_mpi_folder_remove(ndp_mpi_folder *f);

#endif
