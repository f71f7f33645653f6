/* The loads of experts in metrics, counted here from the logits that every router leaves, for all rows of an update: on
 * layouts of worlds of up to 8 ranks over all axes and schedules, with every recompute, they are the same numbers. And
 * biases that moe.bias_rate moves: after each update they are what the counts here say, to the last bit. */
#include "verify/mixtures.h"

enum { LOAD_STEPS = 3, MOST_EXPERTS = 16, FROZEN_LAYER = 3 };

static const mixture_model load_models[] = {
    {"loads-qwen3", "qwen3_moe",
     "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"mlp_only_layers\": [1, 4]"},
    {"loads-glm4", "glm4_moe",
     "\"partial_rotary_factor\": 0.7, \"n_routed_experts\": 6, \"num_experts_per_tok\": 2, \"n_group\": 3, "
     "\"topk_group\": 2, "
     "\"moe_intermediate_size\": 14, \"first_k_dense_replace\": 1, \"routed_scaling_factor\": 1.5"}};

/* ---- what a row chooses ---- */

static void take_best(const double *x, int n, int k, int at[]) {
    bool taken[MOST_EXPERTS] = {false};
    for (int j = 0; j < k; j++) {
        int best = -1;
        for (int e = 0; e < n; e++)
            if (!taken[e] && (best < 0 || x[e] > x[best]))
                best = e;
        taken[at[j] = best] = true;
    }
}

/* With groups, only those with the largest sums of their two best are open. */
static void choose(const ndp_mixtures *m, const double *logits, int at[]) {
    double x[MOST_EXPERTS], sums[MOST_EXPERTS];
    int of = m->groups ? m->experts / m->groups : 0, open[MOST_EXPERTS], best[2];
    for (int e = 0; e < m->experts; e++)
        x[e] = m->groups ? -INFINITY : logits[e];
    for (int g = 0; g < m->groups; g++) {
        take_best(logits + g * of, of, 2, best);
        sums[g] = logits[g * of + best[0]] + logits[g * of + best[1]];
    }
    if (m->groups)
        take_best(sums, m->groups, m->open_groups, open);
    for (int g = 0; g < (m->groups ? m->open_groups : 0); g++)
        memcpy(x + open[g] * of, logits + open[g] * of, (size_t)of * sizeof *x);
    take_best(x, m->experts, m->choices, at);
}

static void count(const ndp_mixtures *m, const double *logits, int64_t rows, int64_t counts[MOST_EXPERTS]) {
    memset(counts, 0, MOST_EXPERTS * sizeof *counts);
    for (int64_t t = 0; t < rows; t++) {
        int at[MOST_EXPERTS];
        choose(m, logits + t * m->experts, at);
        for (int j = 0; j < m->choices; j++)
            counts[at[j]]++;
    }
}

/* ---- a run ---- */

typedef struct loaded {
    const subject *subject;
    const ndp_config *config;
    double least, most;           /* of the entropies and the loads of all layers and steps */
    double bias[9][MOST_EXPERTS]; /* of each layer, by the rule; 0 in the beginning */
} loaded;

static double number(const ndp_metrics *m, const char *key, const char *unit) {
    char name[64];
    snprintf(name, sizeof name, "%s/%s", key, unit);
    for (int i = 0; i < m->n_more; i++)
        if (strcmp(m->more[i].name, name) == 0)
            return m->more[i].value;
    return NAN;
}

static ndp_status check_number(const char *what, const char *unit, double is, double must) {
    return fabs(is - must) <= 1e-12 * must
               ? NDP_OK
               : NDP_FAIL(NDP_EBUG, "%s of %s is %.17g, must be %.17g", what, unit, is, must);
}

/* Rounds: none where the program plans none; else each layer has at least one, and the step those of the layer with the
 * most. */
