/* Inside the verify room: ndp_verify with a hook, by which tests inject bugs. */
#ifndef NDP_VERIFY_VERIFY_H
#define NDP_VERIFY_VERIFY_H

#include "verify/outcome.h"

/* Called on every rank of every run, including the one-rank run, with a trainer that is ready for its first step. */
typedef ndp_status ndp_verify_hook(void *user, ndp_trainer *t);

/* NDP_EINVAL: the job's transport cannot run ranks as threads of this process. */
NDP_API ndp_status ndp_verify_check_threads(const ndp_config *c);

/* ndp_verify with a hook (NULL: none). */
NDP_API ndp_status ndp_verify_altered(const ndp_config *c, const ndp_verify_opts *o, ndp_verify_hook *alter, void *user,
                                      ndp_verdict *verdicts);

/* ndp_verify_dump with a hook. */
NDP_API ndp_status ndp_verify_dump_altered(const ndp_config *c, const ndp_dump_opts *o, ndp_verify_hook *alter,
                                           void *user);

#endif
