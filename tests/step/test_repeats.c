/* Programs that repeat a range against those that list every micro-batch: the same instructions on the same data, no
 * more memory, the same bits. */
#include "guarded.h"
#include "step/stages.h"

/* One way to plan a step: everything that changes its list. */
typedef struct repeat_way {
    staged_way staged;
    int replicate, cp, sp, tp; /* 0: 1 */
    bool reshard, recompute, reduce_once;
    const ndp_device *device; /* of runs; NULL: cpu */
} repeat_way;

/* Plans are for a device whose kernels have scratch memory. */
static const ndp_exec on_cpu = {.device = &ndp_device_cpu, .threads = 1};
static const ndp_exec on_ref = {.device = &ndp_device_ref, .threads = 1};

static int at_least_one(int size) { return size ? size : 1; }

static int ranks_of(const repeat_way *w) {
    return w->staged.pp * w->staged.shard * at_least_one(w->replicate) * at_least_one(w->cp) * at_least_one(w->sp) *
           at_least_one(w->tp);
}

/* Options of one rank, but for its transport and device. */
static ndp_engine_opts opts_of(const staged *s, const repeat_way *w, ndp_folding_rule fold, int rank) {
    ndp_engine_opts o = s->opts;
    ndp_layout layout = {{w->staged.pp, at_least_one(w->replicate), w->staged.shard, at_least_one(w->cp),
                          at_least_one(w->sp), at_least_one(w->tp), 1}};
    ndp_mesh_facts facts = {.kv_heads = ndp_model_kv_heads(&s->model)};
    CHECK_OK(ndp_stages_ties(&s->model, &s->stages, &facts.ties));
    CHECK_OK(ndp_mesh_init(&layout, rank, &facts, &o.step.mesh));
    o.step.reshard = w->reshard, o.step.recompute = w->recompute, o.step.reduce_once = w->reduce_once;
    o.step.fold = fold;
    o.step.exec = w->device == &ndp_device_ref ? &on_ref : &on_cpu;
    if (w->staged.pp == 1)
        o.pipeline = NULL, o.step.stages = (ndp_stages){0};
    return o;
}

typedef struct planned {
    staged stages;
    bool folded; /* on every rank */
} planned;

static void plan(const repeat_way *w, ndp_folding_rule fold, planned *out) {
    staged *s = &out->stages;
    staged_init(s, &w->staged);
    s->ranks = ranks_of(w);
    out->folded = true;
    for (int r = 0; r < s->ranks; r++) {
        ndp_engine_opts o = opts_of(s, w, fold, r);
        CHECK_OK(ndp_engine_create(&o, &s->engines[r]));
        s->programs[r] = ndp_engine_program(s->engines[r]);
        out->folded = out->folded && s->programs[r]->repeats.n == 1;
    }
}

/* ---- the same instructions ---- */

/* Which block of the list a block of the folded program stands for now: the list has a new one for every micro-batch.
 */
typedef struct naming {
    int *block;
    size_t *offsets; /* by block of the list: where the folded program has it */
} naming;

static void check_block(naming *names, const ndp_program *folded, int block, const ndp_program *listed, int other,
                        int at) {
    assert_int_equal(block == NDP_NONE, other == NDP_NONE);
    if (block == NDP_NONE)
        return;
    const ndp_block *x = &folded->blocks[block], *y = &listed->blocks[other];
    assert_int_equal(x->bytes, y->bytes);
    assert_int_equal(x->class, y->class);
    assert_int_equal(x->persistent, y->persistent);
    if (!y->persistent && y->life.first == at)
        names->block[block] = other, names->offsets[other] = x->offset;
    if (y->persistent)
        assert_int_equal(block, other);
    else
        assert_int_equal(names->block[block], other);
}

static void check_operands(naming *names, const ndp_program *folded, const ndp_operand *a, const ndp_walk *w,
                           const ndp_program *listed, const ndp_operand *b, int n, int at) {
    for (int k = 0; k < n; k++) {
        int block = a[k].base == NDP_NONE ? NDP_NONE : ndp_block_at(folded->blocks, a[k].base, w);
        check_block(names, folded, block, listed, b[k].base, at);
        assert_int_equal(a[k].offset, b[k].offset);
        assert_memory_equal(&a[k].view, &b[k].view, sizeof a[k].view);
    }
}

