/* Finds the plugin by trying a list of paths; the first file that loads and has the right version is taken. If none
 * does, the error names every path and what was wrong with it. */
#include "comm/mpi/mpi_load.h"
#include "base/text.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLUGIN "ndp_mpi.so"

/* The files that do not exist, the errors of those that do, and the plugin once it is found. */
typedef struct plugin_search {
    ndp_str missing, errors;
    const ndp_mpi_api *found;
} plugin_search;

static void try_file(plugin_search *s, const char *path) {
    if (s->found)
        return;
    if (!ndp_path_exists(path)) {
        ndp_str_addf(&s->missing, "%s%s", s->missing.length ? ", " : "", path);
        return;
    }
    /* Global: Open MPI's own plugins expect to find its symbols. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const ndp_mpi_api *api = handle ? dlsym(handle, NDP_MPI_API_SYMBOL) : NULL;
    if (api && api->version == NDP_MPI_API_VERSION)
        s->found = api;
    else if (api)
        ndp_str_addf(&s->errors, "%s has version %d, but this program needs %d; ", path, api->version,
                     NDP_MPI_API_VERSION);
    else
        ndp_str_addf(&s->errors, "%s cannot be loaded: %s; ", path, dlerror());
}

/* In the folder of `file` (a program or a library) and in its lib/ndparallel. */
static void try_beside(plugin_search *s, const char *file) {
    const char *slash = strrchr(file, '/');
    char path[PATH_MAX + 32];
    if (!slash)
        return;
    int length = (int)(slash - file);
    snprintf(path, sizeof path, "%.*s/" PLUGIN, length, file);
    try_file(s, path);
    snprintf(path, sizeof path, "%.*s/../lib/ndparallel/" PLUGIN, length, file);
    try_file(s, path);
}

static void try_everywhere(plugin_search *s) {
    const char *folder = getenv("NDP_PLUGIN_DIR");
    char path[PATH_MAX + 32];
    if (folder && *folder) {
        snprintf(path, sizeof path, "%.*s/" PLUGIN, PATH_MAX, folder);
        try_file(s, path);
        return;
    }
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (length > 0) {
        path[length] = '\0';
        try_beside(s, path);
    }
    Dl_info here;
    if (dladdr((void *)(intptr_t)ndp_mpi_load, &here) && here.dli_fname)
        try_beside(s, here.dli_fname);
}

ndp_status ndp_mpi_load(const ndp_mpi_api **out) {
    plugin_search s = {0};
    try_everywhere(&s);
    ndp_status st = NDP_OK;
    if (s.found)
        *out = s.found;
    else
        st = NDP_FAIL(NDP_ENOTSUP,
                      "no MPI: %slooked for %s; build where MPI is installed (Debian: libopenmpi-dev), set "
                      "NDP_PLUGIN_DIR to the folder of " PLUGIN ", or run all ranks in one process (transport local)",
                      s.errors.length ? s.errors.data : "", s.missing.length ? s.missing.data : PLUGIN);
    ndp_str_release(&s.missing);
    ndp_str_release(&s.errors);
    return st;
}
