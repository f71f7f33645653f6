/* Dumps of our own, of all families, on all axes and in all precisions, agree; other updates and logits do not. And the
 * judge's device: its sums over parts add up, and it shows the logits of the loss. */
#include "verify/dumps.h"
#include "verify/judge.h"

/* Every axis with another one. */
static const way ways[] = {
    {.global = DUMP_ROWS, .accumulation = 2, .threads = 1},
    {.replicate = 2, .shard = 2, .global = DUMP_ROWS, .accumulation = 2, .threads = 1},
    {.shard = 2, .cp = 2, .tp = 2, .global = DUMP_ROWS, .accumulation = 1, .threads = 1},
    {.pp = 2, .tp = 2, .global = DUMP_ROWS, .accumulation = 4, .threads = 1, .once = true},
    {.cp = 2, .sp = 2, .global = DUMP_ROWS, .accumulation = 1, .threads = 1, .all_gather = true}};

static void check_agrees(const ndp_config *c, const char *folder, const char *what) {
    ndp_against a = judge_dump(c, folder);
    char *causes = causes_of(&a);
    if (!a.agrees || a.n_causes)
        fail_msg("%s: %s", what, causes);
    assert_int_equal(a.rows, DUMP_ROWS);
    assert_int_equal(a.tokens[0], a.tokens[1]);
    assert_true(a.n > 10);
    double most = 0;
    for (int i = 0; i < a.n; i++)
        most = fmax(most, a.gradients[i].off);
    assert_true(most > 0); /* another order of sums: it was not compared with itself */
    assert_true(a.has_weights);
    printf("%s: worst gradient off by %.2g, update of weights by %.2g, bound %.2g\n", what, most, a.weights_off,
           a.weights_bound);
    free(causes);
    ndp_against_release(&a);
}

static void family_agrees(void **state) {
    const family_model *m = *state;
    for (int i = 0; i < NDP_COUNT(ways); i++) {
        char what[WAY_TEXT];
        char *folder = dump_folder("own");
        ndp_config *c = dump_job(m, &ways[i]);
        make_dump(c, folder, NULL, NULL);
        check_agrees(c, folder, way_text(&ways[i], what));
        ndp_config_destroy(c);
        free(folder);
    }
}

/* Losses of routers, and given choices, are in no dump: those of the job are refused, on both sides. */
static void mixtures_refused(void **state) {
    (void)state;
    static const struct {
        const char *set, *words;
    } cases[] = {{"moe.z_loss=0.1", "set moe.balance: none and moe.z_loss: 0"},
                 {"moe.balance=sequence", "losses of routers"},
                 {"moe.routes=x.safetensors", "leave moe.routes out"}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_config *c = dump_job(family_called("mixtral"), &ways[0]);
        char *folder = dump_folder("own");
        ndp_against a;
        set(c, "%s", cases[i].set);
        CHECK_FAILS(ndp_verify_dump_altered(c, &(ndp_dump_opts){.folder = folder}, NULL, NULL), NDP_ENOTSUP,
                    cases[i].words);
        CHECK_FAILS(ndp_verify_against(c, &(ndp_against_opts){.folder = folder}, &a), NDP_ENOTSUP, cases[i].words);
        ndp_config_destroy(c);
        free(folder);
    }
}

/* A dump in `dumped` on a layout is judged in `judged`. */
static void check_precision(const family_model *m, const way *w, const char *dumped, const char *judged) {
    bool exact = strcmp(judged, "fp64") == 0;
    char *folder = dump_folder("own");
    ndp_config *c = dump_job(m, w);
    set(c, "precision.compute=%s", dumped);
    set(c, "train.device=%s", strcmp(dumped, "fp64") == 0 ? "ref" : "cpu");
    make_dump(c, folder, NULL, NULL);
    set(c, "train.device=%s", exact ? "ref" : "cpu");
    set(c, "precision.compute=%s", judged);
    check_agrees(c, folder, dumped);
    ndp_against a = judge_dump(c, folder);
    double bound = a.gradients[a.n - 1].bound;
    assert_true(strcmp(dumped, "fp64") == 0 ? bound < 3e-6 : strcmp(dumped, "fp32") == 0 ? bound < 3e-5 : bound > 1e-3);
    ndp_against_release(&a);
    ndp_config_destroy(c);
    free(folder);
}