static void check_instr(naming *names, const ndp_program *folded, const ndp_walk *w, const ndp_program *listed,
                        int at) {
    const ndp_instr *a = &folded->instrs[w->at], *b = &listed->instrs[at];
    int micro_batch = ndp_micro_batch_at(a, w);
    assert_int_equal(a->code, b->code);
    assert_string_equal(a->what, b->what);
    assert_int_equal(a->buffer, b->buffer);
    assert_int_equal(a->role, b->role);
    if (a->code == NDP_DO_RUN) {
        assert_int_equal(micro_batch, b->micro_batch);
        assert_int_equal(a->unit, b->unit);
        assert_int_equal(a->phase, b->phase);
        assert_int_equal(a->accumulate, b->accumulate);
        for (int i = 0; i < NDP_BASE_DATA; i++)
            check_block(names, folded,
                        a->bases[i] == NDP_NONE ? NDP_NONE : ndp_block_at(folded->blocks, a->bases[i], w), listed,
                        b->bases[i], at);
        return;
    }
    assert_ptr_equal(a->call.op, b->call.op);
    assert_int_equal(a->call.kind, b->call.kind);
    assert_int_equal(a->call.channel, b->call.channel);
    assert_int_equal(a->call.attr.accumulate, b->call.attr.accumulate);
    assert_int_equal(a->call.attr.peer, b->call.attr.peer);
    check_block(names, folded, a->call.scratch, listed, b->call.scratch, at);
    if (a->role != NDP_NONE) {
        assert_int_equal(micro_batch, b->micro_batch);
        assert_int_equal(ndp_tag_at(&a->call, w), b->call.attr.tag);
    }
    if (a->call.kind != NDP_CALL_WAIT) { /* a wait has the operands of its begin, whose blocks may have ended */
        check_operands(names, folded, a->call.in, w, listed, b->call.in, a->call.n_in, at);
        check_operands(names, folded, a->call.out, w, listed, b->call.out, a->call.n_out, at);
    }
}

/* A wait is for what the list waits for: `begun` has the begin of each number under way. */
static void check_work(int *begun, const ndp_program *folded, const ndp_walk *w, const ndp_program *listed, int at) {
    const ndp_instr *a = &folded->instrs[w->at];
    if (a->code != NDP_DO_CALL || a->call.kind == NDP_CALL_KERNEL)
        return;
    int work = ndp_work_at(a, w);
    assert_in_range(work, 0, folded->n_works - 1);
    if (a->call.kind == NDP_CALL_BEGIN) {
        assert_int_equal(begun[work], NDP_NONE);
        begun[work] = at;
    } else {
        assert_int_equal(begun[work], listed->instrs[at].call.partner);
        begun[work] = NDP_NONE;
    }
}

static int by_first(const void *a, const void *b, void *user) {
    const ndp_program *p = user;
    const int *i = a, *k = b;
    int x = p->blocks[*i].life.first, y = p->blocks[*k].life.first;
    return x != y ? (x < y ? -1 : 1) : *i - *k;
}

/* Blocks of the list that live at once have memory of their own where the folded program has them. */
static void check_apart(const naming *names, const ndp_program *listed) {
    int *order = calloc((size_t)listed->n_blocks + 1, sizeof *order),
        *live = calloc((size_t)listed->n_blocks + 1, sizeof *live);
    int n = 0, n_live = 0;
    for (int i = 0; i < listed->n_blocks; i++)
        if (!listed->blocks[i].persistent && listed->blocks[i].life.first >= 0)
            order[n++] = i;
    qsort_r(order, (size_t)n, sizeof *order, by_first, (void *)listed);
    for (int i = 0; i < n; i++) {
        const ndp_block *x = &listed->blocks[order[i]];
        size_t start = names->offsets[order[i]], end = start + x->bytes;
        for (int k = n_live - 1; k >= 0; k--) {
            const ndp_block *y = &listed->blocks[live[k]];
            size_t other = names->offsets[live[k]];
            if (y->life.last < x->life.first)
                live[k] = live[--n_live];
            else if (other < end && start < other + y->bytes)
                fail_msg("blocks %d and %d of the list overlap", order[i], live[k]);
        }
        live[n_live++] = order[i];
    }
    free(order);
    free(live);
}

static void check_same(const ndp_program *folded, const ndp_program *listed) {
    naming names = {calloc((size_t)folded->n_blocks + 1, sizeof(int)),
                    calloc((size_t)listed->n_blocks + 1, sizeof(size_t))};
    int *begun = calloc((size_t)folded->n_works + 1, sizeof *begun), at = 0;
    for (int i = 0; i < folded->n_works; i++)
        begun[i] = NDP_NONE;
    for (ndp_walk w = NDP_WALK_START; ndp_program_next(folded, NDP_ALL_ITERATIONS, &w); at++) {
        assert_in_range(at, 0, listed->n - 1);
        check_instr(&names, folded, &w, listed, at);
        check_work(begun, folded, &w, listed, at);
    }
    assert_int_equal(at, listed->n);
    assert_int_equal(ndp_program_executed(folded), listed->n);
    check_apart(&names, listed);
    free(names.block);
    free(names.offsets);
    free(begun);
}

