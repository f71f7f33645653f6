/* Finding the control groups of this process. A line of /proc/self/cgroup names its group in one hierarchy; a line of
 * /proc/self/mountinfo says where a subtree of a hierarchy is mounted, and which subtree:
 *
 *     4:memory:/pods/a/job          35 31 0:32 /pods /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
 *     hierarchy:controllers:group   ... root ^    ^ mount point                 type         ^ controllers
 *
 * So the group's folder is the mount point plus the group's path below the root: /sys/fs/cgroup/memory/a/job. Its
 * ancestors are the folders above, up to the mount point. Version 2 has no controllers in either line. Both versions
 * may be mounted at once, with memory in one of them; the other one then has no limit files. */
#include "base/memory_limit.h"

#include "base/text.h"
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- files of numbers ---- */

/* NULL: there is no such file. The caller frees. */
static char *text_of(const char *path) {
    char *text;
    size_t size;
    return ndp_file_read(path, &text, &size) == NDP_OK ? text : NULL;
}

static char *text_in(const char *folder, const char *name) {
    char *path = ndp_format("%s/%s", folder, name), *text = path ? text_of(path) : NULL;
    free(path);
    return text;
}

/* The number after `key` at the start of a line; -1: there is none, or it is "max". */
static int64_t number_after(const char *text, const char *key) {
    size_t n = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        char *end;
        if (strncmp(line, key, n) != 0)
            continue;
        unsigned long long value = strtoull(line + n, &end, 10);
        return end == line + n ? -1 : value < INT64_MAX ? (int64_t)value : INT64_MAX;
    }
    return -1;
}

static int64_t number_in(const char *folder, const char *name) {
    char *text = text_in(folder, name);
    int64_t value = number_after(text, "");
    free(text);
    return value;
}

/* ---- groups ---- */

/* The file names of the two versions. */
typedef struct names {
    const char *limits[2], *usage, *file_pages[2];
} names;

static const names versions[] = {
    {{"memory.limit_in_bytes", NULL}, "memory.usage_in_bytes", {"total_inactive_file ", "total_active_file "}},
    {{"memory.max", "memory.high"}, "memory.current", {"inactive_file ", "active_file "}},
};

/* A search for the lowest limit. */
typedef struct lowest {
    ndp_memory_limit *out;
    int64_t more, least; /* as ndp_memory_limit_with has them */
} lowest;

static void lower(const lowest *l, int64_t limit, int64_t used, const char *folder, const char *name) {
    char of[16], in_use[16];
    ndp_memory_limit *out = l->out;
    bool few = used + l->more < l->least;
    used = few ? l->least : used + l->more;
    int64_t left = limit > used ? limit - used : 0;
    if (left >= out->bytes)
        return;
    out->bytes = left;
    snprintf(out->what, sizeof out->what, "%s/%s of %s, %s%s in use", folder, name, ndp_human_bytes((double)limit, of),
             ndp_human_bytes((double)used, in_use), few ? " counted as" : "");
}

/* The part of a group's usage that would remain if its file pages were dropped. */
static int64_t bytes_in_use(const names *v, const char *folder) {
    char *stat = text_in(folder, "memory.stat");
    int64_t used = number_in(folder, v->usage);
    for (int i = 0; i < NDP_COUNT(v->file_pages); i++) {
        int64_t pages = number_after(stat, v->file_pages[i]);
        used -= pages > 0 ? pages : 0;
    }
    free(stat);
    return used > 0 ? used : 0;
}

static void check_group(const names *v, const char *folder, const lowest *out) {
    for (int i = 0; i < NDP_COUNT(v->limits) && v->limits[i]; i++) {
        int64_t limit = number_in(folder, v->limits[i]);
        if (limit >= 0 && limit < INT64_MAX)
            lower(out, limit, bytes_in_use(v, folder), folder, v->limits[i]);
    }
}

/* Limits of `folder`, whose first `mount` bytes are the mount point, and of all groups above it. Stops at a group of
 * version 1 that does not include its children's usage. */
