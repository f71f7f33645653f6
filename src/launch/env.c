/* ndp_env: the machine and libraries that this program runs on, for bug reports. */
#include "base/child.h"
#include "base/cpu.h"
#include "base/json_write.h"
#include "base/memory_limit.h"
#include "base/text.h"
#include "comm/mpi/mpi_load.h"
#include "device/cuda/cuda_load.h"
#include "launch/checkup.h"
#include "launch/launch.h"

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

/* The number in such a line; 0 if there is none. */
static double number_of(const char *path, const char *key) {
    char line[256];
    return strtod(ndp_line_of(path, key, line), NULL);
}

/* The report in its two forms, written together: lines for people, members of an object for programs. */
typedef struct env_report {
    ndp_str lines;
    ndp_json_out json;
} env_report;

/* A line, and a member with the same text. */
static void add_text(env_report *r, const char *name, const char *key, const char *text) {
    ndp_str_addf(&r->lines, "%-13s %s\n", name, text);
    ndp_json_put_text(&r->json, key, text);
}

static void describe_cores(env_report *r) {
    ndp_str_addf(&r->lines, "cores         %d usable, %ld online; kernels: %s, bf16 %s\n", ndp_cpu_cores(),
                 sysconf(_SC_NPROCESSORS_ONLN), ndp_cpu_isa(), ndp_cpu_bf16_way_text());
    ndp_json_open(&r->json, "cores", '{');
    ndp_json_put_int(&r->json, "usable", ndp_cpu_cores());
    ndp_json_put_int(&r->json, "online", sysconf(_SC_NPROCESSORS_ONLN));
    ndp_json_close(&r->json, '}');
    ndp_json_put_text(&r->json, "kernels", ndp_cpu_isa());
    ndp_json_put_text(&r->json, "bf16", ndp_cpu_bf16_way_text());
}

/* The levels that NDP_ISA can choose on this machine. */
static void describe_levels(env_report *r) {
    char here[NDP_CPU_NAME], not_here[NDP_CPU_NAME];
    ndp_cpu_isa_words(true, here);
    ndp_cpu_isa_words(false, not_here);
    ndp_str_addf(&r->lines, "levels        %s%s%s\n", here, not_here[0] ? "; not here: " : "", not_here);
    ndp_json_open(&r->json, "levels", '{');
    ndp_json_put_text(&r->json, "here", here);
    ndp_json_put_text(&r->json, "not_here", not_here);
    ndp_json_close(&r->json, '}');
}

static void describe_memory(env_report *r) {
    char bytes[16], more[16];
    double total = number_of("/proc/meminfo", "MemTotal") * 1024;
    int64_t available = ndp_memory_available();
    ndp_str_addf(&r->lines, "memory        %s, %s available\n", ndp_human_bytes(total, bytes),
                 ndp_human_bytes((double)available, more));
    ndp_json_open(&r->json, "memory", '{');
    ndp_json_put_int(&r->json, "bytes", (int64_t)total);
    ndp_json_put_int(&r->json, "available", available);
    ndp_json_close(&r->json, '}');
}

static void describe_machine(env_report *r) {
    char line[256], system[sizeof(struct utsname)] = "";
    struct utsname u;
    if (uname(&u) == 0) {
        snprintf(system, sizeof system, "%s %s %s", u.sysname, u.release, u.machine);
        add_text(r, "system", "system", system);
    } else
        ndp_json_put_null(&r->json, "system");
    add_text(r, "processor", "processor", ndp_cpu_name(line));
    describe_cores(r);
    describe_levels(r);
    describe_memory(r);
    add_text(r, "huge pages", "huge_pages", ndp_line_of("/sys/kernel/mm/transparent_hugepage/enabled", "", line));
    bool resolves = ndp_host_resolves(line, sizeof line);
    ndp_str_addf(&r->lines, "host          %s, %s\n", line,
                 resolves ? "resolves" : "does not resolve: starting ranks may take 10 s");
    ndp_json_put_text(&r->json, "host", line);
    ndp_json_put_bool(&r->json, "host_resolves", resolves);
    bool shown = ndp_processes_are_shown();
    ndp_str_addf(&r->lines, "processes     %s\n",
                 shown ? "shown by /proc: ranks of a host see that one of them has died or is stopped"
                       : "not shown by /proc as they are numbered here: a rank that dies or is stopped is found by the "
                         "time limit alone (NDP_COMM_TIMEOUT)");
    ndp_json_put_bool(&r->json, "processes_shown", shown);
}

