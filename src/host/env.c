/* ndp_env: the machine and libraries that this program runs on, for bug reports. */
#include "base/cpu.h"
#include "base/memory_limit.h"
#include "base/text.h"
#include "comm/mpi/mpi_load.h"
#include "device/cuda/cuda_load.h"
#include "host/host.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <dnnl.h>
#include <hwloc.h>
#include <json-c/json.h>
#include <libfyaml.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <utf8proc.h>
#include <xxhash.h>

/* The rest of the first line of `file` that begins with `key`, without colons and blanks; "" if there is none. */
static void first_line(FILE *file, const char *key, char *out, size_t size) {
    out[0] = '\0';
    if (!file)
        return;
    char line[512];
    while (!out[0] && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *value = line + strlen(key);
        value += strspn(value, " \t:");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
    }
}

static const char *line_of(const char *path, const char *key, char out[256]) {
    FILE *file = fopen(path, "r");
    first_line(file, key, out, 256);
    if (file)
        fclose(file);
    return out[0] ? out : "unknown";
}

/* The number in such a line; 0 if there is none. */
static double number_of(const char *path, const char *key) {
    char line[256];
    return strtod(line_of(path, key, line), NULL);
}

static const char *mpirun_version(char out[256]) {
    FILE *file = popen("mpirun --version 2>/dev/null", "r");
    first_line(file, "mpirun", out, 256);
    if (file)
        pclose(file);
    return out[0] ? out : "not installed";
}

static void describe_machine(ndp_str *out) {
    char line[256], bytes[16], more[16];
    struct utsname u;
    if (uname(&u) == 0)
        ndp_str_addf(out, "system        %s %s %s\n", u.sysname, u.release, u.machine);
    ndp_str_addf(out, "processor     %s\n", ndp_cpu_name(line));
    ndp_str_addf(out, "cores         %d usable, %ld online; kernels: %s, bf16 %s\n", ndp_cpu_cores(),
                 sysconf(_SC_NPROCESSORS_ONLN), ndp_cpu_isa(), ndp_cpu_bf16_way_text());
    ndp_str_addf(out, "memory        %s, %s available\n",
                 ndp_human_bytes(number_of("/proc/meminfo", "MemTotal") * 1024, bytes),
                 ndp_human_bytes((double)ndp_memory_available(), more));
    ndp_str_addf(out, "huge pages    %s\n", line_of("/sys/kernel/mm/transparent_hugepage/enabled", "", line));
    bool resolves = ndp_host_resolves(line, sizeof line);
    ndp_str_addf(out, "host          %s, %s\n", line,
                 resolves ? "resolves" : "does not resolve: starting ranks may take 10 s");
}

static void describe_libraries(ndp_str *out) {
    char pcre2[64] = "unknown";
    const dnnl_version_t *dnnl = dnnl_version();
    unsigned hwloc = hwloc_get_api_version(), xxhash = XXH_versionNumber();
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    ndp_str_addf(out, "oneDNN        %d.%d.%d\n", dnnl->major, dnnl->minor, dnnl->patch);
    ndp_str_addf(out, "json-c        %s\n", json_c_version());
    ndp_str_addf(out, "libfyaml      %s\n", fy_library_version());
    ndp_str_addf(out, "pcre2         %s\n", pcre2);
    ndp_str_addf(out, "utf8proc      %s\n", utf8proc_version());
    ndp_str_addf(out, "xxhash        %u.%u.%u\n", xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
    ndp_str_addf(out, "hwloc API     %u.%u.%u\n", hwloc >> 16, hwloc >> 8 & 255, hwloc & 255);
}

static void describe_transports(ndp_str *out) {
    char line[256];
    const ndp_mpi_api *api;
    ndp_str_addf(out, "mpirun        %s\n", mpirun_version(line));
    if (ndp_mpi_load(&api) != NDP_OK)
        ndp_str_addf(out, "transports    self, local, shm; %s\n", ndp_error_message());
    else
        ndp_str_addf(out, "transports    self, local, shm, mpi: %.*s\n", (int)strcspn(api->library(), ",\n"),
                     api->library());
}

static void describe_gpus(ndp_str *out) {
    char text[8192] = "";
    const ndp_cuda_api *api;
    if (ndp_cuda_load(false, true, &api) != NDP_OK)
        ndp_str_addf(out, "GPUs          %s\n", ndp_error_message());
    else
        api->describe(text, sizeof text);
    ndp_str_addf(out, "%s", text);
}

ndp_status ndp_env(char **text) {
    ndp_str out = {0};
    ndp_str_addf(&out, "ndparallel    " NDP_VERSION ", built with " __VERSION__ "\n");
    describe_machine(&out);
    describe_libraries(&out);
    describe_transports(&out);
    describe_gpus(&out);
    *text = ndp_str_detach(&out);
    return *text ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the report");
}