static void check_ancestors(const names *v, const char *folder, size_t mount, const lowest *out) {
    char *at = strdup(folder), *stat = text_in(folder, "memory.stat");
    for (char *slash; at; *slash = '\0') {
        check_group(v, at, out);
        slash = strrchr(at + mount, '/');
        char *parent = slash ? ndp_format("%.*s", (int)(slash - at), at) : NULL;
        bool counts = parent && number_in(parent, "memory.use_hierarchy") != 0;
        free(parent);
        if (!counts)
            break;
    }
    /* Version 1 also reports the least limit of ancestors that are not mounted here. */
    int64_t limit = number_after(stat, "hierarchical_memory_limit ");
    if (limit >= 0)
        lower(out, limit, bytes_in_use(v, folder), folder, "memory.stat: hierarchical_memory_limit");
    free(stat);
    free(at);
}

/* ---- positions ---- */

/* Whether a list "a,b,c" contains the word. */
static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* The group of this process in the hierarchy of version 2 (no controllers) or of the memory controller. Cuts the text
 * into lines, so each text can be used only once. */
static const char *group_path(char *cgroup, bool two) {
    char *rest = cgroup;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        (void)strsep(&line, ":");
        char *controllers = strsep(&line, ":");
        if (line && (two ? !*controllers : has_word(controllers, "memory")))
            return line;
    }
    return NULL;
}

static bool has_member(const char *folder) {
    char *text = text_in(folder, "cgroup.procs"), *rest = text;
    bool found = false;
    for (char *line; !found && (line = strsep(&rest, "\n")) != NULL;)
        found = atoll(line) == getpid();
    free(text);
    return found;
}

/* The group of this process among those `depth` levels below a folder; NULL: none; freed by the caller. */
static char *find_member(const char *folder, int depth) {
    char *found = NULL;
    if (depth == 0)
        return has_member(folder) ? strdup(folder) : NULL;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        char *below = e->d_type == DT_DIR && e->d_name[0] != '.' ? ndp_format("%s/%s", folder, e->d_name) : NULL;
        found = below ? find_member(below, depth - 1) : NULL;
        free(below);
    }
    if (d)
        closedir(d);
    return found;
}

static int count_parts(const char *path) {
    int n = 0;
    for (; *path; path++)
        n += *path == '/' && path[1] && path[1] != '/';
    return n;
}

/* The folder of the group `path`, where the subtree `part` of the hierarchy is mounted at `mount`; NULL: it is not in
 * that subtree. A process in a cgroup namespace sees paths relative to its root. A mount from outside then shows
 * "/../..": our root is two levels below it, in a folder that can be found only through its list of members. */
static char *group_folder(const char *mount, const char *part, const char *path) {
    size_t n = strcmp(part, "/") == 0 ? 0 : strlen(part);
    if (strncmp(path, part, n) == 0 && (path[n] == '/' || path[n] == '\0'))
        return ndp_format("%s%s", mount, strcmp(path + n, "/") == 0 ? "" : path + n);
    bool above = strncmp(part, "/..", 3) == 0 && strncmp(path, "/..", 3) != 0;
    return above ? find_member(mount, count_parts(part) + count_parts(path)) : NULL;
}

/* Unescapes "\040" (a space) and the like in place. */
static void unescape(char *text) {
    char *to = text;
    for (const char *at = text; *at; to++) {
        unsigned value;
        bool escaped = *at == '\\' && sscanf(at, "\\%3o", &value) == 1;
        *to = escaped ? (char)value : *at;
        at += escaped ? 4 : 1;
    }
    *to = '\0';
}

