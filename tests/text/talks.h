/* Generated conversations: one to five turns, with what templates strip, drop and write in their contents. */
#ifndef NDP_TESTS_TEXT_TALKS_H
#define NDP_TESTS_TEXT_TALKS_H

#include "base/rng.h"
#include "text/chat/chat.h"

#include <string.h>

enum { MOST_MESSAGES = 12, MOST_CONTENT = 80 };

typedef struct drawn {
    uint64_t seed, draws;
    ndp_message messages[MOST_MESSAGES];
    char contents[2 * MOST_MESSAGES][MOST_CONTENT];
    int64_t n;
} drawn;

static inline int below(drawn *t, int n) { return (int)ndp_rng_below(t->seed, 1, t->draws++, (uint64_t)n); }

/* Up to three pieces: plain text, what templates strip, what Jinja and the templates write. */
static inline ndp_span draw_content(drawn *t, char *room) {
    static const char *const pieces[] = {"Hi",
                                         "two words",
                                         "Grüße, 世界",
                                         " ",
                                         "\n",
                                         "\t\u00a0\u3000",
                                         "\x1c\xc2\x85",
                                         "\u200b",
                                         "'\"\\n{{ x }}{% y %}{# z #}",
                                         "<|im_end|>[/INST]",
                                         "<think>\nwhy\n</think>\n\n",
                                         "</think>",
                                         "<think>",
                                         "<tool_response>",
                                         "</tool_response>"};
    *room = '\0';
    for (int n = below(t, 4); n > 0; n--)
        strcat(room, pieces[below(t, NDP_COUNT(pieces))]);
    return (ndp_span){room, strlen(room)};
}

static inline void add_message(drawn *t, ndp_role role) {
    ndp_message *m = &t->messages[t->n];
    *m = (ndp_message){.role = role, .content = draw_content(t, t->contents[2 * t->n])};
    if (role == NDP_ROLE_ASSISTANT && below(t, 6) == 0)
        m->reasoning = draw_content(t, t->contents[2 * t->n + 1]);
    t->n++;
}

/* One to five turns, with a system prompt or without; some end with a question, some have roles in another order. */
static inline void draw(drawn *t, uint64_t seed) {
    *t = (drawn){.seed = seed};
    int turns = 1 + below(t, 5), wild = below(t, 3) == 0;
    if (below(t, 3) == 0)
        add_message(t, NDP_ROLE_SYSTEM);
    for (int i = 0; i < turns; i++) {
        add_message(t, wild ? (ndp_role)below(t, 3) : NDP_ROLE_USER);
        if (i + 1 < turns || below(t, 2))
            add_message(t, wild ? (ndp_role)below(t, 3) : NDP_ROLE_ASSISTANT);
    }
}

#endif
