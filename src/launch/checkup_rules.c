/* What facts about a host mean: one function a check, each of which adds at least one finding. Nothing is read here.
 * Limits are stated where they are compared, with their reason. */
#include "launch/checkup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

typedef struct bytes_text {
    char text[16];
} bytes_text;

static bytes_text human(int64_t bytes) {
    bytes_text t;
    ndp_human_bytes((double)bytes, t.text);
    return t;
}

/* ---- the processor ---- */

static void check_processor(const ndp_host_facts *f, ndp_findings *out) {
    const char *remedy = NULL;
    if (strcmp(f->isa, "generic") == 0)
        remedy = "kernels for AVX-512 or SVE are faster: use a machine that has them, or unset NDP_ISA if it is set";
    ndp_findings_add(out, "processor", remedy ? NDP_FINDING_NOTE : NDP_FINDING_OK, remedy, "%s, %d of %d cores, %s",
                     f->processor, f->cores, f->online, f->isa);
    if (strcmp(f->governor, "powersave") == 0)
        ndp_findings_add(out, "frequency", NDP_FINDING_NOTE, "cpupower frequency-set --governor performance",
                         "the governor is powersave");
}

/* Cores that the run can use at a time. */
static double usable(const ndp_host_facts *f) { return f->quota > 0 && f->quota < f->cores ? f->quota : f->cores; }

static void check_threads(const ndp_host_facts *f, ndp_findings *out) {
    double cores = usable(f);
    int ranks = f->ranks ? f->ranks : 1, threads = f->threads ? f->threads : f->omp_threads;
    if (f->quota > 0 && f->quota < f->cores)
        ndp_findings_add(out, "processor quota", NDP_FINDING_NOTE,
                         "raise the limit (docker run --cpus, cpu.max), or set train.threads to the quota divided by "
                         "the ranks of a host",
                         "control groups allow %.1f cores at a time of the %d that can be seen; threads beyond them "
                         "are stopped in the middle of a step",
                         f->quota, f->cores);
    if (threads && (double)ranks * threads > ceil(cores))
        ndp_findings_add(out, "threads", NDP_FINDING_PROBLEM,
                         f->threads ? "lower train.threads, or leave it out: ranks then share the cores"
                                    : "unset OMP_NUM_THREADS, or lower it: ranks then share the cores",
                         "%d rank%s of %d threads (%s) on %g cores: they take turns, and a step waits for the slowest",
                         ranks, ranks == 1 ? "" : "s", threads, f->threads ? "train.threads" : "OMP_NUM_THREADS",
                         cores);
    else if (ranks > ceil(cores))
        ndp_findings_add(out, "threads", NDP_FINDING_PROBLEM, "fewer ranks on this host, or more hosts",
                         "%d ranks on %g cores", ranks, cores);
    else
        ndp_findings_add(out, "threads", NDP_FINDING_OK, NULL, "%d rank%s on %g cores", ranks, ranks == 1 ? "" : "s",
                         cores);
    if (f->load > cores * 0.5 + 1)
        ndp_findings_add(out, "load", NDP_FINDING_NOTE, "end the other programs (`top`), or expect slower steps",
                         "other programs run: the load of the last minute is %.1f on %g cores", f->load, cores);
}

/* ---- memory ---- */

static void check_memory(const ndp_host_facts *f, ndp_findings *out) {
    bool little = f->available < f->memory / 4; /* most of it belongs to other programs, or a limit hides it */
    ndp_findings_add(out, "memory", little ? NDP_FINDING_NOTE : NDP_FINDING_OK,
                     little ? "end what uses it (`ps aux --sort -rss`), or raise the limit that is named" : NULL,
                     "%s of %s available%s%s%s", human(f->available).text, human(f->memory).text, little ? " (" : "",
                     little ? f->memory_limit : "", little ? ")" : "");
}

/* A page that is read back takes as long as thousands of reads of memory, so a host that does it is the slow one. */
static void check_swap(const ndp_host_facts *f, ndp_findings *out) {
    const char *remedy = "need less memory (`ndparallel plan JOB`: micro batch, recompute, dp_shard), end other "
                         "programs, or `swapoff -a`";
    if (f->swapped > 50)
        ndp_findings_add(out, "swap", NDP_FINDING_PROBLEM, remedy,
                         "this host swaps: %.0f pages a second now, %s of %s swap in use", f->swapped,
                         human(f->swap_used).text, human(f->swap).text);
    else if (f->pressure > 10)
        ndp_findings_add(out, "swap", NDP_FINDING_PROBLEM, remedy,
                         "programs of this host waited for memory %.0f%% of the last minute, %s of %s swap in use",
                         f->pressure, human(f->swap_used).text, human(f->swap).text);
    else if (f->swap_used > f->memory / 20)
        ndp_findings_add(out, "swap", NDP_FINDING_NOTE, remedy, "%s of %s swap in use, none of it moved now",
                         human(f->swap_used).text, human(f->swap).text);
    else
        ndp_findings_add(out, "swap", NDP_FINDING_OK, NULL, f->swap ? "%s of %s in use" : "there is none",
                         human(f->swap_used).text, human(f->swap).text);
}

