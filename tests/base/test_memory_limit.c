/* The limits of control groups by trees of files as the kernel shows them: version 1, version 2, both at once,
 * namespaces; and limits of the process by real ones. */
#include "base/memory_limit.h"
#include "base/text.h"
#include "check.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((int64_t)1 << 20)

/* ---- a tree ---- */

static int make_tree(void **state) {
    char *root = strdup("/tmp/ndp_limit_XXXXXX");
    *state = root;
    return root && mkdtemp(root) ? 0 : -1;
}

static int remove_tree(void **state) {
    ndp_status st = ndp_folder_remove(*state);
    free(*state);
    return st == NDP_OK ? 0 : -1;
}

__attribute__((format(printf, 3, 4))) static void put(const char *root, const char *name, const char *fmt, ...) {
    char text[2048], *path = ndp_format("%s/%s", root, name), *slash = strrchr(path, '/');
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    *slash = '\0';
    CHECK_OK(ndp_folder_create(path));
    *slash = '/';
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(path);
}

static void put_machine(const char *root, int64_t available, const char *cgroup, const char *mounts) {
    put(root, "proc/meminfo", "MemTotal:  %lld kB\nMemFree:  1 kB\nMemAvailable:   %lld kB\n",
        (long long)(available * 1024 * 2), (long long)(available * 1024));
    put(root, "proc/self/cgroup", "%s", cgroup);
    put(root, "proc/self/mountinfo", "23 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n%s", mounts);
}

/* MiB; limit -1: none. */
static void put_v1(const char *root, const char *group, int64_t limit, int64_t usage, int64_t inactive,
                   int64_t active) {
    char *name = ndp_format("%s/memory.limit_in_bytes", group);
    put(root, name, "%lld\n", limit < 0 ? 9223372036854771712LL : (long long)(limit * MIB));
    free(name);
    put(root, name = ndp_format("%s/memory.usage_in_bytes", group), "%lld\n", (long long)(usage * MIB));
    free(name);
    put(root, name = ndp_format("%s/memory.use_hierarchy", group), "1\n");
    free(name);
    put(root, name = ndp_format("%s/memory.stat", group),
        "cache 1\ninactive_file 7\nactive_file 7\nhierarchical_memory_limit 9223372036854771712\n"
        "total_inactive_file %lld\ntotal_active_file %lld\n",
        (long long)(inactive * MIB), (long long)(active * MIB));
    free(name);
}

static void put_v2(const char *root, const char *group, int64_t most, int64_t high, int64_t usage, int64_t files) {
    char *name = ndp_format("%s/memory.max", group), number[32];
    snprintf(number, sizeof number, "%lld", (long long)(most * MIB));
    put(root, name, "%s\n", most < 0 ? "max" : number);
    free(name);
    snprintf(number, sizeof number, "%lld", (long long)(high * MIB));
    put(root, name = ndp_format("%s/memory.high", group), "%s\n", high < 0 ? "max" : number);
    free(name);
    put(root, name = ndp_format("%s/memory.current", group), "%lld\n", (long long)(usage * MIB));
    free(name);
    put(root, name = ndp_format("%s/memory.stat", group), "anon 5\nfile 3\ninactive_file %lld\nactive_file 0\n",
        (long long)(files * MIB));
    free(name);
}

static void expect(const char *root, int64_t mib, const char *words) {
    ndp_memory_limit limit;
    ndp_memory_limit_host(root, &limit);
    if (limit.bytes != mib * MIB || !strstr(limit.what, words))
        fail_msg("%lld bytes by %s, expected %lld by %s", (long long)limit.bytes, limit.what, (long long)(mib * MIB),
                 words);
}

/* ---- control groups ---- */

static const char v1_mount[] = "30 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
                               "34 30 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                               "35 30 0:32 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n";
static const char v2_mount[] = "30 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

static void without_groups(void **state) {
    put_machine(*state, 1000, "", "");
    expect(*state, 1000, "MemAvailable in /proc/meminfo");
}

static void nothing_at_all(void **state) {
    ndp_memory_limit limit;
    ndp_memory_limit_host(*state, &limit);
    assert_true(limit.bytes == INT64_MAX);
}