static void precisions_agree(void **state) {
    const family_model *m = *state;
    check_precision(m, &ways[1], "bf16", "bf16");
    check_precision(m, &ways[2], "bf16", "bf16");
    check_precision(m, &ways[3], "bf16", "bf16");
    check_precision(m, &ways[1], "fp32", "fp64");
    check_precision(m, &ways[2], "fp64", "fp64");
}

/* ---- updates ---- */

/* A dump of a job with one setting is judged by the job with another one. */
static void check_update(const char *dumped, const char *judged, double lr, const char *words) {
    char *folder = dump_folder("update");
    ndp_config *c = dump_job(family_called("qwen3"), &ways[0]);
    set(c, "optimizer.weight_decay=0.1");
    set(c, "%s", dumped);
    make_dump(c, folder, NULL, NULL);
    set(c, "%s", judged);
    if (lr > 0)
        patch(folder, "batch", "lr", 0, 1, &lr);
    ndp_against a = judge_dump(c, folder);
    assert_true(a.has_weights);
    assert_int_equal(a.agrees, words == NULL);
    assert_int_equal(a.n_causes, words ? 1 : 0);
    if (words && !strstr(a.causes[0], words))
        fail_msg("no '%s' in %s", words, a.causes[0]);
    ndp_against_release(&a);
    ndp_config_destroy(c);
    free(folder);
}

static void updates_are_compared(void **state) {
    (void)state;
    static const char other[] = "like another optimizer or other options of it than the job's";
    check_update("optimizer.lr=1e-3", "optimizer.lr=1e-2", 0, NULL); /* the dump has its own */
    check_update("optimizer.lr=1e-3", "optimizer.lr=1e-3", 5e-4,
                 "the update of the weights is 2.0000 of ours: like another "
                 "learning rate");
    check_update("optimizer.weight_decay=0", "optimizer.weight_decay=0.1", 0, other);
    check_update("optimizer.max_grad_norm=0", "optimizer.max_grad_norm=1e-7", 0, other);
    check_update("optimizer.name=sgd", "optimizer.momentum=0.5", 0, NULL); /* nothing yet to be moved by */
    check_update("optimizer.name=sgd", "optimizer.max_grad_norm=0.01", 0, other);
    check_update("optimizer.name=lion", "train.seed=42", 0, NULL);
    check_update("optimizer.name=muon", "train.seed=42", 0, NULL);
    check_update("optimizer.name=lion", "optimizer.name=sgd", 0, other);
}

/* ---- logits ---- */

/* The loss by the logits that the judge's device shows. */
typedef struct shown {
    const ndp_dump_rows *rows;
    int64_t row;
    double nll;
    double *logits; /* of all rows */
} shown;

static ndp_status take_logits(void *user, int64_t position, const double *logits, int64_t n) {
    shown *s = user;
    int64_t at = s->row * s->rows->length + position;
    double sum = 0;
    for (int64_t v = 0; v < n; v++)
        sum += exp(logits[v]);
    s->nll += log(sum) - logits[s->rows->labels[at]];
    memcpy(s->logits + at * n, logits, (size_t)n * sizeof *logits);
    return NDP_OK;
}

/* The logits of a dump's rows on one rank; their loss is the step's. */
static double *show_logits(const ndp_config *c, const char *folder, int64_t vocab) {
    ndp_dump d;
    ndp_dump_rows rows;
    ndp_judge j;
    ndp_judged sum;
    CHECK_OK(ndp_dump_open(folder, &d));
    CHECK_OK(ndp_dump_read_rows(&d, vocab, &rows));
    CHECK_OK(ndp_judge_open(c, &d, 1, NDP_F32, &j));
    CHECK_OK(ndp_judged_init(&sum, &j));
    shown s = {.rows = &rows, .logits = calloc((size_t)(rows.n * rows.length * vocab), sizeof *s.logits)};
    j.partial->logits = take_logits, j.partial->user = &s;
    for (s.row = 0; s.row < rows.n; s.row++)
        CHECK_OK(ndp_judge_add(&j, &rows, s.row, 1, &sum));
    assert_true(fabs(s.nll / sum.loss - 1) < 1e-6);
    assert_true(fabs(s.nll / (double)d.tokens / d.loss - 1) < 1e-6);
    ndp_judged_release(&sum);
    ndp_judge_close(&j);
    ndp_dump_rows_release(&rows);
    ndp_dump_close(&d);
    return s.logits;
}

