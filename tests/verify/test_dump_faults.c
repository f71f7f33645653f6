/* Faults of trainers in dumps: each is found, those of the list are named after what they are, and nothing is named
 * that is not. Faults between ranks come from our own programs on layouts, with a sum left out; others are steps on one
 * rank with all rows in one update, of rows or with gradients that are changed as the fault would change them. */
#include "verify/dumps.h"
#include "verify/seeded.h"

/* ---- steps with a fault ---- */

/* A whole step's result. */
typedef struct step {
    double loss;
    int64_t tokens;
    double **gradients; /* by tensor of the list */
} step;

/* A dump that is being made wrong. */
typedef struct wrong {
    ndp_config *config; /* of one rank */
    char *folder;
    ndp_dump_rows rows;
    ndp_tensor_list list;
    step step; /* the right one at first */
} wrong;

static void release_step(const wrong *w, step *s) {
    for (int i = 0; i < w->list.n; i++)
        free(s->gradients[i]);
    free(s->gradients);
}

static double *double_array(int64_t n) {
    double *a = calloc((size_t)n, sizeof *a);
    assert_non_null(a);
    return a;
}

static int64_t elements(const wrong *w, int tensor) { return ndp_tensor_elements(&w->list.specs[tensor]); }

typedef struct computing {
    const wrong *w;
    const ndp_dump_rows *rows;
    step *out;
} computing;

static ndp_status compute_on(ndp_world *world, void *arg) {
    const computing *k = arg;
    ndp_trainer *t;
    ndp_step_result r;
    NDP_TRY(ndp_trainer_open(k->w->config, world, &(ndp_rank_opts){.no_data = true}, &t));
    for (int64_t row = 0; row < k->rows->n; row++) {
        int64_t at = row * k->rows->length;
        NDP_TRY(ndp_engine_load(t->engine, (int)row,
                                &(ndp_micro_batch){.tokens = k->rows->tokens + at,
                                                   .labels = k->rows->labels + at,
                                                   .positions = k->rows->positions + at,
                                                   .starts = k->rows->starts + at,
                                                   .one_state = k->rows->one_state}));
    }
    NDP_TRY(ndp_engine_step(t->engine, 0, 0, false, &r));
    k->out->loss = r.loss, k->out->tokens = r.tokens;
    for (int i = 0; i < k->w->list.n; i++)
        NDP_TRY(ndp_trainer_read(t, NDP_GRADIENT, i, k->out->gradients[i]));
    ndp_trainer_destroy(t);
    return NDP_OK;
}

/* The step on other rows; none is frozen, so tensors of the list are those of the trainer. */
static step compute(const wrong *w, const ndp_dump_rows *rows) {
    step s = {.gradients = calloc((size_t)w->list.n, sizeof *s.gradients)};
    for (int i = 0; i < w->list.n; i++)
        s.gradients[i] = double_array(elements(w, i));
    CHECK_OK(ndp_local_world(1, compute_on, &(computing){w, rows, &s}));
    return s;
}

static ndp_dump_rows copy_rows(const ndp_dump_rows *r) {
    ndp_dump_rows copy;
    CHECK_OK(ndp_dump_rows_init(&copy, r->n, r->length));
    memcpy(copy.tokens, r->tokens, 4 * (size_t)(r->n * r->length) * sizeof *r->tokens);
    return copy;
}

/* Adds k times another step to the step. */
static void add_step(wrong *w, double k, const step *s) {
    for (int i = 0; i < w->list.n; i++)
        for (int64_t e = 0; e < elements(w, i); e++)
            w->step.gradients[i][e] += k * s->gradients[i][e];
    w->step.loss += k * s->loss;
}

static void scale_tensors(wrong *w, const char *part, double k) {
    for (int i = 0; i < w->list.n; i++)
        for (int64_t e = 0; e < elements(w, i) && strstr(w->list.specs[i].name, part); e++)
            w->step.gradients[i][e] *= k;
}

static void scale_all(wrong *w, double k) {
    scale_tensors(w, "", k);
    w->step.loss *= k;
}

/* The step becomes that of labels that `keeps` accepts; own: divided by their number, else by that of all. */
static void keep_labels(wrong *w, bool (*keeps)(int64_t row, int64_t column), bool own) {
    ndp_dump_rows rows = copy_rows(&w->rows);
    for (int64_t i = 0; i < rows.n * rows.length; i++)
        if (!keeps(i / rows.length, i % rows.length))
            rows.labels[i] = -1;
    step s = compute(w, &rows);
    double k = own ? 1 : (double)s.tokens / (double)w->step.tokens;
    scale_all(w, 0);
    add_step(w, k, &s);
    w->step.tokens = own ? s.tokens : w->step.tokens;
    release_step(w, &s);
    ndp_dump_rows_release(&rows);
}

