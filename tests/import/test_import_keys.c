/* The tables that `ndparallel config import --keys` prints. */
#include "import/import_table.h"

#include "check.h"
#include <stdlib.h>

static char *keys_of(const char *program, const char *part) {
    char *text;
    CHECK_OK(ndp_config_import_keys(program, part, &text));
    return text;
}

/* Both programs' tables, which share sections. */
static char *all_keys(void) {
    char *axolotl = keys_of("axolotl", NULL), *accelerate = keys_of("accelerate", NULL);
    char *both = ndp_format("%s%s", axolotl, accelerate);
    free(axolotl);
    free(accelerate);
    return both;
}

/* As a code span, alone or below a section. */
static bool has_name(const char *text, const char *name, size_t n) {
    for (const char *at = text; (at = memmem(at, strlen(at), name, n)); at++)
        if (strchr("`.", at[-1]) && at[n] == '`')
            return true;
    return false;
}

static void check_names(const char *text, const char *names) {
    for (size_t n; names += strspn(names, " "), (n = strcspn(names, " ")); names += n)
        if (!has_name(text, names, n))
            fail_msg("%.*s is in no table", (int)n, names);
}

/* A reason up to the first character that is escaped. */
static void check_reason(const char *text, const char *why) {
    size_t n = why ? strcspn(why, "<|") : 0;
    if (n && !memmem(text, strlen(text), why, n))
        fail_msg("'%s' is in no table", why);
}

static void every_row_is_listed(void **state) {
    (void)state;
    char *text = all_keys();
    for (const import_table *const *t = ndp_import_tables; *t; t++)
        for (int i = 0; i < (*t)->n; i++) {
            const import_key *k = &(*t)->keys[i];
            if (k->kind != IMPORT_SECTION)
                check_names(text, k->names);
            check_reason(text, k->why);
            for (const import_word *w = k->kind == IMPORT_WORD ? k->words : NULL; w && w->words; w++)
                check_reason(text, w->refused);
            if (k->kind == IMPORT_REFUSED && k->ours)
                check_names(text, k->ours);
        }
    free(text);
}

/* Every `section.key` in the column "here" is an option. */
static void imported_keys_exist(void **state) {
    (void)state;
    static const char *const programs[] = {"axolotl", "accelerate"};
    int found = 0;
    for (int p = 0; p < NDP_COUNT(programs); p++) {
        char *text = keys_of(programs[p], "imported"), *lines = NULL, *cells;
        for (char *line = strtok_r(text, "\n", &lines); line; line = strtok_r(NULL, "\n", &lines)) {
            cells = strstr(line, "` | `");
            cells = cells ? cells + strlen("` | ") : NULL;
            char *rest = NULL, *end = cells ? strstr(cells, " | ") : NULL;
            if (!end || line[2] != '`')
                continue;
            *end = '\0';
            for (char *key = strtok_r(cells, "`, ", &rest); key; key = strtok_r(NULL, "`, ", &rest), found++) {
                char *dot = strchr(key, '.');
                assert_non_null(dot);
                *dot = '\0';
                if (!ndp_option_find(key, dot + 1))
                    fail_msg("%s.%s is no key", key, dot + 1);
            }
        }
        free(text);
    }
    assert_true(found > 60);
}

static void check_line(const char *text, const char *line) {
    if (!strstr(text, line))
        fail_msg("no line '%s'", line);
}

/* A row of each kind, as a reader sees it. */
static void rows_say_what_happens(void **state) {
    (void)state;
    char *text = keys_of("axolotl", NULL);
    check_line(text,
               "\n| `deepspeed.train_micro_batch_size_per_gpu`, `micro_batch_size` | `batch.micro_batch_size` |  |\n");
    check_line(text, "\n| `base_model` | `model.path` |  |\n");
    check_line(text, "\n| `adam_beta1`, `adam_beta2` | `optimizer.betas` |  |\n");
    check_line(text, "\n| `optimizer` | `optimizer.name` | `adamw_torch`, ");
    check_line(text, "\n| `optimizer`: `muon` | not the same as Muon in fp32");
    check_line(
        text,
        "; `fp16`: `true`; `float16` | fp16 is not supported; bf16 needs no loss scaling | `precision.compute` |\n");
    check_line(text,
               "\n| `datasets.train_on_eos`, `datasets.train_on_eot`: another value | the token that ends a turn ");
    check_line(text,
               "\n| `adapter`, `lora_model_dir`, `relora`, `relora_*` | adapters are not supported; all parameters are "
               "trained |  |\n");
    check_line(text, "or from \\<think>...\\</think> in the content");
    free(text);
    text = keys_of("accelerate", NULL);
    check_line(text, "\n| `parallelism_config.tp_size`, `megatron_lm_config.tp_degree`, `tp_config.tp_size` |");
    check_line(text, "\n| `fsdp_config` | a section | its keys may have the prefix `fsdp_` |\n");
    free(text);
}

static void one_table_has_no_heading(void **state) {
    (void)state;
    char *all = keys_of("accelerate", NULL);
    static const char *const parts[] = {"imported", "left-out", "unsupported"};
    for (int i = 0; i < NDP_COUNT(parts); i++) {
        char *one = keys_of("accelerate", parts[i]);
        assert_memory_equal(one, "| accelerate | ", 15);
        check_line(all, one);
        free(one);
    }
    assert_memory_equal(all, "### Imported\n\n| ", 16);
    free(all);
}

static void other_words_are_errors(void **state) {
    (void)state;
    char *text;
    CHECK_FAILS(ndp_config_import_keys("torchtitan", NULL, &text), NDP_EINVAL,
                "--keys 'torchtitan': expected axolotl or accelerate");
    CHECK_FAILS(ndp_config_import_keys("axolotl", "all", &text), NDP_EINVAL,
                "--keys axolotl 'all': expected imported, left-out or unsupported");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_listed),    cmocka_unit_test(imported_keys_exist),
        cmocka_unit_test(rows_say_what_happens),  cmocka_unit_test(one_table_has_no_heading),
        cmocka_unit_test(other_words_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
