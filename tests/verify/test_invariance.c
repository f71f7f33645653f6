/* Proof 3, a sample of it (all of it: long_invariance): on every layout the gradients, norms and losses of one rank.
 * And that the comparison sees: bugs put into a run on purpose turn it red and are named. */
#include "verify/invariance.h"
#include "verify/seeded.h"

/* dp_replicate, dp_shard, cp, sp, tp: every axis alone, in pairs and in threes. */
typedef int sizes[5];

/* For 8 heads and 4 kv heads; tp 8: two ranks a kv head. */
static const sizes eights[] = {{1, 3, 1, 1, 1}, {4, 2, 1, 1, 1}, {1, 1, 3, 1, 1}, {1, 1, 1, 4, 1},
                               {1, 1, 1, 1, 2}, {1, 1, 1, 1, 8}, {1, 2, 2, 1, 1}, {2, 1, 1, 4, 1},
                               {1, 1, 4, 2, 1}, {1, 1, 1, 2, 2}, {1, 1, 3, 1, 2}, {1, 2, 1, 1, 4},
                               {1, 2, 2, 1, 2}, {2, 1, 2, 2, 1}, {1, 1, 2, 2, 2}, {2, 2, 2, 1, 2}};
/* For 9 heads and 3 kv heads; tp x sp 9: three ranks a kv head. */
static const sizes nines[] = {{2, 1, 1, 1, 1}, {1, 1, 5, 1, 1}, {1, 1, 1, 3, 1}, {1, 1, 1, 1, 3}, {1, 1, 1, 9, 1},
                              {1, 1, 1, 1, 9}, {2, 2, 1, 1, 1}, {1, 1, 2, 3, 1}, {1, 1, 4, 1, 3}, {1, 2, 1, 3, 1},
                              {1, 1, 1, 3, 3}, {2, 1, 1, 1, 3}, {1, 2, 2, 1, 3}, {1, 2, 2, 3, 1}, {2, 1, 2, 1, 3}};

/* Every `step`th layout once; of all of them, each choice at least once. */
static void sample_ways(family *f, const sizes *layouts, int n, int step) {
    for (int i = 0; i < n; i += step) {
        ndp_layout l = NDP_LAYOUT_ONE;
        memcpy(l.size + NDP_DP_REPLICATE, layouts[i], sizeof layouts[i]);
        way w = way_of(&l, i, 0);
        check_way(f, &w);
    }
    print_family(f);
    for (int i = 0; i < CHOICES && step == 1 && !getenv("NDP_TEST_EVERY"); i++)
        assert_true(f->chosen[i] > 0);
    family_release(f);
}

static void odd_fp32(void **state) {
    family f = {.s = odd_subject(*state, "odd fp32", "fp32")};
    f.s.steps = short_or_all(2, 3);
    sample_ways(&f, eights, NDP_COUNT(eights), 1);
}

static void nines_fp32(void **state) {
    family f = {.s = nines_subject(*state, "nines fp32", "fp32")};
    f.s.steps = 5;
    sample_ways(&f, nines, NDP_COUNT(nines), 1);
}

static void sample_stories(const corpus *c, int step) {
    family f = {.s = stories_subject(c, "stories260K fp32", "fp32")};
    f.s.length = 64, f.s.lr = 3e-4, f.s.steps = 5;
    sample_ways(&f, eights, NDP_COUNT(eights), step);
}

static void stories_fp32(void **state) { sample_stories(*state, short_or_all(3, 1)); }

/* Updates of optimizers whose differences grow with each. */
static int updates(void) { return short_or_all(4, MOST_STEPS); }

static void stories_sgd(void **state) {
    family f = {.s = stories_subject(*state, "stories260K fp32 SGD", "fp32")};
    f.s.length = 64, f.s.optimizer = "sgd", f.s.lr = 0.02, f.s.clip = 0, f.s.steps = updates();
    way w = {.shard = 2, .cp = 2, .tp = 2, .global = 12, .accumulation = 2, .threads = 1, .gathered = true};
    check_way(&f, &w);
    print_family(&f);
    family_release(&f);
}