/* The mean of the means over labels that `part` gives one of n numbers. */
static void mean_of_means(wrong *w, int n, int (*part)(int64_t row, int64_t column)) {
    scale_all(w, 0);
    for (int p = 0; p < n; p++) {
        ndp_dump_rows rows = copy_rows(&w->rows);
        for (int64_t i = 0; i < rows.n * rows.length; i++)
            if (part(i / rows.length, i % rows.length) != p)
                rows.labels[i] = -1;
        step s = compute(w, &rows);
        add_step(w, 1.0 / n, &s);
        release_step(w, &s);
        ndp_dump_rows_release(&rows);
    }
}

/* ---- the faults ---- */

static void doubled(wrong *w) { scale_tensors(w, "layers.1.mlp.down_proj", 2); }
static void halved_norms(wrong *w) { scale_tensors(w, "norm.weight", 0.5); }
static void not_divided(wrong *w) { scale_all(w, (double)w->step.tokens); }
static void accumulated(wrong *w) { scale_all(w, 4); }

static bool first_half(int64_t row, int64_t column) {
    (void)column;
    return row < DUMP_ROWS / 2;
}
static void first_rows(wrong *w) { keep_labels(w, first_half, false); }
static void first_rows_alone(wrong *w) { keep_labels(w, first_half, true); }

static bool but_last_quarter(int64_t row, int64_t column) {
    (void)column;
    return row < DUMP_ROWS - 2;
}
static void last_micro_batch_lost(wrong *w) { keep_labels(w, but_last_quarter, false); }

/* All tensors and the loss are divided by the tokens of the first half of the rows. */
static void tokens_of_one_rank(wrong *w) {
    int64_t tokens = 0;
    for (int64_t i = 0; i < DUMP_ROWS / 2 * w->rows.length; i++)
        tokens += w->rows.labels[i] >= 0;
    scale_all(w, (double)w->step.tokens / (double)tokens);
}

static int half_of_rows(int64_t row, int64_t column) {
    (void)column;
    return row >= DUMP_ROWS / 2;
}
static int row_in_turn(int64_t row, int64_t column) {
    (void)column;
    return (int)(row % 4);
}
static int half_of_columns(int64_t row, int64_t column) {
    (void)row;
    return column >= DUMP_LENGTH / 2;
}
static void loss_by_rank(wrong *w) { mean_of_means(w, 2, half_of_rows); }
static void loss_by_rank_in_turn(wrong *w) { mean_of_means(w, 4, row_in_turn); }
static void loss_by_sequence_rank(wrong *w) { mean_of_means(w, 2, half_of_columns); }

static bool not_at_border(int64_t row, int64_t column) {
    (void)row;
    return column != DUMP_LENGTH / 2 - 1;
}
static void labels_lost(wrong *w) { keep_labels(w, not_at_border, true); }

static bool after_cut(int64_t row, int64_t column) {
    (void)row;
    return column >= DUMP_LENGTH / 2;
}
static void labels_after_cut(wrong *w) { keep_labels(w, after_cut, false); }

static void replace_by(wrong *w, ndp_dump_rows *rows) {
    step s = compute(w, rows);
    scale_all(w, 0);
    add_step(w, 1, &s);
    release_step(w, &s);
    ndp_dump_rows_release(rows);
}

static void mask_dropped(wrong *w) {
    ndp_dump_rows rows = copy_rows(&w->rows);
    memset(rows.starts, 0, (size_t)(rows.n * rows.length) * sizeof *rows.starts);
    rows.one_state = true;
    replace_by(w, &rows);
}

/* As transformers' layers in torch: attention keeps its borders. */
static void states_go_on(wrong *w) {
    ndp_dump_rows rows = copy_rows(&w->rows);
    rows.one_state = true;
    replace_by(w, &rows);
}

static void attention_closed(wrong *w) {
    ndp_dump_rows rows = copy_rows(&w->rows);
    for (int64_t i = 0; i < rows.n * rows.length; i++)
        if (i % rows.length >= DUMP_LENGTH / 2 && rows.starts[i] < DUMP_LENGTH / 2)
            rows.starts[i] = DUMP_LENGTH / 2;
    replace_by(w, &rows);
}

