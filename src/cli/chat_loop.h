/* generate --chat: a conversation on a terminal, or with messages from a pipe. */
#ifndef NDP_CLI_CHAT_LOOP_H
#define NDP_CLI_CHAT_LOOP_H

#include <ndparallel/ndparallel.h>

typedef struct chat_opts {
    const ndp_generate_opts *generate;
    const char *system;
    int context;
    bool debug;
    bool (*print)(void *user, int32_t id, const char *text); /* a token of an answer */
    void *user;
} chat_opts;

/* Returns the exit code. */
int chat_run(const chat_opts *o);

#endif