/* Updates by signs: rounding turns some of them. */
static void stories_lion(void **state) {
    family f = {.s = stories_subject(*state, "stories260K fp32 Lion", "fp32")};
    f.s.length = 64, f.s.optimizer = "lion", f.s.lr = 1e-4, f.s.steps = updates();
    static const way ways[] = {
        {.shard = 2, .cp = 2, .tp = 2, .global = 12, .accumulation = 2, .threads = 1, .gathered = true},
        {.replicate = 2, .sp = 4, .global = 12, .accumulation = 1, .threads = 1, .recompute = true}};
    for (int i = 0; i < NDP_COUNT(ways); i++)
        check_way(&f, &ways[i]);
    print_family(&f);
    family_release(&f);
}

/* Updates of whole matrices: Newton-Schulz magnifies what rounding does to small singular directions. */
static void muon(subject s) {
    family f = {.s = s};
    f.s.length = 64, f.s.optimizer = "muon", f.s.momentum = 0.95, f.s.lr = 1e-3, f.s.steps = updates();
    static const way ways[] = {
        {.shard = 2, .cp = 2, .tp = 2, .global = 12, .accumulation = 2, .threads = 1, .gathered = true},
        {.shard = 3, .tp = 4, .global = 12, .accumulation = 2, .threads = 1},
        {.replicate = 2, .sp = 4, .global = 12, .accumulation = 1, .threads = 1, .recompute = true}};
    for (int i = 0; i < NDP_COUNT(ways); i++)
        check_way(&f, &ways[i]);
    print_family(&f);
    family_release(&f);
}

/* Updates by 8-bit states. Roundings turn some codes; under tp, whose ranks have other blocks, all of them may be
 * others. */
static void codes(subject s) {
    family f = {.s = s};
    f.s.length = 64, f.s.optimizer = "adamw8bit", f.s.steps = updates();
    static const way ways[] = {
        {.shard = 2, .cp = 2, .tp = 2, .global = 12, .accumulation = 2, .threads = 1, .gathered = true},
        {.shard = 3, .tp = 4, .global = 12, .accumulation = 2, .threads = 1},
        {.tp = 8, .global = 12, .accumulation = 3, .threads = 1},
        {.replicate = 2, .sp = 4, .global = 12, .accumulation = 1, .threads = 1, .recompute = true}};
    for (int i = 0; i < NDP_COUNT(ways); i++)
        check_way(&f, &ways[i]);
    print_family(&f);
    family_release(&f);
}

/* Tensors of one model by five optimizers, at rates of their own. */
static void groups(subject s) {
    family f = {.s = s};
    f.s.length = 64, f.s.lr = 3e-5, f.s.steps = updates();
    f.s.groups =
        "[{params: ['*.mlp.*.weight'], optimizer: muon, lr_scale: 3}, {params: [vectors], weight_decay: 0.1}, "
        "{params: [q_proj.weight], optimizer: lion}, {params: [k_proj.weight], optimizer: sgd, momentum: 0.9}, "
        "{params: [o_proj.weight], optimizer: adamw8bit, lr_scale: 0.5}]";
    static const way ways[] = {
        {.shard = 2, .cp = 2, .tp = 2, .global = 12, .accumulation = 2, .threads = 1, .gathered = true},
        {.shard = 3, .tp = 4, .global = 12, .accumulation = 2, .threads = 1},
        {.replicate = 2, .sp = 4, .global = 12, .accumulation = 1, .threads = 1, .recompute = true}};
    for (int i = 0; i < NDP_COUNT(ways); i++)
        check_way(&f, &ways[i]);
    print_family(&f);
    family_release(&f);
}

static void odd_groups(void **state) { groups(odd_subject(*state, "odd fp32, groups", "fp32")); }
static void stories_codes(void **state) { codes(stories_subject(*state, "stories260K fp32, 8-bit states", "fp32")); }
static void odd_codes(void **state) { codes(odd_subject(*state, "odd fp32, 8-bit states", "fp32")); }
static void stories_muon(void **state) { muon(stories_subject(*state, "stories260K fp32 Muon", "fp32")); }
static void odd_muon(void **state) { muon(odd_subject(*state, "odd fp32 Muon", "fp32")); }