static double norm_of(const wrong *w) {
    double squares = 0;
    for (int i = 0; i < w->list.n; i++)
        for (int64_t e = 0; e < elements(w, i); e++)
            squares += w->step.gradients[i][e] * w->step.gradients[i][e];
    return sqrt(squares);
}

/* As torch clips. */
static void clipped(wrong *w) { scale_tensors(w, "", 0.25 / (norm_of(w) + 1e-6)); }

static void add_weights(wrong *w, const char *part, double k) {
    ndp_weights *weights;
    CHECK_OK(ndp_weights_open_all(w->folder, "weights", &weights));
    for (int i = 0; i < w->list.n; i++) {
        double *values = double_array(elements(w, i));
        CHECK_OK(ndp_weights_read(weights, w->list.specs[i].name, 0, elements(w, i), values, NDP_F64, true));
        for (int64_t e = 0; e < elements(w, i) && strstr(w->list.specs[i].name, part); e++)
            w->step.gradients[i][e] += k * values[e];
        free(values);
    }
    ndp_weights_close(weights);
}
static void decayed(wrong *w) { add_weights(w, "proj", 0.1); }

/* ---- faults that are not in the list ---- */

static void odd_factor(wrong *w) { scale_tensors(w, "layers.0.self_attn.q_proj", 0.7312); }

static void transposed(wrong *w) {
    for (int i = 0; i < w->list.n; i++)
        if (strstr(w->list.specs[i].name, "layers.1.mlp.gate_proj.weight")) {
            int64_t rows = w->list.specs[i].shape[0], cols = w->list.specs[i].shape[1];
            double *t = double_array(rows * cols), *g = w->step.gradients[i];
            for (int64_t e = 0; e < rows * cols; e++)
                t[e] = g[e % rows * cols + e / rows];
            memcpy(g, t, (size_t)(rows * cols) * sizeof *g);
            free(t);
        }
}

static void noisy(wrong *w) {
    for (int64_t e = 0; e < elements(w, 3); e++)
        w->step.gradients[3][e] *= 1 + 1e-3 * (double)ndp_rng_below(3, 3, (uint64_t)e, 100) / 100;
}

static void other_tokens(wrong *w) {
    ndp_dump_rows rows = copy_rows(&w->rows);
    for (int64_t row = 0; row < rows.n; row++)
        rows.tokens[row * rows.length] = (rows.tokens[row * rows.length] + 1) % 16;
    replace_by(w, &rows);
}

static void flipped(wrong *w) { scale_tensors(w, "embed_tokens", -1); }

typedef struct dump_fault {
    const char *name, *family;
    void (*make)(wrong *w);
    const char *words; /* of the only line; NULL: no cause is named in any */
    double clip;
    bool half; /* in bf16 */
} dump_fault;

static const dump_fault faults[] = {
    {"doubled", "llama", doubled,
     "model.layers.1.mlp.down_proj.weight, model.layers.1.mlp.down_proj.bias are 2.000 of ours: like what is counted 2 "
     "times",
     0, false},
    {"halved_norms", "qwen3", halved_norms,
     "model.norm.weight are 0.500 of ours: like a sum over 2 ranks that is missing", 0, false},
    {"not_divided", "qwen2", not_divided, "and the loss are", 0, false},
    {"accumulated", "qwen2", accumulated, "gradients and the loss are 4.000 of ours: like what is counted 4 times", 0,
     false},
    {"first_rows", "llama", first_rows, "the loss are like rows 0 to 3 alone, divided by the tokens of all", 0, false},
    {"first_rows_alone", "llama", first_rows_alone,
     "the loss and the number of tokens are like rows 0 to 3 alone, divided by their own tokens", 0, false},
    {"last_micro_batch_lost", "gemma2", last_micro_batch_lost,
     "the loss are like all rows but 6 to 7, divided by the tokens of all", 0, false},
    {"tokens_of_one_rank", "gpt2", tokens_of_one_rank,
     "of ours: like a division by the tokens of rows 0 to 3 instead of all", 0, false},
    {"loss_by_rank", "llama", loss_by_rank, "like the mean over 2 parts of the rows, blocks of neighbours", 0, false},
    {"loss_by_rank_in_turn", "llama", loss_by_rank_in_turn, "like the mean over 4 parts of the rows, one row in turn",
     0, false},
    {"loss_by_sequence_rank", "mistral", loss_by_sequence_rank, "like the mean over 2 parts of the columns", 0, false},
    {"labels_lost", "qwen2", labels_lost,
     "the number of tokens are like our step without the last label of each 16 columns", 0, false},
    {"labels_after_cut", "qwen2", labels_after_cut, "like the labels of columns 16 to 31 alone", 0, false},
    {"mask_dropped", "olmo2", mask_dropped, "a mask without document borders", 0, false},
    {"states_go_on", "qwen3_5", states_go_on, "not reset where one begins", 0, false},
    {"states_and_mask", "qwen3_next", mask_dropped, "a mask without document borders", 0, false},
    {"attention_closed", "smollm3", attention_closed, "like attention that stays inside of each 16 columns", 0, false},
    {"clipped", "phi3", clipped, "like gradients that are clipped already, to a norm of 0.25", 0.25, false},
    {"decayed", "starcoder2", decayed, "like ours plus 0.1 of the weights: weight decay is in the gradients", 0, false},
    {"doubled_half", "llama", doubled,
     "model.layers.1.mlp.down_proj.weight, model.layers.1.mlp.down_proj.bias are 2.000 of ours: like what is counted 2 "
     "times",
     0, true},
    {"first_rows_half", "qwen2", first_rows, "the loss are like rows 0 to 3 alone, divided by the tokens of all", 0,
     true},
    {"mask_dropped_half", "olmo2", mask_dropped, "a mask without document borders", 0, true},
    {"odd_factor", "qwen2", odd_factor, NULL, 0, false},
    {"transposed", "llama", transposed, NULL, 0, false},
    {"noisy", "llama", noisy, NULL, 0, false},
    {"other_tokens", "llama", other_tokens, NULL, 0, false},
    {"flipped", "llama", flipped, NULL, 0, false}};

