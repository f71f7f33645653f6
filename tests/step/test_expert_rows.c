/* Rows of a mixture of experts in whole steps. An expert that no row of an update goes to has a gradient of exactly 0,
 * also where it had some in the update before; rows of padding go to no expert and change nothing. */
#include "step/layouts.h"

enum { EXPERTS = 6, CHOICES = 2, LAYERS = 2, UPDATES = 3, SAMPLES_OF_UPDATE = 4 };

static ndp_model mixture(ndp_dtype compute, int64_t rows) {
    static ndp_facts f; /* borrowed by the models */
    ndp_model_opts mo = tiny_opts(compute, rows);
    ndp_model m;
    CHECK_OK(ndp_facts_parse_text(
        TINY("mixtral", "\"head_dim\": 6, \"num_local_experts\": 6, \"num_experts_per_tok\": 2"), "tiny", &f));
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    return m;
}

/* What a world does: `updates` updates, whose gradients and losses it keeps. */
typedef struct trial {
    job j;           /* model, device, way: sizes, ep, recompute and reshard */
    double capacity; /* moe.capacity_factor */
    bool whole_rows; /* all ranks of tp have all rows of the residual stream */
    int updates;
    void (*load)(ndp_engine *e, int micro_batch, int64_t global, int update);
    double *grads[UPDATES], loss[UPDATES];
} trial;

static ndp_status trial_body(ndp_transport *t, void *arg) {
    trial *x = arg;
    const way *w = x->j.way;
    const ndp_exec exec = {.device = x->j.device, .threads = 1, .share = true};
    ndp_engine_opts o = {.model = x->j.model,
                         .transport = t,
                         .step = {.exec = &exec,
                                  .reshard = w->reshard,
                                  .recompute = w->recompute,
                                  .parallel = NDP_PARALLEL_INIT,
                                  .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8}}};
    ndp_layout layout = layout_of(w);
    NDP_TRY(ndp_mesh_init(&layout, ndp_transport_rank(t), &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(o.model)},
                          &o.step.mesh));
    o.step.parallel.capacity_factor = x->capacity;
    o.step.parallel.tp_sequence_parallel = !x->whole_rows;
    ndp_group data = ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA);
    o.step.accumulation = SAMPLES_OF_UPDATE / data.count;
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e);
    ndp_status st = NDP_OK;
    for (int u = 0; u < x->updates && st == NDP_OK; u++) {
        for (int m = 0; m < o.step.accumulation; m++)
            x->load(e, m, m * data.count + data.rank, u);
        ndp_step_result r;
        st = ndp_engine_step(e, 1e-2, u, true, &r);
        collect(&x->j, e, NDP_OWNED_GRAD, x->grads[u]);
        if (ndp_transport_rank(t) == 0)
            x->loss[u] = r.loss;
    }
    ndp_engine_destroy(e);
    return st;
}

static void try_out(trial *x) {
    int world = 1;
    for (int i = 0; i < 5; i++)
        world *= x->j.way->size[i];
    for (int u = 0; u < x->updates; u++)
        x->grads[u] = calloc((size_t)model_elements(x->j.model), sizeof(double));
    if (ndp_local_world(world, trial_body, x) != NDP_OK)
        fail_msg("%s", ndp_error_message());
}

static void forget(trial *x) {
    for (int u = 0; u < x->updates; u++)
        free(x->grads[u]);
}

/* ---- experts without rows ---- */

/* In update 1 one token again and again, which sees nothing but itself: its rows are equal, and all of a layer's go to
 * the same experts. */
static void many_one_many(ndp_engine *e, int micro_batch, int64_t global, int update) {
    int32_t tokens[ROWS], labels[ROWS];
    tiny_batch(e, micro_batch, global);
    if (update != 1)
        return;
    for (int t = 0; t < ROWS; t++)
        tokens[t] = 5, labels[t] = (int32_t)(global + t) % 7;
    CHECK_OK(ndp_engine_load(e, micro_batch, &(ndp_micro_batch){.tokens = tokens, .labels = labels, .rows = ROWS}));
}

/* A bit for each expert that has a gradient in the stack, of which each has `stack / EXPERTS` matrices. */
static unsigned experts_of(const ndp_segment *s, const double *grads) {
    int64_t each = s->stack / EXPERTS * ndp_segment_tensor_elements(s);
    unsigned bits = 0;
    for (int64_t i = 0; i < EXPERTS * each; i++)
        bits |= grads[s->offset + i] != 0 ? 1u << (i / each) : 0;
    return bits;
}