static void version_1(void **state) {
    put_machine(*state, 1000, "9:name=systemd:/x\n5:cpu,cpuacct:/y\n4:memory:/a/b\n0::/z\n", v1_mount);
    put_v1(*state, "sys/fs/cgroup/memory", -1, 900, 0, 0);
    put_v1(*state, "sys/fs/cgroup/memory/a", -1, 500, 0, 0);
    put_v1(*state, "sys/fs/cgroup/memory/a/b", -1, 400, 0, 0);
    expect(*state, 1000, "MemAvailable");
    put_v1(*state, "sys/fs/cgroup/memory/a/b", 600, 400, 50, 30); /* pages of files can be dropped */
    expect(*state, 280, "/memory/a/b/memory.limit_in_bytes of 600.0 MiB, 320.0 MiB in use");
    put_v1(*state, "sys/fs/cgroup/memory/a", 700, 500, 0, 0); /* an ancestor, with more in it */
    expect(*state, 200, "/memory/a/memory.limit_in_bytes of 700.0 MiB");
    put_v1(*state, "sys/fs/cgroup/memory/a", 700, 900, 0, 0); /* lowered below what is in use */
    expect(*state, 0, "/memory/a/memory.limit_in_bytes");
    put(*state, "sys/fs/cgroup/memory/a/memory.use_hierarchy", "0\n"); /* does not count its children */
    expect(*state, 280, "/memory/a/b/memory.limit_in_bytes");
    put_v1(*state, "sys/fs/cgroup/memory/z", 1, 0, 0, 0); /* of others */
    expect(*state, 280, "/memory/a/b/memory.limit_in_bytes");
}

static void version_2(void **state) {
    put_machine(*state, 1000, "0::/user.slice/job\n", v2_mount);
    put_v2(*state, "sys/fs/cgroup/user.slice", -1, -1, 500, 0);
    put_v2(*state, "sys/fs/cgroup/user.slice/job", -1, -1, 400, 0);
    expect(*state, 1000, "MemAvailable");
    put_v2(*state, "sys/fs/cgroup/user.slice/job", 450, -1, 400, 300);
    expect(*state, 350, "/user.slice/job/memory.max of 450.0 MiB, 100.0 MiB in use");
    put_v2(*state, "sys/fs/cgroup/user.slice/job", 450, 320, 400, 300);
    expect(*state, 220, "/user.slice/job/memory.high of 320.0 MiB");
    put_v2(*state, "sys/fs/cgroup/user.slice", 510, -1, 500, 0);
    expect(*state, 10, "/user.slice/memory.max of 510.0 MiB");
}

/* Memory is in version 1, processes are also counted by version 2; and the other way round. */
static void both_versions(void **state) {
    static const char mounts[] = "35 30 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                 "41 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    put_machine(*state, 1000, "4:memory:/one\n0::/two\n", mounts);
    put_v1(*state, "sys/fs/cgroup/memory/one", 100, 40, 0, 0);
    put(*state, "sys/fs/cgroup/unified/two/cgroup.procs", "1\n");
    expect(*state, 60, "/memory/one/memory.limit_in_bytes");
    put_v2(*state, "sys/fs/cgroup/unified/two", 30, -1, 10, 0);
    expect(*state, 20, "/unified/two/memory.max");
}