/* Rows that are not a multiple of an attention block: cutting the batch on one rank moves the blocks, as the axes do.
 */
static void odd_bf16(void **state) {
    family f = {.s = odd_subject(*state, "odd bf16", "bf16")};
    f.s.steps = 3, f.s.length = 91;
    static const way ways[] = {{.replicate = 2,
                                .shard = 2,
                                .global = 12,
                                .accumulation = 1,
                                .threads = 1,
                                .gathered = true,
                                .recompute = true},
                               {.shard = 2, .cp = 2, .sp = 2, .global = 12, .accumulation = 3, .threads = 1},
                               {.cp = 3, .tp = 4, .global = 12, .accumulation = 1, .threads = 1, .gathered = true}};
    for (int i = 0; i < NDP_COUNT(ways); i++)
        check_way(&f, &ways[i]);
    print_family(&f);
    family_release(&f);
}

/* Rows of one attention block each: on one rank only split sums move anything, as the axes do. */
static void nines_bf16(void **state) {
    family f = {.s = nines_subject(*state, "nines bf16", "bf16")};
    f.s.steps = 3, f.s.length = 64;
    static const way ways[] = {{.cp = 2, .global = 12, .accumulation = 2, .threads = 1, .all_gather = true},
                               {.cp = 2, .sp = 3, .global = 12, .accumulation = 2, .threads = 1},
                               {.tp = 9, .global = 12, .accumulation = 1, .threads = 1},
                               {.shard = 2, .tp = 3, .global = 12, .accumulation = 3, .threads = 1}};
    for (int i = 0; i < NDP_COUNT(ways); i++)
        check_way(&f, &ways[i]);
    print_family(&f);
    family_release(&f);
}

static void odd_fp64(void **state) {
    family f = {.s = odd_subject(*state, "odd fp64 on ref", "fp64")};
    f.s.steps = 2, f.s.length = 30, f.s.window = 11;
    static const way ways[] = {
        {.replicate = 2, .shard = 2, .global = 4, .accumulation = 1, .threads = 1, .gathered = true, .recompute = true},
        {.shard = 2, .global = 4, .accumulation = 2, .threads = 1},
        {.cp = 2, .sp = 2, .tp = 2, .global = 4, .accumulation = 2, .threads = 1},
        {.tp = 8, .global = 4, .accumulation = 1, .threads = 1, .recompute = true}};
    for (int i = 0; i < NDP_COUNT(ways); i++)
        check_way(&f, &ways[i]);
    print_family(&f);
    family_release(&f);
}

/* Rows that are mostly padding: ranks of the sequence axes, and their whole share of an update, count for nothing. */
static void nothing_to_predict(void **state) {
    corpus *c = *state;
    family f = {.s = odd_subject(c, "no labels", "fp32")};
    char *lonely = write_corpus(c->folder, "lonely.jsonl", 60, 20, 90);
    f.s.data = lonely, f.s.tokenizer = c->tokenizer, f.s.length = 40, f.s.window = 16, f.s.steps = 6,
    f.s.one_a_row = true;
    static const way ways[] = {
        {.replicate = 4, .cp = 4, .global = 8, .accumulation = 2, .threads = 1},
        {.replicate = 2, .shard = 2, .sp = 4, .global = 8, .accumulation = 2, .threads = 1, .recompute = true},
        {.replicate = 2, .cp = 2, .sp = 4, .global = 8, .accumulation = 4, .threads = 1, .gathered = true},
        {.shard = 4, .cp = 2, .tp = 2, .contiguous = true, .global = 8, .accumulation = 2, .threads = 1}};
    for (int i = 0; i < NDP_COUNT(ways); i++) {
        outcome o = train(&f.s, &ways[i]);
        assert_true(o.empty_ranks > 0);
        outcome_release(&o);
        check_way(&f, &ways[i]);
    }
    print_family(&f);
    family_release(&f);
    free(lonely);
}

/* ---- bugs on purpose ---- */

/* As `cpu` runs the op. */
static ndp_status run_true(const ndp_op_call *c) { return ndp_device_cpu.kernels[c->op->id]->run(c); }