/* The experts of each layer with a gradient, which are those of both of its stacks. */
static void find_experts(const ndp_model *m, const double *grads, unsigned bits[LAYERS]) {
    int stacks = 0;
    for (int i = 0; i < m->n_buffers; grads += m->buffers[i++].segments.elements)
        for (int k = 0; k < m->buffers[i].segments.n; k++) {
            const ndp_segment *s = &m->buffers[i].segments.items[k];
            if (!ndp_segment_is_stack(s))
                continue;
            unsigned found = experts_of(s, grads);
            assert_true(stacks < 2 * LAYERS && (stacks % 2 == 0 || found == bits[stacks / 2]));
            bits[stacks++ / 2] = found;
        }
    assert_int_equal(stacks, 2 * LAYERS);
}

static void check_zeros(ndp_dtype compute, const ndp_device *device, const way *w, unsigned first[LAYERS]) {
    ndp_model m = mixture(compute, ROWS);
    trial x = {.j = {.model = &m, .device = device, .way = w}, .updates = UPDATES, .load = many_one_many};
    try_out(&x);
    for (int u = 0; u < UPDATES; u++) {
        unsigned bits[LAYERS];
        find_experts(&m, x.grads[u], bits);
        for (int l = 0; l < LAYERS; l++) {
            assert_int_equal(__builtin_popcount(bits[l]), u == 1 ? CHOICES : EXPERTS);
            if (u == 1 && first[l] == 0)
                first[l] = bits[l];
            assert_true(u != 1 || bits[l] == first[l]);
        }
    }
    forget(&x);
    ndp_model_release(&m);
}

static void experts_without_rows_have_no_gradient(void **state) {
    (void)state;
    static const struct {
        ndp_dtype compute;
        const ndp_device *device;
    } on[] = {{NDP_F64, &ndp_device_ref}, {NDP_F32, &ndp_device_cpu}, {NDP_BF16, &ndp_device_cpu}};
    static const way ways[] = {{.size = {1, 1, 1, 1, 1}},
                               {.size = {1, 1, 1, 1, 1}, .recompute = true},
                               {.size = {1, 2, 1, 1, 2}, .reshard = true},
                               {.size = {1, 2, 1, 1, 2}, .recompute = true}};
    for (int i = 0; i < NDP_COUNT(on); i++) {
        unsigned first[LAYERS] = {0};
        for (int k = 0; k < NDP_COUNT(ways); k++)
            check_zeros(on[i].compute, on[i].device, &ways[k], first);
    }
}

/* ---- rounds ---- */

/* A device on which the most rounds that follow a first one are noted. */
typedef struct rounds_seen {
    ndp_device device;
    ndp_kernel kernel;
    const ndp_kernel *kernels[NDP_OP_COUNT];
    int64_t later;
} rounds_seen;

