/* Groups of tensors with optimizers, rates and decays of their own: the same updates on every layout, and those of each
 * optimizer by itself. */
#include "step/layouts.h"

#define ENTRY(of, scale, decay, ...)                                                                                   \
    { .opts = {.name = of, .eps = 1e-8, .weight_decay = decay, __VA_ARGS__}, .lr_scale = scale, .chosen = true }
static const ndp_update_entry entries[] = {
    ENTRY(NDP_ADAMW, 0.1, 0, .betas = {0.9, 0.95}), ENTRY(NDP_LION, 0.1, 0.3, .betas = {0.9, 0.99}),
    ENTRY(NDP_SGD, 2, 0.1, .momentum = 0),          ENTRY(NDP_SGD, 1, 0, .momentum = 0.9),
    ENTRY(NDP_MUON, 1, 0.1, .momentum = 0.95),      ENTRY(NDP_ADAMW8BIT, 0.5, 0.1, .betas = {0.9, 0.95})};

/* Gives every tensor an entry, or none, that its optimizer can update; parts of a fused tensor have the same. */
static void draw_entries(ndp_model *m, uint64_t seed, int n) {
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++) {
            ndp_segment *s = &m->buffers[b].segments.items[i];
            uint64_t at = (uint64_t)(b * NDP_MOST_SEGMENTS + i);
            do
                s->named_by = (uint8_t)ndp_rng_below(seed, 3, at++, (uint32_t)n + 1);
            while (s->named_by && entries[s->named_by - 1].opts.name == NDP_MUON && !(s->projection && s->ndim == 2));
            s->coded = !ndp_rng_below(seed, 4, at, 3);
            if (ndp_segment_continues(s))
                s->named_by = s[-1].named_by, s->coded = s[-1].coded;
        }
}

/* `n`: the entries in use. States of codes differ under tp, whose ranks have other blocks. */
static void check_draws(const ndp_facts *f, int draws, int n, const int (*sizes)[5], int n_sizes) {
    for (int draw = 0; draw < draws; draw++) {
        ndp_model_opts mo = tiny_opts(NDP_F64, ROWS);
        ndp_model m;
        CHECK_OK(ndp_decoder_build(f, &mo, &m));
        draw_entries(&m, (uint64_t)draw, n);
        way w = {.size = {1, 1, 1, 1, 1},
                 .parallel = NDP_PARALLEL_INIT,
                 .optimizer = (ndp_optimizer_name)(draw % (n == NDP_COUNT(entries) ? NDP_OPTIMIZER_COUNT : 1)),
                 .entries = entries,
                 .n_entries = n};
        result one = run(&m, &ndp_device_ref, &w);
        for (int i = 0; i < n_sizes; i++) {
            if (left_out())
                continue;
            int bits = i + draw;
            w.reshard = bits & 1, w.recompute = bits & 2, w.gathered = bits & 4;
            memcpy(w.size, sizes[i], sizeof w.size);
            check_against(&m, &ndp_device_ref, &w, &one, &exact);
        }
        release(&one);
        ndp_model_release(&m);
    }
}

static void layouts_agree(void **state) {
    (void)state;
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 3, 2, 1, 1}, {1, 1, 1, 1, 2},
                                   {1, 1, 1, 2, 2}, {1, 3, 1, 1, 4}, {2, 2, 2, 1, 2}},
                     whole[][5] = {{1, 2, 1, 1, 1}, {2, 3, 1, 1, 1}, {1, 2, 2, 1, 1}};
    for (int tied = 0; tied < 2; tied++) {
        ndp_facts f = tiny_facts(tied);
        check_draws(&f, 6, NDP_COUNT(entries) - 1, sizes, NDP_COUNT(sizes));
        check_draws(&f, 5, NDP_COUNT(entries), whole, NDP_COUNT(whole));
    }
}

/* ---- by hand ---- */

/* What the test knows of an element. */
typedef struct element {
    double w, m, v;
} element;

/* One update of an element, as the optimizers' papers have it. */
static void update_by_hand(const ndp_optimizer_opts *o, double lr, int update, double g, element *e) {
    double b1 = o->betas[0], b2 = o->betas[1], t = update + 1;
    if (o->name == NDP_SGD) {
        e->m = o->momentum * e->m + g + o->weight_decay * e->w;
        e->w -= lr * e->m;
        return;
    }
    e->w *= 1 - lr * o->weight_decay;
    if (o->name == NDP_LION) {
        double mixed = b1 * e->m + (1 - b1) * g;
        e->w -= lr * ((mixed > 0) - (mixed < 0));
        e->m = b2 * e->m + (1 - b2) * g;
        return;
    }
    e->m = b1 * e->m + (1 - b1) * g, e->v = b2 * e->v + (1 - b2) * g * g;
    e->w -= lr * (e->m / (1 - pow(b1, t))) / (sqrt(e->v / (1 - pow(b2, t))) + o->eps);
}

