/* Who holds a lock: a process, described by host, boot, pid namespace, pid and start time, so that no two processes
 * have the same description; whether it still lives; and its text in the lock file. Called by lock.c and heartbeat.c.
 */
#include "checkpoint/holder.h"

#include "base/json.h"
#include "checkpoint/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- processes ---- */

/* The start of a small file, as text. False if it cannot be read. */
static bool read_small(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return n > 0;
}

typedef struct process {
    char state;
    int64_t threads, start_time;
} process;

/* Parses /proc/PID/stat. The name in its second field may contain spaces and brackets. */
static bool read_process(const char *path, process *p) {
    char text[1024];
    const char *after = read_small(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    long long threads, start;
    /* fields 3; 20; 22 */
    int n = after ? sscanf(after, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld %*s %lld",
                           &p->state, &threads, &start)
                  : 0;
    if (n == 3) {
        p->threads = threads;
        p->start_time = start;
    }
    return n == 3;
}

/* Keeps letters, digits and "._-" of `from`, so that the text is safe in a message and in JSON. */
static void copy_name(char *to, size_t size, const char *from) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = 0;
    for (; n + 1 < size && from[n] && from[n] != '\n'; n++)
        to[n] = strchr(plain, from[n]) ? from[n] : '?';
    to[n] = '\0';
}

void ndp_holder_self(ndp_holder *out) {
    char text[256] = "";
    process p;
    struct stat space;
    *out = (ndp_holder){.pid = getpid()};
    if (gethostname(text, sizeof text - 1) == 0)
        copy_name(out->host, sizeof out->host, text);
    const char *launcher = getenv("NDP_LAUNCHER");
    copy_name(out->launcher, sizeof out->launcher, launcher ? launcher : "");
    if (read_small("/etc/machine-id", text, sizeof text) || read_small("/var/lib/dbus/machine-id", text, sizeof text))
        copy_name(out->machine_id, sizeof out->machine_id, text);
    if (read_small("/proc/sys/kernel/random/boot_id", text, sizeof text))
        copy_name(out->boot_id, sizeof out->boot_id, text);
    if (read_process("/proc/self/stat", &p))
        out->start_time = p.start_time;
    if (stat("/proc/self/ns/pid", &space) == 0)
        out->pid_namespace = (int64_t)space.st_ino;
}

bool ndp_holder_same(const ndp_holder *a, const ndp_holder *b) {
    return strcmp(a->host, b->host) == 0 && strcmp(a->boot_id, b->boot_id) == 0 && a->pid == b->pid &&
           a->start_time == b->start_time && a->pid_namespace == b->pid_namespace && a->generation == b->generation;
}

/* /proc may show another pid namespace than this process's own. */
static bool proc_is_ours(void) {
    char text[32] = "";
    ssize_t n = readlink("/proc/self", text, sizeof text - 1);
    return n > 0 && atoll(text) == (long long)getpid();
}

/* Whether the holder ran on this machine before it was last booted.
 *
 * The machine id says which machine it was: it is drawn when a system is installed, and stays over boots. Neither it
 * nor the host name would be enough. Machines cloned from one image may share the id, but then have other names; and a
 * name such as `localhost` says nothing by itself.
 *
 * Containers are the exception: those made from one image may share its id, and an orchestrator starts them under the
 * same name on another machine, where the boot id differs although the first one still runs. So the pid namespace must
 * also be the same. Outside containers it is the initial one, whose number is a constant of Linux, on every boot.
 * Inside them the number is drawn by the kernel, so one of another machine or boot differs, except by chance; a holder
 * that this would misjudge still finds another generation in its lock, and commits nothing. */
static bool is_of_earlier_boot(const ndp_holder *h, const ndp_holder *self) {
    bool known = h->machine_id[0] && h->boot_id[0] && self->boot_id[0] && h->pid_namespace;
    return known && strcmp(h->machine_id, self->machine_id) == 0 && strcmp(h->host, self->host) == 0 &&
           h->pid_namespace == self->pid_namespace && strcmp(h->boot_id, self->boot_id) != 0;
}

ndp_holder_state ndp_holder_judge(const ndp_holder *h, const ndp_holder *self) {
    if (is_of_earlier_boot(h, self))
        return NDP_HOLDER_DEAD;
    bool here = h->boot_id[0] && strcmp(h->boot_id, self->boot_id) == 0 && h->pid_namespace &&
                h->pid_namespace == self->pid_namespace;
    if (!here)
        return NDP_HOLDER_ELSEWHERE;
    if (kill((pid_t)h->pid, 0) && errno == ESRCH)
        return NDP_HOLDER_DEAD;
    char path[64];
    process p;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)h->pid);
    if (!h->start_time || !proc_is_ours() || !read_process(path, &p))
        return NDP_HOLDER_ELSEWHERE; /* a process has that number, but it cannot be identified */
    /* A zombie no longer writes, unless only its first thread has ended. */
    bool ended = (p.state == 'Z' || p.state == 'X') && p.threads <= 1;
    return p.start_time != h->start_time || ended ? NDP_HOLDER_DEAD : NDP_HOLDER_ALIVE;
}

/* "LAUNCHER.N", of which N grows with each start. */
bool ndp_holder_given_up(const ndp_holder *h, const ndp_holder *self) {
    const char *before = strrchr(h->launcher, '.'), *now = strrchr(self->launcher, '.');
    return before && now && before - h->launcher == now - self->launcher &&
           memcmp(h->launcher, self->launcher, (size_t)(now - self->launcher)) == 0 && atoi(before + 1) < atoi(now + 1);
}

