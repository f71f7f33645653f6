/* Proof 3 for the losses of preference data: on every layout the gradients, norms and losses of one rank. And that the
 * comparison sees bugs in how pairs are summed and weighted. */
#include "verify/mixtures.h"

#include "ops/devices.h"

/* FOLDER/pairs.jsonl: texts of unequal length, whose chosen answers lean on the letter before. */
static char *write_preferences(const char *folder) {
    char *path = ndp_format("%s/pairs.jsonl", folder);
    ndp_str text = {0};
    for (uint64_t d = 0; d < 64; d++) {
        static const char *const fields[] = {"prompt", "chosen", "rejected"};
        for (uint64_t k = 0; k < 3; k++) {
            uint64_t n = 1 + ndp_rng_below(6, k, d, k ? 40 : 16);
            ndp_str_addf(&text, "%s\"%s\":\"%c", k ? "," : "{", fields[k], 'z' - (int)k);
            for (uint64_t i = 0; i < n; i++)
                ndp_str_addf(&text, "%c", 'a' + (int)((k == 1 ? 3 * i + d : ndp_rng_below(7, k, d * 64 + i, 16)) % 16));
            ndp_str_add(&text, "\"");
        }
        ndp_str_add(&text, "}\n");
    }
    assert_false(text.failed);
    CHECK_OK(ndp_file_write_atomic(path, text.data, text.length));
    ndp_str_release(&text);
    return path;
}

static subject pairs_subject(const corpus *c, const char *name, const char *precision, const char *loss, char *data) {
    subject s = odd_subject(c, name, precision);
    s.data = data, s.loss = loss, s.one_a_row = true, s.length = 45, s.window = 20, s.steps = 3;
    return s;
}

static const way all_ways[] = {
    {.replicate = 2, .global = 16, .accumulation = 2, .threads = 1},
    {.shard = 4, .global = 16, .accumulation = 1, .threads = 1, .gathered = true, .recompute = true},
    {.cp = 3, .global = 16, .accumulation = 4, .threads = 1},
    {.cp = 2, .global = 16, .accumulation = 8, .threads = 1, .all_gather = true, .contiguous = true},
    {.sp = 4, .global = 16, .accumulation = 2, .threads = 1, .recompute = true},
    {.tp = 8, .global = 16, .accumulation = 2, .threads = 1},
    {.tp = 2, .cp = 2, .global = 16, .accumulation = 1, .threads = 1, .whole_rows = true},
    {.pp = 2, .replicate = 2, .global = 16, .accumulation = 2, .threads = 1},
    {.pp = 2, .cp = 2, .tp = 2, .global = 16, .accumulation = 4, .threads = 1, .schedule = "zero_bubble"},
    {.shard = 2, .cp = 2, .sp = 2, .tp = 2, .global = 16, .accumulation = 2, .threads = 1}};

static void check_losses(const corpus *c, const char *precision, const char *const *losses, int n, int step) {
    char *data = write_preferences(c->folder);
    for (int i = 0; i < n; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s %s", losses[i], precision);
        family f = {.s = pairs_subject(c, name, precision, losses[i], data)};
        for (int k = i % step; k < NDP_COUNT(all_ways); k += step)
            check_way(&f, &all_ways[k]);
        print_family(&f);
        family_release(&f);
    }
    free(data);
}

static const char *const losses[] = {"name=dpo beta=0.5",
                                     "name=orpo beta=0.5",
                                     "name=simpo beta=2",
                                     "name=dpo variant=ipo sft_weight=0.5",
                                     "name=dpo variant=hinge",
                                     "name=dpo variant=robust label_smoothing=0.1",
                                     "name=kto beta=0.5 desirable_weight=0.7",
                                     "name=reward center=0.1"};

static void pairs_fp32(void **state) { check_losses(*state, "fp32", losses, NDP_COUNT(losses), short_or_all(7, 3)); }
static void pairs_bf16(void **state) { check_losses(*state, "bf16", losses, 3, 3); }
static void pairs_fp64(void **state) { check_losses(*state, "fp64", losses, 3, short_or_all(9, 5)); }

/* Ranks that share experts, to which rows go in one round and in several. */
static void pairs_of_mixtures(void **state) {
    static const way ways[] = {
        {.shard = 2, .ep = 2, .global = 16, .accumulation = 2, .threads = 1, .capacity = "1"},
        {.cp = 2, .tp = 2, .ep = 4, .global = 16, .accumulation = 4, .threads = 1, .recompute = 1, .capacity = "1"},
        {.pp = 2, .tp = 2, .ep = 2, .global = 16, .accumulation = 4, .threads = 1, .whole_rows = true, .capacity = "1"},
        {.shard = 2, .sp = 2, .ep = 4, .global = 16, .accumulation = 1, .threads = 1, .capacity = "full"}};
    char *data = write_preferences(((corpus *)*state)->folder), *path;
    for (int i = 0; i < NDP_COUNT(losses); i += short_or_all(i < 1 ? 1 : 5, 1)) { /* dpo, orpo, kto */
        subject mixture = mixture_subject(*state, &mixture_models[0], "fp32", &path);
        family f = {.s = pairs_subject(*state, losses[i], "fp32", losses[i], data)};
        f.s.path = mixture.path, f.s.moe = mixture.moe, f.s.window = 0;
        for (int k = 0; k < NDP_COUNT(ways); k++)
            check_way(&f, &ways[k]);
        print_family(&f);
        assert_true(f.tried < NDP_COUNT(ways) || f.chosen[CHOICE_ROUNDS] >= 3);
        family_release(&f);
        free(path);
    }
    free(data);
}

