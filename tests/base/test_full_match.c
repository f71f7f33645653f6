/* Regular expressions against whole names. What matches is what Python's re.fullmatch finds, as PEFT calls it: `python
 * tests/golden/check_imports.py regexes` prints the table. */
#include "base/full_match.h"

#include "base/text.h"
#include "check.h"

/* Name number i of 1,440, as names of modules are. */
static char *name_of(int i) {
    static const char *const stems[] = {"model.layers.", "model.language_model.layers.", "transformer.h.",
                                        "language_model.model.layers."},
                             *const parts[] = {".self_attn.q_proj", ".self_attn.k_proj",
                                               ".self_attn.o_proj", ".mlp.up_proj",
                                               ".mlp.gate_proj",    ".mlp.experts.3.down_proj",
                                               ".attn.c_attn",      ".mlp.shared_expert.up_proj",
                                               ".input_layernorm"};
    int part = i % NDP_COUNT(parts), layer = i / NDP_COUNT(parts) % 40, stem = i / NDP_COUNT(parts) / 40;
    return ndp_format("%s%d%s", stems[stem], layer, parts[part]);
}
enum { NAMES = 4 * 40 * 9 };

static void names_are_those_of_python(void **state) {
    (void)state;
    static const struct {
        const char *regex;
        int matched;
        long long sum; /* of the numbers of those names */
    } of[] = {
        {"model.language_model.layers.[\\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj", 200, 107500},
        {".*_proj", 1120, 804880},
        {"q_proj", 0, 0},
        {".*\\.(3|11|2\\d)\\.self_attn\\.(q|k)_proj", 96, 70536},
        {"(?!.*experts).*\\.(up|down)_proj", 320, 230560},
        {"model\\.layers\\.[0-9]\\..*", 90, 4005},
        {".*[13579]\\..*q_proj$", 80, 57600},
        {"(model|transformer)\\.(layers|h)\\.(?:1?\\d)\\.(self_)?attn\\.[a-z_]+", 160, 71640},
        {"(?i)MODEL.*UP_proj", 160, 57680},
        {".+layernorm|.+c_attn", 320, 231200},
        {"(?=.*layers\\.2)(?=.*mlp).*", 132, 90663},
        {".*?(\\d)\\1\\..*", 108, 80136},
        {"[^.]+\\.[^.]+\\.\\d{2}\\..*o_proj", 60, 34950},
        {"(?P<stem>.*)\\.mlp\\.(?P<kind>gate|up)_proj", 320, 230080},
        {"", 0, 0},
    };
    for (int k = 0; k < NDP_COUNT(of); k++) {
        int matched = 0;
        long long sum = 0;
        for (int i = 0; i < NAMES; i++) {
            char *name = name_of(i);
            bool is;
            CHECK_OK(ndp_full_match(of[k].regex, name, &is));
            matched += is, sum += is ? i : 0;
            free(name);
        }
        if (matched != of[k].matched || sum != of[k].sum)
            fail_msg("%s: %d names with the sum %lld, Python finds %d with %lld", of[k].regex, matched, sum,
                     of[k].matched, of[k].sum);
    }
}

static void failures_name_the_expression(void **state) {
    (void)state;
    CHECK_FAILS(ndp_full_match_check("(q|k"), NDP_EFORMAT, "the regular expression '(q|k': missing closing");
    CHECK_FAILS(ndp_full_match_check("(.*)+(.*)+(.*)+x"), NDP_EFORMAT,
                "takes more than 200000 steps to compare with 'model");
    CHECK_OK(ndp_full_match_check(".*layers.*self.*proj"));
    assert_string_equal(ndp_regex_of("regex:q"), "q");
    assert_null(ndp_regex_of("*.q_proj"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_those_of_python),
                                       cmocka_unit_test(failures_name_the_expression)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