/* ---- the test of one ---- */

static wrong begin_wrong(const dump_fault *f, const char *folder) {
    const way one = {.global = DUMP_ROWS, .accumulation = DUMP_ROWS, .threads = 1};
    wrong w = {.config = dump_job(family_called(f->family), &one), .folder = dump_folder(folder)};
    ndp_dump d;
    ndp_job j;
    ndp_model m;
    if (f->clip > 0)
        set(w.config, "optimizer.max_grad_norm=%g", f->clip);
    set(w.config, "precision.compute=%s", f->half ? "bf16" : "fp32");
    set(w.config, "optimizer.lr=0"); /* the new weights are the old ones */
    make_dump(w.config, w.folder, NULL, NULL);
    CHECK_OK(ndp_dump_open(w.folder, &d));
    CHECK_OK(ndp_dump_read_rows(&d, 263, &w.rows));
    ndp_dump_close(&d);
    CHECK_OK(ndp_job_init(w.config, 1, &j));
    CHECK_OK(ndp_model_build(&j.spec, &j.model, &m));
    CHECK_OK(ndp_tensor_list_of(&w.list, &m, NDP_OWNED_GRAD, NDP_TENSORS_ALL, NDP_F32));
    ndp_model_release(&m);
    ndp_job_release(&j);
    w.step = compute(&w, &w.rows);
    return w;
}

static void store(const wrong *w) {
    patch(w->folder, "batch", "loss", 0, 1, &w->step.loss);
    patch(w->folder, "batch", "tokens", 0, 1, &w->step.tokens);
    for (int i = 0; i < w->list.n; i++)
        patch(w->folder, "gradients", w->list.specs[i].name, 0, elements(w, i), w->step.gradients[i]);
}

static void release_wrong(wrong *w) {
    release_step(w, &w->step);
    ndp_dump_rows_release(&w->rows);
    ndp_tensor_list_release(&w->list);
    ndp_config_destroy(w->config);
    free(w->folder);
}

/* One line with the words, and nothing besides; without words no line names a cause. */
static void check_causes(const ndp_against *a, const char *name, const char *words) {
    char *causes = causes_of(a);
    printf("%s:\n%s", name, causes);
    assert_false(a->agrees);
    assert_true(a->n_causes > 0);
    for (int i = 0; i < a->n_causes && !words; i++)
        if (!strstr(a->causes[i], ": no known cause fits"))
            fail_msg("%s: a cause is named: %s", name, causes);
    if (words && (a->n_causes > 1 || !strstr(causes, words)))
        fail_msg("%s: '%s' is not all that is said: %s", name, words, causes);
    free(causes);
}

