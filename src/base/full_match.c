/* Whole names by PCRE2. An expression is compiled for each comparison: that takes microseconds, and needs no owner. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/full_match.h"

#include "base/text.h"
#include <pcre2.h>
#include <string.h>

/* Usual expressions take less than a thousand steps for a name; a hundred names of a model at this limit, a second. */
enum { STEPS = 200 * 1000 };

const char *ndp_regex_of(const char *target) {
    size_t n = sizeof NDP_REGEX_PREFIX - 1;
    return strncmp(target, NDP_REGEX_PREFIX, n) == 0 ? target + n : NULL;
}

static ndp_status fail(const char *regex, const char *name, int error) {
    unsigned char why[256];
    pcre2_get_error_message(error, why, sizeof why);
    return error == PCRE2_ERROR_MATCHLIMIT || error == PCRE2_ERROR_DEPTHLIMIT || error == PCRE2_ERROR_HEAPLIMIT
               ? NDP_FAIL(NDP_EFORMAT,
                          "the regular expression '%.100s' takes more than %d steps to compare with '%s'; write it "
                          "without repetitions inside of others",
                          regex, STEPS, name)
               : NDP_FAIL(NDP_EFORMAT, "the regular expression '%.100s': %s", regex, (char *)why);
}

ndp_status ndp_full_match(const char *regex, const char *name, bool *is) {
    int error, found = PCRE2_ERROR_NOMEMORY;
    size_t at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
                                     PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);
    if (!code)
        return fail(regex, name, error);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    if (data && context) {
        pcre2_set_match_limit(context, STEPS);
        found = pcre2_match(code, (PCRE2_SPTR)name, PCRE2_ZERO_TERMINATED, 0, 0, data, context);
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    *is = found >= 0;
    return found >= 0 || found == PCRE2_ERROR_NOMATCH ? NDP_OK : fail(regex, name, found);
}

ndp_status ndp_full_match_check(const char *regex) {
    static const char *const names[] = {"model.language_model.layers.10.self_attn.q_proj",
                                        "model.layers.3.block_sparse_moe.experts.77.w1", "transformer.h.11.attn.c_attn",
                                        "lm_head"};
    bool is;
    for (int i = 0; i < NDP_COUNT(names); i++)
        NDP_TRY(ndp_full_match(regex, names[i], &is));
    return NDP_OK;
}
