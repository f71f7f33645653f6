/* Two copies of a body are folded only if nothing differs but their micro-batches: any other field that is changed in
 * the second one is seen. */
#include "step/pipelines.h"
#include "step/program_parts.h"

/* A step of five micro-batches in order on two ranks of dp_shard, each listed. Micro-batches 2 and 3 are the copies. */
typedef struct listed {
    pipeline_setup s;
    ndp_program *p;
    int first, n;
} listed;

static int first_of(const ndp_program *p, int micro_batch) {
    int i = 0;
    while (p->instrs[i].code != NDP_DO_RUN || p->instrs[i].micro_batch != micro_batch)
        i++;
    return i;
}

static void begin(listed *l) {
    ndp_model_opts mo = tiny_opts(NDP_F32, 24);
    ndp_facts f = tiny_facts(false);
    *l = (listed){.s = {.fold = NDP_FOLD_NEVER}};
    CHECK_OK(ndp_pipeline_make(NDP_PIPELINE_1F1B, 1, 1, 5, &l->s.table));
    CHECK_OK(ndp_decoder_build(&f, &mo, &l->s.model));
    pipeline_cut(&l->s);
    pipeline_take(&l->s, 1.0);
    l->s.opts.pipeline = NULL;
    l->s.opts.step.stages = (ndp_stages){0};
    l->s.opts.step.reduce_once = false;
    l->s.opts.step.reshard = true;
    l->s.layout.size[NDP_DP_SHARD] = 2;
    pipeline_engines(&l->s);
    l->p = (ndp_program *)l->s.programs[0];
    l->first = first_of(l->p, 2);
    l->n = first_of(l->p, 3) - l->first;
}

static bool folds(listed *l) {
    bool folded;
    CHECK_OK(ndp_program_fold(l->p, l->first, l->n, 2, 1, &folded));
    return folded;
}

/* The n-th instruction of body' that is a RUN, or a call of that kind. */
static ndp_instr *instr_of(const listed *l, bool run, ndp_call_kind kind, int n) {
    ndp_instr *in = &l->p->instrs[l->first + l->n], *end = in + l->n;
    for (; in < end; in++)
        if ((run ? in->code == NDP_DO_RUN : ndp_instr_is(in, kind)) && n-- == 0)
            return in;
    fail_msg("body' has no such instruction");
    return in;
}

#define REFUSED(kind, change)                                                                                          \
    do {                                                                                                               \
        listed l;                                                                                                      \
        begin(&l);                                                                                                     \
        ndp_instr *in = instr_of(&l, kind);                                                                            \
        change;                                                                                                        \
        if (folds(&l))                                                                                                 \
            fail_msg("folded in spite of %s", #change);                                                                \
        pipeline_end(&l.s);                                                                                            \
    } while (0)
#define RUN true, NDP_CALL_KERNEL, 0
#define BEGIN false, NDP_CALL_BEGIN, 0
#define WAIT false, NDP_CALL_WAIT, 0

/* Another block that lives as long as the program. */
static int another(const ndp_program *p, int block) {
    int i = 0;
    while (!p->blocks[i].persistent || i == block)
        i++;
    return i;
}

static void alike_copies_fold(void **state) {
    (void)state;
    listed l;
    begin(&l);
    assert_true(folds(&l));
    assert_int_equal(l.p->repeats.n, 1);
    pipeline_end(&l.s);
}

/* Blocks after the bodies have other numbers then, wherever they are named. */
static void scratch_is_renamed(void **state) {
    (void)state;
    listed l;
    begin(&l);
    ndp_instr *in = &l.p->instrs[l.first + 2 * l.n];
    while (!ndp_instr_is(in, NDP_CALL_BEGIN) || l.p->blocks[in->call.in[0].base].persistent)
        in++;
    int was = in->call.scratch = in->call.in[0].base, at = (int)(in - l.p->instrs);
    assert_true(folds(&l));
    in = &l.p->instrs[at - l.n];
    assert_int_equal(in->call.scratch, in->call.in[0].base);
    assert_int_not_equal(in->call.scratch, was);
    pipeline_end(&l.s);
}

static void runs_that_differ(void **state) {
    (void)state;
    REFUSED(RUN, in->unit++);
    REFUSED(RUN, in->phase = NDP_FORWARD_DROP);
    REFUSED(RUN, in->accumulate ^= 1);
    REFUSED(RUN, in->micro_batch++);
    REFUSED(RUN, in->buffer = 1);
    REFUSED(RUN, in->what = "another");
    REFUSED(RUN, in->code = NDP_DO_CALL);
    REFUSED(RUN, in->bases[NDP_BASE_WORK] = another(l.p, NDP_NONE));
    for (int n = 0; n < 6; n++) /* a block of the micro-batch before, or none */
        for (int base = 0; base < NDP_BASE_WORK; base++) {
            listed l;
            begin(&l);
            ndp_instr *in = instr_of(&l, true, NDP_CALL_KERNEL, n);
            int *block = &in->bases[base], before = (in - l.n)->bases[base];
            if (*block != NDP_NONE) {
                *block = n % 2 ? before : NDP_NONE;
                assert_false(folds(&l));
            }
            pipeline_end(&l.s);
        }
}

static void calls_that_differ(void **state) {
    (void)state;
    REFUSED(BEGIN, in->buffer++);
    REFUSED(BEGIN, in->what = "another");
    REFUSED(BEGIN, in->role = 3);
    REFUSED(BEGIN, in->call.op = &ndp_op_all_reduce);
    REFUSED(BEGIN, in->call.channel++);
    REFUSED(BEGIN, in->call.in_place = true);
    REFUSED(BEGIN, in->call.attr.accumulate = !in->call.attr.accumulate);
    REFUSED(BEGIN, in->call.attr.tag = 1);
    REFUSED(BEGIN, in->call.in[0].offset += 64);
    REFUSED(BEGIN, in->call.in[0].base = another(l.p, in->call.in[0].base));
    REFUSED(BEGIN, in->call.in[0].base = l.p->owned[0].state[0].block); /* which no copy names */
    REFUSED(BEGIN, in->call.out[0].base = another(l.p, in->call.out[0].base));
    REFUSED(BEGIN, in->call.in[0].view.cols--);
    REFUSED(BEGIN, in->call.scratch = 0);
    REFUSED(WAIT, in->work = instr_of(&l, false, NDP_CALL_WAIT, 1)->work);
    REFUSED(WAIT, in->call.kind = NDP_CALL_BEGIN);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(alike_copies_fold), cmocka_unit_test(scratch_is_renamed),
                                       cmocka_unit_test(runs_that_differ), cmocka_unit_test(calls_that_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