/* Writes the batch again, with logits of a shape. */
static void add_logits(const char *folder, const int64_t shape[3], const double *logits) {
    enum { MOST = 16 };
    char *path = ndp_format("%s/batch.safetensors", folder), *new = ndp_format("%s/new", folder);
    ndp_tensor_spec specs[MOST];
    ndp_safetensors *f;
    ndp_safetensors_writer *w;
    CHECK_OK(ndp_safetensors_open(path, &f));
    int n = ndp_safetensors_count(f);
    assert_true(n < MOST);
    for (int i = 0; i < n; i++)
        specs[i] = ndp_safetensors_at(f, i)->spec;
    specs[n] = (ndp_tensor_spec){"logits", NDP_F32, 3, {shape[0], shape[1], shape[2]}, NULL};
    CHECK_OK(ndp_safetensors_create(new, specs, n + 1, &w));
    for (int i = 0; i < n; i++) {
        const ndp_tensor_entry *t = ndp_safetensors_at(f, i);
        void *data = malloc((size_t)t->elements * sizeof(int64_t));
        CHECK_OK(ndp_safetensors_read(f, t, 0, t->elements, data, t->spec.dtype, false));
        CHECK_OK(ndp_safetensors_write(w, i, 0, t->elements, data, t->spec.dtype));
        free(data);
    }
    CHECK_OK(ndp_safetensors_write(w, n, 0, shape[0] * shape[1] * shape[2], logits, NDP_F64));
    ndp_safetensors_writer_destroy(w);
    ndp_safetensors_close(f);
    assert_int_equal(rename(new, path), 0);
    free(path), free(new);
}

static void check_logits(const ndp_config *c, const char *right, const int64_t shape[3], const double *logits,
                         const char *words) {
    char *folder = dump_folder("with-logits");
    copy_dump(right, folder);
    add_logits(folder, shape, logits);
    ndp_against a = judge_dump(c, folder);
    char *causes = causes_of(&a);
    assert_true(a.has_logits);
    assert_int_equal(a.agrees, words == NULL);
    assert_true(words ? strstr(causes, words) != NULL : a.n_causes == 0 && a.logits_off > 0);
    free(causes);
    ndp_against_release(&a);
    free(folder);
}

/* Those of gemma2 are capped. */
static void logits_are_compared(void **state) {
    (void)state;
    enum { VOCAB = 263 };
    char *right = dump_folder("right"), *folder = dump_folder("refused");
    ndp_config *c = dump_job(family_called("gemma2"), &ways[1]);
    int64_t shape[3] = {DUMP_ROWS, DUMP_LENGTH, VOCAB}, other[3] = {DUMP_ROWS, DUMP_LENGTH - 1, VOCAB};
    make_dump(c, right, NULL, NULL);
    double *logits = show_logits(c, right, VOCAB);
    check_logits(c, right, shape, logits, NULL);
    logits[5] += 0.1;
    check_logits(c, right, shape, logits, "the logits are different, though the loss and the gradients agree");
    copy_dump(right, folder);
    add_logits(folder, other, logits);
    CHECK_FAILS(ndp_verify_against(c, &(ndp_against_opts){.folder = folder}, &(ndp_against){0}), NDP_EFORMAT,
                "logits is F32 [8, 31, 263], expected [8, 32, 263]");
    free(logits);
    ndp_config_destroy(c);
    free(right);
    free(folder);
}

/* ---- parts of gradients ---- */