/* ---- bugs on purpose ---- */

enum { HEAD = 2 };

static void replace_kernel(ndp_program *p, const ndp_op *op, ndp_status (*run)(const ndp_op_call *call)) {
    ndp_kernel *bad = ndp_arena_alloc(&((ndp_model *)p->opts.model)->arena, sizeof *bad);
    int found = 0;
    bad->run = run;
    const ndp_list *list = &p->opts.units[HEAD].lists[NDP_FORWARD];
    for (int i = 0; i < list->n; i++)
        if (list->calls[i].op == op)
            list->calls[i].kernel = bad, found++;
    assert_true(found > 0);
}

static ndp_status run_true(const ndp_op_call *c) { return ndp_device_cpu.kernels[c->op->id]->run(c); }

/* The sums of a rank's own rows are left out of those of all ranks that share them. */
static ndp_status sums_missed(const ndp_op_call *c) {
    NDP_TRY(run_true(c));
    for (int64_t i = 0; i < c->out[0].rows; i++)
        memset((double *)c->out[0].data + i * c->out[0].ld, 0, (size_t)c->out[0].cols * sizeof(double));
    return NDP_OK;
}

static void miss_sums(ndp_program *p, int rank) {
    if (rank == 1)
        replace_kernel(p, &ndp_op_document_sums, sums_missed);
}

/* The mean over the pairs of a micro-batch instead of those of the update. */
static ndp_status scale_of_micro_batch(const ndp_op_call *c) {
    double scale = 2 * *(const double *)c->in[NDP_PAIR_ROWS_SCALE].data;
    ndp_op_call other = *c;
    other.in[NDP_PAIR_ROWS_SCALE].data = &scale;
    return run_true(&other);
}

static void scale_alone(ndp_program *p, int rank) {
    if (rank == 0)
        replace_kernel(p, &ndp_op_pair_rows, scale_of_micro_batch);
}

static ndp_status without_reference(const ndp_op_call *c) {
    static const double zeros[64];
    ndp_op_call other = *c;
    assert_true(c->in[1].rows <= NDP_COUNT(zeros));
    other.in[1].data = (void *)zeros;
    other.in[1].ld = 1;
    return run_true(&other);
}

static void lose_reference(ndp_program *p, int rank) {
    if (rank == 1)
        replace_kernel(p, &ndp_op_pair_loss, without_reference);
}

/* The run ends at step 1, where an answer's log-probability is not that of the reference. */
static void check_stops(const subject *s, const way *w) {
    outcome o = {0};
    ndp_config *c = configure(s, w);
    running r = {s, w, c, {.record = true}, &o};
    CHECK_FAILS(ndp_world_run(c, run_rank, &r), NDP_EBUG, w->fault->seen);
    ndp_config_destroy(c);
}

static void check_bug(family *f, way w, const fault *bug) {
    char words[512];
    check_way(f, &w);
    w.fault = bug;
    const char *bad = try_way(f, &w, words);
    printf("%s: %s\n", bug->name, bad ? bad : "NOT SEEN");
    assert_non_null(bad);
    if (!strstr(bad, bug->seen))
        fail_msg("%s: %s does not say '%s'", bug->name, bad, bug->seen);
}

/* Sums that are missed are also those of the reference; without one, gradients show it. */
static void bugs_are_seen(void **state) {
    static const way data = {.replicate = 2, .shard = 2, .global = 16, .accumulation = 2, .threads = 1},
                     context = {.shard = 2, .cp = 2, .global = 16, .accumulation = 4, .threads = 1},
                     sequence = {.sp = 2, .tp = 2, .global = 16, .accumulation = 4, .threads = 1};
    static const struct {
        const way *way;
        fault fault;
    } missed[] = {{&context, {"cp: the sums of a rank missed", "gradient of step 1", miss_sums}},
                  {&sequence, {"sp: the sums of a rank missed", "gradient of step 1", miss_sums}}},
      bugs[] = {{&data, {"a pair scaled by its micro-batch", "gradient of step 1", scale_alone}},
                {&context, {"cp: a rank's rows scaled by their micro-batch", "gradient of step 1", scale_alone}},
                {&data, {"a rank without reference", "gradient of step 1", lose_reference}}};
    char *text = write_preferences(((corpus *)*state)->folder);
    family dpo = {.s = pairs_subject(*state, "dpo fp32", "fp32", losses[0], text)},
           orpo = {.s = pairs_subject(*state, "orpo fp32", "fp32", losses[1], text)};
    dpo.s.steps = orpo.s.steps = 2;
    for (int i = 0; i < NDP_COUNT(missed); i++) {
        const fault stops = {missed[i].fault.name, "step 1: the policy is the reference model", miss_sums};
        way w = *missed[i].way;
        check_bug(&orpo, w, &missed[i].fault);
        w.fault = &stops;
        check_stops(&dpo.s, &w);
    }
    for (int i = 0; i < NDP_COUNT(bugs); i++)
        check_bug(&dpo, *bugs[i].way, &bugs[i].fault);
    family_release(&dpo);
    family_release(&orpo);
    free(text);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pairs_fp32), cmocka_unit_test(pairs_fp64),
                                       cmocka_unit_test(pairs_of_mixtures), cmocka_unit_test(bugs_are_seen)};
    const struct CMUnitTest more[] = {cmocka_unit_test(pairs_bf16)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus) ||
           (short_or_all(0, 1) && cmocka_run_group_tests(more, make_corpus, drop_corpus));
}
