/* Long sequences: one document of 32,768 tokens a row, all of it causal, on the stories260K shape, cut over 2, 4 and 8
 * ranks of the context axis by both of its methods. What a rank needs for activations falls as one over the ranks; the
 * gradients stay those of one rank. Prints a table. */
#include "base/rng.h"
#include "check.h"
#include "verify/outcome.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { TOKENS = 32768, STEPS = 2, KV_COLUMNS = 32 };
#define NEAR 0.10 /* of what one rank needs over the number of ranks */

static const char stories260k[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 512, \"hidden_size\": 64, "
    "\"num_hidden_layers\": 5, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 172, "
    "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true}";

typedef struct cut {
    int cp;
    const char *method;
} cut;

typedef struct run {
    const ndp_config *config;
    ndp_outcome outcome;
    ndp_budget budget;
    double seconds; /* a step */
} run;

/* ---- the job ---- */

/* One document that fills the rows of all steps; each letter leans on the one before. */
static void write_document(const char *folder) {
    char *path = ndp_format("%s/document.jsonl", folder), *letters = malloc(STEPS * TOKENS + 2);
    ndp_str text = {0};
    uint64_t last = 0;
    for (int i = 0; i <= STEPS * TOKENS; i++) {
        last = (3 * last + ndp_rng_below(5, 2, (uint64_t)i, 6)) % 16;
        letters[i] = (char)('a' + last);
    }
    letters[STEPS * TOKENS + 1] = '\0';
    ndp_str_addf(&text, "{\"text\": \"%s\"}\n", letters);
    CHECK_OK(ndp_file_write_atomic(path, text.data, text.length));
    ndp_str_release(&text);
    free(letters);
    free(path);
}

static int make_folder(void **state) {
    char path[128], *folder = strdup("/tmp/ndp-sequences-XXXXXX");
    *state = folder;
    if (!folder || !mkdtemp(folder))
        return -1;
    write_document(folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    return ndp_file_write_atomic(path, stories260k, strlen(stories260k)) == NDP_OK ? 0 : -1;
}

static int drop_folder(void **state) {
    ndp_status st = ndp_folder_remove(*state);
    free(*state);
    return st == NDP_OK ? 0 : -1;
}

static ndp_config *configure(const char *folder, const cut *how) {
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_setf(c, "model.config=%s/config.json", folder));
    CHECK_OK(ndp_config_set(c, "model.allow_longer=true"));
    CHECK_OK(ndp_config_setf(c, "data.files=%s/document.jsonl", folder));
    CHECK_OK(ndp_config_setf(c, "data.cache_dir=%s", folder));
    CHECK_OK(ndp_config_set(c, "data.tokenizer=bytes"));
    CHECK_OK(ndp_config_setf(c, "data.sequence_length=%d", TOKENS));
    CHECK_OK(ndp_config_set(c, "parallelism.dp_shard_size=1"));
    CHECK_OK(ndp_config_setf(c, "parallelism.cp_size=%d", how->cp));
    CHECK_OK(ndp_config_setf(c, "parallelism.cp_method=%s", how->method));
    CHECK_OK(ndp_config_set(c, "batch.global_batch_size=1"));
    CHECK_OK(ndp_config_set(c, "optimizer.lr=1e-3"));
    CHECK_OK(ndp_config_set(c, "schedule.name=constant"));
    CHECK_OK(ndp_config_setf(c, "train.threads=%d", how->cp == 1 ? 2 : 1));
    CHECK_OK(ndp_config_setf(c, "train.transport=%s", how->cp == 1 ? "self" : "local"));
    return c;
}

static ndp_status train_steps(ndp_trainer *t, ndp_outcome *o, bool keep) {
    NDP_TRY(ndp_outcome_init(o, t, STEPS, keep));
    for (int i = 0; i < STEPS; i++)
        NDP_TRY(ndp_outcome_step(o, t));
    return NDP_OK;
}

static ndp_status body(ndp_world *w, void *arg) {
    run *r = arg;
    bool first = ndp_world_rank(w) == 0;
    ndp_trainer *t;
    ndp_outcome o = {0};
    NDP_TRY(ndp_trainer_create(r->config, w, &t));
    ndp_status st = train_steps(t, &o, first);
    if (st == NDP_OK && first) {
        const ndp_profile *p = ndp_engine_profile(t->engine);
        ndp_program_budget(ndp_engine_program(t->engine), &r->budget);
        r->seconds = p->total / (double)p->steps;
        r->outcome = o;
    } else {
        ndp_outcome_release(&o);
    }
    ndp_trainer_destroy(t);
    return st;
}

static run train(const char *folder, const cut *how) {
    ndp_config *c = configure(folder, how);
    run r = {.config = c};
    CHECK_OK(ndp_world_run(c, body, &r));
    ndp_config_destroy(c);
    return r;
}

/* ---- the proof ---- */

static double mebibytes(size_t bytes) { return (double)bytes / (1 << 20); }

static double of_activations(const run *r) {
    return mebibytes(r->budget.class_bytes[NDP_MEM_ACTIVATIONS] + r->budget.class_bytes[NDP_MEM_WORK]);
}

/* MiB that do not fall: with gathering, at the fullest moment, keys and values of all rows and their gradients, of the
 * current layer. A ring has those of a few ranks at a time. */
static double constant(const cut *how) {
    return strcmp(how->method, "all_gather") == 0 ? mebibytes((size_t)4 * TOKENS * KV_COLUMNS * sizeof(float)) : 0;
}

static void print_row(const cut *how, const run *r, const char *more) {
    print_message("%2d  %-10s %9.1f %7.1f %9.1f %9.1f %8.1f%s\n", how->cp, how->cp == 1 ? "" : how->method,
                  mebibytes(r->budget.class_bytes[NDP_MEM_ACTIVATIONS]), mebibytes(r->budget.class_bytes[NDP_MEM_WORK]),
                  of_activations(r), mebibytes(r->budget.total), r->seconds, more);
}

static void check_cut(const char *folder, const run *one, const cut *how, const ndp_bounds *bounds) {
    ndp_difference d;
    char words[512], more[256];
    run r = train(folder, how);
    CHECK_OK(ndp_outcome_compare(&r.outcome, &one->outcome, bounds, &d));
    double share = of_activations(one) / how->cp, off = (of_activations(&r) - constant(how)) / share - 1;
    const ndp_spot *worst = &d.of[NDP_MEASURE_FIRST_GRADIENT].worst;
    snprintf(more, sizeof more, "  %+5.1f%% of 1/%d + %.1f   %.1e  %s", 100 * off, how->cp, constant(how), worst->off,
             worst->where);
    print_row(how, &r, more);
    ndp_outcome_release(&r.outcome);
    const char *bad = ndp_difference_words(&d, words, sizeof words);
    if (bad)
        fail_msg("cp %d, %s: %s", how->cp, how->method, bad);
    if (fabs(off) > NEAR)
        fail_msg("cp %d, %s: %.1f MiB of activations and work; a %dth of one rank's are %.1f, and %.1f are constant",
                 how->cp, how->method, of_activations(&r), how->cp, share, constant(how));
}

static void activations_fall_and_gradients_stay(void **state) {
    static const cut whole = {1, "ring"}, cuts[] = {{2, "ring"},       {4, "ring"},       {8, "ring"},
                                                    {2, "all_gather"}, {4, "all_gather"}, {8, "all_gather"}};
    ndp_config *c = configure(*state, &whole);
    ndp_bounds bounds = ndp_bounds_of(c);
    ndp_config_destroy(c);
    run one = train(*state, &whole);
    print_message("%d tokens a row, one document; MiB a rank; gradient of step 1, off at worst (bound %.0e)\n", TOKENS,
                  bounds.of[NDP_MEASURE_FIRST_GRADIENT]);
    print_message("cp  method   activations    work       sum     taken   s/step  sum off by            gradient\n");
    print_row(&whole, &one, "");
    for (int i = 0; i < NDP_COUNT(cuts); i++)
        check_cut(*state, &one, &cuts[i], &bounds);
    ndp_outcome_release(&one.outcome);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(activations_fall_and_gradients_stay)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
