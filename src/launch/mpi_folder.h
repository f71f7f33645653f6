/* The folder that Open MPI keeps its files in while a run lasts. */
#ifndef NDP_LAUNCH_MPI_FOLDER_H
#define NDP_LAUNCH_MPI_FOLDER_H

#include "base/text.h"

/* A folder in $TMPDIR (/tmp) for Open MPI's session folders and shared segments. Processes that use it hold its lock; a
 * folder that no process holds is left over from a run that was killed. */
typedef struct ndp_mpi_folder {
    char path[NDP_PATH];
    int lock; /* descriptor; closed on exec unless passed on */
} ndp_mpi_folder;

/* Removes the leftovers of this user's killed runs, then creates a new folder. */
NDP_API ndp_status ndp_mpi_folder_create(ndp_mpi_folder *out);
/* Called by a rank that mpirun started with such a folder, before it joins. On the launcher's host the folder is locked
 * already. On any other host the first rank takes the lock until its process ends, and removes leftovers there. */
void ndp_mpi_folder_keep(void);
/* Removes the folder and its contents. */
void ndp_mpi_folder_remove(ndp_mpi_folder *f);

#endif