/* "1.2.3" */
static const char *version_text(unsigned major, unsigned minor, unsigned patch, char out[48]) {
    snprintf(out, 48, "%u.%u.%u", major, minor, patch);
    return out;
}

static void describe_libraries(env_report *r) {
    char pcre2[64] = "unknown", text[48];
    const dnnl_version_t *dnnl = dnnl_version();
    unsigned hwloc = hwloc_get_api_version(), xxhash = XXH_versionNumber();
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    ndp_json_open(&r->json, "libraries", '{');
    add_text(r, "oneDNN", "onednn",
             version_text((unsigned)dnnl->major, (unsigned)dnnl->minor, (unsigned)dnnl->patch, text));
    add_text(r, "json-c", "json_c", json_c_version());
    add_text(r, "libfyaml", "libfyaml", fy_library_version());
    add_text(r, "pcre2", "pcre2", pcre2);
    add_text(r, "utf8proc", "utf8proc", utf8proc_version());
    add_text(r, "xxhash", "xxhash", version_text(xxhash / 10000, xxhash / 100 % 100, xxhash % 100, text));
    add_text(r, "hwloc API", "hwloc_api", version_text(hwloc >> 16, hwloc >> 8 & 255, hwloc & 255, text));
    ndp_json_close(&r->json, '}');
}

static void describe_transports(env_report *r) {
    static const char *const built[] = {"self", "local", "shm"};
    char line[256], library[256] = "";
    const ndp_mpi_api *api;
    add_text(r, "mpirun", "mpirun", ndp_mpirun_version(line)[0] ? line : "not installed");
    bool mpi = ndp_mpi_load(&api) == NDP_OK;
    if (mpi)
        snprintf(library, sizeof library, "%.*s", (int)strcspn(api->library(), ",\n"), api->library());
    const char *words = mpi ? library : ndp_error_message();
    ndp_str_addf(&r->lines, mpi ? "transports    self, local, shm, mpi: %s\n" : "transports    self, local, shm; %s\n",
                 words);
    ndp_json_open(&r->json, "transports", '[');
    for (int i = 0; i < NDP_COUNT(built) + mpi; i++)
        ndp_json_put_text(&r->json, NULL, i < NDP_COUNT(built) ? built[i] : "mpi");
    ndp_json_close(&r->json, ']');
    ndp_json_put_text(&r->json, "mpi", words);
}

static void describe_gpus(env_report *r) {
    char text[8192] = "";
    const ndp_cuda_api *api;
    bool loaded = ndp_cuda_load(false, true, &api) == NDP_OK;
    if (loaded) {
        api->describe(text, sizeof text);
        ndp_str_add(&r->lines, text);
    } else
        ndp_str_addf(&r->lines, "GPUs          %s\n", ndp_error_message());
    ndp_json_put_text(&r->json, "cuda_lacks", loaded ? NULL : ndp_error_message());
    ndp_json_put_lines(&r->json, "gpus", text);
}

static void describe(env_report *r) {
    ndp_json_open(&r->json, NULL, '{');
    ndp_str_addf(&r->lines, "ndparallel    " NDP_VERSION ", built with " __VERSION__ "\n");
    ndp_json_put_text(&r->json, "version", NDP_VERSION);
    ndp_json_put_text(&r->json, "compiler", __VERSION__);
    describe_machine(r);
    describe_libraries(r);
    describe_transports(r);
    describe_gpus(r);
    ndp_json_close(&r->json, '}');
}

static ndp_status report_text(bool json, char **text) {
    env_report r = {0};
    describe(&r);
    *text = ndp_str_detach(json ? &r.json.text : &r.lines);
    ndp_str_release(&r.json.text);
    ndp_str_release(&r.lines);
    return NDP_MEMORY(*text, "for the report");
}

ndp_status ndp_env(char **text) {
    NDP_NOT_NULL(text);
    return report_text(false, text);
}

ndp_status ndp_env_json(char **json) {
    NDP_NOT_NULL(json);
    return report_text(true, json);
}
