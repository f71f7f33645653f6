/* What a program does wrong when it gives an architecture, reads a config.json or builds a model (ndparallel/model.h):
 * each mistake is one message with the place, and nothing crashes. */
#include "base/json.h"
#include "check.h"
#include "model/architecture.h"

#include <string.h>

static int mistake; /* which one is built */

typedef struct facts {
    int64_t width;
    double rate;
    bool flag;
    int word;
} facts;

static void read_nothing(ndp_model_json *config, void *f) { (void)config, (void)f; }
static void build_mistake(const void *facts, ndp_model_builder *b);

static ndp_architecture wrong = {sizeof wrong, "wrong", sizeof(facts), read_nothing, build_mistake, NULL};

static ndp_status parse(const char *config, const ndp_architecture *a, ndp_model_spec *spec) {
    const ndp_own_list own = {{a}, 1};
    struct json_object *parsed;
    CHECK_OK(ndp_json_parse(config, strlen(config), "c.json", &parsed));
    ndp_status st = ndp_model_spec_parse(parsed, "c.json", &own, spec);
    json_object_put(parsed);
    return st;
}

static const char plain[] = "{\"model_type\": \"wrong\", \"max_position_embeddings\": 64}";

/* ---- a model ---- */

static int begin(ndp_model_builder *b, int64_t rows, int64_t columns) {
    ndp_build_unit(b, 0, "first");
    return ndp_build_embedding(b, NDP_OPTS(ndp_embedding_opts, .name = "x", .rows = rows, .columns = columns));
}

static int linear(ndp_model_builder *b, int x, const char *name, int64_t columns, bool cut) {
    return ndp_build_linear(b, x, NDP_OPTS(ndp_linear_opts, .name = name, .columns = columns, .cut = cut));
}

static int attention(ndp_model_builder *b, int x, const char *name, int heads, int kv, int dim, double theta,
                     int turn) {
    return ndp_build_attention(b, x,
                               NDP_OPTS(ndp_attention_opts, .name = name, .heads = heads, .kv_heads = kv,
                                        .head_dim = dim, .rope_theta = theta, .rotary_dim = turn));
}

static int norm(ndp_model_builder *b, int x, const char *name) {
    return ndp_build_norm(b, x, NDP_OPTS(ndp_norm_opts, .name = name));
}

static void end(ndp_model_builder *b, int x) {
    x = ndp_build_unit(b, x, "last");
    ndp_build_head(b, x, NDP_OPTS(ndp_head_opts, .name = NULL));
}

enum { WIDTH = 8 };

static int block(ndp_model_builder *b) { return ndp_build_unit(b, begin(b, 50, WIDTH), "block"); }

