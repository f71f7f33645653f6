/* Proof 3, a sample of it (all of it: long_invariance): on every layout the gradients, norms and losses of one rank.
 * And that the comparison sees: bugs put into a run on purpose turn it red and are named. */
#include "train/invariance.h"

/* Every layout once, the switches going through all their values. */
static void sample_ways(family *f, int ways) {
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        static const int accumulations[] = {1, 2, 4};
        int ranks = layouts[i][0] * layouts[i][1], accumulation = ranks > 8 ? 1 : accumulations[i % 3];
        way w = {.replicate = layouts[i][0],
                 .shard = layouts[i][1],
                 .global = global_batch(ranks, accumulation, ways),
                 .accumulation = accumulation,
                 .threads = 1,
                 .recompute = i % 2,
                 .keep = i % 4 >= 2,
                 .gathered = i % 3 < 2};
        check_way(f, &w);
    }
    print_family(f);
    family_release(f);
}

static void odd_fp32(void **state) {
    family f = {.s = odd_subject(*state, "odd fp32", "fp32")};
    f.s.steps = 3;
    sample_ways(&f, 3);
}

static void stories_fp32(void **state) {
    family f = {.s = stories_subject(*state, "stories260K fp32", "fp32")};
    f.s.length = 64, f.s.lr = 3e-4;
    sample_ways(&f, 3);
}

static void stories_sgd(void **state) {
    family f = {.s = stories_subject(*state, "stories260K fp32 SGD", "fp32")};
    f.s.length = 64, f.s.optimizer = "sgd", f.s.lr = 0.02, f.s.clip = 0;
    way w = {
        .replicate = 2, .shard = 2, .global = global_batch(4, 1, 6), .accumulation = 1, .threads = 1, .gathered = true};
    check_way(&f, &w);
    print_family(&f);
    family_release(&f);
}

static void odd_bf16(void **state) {
    family f = {.s = odd_subject(*state, "odd bf16", "bf16")};
    f.s.steps = 3, f.s.length = 125;
    way w = {.replicate = 2, .shard = 2, .global = global_batch(4, 1, 6), .accumulation = 1, .threads = 1};
    check_way(&f, &w);
    w.gathered = w.recompute = true;
    check_way(&f, &w);
    print_family(&f);
    family_release(&f);
}

static void odd_fp64(void **state) {
    family f = {.s = odd_subject(*state, "odd fp64 on ref", "fp64")};
    f.s.steps = 2, f.s.length = 30, f.s.window = 11;
    way w = {
        .replicate = 2, .shard = 2, .global = 4, .accumulation = 1, .threads = 1, .gathered = true, .recompute = true};
    check_way(&f, &w);
    w = (way){.replicate = 1, .shard = 2, .global = 4, .accumulation = 2, .threads = 1};
    check_way(&f, &w);
    print_family(&f);
    family_release(&f);
}

/* Documents of one token have nothing to predict: whole samples, and whole ranks, count for nothing. */
static void nothing_to_predict(void **state) {
    corpus *c = *state;
    family f = {.s = odd_subject(c, "no labels", "fp32")};
    char *lonely = write_corpus(c->folder, "lonely.jsonl", 60, 60, 90);
    f.s.data = lonely, f.s.tokenizer = c->tokenizer, f.s.length = 40, f.s.window = 16, f.s.steps = 6;
    static const way ways[] = {
        {.replicate = 1, .shard = 4, .global = 8, .accumulation = 2, .threads = 1},
        {.replicate = 4, .shard = 2, .global = 8, .accumulation = 1, .threads = 1, .recompute = true},
        {.replicate = 2, .shard = 2, .global = 8, .accumulation = 2, .threads = 1, .gathered = true}};
    for (int i = 0; i < NDP_COUNT(ways); i++) {
        outcome o = train(&f.s, &ways[i]);
        assert_in_range(o.empty_samples, 1, 8 * f.s.steps - 1);
        assert_true(o.empty_ranks > 0);
        outcome_release(&o);
        check_way(&f, &ways[i]);
    }
    print_family(&f);
    family_release(&f);
    free(lonely);
}

/* ---- bugs on purpose ---- */

/* Puts another kernel into the calls of an op. */
static void replace_kernel(ndp_program *p, int graph, ndp_phase phase, const ndp_op *op, ndp_kernel kernel) {
    ndp_op *bad = ndp_arena_alloc(&((ndp_model *)p->opts.model)->arena, sizeof *bad);
    *bad = *op;
    bad->kernel[NDP_BACKEND_CPU] = kernel;
    const ndp_list *list = &p->opts.units[graph].lists[phase];
    for (int i = 0; i < list->n; i++)
        if (list->calls[i].op == op)
            list->calls[i].op = bad;
}

enum { EMBEDDING, BLOCK, HEAD };

