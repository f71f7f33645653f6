/* Inside the base room: handling of mapped files that lose their bytes. Others use ndp_file_map, ndp_file_check. */
#ifndef NDP_BASE_WATCHED_H
#define NDP_BASE_WATCHED_H

#include "base/status.h"
#include <sys/stat.h>

typedef struct ndp_file_watch ndp_file_watch;

/* From now on, a lost page of this mapping reads as zeros and makes ndp_file_watch_check fail. `info` is the mapped
 * file's. Installs a SIGBUS handler if needed, which passes on signals that are not about mapped files. NULL: out of
 * memory. */
ndp_file_watch *ndp_file_watch_begin(const void *data, size_t size, const struct stat *info);
/* To be called before the mapping ends. */
void ndp_file_watch_end(ndp_file_watch *w);
/* NDP_EIO names `path`, of which `size` bytes were mapped, if some of them were lost. */
NDP_API ndp_status ndp_file_watch_check(const ndp_file_watch *w, const char *path, size_t size);

#endif