enum { EMBEDDING, BLOCK, HEAD };

static ndp_status norm_dw_twice(const ndp_op_call *c) {
    ndp_op_attr again = *c->attr;
    again.accumulate = true;
    ndp_op_call second = *c;
    second.attr = &again;
    NDP_TRY(run_true(c));
    return run_true(&second);
}

static void double_norm_gradient(ndp_program *p, int rank) {
    (void)rank;
    replace_kernel(p, HEAD, NDP_BACKWARD_WEIGHT, &ndp_op_rmsnorm_dw, norm_dw_twice);
}

static ndp_status xent_weighted(const ndp_op_call *c) {
    double scale = *(const double *)c->in[3].data * 1.01;
    ndp_op_call other = *c;
    other.in[3].data = &scale;
    return run_true(&other);
}

static void weigh_one_rank(ndp_program *p, int rank) {
    if (rank == 1)
        replace_kernel(p, HEAD, NDP_FORWARD, &ndp_op_xent, xent_weighted);
}

/* Of the tensor axis: one slice of the vocabulary weighs more. */
static ndp_status xent_grad_weighted(const ndp_op_call *c) {
    double scale = *(const double *)c->in[5].data * 1.01;
    ndp_op_call other = *c;
    other.in[5].data = &scale;
    return run_true(&other);
}

static void weigh_slice(ndp_program *p) { replace_kernel(p, HEAD, NDP_FORWARD, &ndp_op_xent_grad, xent_grad_weighted); }

/* Tokens are bytes: the first slice has all that occur. */
static void weigh_first_slice(ndp_program *p, int rank) {
    if (rank == 0)
        weigh_slice(p);
}

/* Less than the rounding of bf16. */
static void weigh_rare_slice(ndp_program *p, int rank) {
    if (rank == 1)
        weigh_slice(p);
}

static ndp_status xent_without_last(const ndp_op_call *c) {
    int32_t labels[4096];
    ndp_op_call other = *c;
    assert_true(c->in[2].rows <= NDP_COUNT(labels) && c->in[2].ld == 1);
    memcpy(labels, c->in[2].data, (size_t)c->in[2].rows * sizeof *labels);
    labels[c->in[2].rows - 1] = -1;
    other.in[2].data = labels;
    return run_true(&other);
}

/* The last row of rank 0: what follows it is another rank's, or another sample. */
static void lose_label(ndp_program *p, int rank) {
    if (rank == 0)
        replace_kernel(p, HEAD, NDP_FORWARD, &ndp_op_xent, xent_without_last);
}

/* A bias behind a product whose other ranks' parts are summed: replicated over tp, and a third of the squares. */
static void count_twice(ndp_program *p, int rank) {
    (void)rank;
    count_tensor_twice(p, 1, "model.layers.0.self_attn.o_proj.bias");
}

/* The instructions of a buffer's communications of one kind. */
static ndp_instr *next_comm(ndp_program *p, int *i, const ndp_op *op, const char *buffer) {
    while (*i < p->n) {
        ndp_instr *in = &p->instrs[(*i)++];
        if (in->code == NDP_DO_CALL && in->call.op == op && strcmp(in->what, buffer) == 0)
            return in;
    }
    return NULL;
}

static void miss_replicas(ndp_program *p, int rank) {
    (void)rank;
    int found = 0;
    for (int i = 0; i < p->n;) {
        ndp_instr *in = next_comm(p, &i, &ndp_op_all_reduce, "layers.2");
        if (in)
            harmless(p, in), found++;
    }
    assert_int_equal(found, 2);
}

static void forget_micro_batches(ndp_program *p, int rank) {
    (void)rank;
    for (int i = 0; i < p->n;) {
        ndp_instr *in = next_comm(p, &i, &ndp_op_reduce_scatter, "layers.1");
        if (in)
            in->call.attr.accumulate = false;
    }
}

