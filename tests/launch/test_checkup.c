/* The rules of `doctor`: a host without a fault has no finding but those that are ok, and each fault, seeded in the
 * facts, is found by name with a remedy. What other hosts answer. Facts read from a made /proc. */
#include "check.h"
#include "launch/checkup.h"

#include <sys/stat.h>

#define GIB ((int64_t)1 << 30)

/* A host on which everything is in order, of a run on several hosts. */
static ndp_host_facts healthy(void) {
    ndp_host_facts f = {.processor = "a processor",
                        .isa = "avx512",
                        .governor = "performance",
                        .cores = 8,
                        .online = 8,
                        .load = 0.5,
                        .ranks = 4,
                        .threads = 2,
                        .memory = 64 * GIB,
                        .available = 60 * GIB,
                        .swap = 8 * GIB,
                        .pressure = 0,
                        .shm = 32 * GIB,
                        .shm_free = 32 * GIB,
                        .memlock = -1,
                        .nofile = 65536,
                        .stack = 8 << 20,
                        .fsize = -1,
                        .infiniband = true,
                        .huge_pages = "madvise",
                        .host = "node-1",
                        .resolves = true,
                        .python = "/usr/bin/python3",
                        .python_version = "3.12",
                        .pyarrow = "17.0.0",
                        .jinja2 = "3.1",
                        .wants_tables = true,
                        .wants_templates = true,
                        .mpirun = "(Open MPI) 4.1.4",
                        .several_hosts = true,
                        .nvidia = 2,
                        .synchronized = true,
                        .disks = {{.what = "train.output_dir",
                                   .path = "runs",
                                   .free_bytes = 100 * GIB,
                                   .total_bytes = 200 * GIB,
                                   .need_bytes = 10 * GIB}},
                        .n_disks = 1};
    return f;
}

/* The finding of a name that is not ok; NULL: there is none. */
static const ndp_finding *find(const ndp_findings *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->items[i].name, name) == 0 && f->items[i].state != NDP_FINDING_OK)
            return &f->items[i];
    return NULL;
}

static int count_bad(const ndp_findings *f) {
    int n = 0;
    for (int i = 0; i < f->n; i++)
        n += f->items[i].state != NDP_FINDING_OK;
    return n;
}

/* Only the check `name` finds something, of that state, whose text has `words`, with a remedy. */
static void finds(const ndp_host_facts *facts, const char *name, ndp_finding_state state, const char *words) {
    ndp_findings f = {0};
    ndp_str text = {0};
    ndp_host_checkup(facts, &f);
    ndp_findings_print(&f, &text);
    const ndp_finding *one = find(&f, name);
    if (!one || one->state != state || !strstr(one->found, words) || !one->remedy || count_bad(&f) != 1)
        fail_msg("not %s: %s ... '%s' alone:\n%s", ndp_finding_state_name(state), name, words, text.data);
    assert_int_equal(ndp_findings_problems(&f), state == NDP_FINDING_PROBLEM);
    ndp_str_release(&text);
    ndp_findings_release(&f);
}

static void a_healthy_host(void **state) {
    (void)state;
    ndp_host_facts facts = healthy();
    ndp_findings f = {0};
    ndp_host_checkup(&facts, &f);
    for (int i = 0; i < f.n; i++)
        if (f.items[i].state != NDP_FINDING_OK || f.items[i].remedy)
            fail_msg("%s: %s", f.items[i].name, f.items[i].found);
    assert_true(f.n >= 12);
    ndp_findings_release(&f);
}

/* seeds(ASSIGNMENT, ...): a healthy host, but for that. */
#define seeds(assignment, ...)                                                                                         \
    do {                                                                                                               \
        ndp_host_facts f = healthy();                                                                                  \
        f.assignment;                                                                                                  \
        finds(&f, __VA_ARGS__);                                                                                        \
    } while (0)