static ndp_status see_rounds(const ndp_op_call *call) {
    rounds_seen *s = (rounds_seen *)call->exec->device->user;
    NDP_TRY(ndp_device_ref.kernels[NDP_OP_route_exchange]->run(call));
    int64_t later = *(const int64_t *)call->out[4].data, have = __atomic_load_n(&s->later, __ATOMIC_RELAXED);
    while (later > have &&
           !__atomic_compare_exchange_n(&s->later, &have, later, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return NDP_OK;
}

static void rounds_seen_init(rounds_seen *s) {
    *s = (rounds_seen){.device = ndp_device_ref, .kernel = *ndp_device_ref.kernels[NDP_OP_route_exchange]};
    memcpy(s->kernels, ndp_device_ref.kernels, sizeof s->kernels);
    s->kernel.run = see_rounds;
    s->kernels[NDP_OP_route_exchange] = &s->kernel;
    s->device.kernels = s->kernels, s->device.user = s;
}

static void check_rounds(const way *w, double capacity, bool whole_rows, const trial *one) {
    ndp_model m = mixture(NDP_F64, ROWS);
    rounds_seen seen;
    rounds_seen_init(&seen);
    trial x = {.j = {.model = &m, .device = &seen.device, .way = w},
               .capacity = capacity,
               .whole_rows = whole_rows,
               .updates = UPDATES,
               .load = many_one_many};
    try_out(&x);
    assert_true(capacity == 0 ? seen.later == 0 : seen.later >= 1);
    for (int u = 0; u < UPDATES; u++) {
        assert_true(fabs(x.loss[u] / one->loss[u] - 1) <= exact.loss);
        assert_true(distance(x.grads[u], one->grads[u], model_elements(&m)) <= exact.gradients);
    }
    forget(&x);
    ndp_model_release(&m);
}

/* All rows go to two experts, in update 1; what is beyond it comes later. Nothing is dropped, whatever the capacity. */
static void rows_without_room_come_later(void **state) {
    (void)state;
    static const way first = {.size = {1, 1, 1, 1, 1}},
                     ways[] = {{.size = {1, 2, 1, 1, 1}, .ep = 2},
                               {.size = {1, 4, 1, 1, 1}, .ep = 4, .recompute = true},
                               {.size = {1, 1, 1, 1, 4}, .ep = 4, .reshard = true},
                               {.size = {1, 2, 1, 1, 2}, .ep = 4},
                               {.size = {1, 1, 2, 2, 1}, .ep = 2, .recompute = true},
                               {.size = {2, 2, 1, 1, 2}, .ep = 2, .recompute = true}};
    ndp_model m = mixture(NDP_F64, ROWS);
    trial one = {
        .j = {.model = &m, .device = &ndp_device_ref, .way = &first}, .updates = UPDATES, .load = many_one_many};
    try_out(&one);
    for (int i = 0; i < NDP_COUNT(ways); i++)
        for (int k = 0; k < (ways[i].size[4] > 1 ? 4 : 2); k++)
            check_rounds(&ways[i], k % 2, k / 2, &one);
    forget(&one);
    ndp_model_release(&m);
}

/* ---- padding ---- */

enum { LIVE = 11 }; /* of ROWS */

/* `ref`, which counts the rows that experts get. */
typedef struct counting {
    ndp_device device;
    ndp_kernel kernel;
    const ndp_kernel *kernels[NDP_OP_COUNT];
    int64_t *rows; /* [EXPERTS], over all layers, micro-batches and ranks */
} counting;

static ndp_status count(const ndp_op_call *call) {
    const counting *c = call->exec->device->user;
    NDP_TRY(ndp_device_ref.kernels[NDP_OP_route_order]->run(call));
    const ndp_view *offsets = &call->out[2];
    for (int e = 0; e < EXPERTS; e++) {
        int64_t n = (int64_t)(ndp_view_get(offsets, e + 1, 0) - ndp_view_get(offsets, e, 0));
        __atomic_fetch_add(&c->rows[e], n, __ATOMIC_RELAXED);
    }
    return NDP_OK;
}

static void counting_init(counting *c, int64_t rows[EXPERTS]) {
    *c = (counting){.device = ndp_device_ref, .rows = rows, .kernel = *ndp_device_ref.kernels[NDP_OP_route_order]};
    memcpy(c->kernels, ndp_device_ref.kernels, sizeof c->kernels);
    c->kernel.run = count;
    c->kernels[NDP_OP_route_order] = &c->kernel;
    c->device.kernels = c->kernels, c->device.user = c;
}

/* A batch of LIVE rows, in engines for more of them or not. */
static void eleven(ndp_engine *e, int micro_batch, int64_t global, int update) {
    int32_t tokens[LIVE], labels[LIVE];
    (void)update;
    for (int64_t t = 0; t < LIVE; t++) {
        tokens[t] = (int32_t)ndp_rng_below(11, 1, (uint64_t)(global * LIVE + t), 37);
        labels[t] = (int32_t)ndp_rng_below(11, 2, (uint64_t)(global * LIVE + t), 37);
    }
    CHECK_OK(ndp_engine_load(e, micro_batch, &(ndp_micro_batch){.tokens = tokens, .labels = labels, .rows = LIVE}));
}

static trial count_rows(const ndp_model *m, const way *w, int64_t rows[EXPERTS]) {
    counting c;
    memset(rows, 0, EXPERTS * sizeof *rows);
    counting_init(&c, rows);
    trial x = {.j = {.model = m, .device = &c.device, .way = w}, .updates = 1, .load = eleven};
    try_out(&x);
    return x;
}

/* Padding of the batch, and of layouts that cut 11 or 13 rows; ranks of tp count the same rows again. */
static void padding_goes_nowhere(void **state) {
    (void)state;
    static const way ways[] = {{.size = {1, 1, 1, 1, 1}}, {.size = {1, 1, 3, 1, 1}}, {.size = {1, 1, 1, 4, 1}},
                               {.size = {1, 1, 1, 1, 2}}, {.size = {1, 1, 2, 1, 4}}, {.size = {1, 1, 2, 2, 2}}};
    int64_t want[EXPERTS], have[EXPERTS], sum = 0;
    ndp_model exact_rows = mixture(NDP_F64, LIVE);
    trial one = count_rows(&exact_rows, &ways[0], want);
    for (int e = 0; e < EXPERTS; e++)
        sum += want[e];
    assert_int_equal(sum, LIVE * CHOICES * LAYERS * SAMPLES_OF_UPDATE);
    for (int i = 0; i < 2 * NDP_COUNT(ways); i++) {
        const way *w = &ways[i / 2];
        ndp_model m = mixture(NDP_F64, i % 2 ? ROWS : LIVE);
        trial x = count_rows(&m, w, have);
        for (int e = 0; e < EXPERTS; e++)
            assert_int_equal(have[e], w->size[4] * want[e]);
        assert_true(fabs(x.loss[0] / one.loss[0] - 1) <= exact.loss);
        assert_true(distance(x.grads[0], one.grads[0], model_elements(&m)) <= exact.gradients);
        forget(&x);
        ndp_model_release(&m);
    }
    forget(&one);
    ndp_model_release(&exact_rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(experts_without_rows_have_no_gradient),
                                       cmocka_unit_test(rows_without_room_come_later),
                                       cmocka_unit_test(padding_goes_nowhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
