/* Plugins: shared objects of this project that are loaded when they are asked for. */
#ifndef NDP_BASE_PLUGIN_H
#define NDP_BASE_PLUGIN_H

#include "base/status.h"

typedef struct ndp_plugin {
    const char *file;   /* "ndp_mpi.so" */
    const char *symbol; /* its table, which begins with an int: the version of the interface */
    int version;        /* the one that this library needs */
    bool global;        /* other libraries look for its symbols */
    const char *what;   /* what it offers, for messages: "MPI" */
    const char *remedy; /* what to do without it */
} ndp_plugin;

/* Searches $NDP_PLUGIN_DIR if it is set, else the folder of the program, that of this library, and ../lib/ndparallel of
 * each; sets *table to the plugin's table. Never unloaded. NDP_ENOTSUP names the paths searched and the remedy. */
NDP_API ndp_status ndp_plugin_load(const ndp_plugin *p, const void **table);

#endif
