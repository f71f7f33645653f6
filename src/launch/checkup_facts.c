/* Reads the facts of checkup.h from the system. Whatever cannot be read leaves its fact "not known": a doctor does not
 * fail. */
#include "base/child.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/memory_limit.h"
#include "base/python.h"
#include "comm/mpi/mpi_load.h"
#include "device/cuda/cuda_load.h"
#include "launch/checkup.h"
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- lines of files ---- */

/* As ndp_line_of; "" if the line is missing. */
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

const char *ndp_line_of(const char *path, const char *key, char out[256]) {
    FILE *file = fopen(path, "r");
    first_line(file, key, out, 256);
    if (file)
        fclose(file);
    return out[0] ? out : "unknown";
}

const char *ndp_mpirun_version(char out[256]) {
    FILE *file = popen("mpirun --version 2>/dev/null", "r");
    first_line(file, "mpirun", out, 256);
    if (file)
        pclose(file);
    return out;
}

int ndp_mpirun_major(void) {
    static const char name[] = "(Open MPI) ";
    char line[256];
    const char *at = strstr(ndp_mpirun_version(line), name);
    return at ? atoi(at + strlen(name)) : 0;
}

/* The number after `key` in ROOT/PATH; `otherwise` if there is none. */
static double number_of(const char *root, const char *path, const char *key, double otherwise) {
    char whole[NDP_PATH], line[256], *end;
    snprintf(whole, sizeof whole, "%s%s", root, path);
    const char *text = ndp_line_of(whole, key, line);
    double x = strtod(text, &end);
    return end == text ? otherwise : x;
}

/* ---- processor and memory ---- */

/* The least quota, in cores, of this process's group of control groups version 2 and those above; 0: none. */
static double read_quota(const char *root) {
    char path[NDP_PATH], group[256], line[256];
    double least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    (void)ndp_line_of(path, "0:", group);
    for (char *end = group + strlen(group); *group == '/'; *end = '\0') {
        double quota = 0, period = 0;
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/cpu.max", root, group);
        if (sscanf(ndp_line_of(path, "", line), "%lf %lf", &quota, &period) == 2 && period > 0)
            least = least > 0 && least < quota / period ? least : quota / period;
        if (!group[1])
            break;
        end = strrchr(group, '/');
        end += end == group; /* the last one is "/" */
    }
    return least;
}

static void read_processor(const char *root, ndp_host_facts *f) {
    char path[NDP_PATH], line[256];
    const char *threads = getenv("OMP_NUM_THREADS");
    (void)ndp_cpu_name(f->processor);
    snprintf(f->isa, sizeof f->isa, "%s", ndp_cpu_isa());
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", root);
    if (strcmp(ndp_line_of(path, "", line), "unknown") != 0)
        snprintf(f->governor, sizeof f->governor, "%.31s", line);
    f->cores = ndp_cpu_cores();
    f->online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    f->quota = read_quota(root);
    f->load = number_of(root, "/proc/loadavg", "", 0);
    f->omp_threads = threads ? (int)strtol(threads, NULL, 10) : 0;
}

/* Pages that have gone to swap and back since the host started. */
static double swapped_pages(const char *root) {
    return number_of(root, "/proc/vmstat", "pswpin", 0) + number_of(root, "/proc/vmstat", "pswpout", 0);
}

