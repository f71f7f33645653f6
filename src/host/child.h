/* Inside the host room: starting a process. */
#ifndef NDP_HOST_CHILD_H
#define NDP_HOST_CHILD_H

#include <ndparallel/ndparallel.h>
#include <sys/types.h>

/* Strings that end with NULL, as argv and envp: owned. */
typedef struct ndp_argv {
    char **items;
    int n, capacity;
    bool failed; /* memory ran out */
} ndp_argv;

__attribute__((format(printf, 2, 3))) void ndp_argv_add(ndp_argv *w, const char *fmt, ...);
void ndp_argv_add_all(ndp_argv *w, const char *const *texts);
void ndp_argv_release(ndp_argv *w);

/* stdin is /dev/null; stdout and stderr are inherited. */
typedef struct ndp_child {
    char *const *argv, *const *env; /* the program is looked for in this process's PATH */
    int death_signal;               /* for the child when the calling thread ends */
    int keep;                       /* a descriptor that stays open in the program; -1: none */
    bool own_group;                 /* a terminal's Ctrl-C does not reach it */
} ndp_child;

/* Returns once the program runs: 0, or the errno of why it does not. */
int ndp_child_start(const ndp_child *c, pid_t *out);
/* An exit code, or 128 + signal, of what waitpid said. */
int ndp_child_code(int status);

#endif