static ndp_status check_rounds(ndp_trainer *t, const ndp_metrics *m) {
    bool planned = ndp_program_has_counts(ndp_engine_program(t->engine));
    double most = 0;
    for (int u = 0; u < t->model.n_units; u++) {
        double rounds = number(m, "rounds", t->model.units[u].name);
        if (t->model.units[u].mixture == NDP_NONE || (!planned && isnan(rounds)))
            continue;
        if (!planned || !(rounds >= 1))
            return NDP_FAIL(NDP_EBUG, "%g rounds of %s", rounds, t->model.units[u].name);
        most = fmax(most, rounds);
    }
    return check_number("rounds", "all layers", m->rounds, most);
}

static ndp_status check_mixture(loaded *l, const ndp_metrics *m, const ndp_mixtures *of, const char *unit,
                                const int64_t counts[MOST_EXPERTS]) {
    double sum = 0, largest = 0, entropy = 0;
    for (int e = 0; e < of->experts; e++)
        sum += (double)counts[e], largest = fmax(largest, (double)counts[e]);
    for (int e = 0; e < of->experts; e++)
        entropy += counts[e] ? (double)counts[e] / sum * log(sum / (double)counts[e]) : 0;
    double load = largest / (sum / of->experts), even = entropy / log(of->experts);
    NDP_TRY(check_number("max_load", unit, number(m, "max_load", unit), load));
    NDP_TRY(check_number("load_entropy", unit, number(m, "load_entropy", unit), even));
    l->most = fmax(l->most, load), l->least = fmin(l->least, even);
    return NDP_OK;
}

/* Of fp32, or of fp64 on ref; those of frozen layers stay. */
static ndp_status check_bias(loaded *l, ndp_trainer *t, int layer, const int64_t counts[MOST_EXPERTS]) {
    const ndp_config *c = l->config;
    int experts = t->model.inputs->mixtures.experts;
    double rate = layer == FROZEN_LAYER && c->model.frozen.n ? 0 : c->moe.bias_rate;
    double is[MOST_EXPERTS], *must = l->bias[layer];
    char name[96];
    int64_t sum = 0, elements;
    snprintf(name, sizeof name, "model.layers.%d.mlp.gate.e_score_correction_bias", layer);
    int tensor = ndp_trainer_find(t, name);
    if (tensor < 0)
        return NDP_OK;
    ndp_trainer_tensor(t, tensor, &elements);
    NDP_TRY(ndp_trainer_read(t, NDP_WEIGHT, tensor, is));
    for (int e = 0; e < experts; e++)
        sum += counts[e];
    for (int e = 0; e < experts; e++) {
        must[e] += rate * (counts[e] * experts < sum ? 1 : counts[e] * experts > sum ? -1 : 0);
        must[e] = c->precision.compute == NDP_F64 ? must[e] : (float)must[e];
        if (is[e] != must[e] || elements != experts)
            return NDP_FAIL(NDP_EBUG, "%s of expert %d is %.17g, must be %.17g", name, e, is[e], must[e]);
    }
    return NDP_OK;
}

static ndp_status step(loaded *l, ndp_trainer *t, double *logits) {
    const ndp_mixtures *of = &t->model.inputs->mixtures;
    int64_t rows = t->rank.feed.shape.global * l->subject->length, counts[MOST_EXPERTS];
    loaded of_step = {.least = INFINITY};
    ndp_metrics m;
    NDP_TRY(ndp_trainer_step(t, &m));
    for (int u = 0; u < t->model.n_units; u++) {
        if (t->model.units[u].mixture == NDP_NONE)
            continue;
        NDP_TRY(ndp_trainer_read_router(t, t->model.units[u].mixture, logits));
        count(of, logits, rows, counts);
        NDP_TRY(check_mixture(&of_step, &m, of, t->model.units[u].name, counts));
        NDP_TRY(check_bias(l, t, u - 1, counts));
    }
    NDP_TRY(t->rank.job.layout.size[NDP_PP] == 1 ? check_rounds(t, &m) : NDP_OK); /* it knows all layers' names */
    NDP_TRY(check_number("max_load", "all layers", m.max_load, of_step.most));
    NDP_TRY(check_number("load_entropy", "all layers", m.load_entropy, of_step.least));
    l->most = fmax(l->most, of_step.most), l->least = fmin(l->least, of_step.least);
    return NDP_OK;
}

