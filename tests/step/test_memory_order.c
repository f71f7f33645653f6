/* ndp_program_order: the programs of all layouts pass, and each of them fails when one wait is removed: at the first
 * call that touches the memory of the communication, or, if there is none, at the end. */
#include "check.h"
#include "step/pipelines.h"
#include "step/program_parts.h"

typedef struct removal {
    int removed, met, at_end;
} removal;

/* The call of a communication, at the level of the program or in a unit's list. */
static ndp_call *call_of(const ndp_program *p, const ndp_comm_event *m) {
    ndp_instr *in = &p->instrs[m->instr];
    return m->call_index == NDP_NONE ? &in->call : &ndp_program_list(p, in)->calls[m->call_index];
}

/* ---- the rule again, in the slowest way: row by row ---- */

typedef struct rows {
    ndp_region region;
    size_t start, width, pitch;
    int64_t n;
} rows;

static rows rows_of(const ndp_program *p, const ndp_walk *at, const ndp_operand *x) {
    if (x->base == NDP_NONE || x->view.rows == 0)
        return (rows){0};
    ndp_address a = ndp_base_address(p, &p->instrs[at->at], at, x->base);
    if (a.block == NDP_NONE)
        return (rows){0};
    const ndp_block *b = &p->blocks[a.block];
    size_t size = ndp_dtype_size(x->view.dtype);
    return (rows){b->region, b->offset + a.offset + x->offset, (size_t)x->view.cols * size, (size_t)x->view.ld * size,
                  x->view.rows};
}

static bool share_a_byte(const rows *a, const rows *b) {
    bool share = false;
    for (int64_t i = 0; a->region == b->region && i < a->n; i++)
        for (int64_t k = 0; k < b->n; k++) {
            size_t x = a->start + (size_t)i * a->pitch, y = b->start + (size_t)k * b->pitch;
            share |= x < y + b->width && y < x + a->width;
        }
    return share;
}

/* True if call c, where the walk is, touches what `under_way` writes, or writes what it reads. */
static bool meets(const ndp_program *p, const ndp_walk *at, const ndp_call *c, const rows under_way[2]) {
    bool met = false;
    for (int k = 0; k < c->n_in + c->n_out; k++) {
        bool written = k >= c->n_in && c->op->collective != NDP_SEND;
        rows mine = rows_of(p, at, k < c->n_in ? &c->in[k] : &c->out[k - c->n_in]);
        met |= share_a_byte(&mine, &under_way[1]) || (written && share_a_byte(&mine, &under_way[0]));
    }
    return met;
}

/* The instruction of the begin that the wait `w` is for; of one in a unit's list, the first that runs the list. */
static int begin_of(const ndp_program *p, const ndp_comm_event *w) {
    const ndp_list *list = w->call_index == NDP_NONE ? NULL : ndp_program_list(p, &p->instrs[w->instr]);
    int i = 0;
    while (list && (p->instrs[i].code != NDP_DO_RUN || ndp_program_list(p, &p->instrs[i]) != list))
        i++;
    return list ? i : w->call->partner;
}

/* The first call after the begin that the wait `w` is for which touches its memory, as "#3" or "#3.2"; "": none. */
static void find_met(const ndp_program *p, const ndp_comm_event *w, char *out, size_t size) {
    int begin = begin_of(p, w);
    bool begun = false;
    rows under_way[2] = {{0}, {0}};
    *out = '\0';
    for (ndp_walk at = NDP_WALK_START; ndp_program_next(p, NDP_FIRST_ITERATIONS(2), &at);) {
        int n;
        ndp_repeats repeats;
        const ndp_call *calls = ndp_instr_calls(p, &p->instrs[at.at], &n, &repeats);
        for (int i = 0; at.at >= begin && i < n; i++) {
            bool here = at.at == begin && (w->call_index == NDP_NONE || i == w->call->partner);
            if (here && !begun) {
                begun = true;
                under_way[0] = rows_of(p, &at, &calls[i].in[0]);
                under_way[1] = calls[i].op->collective == NDP_SEND ? (rows){0} : rows_of(p, &at, &calls[i].out[0]);
            } else if (begun && calls[i].kind != NDP_CALL_WAIT && meets(p, &at, &calls[i], under_way)) {
                bool own = p->instrs[at.at].code == NDP_DO_CALL;
                snprintf(out, size, own ? "#%d " : "#%d.%d ", at.at, i);
                return;
            }
        }
    }
}

