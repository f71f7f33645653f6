/* What tests of plans share: a small job, and the numbers and words of its plans. */
#ifndef TESTS_PLAN_ODD_JOB_H
#define TESTS_PLAN_ODD_JOB_H

#include "check.h"
#include <ndparallel/ndparallel.h>

#include <stdlib.h>

/* A job of a file that is not there, with these keys; NULL at the end. */
static inline ndp_config *configure(const char *const *keys) {
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_set(c, "data.files=nowhere.txt"));
    for (; *keys; keys++)
        CHECK_OK(ndp_config_set(c, *keys));
    return c;
}

/* 5 layers, hidden 72, 8 heads of 10, 4 kv heads, ffn 172; 64 samples of 128 tokens. `more` ends with NULL. */
static inline ndp_config *odd_job(const char *const *more) {
    ndp_config *c = configure((const char *const[]){"data.sequence_length=128", "batch.global_batch_size=64", NULL});
    CHECK_OK(ndp_config_setf(c, "model.config=%s/tests/golden/odd/config.json", getenv("NDP_SOURCE_DIR")));
    for (; *more; more++)
        CHECK_OK(ndp_config_set(c, *more));
    return c;
}
#define JOB(...) odd_job((const char *const[]){__VA_ARGS__, NULL})

/* Its text, which the caller frees. Inlined, gcc takes pointers into it for pointers to `text`. */
__attribute__((noinline, unused)) static char *plan_of(const ndp_config *c, const ndp_plan_opts *o) {
    char *text;
    CHECK_OK(ndp_plan(c, o, &text));
    return text;
}

/* `of`: the first place with those words, or NULL. */
static inline double number(const char *of, const char *key) {
    char name[64];
    snprintf(name, sizeof name, "\"%s\": ", key);
    const char *at = of ? strstr(of, name) : NULL;
    if (!at)
        fail_msg("no %s in %s", name, of ? of : "what is not there");
    return strtod(at + strlen(name), NULL);
}

static inline void check_says(const char *text, const char *word, bool says) {
    if (!strstr(text, word) == says)
        fail_msg("the text %s '%s':\n%s", says ? "lacks" : "has", word, text);
}

#endif