#define MISTAKES(X)                                                                                                    \
    X(NOTHING, (void)b, "wrong: the model has no head: end it with ndp_build_head")                                    \
    X(NO_UNIT, norm(b, 1, "n"), "wrong: ndp_build_norm: begin a unit first")                                           \
    X(NO_BLOCK, end(b, begin(b, 50, WIDTH)), "wrong: unit last: the model has 2 units")                                \
    X(NO_HEAD, norm(b, block(b), "n"), "wrong: unit block: the model has no head")                                     \
    X(FIRST, ndp_build_unit(b, 3, "first"), "the first unit begins with 0, not 3")                                     \
    X(LATE_TABLE, (block(b), begin(b, 50, WIDTH)), "ndp_build_unit: 0 is no value of this unit")                       \
    X(TWO_TABLES,                                                                                                      \
      (begin(b, 50, WIDTH),                                                                                            \
       ndp_build_embedding(b, NDP_OPTS(ndp_embedding_opts, .name = "y", .rows = 2, .columns = 2))),                    \
      "ndp_build_embedding: it begins the first unit")                                                                 \
    X(NO_ROWS, begin(b, 0, WIDTH), "tensor first.x.weight is [0, 8]")                                                  \
    X(MANY_ROWS, begin(b, (int64_t)1 << 40, WIDTH), "1099511627776 rows; at most")                                     \
    X(MANY, linear(b, ndp_build_unit(b, begin(b, 50, 1 << 20), "c"), "y", (int64_t)1 << 30, 0),                        \
      "c.y.weight is [1073741824, 1048576]")                                                                           \
    X(NO_COLUMNS, linear(b, block(b), "y", -1, false), "wrong: unit block: tensor block.y.weight is [-1, 8]")          \
    X(NO_NAME, norm(b, block(b), NULL), "'' is no name of a tensor")                                                   \
    X(STRANGE_NAME, norm(b, block(b), "../x"), "'../x' is no name of a tensor")                                        \
    X(STRANGE_UNIT, ndp_build_unit(b, begin(b, 50, WIDTH), "a b"), "'a b' is no name of a unit")                       \
    X(LONG_UNIT, ndp_build_unit(b, begin(b, 50, WIDTH), "%0100d", 1), "is no name of a unit")                          \
    X(SAME_UNIT, ndp_build_unit(b, norm(b, block(b), "n"), "block"), "there is a unit block already")                  \
    X(SAME_TENSOR, norm(b, norm(b, block(b), "n"), "n"), "it has two tensors block.n.weight")                          \
    X(OTHER_UNIT,                                                                                                      \
      (next = block(b), next = ndp_build_unit(b, norm(b, next, "n"), "c"), norm(b, next - (1 << 14), "n")),            \
      "is no value of this unit")                                                                                      \
    X(NO_VALUE, norm(b, 1 << 30, "n"), "begin a unit first")                                                           \
    X(FAR_VALUE, norm(b, block(b) + 9, "n"), "is no value of this unit")                                               \
    X(NEGATIVE, (block(b), norm(b, -5, "n")), "ndp_build_norm: -5 is no value of this unit")                           \
    X(UNREAD, (next = block(b), norm(b, next, "n"), end(b, norm(b, next, "m"))), "unit block: nothing reads n [1, 8]") \
    X(EMPTY, (next = block(b), ndp_build_unit(b, next, "c")), "its result is its first value")                         \
    X(WIDE, ndp_build_unit(b, linear(b, block(b), "w", 9, false), "c"), "has 9 columns, and the embedding has 8")      \
    X(CUT_END, ndp_build_unit(b, linear(b, block(b), "w", WIDTH, true), "c"), "its result is cut by tensor")           \
    X(CUT_NORM, norm(b, linear(b, block(b), "w", WIDTH, true), "n"), "ndp_build_norm: tensor parallelism cuts")        \
    X(CUT_TWICE, linear(b, linear(b, block(b), "w", 9, true), "v", 9, true), "v has a cut, and its operand is cut")    \
    X(CUT_SUM, (next = block(b), ndp_build_add(b, next, linear(b, next, "w", WIDTH, true))),                           \
      "8 columns and 8, cut; both have as many, cut alike")                                                            \
    X(SUM, (next = block(b), ndp_build_add(b, next, linear(b, next, "w", 9, false))), "8 columns and 9; both")         \
    X(HEADS, attention(b, block(b), "a", 3, 2, 4, 0, 0), "3 heads of 4 columns, and 2 kv heads")                       \
    X(NO_HEADS, attention(b, block(b), "a", 0, 0, 4, 0, 0), "0 heads of 4 columns")                                    \
    X(TWO_HEADS,                                                                                                       \
      (next = block(b), next = linear(b, attention(b, next, "a", 4, 2, 2, 0, 0), "o", WIDTH, false),                   \
       attention(b, next, "c", 2, 2, 2, 0, 0)),                                                                        \
      "2 heads (2 kv), where attention before has 4 (2 kv)")                                                           \
    X(ODD_ROPE, attention(b, block(b), "a", 2, 2, 4, 1e4, 3), "3 columns of a head's 4 turn; an even number does")     \
    X(THIRD_ROPE, ropes(b, block(b)), "theta 3 on 4 columns is its third kind of RoPE")                                \
    X(GATE, ndp_build_gated(b, block(b), NDP_OPTS(ndp_gated_opts, .columns = 4, .activation = (ndp_gated_kind)7)),     \
      "there is no activation 7")                                                                                      \
    X(RMS_BIAS, ndp_build_norm(b, block(b), NDP_OPTS(ndp_norm_opts, .name = "n", .bias = true)), "has no bias")        \
    X(TAPS, ndp_build_causal_conv(b, block(b), NDP_OPTS(ndp_conv_opts, .name = "c")), "block.c.weight is [0, 8]")      \
    X(SCALED, (next = norm(b, block(b), "n"), ndp_build_scale(b, next, 2), norm(b, next, "m")),                        \
      "ndp_build_scale has changed n; use its result")                                                                 \
    X(SCALE_READ, (next = norm(b, block(b), "n"), norm(b, next, "m"), ndp_build_scale(b, next, 2)),                    \
      "another op reads its operand")                                                                                  \
    X(SCALE_FIRST, ndp_build_scale(b, block(b), 2), "its operand is the unit's first value")                           \
    X(SCALE_ATTENTION, ndp_build_scale(b, attention(b, block(b), "a", 2, 2, 4, 0, 0), 2), "is attention's result")     \
    X(AFTER_HEAD, (end(b, norm(b, block(b), "n")), norm(b, 1, "n")), "ndp_build_norm: the head has ended the model")   \
    X(TIED, ndp_build_head(b, linear(b, block(b), "w", 9, false), NDP_OPTS(ndp_head_opts, .name = NULL)),              \
      "9 columns, and the table that it is tied to has 8")                                                             \
    X(NO_OPTIONS, ndp_build_norm(b, block(b), NULL), "unit block: ndp_build_norm: o is NULL")                          \
    X(NO_SIZE, ndp_build_norm(b, block(b), &(ndp_norm_opts){.name = "n"}), "options of 0 bytes; set size to sizeof")   \
    X(OWN, (block(b), ndp_build_fail(b, "no %s", "luck")), "wrong: unit block: no luck")                               \
    X(TENSORS, many_tensors(b, block(b)), "is tensor 41 of it; a unit has at most 40")                                 \
    X(KINDS, many_kinds(b, begin(b, 50, WIDTH)), "18 kinds of them; a model has at most 18")

