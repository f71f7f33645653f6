/* Templates for tests, rendered by Jinja; tests that need it are skipped where it is missing. */
#ifndef NDP_TESTS_TEXT_JINJA_OF_H
#define NDP_TESTS_TEXT_JINJA_OF_H

#include "text/chat/jinja.h"

#include "base/json.h"
#include "check.h"

static inline ndp_span span(const char *text) { return (ndp_span){text, strlen(text)}; }

static inline ndp_jinja *jinja_of(const char *text, const char *date) {
    ndp_jinja *j;
    struct json_object *variables;
    static const char tokens[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"pad_token\": \"<pad>\"}";
    CHECK_OK(ndp_json_parse(tokens, strlen(tokens), "test", &variables));
    CHECK_OK(ndp_jinja_create("the chat template of test", span(text), variables, NULL, date, &j));
    json_object_put(variables);
    return j;
}

/* Says why and skips where Jinja is missing. */
static inline void need_jinja(void) {
    ndp_jinja *j = jinja_of("x", "2024-07-26");
    ndp_str key = {0};
    ndp_status st = ndp_jinja_add_key(j, &key);
    ndp_str_release(&key);
    ndp_jinja_destroy(j);
    if (st != NDP_EINVAL)
        return;
    print_message("SKIPPED: %s\n", ndp_error_message());
    skip();
}

#endif
