/* Preloaded into the program by tests/cli/test_fault_points.sh: calls of the C library that can fail are counted by
 * place, and one of them fails, or kills the process. A place is what the call is of, and the innermost return
 * addresses inside our own files, so that a helper has as many places as it has callers. Calls by other libraries are
 * let through.
 *
 * FAULT_TABLE=PATH: the counts, in PATH.ROLE, where ROLE is a rank, or `parent`: slots of four 64-bit words, so that
 * `od -t x8 -w32` prints a place a line, whatever became of the process.
 * FAULT_AT="ROLE KEY N HOW": there the N-th call at the place KEY (hexadecimal) fails. HOW: a number of errno, 0 for a
 * part of what was to be written or read, -1 for SIGKILL, -3 for a SIGTERM to the parent of all ranks. Once, in
 * whichever process of that role gets there: PATH.fired exists from then on.
 * FAULT_SYNC_MS=MS: each fsync takes so much longer, as on a slow disk. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

enum kind { WRITE = 1, SYNC, RENAME, OPEN, READ, MEMORY, START, MESSAGE };
enum { DEPTH = 3, SLOTS = 1 << 14, MODULES = 128, KILLS = -1, PASSES = -2, STOPS = -3 };

typedef struct slot {
    _Atomic uint64_t key, place, callers, count; /* place: kind << 56 | module << 48 | offset */
} slot;

static slot *table;
static char role[16], fired[4096];
static uint64_t at_key, at_n;
static int at_how = PASSES, sync_ms;
static _Thread_local bool inside;

/* ---- whose code ---- */

static struct module {
    uintptr_t begin, end;
    int id; /* 1: the program, 2...: our plugins; 0: another's */
} modules[MODULES];
static _Atomic int known;
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;

static int id_of(const char *path) {
    const char *name = strrchr(path, '/');
    static const char *const ours[] = {"ndparallel", "ndp_mpi.so", "ndp_sim.so", "ndp_nccl.so", "ndp_http.so"};
    name = name ? name + 1 : path;
    for (int i = 0; i < 5; i++)
        if (strcmp(name, ours[i]) == 0)
            return i + 1;
    return 0;
}

static const struct module *module_of(uintptr_t pc) {
    Dl_info info;
    for (int i = 0; i < known; i++)
        if (pc >= modules[i].begin && pc < modules[i].end)
            return &modules[i];
    if (!dladdr((void *)pc, &info) || !info.dli_fname)
        return NULL;
    /* The file's extent: each page is looked up once. */
    pthread_mutex_lock(&finding);
    int n = known;
    const struct module *found = NULL;
    for (int i = 0; i < n && !found; i++)
        if (modules[i].begin == (uintptr_t)info.dli_fbase) {
            modules[i].end = pc >= modules[i].end ? pc + 1 : modules[i].end;
            found = &modules[i];
        }
    if (!found && n < MODULES) {
        modules[n] = (struct module){(uintptr_t)info.dli_fbase, pc + 1, id_of(info.dli_fname)};
        found = &modules[n];
        known = n + 1;
    }
    pthread_mutex_unlock(&finding);
    return found;
}

/* ---- places ---- */

typedef struct trail {
    uintptr_t first; /* the return address of the call itself */
    int n;
    uint64_t offsets[DEPTH], module;
} trail;

static _Unwind_Reason_Code step(struct _Unwind_Context *c, void *arg) {
    trail *t = arg;
    uintptr_t pc = _Unwind_GetIP(c);
    if (t->n == 0 && pc != t->first)
        return _URC_NO_REASON;
    const struct module *m = module_of(pc);
    if (!m || !m->id)
        return _URC_END_OF_STACK;
    t->module = t->n ? t->module : (uint64_t)m->id;
    t->offsets[t->n++] = pc - m->begin;
    return t->n < DEPTH ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static slot *slot_of(enum kind kind, const trail *t) {
    uint64_t place = (uint64_t)kind << 56 | t->module << 48 | t->offsets[0];
    uint64_t callers = t->offsets[1] << 32 | (t->offsets[2] & 0xffffffff), key = place;
    for (int i = 0; i < DEPTH; i++)
        key = (key ^ t->offsets[i]) * 0x9e3779b97f4a7c15u, key ^= key >> 29;
    key |= 1;
    for (uint64_t i = 0; i < SLOTS; i++) {
        slot *s = &table[(key + i) % SLOTS];
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&s->key, &none, key)) {
            s->place = place;
            s->callers = callers;
            return s;
        }
        if (none == key)
            return s;
    }
    return NULL;
}

