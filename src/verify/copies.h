/* One number for the files that a job reads, by which hosts tell whether they have the same. */
#ifndef NDP_VERIFY_COPIES_H
#define NDP_VERIFY_COPIES_H

#include "checkpoint/hash.h"
#include "config/config.h"

/* Writes a hash of the contents of data.files, data.validation_files and the model's folder, in their order and without
 * their names: of a file above 64 MiB its size and 64 parts of 1 MiB. False: none of them can be read; `out` is "". */
bool ndp_job_copy(const ndp_config *c, char out[NDP_HASH_DIGITS + 1]);

#endif