/* ---- a word ---- */

static uint32_t hash_of(const char *text) { return (uint32_t)ndp_hash_of(text, strlen(text)).low; }

static uint32_t machine_of(const ndp_holder *h) {
    char text[160];
    snprintf(text, sizeof text, "%s %s %lld", h->host, h->machine_id, (long long)h->pid_namespace);
    return hash_of(text);
}

void ndp_holder_word(const ndp_holder *h, char word[NDP_HOLDER_WORD]) {
    snprintf(word, NDP_HOLDER_WORD, "%08x-%08x-%lld-%lld", machine_of(h), hash_of(h->boot_id), (long long)h->pid,
             (long long)h->start_time);
}

bool ndp_holder_of_word(const char *text, const ndp_holder *self, ndp_holder *out) {
    unsigned machine, boot;
    long long pid, start;
    if (sscanf(text, "%8x-%8x-%lld-%lld", &machine, &boot, &pid, &start) != 4 || pid < 1 || pid > INT32_MAX)
        return false;
    *out = *self;
    out->pid = pid;
    out->start_time = start;
    if (machine != machine_of(self))
        *out = (ndp_holder){.pid = pid};
    else if (boot != hash_of(self->boot_id))
        snprintf(out->boot_id, sizeof out->boot_id, "another");
    return true;
}

/* ---- the file ---- */

int ndp_holder_text(const ndp_holder *h, char text[NDP_HOLDER_TEXT], int *counter) {
    int head = snprintf(text, NDP_HOLDER_TEXT,
                        "{\"host\": \"%s\", \"machine_id\": \"%s\", \"pid\": %lld, \"start_time\": %lld, "
                        "\"boot_id\": \"%s\", \"pid_namespace\": %lld, \"launcher\": \"%s\", \"generation\": %lld, "
                        "\"counter\": ",
                        h->host, h->machine_id, (long long)h->pid, (long long)h->start_time, h->boot_id,
                        (long long)h->pid_namespace, h->launcher, (long long)h->generation);
    *counter = head;
    return head + snprintf(text + head, (size_t)(NDP_HOLDER_TEXT - head), "%*lld}\n", NDP_HOLDER_COUNTER,
                           (long long)h->counter);
}

static ndp_status parse(struct json_object *o, const char *path, ndp_holder *h) {
    const char *host = NULL, *machine_id = "", *boot_id = "", *launcher = "";
    h->pid = h->generation = -1;
    NDP_TRY(ndp_json_string(o, path, "host", &host));
    NDP_TRY(ndp_json_string(o, path, "machine_id", &machine_id)); /* locks of earlier versions have none */
    NDP_TRY(ndp_json_string(o, path, "boot_id", &boot_id));
    NDP_TRY(ndp_json_string(o, path, "launcher", &launcher));
    NDP_TRY(ndp_json_int(o, path, "pid", 1, INT32_MAX, &h->pid));
    NDP_TRY(ndp_json_int(o, path, "start_time", 0, INT64_MAX, &h->start_time));
    NDP_TRY(ndp_json_int(o, path, "pid_namespace", 0, INT64_MAX, &h->pid_namespace));
    NDP_TRY(ndp_json_int(o, path, "generation", 1, INT64_MAX / 2, &h->generation));
    NDP_TRY(ndp_json_int(o, path, "counter", 0, INT64_MAX, &h->counter));
    if (!host || h->pid < 0 || h->generation < 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: host, pid or generation is missing", path);
    copy_name(h->host, sizeof h->host, host);
    copy_name(h->machine_id, sizeof h->machine_id, machine_id);
    copy_name(h->boot_id, sizeof h->boot_id, boot_id);
    copy_name(h->launcher, sizeof h->launcher, launcher);
    return NDP_OK;
}

static ndp_status no_lock(const char *path) {
    char cause[512];
    snprintf(cause, sizeof cause, "%s", ndp_error_message());
    return NDP_FAIL(NDP_EFORMAT, "'%s' is not the lock of a run: %s; remove it if no run writes into that folder", path,
                    cause);
}

/* Reads up to NDP_HOLDER_TEXT bytes of a regular file. */
static ndp_status read_text(const char *path, char text[NDP_HOLDER_TEXT], ssize_t *size, bool *there) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    *there = fd >= 0 || (errno != ENOENT && errno != ENOTDIR);
    if (!*there)
        return NDP_OK;
    bool regular = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    *size = regular ? read(fd, text, NDP_HOLDER_TEXT) : -1;
    ndp_status st = fd >= 0 && !regular ? NDP_FAIL(NDP_EFORMAT, "'%s' is not a regular file", path)
                    : *size < 0         ? NDP_FAIL(NDP_EIO, "cannot read '%s': %s", path, strerror(errno))
                                        : NDP_OK;
    if (fd >= 0)
        close(fd);
    return st;
}

ndp_status ndp_holder_read(const char *path, ndp_holder *out, bool *there) {
    char text[NDP_HOLDER_TEXT];
    ssize_t n = 0;
    struct json_object *o = NULL;
    ndp_holder h = {0};
    NDP_TRY(read_text(path, text, &n, there));
    if (!*there)
        return NDP_OK;
    ndp_status st = ndp_json_parse(text, (size_t)n, path, &o);
    if (st == NDP_OK && !json_object_is_type(o, json_type_object))
        st = NDP_FAIL(NDP_EFORMAT, "%s: it is not a JSON object", path);
    if (st == NDP_OK)
        st = parse(o, path, &h);
    json_object_put(o);
    if (st != NDP_OK)
        return no_lock(path);
    *out = h;
    return NDP_OK;
}