static void a_step_is_that_of_each_optimizer(void **state) {
    (void)state;
    enum { UPDATES = 4 };
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F64, ROWS);
    ndp_model m;
    ndp_engine *e;
    const ndp_exec exec = {.device = &ndp_device_ref, .threads = 1};
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    draw_entries(&m, 5, 4); /* one of Muon needs a whole matrix: test_projections.c */
    ndp_engine_opts o = {.model = &m,
                         .step = {.exec = &exec,
                                  .accumulation = 1,
                                  .parallel = NDP_PARALLEL_INIT,
                                  .optimizer = {.betas = {0.9, 0.95},
                                                .eps = 1e-8,
                                                .weight_decay = 0.1,
                                                .max_norm = 0.5,
                                                .entries = entries,
                                                .n_entries = 4}}};
    ndp_layout layout = NDP_LAYOUT_ONE;
    CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = 2}, &o.step.mesh));
    CHECK_OK(ndp_transport_self(&o.transport));
    CHECK_OK(ndp_engine_create(&o, &e));
    tiny_fill(e);
    element *all = calloc((size_t)model_elements(&m), sizeof *all);
    for (int u = -1; u < UPDATES; u++) {
        ndp_step_result r = {0};
        tiny_batch(e, 0, 0);
        if (u >= 0)
            CHECK_OK(ndp_engine_step(e, 1e-2, u, true, &r));
        int64_t at = 0;
        for (int b = 0; b < m.n_buffers; b++)
            for (int i = 0; i < m.buffers[b].segments.n; i++) {
                const ndp_segment *s = &m.buffers[b].segments.items[i];
                const ndp_update_entry *by = s->named_by ? &entries[s->named_by - 1] : NULL;
                ndp_optimizer_opts opts = by ? by->opts : o.step.optimizer;
                opts.weight_decay = s->ndim == 1 ? 0 : opts.weight_decay;
                for (int64_t k = 0; k < s->rows * s->cols; k++, at++) {
                    double w, g;
                    CHECK_OK(ndp_engine_read(e, NDP_OWNED_MASTER, b, s->offset + k, 1, 1, &w));
                    CHECK_OK(ndp_engine_read(e, NDP_OWNED_GRAD, b, s->offset + k, 1, 1, &g));
                    if (u < 0) {
                        all[at].w = w;
                        continue;
                    }
                    double clip = r.grad_norm > 0.5 ? 0.5 / r.grad_norm : 1;
                    update_by_hand(&opts, 1e-2 * (by ? by->lr_scale : 1), u, g * clip, &all[at]);
                    if (!(fabs(w - all[at].w) <= 1e-9))
                        fail_msg("update %d, %s, element %lld by %s: %.12g, by hand %.12g", u, s->name, (long long)k,
                                 ndp_optimizers[opts.name]->name, w, all[at].w);
                }
            }
    }
    free(all);
    ndp_engine_destroy(e);
    ndp_transport_destroy(o.transport);
    ndp_model_release(&m);
}

static void a_vector_is_no_matrix(void **state) {
    (void)state;
    static const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    ndp_engine *e;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    ndp_segments *head = &m.buffers[m.n_buffers - 1].segments; /* with the last norm */
    ndp_engine_opts o = {.model = &m,
                         .step = {.exec = &exec,
                                  .accumulation = 1,
                                  .parallel = NDP_PARALLEL_INIT,
                                  .optimizer = {.entries = &entries[4], .n_entries = 1}}};
    ndp_layout layout = NDP_LAYOUT_ONE;
    CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = 2}, &o.step.mesh));
    for (int i = 0; i < head->n; i++) {
        head->items[i].named_by = 1;
        CHECK_FAILS(ndp_engine_create(&o, &e), NDP_EINVAL, head->items[i].name);
        head->items[i].named_by = 0;
    }
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_agree),
                                       cmocka_unit_test(a_step_is_that_of_each_optimizer),
                                       cmocka_unit_test(a_vector_is_no_matrix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