static void seeded_faults(void **state) {
    (void)state;
    seeds(threads = 4, "threads", NDP_FINDING_PROBLEM, "4 ranks of 4 threads (train.threads) on 8 cores");
    seeds(ranks = 9, "threads", NDP_FINDING_PROBLEM, "9 ranks");
    seeds(load = 20, "load", NDP_FINDING_NOTE, "20.0 on 8 cores");
    seeds(isa[0] = '\0'; strcpy(f.isa, "generic"), "processor", NDP_FINDING_NOTE, "generic");
    seeds(governor[0] = '\0'; strcpy(f.governor, "powersave"), "frequency", NDP_FINDING_NOTE, "powersave");
    seeds(available = GIB, "memory", NDP_FINDING_NOTE, "1.0 GiB of 64.0 GiB available");
    seeds(swapped = 900, "swap", NDP_FINDING_PROBLEM, "this host swaps: 900 pages a second");
    seeds(pressure = 40, "swap", NDP_FINDING_PROBLEM, "waited for memory 40%");
    seeds(swap_used = 7 * GIB, "swap", NDP_FINDING_NOTE, "7.0 GiB of 8.0 GiB swap in use");
    seeds(huge_pages[0] = '\0'; strcpy(f.huge_pages, "never"), "huge pages", NDP_FINDING_NOTE, "never");
    seeds(shm = 64 << 20, "/dev/shm", NDP_FINDING_PROBLEM, "64.0 MiB");
    seeds(shm_free = 1 << 20, "/dev/shm", NDP_FINDING_PROBLEM, "1.0 MiB free");
    seeds(shm = -1, "/dev/shm", NDP_FINDING_PROBLEM, "there is none");
    seeds(memlock = 64 << 10, "memlock", NDP_FINDING_PROBLEM, "64.0 KiB may be locked");
    seeds(nofile = 512, "open files", NDP_FINDING_NOTE, "512");
    seeds(nofile = 100, "open files", NDP_FINDING_PROBLEM, "100");
    seeds(stack = 64 << 10, "stack", NDP_FINDING_PROBLEM, "64.0 KiB");
    seeds(fsize = 1 << 20, "file size", NDP_FINDING_PROBLEM, "1.0 MiB");
    seeds(python_version[0] = '\0', "Python", NDP_FINDING_PROBLEM, "does not run");
    seeds(pyarrow[0] = '\0', "pyarrow", NDP_FINDING_PROBLEM, "missing from /usr/bin/python3");
    seeds(jinja2[0] = '\0', "jinja2", NDP_FINDING_PROBLEM, "missing from /usr/bin/python3");
    seeds(mpirun[0] = '\0', "MPI", NDP_FINDING_PROBLEM, "no mpirun");
    seeds(mpi_lacks[0] = '\0'; strcpy(f.mpi_lacks, "no plugin"), "MPI", NDP_FINDING_PROBLEM, "no plugin");
    seeds(resolves = false, "host name", NDP_FINDING_NOTE, "node-1 does not resolve");
    seeds(cuda_lacks[0] = '\0'; strcpy(f.cuda_lacks, "no driver"), "GPUs", NDP_FINDING_PROBLEM, "no driver");
    seeds(synchronized = false, "clock", NDP_FINDING_NOTE, "NTP");
    seeds(disks[0].free_bytes = GIB, "disk of train.output_dir", NDP_FINDING_PROBLEM, "1.0 GiB free of 200.0 GiB");
    seeds(disks[0].lacks[0] = '\0';
          strcpy(f.disks[0].lacks, "No space left"), "disk of train.output_dir", NDP_FINDING_PROBLEM, "No space left");
    seeds(disks[0].clock_ahead = -60, "clock", NDP_FINDING_PROBLEM, "60 s behind this host's clock");
    seeds(threads = 0; f.omp_threads = 64, "threads", NDP_FINDING_PROBLEM, "64 threads (OMP_NUM_THREADS)");
    /* What nothing of the run needs is a note. */
    seeds(wants_tables = false; f.pyarrow[0] = '\0', "pyarrow", NDP_FINDING_NOTE, "missing");
    seeds(nvidia = 0; f.several_hosts = false; f.shm = 64 << 20, "/dev/shm", NDP_FINDING_NOTE, "64.0 MiB");
}

/* A quota below the cores is a note, and counts as the cores for the threads. */
static void a_quota(void **state) {
    (void)state;
    ndp_host_facts facts = healthy();
    ndp_findings f = {0};
    facts.quota = 2;
    ndp_host_checkup(&facts, &f);
    assert_int_equal(count_bad(&f), 2);
    assert_non_null(find(&f, "processor quota"));
    assert_non_null(strstr(find(&f, "threads")->found, "on 2 cores"));
    ndp_findings_release(&f);
}

/* ---- answers ---- */

