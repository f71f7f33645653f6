/* The holder of a lock (lock.h): a process, described such that it differs from every other one, on any host. Read by
 * report/, which says whether a run lives. */
#ifndef NDP_CHECKPOINT_HOLDER_H
#define NDP_CHECKPOINT_HOLDER_H

#include "base/status.h"

typedef struct ndp_holder {
    char host[65], machine_id[40], boot_id[40]; /* machine_id: of /etc/machine-id; "": unknown */
    int64_t pid, start_time;                    /* start_time: clock ticks after boot, of /proc/PID/stat; 0: unknown */
    int64_t pid_namespace;                      /* inode of /proc/self/ns/pid; 0: unknown */
    int64_t generation;                         /* grows by one with each takeover */
    int64_t counter;                            /* the holder increments it while it lives */
    char launcher[96]; /* $NDP_LAUNCHER: who started the ranks, and how often before; "": nothing that says so */
} ndp_holder;

/* This process, in generation 0. */
void ndp_holder_self(ndp_holder *out);

/* One line of JSON. All texts of a process and generation have the same length and differ only in the counter, which
 * occupies the NDP_HOLDER_COUNTER bytes at *counter. Returns the length. */
enum { NDP_HOLDER_TEXT = 640, NDP_HOLDER_COUNTER = 20 };
int ndp_holder_text(const ndp_holder *h, char text[NDP_HOLDER_TEXT], int *counter);

/* The process as a word for names of files: a hash of its machine and pid namespace, a hash of its boot, its pid and
 * its start time. */
enum { NDP_HOLDER_WORD = 64 };
void ndp_holder_word(const ndp_holder *h, char word[NDP_HOLDER_WORD]);
/* Reads the word at the beginning of a text, for ndp_holder_judge with the same `self`. False: the text has no such
 * word. */
bool ndp_holder_of_word(const char *text, const ndp_holder *self, ndp_holder *out);

/* Reads a lock file. It is opened anew each time, so that NFS asks the server. *there: false if there is no such file.
 * NDP_EFORMAT: it is not a lock. */
NDP_API ndp_status ndp_holder_read(const char *path, ndp_holder *out, bool *there);

/* Whether both are the same process in the same generation. */
bool ndp_holder_same(const ndp_holder *a, const ndp_holder *b);

typedef enum ndp_holder_state {
    NDP_HOLDER_ALIVE,
    NDP_HOLDER_DEAD,
    NDP_HOLDER_ELSEWHERE /* on another host, or in another container: invisible to `self` */
} ndp_holder_state;
/* A process of an earlier boot of this machine is dead: host name, machine id and pid namespace are those of `self`,
 * the boot id is not. holder.c says when that could be wrong. */
ndp_holder_state ndp_holder_judge(const ndp_holder *h, const ndp_holder *self);
/* Whether the launcher of `self` started the ranks of `h` before it: it has given them up, wherever they are. */
bool ndp_holder_given_up(const ndp_holder *h, const ndp_holder *self);

#endif