static int64_t kib(const char *root, const char *key) {
    return (int64_t)(number_of(root, "/proc/meminfo", key, 0) * 1024);
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=0": the middle one. */
static double read_pressure(const char *root) {
    char path[NDP_PATH], line[256], *at;
    snprintf(path, sizeof path, "%s/proc/pressure/memory", root);
    at = strstr(ndp_line_of(path, "some", line), "avg60=");
    return at ? strtod(at + strlen("avg60="), NULL) : -1;
}

static void read_memory(const char *root, ndp_host_facts *f) {
    ndp_memory_limit limit;
    char path[NDP_PATH], line[256];
    ndp_memory_limit_host(root, &limit);
    f->memory = kib(root, "MemTotal:");
    f->available = limit.bytes;
    snprintf(f->memory_limit, sizeof f->memory_limit, "%s", limit.what);
    f->swap = kib(root, "SwapTotal:");
    f->swap_used = f->swap - kib(root, "SwapFree:");
    f->pressure = read_pressure(root);
    snprintf(path, sizeof path, "%s/sys/kernel/mm/transparent_hugepage/enabled", root);
    const char *chosen = strchr(ndp_line_of(path, "", line), '[');
    if (chosen)
        snprintf(f->huge_pages, sizeof f->huge_pages, "%.*s", (int)strcspn(chosen + 1, "]"), chosen + 1);
}

static void read_shm(const char *root, ndp_host_facts *f) {
    char path[NDP_PATH];
    struct statvfs s;
    snprintf(path, sizeof path, "%s/dev/shm", root);
    bool there = statvfs(path, &s) == 0 && ndp_path_is_folder(path);
    f->shm = there ? (int64_t)(s.f_blocks * s.f_frsize) : -1;
    f->shm_free = there ? (int64_t)(s.f_bavail * s.f_frsize) : -1;
}

static int64_t limit_of(__rlimit_resource_t what) {
    struct rlimit r;
    return getrlimit(what, &r) || r.rlim_cur == RLIM_INFINITY || r.rlim_cur > INT64_MAX ? -1 : (int64_t)r.rlim_cur;
}

static void read_limits(const char *root, ndp_host_facts *f) {
    char path[NDP_PATH];
    snprintf(path, sizeof path, "%s/sys/class/infiniband", root);
    f->infiniband = ndp_path_is_folder(path);
    f->memlock = limit_of(RLIMIT_MEMLOCK);
    f->nofile = limit_of(RLIMIT_NOFILE);
    f->stack = limit_of(RLIMIT_STACK);
    f->fsize = limit_of(RLIMIT_FSIZE);
}

/* ---- programs ---- */

int ndp_program_output(char *const *argv, int seconds, char **text) {
    const struct timespec nap = {.tv_nsec = 5000000};
    const double start = ndp_now();
    int fd = memfd_create("output", MFD_CLOEXEC), status = 0;
    pid_t child, ended = 0;
    size_t size;
    *text = NULL;
    if (fd < 0)
        return -1;
    const ndp_child how = {
        .argv = argv, .env = environ, .keep = -1, .own_group = true, .streams = {[1] = fd, [2] = fd}};
    if (ndp_child_start(&how, &child) == 0) {
        while ((ended = waitpid(child, &status, WNOHANG)) == 0 && ndp_now() - start < seconds)
            nanosleep(&nap, NULL);
        if (ended == 0) {
            kill(-child, SIGKILL);
            waitpid(child, NULL, 0);
        }
        if (lseek(fd, 0, SEEK_SET) != 0 || ndp_fd_read(fd, "output", 1 << 20, text, &size) != NDP_OK)
            *text = NULL;
    }
    close(fd);
    return ended > 0 ? ndp_child_code(status) : -1;
}

/* Versions of the interpreter and of two packages, a line each, without importing them; "" for what is missing. */
static void read_python(ndp_host_facts *f) {
    static const char source[] = "import sys\n"
                                 "print(\"python\", sys.version.split()[0], flush=True)\n"
                                 "from importlib import metadata\n"
                                 "for name in (\"pyarrow\", \"jinja2\"):\n"
                                 "    try:\n"
                                 "        print(name, metadata.version(name), flush=True)\n"
                                 "    except metadata.PackageNotFoundError:\n"
                                 "        pass\n";
    char *text, *argv[] = {(char *)(uintptr_t)ndp_python_interpreter(), "-I", "-c", (char *)(uintptr_t)source, NULL};
    snprintf(f->python, sizeof f->python, "%s", argv[0]);
    (void)ndp_program_output(argv, 20, &text);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        (void)sscanf(line, "python %31s", f->python_version);
        (void)sscanf(line, "pyarrow %31s", f->pyarrow);
        (void)sscanf(line, "jinja2 %31s", f->jinja2);
    }
    free(text);
}

static void read_mpi(ndp_host_facts *f) {
    char line[256];
    const ndp_mpi_api *api;
    snprintf(f->mpirun, sizeof f->mpirun, "%.63s", ndp_mpirun_version(line));
    if (ndp_mpi_load(&api) != NDP_OK)
        snprintf(f->mpi_lacks, sizeof f->mpi_lacks, "%s", ndp_error_message());
}

