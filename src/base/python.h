/* Programs of ours in Python, for what Python's libraries do: NAME.py of a room, which is part of the library.
 * Such a program is a process of its own that reads requests on its stdin and answers on its stdout. It ends when its
 * stdin ends, so also when this process dies. sandbox.py is put before each of them: its guard() refuses, from then on,
 * what they have no use for, such as other processes, sockets, and files except the one that they read. */
#ifndef NDP_BASE_PYTHON_H
#define NDP_BASE_PYTHON_H

#include "base/text.h"

typedef struct ndp_python ndp_python;

typedef struct ndp_python_program {
    const char *what;    /* in messages: "the program that renders chat templates" */
    const char *library; /* put before the source; NULL: none */
    const char *source;
    const char *package; /* the module that it needs beside Python's own, in messages; NULL: none */
    const char *install; /* how to install that, in messages */
} ndp_python_program;

/* The programs, as the build finds them, and what each of them begins with. */
extern const char ndp_python_jinja[], ndp_python_answers[], ndp_python_table[], ndp_python_sandbox[];

/* The interpreter: $NDP_PYTHON, or /usr/bin/python3; another python3 may come first in PATH. */
const char *ndp_python_interpreter(void);

/* Starts a program, isolated from the user's settings of Python (-I). `arguments` ends with NULL. NDP_EINVAL: there is
 * no interpreter. A module that is missing shows only when the program ends, with exit code NDP_PYTHON_NO_MODULE. */
NDP_API ndp_status ndp_python_start(const ndp_python_program *p, const char *const *arguments, ndp_python **out);
enum { NDP_PYTHON_NO_MODULE = 77 };

/* Receives at least one byte and at most `most`; *n is 0 after the last one. NDP_EIO: nothing came for `seconds`. */
NDP_API ndp_status ndp_python_receive(ndp_python *p, void *out, size_t most, int seconds, size_t *n);

/* A request and an answer, each 8 bytes of length (little endian) and the bytes. Replaces the contents of `answer`.
 * Fails as the two above. */
NDP_API ndp_status ndp_python_ask(ndp_python *p, const char *request, size_t n, int seconds, ndp_str *answer);

/* Waits for the program, after its output has ended or failed, and frees it (NULL is allowed). NDP_OK: it ended by
 * itself, with exit code 0. Otherwise why not: NDP_EINVAL: the interpreter lacks a module; NDP_EFORMAT: it used more
 * CPU time than it allows itself; NDP_EIO: it was killed, does not end, or failed, with the last line that it wrote on
 * stderr. */
NDP_API ndp_status ndp_python_end(ndp_python *p);
/* Kills the program if it still runs, and frees it (NULL is allowed). */
void ndp_python_kill(ndp_python *p);

#endif