static void check_sums(const ndp_program *folded, const ndp_program *listed) {
    ndp_budget a, b;
    double sent[2][NDP_GROUPS];
    ndp_program_budget(folded, &a);
    ndp_program_budget(listed, &b);
    ndp_program_traffic(folded, sent[0]);
    ndp_program_traffic(listed, sent[1]);
    if (a.total > b.total && folded->opts.step.fold != NDP_FOLD_ALWAYS)
        fail_msg("%zu bytes, %zu where every micro-batch is listed", a.total, b.total);
    for (int g = 0; g < NDP_GROUPS; g++)
        assert_true(sent[0][g] == sent[1][g]);
}

/* Which rules fold the programs of all ranks. */
typedef struct folds {
    bool always, smaller;
} folds;

static bool compare_plans(const repeat_way *w, ndp_folding_rule fold, const planned *listed) {
    planned a;
    plan(w, fold, &a);
    for (int r = 0; r < a.stages.ranks; r++) {
        check_same(a.stages.programs[r], listed->stages.programs[r]);
        check_sums(a.stages.programs[r], listed->stages.programs[r]);
        CHECK_OK(ndp_program_order(a.stages.programs[r]));
    }
    CHECK_OK(ndp_program_check(a.stages.programs, a.stages.ranks));
    staged_release(&a.stages);
    return a.folded;
}

/* Compares the step, folded by both rules, with its list. */
static folds check_way_of(const repeat_way *w) {
    planned listed;
    plan(w, NDP_FOLD_NEVER, &listed);
    for (int r = 0; r < listed.stages.ranks; r++)
        assert_int_equal(listed.stages.programs[r]->repeats.n, 0);
    folds f = {compare_plans(w, NDP_FOLD_ALWAYS, &listed), compare_plans(w, NDP_FOLD_IF_NO_LARGER, &listed)};
    staged_release(&listed.stages);
    return f;
}

/* All pipelines, sizes and choices that change a list. */
static bool next_way(int number, repeat_way *out) {
    static const int sizes[][3] = {{1, 1, 1}, {1, 2, 1}, {2, 1, 1}, {2, 2, 1}, {4, 1, 1}, {2, 1, 2}, {4, 1, 2}};
    static const int counts[] = {5, 8, 13, 30};
    int kinds = NDP_PIPELINE_KINDS - 1, n = NDP_COUNT(sizes), m = NDP_COUNT(counts);
    int size = number % n, count = number / n % m, kind = number / n / m % kinds, flags = number / n / m / kinds;
    const ndp_pipeline_info *info = &ndp_pipeline_table[kind];
    int chunks = sizes[size][2] < info->fewest ? info->fewest : sizes[size][2];
    *out = (repeat_way){.staged = {.kind = (ndp_pipeline_kind)kind,
                                   .pp = sizes[size][0],
                                   .chunks = chunks > info->most ? info->most : chunks,
                                   .shard = sizes[size][1],
                                   .micro_batches = counts[count],
                                   .tied = flags & 8},
                        .reshard = flags & 1,
                        .recompute = flags & 2,
                        .reduce_once = flags & 4};
    return flags < 16;
}

