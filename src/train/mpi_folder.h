/* Inside the train room: where Open MPI keeps its files while a run lasts. */
#ifndef NDP_TRAIN_MPI_FOLDER_H
#define NDP_TRAIN_MPI_FOLDER_H

#include <ndparallel/ndparallel.h>

/* A folder below $TMPDIR (/tmp) for session folders and shared segments. Processes that hold `lock` are its users; a
 * folder without users belongs to a run that was killed. */
typedef struct ndp_mpi_folder {
    char *path;
    int lock; /* closes on exec, unless it is passed on */
} ndp_mpi_folder;

/* Removes what killed runs of this user have left, then makes a new folder. */
NDP_API ndp_status ndp_mpi_folder_create(ndp_mpi_folder *out);
/* Removes it with all that lies in it. */
void ndp_mpi_folder_remove(ndp_mpi_folder *f);

#endif