/* Leaves out the sum of a tensor's gradient, or a buffer's, over a group of the tensor axis. */
static void miss_sum(ndp_program *p, ndp_group_kind group, const char *what) {
    for (int i = 0; i < p->n;) {
        ndp_instr *in = next_comm(p, &i, &ndp_op_all_reduce, what);
        if (in && in->call.channel == (int)group)
            harmless(p, in);
    }
}

static void miss_norm_sum(ndp_program *p, int rank) {
    (void)rank;
    miss_sum(p, NDP_GROUP_TP, "model.norm.weight");
}

static void miss_kv_sum(ndp_program *p, int rank) {
    (void)rank;
    miss_sum(p, NDP_GROUP_KV, "layers.2");
}

/* The sum of a norm's gradient, once more where the losses of the ranks are to be summed, before its own time. */
static void sum_norm_twice(ndp_program *p, int rank) {
    (void)rank;
    int from = 0, to = 0;
    ndp_instr *sum = next_comm(p, &from, &ndp_op_all_reduce, "model.norm.weight"),
              *begin = next_comm(p, &to, &ndp_op_all_reduce, "loss"),
              *wait = next_comm(p, &to, &ndp_op_all_reduce, "loss");
    assert_true(sum && begin && wait && begin < sum);
    *begin = *wait = *sum;
    begin->call.partner = (int)(wait - p->instrs);
    wait->call.kind = NDP_CALL_WAIT, wait->call.partner = (int)(begin - p->instrs);
}

/* The keys of a turn of the ring take those places of the rank that works on them. */
static ndp_status at_own_places(const ndp_op_call *c, int q_pos, int k_pos) {
    ndp_op_call other = *c;
    assert_int_equal(c->in[q_pos].rows, c->in[k_pos].rows);
    other.in[k_pos] = c->in[q_pos];
    return run_true(&other);
}

static ndp_status attention_misplaced(const ndp_op_call *c) { return at_own_places(c, 3, 5); }
static ndp_status attention_bwd_misplaced(const ndp_op_call *c) { return at_own_places(c, 6, 8); }

static void misplace_keys(ndp_program *p, int rank) {
    (void)rank;
    replace_kernel(p, BLOCK, NDP_FORWARD, &ndp_op_attention, attention_misplaced);
    replace_kernel(p, BLOCK, NDP_BACKWARD_INPUT, &ndp_op_attention_bwd, attention_bwd_misplaced);
}

/* Ways to put them into; all have updates of 8 samples. */
enum { ON_DATA, ON_TENSOR, ON_KV, ON_CONTEXT, ON_RING, ON_SEQUENCE, PLACES };

static const way places[PLACES] = {
    [ON_DATA] = {.replicate = 2, .shard = 2, .global = 8, .accumulation = 2, .threads = 1},
    [ON_TENSOR] = {.replicate = 2, .tp = 2, .global = 8, .accumulation = 2, .threads = 1},
    [ON_KV] = {.tp = 8, .global = 8, .accumulation = 2, .threads = 1},
    [ON_CONTEXT] = {.shard = 2, .cp = 2, .global = 8, .accumulation = 4, .threads = 1, .contiguous = true},
    [ON_RING] = {.cp = 3, .global = 8, .accumulation = 4, .threads = 1},
    [ON_SEQUENCE] = {.sp = 2, .tp = 2, .global = 8, .accumulation = 4, .threads = 1}};