static void a_step_is_the_same_list(void **state) {
    (void)state;
    int always[NDP_PIPELINE_KINDS + 1] = {0}, smaller[NDP_PIPELINE_KINDS + 1] = {0}, planned_ways = 0;
    repeat_way w;
    const int one_of = one_of_so_many(3); /* prime to the sizes and counts, so all of them are met */
    for (int number = 0; next_way(number, &w); number += one_of) {
        bool alone = w.staged.pp == 1; /* in order: no pipeline */
        ndp_pipeline probe;
        if (alone && (w.staged.kind != NDP_PIPELINE_1F1B || w.staged.chunks > 1))
            continue;
        if (ndp_pipeline_make(w.staged.kind, w.staged.pp, w.staged.chunks, w.staged.micro_batches, &probe) != NDP_OK)
            continue;
        ndp_pipeline_release(&probe);
        folds f = check_way_of(&w);
        always[alone ? NDP_PIPELINE_KINDS : w.staged.kind] += f.always;
        smaller[alone ? NDP_PIPELINE_KINDS : w.staged.kind] += f.smaller;
        planned_ways++;
    }
    print_message("%d ways; folded on all ranks, of that no larger: in order %d %d", planned_ways,
                  always[NDP_PIPELINE_KINDS], smaller[NDP_PIPELINE_KINDS]);
    for (int k = 0; k + 1 < NDP_PIPELINE_KINDS; k++)
        print_message(", %s %d %d", ndp_pipeline_table[k].name, always[k], smaller[k]);
    print_message("\n");
    /* How many depends on the scratch memory of kernels, and so on the processor: zbv has 50 below AVX-512. */
    static const int least[NDP_PIPELINE_KINDS + 1] = {
        [NDP_PIPELINE_KINDS] = 80,       [NDP_PIPELINE_1F1B] = 140, [NDP_PIPELINE_INTERLEAVED] = 4,
        [NDP_PIPELINE_ZERO_BUBBLE] = 80, [NDP_PIPELINE_ZBV] = 45,   [NDP_PIPELINE_DUALPIPEV] = 80};
    for (int k = 0; k <= NDP_PIPELINE_KINDS; k++)
        assert_true(smaller[k] >= least[k] / one_of - (one_of > 1));
}

/* ---- the same bits ---- */

enum { STEPS = 3 };

typedef struct steps_job {
    const repeat_way *way;
    const ndp_device *device;
    ndp_folding_rule fold;
    double results[STAGES_RANKS][STEPS][2]; /* loss, norm */
    uint64_t weights[STAGES_RANKS];         /* a hash of what each rank owns */
    bool folded[STAGES_RANKS];
} steps_job;

static uint64_t hash_weights(const ndp_engine *e) {
    const ndp_model *m = ndp_engine_model(e);
    uint64_t hash = 1;
    for (int i = 0; i < m->n_buffers; i++) {
        int64_t n = ndp_engine_shard(e, i)->slice;
        size_t bytes = (size_t)n * ndp_dtype_size(ndp_engine_type(e, NDP_OWNED_MASTER, i));
        unsigned char *values = calloc(bytes + 1, 1);
        CHECK_OK(ndp_engine_read(e, NDP_OWNED_MASTER, i, 0, n, 1, values));
        for (size_t k = 0; k < bytes; k++)
            hash = (hash ^ values[k]) * 0x100000001B3u;
        free(values);
    }
    return hash;
}

static ndp_status run_steps(ndp_transport *t, void *arg) {
    steps_job *j = arg;
    const repeat_way *w = j->way;
    int rank = ndp_transport_rank(t);
    const ndp_exec exec = {.device = j->device, .threads = 1};
    staged s;
    ndp_engine *e;
    ndp_step_result result;
    staged_init(&s, &w->staged);
    ndp_engine_opts o = opts_of(&s, w, j->fold, rank);
    o.transport = t;
    o.step.exec = &exec;
    NDP_TRY(ndp_engine_create(&o, &e));
    j->folded[rank] = ndp_engine_program(e)->repeats.n == 1;
    tiny_fill(e);
    for (int step = 0; step < STEPS; step++) {
        ndp_group data = ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA);
        for (int i = 0; i < w->staged.micro_batches; i++)
            tiny_batch(e, i, (step * w->staged.micro_batches + i) * data.count + data.rank);
        NDP_TRY(ndp_engine_step(e, 1e-2, step, true, &result));
        j->results[rank][step][0] = result.loss, j->results[rank][step][1] = result.grad_norm;
    }
    j->weights[rank] = hash_weights(e);
    ndp_engine_destroy(e);
    ndp_pipeline_release(&s.pipeline);
    ndp_model_release(&s.model);
    return NDP_OK;
}

/* Runs listed, folded, and folded where communication is staged; true if rank 0 repeats a range. */
static bool check_bits(const repeat_way *w) {
    static steps_job jobs[3];
    const ndp_device *plain = w->device ? w->device : &ndp_device_cpu;
    for (int k = 0; k < 3; k++) {
        const ndp_device *device = k == 2 ? guarded(plain) : plain;
        jobs[k] = (steps_job){.way = w, .device = device, .fold = k == 0 ? NDP_FOLD_NEVER : NDP_FOLD_ALWAYS};
        CHECK_OK(ndp_local_world(ranks_of(w), run_steps, &jobs[k]));
        unguard(device);
        assert_memory_equal(jobs[k].results, jobs[0].results, sizeof jobs[0].results);
        assert_memory_equal(jobs[k].weights, jobs[0].weights, sizeof jobs[0].weights);
    }
    assert_true(jobs[0].results[0][0][0] > 0);
    assert_false(jobs[0].folded[0]);
    return jobs[1].folded[0];
}