/* What this call is to do: PASSES, an errno, or 0 for a part. */
static int fault(enum kind kind, void *from) {
    if (!table || inside)
        return PASSES;
    int how = PASSES, before = errno;
    inside = true;
    const struct module *m = module_of((uintptr_t)from);
    if (m && m->id) {
        trail t = {.first = (uintptr_t)from};
        _Unwind_Backtrace(step, &t);
        if (t.n == 0) /* no way to walk this stack */
            t = (trail){.n = 1, .offsets = {(uintptr_t)from - m->begin}, .module = (uint64_t)m->id};
        slot *s = slot_of(kind, &t);
        if (s && atomic_fetch_add(&s->count, 1) + 1 == at_n && s->key == at_key) {
            int fd = (int)syscall(SYS_open, fired, O_CREAT | O_EXCL | O_WRONLY, 0600);
            how = fd >= 0 ? at_how : PASSES;
            if (fd >= 0)
                syscall(SYS_close, fd);
        }
    }
    inside = false;
    errno = before;
    if (how == KILLS)
        syscall(SYS_kill, getpid(), SIGKILL);
    if (how == STOPS)
        syscall(SYS_kill, atoi(getenv("FAULT_PARENT")), SIGTERM);
    return how;
}

__attribute__((constructor)) static void begin(void) {
    char exe[4096], path[4200];
    const char *at = getenv("FAULT_AT"), *to = getenv("FAULT_TABLE"), *rank = getenv("NDP_RANK");
    const char *slow = getenv("FAULT_SYNC_MS");
    sync_ms = slow ? atoi(slow) : 0;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    if (!to || id_of(exe) != 1)
        return;
    rank = rank ? rank : getenv("OMPI_COMM_WORLD_RANK");
    if (!getenv("FAULT_PARENT")) { /* the first process of the run */
        snprintf(path, sizeof path, "%d", (int)getpid());
        setenv("FAULT_PARENT", path, 1);
    }
    snprintf(role, sizeof role, "%s", rank ? rank : "parent");
    snprintf(path, sizeof path, "%s.%s", to, role);
    snprintf(fired, sizeof fired, "%s.fired", to);
    int fd = (int)syscall(SYS_open, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || syscall(SYS_ftruncate, fd, SLOTS * sizeof(slot)))
        return;
    char whose[16];
    unsigned long long key, times;
    int how;
    if (at && sscanf(at, "%15s %llx %llu %d", whose, &key, &times, &how) == 4 && strcmp(whose, role) == 0)
        at_key = key, at_n = times, at_how = how;
    void *shared = (void *)syscall(SYS_mmap, NULL, SLOTS * sizeof(slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    table = shared == MAP_FAILED ? NULL : shared;
}

/* So long, whatever signals come. */
static void take(int ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    int before = errno;
    while (ms && nanosleep(&left, &left))
        ;
    errno = before;
}

/* ---- the calls ---- */

#define FROM __builtin_return_address(0)
#define EXPORT __attribute__((visibility("default"), noinline))
static void *find(void **real, const char *name) {
    if (!*real)
        *real = dlsym(RTLD_NEXT, name);
    return *real;
}
#define REAL(name) ((__typeof__(&name))find(&real_##name, #name))
/* A call that fails with errno and a value. */
#define CALL(kind, result, name, types, names, failed)                                                                 \
    static void *real_##name;                                                                                          \
    EXPORT result name types {                                                                                         \
        int how = fault(kind, FROM);                                                                                   \
        if (how > 0) {                                                                                                 \
            errno = how;                                                                                               \
            return failed;                                                                                             \
        }                                                                                                              \
        return REAL(name) names;                                                                                       \
    }
/* The same with a count, of which a part may be done. */
#define PART(kind, result, name, types, names, size)                                                                   \
    static void *real_##name;                                                                                          \
    EXPORT result name types {                                                                                         \
        int how = fault(kind, FROM);                                                                                   \
        if (how > 0) {                                                                                                 \
            errno = how;                                                                                               \
            return -1;                                                                                                 \
        }                                                                                                              \
        size = how == 0 && size > 1 ? size / 2 : size;                                                                 \
        return REAL(name) names;                                                                                       \
    }
#define TALKS(fd) ((fd) == STDOUT_FILENO || (fd) == STDERR_FILENO)

static void *real_write;
EXPORT ssize_t write(int fd, const void *data, size_t size) {
    int how = TALKS(fd) ? PASSES : fault(WRITE, FROM);
    if (how > 0)
        return errno = how, -1;
    return REAL(write)(fd, data, how == 0 && size > 1 ? size / 2 : size);
}
PART(WRITE, ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), size)
PART(READ, ssize_t, read, (int fd, void *data, size_t size), (fd, data, size), size)
PART(READ, ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at), size)
PART(MESSAGE, ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags), size)
PART(MESSAGE, ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags), size)
CALL(WRITE, int, ftruncate, (int fd, off_t size), (fd, size), -1)
CALL(WRITE, int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), -1)