static void fault_in_step(void **state) {
    const dump_fault *f = *state;
    wrong w = begin_wrong(f, "wrong");
    store(&w);
    ndp_against right = judge_dump(w.config, w.folder);
    assert_true(right.agrees);
    f->make(&w);
    store(&w);
    ndp_against a = judge_dump(w.config, w.folder);
    check_causes(&a, f->name, f->words);
    ndp_against_release(&right);
    ndp_against_release(&a);
    release_wrong(&w);
}

/* ---- sums between ranks ---- */

/* The sums over a group that programs make after the last run. */
static void miss_sums(ndp_program *p, ndp_group_kind group) {
    int missed = 0;
    for (int i = 0; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        if (in->code != NDP_DO_CALL || in->call.op != &ndp_op_all_reduce || in->buffer == NDP_NONE ||
            in->call.attr.group != (int)group)
            continue;
        harmless(p, in);
        missed++;
    }
    assert_true(missed > 0);
}

static ndp_status miss_replicas(void *user, ndp_trainer *t) {
    (void)user;
    miss_sums((ndp_program *)ndp_engine_program(t->engine), NDP_GROUP_REPLICATE);
    return NDP_OK;
}

static ndp_status miss_tensor_ranks(void *user, ndp_trainer *t) {
    (void)user;
    miss_sums((ndp_program *)ndp_engine_program(t->engine), NDP_GROUP_TP);
    return NDP_OK;
}

static ndp_status miss_tie(void *user, ndp_trainer *t) {
    (void)user;
    miss_sums((ndp_program *)ndp_engine_program(t->engine), NDP_GROUP_TIE);
    return NDP_OK;
}

static ndp_status miss_kv_copies(void *user, ndp_trainer *t) {
    (void)user;
    miss_sums((ndp_program *)ndp_engine_program(t->engine), NDP_GROUP_KV);
    return NDP_OK;
}

/* ---- routers ---- */

static void replace_in_units(ndp_trainer *t, const ndp_op *op, ndp_status (*run)(const ndp_op_call *call)) {
    ndp_program *p = (ndp_program *)ndp_engine_program(t->engine);
    for (int graph = 0; graph < p->opts.model->n_graphs; graph++)
        replace_kernel(p, graph, NDP_BACKWARD_INPUT, op, run);
}

/* On one rank, so that everything after it inherits the gradient that a rank has. */
static ndp_status route_dx_of_first(const ndp_op_call *c, int64_t experts) {
    const ndp_view *dw = &c->in[0];
    for (int64_t t = 0; t < dw->rows; t++)
        for (int64_t j = 0; j < dw->cols; j++)
            if (ndp_view_get(&c->in[2], t, j) >= (double)experts)
                ndp_view_set(dw, t, j, 0);
    return ndp_device_cpu.kernels[NDP_OP_route_dx]->run(c);
}
static ndp_status route_dx_of_half(const ndp_op_call *c) { return route_dx_of_first(c, c->in[1].cols / 2); }
static ndp_status route_dx_of_none(const ndp_op_call *c) { return route_dx_of_first(c, 0); }

static ndp_status miss_other_choices(void *user, ndp_trainer *t) {
    (void)user;
    replace_in_units(t, &ndp_op_route_dx, route_dx_of_half);
    return NDP_OK;
}

static ndp_status detach_routers(void *user, ndp_trainer *t) {
    (void)user;
    replace_in_units(t, &ndp_op_route_dx, route_dx_of_none);
    return NDP_OK;
}

typedef struct rank_fault {
    const char *name, *family;
    way way;
    ndp_verify_hook *hook;
    const char *words[2]; /* of its lines */
} rank_fault;