static void steps_have_the_same_bits(void **state) {
    (void)state;
    static const repeat_way ways[] = {
        {.staged = {.kind = NDP_PIPELINE_1F1B, .pp = 1, .chunks = 1, .shard = 1, .micro_batches = 9}},
        {.staged = {.kind = NDP_PIPELINE_1F1B, .pp = 1, .chunks = 1, .shard = 2, .micro_batches = 12}, .reshard = true},
        {.staged = {.kind = NDP_PIPELINE_1F1B, .pp = 2, .chunks = 1, .shard = 1, .micro_batches = 17},
         .recompute = true,
         .reduce_once = true},
        {.staged = {.kind = NDP_PIPELINE_1F1B, .pp = 4, .chunks = 1, .shard = 2, .micro_batches = 21, .tied = true},
         .reduce_once = true},
        {.staged = {.kind = NDP_PIPELINE_INTERLEAVED, .pp = 4, .chunks = 2, .shard = 1, .micro_batches = 36}},
        {.staged = {.kind = NDP_PIPELINE_ZERO_BUBBLE, .pp = 4, .chunks = 1, .shard = 1, .micro_batches = 30}},
        {.staged = {.kind = NDP_PIPELINE_ZBV, .pp = 2, .chunks = 2, .shard = 1, .micro_batches = 30}}};
    int folded = 0;
    for (int i = 0; i < NDP_COUNT(ways); i++)
        folded += check_bits(&ways[i]);
    assert_int_equal(folded, NDP_COUNT(ways));
}

/* ---- every axis, family and precision ---- */

/* Products of all axes up to 8 ranks, with pp 1 and 2; the other choices go round. *runs: one of the three ways that a
 * product is planned in. */
static bool next_product(int number, repeat_way *out, bool *runs) {
    static const char *const families[] = {NULL, TINY_GPT2, TINY("qwen3", "\"head_dim\": 6"),
                                           TINY("gemma2", "\"head_dim\": 6, \"query_pre_attn_scalar\": 6")};
    static const ndp_pipeline_kind kinds[] = {NDP_PIPELINE_1F1B, NDP_PIPELINE_INTERLEAVED, NDP_PIPELINE_ZERO_BUBBLE,
                                              NDP_PIPELINE_ZBV, NDP_PIPELINE_DUALPIPEV};
    int bits = number & 63, round = number >> 6;
    ndp_pipeline_kind kind = bits & 1 ? kinds[number / 2 % NDP_COUNT(kinds)] : NDP_PIPELINE_1F1B;
    *out = (repeat_way){.staged = {.kind = kind,
                                   .pp = bits & 1 ? 2 : 1,
                                   .chunks = ndp_pipeline_table[kind].most > 1 ? 2 : 1,
                                   .shard = bits & 2 ? 2 : 1,
                                   .micro_batches = 20,
                                   .config = families[(number + round) % NDP_COUNT(families)],
                                   .compute = (ndp_dtype[]){NDP_F32, NDP_BF16, NDP_F64}[(number + round) % 3]},
                        .replicate = bits & 4 ? 2 : 1,
                        .cp = bits & 8 ? 2 : 1,
                        .sp = bits & 16 ? 2 : 1,
                        .tp = bits & 32 ? 2 : 1,
                        .reshard = number % 3 == 0,
                        .recompute = number % 5 < 2,
                        .reduce_once = number % 2};
    out->device = out->staged.compute == NDP_F64 ? &ndp_device_ref : NULL;
    *runs = bits / 2 % 3 == round;
    return round < 3;
}

static void products_of_axes(void **state) {
    (void)state;
    int planned_ways = 0, folded = 0, run_ways = 0, ran = 0;
    const int one_of = one_of_so_many(5); /* prime to the number of products, and of rounds */
    bool runs;
    repeat_way w;
    for (int number = 0; next_product(number, &w, &runs); number += one_of) {
        if (ranks_of(&w) > STAGES_RANKS)
            continue;
        folded += check_way_of(&w).always, planned_ways++;
        if (runs)
            ran += check_bits(&w), run_ways++;
    }
    print_message("%d ways, %d folded on all ranks; %d ran, %d folded on rank 0\n", planned_ways, folded, run_ways,
                  ran);
    assert_true(folded > planned_ways * 3 / 4 && 4 * ran > 3 * run_ways - (one_of > 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_is_the_same_list),
                                       cmocka_unit_test(steps_have_the_same_bits), cmocka_unit_test(products_of_axes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
