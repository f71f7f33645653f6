/* What `sim` knows of kernels besides what they do: their names and their shared memory. */
#include "device/sim/sim_kernel.hpp"
#include "device/sim/sim_block.hpp"

#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <map>
#include <mutex>

int ndp_sim_shared_of_block(void) {
    const char *wanted = getenv("NDP_SIM_SHARED");
    int bytes = wanted ? atoi(wanted) : NDP_SIM_MOST_SHARED;
    return bytes < NDP_SIM_MOST_SHARED ? bytes : NDP_SIM_MOST_SHARED;
}
namespace {
struct Allowed {
    std::mutex lock;
    std::map<std::pair<const void *, int>, size_t> bytes;
};
} // namespace
static Allowed &allowed() {
    static Allowed a;
    return a;
}

void ndp_sim_allow_shared(const void *kernel, int gpu, size_t bytes) {
    std::lock_guard<std::mutex> hold(allowed().lock);
    allowed().bytes[{kernel, gpu}] = bytes;
}

size_t ndp_sim_shared_limit(const void *kernel, int gpu) {
    std::lock_guard<std::mutex> hold(allowed().lock);
    auto it = allowed().bytes.find({kernel, gpu});
    return it == allowed().bytes.end() ? 48 << 10 : it->second;
}

std::string ndp_sim_kernel_name(const void *kernel) {
    Dl_info i;
    if (!dladdr(kernel, &i))
        return "a kernel";
    char *name =
        i.dli_sname && i.dli_saddr == kernel ? abi::__cxa_demangle(i.dli_sname, nullptr, nullptr, nullptr) : nullptr;
    char place[32];
    snprintf(place, sizeof place, "+0x%zx", (size_t)((const char *)kernel - (const char *)i.dli_fbase));
    std::string out = name ? name : "the kernel at " + std::string(i.dli_fname) + place;
    free(name);
    return out;
}
