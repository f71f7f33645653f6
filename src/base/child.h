/* Starting a process, and what /proc says of one. */
#ifndef NDP_BASE_CHILD_H
#define NDP_BASE_CHILD_H

#include <ndparallel/ndparallel.h>
#include <string.h>
#include <sys/types.h>

/* A NULL-terminated list of strings, as argv and envp. Owns the strings. */
typedef struct ndp_argv {
    char **items;
    int64_t n, capacity;
    bool failed; /* out of memory: the list is incomplete */
} ndp_argv;

__attribute__((format(printf, 2, 3))) void ndp_argv_add(ndp_argv *w, const char *fmt, ...);
void ndp_argv_add_all(ndp_argv *w, const char *const *texts);
void ndp_argv_release(ndp_argv *w);

/* How to start a process. By default its stdin is /dev/null, and it inherits stdout and stderr. */
typedef struct ndp_child {
    char *const *argv, *const *env; /* the program is searched for in the PATH of this process */
    int death_signal;               /* sent to the child when the calling thread ends; 0: none */
    int keep;                       /* a descriptor that the program inherits; -1: none */
    bool own_group;                 /* a terminal's Ctrl-C does not reach it */
    int ignored;                    /* a signal that the program ignores until it has a handler; 0: none */
    int streams[3];                 /* descriptors for its stdin, stdout and stderr; 0: the default */
} ndp_child;

/* Returns after the exec: 0, or the errno of the step that failed. */
int ndp_child_start(const ndp_child *c, pid_t *out);
/* The exit code, or 128 + signal, from a status of waitpid. */
int ndp_child_code(int status);

/* What /proc says of a process. */
typedef struct ndp_process {
    char state;       /* R, S, D, T (stopped), t (by a debugger), Z (ended, and its parent has not yet asked), ... */
    uint64_t started; /* when, in ticks since the system began: a number is given again, with another time */
} ndp_process;

/* False: there is no such process, or /proc does not show it. */
NDP_API bool ndp_process_read(pid_t pid, ndp_process *out);
static inline bool ndp_process_has_ended(const ndp_process *p) { return strchr("ZXx", p->state) != NULL; }
/* Whether /proc shows this process by its number, and so those of its user in the same namespace. */
NDP_API bool ndp_processes_are_shown(void);

#endif
