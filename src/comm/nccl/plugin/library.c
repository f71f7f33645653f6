/* Finds libnccl.so.2. A place that the user named wins over one that was found. */
#include "comm/nccl/plugin/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libnccl.so.2"

typedef struct library_search {
    void *found;
    char error[512]; /* of the last file that exists and cannot be loaded */
} library_search;

/* `folder` ends with a slash, and may be a pattern. */
static void try_folder(library_search *s, const char *folder) {
    char pattern[PATH_MAX + 32];
    glob_t all = {0};
    if (s->found)
        return;
    snprintf(pattern, sizeof pattern, "%.*s" LIBRARY, PATH_MAX, folder);
    if (glob(pattern, 0, NULL, &all) == 0)
        for (size_t i = 0; i < all.gl_pathc && !s->found; i++) {
            s->found = dlopen(all.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
            if (!s->found)
                snprintf(s->error, sizeof s->error, "%s; ", dlerror());
        }
    globfree(&all);
}

static void try_below(library_search *s, const char *folder, int length, const char *below) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s%s", length, folder, below);
    try_folder(s, path);
}

static void try_named_folders(library_search *s) {
    static const char *const below[] = {"/", "/lib64/", "/lib/"};
    const char *at = getenv("NDP_CUDA_PATH");
    while (at && *at && !s->found) {
        int length = (int)strcspn(at, ":");
        for (int i = 0; i < 3 && length > 0; i++)
            try_below(s, at, length, below[i]);
        at += length + (at[length] == ':');
    }
}

static void try_beside_plugin(library_search *s) {
    Dl_info here;
    if (!dladdr((void *)(__INTPTR_TYPE__)ndp_nccl_find, &here) || !here.dli_fname || !strrchr(here.dli_fname, '/'))
        return;
    int length = (int)(strrchr(here.dli_fname, '/') - here.dli_fname);
    try_below(s, here.dli_fname, length, "/");
    try_below(s, here.dli_fname, length, "/nccl/lib/");
}

/* -I: no module that lies in this folder, in $PYTHONPATH or in the user's packages runs; these are only listed. */
static void try_python_packages(library_search *s) {
    char line[PATH_MAX];
    FILE *paths = s->found ? NULL
                           : popen("python3 -I -c 'import site, sys; print(*sys.path, site.getusersitepackages(), "
                                   "sep=\"\\n\")' 2>/dev/null",
                                   "r");
    while (paths && fgets(line, sizeof line, paths)) {
        int length = (int)strcspn(line, "\n");
        if (length > 0)
            try_below(s, line, length, "/nvidia/nccl/lib/");
    }
    if (paths)
        pclose(paths);
}

void *ndp_nccl_find(char *error, int room) {
    library_search s = {.found = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)};
    try_named_folders(&s);
    try_beside_plugin(&s);
    if (!s.found)
        s.found = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    try_python_packages(&s);
    if (!s.found)
        snprintf(error, (size_t)room,
                 "no " LIBRARY
                 ": %slooked in $NDP_CUDA_PATH, beside the plugin, in the system's library folders and in "
                 "the packages of python3; `python3 -m pip install nvidia-nccl-cu13` (with a driver of CUDA 12: "
                 "nvidia-nccl-cu12), or set NDP_CUDA_PATH to its folder",
                 s.error);
    return s.found;
}