/* The sum over rows with each of n partial sums, and without. */
static void check_parts(ndp_judge *j, const ndp_dump_rows *rows, const ndp_partial_sums *parts, int n, const char *of) {
    ndp_judged whole, sum;
    double most = 0;
    bool partial = false;
    CHECK_OK(ndp_judged_init(&whole, j));
    CHECK_OK(ndp_judged_init(&sum, j));
    CHECK_OK(ndp_judge_mean(j, rows, &whole, NULL));
    for (int i = 0; i < n; i++) {
        j->partial->sums = parts[i];
        CHECK_OK(ndp_judge_mean(j, rows, &sum, NULL));
        j->partial->sums = (ndp_partial_sums){0};
        assert_true(fabs(sum.loss / ((i + 1) * whole.loss) - 1) < 1e-14); /* the step itself is the same */
    }
    for (int t = 0; t < j->list.n; t++) {
        double apart = 0, once = 0, all = 0;
        if (!strstr(j->list.specs[t].name, of))
            continue;
        for (int64_t e = j->first[t]; e < j->first[t + 1]; e++) {
            apart += pow(sum.gradient[e] - whole.gradient[e], 2), all += pow(whole.gradient[e], 2);
            once += pow(sum.gradient[e] - n * whole.gradient[e], 2);
        }
        most = fmax(most, all > 1e-20 ? sqrt(apart / all) : 0);
        partial |= once > 1e-6 * all;
    }
    assert_true(partial && most < 2e-5);
    ndp_judged_release(&whole);
    ndp_judged_release(&sum);
}

/* Sums over parts of the rows, of the heads, of a tied table's two ends: together they are the whole gradient. */
static void parts_add_up(void **state) {
    const family_model *m = *state;
    const ndp_partial_sums halves[] = {{.n = 1, .rows = {{0, 13}}}, {.n = 1, .rows = {{13, 19}}}},
                           zigzag[] = {{.n = 2, .rows = {{0, 8}, {24, 8}}}, {.n = 2, .rows = {{8, 8}, {16, 8}}}},
                           heads[] = {{.head_ranks = 2}, {.head_rank = 1, .head_ranks = 2}},
                           ends[] = {{.no_embedding = true}, {.no_head = true}};
    const char *devices[] = {"cpu", "ref"};
    char *folder = dump_folder("parts");
    for (int i = 0; i < NDP_COUNT(devices); i++) {
        ndp_config *c = dump_job(m, &ways[0]);
        ndp_dump d;
        ndp_dump_rows rows;
        ndp_judge j;
        if (i == 0)
            make_dump(c, folder, NULL, NULL);
        set(c, "train.device=%s", devices[i]);
        CHECK_OK(ndp_dump_open(folder, &d));
        CHECK_OK(ndp_dump_read_rows(&d, 263, &rows));
        CHECK_OK(ndp_judge_open(c, &d, 1, NDP_F32, &j));
        check_parts(&j, &rows, halves, 2, "");
        check_parts(&j, &rows, zigzag, 2, "");
        if (strcmp(m->name, "qwen3") == 0)
            check_parts(&j, &rows, heads, 2, "self_attn.q_norm");
        if (strcmp(m->name, "qwen2") == 0)
            check_parts(&j, &rows, ends, 2, "embed_tokens");
        ndp_judge_close(&j);
        ndp_dump_rows_release(&rows);
        ndp_dump_close(&d);
        ndp_config_destroy(c);
    }
    free(folder);
}

int main(int argc, char **argv) {
    enum { OTHERS = 9 };
    struct CMUnitTest tests[FAMILIES + OTHERS] = {
        {"mixtures_refused", mixtures_refused, NULL, NULL, NULL},
        {"logits_are_compared", logits_are_compared, NULL, NULL, NULL},
        {"updates_are_compared", updates_are_compared, NULL, NULL, NULL},
        {"precisions_of_llama", precisions_agree, NULL, NULL, (void *)family_called("llama")},
        {"precisions_of_qwen3", precisions_agree, NULL, NULL, (void *)family_called("qwen3")},
        {"precisions_of_gemma2", precisions_agree, NULL, NULL, (void *)family_called("gemma2")},
        {"precisions_of_gpt2", precisions_agree, NULL, NULL, (void *)family_called("gpt2")},
        {"parts_of_qwen2", parts_add_up, NULL, NULL, (void *)family_called("qwen2")},
        {"parts_of_qwen3", parts_add_up, NULL, NULL, (void *)family_called("qwen3")}};
    for (int i = 0; i < FAMILIES; i++)
        tests[OTHERS + i] =
            (struct CMUnitTest){family_models[i].name, family_agrees, NULL, NULL, (void *)&family_models[i]};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_the_corpus, drop_the_corpus);
}
