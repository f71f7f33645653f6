/* Finds a plugin by trying a list of paths; the first file that loads and has the right version is taken. If none
 * does, the error names every path and what was wrong with it. */
#include "base/plugin.h"
#include "base/text.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The files that do not exist, the errors of those that do, and the plugin's table once it is found. */
typedef struct plugin_search {
    const ndp_plugin *plugin;
    ndp_str missing, errors;
    const void *found;
} plugin_search;

static void try_file(plugin_search *s, const char *path) {
    const ndp_plugin *p = s->plugin;
    if (s->found || (s->missing.data && strstr(s->missing.data, path)))
        return;
    if (!ndp_path_exists(path)) {
        ndp_str_addf(&s->missing, "%s%s", s->missing.length ? ", " : "", path);
        return;
    }
    void *handle = dlopen(path, RTLD_NOW | (p->global ? RTLD_GLOBAL : RTLD_LOCAL));
    const int *version = handle ? dlsym(handle, p->symbol) : NULL;
    if (version && *version == p->version)
        s->found = version;
    else if (version)
        ndp_str_addf(&s->errors, "%s has version %d, but this program needs %d; ", path, *version, p->version);
    else
        ndp_str_addf(&s->errors, "%s cannot be loaded: %s; ", path, dlerror());
}

/* In the folder of `file` (a program or a library) and in its lib/ndparallel. */
static void try_beside(plugin_search *s, const char *file) {
    const char *slash = strrchr(file, '/'), *name = s->plugin->file;
    char path[PATH_MAX + 64];
    if (!slash)
        return;
    int length = (int)(slash - file);
    snprintf(path, sizeof path, "%.*s/%s", length, file, name);
    try_file(s, path);
    snprintf(path, sizeof path, "%.*s/../lib/ndparallel/%s", length, file, name);
    try_file(s, path);
}

static void try_everywhere(plugin_search *s) {
    const char *folder = getenv("NDP_PLUGIN_DIR");
    char path[PATH_MAX + 64];
    if (folder && *folder) {
        snprintf(path, sizeof path, "%.*s/%s", PATH_MAX, folder, s->plugin->file);
        try_file(s, path);
        return;
    }
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (length > 0) {
        path[length] = '\0';
        try_beside(s, path);
    }
    Dl_info here;
    if (dladdr((void *)(intptr_t)ndp_plugin_load, &here) && here.dli_fname)
        try_beside(s, here.dli_fname);
}

ndp_status ndp_plugin_load(const ndp_plugin *p, const void **table) {
    plugin_search s = {.plugin = p};
    try_everywhere(&s);
    ndp_status st = NDP_OK;
    if (s.found)
        *table = s.found;
    else
        st = NDP_FAIL(NDP_ENOTSUP, "no %s: %slooked for %s; %s", p->what, s.errors.length ? s.errors.data : "",
                      s.missing.length ? s.missing.data : p->file, p->remedy);
    ndp_str_release(&s.missing);
    ndp_str_release(&s.errors);
    return st;
}
