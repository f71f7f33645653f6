/* ndp_program_order, second rule: the programs of all schedules and shards pass; each fails when one first write of a
 * gradient is left out, at the call that reads it. Among these writes are the zeros of a tied buffer's segment that
 * only the other stage writes: a program without them adds the gradient of the step before. */
#include "step/stages.h"

static const char gpt2[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_layer\": 2, \"n_embd\": 12, "
                           "\"n_head\": 4, \"n_inner\": 17, \"n_positions\": 16, \"initializer_range\": 0.3}";

typedef struct removal {
    int zeros, others;
} removal;

static bool of_gradients(const ndp_program *p, int block) {
    return block != NDP_NONE && p->blocks[block].class == NDP_MEM_GRADIENTS;
}

/* Leaves the call out; with `refused`, the checker must say so, naming `tensor`. */
static void leave_out(const ndp_program *p, ndp_call *c, const char *tensor) {
    ndp_call was = *c;
    c->kind = NDP_CALL_KERNEL, c->n_in = c->n_out = 0;
    CHECK_FAILS(ndp_program_order(p), NDP_EBUG, "nothing in this step has written");
    assert_non_null(strstr(ndp_error_message(), tensor));
    *c = was;
}

/* The zeros of gradients, at the level of the program. */
static void leave_out_zeros(const ndp_program *p, removal *r) {
    for (int i = 0; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        if (in->code != NDP_DO_CALL || in->call.op != &ndp_op_zero || !of_gradients(p, in->call.out[0].base))
            continue;
        assert_string_equal(in->what, "transformer.wpe.weight");
        leave_out(p, &in->call, in->what);
        r->zeros++;
    }
}

/* Calls of unit lists that write a parameter gradient, and of reduce_scatter, which writes an owner's slice. */
static void leave_out_others(const ndp_program *p, removal *r) {
    for (int i = 0; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        const ndp_list *list = in->code == NDP_DO_RUN ? ndp_program_list(p, in) : NULL;
        for (int k = 0; list && k < list->n; k++)
            if (list->calls[k].pgrad != NDP_NONE && !(in->accumulate >> list->calls[k].pgrad & 1u))
                leave_out(p, &list->calls[k], "."), r->others++;
        bool scatters = ndp_instr_is(in, NDP_CALL_BEGIN) && in->call.op == &ndp_op_reduce_scatter;
        if (scatters && !in->call.attr.accumulate && p->owned[in->buffer].n_pieces > 0) /* else padding alone */
            leave_out(p, &in->call, "."), r->others++;
    }
}

/* How many ranks have the head of a tied table without its embedding: each zeroes the positions. */
static int heads_alone(const staged *s) {
    return s->pipeline.rank_of[0] != s->pipeline.rank_of[s->pipeline.stages - 1];
}

static void every_first_write_is_needed(void **state) {
    (void)state;
    removal all = {0};
    for (int kind = NDP_PIPELINE_GPIPE; kind <= NDP_PIPELINE_DUALPIPEV; kind++)
        for (int i = 0; i < 4; i++) {
            const staged_way w = {.kind = (ndp_pipeline_kind)kind,
                                  .pp = 2,
                                  .chunks = ndp_pipeline_table[kind].fewest,
                                  .shard = 1 + i % 2,
                                  .micro_batches = 3,
                                  .tied = true,
                                  .config = i / 2 ? gpt2 : NULL};
            staged s;
            removal r = {0};
            staged_plan(&s, &w, NULL);
            for (int rank = 0; rank < s.ranks; rank++) {
                CHECK_OK(ndp_program_order(s.programs[rank]));
                leave_out_zeros(s.programs[rank], &r);
                leave_out_others(s.programs[rank], &r);
                CHECK_OK(ndp_program_order(s.programs[rank]));
            }
            assert_int_equal(r.zeros, w.config ? heads_alone(&s) * w.shard : 0);
            all.zeros += r.zeros, all.others += r.others;
            staged_release(&s);
        }
    printf("  left out and found: %d zeros, %d other first writes\n", all.zeros, all.others);
    assert_true(all.zeros > 0 && all.others > 0);
}

/* A gradient that is added to what is not there. */
static void adding_reads(void **state) {
    (void)state;
    const staged_way w = {.kind = NDP_PIPELINE_1F1B, .pp = 2, .chunks = 1, .shard = 1, .micro_batches = 2};
    staged s;
    staged_plan(&s, &w, NULL);
    const ndp_program *p = s.programs[0];
    int i = 0;
    while (p->instrs[i].code != NDP_DO_RUN || p->instrs[i].phase != NDP_BACKWARD_WEIGHT)
        i++;
    uint32_t was = p->instrs[i].accumulate;
    assert_int_equal(was, 0);
    p->instrs[i].accumulate = 1;
    CHECK_FAILS(ndp_program_order(p), NDP_EBUG, "nothing in this step has written from byte 0 on");
    p->instrs[i].accumulate = was;
    staged_release(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_first_write_is_needed), cmocka_unit_test(adding_reads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