/* Handles one line of mountinfo; `cgroup` is the text of /proc/self/cgroup. */
static void check_mount(const char *root, char *line, const char *cgroup, const lowest *out) {
    enum { PART = 3, MOUNT = 4 };
    char *fields[6] = {NULL}, *word, *type, *options;
    for (int i = 0; i < NDP_COUNT(fields); i++)
        fields[i] = strsep(&line, " ");
    while ((word = strsep(&line, " ")) != NULL && strcmp(word, "-") != 0)
        ;
    type = strsep(&line, " ");
    (void)strsep(&line, " ");
    options = line;
    bool two = type && strcmp(type, "cgroup2") == 0;
    if (!options || !(two || (strcmp(type, "cgroup") == 0 && has_word(options, "memory"))))
        return;
    unescape(fields[PART]);
    unescape(fields[MOUNT]);
    char *lines = strdup(cgroup), *mount = ndp_format("%s%s", root, fields[MOUNT]);
    const char *path = lines ? group_path(lines, two) : NULL;
    char *folder = path && mount ? group_folder(mount, fields[PART], path) : NULL;
    if (folder)
        check_ancestors(&versions[two], folder, strlen(mount), out);
    free(folder);
    free(mount);
    free(lines);
}

static void check_groups(const char *root, const lowest *out) {
    char *cgroup = text_in(root, "proc/self/cgroup"), *mounts = text_in(root, "proc/self/mountinfo"), *rest = mounts;
    for (char *line; cgroup && (line = strsep(&rest, "\n")) != NULL;)
        check_mount(root, line, cgroup, out);
    free(mounts);
    free(cgroup);
}

void ndp_memory_limit_host(const char *root, ndp_memory_limit *out) { ndp_memory_limit_with(root, 0, 0, out); }

void ndp_memory_limit_with(const char *root, int64_t more, int64_t least, ndp_memory_limit *out) {
    char *meminfo = text_in(root, "proc/meminfo");
    int64_t kib = number_after(meminfo, "MemAvailable:");
    free(meminfo);
    *out = (ndp_memory_limit){INT64_MAX, "no limit is known"};
    if (kib >= 0) {
        out->bytes = kib * 1024 > more ? kib * 1024 - more : 0;
        snprintf(out->what, sizeof out->what, "MemAvailable in /proc/meminfo");
    }
    check_groups(root, &(lowest){out, more, least});
}

/* ---- this process ---- */

static void limit_of(int resource, const char *name, const char *key, ndp_memory_limit *out) {
    struct rlimit limit;
    *out = (ndp_memory_limit){INT64_MAX, ""};
    if (getrlimit((__rlimit_resource_t)resource, &limit) || limit.rlim_cur >= INT64_MAX)
        return;
    char *status = text_of("/proc/self/status"), of[16], in_use[16];
    int64_t used = number_after(status, key) * 1024, most = (int64_t)limit.rlim_cur;
    free(status);
    out->bytes = most > used ? most - used : 0;
    snprintf(out->what, sizeof out->what, "%s of %s, %s in use", name, ndp_human_bytes((double)most, of),
             ndp_human_bytes((double)used, in_use));
}

void ndp_memory_limit_address_space(ndp_memory_limit *out) { limit_of(RLIMIT_AS, "RLIMIT_AS", "VmSize:", out); }
void ndp_memory_limit_data(ndp_memory_limit *out) { limit_of(RLIMIT_DATA, "RLIMIT_DATA", "VmData:", out); }

int64_t ndp_memory_own(void) {
    char *status = text_of("/proc/self/status");
    int64_t kib = number_after(status, "RssAnon:");
    free(status);
    return kib > 0 ? kib * 1024 : 0;
}

/* One rank that is a thread at a time: where a sanitizer has the heap, the first call is glibc's first of its own heap,
 * which it then sets up without a lock. */
void ndp_memory_give_back(void) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    malloc_trim(0);
    pthread_mutex_unlock(&one);
}

int64_t ndp_memory_available(void) {
    ndp_memory_limit host, space, data;
    ndp_memory_limit_host("", &host);
    ndp_memory_limit_address_space(&space);
    ndp_memory_limit_data(&data);
    int64_t least = host.bytes < space.bytes ? host.bytes : space.bytes;
    return least < data.bytes ? least : data.bytes;
}