static void *real_fsync;
EXPORT int fsync(int fd) {
    int how = fault(SYNC, FROM);
    take(sync_ms);
    return how > 0 ? (errno = how, -1) : REAL(fsync)(fd);
}
CALL(SYNC, int, fdatasync, (int fd), (fd), -1)
CALL(SYNC, int, sync_file_range, (int fd, off_t at, off_t size, unsigned flags), (fd, at, size, flags), -1)
CALL(RENAME, int, rename, (const char *from, const char *to), (from, to), -1)
CALL(RENAME, int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags),
     -1)
CALL(RENAME, int, link, (const char *from, const char *to), (from, to), -1)
CALL(RENAME, int, unlink, (const char *path), (path), -1)
CALL(RENAME, int, rmdir, (const char *path), (path), -1)
CALL(OPEN, int, mkdir, (const char *path, mode_t mode), (path, mode), -1)
CALL(OPEN, int, mkostemp, (char *path, int flags), (path, flags), -1)
CALL(OPEN, int, mkstemp, (char *path), (path), -1)
CALL(OPEN, char *, mkdtemp, (char *path), (path), NULL)
CALL(OPEN, int, memfd_create, (const char *name, unsigned flags), (name, flags), -1)
CALL(OPEN, FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL)
CALL(OPEN, void *, opendir, (const char *path), (path), NULL)
CALL(MEMORY, void *, malloc, (size_t size), (size), NULL)
CALL(MEMORY, void *, realloc, (void *old, size_t size), (old, size), NULL)
CALL(MEMORY, void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), NULL)
CALL(MEMORY, char *, strdup, (const char *text), (text), NULL)
CALL(MEMORY, char *, strndup, (const char *text, size_t size), (text, size), NULL)
CALL(MEMORY, int, vasprintf, (char **out, const char *format, va_list list), (out, format, list), -1)
CALL(MEMORY, void *, mmap, (void *at, size_t size, int may, int flags, int fd, off_t from),
     (at, size, may, flags, fd, from), MAP_FAILED)
CALL(MEMORY, FILE *, open_memstream, (char **out, size_t *size), (out, size), NULL)
CALL(START, pid_t, fork, (void), (), -1)
CALL(START, int, pipe2, (int fds[2], int flags), (fds, flags), -1)
CALL(START, int, socketpair, (int domain, int type, int protocol, int fds[2]), (domain, type, protocol, fds), -1)
CALL(START, int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1)
CALL(START, int, eventfd, (unsigned value, int flags), (value, flags), -1)
CALL(START, void *, dlopen, (const char *path, int flags), (path, flags), NULL)

/* dlsym itself allocates by calloc, before the real one is known. */
static void *real_calloc;
EXPORT void *calloc(size_t n, size_t size) {
    static char early[4096];
    static size_t used;
    int how = fault(MEMORY, FROM);
    if (how > 0)
        return errno = how, NULL;
    static _Thread_local bool finds;
    if (!real_calloc && finds) {
        void *p = early + used;
        used += (n * size + 15) & ~(size_t)15;
        return used <= sizeof early ? p : NULL;
    }
    finds = true;
    void *p = REAL(calloc)(n, size);
    finds = false;
    return p;
}

static void *real_posix_memalign;
EXPORT int posix_memalign(void **out, size_t alignment, size_t size) {
    int how = fault(MEMORY, FROM);
    return how > 0 ? how : REAL(posix_memalign)(out, alignment, size);
}

EXPORT int asprintf(char **out, const char *format, ...) {
    va_list list;
    int how = fault(MEMORY, FROM);
    if (how > 0)
        return errno = how, -1;
    va_start(list, format);
    int n = REAL(vasprintf)(out, format, list);
    va_end(list);
    return n;
}

static void *real_open;
EXPORT int open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    int how = fault(OPEN, FROM);
    if (how > 0)
        return errno = how, -1;
    return REAL(open)(path, flags, mode);
}