/* A container sees a part of the tree. In version 1 it also knows of the limits above. */
static void containers(void **state) {
    put_machine(*state, 1000, "4:memory:/docker/abc\n",
                "35 30 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put_v1(*state, "sys/fs/cgroup/memory", 300, 100, 0, 0);
    put_v1(*state, "sys/fs/cgroup/memory/docker/abc", 1, 0, 0, 0); /* a group of that name inside is another one */
    expect(*state, 200, "/sys/fs/cgroup/memory/memory.limit_in_bytes of 300.0 MiB");
    put(*state, "sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit %lld\ntotal_inactive_file 0\n",
        (long long)(150 * MIB));
    expect(*state, 50, "hierarchical_memory_limit of 150.0 MiB");
    put_machine(*state, 1000, "0::/\n", v2_mount); /* a namespace of its own */
    put_v2(*state, "sys/fs/cgroup", 80, -1, 20, 0);
    expect(*state, 60, "/sys/fs/cgroup/memory.max");
    put_machine(*state, 1000, "0::/docker/abcd\n", "35 30 0:32 /docker/abc /cg rw - cgroup2 cgroup2 rw\n");
    put_v2(*state, "cg", 1, -1, 0, 0); /* another container's */
    expect(*state, 1000, "MemAvailable");
}

/* `unshare --cgroup` without a mount of its own: the root of the namespace lies two levels below the mount. */
static void namespaces(void **state) {
    put_machine(*state, 1000, "4:memory:/\n", "35 30 0:32 /../.. /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put_v1(*state, "sys/fs/cgroup/memory/pods/other", 1, 0, 0, 0);
    put(*state, "sys/fs/cgroup/memory/pods/other/cgroup.procs", "1\n");
    put_v1(*state, "sys/fs/cgroup/memory/pods/mine", 300, 100, 0, 0);
    put(*state, "sys/fs/cgroup/memory/pods/mine/cgroup.procs", "1\n%d\n", (int)getpid());
    put_v1(*state, "sys/fs/cgroup/memory/pods", 150, 100, 0, 0);
    expect(*state, 50, "/sys/fs/cgroup/memory/pods/memory.limit_in_bytes");
}

static void names_with_blanks(void **state) {
    put_machine(*state, 1000, "0::/a b\n", "35 30 0:32 / /my\\040groups rw - cgroup2 cgroup2 rw\n");
    put_v2(*state, "my groups/a b", 80, -1, 20, 0);
    expect(*state, 60, "/my groups/a b/memory.max");
}

static void broken_files(void **state) {
    put_machine(*state, 1000, "nonsense\n4:memory\n0::/a\n", "1\n35 30 0:32 / /cg rw\n35 30 0:32 / /cg rw - cgroup2\n");
    expect(*state, 1000, "MemAvailable");
    put_machine(*state, 1000, "0::/a\n", "35 30 0:32 / /cg rw - cgroup2 cgroup2 rw\n");
    put(*state, "cg/a/memory.max", "many\n");
    expect(*state, 1000, "MemAvailable");
    put(*state, "cg/a/memory.max", "%lld", (long long)(70 * MIB)); /* nothing says what is in use */
    expect(*state, 70, "/cg/a/memory.max");
}

/* ---- this machine ---- */

static void this_machine(void **state) {
    (void)state;
    ndp_memory_limit limit;
    ndp_memory_limit_host("", &limit);
    print_message("%.1f MiB by %s\n", (double)limit.bytes / MIB, limit.what);
    /* How much there is changes from one moment to the next, and may be nothing. */
    assert_true(limit.bytes >= 0 && limit.bytes < INT64_MAX && limit.what[0]);
    assert_true(ndp_memory_available() >= 0 && ndp_memory_available() < INT64_MAX);
}

static void limit_child(int resource, int64_t most) {
    struct rlimit limit = {.rlim_cur = (rlim_t)most, .rlim_max = RLIM_INFINITY};
    ndp_memory_limit space, data;
    if (setrlimit((__rlimit_resource_t)resource, &limit))
        _exit(1);
    ndp_memory_limit_address_space(&space);
    ndp_memory_limit_data(&data);
    const ndp_memory_limit *set = resource == RLIMIT_AS ? &space : &data, *other = set == &space ? &data : &space;
    if (other->bytes != INT64_MAX || set->bytes <= 0 || set->bytes >= most || ndp_memory_available() > set->bytes ||
        !strstr(set->what, resource == RLIMIT_AS ? "RLIMIT_AS of 1.0 PiB, " : "RLIMIT_DATA of 1.0 PiB, "))
        _exit(2);
    _exit(0);
}

static void limits_of_the_process(void **state) {
    (void)state;
    static const int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < NDP_COUNT(resources); i++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            limit_child(resources[i], (int64_t)1 << 50);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, make_tree, remove_tree)

int main(void) {
    const struct CMUnitTest tests[] = {
        TREE_TEST(without_groups),
        TREE_TEST(nothing_at_all),
        TREE_TEST(version_1),
        TREE_TEST(version_2),
        TREE_TEST(both_versions),
        TREE_TEST(containers),
        TREE_TEST(namespaces),
        TREE_TEST(names_with_blanks),
        TREE_TEST(broken_files),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(limits_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
