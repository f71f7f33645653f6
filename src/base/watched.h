/* Inside the base room: what becomes of a mapped file that loses its bytes. Others use ndp_file_map, ndp_file_check. */
#ifndef NDP_BASE_WATCHED_H
#define NDP_BASE_WATCHED_H

#include "base/status.h"
#include <sys/stat.h>

typedef struct ndp_file_watch ndp_file_watch;

/* From now on a lost page of this mapping reads as zeros, and ndp_file_watch_check fails. `info` is of the mapped file.
 * The handler of SIGBUS that this needs is installed where it is not, and passes on what is not about mapped files.
 * NULL: no memory. */
ndp_file_watch *ndp_file_watch_begin(const void *data, size_t size, const struct stat *info);
/* Before the mapping ends. */
void ndp_file_watch_end(ndp_file_watch *w);
/* NDP_EIO names `path`, from which `size` bytes were mapped, when some of them were lost. */
NDP_API ndp_status ndp_file_watch_check(const ndp_file_watch *w, const char *path, size_t size);

#endif
