/* Programs of two ranks that are said to be the same are: their texts are equal, and any field that differs is seen. */
#include "step/pipelines.h"

/* Without what each rank has of its own: its number, and where its groups begin. */
static char *text_of(const ndp_program *p) {
    ndp_str text = {0};
    ndp_program_print(p, true, &text);
    char *out = ndp_str_detach(&text), *to = out;
    assert_non_null(out);
    for (const char *from = out; *from;) {
        bool own = strncmp(from, "base ", 5) == 0 || strncmp(from, "of rank ", 8) == 0;
        size_t n = own ? strcspn(from, " ") + 1 : 1;
        n += own && *from == 'o' ? 5 : 0;
        memmove(to, from, n);
        to += n, from += n;
        from += own ? strspn(from, "0123456789") : 0;
    }
    *to = '\0';
    return out;
}

/* Layouts of up to 16 ranks; pp 3 has a stage without embedding and head. */
static bool next_layout(int number, ndp_layout *out) {
    *out = (ndp_layout)NDP_LAYOUT_ONE;
    out->size[NDP_PP] = number % 2 ? 3 : 1;
    for (int axis = NDP_DP_REPLICATE; axis <= NDP_TP; axis++)
        out->size[axis] = 1 + (number >> axis & 1);
    return number < 1 << (NDP_TP + 1);
}

static int differing_axes(const ndp_mesh *a, const ndp_mesh *b) {
    int axes = 0;
    for (int axis = 0; axis < NDP_AXES; axis++)
        axes |= (a->coord[axis] != b->coord[axis]) << axis;
    return axes;
}

static void compare_ranks(const pipeline_setup *s, int *same_on) {
    char *texts[PIPELINE_RANKS];
    int world = pipeline_world(s);
    for (int i = 0; i < world; i++)
        texts[i] = text_of(s->programs[i]);
    for (int i = 0; i < world; i++)
        for (int k = 0; k < world; k++) {
            int axes = differing_axes(&s->programs[i]->opts.step.mesh, &s->programs[k]->opts.step.mesh);
            bool same = ndp_program_same(s->programs[i], s->programs[k]);
            assert_int_equal(same, ndp_program_same(s->programs[k], s->programs[i]));
            if (same)
                assert_string_equal(texts[i], texts[k]);
            if (axes == 0)
                assert_true(same);
            if (axes & 1 << NDP_PP)
                assert_false(same);
            if (axes == 1 << NDP_DP_REPLICATE)
                assert_true(same);
            same_on[axes] += same;
        }
    for (int i = 0; i < world; i++)
        free(texts[i]);
}

static void roles_of_layouts(void **state) {
    (void)state;
    int same_on[1 << NDP_AXES] = {0};
    ndp_layout layout;
    for (int number = 0; next_layout(number, &layout); number++) {
        pipeline_setup s = {0};
        ndp_model_opts mo = tiny_opts(NDP_BF16, 24);
        ndp_facts f = tiny_facts(false);
        CHECK_OK(ndp_pipeline_make(NDP_PIPELINE_1F1B, layout.size[NDP_PP], 1, 9, &s.table));
        f.layers = s.table.stages;
        f.ffn = 16; /* cut evenly */
        CHECK_OK(ndp_decoder_build(&f, &mo, &s.model));
        pipeline_cut(&s);
        pipeline_take(&s, 1.0);
        s.layout = layout;
        if (pipeline_world(&s) <= PIPELINE_RANKS) {
            pipeline_engines(&s);
            compare_ranks(&s, same_on);
            pipeline_end(&s);
        } else {
            ndp_model_release(&s.model);
            ndp_pipeline_release(&s.table);
            free(s.first);
        }
    }
    for (int axis = NDP_DP_REPLICATE; axis <= NDP_TP; axis++)
        print_message("%s %d%s", ndp_axis_name((ndp_axis)axis), same_on[1 << axis], axis == NDP_TP ? " pairs\n" : ", ");
    assert_true(same_on[1 << NDP_TP] > 0);
}

/* ---- fields ---- */