static const rank_fault rank_faults[] = {
    {"replicas",
     "llama",
     {.replicate = 2, .accumulation = 4},
     miss_replicas,
     {"all 51 gradients are like rows 0, 2, ... of 8 alone, divided by the tokens of all", NULL}},
    {"norms_of_cut_rows",
     "mistral",
     {.tp = 2, .accumulation = 8},
     miss_tensor_ranks,
     {"model.layers.*.input_layernorm.weight, model.layers.*.post_attention_layernorm.weight, model.norm.weight are "
      "like "
      "the part of columns 0 to 15: a sum over 2 ranks that cut the sequence is missing",
      NULL}},
    {"norms_of_heads",
     "qwen3",
     {.tp = 2, .accumulation = 8, .whole_rows = true},
     miss_tensor_ranks,
     {"model.layers.*.self_attn.q_norm.weight, model.layers.*.self_attn.k_norm.weight are like the heads of rank 0 of "
      "2: "
      "a sum over ranks that cut the heads is missing",
      NULL}},
    {"norms_of_both",
     "qwen3",
     {.tp = 2, .accumulation = 8},
     miss_tensor_ranks,
     {"like the heads of rank 0 of 2", "like the part of columns 0 to 15"}},
    {"kv_copies",
     "llama",
     {.tp = 2, .accumulation = 8, .whole_rows = true},
     miss_kv_copies,
     {"model.layers.*.self_attn.k_proj.weight, model.layers.*.self_attn.v_proj.weight, "
      "model.layers.*.self_attn.k_proj.bias, model.layers.*.self_attn.v_proj.bias are like part 0 of 2 of the query "
      "heads of "
      "a kv head: a sum over ranks with copies of a kv head is missing",
      NULL}},
    {"kv_copies_in_fours",
     "starcoder2",
     {.tp = 8, .accumulation = 8, .whole_rows = true},
     miss_kv_copies,
     {"like part 0 of 4 of the query heads of a kv head", NULL}},
    {"tied",
     "qwen2",
     {.pp = 2, .accumulation = 8, .once = true},
     miss_tie,
     {"model.embed_tokens.weight is like what the embedding alone gives: the sum with the head is missing", NULL}},
    {"choices_of_one_rank",
     "qwen3_moe",
     {.accumulation = 8},
     miss_other_choices,
     {"model.layers.2.mlp.gate.weight, and what inherits from it in 47 other gradients, are like experts on 2 ranks: "
      "the "
      "gradient of choices made by other ranks is missing",
      NULL}},
    {"detached",
     "glm4_moe",
     {.accumulation = 8},
     detach_routers,
     {"model.layers.2.mlp.gate.weight, and what inherits from it in 59 other gradients, are like routers that get no "
      "gradient: they are detached",
      NULL}}};

static void fault_between_ranks(void **state) {
    const rank_fault *f = *state;
    way w = f->way;
    w.global = DUMP_ROWS, w.threads = 1;
    char *folder = dump_folder("ranks");
    ndp_config *c = dump_job(family_called(f->family), &w);
    make_dump(c, folder, f->hook, NULL);
    ndp_against a = judge_dump(c, folder);
    char *causes = causes_of(&a);
    printf("%s:\n%s", f->name, causes);
    assert_false(a.agrees);
    assert_int_equal(a.n_causes, f->words[1] ? 2 : 1);
    for (int i = 0; i < 2 && f->words[i]; i++)
        if (!strstr(causes, f->words[i]))
            fail_msg("%s: no '%s' in %s", f->name, f->words[i], causes);
    free(causes);
    ndp_against_release(&a);
    ndp_config_destroy(c);
    free(folder);
}

/* Each rank of transformers 5.17.0 computes other ranks' choices too, with its last expert and weight 0, and adds the
 * gradient of that weight to the router's (tests/golden/README.md). */
static void clamped_experts(void **state) {
    (void)state;
    const way one = {.global = DUMP_ROWS, .accumulation = DUMP_ROWS, .threads = 1};
    char *model = ndp_format("%s/tests/golden/mixtral", getenv("NDP_SOURCE_DIR"));
    char *folder = ndp_format("%s/batched_mm", model);
    ndp_config *c = dump_job(family_called("mixtral"), &one);
    set(c, "model.config=null");
    set(c, "model.path=%s", model);
    set(c, "model.init=pretrained");
    ndp_against a = judge_dump(c, folder);
    check_causes(
        &a, "clamped_experts",
        "model.layers.1.block_sparse_moe.gate.weight, and what inherits from it in 38 other gradients, are like "
        "experts on 2 ranks: the weights of choices also get the gradient of the last expert of each other rank");
    ndp_against_release(&a);
    ndp_config_destroy(c);
    free(folder), free(model);
}

int main(int argc, char **argv) {
    enum { FAULTS = NDP_COUNT(faults), RANKS = NDP_COUNT(rank_faults) };
    struct CMUnitTest tests[FAULTS + RANKS + 1];
    for (int i = 0; i < FAULTS; i++)
        tests[i] = (struct CMUnitTest){faults[i].name, fault_in_step, NULL, NULL, (void *)&faults[i]};
    for (int i = 0; i < RANKS; i++)
        tests[FAULTS + i] =
            (struct CMUnitTest){rank_faults[i].name, fault_between_ranks, NULL, NULL, (void *)&rank_faults[i]};
    tests[FAULTS + RANKS] = (struct CMUnitTest){"clamped_experts", clamped_experts, NULL, NULL, NULL};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_the_corpus, drop_the_corpus);
}
