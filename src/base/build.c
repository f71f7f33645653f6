/* Which build this is. */
#include <ndparallel/ndparallel.h>

const char *ndp_build(void) { return *NDP_COMMIT ? NDP_VERSION " (" NDP_COMMIT ")" : NDP_VERSION; }
