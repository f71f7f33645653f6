/* ndp_generate takes the tokens that transformers takes, greedily and over a cache (tests/golden/greedy.json), with
 * every model of tests/golden. */
#include "train/golden.h"
#include "verify/runs.h"

#include "base/json.h"

typedef struct greedy_fixture {
    char *base;
    struct json_object *golden;
} greedy_fixture;

static struct json_object *member(struct json_object *o, const char *key) {
    struct json_object *value;
    if (!json_object_object_get_ex(o, key, &value))
        fail_msg("greedy.json lacks %s", key);
    return value;
}

static greedy_fixture the_fixture;

static int make_base(void **state) {
    char path[1024];
    void *folder;
    if (make_folder(&folder) != 0)
        return -1;
    *state = NULL; /* else it would go before each test's own */
    the_fixture.base = folder;
    CHECK_OK(ndp_json_read(golden_folder("greedy.json", path, sizeof path), &the_fixture.golden));
    return 0;
}

static int drop_base(void **state) {
    (void)state;
    void *folder = the_fixture.base;
    json_object_put(the_fixture.golden);
    return drop_folder(&folder);
}

/* Letter i of the alphabet is token i, as far as p; the others, as many as any of the models has, are words. */
static void write_letters(const char *folder) {
    enum { LETTERS = 16, TOKENS = 512 };
    char *path = ndp_format("%s/tokenizer.json", folder);
    ndp_str text = {0};
    ndp_str_add(&text, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < LETTERS; i++)
        ndp_str_addf(&text, "\"%c\":%d,", 'a' + i, i);
    for (int i = LETTERS; i < TOKENS; i++)
        ndp_str_addf(&text, "\"word%d\":%d%s", i, i, i < TOKENS - 1 ? "," : "}}}");
    CHECK_OK(ndp_file_write_atomic(path, text.data, text.length));
    ndp_str_release(&text);
    free(path);
}

/* The golden model, with a tokenizer of letters. The caller frees the path. */
static char *make_model(const char *name) {
    char from[1024], *folder = ndp_format("%s/%s", the_fixture.base, name), *command;
    golden_folder(name, from, sizeof from);
    CHECK_OK(ndp_folder_create(folder));
    command = ndp_format("ln -s '%s'/config.json '%s'/model*.safetensors* '%s'", from, from, folder);
    assert_int_equal(system(command), 0);
    free(command);
    write_letters(folder);
    return folder;
}

/* Tokens that are still to come. */
typedef struct expected {
    const char *name, *prompt;
    struct json_object *tokens;
    size_t heard;
} expected;

static bool hear(void *user, int32_t id, const char *text) {
    expected *x = user;
    (void)text;
    struct json_object *next = json_object_array_get_idx(x->tokens, x->heard++);
    if (!next || json_object_get_int(next) != id)
        fail_msg("%s, prompt '%s', token %d: %d, transformers takes %s", x->name, x->prompt, (int)x->heard, id,
                 next ? json_object_get_string(next) : "none");
    return true;
}

static void as_transformers(void **state) {
    const char *name = *state;
    char *folder = make_model(name);
    int n = 0;
    json_object_object_foreach(member(member(the_fixture.golden, "tokens"), name), prompt, tokens) {
        expected x = {.name = name, .prompt = prompt, .tokens = tokens};
        ndp_generate_opts o = NDP_GENERATE_OPTS_INIT;
        o.model = folder, o.prompt = prompt, o.max_tokens = 16, o.threads = 1, o.device = n++ ? "cpu" : "ref";
        CHECK_OK(ndp_generate(&o, hear, &x));
        assert_int_equal(x.heard, json_object_array_length(tokens));
    }
    assert_true(n > 0);
    free(folder);
}

#define GREEDY(folder)                                                                                                 \
    { folder, as_transformers, NULL, NULL, (void *)folder }

int main(void) {
    const struct CMUnitTest tests[] = {GOLDEN_MODELS(GREEDY)};
    return cmocka_run_group_tests(tests, make_base, drop_base);
}
