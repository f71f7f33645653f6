/* Where NVIDIA's libraries are looked for. A place that has one in two versions gives the newer one; a place that the
 * user named wins over one that was found. */
#include "device/cuda/cuda_library.hpp"

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <glob.h>
#include <sstream>
#include <string>

namespace {

struct Search {
    const char *name;
    int newest, oldest;
    void *found;
    std::string errors; /* of files that exist but cannot be loaded */

    std::string file(int version) const { return std::string(name) + "." + std::to_string(version); }

    /* `flags` beside RTLD_LOCAL. */
    void load(const std::string &path, int flags) {
        if (!found)
            found = dlopen(path.c_str(), RTLD_LOCAL | flags);
    }

    /* All folders that match `pattern`, which ends with a slash or is "". */
    void in(const std::string &pattern) {
        for (int v = newest; v >= oldest && !found; v--) {
            glob_t all = {};
            if (glob((pattern + file(v)).c_str(), 0, nullptr, &all) == 0)
                for (size_t i = 0; i < all.gl_pathc && !found; i++) {
                    load(all.gl_pathv[i], RTLD_NOW);
                    if (!found)
                        errors += std::string(dlerror()) + "; ";
                }
            globfree(&all);
        }
    }

    void loaded_before() {
        for (int v = newest; v >= oldest; v--)
            load(file(v), RTLD_NOW | RTLD_NOLOAD);
    }

    void in_named_folders() {
        const char *folders = getenv("NDP_CUDA_PATH");
        std::istringstream list(folders ? folders : "");
        for (std::string folder; !found && std::getline(list, folder, ':');)
            if (!folder.empty())
                for (const char *below : {"/", "/lib64/", "/lib/"})
                    in(folder + below);
    }

    void beside_plugin() {
        Dl_info here;
        if (found || !dladdr((const void *)&ndp_cuda_library, &here) || !here.dli_fname)
            return;
        std::string path = here.dli_fname;
        path.erase(path.rfind('/') + 1);
        in(path);
        in(path + "cuda/lib/"); /* of tools/gpu/deps-cuda */
    }

    void where_the_loader_looks() {
        for (int v = newest; v >= oldest; v--)
            load(file(v), RTLD_NOW);
    }

    void in_python_packages() {
        /* -I: no module that lies in this folder, in $PYTHONPATH or in the user's packages runs; these are only listed.
         */
        FILE *paths = found ? nullptr
                            : popen("python3 -I -c 'import site, sys; print(*sys.path, site.getusersitepackages(), "
                                    "sep=\"\\n\")' 2>/dev/null",
                                    "r");
        char line[4096];
        while (paths && fgets(line, sizeof line, paths)) {
            std::string folder(line);
            folder.erase(folder.find_last_not_of('\n') + 1);
            if (!folder.empty())
                in(folder + "/nvidia/*/lib/");
        }
        if (paths)
            pclose(paths);
    }
};

} // namespace

ndp_status ndp_cuda_library(const char *name, int newest, int oldest, const char *wheel, void **handle) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0 && driver / 1000 < newest)
        newest = driver / 1000;
    Search s = {name, newest, oldest, nullptr, ""};
    s.loaded_before();
    s.in_named_folders();
    s.beside_plugin();
    s.where_the_loader_looks();
    s.in_python_packages();
    if (!s.found)
        return NDP_FAIL(
            NDP_ENOTSUP,
            "no %s, versions %d to %d: %slooked in $NDP_CUDA_PATH, beside the plugin, in the system's library "
            "folders and in the packages of python3; install NVIDIA's CUDA toolkit, or `python3 -m pip "
            "install %s%s`, or set NDP_CUDA_PATH to its folder",
            name, oldest, newest, s.errors.c_str(), wheel, newest <= 12 ? "-cu12" : "");
    *handle = s.found;
    return NDP_OK;
}