static void norm_dw_twice(const ndp_op_call *c) {
    ndp_op_attr again = *c->attr;
    again.accumulate = true;
    ndp_op_call second = *c;
    second.attr = &again;
    ndp_op_rmsnorm_dw.kernel[NDP_BACKEND_CPU](c);
    ndp_op_rmsnorm_dw.kernel[NDP_BACKEND_CPU](&second);
}

static void double_norm_gradient(ndp_program *p, int rank) {
    (void)rank;
    replace_kernel(p, HEAD, NDP_BACKWARD_WEIGHT, &ndp_op_rmsnorm_dw, norm_dw_twice);
}

static void xent_weighted(const ndp_op_call *c) {
    double scale = *(const double *)c->in[3].data * 1.01;
    ndp_op_call other = *c;
    other.in[3].data = &scale;
    ndp_op_xent.kernel[NDP_BACKEND_CPU](&other);
}

static void weigh_one_rank(ndp_program *p, int rank) {
    if (rank == 1)
        replace_kernel(p, HEAD, NDP_FORWARD, &ndp_op_xent, xent_weighted);
}

static void xent_without_last(const ndp_op_call *c) {
    int32_t labels[4096];
    ndp_op_call other = *c;
    assert_true(c->in[2].rows <= NDP_COUNT(labels) && c->in[2].ld == 1);
    memcpy(labels, c->in[2].data, (size_t)c->in[2].rows * sizeof *labels);
    labels[c->in[2].rows - 1] = -1;
    other.in[2].data = labels;
    ndp_op_xent.kernel[NDP_BACKEND_CPU](&other);
}

static void lose_label(ndp_program *p, int rank) {
    if (rank == 1)
        replace_kernel(p, HEAD, NDP_FORWARD, &ndp_op_xent, xent_without_last);
}

/* A bias behind a product whose other ranks' parts are summed: replicated, and here a third of the squares. */
static void count_twice(ndp_program *p, int rank) {
    (void)rank;
    ndp_segments *s = &p->opts.model->buffers[1].segments;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->items[i].name, "model.layers.0.self_attn.o_proj.bias") == 0)
            s->items[i].copies = 0.5;
}

/* The instructions of a buffer's communications of one kind. */
static ndp_instr *next_comm(ndp_program *p, int *i, ndp_collective kind, const char *buffer) {
    while (*i < p->n) {
        ndp_instr *in = &p->instrs[(*i)++];
        if ((in->code == NDP_DO_BEGIN || in->code == NDP_DO_WAIT) && in->kind == kind && strcmp(in->what, buffer) == 0)
            return in;
    }
    return NULL;
}

static void miss_replicas(ndp_program *p, int rank) {
    (void)rank;
    int found = 0;
    for (int i = 0; i < p->n;) {
        ndp_instr *in = next_comm(p, &i, NDP_ALL_REDUCE, "layers.2");
        if (in)
            in->code = NDP_DO_SCALE, found++; /* which may be done again */
    }
    assert_int_equal(found, 2);
}

static void forget_micro_batches(ndp_program *p, int rank) {
    (void)rank;
    for (int i = 0; i < p->n;) {
        ndp_instr *in = next_comm(p, &i, NDP_REDUCE_SCATTER, "layers.1");
        if (in)
            in->add = false;
    }
}

static const fault faults[] = {
    {"a norm's gradient doubled", "gradient of step 1, model.norm.weight", double_norm_gradient},
    {"one rank's loss weight off", "gradient of step 1", weigh_one_rank},
    {"a label lost at the border of a sample", "gradient of step 1", lose_label},
    {"a replicated tensor counted twice in the norm", "grad_norm, step", count_twice},
    {"a replica's sum missed", "gradient of step 1, model.layers.2.", miss_replicas},
    {"a micro-batch forgotten", "gradient of step 1, model.layers.1.", forget_micro_batches}};

static void bugs_are_seen(void **state) {
    family f = {.s = odd_subject(*state, "odd fp32", "fp32")};
    f.s.steps = 2;
    way w = {.replicate = 2, .shard = 2, .global = 8, .accumulation = 2, .threads = 1};
    check_way(&f, &w);
    for (int i = 0; i < NDP_COUNT(faults); i++) {
        char words[512];
        w.fault = &faults[i];
        const char *bad = try_way(&f, &w, words);
        printf("%s: %s\n", faults[i].name, bad ? bad : "NOT SEEN");
        assert_non_null(bad);
        if (!strstr(bad, faults[i].seen))
            fail_msg("%s: %s does not say '%s'", faults[i].name, bad, faults[i].seen);
    }
    family_release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(odd_fp32),     cmocka_unit_test(stories_fp32),
                                       cmocka_unit_test(stories_sgd),  cmocka_unit_test(odd_bf16),
                                       cmocka_unit_test(odd_fp64),     cmocka_unit_test(nothing_to_predict),
                                       cmocka_unit_test(bugs_are_seen)};
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