/* A call without operands, which orders nothing, in place of the wait `w`. */
static void remove_wait(const ndp_program *p, const ndp_comm_event *w, removal *r) {
    char met[32];
    find_met(p, w, met, sizeof met);
    ndp_call *c = call_of(p, w), was = *c;
    c->kind = NDP_CALL_KERNEL, c->n_in = c->n_out = 0;
    assert_int_equal(ndp_program_order(p), NDP_EBUG);
    *c = was;
    bool at_end = strstr(ndp_error_message(), "is never waited for") != NULL;
    if (at_end ? met[0] != '\0' : met[0] == '\0' || !strstr(ndp_error_message(), met))
        fail_msg("%s, but the first call that touches its memory is %s", ndp_error_message(), met[0] ? met : "none");
    r->removed++;
    r->met += !at_end;
    r->at_end += at_end;
}

static void remove_each_wait(const ndp_program *p, removal *r) {
    ndp_comm_event m;
    CHECK_OK(ndp_program_order(p));
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_ALL_ITERATIONS); ndp_program_comm_event(p, &c, &m);)
        if (!m.begin)
            remove_wait(p, &m, r);
    CHECK_OK(ndp_program_order(p));
}

static void print(const char *what, const removal *r) {
    printf("  %s: %d waits removed, %d found by a call that touches the memory, %d at the end\n", what, r->removed,
           r->met, r->at_end);
    assert_true(r->met > 0.6 * r->removed);
}

static void removed_waits_of_layouts(void **state) {
    (void)state;
    static const int sizes[][5] = {{2, 1, 1, 1, 1}, {1, 3, 1, 1, 1}, {1, 1, 2, 1, 1}, {1, 1, 1, 2, 1}, {1, 1, 1, 1, 2},
                                   {2, 2, 1, 1, 1}, {1, 2, 2, 1, 2}, {1, 2, 1, 2, 1}, {2, 1, 1, 2, 2}, {1, 2, 2, 2, 2}};
    const ndp_exec planned = {.device = &ndp_device_null, .threads = 1};
    removal r = {0};
    for (int k = 0; k < 4 * NDP_COUNT(sizes); k++) {
        ndp_facts f = tiny_facts(k % 2);
        ndp_model_opts mo = tiny_opts(k % 2 ? NDP_F32 : NDP_BF16, 24);
        ndp_model m;
        ndp_engine *e;
        ndp_layout layout = NDP_LAYOUT_ONE;
        f.layers = 3;
        CHECK_OK(ndp_decoder_build(&f, &mo, &m));
        memcpy(layout.size + NDP_DP_REPLICATE, sizes[k / 4], sizeof sizes[k / 4]);
        ndp_engine_opts o = {.model = &m,
                             .step = {.parallel = NDP_PARALLEL_INIT,
                                      .exec = &planned,
                                      .accumulation = 2,
                                      .node_ranks = 1,
                                      .reshard = k % 4 / 2,
                                      .recompute = k % 2,
                                      .optimizer = {.name = NDP_ADAMW, .max_norm = 1}}};
        CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
        CHECK_OK(ndp_engine_create(&o, &e));
        remove_each_wait(ndp_engine_program(e), &r);
        ndp_engine_destroy(e);
        ndp_model_release(&m);
    }
    print("layouts", &r);
}

static void removed_waits_of_pipelines(void **state) {
    (void)state;
    removal r = {0};
    for (int kind = NDP_PIPELINE_GPIPE; kind <= NDP_PIPELINE_DUALPIPEV; kind++) {
        pipeline_setup s;
        pipeline_begin(&s, kind, 4, ndp_pipeline_table[kind].fewest, 8);
        for (int i = 0; i < 4; i++)
            remove_each_wait(s.programs[i], &r);
        pipeline_end(&s);
    }
    print("pipelines", &r);
}

/* Which two operations meet is said. */
static void the_message_names_both(void **state) {
    (void)state;
    pipeline_setup s;
    ndp_comm_event m;
    pipeline_begin(&s, NDP_PIPELINE_1F1B, 2, 1, 2);
    ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_ALL_ITERATIONS);
    while (ndp_program_comm_event(s.programs[1], &c, &m) && (m.begin || m.call->op != &ndp_op_recv))
        continue;
    ndp_call *call = call_of(s.programs[1], &m), was = *call;
    call->kind = NDP_CALL_KERNEL, call->n_in = call->n_out = 0;
    CHECK_FAILS(ndp_program_order(s.programs[1]), NDP_EBUG, "reads memory of #");
    assert_non_null(strstr(ndp_error_message(), "recv"));
    *call = was;
    pipeline_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(removed_waits_of_layouts),
                                       cmocka_unit_test(removed_waits_of_pipelines),
                                       cmocka_unit_test(the_message_names_both)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
