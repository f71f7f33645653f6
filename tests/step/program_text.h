/* Step programs as golden text (tests/step/golden). */
#ifndef TESTS_STEP_PROGRAM_TEXT_H
#define TESTS_STEP_PROGRAM_TEXT_H

#include "golden_text.h"

/* Without the addresses: what runs, and in which order. */
static inline void drop_addresses(ndp_str *text) {
    char *to = text->data;
    for (const char *from = text->data; *from;) {
        size_t word = strcspn(from + 1, " \n") + 1;
        bool address = *from == ' ' && memchr(from, '=', word) && memchr(from, '+', word);
        for (size_t i = 0; !address && i < word; i++)
            *to++ = from[i];
        from += word;
    }
    *to = '\0';
    text->length = (size_t)(to - text->data);
}

#endif