static ndp_status load_body(ndp_world *w, void *arg) {
    loaded mine = *(loaded *)arg;
    ndp_trainer *t;
    NDP_TRY(ndp_trainer_open(mine.config, w, &(ndp_rank_opts){.record = true}, &t));
    int64_t rows = t->rank.feed.shape.global * mine.subject->length;
    double *logits = malloc((size_t)(rows * t->model.inputs->mixtures.experts) * sizeof *logits);
    ndp_status st = NDP_OK;
    for (int s = 0; s < mine.subject->steps && st == NDP_OK; s++)
        st = step(&mine, t, logits);
    free(logits);
    ndp_trainer_destroy(t);
    if (ndp_world_rank(w) == 0)
        *(loaded *)arg = mine;
    return st;
}

static void check_loads(const subject *s, const way *w) {
    char text[WAY_TEXT];
    ndp_config *c = configure(s, w);
    loaded l = {s, c, INFINITY, 0, {{0}}};
    if (ndp_world_run(c, load_body, &l) != NDP_OK)
        fail_msg("%s, %s: %s (%s)", s->name, way_text(w, text), ndp_error_message(), ndp_error_trail());
    assert_true(l.most > 1.1 && l.least < 0.99); /* they are not even */
    assert_true(c->moe.bias_rate == 0 || l.bias[5][0] != 0);
    ndp_config_destroy(c);
}

/* Every n-th of the legal layouts of worlds of up to 8 ranks. */
static void check_layouts(const corpus *c, const mixture_model *m, const char *precision, int n) {
    ndp_layout layouts[MOST_MIXTURE_LAYOUTS];
    char *path;
    int all = 0, turn = 0;
    subject s = mixture_subject(c, m, precision, &path);
    s.steps = LOAD_STEPS;
    if (strcmp(m->type, "glm4_moe") == 0)
        s.moe = "bias_rate=0.03"; /* large, so that choices change */
    ndp_layout_facts facts = facts_of(&s);
    for (int world = 1; world <= 8; world++) {
        ndp_layout l = NDP_LAYOUT_ONE;
        all = add_layouts(&l, 0, world, world, &facts, layouts, all, MOST_MIXTURE_LAYOUTS);
    }
    for (int i = 0; i < all; i += n) {
        way w = mixture_way(&layouts[i], i / n, &turn);
        w.recompute = i / n % 3;
        if (!left_out())
            check_loads(&s, &w);
    }
    free(path);
}

static void softmax_routers(void **state) { check_layouts(*state, &load_models[0], "fp32", short_or_all(23, 3)); }
static void sigmoid_routers(void **state) { check_layouts(*state, &load_models[1], "fp32", short_or_all(29, 5)); }
static void on_ref(void **state) { check_layouts(*state, &load_models[1], "fp64", short_or_all(97, 31)); }

/* On the simulated GPU. */
static void on_sim(void **state) {
    char *path;
    subject s = mixture_subject(*state, &load_models[1], "fp32", &path);
    way w = {.shard = 2, .tp = 2, .ep = 2, .global = 4, .accumulation = 2, .threads = 1, .recompute = 2};
    s.steps = LOAD_STEPS, s.moe = "bias_rate=0.03", s.device = "sim", s.frozen = "[layers.3]";
    check_loads(&s, &w);
    w.whole_rows = true, w.ep = 4, w.capacity = "1";
    check_loads(&s, &w);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(softmax_routers), cmocka_unit_test(sigmoid_routers),
                                       cmocka_unit_test(on_ref), cmocka_unit_test(on_sim)};
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
