/* ndparallel: native training of language models with any combination of parallelisms. */
#ifndef NDPARALLEL_H
#define NDPARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NDP_VERSION "0.1.0"

/* What went wrong, by who has to act. ndp_error_message() has the words. */
typedef enum ndp_status {
    NDP_OK = 0,
    NDP_EINVAL,  /* the user's configuration, layout or argument */
    NDP_EFORMAT, /* a file is damaged, hostile or of an unsupported kind */
    NDP_EIO,     /* the system refused to read or write */
    NDP_ENOMEM,  /* not enough memory */
    NDP_ECOMM,   /* another rank failed, or the transport did */
    NDP_ENOTSUP, /* legal, but not built yet */
    NDP_EINTR,   /* stopped by a signal after saving */
    NDP_EBUG     /* ours: please report */
} ndp_status;

/* The calling thread's last error: one message with the cause and the way out; "" when there was none. Borrowed until
 * the thread's next failing call. */
const char *ndp_error_message(void);
/* Where it came from, "file:line < file:line ...", for bug reports. */
const char *ndp_error_trail(void);

#ifdef __cplusplus
}
#endif
#endif