static void ropes(ndp_model_builder *b, int x) {
    for (int i = 1; i < 4; i++) {
        char name[8] = {(char)('a' + i)}, out[8] = {'o', (char)('a' + i)};
        x = linear(b, attention(b, x, name, 2, 2, 4, i, 0), out, WIDTH, false);
    }
}

static void many_tensors(ndp_model_builder *b, int x) {
    for (int i = 0; i < 50; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        x = norm(b, x, name);
    }
}

static void many_kinds(ndp_model_builder *b, int x) {
    for (int i = 0; i < 20; i++) {
        x = ndp_build_unit(b, x, "b%d", i);
        x = linear(b, linear(b, x, "up", i + 1, true), "down", WIDTH, false);
    }
}

#define NUMBER(name, does, words) name,
enum { MISTAKES(NUMBER) MISTAKE_COUNT };

static void build_mistake(const void *of, ndp_model_builder *b) {
    int next = 0;
    (void)of, (void)next;
#define MAKE(name, does, words)                                                                                        \
    if (mistake == name)                                                                                               \
        (void)(does);
    MISTAKES(MAKE)
}

#define WORDS(name, does, words) words,
static const char *const expected[] = {MISTAKES(WORDS)};

static void each_mistake_is_named(void **state) {
    (void)state;
    ndp_model_spec spec;
    for (mistake = 0; mistake < MISTAKE_COUNT; mistake++) {
        ndp_status st = parse(plain, &wrong, &spec);
        if (st != NDP_EINVAL || !strstr(ndp_error_message(), expected[mistake]))
            fail_msg("mistake %d: status %d, %s; expected %s", mistake, st, st ? ndp_error_message() : "",
                     expected[mistake]);
    }
}

/* ---- config.json ---- */