#define DIFFERS(field, change)                                                                                         \
    do {                                                                                                               \
        __typeof__(field) kept = (field);                                                                              \
        (field) = (__typeof__(field))(change);                                                                         \
        if (ndp_program_same(a, b))                                                                                    \
            fail_msg("%s", #field);                                                                                    \
        (field) = kept;                                                                                                \
        assert_true(ndp_program_same(a, b));                                                                           \
    } while (0)

static ndp_instr *instr_of(const ndp_program *p, bool run, ndp_call_kind kind) {
    int i = 0;
    while (run ? p->instrs[i].code != NDP_DO_RUN : !ndp_instr_is(&p->instrs[i], kind))
        i++;
    return &p->instrs[i];
}

static void fields_of_call(const ndp_program *a, const ndp_program *b, ndp_call *c) {
    DIFFERS(c->kind, c->kind == NDP_CALL_WAIT ? NDP_CALL_BEGIN : NDP_CALL_WAIT);
    DIFFERS(c->op, c->op == &ndp_op_add ? &ndp_op_zero : &ndp_op_add);
    DIFFERS(c->attr.accumulate, !c->attr.accumulate);
    DIFFERS(c->attr.peer, 7);
    DIFFERS(c->attr.tag, c->attr.tag + 1);
    DIFFERS(c->attr.max_norm, 3.5);
    DIFFERS(c->channel, c->channel + 1);
    DIFFERS(c->in_place, !c->in_place);
    DIFFERS(c->partner, c->partner + 1);
    DIFFERS(c->pgrad, 3);
    DIFFERS(c->scratch, 2);
    DIFFERS(c->scratch_offset, 64);
    DIFFERS(c->n_in, c->n_in - 1);
    DIFFERS(c->n_out, c->n_out - 1);
    DIFFERS(c->in[0].base, c->in[0].base + 1);
    DIFFERS(c->in[0].offset, c->in[0].offset + 8);
    DIFFERS(c->in[0].view.rows, c->in[0].view.rows + 1);
    DIFFERS(c->in[0].view.cols, c->in[0].view.cols + 1);
    DIFFERS(c->in[0].view.ld, c->in[0].view.ld + 1);
    DIFFERS(c->in[0].view.dtype, c->in[0].view.dtype == NDP_I64 ? NDP_F64 : NDP_I64);
    DIFFERS(c->out[0].base, c->out[0].base + 1);
    DIFFERS(c->out[0].offset, c->out[0].offset + 8);
}

static void every_field_counts(void **state) {
    (void)state;
    pipeline_setup s, t;
    pipeline_begin(&s, NDP_PIPELINE_1F1B, 2, 1, 14);
    pipeline_begin(&t, NDP_PIPELINE_1F1B, 2, 1, 14);
    const ndp_program *a = s.programs[0], *b = t.programs[0];
    ndp_program *p = (ndp_program *)t.programs[0];
    ndp_instr *run = instr_of(b, true, NDP_CALL_KERNEL), *begin = instr_of(b, false, NDP_CALL_BEGIN);
    int graph = b->opts.model->units[run->unit].graph;
    ndp_list *list = (ndp_list *)&b->opts.units[graph].lists[run->phase];
    assert_int_equal(b->repeats.n, 1);
    fields_of_call(a, b, &begin->call);
    fields_of_call(a, b, &instr_of(b, false, NDP_CALL_KERNEL)->call);
    fields_of_call(a, b, &list->calls[0]);
    DIFFERS(list->work_bytes, list->work_bytes + 1);
    DIFFERS(list->n, list->n - 1);
    DIFFERS(begin->work, begin->work + 1);
    DIFFERS(begin->works.first, begin->works.first + 1);
    DIFFERS(begin->works.n, begin->works.n + 1);
    DIFFERS(begin->role, 5);
    DIFFERS(begin->what, "another");
    DIFFERS(run->code, NDP_DO_CALL);
    DIFFERS(run->buffer, 1);
    DIFFERS(run->micro_batch, 6);
    DIFFERS(run->unit, run->unit + 1);
    DIFFERS(run->phase, run->phase + 1);
    DIFFERS(run->entry, run->entry + 1);
    DIFFERS(run->accumulate, ~run->accumulate);
    DIFFERS(run->bases[0], run->bases[0] + 1);
    ndp_block *block = &p->blocks[p->n_blocks - 1];
    DIFFERS(block->class, block->class + 1);
    DIFFERS(block->region, block->region + 1);
    DIFFERS(block->persistent, !block->persistent);
    DIFFERS(block->bytes, block->bytes + 64);
    DIFFERS(block->offset, block->offset + 64);
    DIFFERS(block->life.first, block->life.first + 1);
    DIFFERS(block->life.last, block->life.last + 1);
    DIFFERS(block->life.gap, block->life.gap + 1);
    DIFFERS(block->life.gap_n, block->life.gap_n + 1);
    DIFFERS(block->ring.first, block->ring.first + 1);
    DIFFERS(block->ring.n, block->ring.n + 1);
    DIFFERS(p->repeats.items[0].first, p->repeats.items[0].first + 1);
    DIFFERS(p->repeats.items[0].n, p->repeats.items[0].n + 1);
    DIFFERS(p->repeats.items[0].times, p->repeats.items[0].times + 1);
    DIFFERS(p->repeats.items[0].micro_batches, 2);
    DIFFERS(p->repeats.n, 0);
    DIFFERS(p->n, p->n - 1);
    DIFFERS(p->n_blocks, p->n_blocks - 1);
    DIFFERS(p->n_works, p->n_works - 1);
    DIFFERS(p->first_update, p->first_update - 1);
    DIFFERS(p->bytes[NDP_REGION_ARENA], p->bytes[NDP_REGION_ARENA] + 1);
    pipeline_end(&s);
    pipeline_end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(roles_of_layouts), cmocka_unit_test(every_field_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