static void answers(const char *text, int code, const char *name, const char *words) {
    ndp_findings f = {0};
    const ndp_host_answer a = {.host = "node-2", .text = strdup(text), .code = code, .began = 1000, .ended = 1001};
    ndp_host_answer_checkup(&a, "0.1.0", "aa", &f);
    const ndp_finding *one = name ? find(&f, name) : NULL;
    if (name && (!one || one->state != NDP_FINDING_PROBLEM || !one->remedy || !strstr(one->found, words)))
        fail_msg("no %s of '%s': %s", name, words, one ? one->found : "nothing");
    assert_int_equal(count_bad(&f), name != NULL);
    free(a.text);
    ndp_findings_release(&f);
}

static void other_hosts(void **state) {
    (void)state;
#define REPORT(version, time, data, checks)                                                                            \
    "Welcome to node-2\n{\"version\": \"" version "\", \"time\": " time ", \"data\": \"" data                          \
    "\", \"checks\": [" checks "]}\n"
    answers(REPORT("0.1.0", "1000.5", "aa", "{\"name\": \"memory\", \"state\": \"ok\", \"found\": \"\"}"), 0, NULL, "");
    answers(REPORT("0.0.9", "1000.5", "aa", ""), 0, "node-2: version", "0.0.9, here 0.1.0");
    answers(REPORT("0.1.0", "1061", "aa", ""), 0, "node-2: clock", "about 60 s ahead of this host's");
    answers(REPORT("0.1.0", "940", "aa", ""), 0, "node-2: clock", "about 61 s behind this host's");
    answers(REPORT("0.1.0", "1000.5", "bb", ""), 0, "node-2: data", "other files");
    answers(REPORT("0.1.0", "1000.5", "aa",
                   "{\"name\": \"swap\", \"state\": \"problem\", \"found\": \"it swaps\", \"remedy\": \"swapoff\"}"),
            1, "node-2: swap", "it swaps");
    answers("ssh: connect to host node-2: No route to host\n", 255, "node-2: ssh", "No route to host");
    answers("", -1, "node-2: ssh", "no answer");
    answers("sh: 1: /opt/ndparallel: not found\n", 127, "node-2: ssh", "does not run there: exit code 127: sh: 1:");
    answers("{\"checks\"", 0, "node-2: ssh", "does not run there");
    answers("", 0, "node-2: ssh", "does not run there");
}

/* ---- facts ---- */

static void write_to(const char *root, const char *path, const char *text) {
    char *whole = ndp_format("%s%s", root, path), *slash = strrchr(whole, '/');
    *slash = '\0';
    CHECK_OK(ndp_folder_create(whole));
    *slash = '/';
    FILE *f = fopen(whole, "w");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
    free(whole);
}

static void facts_of_a_made_system(void **state) {
    char root[] = "/tmp/ndp-checkup-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(root));
    write_to(root, "/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\nSwapTotal: 400 kB\nSwapFree: 100 kB\n");
    write_to(root, "/proc/vmstat", "pswpin 7\npswpout 9\n");
    write_to(root, "/proc/loadavg", "3.25 1 1 1/1 1\n");
    write_to(root, "/proc/pressure/memory", "some avg10=1.00 avg60=12.50 avg300=0.00 total=1\nfull avg10=0\n");
    write_to(root, "/proc/self/cgroup", "0::/a/b\n");
    write_to(root, "/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    write_to(root, "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    write_to(root, "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    write_to(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    write_to(root, "/sys/class/infiniband/mlx5_0", "");
    ndp_host_facts *f = calloc(1, sizeof *f);
    assert_non_null(f);
    ndp_host_facts_read(root, f);
    assert_int_equal(f->memory, 1000 * 1024);
    assert_int_equal(f->swap, 400 * 1024);
    assert_int_equal(f->swap_used, 300 * 1024);
    assert_true(f->swapped == 0 && f->load == 3.25 && f->pressure == 12.5 && f->quota == 1.5);
    assert_string_equal(f->huge_pages, "never");
    assert_string_equal(f->governor, "powersave");
    assert_true(f->infiniband && f->shm == -1 && f->nvidia == 0);
    ndp_host_facts_disk(f, "here", root, 0);
    assert_true(f->n_disks == 1 && f->disks[0].free_bytes > 0 && !f->disks[0].lacks[0] && f->disks[0].clock_ahead == 0);
    free(f);
    CHECK_OK(ndp_folder_remove(root));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_healthy_host), cmocka_unit_test(seeded_faults),
                                       cmocka_unit_test(a_quota), cmocka_unit_test(other_hosts),
                                       cmocka_unit_test(facts_of_a_made_system)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