static void check_huge_pages(const ndp_host_facts *f, ndp_findings *out) {
    bool never = strcmp(f->huge_pages, "never") == 0;
    ndp_findings_add(out, "huge pages", never ? NDP_FINDING_NOTE : NDP_FINDING_OK,
                     never ? "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled" : NULL, "%s",
                     f->huge_pages[0] ? f->huge_pages : "not known");
}

/* Ranks of one host share memory without /dev/shm; Open MPI and NCCL use it, and a container has 64 MiB. */
static void check_shm(const ndp_host_facts *f, ndp_findings *out) {
    const char *remedy = "docker run --shm-size=8g; Kubernetes: an emptyDir of medium Memory at /dev/shm; elsewhere "
                         "mount -o remount,size=50% /dev/shm";
    bool needed = f->several_hosts || f->nvidia;
    ndp_finding_state bad = needed ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE;
    const char *who = needed ? "" : "; ranks on several hosts or on GPUs need it";
    if (f->shm < 0)
        ndp_findings_add(out, "/dev/shm", bad, "mount -t tmpfs tmpfs /dev/shm", "there is none%s", who);
    else if (f->shm < 256 * MIB || f->shm_free < 64 * MIB)
        ndp_findings_add(out, "/dev/shm", bad, remedy, "%s, %s free: too small for Open MPI and NCCL%s",
                         human(f->shm).text, human(f->shm_free).text, who);
    else
        ndp_findings_add(out, "/dev/shm", NDP_FINDING_OK, NULL, "%s, %s free", human(f->shm).text,
                         human(f->shm_free).text);
}

static void check_limits(const ndp_host_facts *f, ndp_findings *out) {
    int before = out->n;
    if (f->infiniband && f->memlock >= 0)
        ndp_findings_add(out, "memlock", NDP_FINDING_PROBLEM,
                         "`memlock unlimited` in /etc/security/limits.conf; docker run --ulimit memlock=-1",
                         "%s may be locked; InfiniBand needs the memory of messages locked", human(f->memlock).text);
    if (f->nofile >= 0 && f->nofile < 1024)
        ndp_findings_add(out, "open files", f->nofile < 256 ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE, "ulimit -n 65536",
                         "at most %lld", (long long)f->nofile);
    if (f->stack >= 0 && f->stack < MIB)
        ndp_findings_add(out, "stack", NDP_FINDING_PROBLEM, "ulimit -s 8192", "%s a thread", human(f->stack).text);
    if (f->fsize >= 0)
        ndp_findings_add(out, "file size", f->fsize < GIB ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE,
                         "ulimit -f unlimited", "files of at most %s can be written", human(f->fsize).text);
    if (out->n == before)
        ndp_findings_add(out, "limits", NDP_FINDING_OK, NULL, "open files, stack, file size and locked memory suffice");
}

/* ---- programs ---- */

static void check_python(const ndp_host_facts *f, ndp_findings *out) {
    static const char venv[] = "python3 -m venv VENV && VENV/bin/pip install pyarrow jinja2 && export "
                               "NDP_PYTHON=$PWD/VENV/bin/python";
    if (!f->python_version[0]) {
        bool needed = f->wants_tables || f->wants_templates;
        ndp_findings_add(out, "Python", needed ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE,
                         "apt install python3, or set NDP_PYTHON to one",
                         "%s does not run; tables and chat templates that are not built in need it", f->python);
        return;
    }
    ndp_findings_add(out, "Python", NDP_FINDING_OK, NULL, "%s, version %s", f->python, f->python_version);
    if (f->pyarrow[0])
        ndp_findings_add(out, "pyarrow", NDP_FINDING_OK, NULL, "%s", f->pyarrow);
    else
        ndp_findings_add(out, "pyarrow", f->wants_tables ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE, venv,
                         "missing from %s; .parquet and .arrow need it", f->python);
    if (f->jinja2[0])
        ndp_findings_add(out, "jinja2", NDP_FINDING_OK, NULL, "%s", f->jinja2);
    else
        ndp_findings_add(out, "jinja2", f->wants_templates ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE,
                         "apt install python3-jinja2, or in a virtual environment, which NDP_PYTHON names",
                         "missing from %s; chat templates that are not built in need it", f->python);
}