static void read_some(ndp_model_json *config, void *out) {
    static const char *const words[] = {"left", "right"};
    facts *f = out;
    f->width = ndp_model_json_int(config, "width", 1, 9);
    f->rate = ndp_model_json_number(config, "rate", 0, 1);
    f->flag = ndp_model_json_flag(config, "flag");
    f->word = ndp_model_json_word(config, "side", words, 2);
    if (ndp_model_json_has(config, "other"))
        ndp_model_json_fail(config, "\"other\" is %d", 5);
    mistake = MISTAKE_COUNT;
}

static void each_key_is_checked(void **state) {
    static const struct {
        const char *keys, *words;
    } of[] = {
        {"", "c.json: \"max_position_embeddings\" is missing; a wrong needs it"},
        {"\"max_position_embeddings\": 9", "c.json: \"width\" is missing"},
        {"\"max_position_embeddings\": 9, \"width\": null", "c.json: \"width\" is missing"},
        {"\"max_position_embeddings\": 9, \"width\": 10", "width"},
        {"\"max_position_embeddings\": 9, \"width\": \"a\"", "width"},
        {"\"max_position_embeddings\": 9, \"width\": 2, \"rate\": 2", "\"rate\" is 2; it is a number from 0 to 1"},
        {"\"max_position_embeddings\": 9, \"width\": 2, \"rate\": 1, \"flag\": 1", "flag"},
        {"\"max_position_embeddings\": 9, \"width\": 2, \"rate\": 1, \"flag\": true, \"side\": \"up\"",
         "\"side\" is \"up\"; it is one of left, right"},
        {"\"max_position_embeddings\": 9, \"width\": 2, \"rate\": 1, \"flag\": true, \"side\": \"right\", \"other\": 1",
         "c.json: \"other\" is 5"}};
    ndp_architecture a = wrong;
    ndp_model_spec spec;
    (void)state;
    a.read = read_some;
    for (int i = 0; i < NDP_COUNT(of); i++) {
        char text[300];
        snprintf(text, sizeof text, "{\"model_type\": \"wrong\"%s%s}", of[i].keys[0] ? ", " : "", of[i].keys);
        CHECK_FAILS(parse(text, &a, &spec), NDP_EFORMAT, of[i].words);
    }
}

/* ---- an architecture ---- */

static void each_member_is_checked(void **state) {
    (void)state;
    ndp_own_list list = {0};
    ndp_architecture a = wrong, others[NDP_MOST_OWN];
    char names[NDP_MOST_OWN][8];
    a.name = "llama";
    CHECK_FAILS(ndp_own_add(&list, &a), NDP_EINVAL, "architecture llama has the name of a family");
    a.name = NULL;
    CHECK_FAILS(ndp_own_add(&list, &a), NDP_EINVAL, "1 to 31 characters, not ''");
    a.name = "a-name-that-is-longer-than-thirty-one";
    CHECK_FAILS(ndp_own_add(&list, &a), NDP_EINVAL, "1 to 31 characters");
    a = wrong, a.size = 0;
    CHECK_FAILS(ndp_own_add(&list, &a), NDP_EINVAL, "an architecture of 0 bytes; set size to sizeof");
    a = wrong, a.build = NULL;
    CHECK_FAILS(ndp_own_add(&list, &a), NDP_EINVAL, "architecture wrong has no function build");
    a = wrong, a.facts_size = NDP_FACTS_BYTES + 1;
    CHECK_FAILS(ndp_own_add(&list, &a), NDP_EINVAL, "facts of 1025 bytes; at most 1024");
    CHECK_OK(ndp_own_add(&list, &wrong));
    CHECK_FAILS(ndp_own_add(&list, &wrong), NDP_EINVAL, "architecture wrong was added already");
    for (int i = 0; i < NDP_MOST_OWN - 1; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        others[i] = wrong, others[i].name = names[i];
        CHECK_OK(ndp_own_add(&list, &others[i]));
    }
    a = wrong, a.name = "ninth";
    CHECK_FAILS(ndp_own_add(&list, &a), NDP_EINVAL, "ninth is architecture 9 of the configuration");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_mistake_is_named), cmocka_unit_test(each_key_is_checked),
                                       cmocka_unit_test(each_member_is_checked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