static void read_gpus(const char *root, ndp_host_facts *f) {
    char path[NDP_PATH];
    const ndp_cuda_api *api;
    do
        snprintf(path, sizeof path, "%s/dev/nvidia%d", root, f->nvidia);
    while (access(path, F_OK) == 0 && ++f->nvidia < 64);
    if (f->nvidia && ndp_cuda_load(false, true, &api) != NDP_OK)
        snprintf(f->cuda_lacks, sizeof f->cuda_lacks, "%s", ndp_error_message());
}

/* ---- all ---- */

void ndp_host_facts_read(const char *root, ndp_host_facts *out) {
    const struct timespec nap = {.tv_nsec = 300000000};
    *out = (ndp_host_facts){0};
    double began = ndp_now(), pages = swapped_pages(root);
    read_processor(root, out);
    read_memory(root, out);
    read_shm(root, out);
    read_limits(root, out);
    read_python(out);
    read_mpi(out);
    read_gpus(root, out);
    out->resolves = ndp_host_resolves(out->host, sizeof out->host);
    out->synchronized = adjtimex(&(struct timex){0}) != TIME_ERROR;
    nanosleep(&nap, NULL);
    out->swapped = (swapped_pages(root) - pages) / (ndp_now() - began);
    ndp_error_set(NDP_OK, "");
}

/* Writes a small file to the folder, and removes it. Returns 0 or errno; *ahead as in ndp_disk_facts. */
static int try_folder(const char *folder, double *ahead) {
    char path[NDP_PATH], bytes[4096] = {0};
    struct stat info = {0};
    int cause = 0;
    snprintf(path, sizeof path, "%.4000s/.ndparallel-doctor-XXXXXX", folder);
    double before = ndp_time();
    int fd = mkstemp(path);
    if (fd < 0)
        return errno;
    if (write(fd, bytes, sizeof bytes) != sizeof bytes || fsync(fd) || fstat(fd, &info))
        cause = errno ? errno : ENOSPC;
    double after = ndp_time(), made = (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
    if (!cause) /* the time of a file may be that of the last tick of a clock, or a whole second */
        *ahead = made < before ? fmin(0, made + 1 - before) : fmax(0, made - after);
    close(fd);
    unlink(path);
    return cause;
}

void ndp_host_facts_disk(ndp_host_facts *f, const char *what, const char *path, int64_t need_bytes) {
    struct statvfs s;
    if (f->n_disks == NDP_MOST_DISKS)
        return;
    ndp_disk_facts *d = &f->disks[f->n_disks++];
    *d = (ndp_disk_facts){.what = what, .need_bytes = need_bytes};
    snprintf(d->path, sizeof d->path, "%s", path);
    while (!ndp_path_exists(d->path)) {
        char *above = ndp_path_parent(d->path);
        snprintf(d->path, sizeof d->path, "%s", above ? above : "/");
        free(above);
    }
    if (statvfs(d->path, &s) == 0) {
        d->free_bytes = (int64_t)(s.f_bavail * s.f_frsize);
        d->total_bytes = (int64_t)(s.f_blocks * s.f_frsize);
    }
    int cause = try_folder(d->path, &d->clock_ahead);
    if (cause)
        snprintf(d->lacks, sizeof d->lacks, "%s", strerror(cause));
}

ndp_status ndp_machine_read(ndp_machine *out) {
    NDP_NOT_NULL(out);
    const ndp_cuda_api *api;
    ndp_machine m = {.cores = ndp_cpu_cores(), .memory = ndp_memory_available()};
    if (ndp_cuda_load(false, true, &api) == NDP_OK) {
        ndp_device_context *c;
        size_t free_bytes = 0, total = 0;
        for (m.gpus = 64; m.gpus > 0; m.gpus--)
            if (api->device->open(api->device, &(ndp_device_opts){.node_ranks = m.gpus}, &c) == NDP_OK)
                break;
        if (m.gpus && api->device->memory(c, &free_bytes, &total) == NDP_OK)
            m.gpu_memory = (int64_t)free_bytes;
        if (m.gpus)
            api->device->close(c);
    }
    ndp_error_set(NDP_OK, "");
    *out = m;
    return NDP_OK;
}