static void check_mpi(const ndp_host_facts *f, ndp_findings *out) {
    const char *remedy = !f->mpirun[0]     ? "apt install openmpi-bin"
                         : f->mpi_lacks[0] ? "apt install libopenmpi-dev, "
                                             "and build again"
                                           : NULL;
    ndp_finding_state bad = f->several_hosts ? NDP_FINDING_PROBLEM : NDP_FINDING_NOTE;
    if (!f->mpirun[0])
        ndp_findings_add(out, "MPI", bad, remedy, "no mpirun, which starts ranks on several hosts");
    else if (f->mpi_lacks[0])
        ndp_findings_add(out, "MPI", bad, remedy, "%s", f->mpi_lacks);
    else
        ndp_findings_add(out, "MPI", NDP_FINDING_OK, NULL, "mpirun %s", f->mpirun);
}

static void check_name(const ndp_host_facts *f, ndp_findings *out) {
    ndp_findings_add(out, "host name", f->resolves ? NDP_FINDING_OK : NDP_FINDING_NOTE,
                     f->resolves ? NULL : "add its name and address to /etc/hosts",
                     f->resolves ? "%s resolves" : "%s does not resolve: starting ranks may take 10 s", f->host);
}

static void check_gpus(const ndp_host_facts *f, ndp_findings *out) {
    if (f->nvidia && f->cuda_lacks[0])
        ndp_findings_add(out, "GPUs", NDP_FINDING_PROBLEM,
                         "make cuda (the plugin), and the driver that `nvidia-smi` shows; see docs/guide/gpus.md",
                         "%d GPU%s here, which cannot be used: %s", f->nvidia, f->nvidia == 1 ? "" : "s",
                         f->cuda_lacks);
    else
        ndp_findings_add(out, "GPUs", NDP_FINDING_OK, NULL, f->nvidia ? "%d" : "none", f->nvidia);
}

static void check_clock(const ndp_host_facts *f, ndp_findings *out) {
    if (!f->synchronized && f->several_hosts)
        ndp_findings_add(out, "clock", NDP_FINDING_NOTE, "apt install chrony", "nothing keeps it right (no NTP)");
    else
        ndp_findings_add(out, "clock", NDP_FINDING_OK, NULL, f->synchronized ? "kept right by NTP" : "of this host");
}

/* ---- disks ---- */

/* Below this no checkpoint of a model worth training fits; a run goes on without saves, and loses them all. */
static int64_t least_free(const ndp_disk_facts *d) { return d->need_bytes ? d->need_bytes : 256 * MIB; }

static void check_disk(const ndp_disk_facts *d, ndp_findings *out) {
    char name[64];
    snprintf(name, sizeof name, "disk of %s", d->what);
    if (d->lacks[0])
        ndp_findings_add(out, name, NDP_FINDING_PROBLEM, "free some space, correct its permissions, or name another",
                         "%s cannot be written to: %s", d->path, d->lacks);
    else if (d->free_bytes < least_free(d))
        ndp_findings_add(out, name, NDP_FINDING_PROBLEM,
                         "free some space, name another disk, or set checkpoint.keep to keep fewer checkpoints",
                         "%s has %s free of %s; %s", d->path, human(d->free_bytes).text, human(d->total_bytes).text,
                         d->need_bytes ? "a checkpoint and the model of this job need more" : "it is full");
    else
        ndp_findings_add(out, name, NDP_FINDING_OK, NULL, "%s, %s free of %s", d->path, human(d->free_bytes).text,
                         human(d->total_bytes).text);
    if (fabs(d->clock_ahead) > 2)
        ndp_findings_add(out, "clock", NDP_FINDING_PROBLEM, "apt install chrony, on this host and on that of the disk",
                         "the time of a new file in %s is %.0f s %s this host's clock", d->path, fabs(d->clock_ahead),
                         d->clock_ahead > 0 ? "ahead of" : "behind");
}

void ndp_host_checkup(const ndp_host_facts *f, ndp_findings *out) {
    static void (*const checks[])(const ndp_host_facts *, ndp_findings *) = {
        check_processor, check_threads, check_memory, check_swap, check_huge_pages, check_shm,
        check_limits,    check_python,  check_mpi,    check_name, check_gpus,       check_clock};
    for (int i = 0; i < NDP_COUNT(checks); i++)
        checks[i](f, out);
    for (int i = 0; i < f->n_disks; i++)
        check_disk(&f->disks[i], out);
}