static const struct {
    int place;
    fault fault;
} bugs[] = {
    {ON_DATA, {"a norm's gradient doubled", "gradient of step 1, model.norm.weight", double_norm_gradient}},
    {ON_DATA, {"one rank's loss weight off", "gradient of step 1", weigh_one_rank}},
    {ON_DATA, {"a label lost at the border of a sample", "gradient of step 1", lose_label}},
    {ON_DATA, {"a replicated tensor counted twice in the norm", "grad_norm, step", count_twice}},
    {ON_DATA, {"a replica's sum missed", "gradient of step 1, model.layers.2.", miss_replicas}},
    {ON_DATA, {"a micro-batch forgotten", "gradient of step 1, model.layers.1.", forget_micro_batches}},
    {ON_TENSOR, {"tp: a norm's gradient doubled", "gradient of step 1, model.norm.weight", double_norm_gradient}},
    {ON_TENSOR, {"tp: the sum of a norm's gradient missed", "gradient of step 1, model.norm.weight", miss_norm_sum}},
    {ON_TENSOR,
     {"tp: the sum of a norm's gradient made twice", "gradient of step 1, model.norm.weight", sum_norm_twice}},
    {ON_TENSOR, {"tp: one rank's loss weight off", "gradient of step 1", weigh_first_slice}},
    {ON_TENSOR, {"tp: the loss weight of a rank without labels off", "gradient of step 1", weigh_rare_slice}},
    {ON_TENSOR, {"tp: a replicated tensor counted twice in the norm", "grad_norm, step", count_twice}},
    {ON_KV, {"tp: the sum of a layer's k and v missed", "gradient of step 1, model.layers.2.self_attn.", miss_kv_sum}},
    {ON_CONTEXT, {"cp: one rank's loss weight off", "gradient of step 1", weigh_one_rank}},
    {ON_CONTEXT, {"cp: a label lost at the border of two ranks", "gradient of step 1", lose_label}},
    {ON_RING, {"cp: a ring turn's keys at the wrong positions", "gradient of step 1", misplace_keys}},
    {ON_SEQUENCE,
     {"sp x tp: the sum of a norm's gradient missed", "gradient of step 1, model.norm.weight", miss_norm_sum}}};

/* The measure that sees a run best, as a multiple of its bound. */
static double best_seen(const family *f, ndp_measure *by) {
    *by = NDP_MEASURE_TOKENS;
    for (int m = 0; m < NDP_MEASURES; m++)
        if (f->worst[m].part > f->worst[*by].part)
            *by = (ndp_measure)m;
    return f->worst[*by].part;
}

static void check_bugs(subject s) {
    family f = {.s = s};
    for (int i = 0; i < PLACES; i++)
        check_way(&f, &places[i]);
    for (int i = 0; i < NDP_COUNT(bugs); i++) {
        char words[512];
        way w = places[bugs[i].place];
        const fault *bug = &bugs[i].fault;
        ndp_measure by;
        w.fault = bug;
        if (left_out())
            continue;
        if (bug->program == weigh_rare_slice && strcmp(s.precision, "bf16") == 0)
            continue;
        memset(f.worst, 0, sizeof f.worst);
        const char *bad = try_way(&f, &w, words);
        double times = best_seen(&f, &by);
        printf("%s, %s: %s (%.3g times its bound: %s)\n", s.precision, bug->name, bad ? bad : "NOT SEEN", times,
               ndp_measure_name(by));
        assert_non_null(bad);
        if (!strstr(bad, bug->seen))
            fail_msg("%s: %s does not say '%s'", bug->name, bad, bug->seen);
    }
    family_release(&f);
}

static void bugs_are_seen(void **state) {
    subject s = odd_subject(*state, "odd fp32", "fp32");
    s.steps = 2, s.length = 125;
    check_bugs(s);
}

/* Rows of whole attention blocks, where runs on one rank that split no sums hardly differ. */
static void bugs_are_seen_in_bf16(void **state) {
    subject s = odd_subject(*state, "odd bf16", "bf16");
    s.steps = 2, s.length = 192;
    check_bugs(s);
}

/* With a pattern: the tests of that name. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_fp32),     cmocka_unit_test(nines_fp32),   cmocka_unit_test(stories_fp32),
        cmocka_unit_test(stories_sgd),  cmocka_unit_test(stories_lion), cmocka_unit_test(odd_codes),
        cmocka_unit_test(odd_muon),     cmocka_unit_test(odd_groups),   cmocka_unit_test(odd_bf16),
        cmocka_unit_test(nines_bf16),   cmocka_unit_test(odd_fp64),     cmocka_unit_test(nothing_to_predict),
        cmocka_unit_test(bugs_are_seen)};
    const struct CMUnitTest more[] = {cmocka_unit_test(stories_codes), cmocka_unit_test(stories_muon),
                                      cmocka_unit_test(bugs_are_seen_in_bf16)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus) ||
           (short_or_all(0, 1) && cmocka_run_group_tests(more, make_corpus, drop_corpus));
}
