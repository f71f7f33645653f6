/* What `config KEY` prints, and that the option table says it of every key. */
#include "check.h"
#include "config/names.h"

#include <stdio.h>
#include <stdlib.h>

static void describe(const char *name, ndp_keys_format format, char **text) {
    CHECK_OK(ndp_config_describe(&name, 1, format, text));
}

static void every_key_says_all(void **state) {
    (void)state;
    static const char *const lines[] = {"\n  values       ", "\n  default      ", "\n  read by      ",
                                        "\n  on --resume  "};
    char name[NDP_KEY_NAME];
    for (int i = 0; ndp_config_key(i, name) >= 0; i++) {
        char *text = NULL;
        describe(name, NDP_KEYS_TEXT, &text);
        if (strncmp(text, name, strlen(name)) != 0 || !strstr(text, ndp_options[i].help))
            fail_msg("%s: %s", name, text);
        for (int k = 0; k < NDP_COUNT(lines); k++) {
            const char *at = strstr(text, lines[k]);
            if (!at || at[strlen(lines[k])] == '\n')
                fail_msg("%s has nothing after '%s' in\n%s", name, lines[k] + 1, text);
        }
        free(text);
    }
}

/* Every key has readers; conditions name keys that exist. */
static void every_row_has_readers(void **state) {
    (void)state;
    for (int i = 0; i < ndp_option_count; i++) {
        const ndp_option *o = &ndp_options[i];
        if (!o->readers || o->readers >= 2 * NDP_READER_RUN)
            fail_msg("%s.%s: readers %d", o->section, o->key, o->readers);
        for (const char *dot = o->when ? strchr(o->when, '.') : NULL; dot; dot = strchr(dot + 1, '.')) {
            char section[NDP_KEY_NAME] = "", key[NDP_KEY_NAME] = "";
            const char *begin = dot;
            while (begin > o->when && begin[-1] != ' ')
                begin--;
            snprintf(section, sizeof section, "%.*s", (int)(dot - begin), begin);
            snprintf(key, sizeof key, "%.*s", (int)strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz_"), dot + 1);
            if (*section && *key && !ndp_option_find(section, key))
                fail_msg("%s.%s is read if %s: there is no key %s.%s", o->section, o->key, o->when, section, key);
        }
    }
}

static void who_reads_what(void **state) {
    (void)state;
    static const struct {
        const char *name, *words;
    } cases[] = {
        {"optimizer.betas", "  read by      train, verify; if optimizer.name is adamw or adamw8bit or lion"},
        {"betas", "  default      [0.9, 0.95], lion [0.9, 0.99]"},
        {"optimizer.lr", "  read by      train, verify\n"},
        {"data.text_field", "train, verify, evaluate; if records have a text"},
        {"data.text_field", "  per entry    {path: NAME, text_field: VALUE}"},
        {"pipeline.stages", "train, plan, verify, evaluate; if parallelism.pp_size is above 1\n"},
        {"train.matmul", "if train.device is cuda, and precision.compute is fp32\n"},
        {"train.matmul", "must keep its value, unless --accept train.matmul allows"},
        {"model.path", "evaluate, generate and checkpoint export with a run folder\n"},
        {"data.overlong", "what it names must stay the same, unless --accept data.overlong"},
        {"log_every", "  on --resume  may change\n"},
        {"checkpoint", "checkpoint.every: "},
        {"checkpoint", "\n\ncheckpoint.keep: "},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *text = NULL;
        describe(cases[i].name, NDP_KEYS_TEXT, &text);
        if (!strstr(text, cases[i].words))
            fail_msg("%s: no '%s' in\n%s", cases[i].name, cases[i].words, text);
        free(text);
    }
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* A row for every key, with the same number of cells. */
static void markdown_has_a_row_for_each_key(void **state) {
    (void)state;
    char *text;
    int rows = 0;
    CHECK_OK(ndp_config_describe(NULL, 0, NDP_KEYS_MARKDOWN, &text));
    for (char *line = text, *end; *line; line = end + 1, rows++) {
        int cells = 0;
        end = strchr(line, '\n');
        for (char *c = line; c < end; c++)
            cells += *c == '|' && (c == line || c[-1] != '\\');
        if (cells != 5)
            fail_msg("%d bars in %.*s", cells, (int)(end - line), line);
    }
    assert_int_equal(rows, 2 + ndp_option_count);
    free(text);
    describe("optimizer", NDP_KEYS_MARKDOWN, &text);
    assert_int_equal(count(text, "\n| `optimizer."), 8);
    assert_non_null(
        strstr(text, "\n| `optimizer.lr` | a number in [0, inf) | 3.0e-4 | learning rate after warm-up |\n"));
    free(text);
    const char *two[] = {"frozen", "schedule.name"};
    CHECK_OK(ndp_config_describe(two, 2, NDP_KEYS_MARKDOWN, &text));
    assert_int_equal(count(text, "| key |"), 1);
    assert_non_null(strstr(text, "layers.\\*"));
    free(text);
}

/* A line for every key: its name, its words, its meaning. */
static void fields_of_every_key(void **state) {
    (void)state;
    char *text;
    CHECK_OK(ndp_config_describe(NULL, 0, NDP_KEYS_FIELDS, &text));
    assert_int_equal(count(text, "\n"), ndp_option_count);
    assert_int_equal(count(text, "\t"), 2 * ndp_option_count);
    assert_non_null(strstr(text, "\noptimizer.lr\t\tlearning rate after warm-up\n"));
    assert_non_null(strstr(text, "\nprecision.compute\tfp32 bf16 fp64 fp8\ttype of "));
    assert_non_null(strstr(text, "\ndata.packing\ttrue false\t"));
    assert_non_null(strstr(text, "\nparallelism.tp_size\tauto\t"));
    free(text);
}

static void unknown_names(void **state) {
    (void)state;
    static const struct {
        const char *name, *words;
    } cases[] = {
        {"nosuchkey", "unknown key 'nosuchkey'; the nearest are '"},
        {"nosuchkey", "; `ndparallel config` lists all keys"},
        {"learning_rate", "unknown key 'learning_rate'; use optimizer.lr"},
        {"Learning-Rate", "use optimizer.lr"},
        {"train.learning_rate", "unknown key 'learning_rate' in 'train'; use optimizer.lr"},
        {"bettas", "unknown key 'bettas'; did you mean 'optimizer.betas'?"},
        {"optimizer.lrr", "unknown key 'lrr' in 'optimizer'; did you mean 'lr'?"},
        {"optimzer.lr", "did you mean 'optimizer.lr'?"},
        {"optimiser", "unknown key 'optimiser'; did you mean 'optimizer'?"},
        {"name", "several sections have a key 'name': loss.name, optimizer.name, schedule.name; name one"},
        {"", "unknown key ''"},
        {"wandb", "'wandb'; set train.trackers: [tensorboard], which `wandb sync"},
        {"tensorboard", "'tensorboard'; set train.trackers: [tensorboard]"},
        {"log_with", "'log_with'; use train.trackers"},
        {"early_stopping", "'early_stopping'; use train.stop_after"},
        {"load_best_model_at_end", "'load_best_model_at_end'; use train.keep_best"},
        {"streaming", "'streaming'; streaming is not supported"},
    };
    char *text = NULL;
    for (int i = 0; i < NDP_COUNT(cases); i++)
        CHECK_FAILS(ndp_config_describe(&cases[i].name, 1, NDP_KEYS_TEXT, &text), NDP_EINVAL, cases[i].words);
    assert_null(text);
}

/* Where a word of another program is used, the message says what it is here; it is no key, section or earlier word. */
static void check_synonym(ndp_config *c, const ndp_synonym *s, const char *word) {
    const char *words = s->words ? s->words : s->key;
    char text[128];
    if (ndp_option_find(NULL, word) || ndp_names_is_section(word) || ndp_synonym_find(word) != s)
        fail_msg("%s is a key, a section or an earlier synonym", word);
    snprintf(text, sizeof text, "batch: {micro_batch_size: 1}\n%s: 1", word);
    CHECK_FAILS(ndp_config_parse(c, text, strlen(text), "job.yaml"), NDP_EINVAL, words);
    snprintf(text, sizeof text, "train: {%s: 1}", word);
    CHECK_FAILS(ndp_config_parse(c, text, strlen(text), "job.yaml"), NDP_EINVAL, words);
    CHECK_FAILS(ndp_config_setf(c, "%s=1", word), NDP_EINVAL, words);
    CHECK_FAILS(ndp_config_setf(c, "batch.%s=1", word), NDP_EINVAL, words);
}

/* Every synonym names a key or a section that exists. */
static void every_synonym_leads_to_a_key(void **state) {
    (void)state;
    ndp_config *c;
    int n = 0;
    CHECK_OK(ndp_config_create(&c));
    for (int i = 0; i < ndp_synonym_count; i++) {
        const ndp_synonym *s = &ndp_synonyms[i];
        bool wanted[NDP_MOST_OPTIONS];
        char words[512], *rest = NULL;
        if (s->key && ndp_names_find(s->key, wanted) != NDP_OK)
            fail_msg("%s leads to %s: %s", s->theirs, s->key, ndp_error_message());
        if (!s->key && !s->words)
            fail_msg("%s leads nowhere", s->theirs);
        assert_true(snprintf(words, sizeof words, "%s", s->theirs) < (int)sizeof words);
        for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest), n++)
            check_synonym(c, s, word);
    }
    assert_true(n > 200);
    ndp_config_destroy(c);
}

/* A key of another section is found there. */
static void keys_without_their_section(void **state) {
    (void)state;
    static const char *const keys[][2] = {{"micro_batch_size", "batch.micro_batch_size"},
                                          {"weight_decay", "optimizer.weight_decay"},
                                          {"warmup_ratio", "schedule.warmup_ratio"},
                                          {"output_dir", "train.output_dir"}};
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        CHECK_FAILS(ndp_config_setf(c, "%s=1", keys[i][0]), NDP_EINVAL, keys[i][1]);
        CHECK_FAILS(ndp_config_setf(c, "model.%s=1", keys[i][0]), NDP_EINVAL, keys[i][1]);
    }
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_says_all),
        cmocka_unit_test(every_row_has_readers),
        cmocka_unit_test(who_reads_what),
        cmocka_unit_test(markdown_has_a_row_for_each_key),
        cmocka_unit_test(fields_of_every_key),
        cmocka_unit_test(unknown_names),
        cmocka_unit_test(every_synonym_leads_to_a_key),
        cmocka_unit_test(keys_without_their_section),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
