/* A new folder that appears complete or not at all: it is made beside its place under a hidden name, and renamed once
 * all of it is durable. A folder that has entries is never touched. The hidden name has the process in it, so several
 * processes that make the same folder do not meet: one has it, and the others get an error when they end. */
#ifndef NDP_CHECKPOINT_NEW_FOLDER_H
#define NDP_CHECKPOINT_NEW_FOLDER_H

#include "base/text.h"

typedef struct ndp_new_folder {
    char place[NDP_PATH], parent[NDP_PATH];
    char beside[NDP_PATH]; /* PARENT/.NAME.tmp-folder-PROCESS-N, where it is made */
} ndp_new_folder;

/* NDP_EINVAL, before anything is written: the folder exists and is not empty, or the path names none. */
NDP_API ndp_status ndp_new_folder_check(const char *folder);
/* The same, and creates the hidden folder. Removes what killed processes of this machine left of theirs. */
NDP_API ndp_status ndp_new_folder_begin(const char *folder, ndp_new_folder *out);
/* After writing with the status `st`: moves the folder to its place or, if it failed, removes it; returns the failure.
 * NDP_EINVAL: another process has made the folder since. */
NDP_API ndp_status ndp_new_folder_end(const ndp_new_folder *f, ndp_status st);

#endif