static void *real_close;
EXPORT int close(int fd) {
    int how = fault(WRITE, FROM), r = REAL(close)(fd);
    if (how > 0)
        return errno = how, -1;
    return r;
}

static void *real_pthread_create;
EXPORT int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*body)(void *), void *arg) {
    int how = fault(START, FROM);
    return how > 0 ? how : REAL(pthread_create)(out, attr, body, arg);
}

/* ---- streams: an error also stays with the stream ---- */

enum { ERROR_SEEN = 0x20 }; /* glibc's _IO_ERR_SEEN */
static int stream_fault(FILE *f, enum kind kind, void *from) {
    int how = f == stdout || f == stderr ? PASSES : fault(kind, from);
    if (how > 0) {
        f->_flags |= ERROR_SEEN;
        errno = how;
    }
    return how;
}
#define STREAM(kind, result, name, types, names, f, failed)                                                            \
    static void *real_##name;                                                                                          \
    EXPORT result name types { return stream_fault(f, kind, FROM) > 0 ? failed : REAL(name) names; }
STREAM(WRITE, size_t, fwrite, (const void *data, size_t size, size_t n, FILE *f), (data, size, n, f), f, 0)
STREAM(WRITE, int, fputs, (const char *text, FILE *f), (text, f), f, EOF)
STREAM(WRITE, int, fputc, (int c, FILE *f), (c, f), f, EOF)
STREAM(READ, size_t, fread, (void *data, size_t size, size_t n, FILE *f), (data, size, n, f), f, 0)
STREAM(READ, char *, fgets, (char *text, int size, FILE *f), (text, size, f), f, NULL)
STREAM(READ, ssize_t, __getdelim, (char **line, size_t *size, int end, FILE *f), (line, size, end, f), f, -1)

static void *real_fflush;
EXPORT int fflush(FILE *f) { return f && stream_fault(f, WRITE, FROM) > 0 ? EOF : REAL(fflush)(f); }

static void *real_fclose;
EXPORT int fclose(FILE *f) {
    int how = fault(WRITE, FROM), r = REAL(fclose)(f);
    return how > 0 ? (errno = how, EOF) : r;
}

EXPORT int fprintf(FILE *f, const char *format, ...) {
    va_list list;
    if (stream_fault(f, WRITE, FROM) > 0)
        return -1;
    va_start(list, format);
    int n = vfprintf(f, format, list);
    va_end(list);
    return n;
}

/* ---- messages: those of MPI; ranks of a host exchange theirs in shared memory, and sleep in futexes ---- */

static void *real_syscall;
EXPORT long syscall(long number, ...) {
    va_list l;
    long a[6];
    va_start(l, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(l, long);
    va_end(l);
    int how = number == SYS_futex ? fault(MESSAGE, FROM) : PASSES;
    if (how > 0)
        return errno = how, -1;
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

enum { MPI_FAILS = 16 }; /* MPI_ERR_OTHER */
#define MPI(name, types, names)                                                                                        \
    EXPORT int MPI_##name types {                                                                                      \
        static int(*real) types;                                                                                       \
        if (!real) {                                                                                                   \
            void *library = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);                                           \
            real = (int(*) types)dlsym(library, "PMPI_" #name);                                                        \
        }                                                                                                              \
        return fault(MESSAGE, FROM) > 0 ? MPI_FAILS : real names;                                                      \
    }
MPI(Isend, (const void *data, int n, void *type, int to, int tag, void *comm, void **request),
    (data, n, type, to, tag, comm, request))
MPI(Irecv, (void *data, int n, void *type, int from, int tag, void *comm, void **request),
    (data, n, type, from, tag, comm, request))
MPI(Test, (void **request, int *done, void *status), (request, done, status))
MPI(Iprobe, (int from, int tag, void *comm, int *there, void *status), (from, tag, comm, there, status))
MPI(Ibarrier, (void *comm, void **request), (comm, request))
MPI(Ibcast, (void *data, int n, void *type, int root, void *comm, void **request), (data, n, type, root, comm, request))
MPI(Bcast, (void *data, int n, void *type, int root, void *comm), (data, n, type, root, comm))
MPI(Iallgather, (const void *a, int n, void *t, void *b, int m, void *u, void *comm, void **request),
    (a, n, t, b, m, u, comm, request))
MPI(Ialltoall, (const void *a, int n, void *t, void *b, int m, void *u, void *comm, void **request),
    (a, n, t, b, m, u, comm, request))
MPI(Comm_create_group, (void *comm, void *group, int tag, void **out), (comm, group, tag, out))
