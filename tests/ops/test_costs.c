/* What calls cost, exactly: operations and bytes of every op, worked out by hand from the shapes. The stage cut, the
 * simulator and every plan are sums of these numbers. An op of the list without a case fails. */
#include "check.h"
#include "shape_rule.h"

#define F(r, c)                                                                                                        \
    { .dtype = NDP_F32, .rows = r, .cols = c, .ld = c }
#define H(r, c)                                                                                                        \
    { .dtype = NDP_BF16, .rows = r, .cols = c, .ld = c }
#define I(r, c)                                                                                                        \
    { .dtype = NDP_I32, .rows = r, .cols = c, .ld = c }
#define L(r, c)                                                                                                        \
    { .dtype = NDP_I64, .rows = r, .cols = c, .ld = c }
#define B(r, c)                                                                                                        \
    { .dtype = NDP_U8, .rows = r, .cols = c, .ld = c }
#define D(r, c)                                                                                                        \
    { .dtype = NDP_F64, .rows = r, .cols = c, .ld = c }
#define NONE                                                                                                           \
    { .rows = 0 }
/* An output whose rows the caller gives. */
#define ROWS(r)                                                                                                        \
    { .dtype = NDP_F32, .rows = r }

/* `absent`: bit k for output k, which nothing reads. */
typedef struct cost_case {
    const ndp_op *op;
    ndp_op_attr attr;
    double flops, bytes;
    ndp_view in[NDP_OP_MAX_IN];
    ndp_view out[NDP_OP_MAX_OUT];
    unsigned absent;
} cost_case;

#define COST(name, operations, moved, ...)                                                                             \
    { .op = &ndp_op_##name, .flops = operations, .bytes = moved, __VA_ARGS__ }
/* Optimizers: weights, gradient, pieces, constants, clip, states. */
#define UPDATE(...)                                                                                                    \
    { F(1, 6), F(1, 6), NONE, D(1, 8), D(1, 1), __VA_ARGS__ }
#define ATTENTION                                                                                                      \
    { .heads = 2, .kv_heads = 1, .head_dim = 4 }
#define NARROW_VALUES                                                                                                  \
    { .heads = 2, .kv_heads = 1, .head_dim = 4, .v_dim = 2 }
#define LATENT                                                                                                         \
    { .heads = 2, .head_dim = 4, .rotary_dim = 1, .v_dim = 2 }
#define DELTA                                                                                                          \
    { .heads = 4, .kv_heads = 2, .head_dim = 4, .v_dim = 2 }
#define TWO_PIECES                                                                                                     \
    { .ranks = 2, .parts = 2, .place = 1, .ends = 2 }
#define DELTA_PIECES                                                                                                   \
    { .heads = 4, .kv_heads = 2, .head_dim = 4, .v_dim = 2, .ranks = 2, .parts = 2, .place = 1 }
#define WINDOW                                                                                                         \
    { .heads = 2, .kv_heads = 1, .head_dim = 4, .window = 4 }

static const cost_case cases[] = {
    /* Rows that are named are read and written: 3 x 4 x 4 bytes twice. */
    COST(embedding, 0, 96, .in = {I(3, 1), F(7, 4)}),
    /* 12 additions; dx is read, its rows of the table are read and written, and the 112 bytes of the table cleared. */
    COST(embedding_dw, 12, 144 + 112, .in = {I(3, 1), F(3, 4)}, .out = {ROWS(7)}),
    COST(embedding_dw, 12, 144, .in = {I(3, 1), F(3, 4)}, .attr = {.accumulate = true}, .out = {ROWS(7)}),
    /* Products: 3 x 4 x 5 multiply-adds. */
    COST(linear, 120, 4 * (12 + 20 + 5 + 15), .in = {F(3, 4), F(5, 4), F(1, 5)}),
    COST(linear, 120, 2 * (12 + 20 + 15), .in = {H(3, 4), H(5, 4), NONE}),
    COST(linear_dx, 120, 4 * (15 + 20 + 12), .in = {F(3, 5), F(5, 4), NONE}),
    COST(linear_dx, 120, 4 * (15 + 20 + 12 + 12), .in = {F(3, 5), F(5, 4), F(3, 4)}),
    COST(linear_dw, 120, 4 * (15 + 12 + 20), .in = {F(3, 5), F(3, 4)}),
    COST(stack_bias, 15, 4 * (15 + 10 + 3 + 15), .in = {F(3, 5), F(2, 5), I(3, 1)}, .attr = {.parts = 1}),
    COST(stack_bias_db, 15, 4 * (15 + 3 + 10), .in = {F(3, 5), I(3, 1)}, .attr = {.parts = 1}),
    COST(linear_db, 15, 4 * (15 + 5), .in = {F(3, 5)}),
    /* Two matrices of 5 x 4: the operations of 3 rows with one of them, and the bytes of both. */
    COST(linear_stack, 120, 4 * (12 + 40 + 3 + 15), .in = {F(3, 4), F(10, 4), I(3, 1)}),
    COST(linear_stack, 120, 2 * (12 + 40 + 15) + 4 * 3, .in = {H(3, 4), H(10, 4), I(3, 1)}),
    COST(linear_stack_dx, 120, 4 * (15 + 40 + 3 + 12), .in = {F(3, 5), F(10, 4), I(3, 1), NONE}),
    COST(linear_stack_dx, 120, 4 * (15 + 40 + 3 + 12 + 12), .in = {F(3, 5), F(10, 4), I(3, 1), F(3, 4)}),
    COST(linear_stack_dw, 120, 4 * (15 + 12 + 3 + 40), .in = {F(3, 5), F(3, 4), I(3, 1)}),
    /* Norms of 3 x 8: rms square, add, times rstd, times w; with two heads of 4 columns two rstd a row. */
    COST(rmsnorm, 4 * 24, 4 * (24 + 4 + 24 + 6), .in = {F(3, 8), F(1, 4)}),
    COST(rmsnorm_dx, 9 * 24, 4 * (24 + 24 + 4 + 6 + 24), .in = {F(3, 8), F(3, 8), F(1, 4), F(3, 2), NONE}),
    COST(rmsnorm_dw, 3 * 24, 4 * (24 + 24 + 6 + 4), .in = {F(3, 8), F(3, 8), F(3, 2)}, .out = {F(1, 4)}),
    COST(add_rmsnorm, 5 * 24, 4 * (4 * 24 + 8 + 3), .in = {F(3, 8), F(3, 8), F(1, 8)}),
    COST(layernorm, 7 * 24, 4 * (24 + 8 + 8 + 24 + 6), .in = {F(3, 8), F(1, 8), F(1, 8)}),
    COST(layernorm_dx, 12 * 24, 4 * (3 * 24 + 8 + 6), .in = {F(3, 8), F(3, 8), F(1, 8), F(3, 2), NONE}),
    COST(layernorm_dw, 4 * 24, 4 * (24 + 24 + 6 + 8), .in = {F(3, 8), F(3, 8), F(3, 2)}),
    COST(mean_squares, 2 * 24, 4 * (24 + 3), .in = {F(3, 8)}),
    COST(mean_squares_dx, 2 * 24, 4 * (3 + 24 + 24), .in = {F(3, 1), F(3, 8), NONE}),
    COST(norm_by, 2 * 24, 4 * (24 + 8 + 3 + 24 + 3), .in = {F(3, 8), F(1, 8), F(3, 1)}),
    COST(norm_by_dx, 5 * 24, 4 * (24 + 24 + 8 + 3 + 24 + 3), .in = {F(3, 8), F(3, 8), F(1, 8), F(3, 1)}),
    /* Of 5 x 4 weights of rank 2: two multiply-adds, and one for the square. The gradient reads three columns of four.
     */
    COST(dora_squares, 2 * 20 * 3, 4 * (20 + 8 + 10 + 5), .in = {F(5, 4), F(2, 4), F(5, 2)}),
    COST(dora, 12, 4 * (12 + 3 + 3 + 12), .in = {F(3, 4), F(1, 3), F(3, 1)}, .attr = {.first = 1}),
    COST(dora_dm, 2 * 9, 4 * (9 + 9 + 3 + 3), .in = {F(3, 4), F(3, 4), F(3, 1)}, .attr = {.first = 1}),
    /* 3 rows x 2 heads x 4 columns turn, three operations each, read and written; at 2 of 4 columns a half of that. */
    COST(rope, 72, 192, .in = {F(3, 10), I(3, 1), F(9, 4)}, .attr = {.heads = 1, .kv_heads = 1, .head_dim = 4}),
    COST(rope, 36, 96, .in = {F(3, 10), I(3, 1), F(9, 2)},
         .attr = {.heads = 1, .kv_heads = 1, .head_dim = 4, .rotary_dim = 2}),
    COST(latent_keys, 0, 4 * (30 + 3 + 24 + 12), .in = {F(3, 10), F(3, 1)}, .attr = LATENT),
    COST(latent_keys_bwd, 24, 4 * (24 + 12 + 30 + 3), .in = {F(3, 8), F(3, 4)}, .attr = LATENT),
    /* 12 activations: an exponential and a division are 10 each, the rest as written; tanh's polynomial 5 more. */
    COST(swiglu, 22 * 12, 4 * (24 + 12), .in = {F(3, 8)}),
    COST(swiglu_bwd, 28 * 12, 4 * (12 + 24 + 24), .in = {F(3, 4), F(3, 8)}),
    COST(swiglu_clipped, 26 * 12, 4 * (24 + 12), .in = {F(3, 8)}),
    COST(swiglu_clipped_bwd, 32 * 12, 4 * (12 + 24 + 24), .in = {F(3, 4), F(3, 8)}),
    COST(geglu, 27 * 12, 4 * (24 + 12), .in = {F(3, 8)}),
    COST(geglu_bwd, 36 * 12, 4 * (12 + 24 + 24), .in = {F(3, 4), F(3, 8)}),
    COST(gelu, 27 * 12, 4 * (12 + 12), .in = {F(3, 4)}),
    /* The polynomial of erf is 18, its exponential one more, in the backward two. */
    COST(gelu_erf, 34 * 12, 4 * (12 + 12), .in = {F(3, 4)}),
    COST(gelu_erf_bwd, 48 * 12, 4 * (12 + 12 + 12), .in = {F(3, 4), F(3, 4)}),
    COST(gelu_bwd, 36 * 12, 4 * (12 + 12 + 12), .in = {F(3, 4), F(3, 4)}),
    /* Three taps on 5 x 4. */
    COST(causal_conv, 120, 4 * (20 + 12 + 5 + 20), .in = {F(5, 4), F(3, 4), I(5, 1)}),
    COST(causal_conv_dx, 120, 4 * (20 + 12 + 5 + 20), .in = {F(5, 4), F(3, 4), I(5, 1), NONE}),
    COST(causal_conv_dw, 120, 4 * (20 + 20 + 5 + 12), .in = {F(5, 4), F(5, 4), I(5, 1)}, .out = {ROWS(3)}),
    /* And 25 for silu, or its slope; the backward has both the taps of u and those of the gradient. */
    COST(conv_silu, 20 * (6 + 25), 4 * (20 + 12 + 5 + 20), .in = {F(5, 4), F(4, 3), I(5, 1)}),
    COST(conv_silu_dx, 20 * (12 + 25), 4 * (20 + 20 + 12 + 5 + 20), .in = {F(5, 4), F(5, 4), F(4, 3), I(5, 1), NONE}),
    COST(conv_silu_dw, 20 * (12 + 25), 4 * (20 + 20 + 12 + 5 + 12), .in = {F(5, 4), F(5, 4), F(4, 3), I(5, 1)}),
    /* Two pieces of three rows, and three taps: of two rows of a piece each u, and half a pair of taps on average. */
    COST(conv_silu_dends, 2 * 2 * 4 * (9 + 25), 4 * (2 * 16 + 32 + 32),
         .in = {F(6, 4), F(6, 4), F(4, 3), I(6, 1), F(8, 4)}, .attr = TWO_PIECES),
    COST(piece_ends, 0, 4 * 2 * 16, .in = {F(6, 4)}, .attr = TWO_PIECES),
    COST(piece_ends_dx, 16, 4 * (16 + 24), .in = {F(4, 4), F(6, 4), NONE}, .attr = TWO_PIECES),
    COST(piece_ends_dx, 16, 4 * (16 + 24 + 24), .in = {F(4, 4), F(6, 4), F(6, 4)}, .attr = TWO_PIECES),
    COST(delta_decay, 24 * 12, 2 * (12 + 4 + 4) + 4 * 12, .in = {H(3, 4), H(1, 4), H(1, 4)}),
    COST(delta_decay_da, 25 * 12, 4 * 12 + 2 * (12 + 4 + 4 + 12), .in = {F(3, 4), H(3, 4), H(1, 4), H(1, 4)}),
    COST(delta_decay_dlog, 25 * 12, 4 * (12 + 12 + 4 + 4 + 4), .in = {F(3, 4), F(3, 4), F(1, 4), F(1, 4)}),
    COST(delta_decay_ddt, 25 * 12, 4 * (12 + 12 + 4 + 4 + 4), .in = {F(3, 4), F(3, 4), F(1, 4), F(1, 4)}),
    /* Three rows and four heads with states of 4 x 2: each row meets the state three times, or eight, two operations a
     * number. Triangles of 64 rows: two, or five, of 2 columns a head, two, or six, of 4 columns for two key heads. */
    COST(delta_rule, 3 * (4 * (6 * 8 + 2 * 64 * 2) + 2 * 2 * 64 * 4), 4 * (24 + 24 + 24 + 12 + 12 + 3 + 24),
         .in = {F(3, 8), F(3, 8), F(3, 8), F(3, 4), F(3, 4), I(3, 1)}, .attr = DELTA),
    COST(delta_rule_bwd, 3 * (4 * (16 * 8 + 5 * 64 * 2) + 2 * 6 * 64 * 4),
         4 * (24 + 24 + 24 + 24 + 12 + 12 + 3 + 24 + 24 + 24 + 12 + 12),
         .in = {F(3, 8), F(3, 8), F(3, 8), F(3, 8), F(3, 4), F(3, 4), I(3, 1)}, .attr = DELTA),
    /* States have 2 + 4 columns, and a row meets them twice; back it meets 2 columns three times. Composed are at most
     * three maps of four. */
    COST(delta_map, 6 * (4 * (4 * 24 + 64 * 6) + 2 * 64 * 4), 4 * (48 + 48 + 24 + 24 + 6 + 192),
         .in = {F(6, 8), F(6, 8), F(6, 4), F(6, 4), I(6, 1)}, .attr = DELTA_PIECES),
    COST(delta_map_back, 6 * (4 * (6 * 8 + 2 * 64 * 2) + 2 * 2 * 64 * 4), 4 * (48 + 48 + 48 + 24 + 24 + 6 + 64),
         .in = {F(6, 8), F(6, 8), F(6, 8), F(6, 4), F(6, 4), I(6, 1)}, .attr = DELTA_PIECES),
    COST(delta_states, 2 * 3 * 4 * 32, 4 * (64 * 6 + 64), .in = {F(64, 6)}, .attr = DELTA_PIECES),
    COST(gate_by, 22 * 12, 4 * (12 + 12 + 12), .in = {F(3, 4), F(3, 4)}),
    COST(gate_by_bwd, 28 * 12, 4 * (12 + 12 + 12 + 12 + 12), .in = {F(3, 4), F(3, 4), F(3, 4)}),
    COST(scale, 12, 96, .in = {F(3, 4)}),
    COST(scale_by, 12, 100, .in = {F(3, 4), F(1, 1)}),
    COST(cap, 20 * 12, 96, .in = {F(3, 4)}),
    COST(zero, 12, 96, .in = {F(3, 4)}),
    COST(add, 12, 144, .in = {F(3, 4), F(3, 4)}),
    COST(add_bias, 12, 4 * (12 + 4 + 12), .in = {F(3, 4), F(1, 4)}),
    /* Two columns of four. */
    COST(add_columns, 6, 3 * 24, .in = {F(3, 4), F(3, 2)}, .attr = {.first = 1}),
    COST(dropout, 32 * 12, 4 * (12 + 3 + 1 + 12), .in = {F(3, 4), I(3, 1), I(1, 1)}, .attr = {.drop = 0.1}),
    COST(copy, 0, 48 + 24, .in = {F(3, 4), NONE}, .attr = {.type = NDP_BF16}),
    /* Three queries at the end of five keys see 3, 4 and 5 of them, 12 pairs; with a window of 4: 11. A pair costs each
     * of 2 heads x 4 columns two multiply-adds; its backward five. */
    COST(attention, 4 * 12 * 8, 4 * (24 + 20 + 20 + 3 + 3 + 5 + 24 + 6),
         .in = {F(3, 8), F(5, 4), F(5, 4), I(3, 1), I(3, 1), I(5, 1)}, .attr = ATTENTION),
    COST(attention, 4 * 11 * 8, 4 * (24 + 20 + 20 + 3 + 3 + 5 + 24 + 6),
         .in = {F(3, 8), F(5, 4), F(5, 4), I(3, 1), I(3, 1), I(5, 1)}, .attr = WINDOW),
    COST(attention, 2 * 12 * 8 + 2 * 12 * 4, 4 * (24 + 20 + 10 + 3 + 3 + 5 + 12 + 6),
         .in = {F(3, 8), F(5, 4), F(5, 2), I(3, 1), I(3, 1), I(5, 1)}, .attr = NARROW_VALUES),
    COST(attention_bwd, 6 * 12 * 8 + 4 * 12 * 4, 4 * (12 + 24 + 20 + 10 + 12 + 6 + 3 + 3 + 5 + 24 + 20 + 10),
         .in = {F(3, 4), F(3, 8), F(5, 4), F(5, 2), F(3, 4), F(3, 2), I(3, 1), I(3, 1), I(5, 1)},
         .attr = NARROW_VALUES),
    COST(attention_bwd, 10 * 12 * 8, 4 * (3 * 24 + 20 + 20 + 6 + 3 + 3 + 5 + 24 + 20 + 20),
         .in = {F(3, 8), F(3, 8), F(5, 4), F(5, 4), F(3, 8), F(3, 2), I(3, 1), I(3, 1), I(5, 1)}, .attr = ATTENTION),
    COST(attention_bwd, 10 * 11 * 8, 4 * (3 * 24 + 20 + 20 + 6 + 3 + 3 + 5 + 24 + 20 + 20),
         .in = {F(3, 8), F(3, 8), F(5, 4), F(5, 4), F(3, 8), F(3, 2), I(3, 1), I(3, 1), I(5, 1)}, .attr = WINDOW),
    COST(attention_dsink, 2 * 24 + 12 * 6, 4 * (24 + 24 + 6 + 2 + 2), .in = {F(3, 8), F(3, 8), F(3, 2), F(1, 2)},
         .attr = ATTENTION),
    COST(attention_merge, 3 * 24, 4 * 3 * (24 + 6), .in = {F(3, 8), F(3, 2), F(3, 8), F(3, 2)}, .attr = ATTENTION),
    /* Copies; heads that several parts repeat are added up on the way back. */
    /* 3 x 70 values: 105 bytes of codes, 4 blocks, 2 numbers; or 210 codes and 3 numbers. */
    COST(unpack, 210, 105 + 4 + 8 + 2 * 210, .in = {B(1, 105), B(1, 4), F(1, 2)}, .out = {F(3, 70)},
         .attr = {.type = NDP_BF16}),
    COST(unpack, 210, 210 + 12 + 4 * 210, .in = {B(1, 210), F(1, 3), NONE}, .out = {F(3, 70)}),
    COST(unpack, 420, 2 * (105 + 4 + 8 + 2 * 210), .in = {B(2, 105), B(2, 4), F(2, 2)}, .out = {F(6, 70)},
         .attr = {.type = NDP_BF16}),
    /* Three rows to two of five experts each. Where rows are moved, six are read and six written, and the numbers of
     * choices; weights are multiplied, and given rows added. */
    COST(route, 12 * 15, 4 * (15 + 6 + 6 + 15), .in = {F(3, 5), NONE}, .attr = {.choices = 2}),
    COST(route, 12 * 15, 4 * (15 + 3 + 6 + 6 + 15), .in = {F(3, 5), I(3, 1)}, .attr = {.choices = 2}),
    COST(route_dx, 13 * 15, 4 * (6 + 15 + 6 + 15), .in = {F(3, 2), F(3, 5), I(3, 2), NONE}),
    COST(route_dx, 13 * 15, 4 * (6 + 15 + 6 + 15 + 15), .in = {F(3, 2), F(3, 5), I(3, 2), F(3, 5)}),
    COST(choice_counts, 6, 4 * (6 + 3) + 8 * 10, .in = {I(3, 2), I(3, 1)}, .attr = {.parts = 2, .experts = 5}),
    COST(choice_loads, 6, 4 * 6 + 8 * 5, .in = {I(3, 2)}, .attr = {.experts = 5}),
    COST(router_bias_step, 10, 4 * (5 + 5) + 8 * (5 + 1), .in = {F(1, 5), D(1, 5), D(1, 1)}, .attr = {.scale = 1}),
    COST(router_losses_dx, 26 * 15, 4 * (15 + 3 + 15) + 8 * (10 + 1 + 6),
         .in = {F(3, 5),
                {.rows = 2, .cols = 5, .ld = 5, .dtype = NDP_F64},
                I(3, 1),
                {.rows = 1, .cols = 1, .ld = 1, .dtype = NDP_F64},
                NONE},
         .attr = {.parts = 1}),
    COST(route_order, 4 * 6, 4 * (6 + 6 + 6 + 6), .in = {I(3, 2)}, .attr = {.experts = 5}),
    COST(route_exchange, 8 * 24, 4 * (24 + 8 + 8 + 24 + 9) + 8, .in = {I(12, 2), NONE},
         .attr = {.experts = 5, .ranks = 3}),
    COST(take_rows, 0, 4 * (24 + 24 + 6), .in = {F(3, 4), I(6, 1), I(3, 2), NONE}),
    COST(take_rows, 24, 2 * (24 + 24) + 4 * (6 + 6), .in = {H(3, 4), I(6, 1), I(3, 2), F(3, 2)}),
    COST(give_rows, 24, 4 * (24 + 6 + 12), .in = {F(6, 4), I(6, 1), I(3, 2), NONE, NONE}),
    COST(give_rows, 48 + 12, 2 * 24 + 4 * (6 + 6 + 12 + 12), .in = {H(6, 4), I(6, 1), I(3, 2), F(3, 2), F(3, 4)},
         .attr = {.wide_grad = true}),
    COST(weigh_rows, 24, 4 * (24 + 6 + 6 + 6 + 24), .in = {F(6, 4), I(6, 1), I(3, 2), F(3, 2)}),
    COST(weigh_rows_dw, 48, 4 * (24 + 24 + 6 + 6 + 6), .in = {F(6, 4), F(6, 4), I(3, 2), F(3, 2)}),
    COST(give_rows_dw, 48, 4 * (12 + 24 + 6 + 6), .in = {F(3, 4), F(6, 4), I(3, 2)}),
    /* Three gates, an exponential and a division each. */
    COST(gate_rows, 12 + 3 * 20, 4 * (12 + 3 + 12), .in = {F(3, 4), F(3, 1)}),
    COST(gate_rows_dg, 2 * 12 + 3 * 20, 2 * (12 + 12) + 4 * (3 + 3), .in = {H(3, 4), H(3, 4), F(3, 1)}),
    COST(heads_split, 0, 4 * (24 + 24), .in = {F(3, 8)}, .attr = {.heads = 2, .head_dim = 4, .parts = 2}),
    COST(heads_split, 0, 4 * (12 + 24), .in = {F(3, 4)}, .attr = {.heads = 1, .head_dim = 4, .parts = 2}),
    COST(heads_merge, 0, 4 * (24 + 24), .in = {F(6, 4)}, .attr = {.heads = 2, .head_dim = 4, .parts = 2}),
    COST(heads_merge, 12, 4 * (24 + 12), .in = {F(6, 4)}, .attr = {.heads = 1, .head_dim = 4, .parts = 2}),
    /* 3 x 7 logits: 4 multiply-adds each for every product, 14 for softmax and loss. The weights are read once a
     * product, logits written and read in fp32, once more a product; x is read twice. */
    COST(xent, 21 * (8 + 14), 112 + 21 * 4 * 3 + 96, .in = {F(3, 4), F(7, 4), I(3, 1), D(1, 1)}, .attr = {.vocab = 7}),
    COST(xent, 21 * (24 + 14), 3 * 112 + 21 * 4 * 5 + 96, .in = {F(3, 4), F(7, 4), I(3, 1), D(1, 1)},
         .attr = {.vocab = 7, .train = true}),
    COST(xent_logits, 21 * (8 + 7), 4 * (12 + 28 + 3 + 21 + 9) + 84, .in = {F(3, 4), F(7, 4), I(3, 1)},
         .attr = {.vocab = 7}),
    COST(xent_grad, 21 * (16 + 7), 4 * (21 + 18 + 12 + 28 + 3) + 8 + 4 * (3 + 12 + 28) + 2 * 84,
         .in = {F(3, 7), F(6, 3), F(3, 4), F(7, 4), I(3, 1), D(1, 1)}, .attr = {.vocab = 7, .parts = 2, .train = true}),
    COST(row_slopes, 14 * 24, 4 * (12 + 24 + 3) + 8 + 4 * (3 + 12) + 16 * 24,
         .in = {F(3, 4), F(6, 4), I(3, 1), D(1, 1)}, .attr = {.vocab = 7, .parts = 2}),
    COST(kv_append, 0, 64, .in = {F(9, 4), F(2, 4), I(2, 1)}),
    COST(conv_step, (2 * 3 + 20) * 8, 4 * (2 * 24 + 2 * 8 + 12 + 4),
         .in = {F(3, 8), F(2, 4), F(4, 3), I(2, 1), I(2, 1)}, .attr = {.capacity = 5}),
    /* A row reads the state of its heads, 4 of 6 x 2 numbers, and writes it. */
    COST(delta_step, 7 * 48 * 3, 4 * 2 * 48 * 3,
         .in = {F(2, 48), F(3, 12), F(3, 12), F(3, 8), F(3, 4), F(3, 4), I(3, 1), I(3, 1)},
         .attr = {.heads = 4, .kv_heads = 2, .head_dim = 6, .v_dim = 2, .capacity = 5}),
    COST(reduce_sum, 5, 28, .in = {F(5, 1)}),
    COST(reduce_sum, 15, 5 * 24 + 24, .in = {D(5, 3)}),
    COST(row_score, 3, 4 * (3 + 3), .in = {F(3, 1)}),
    COST(row_score, 3, 4 * 3 * 3 + 8 * 3, .in = {F(3, 1), D(3, 1)}, .attr = {.train = true}),
    COST(document_sums, 6, 4 * (3 + 3) + 32, .in = {F(3, 1), I(3, 1)}, .attr = {.parts = 2}),
    COST(pair_loss, 800, 8 * (8 + 4 + 4 + 12), .in = {D(4, 2), D(4, 1)}),
    COST(pair_rows, 30, 4 * (3 + 3) + 8 * (4 + 2 + 6 + 1 + 1 + 3 + 21),
         .in = {I(3, 1), F(3, 1), D(2, 2), D(2, 1), D(1, 6), D(1, 1), D(1, 1)}),
    COST(count_valid, 10, 48, .in = {I(2, 5)}),
    COST(loss_scale, 1, 16, .in = {L(1, 1)}),
    COST(square_sum, 2 * 6, 24 + 8, .in = {F(1, 6), NONE}),
    COST(clip_factor, 2, 4 * 8, .in = {D(1, 1), D(1, 1)}),
    /* 6 elements: weights read and written, gradient, 8 constants and the clip in fp64, states read and written; the
     * copy in bf16. */
    COST(adamw, 72, 24 * 7 + 72, .in = UPDATE(F(1, 6), F(1, 6)), .absent = 2),
    COST(adamw, 72, 24 * 7 + 72 + 12, .in = UPDATE(F(1, 6), F(1, 6))),
    /* Two codes an element, two scales. */
    COST(adamw8bit, 50 * 6, 24 * 3 + 72 + 4 * 6 + 4 * 4 * 2, .in = UPDATE(B(1, 6), B(1, 6), F(1, 2), F(1, 2)),
         .absent = 2),
    COST(sgd, 72, 24 * 5 + 72, .in = UPDATE(F(1, 6)), .absent = 2),
    COST(sgd, 72, 24 * 3 + 72, .in = UPDATE(NONE), .absent = 2),
    COST(lion, 72, 24 * 5 + 72, .in = UPDATE(F(1, 6)), .absent = 2),
    COST(muon, 72, 24 * 3 + 72, .in = UPDATE(NONE), .absent = 2),
    COST(muon_momentum, 72, 24 * 5 + 72, .in = UPDATE(F(1, 6)), .absent = 2),
    /* Five steps: two products with the matrix, 3 x 3 x 5 multiply-adds each, and one of 3 x 3 x 3. */
    COST(newton_schulz, 5 * 2 * (45 + 45 + 27), 17 * 60, .in = {F(3, 5)}),
    COST(newton_schulz, 5 * 2 * (45 + 45 + 27), 17 * 60, .in = {F(5, 3)}),
    /* Communication: what this rank hands in. */
    COST(all_gather, 0, 48, .in = {F(3, 4)}, .attr = {.ranks = 2}),
    COST(reduce_scatter, 0, 96, .in = {F(6, 4)}, .attr = {.ranks = 2}),
    COST(all_reduce, 0, 48, .in = {F(3, 4)}, .attr = {.ranks = 2}),
    COST(all_to_all, 0, 96, .in = {F(6, 4)}, .attr = {.ranks = 2}),
    COST(all_to_all_rows, 0, 5 * 4 * 4, /* the average */
         .in = {F(6, 4), I(2, 2)}, .attr = {.ranks = 2, .go = 6, .come = 9, .mean = 5}),
    COST(shift, 0, 48, .in = {F(3, 4)}, .attr = {.ranks = 2}),
    COST(send, 0, 48, .in = {F(3, 4)}, .attr = {.ranks = 2}),
    COST(recv, 0, 48, .in = {F(3, 4)}, .attr = {.ranks = 2}),
};

static void exact_costs(void **state) {
    (void)state;
    int wrong = 0;
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        const cost_case *k = &cases[i];
        const ndp_op_attr given = with_others(k->op, &k->attr, 0);
        ndp_op_call c = {.op = k->op, .attr = &given};
        double flops = -1, bytes = -1;
        memcpy(c.in, k->in, sizeof c.in);
        memcpy(c.out, k->out, sizeof c.out);
        CHECK_OK(k->op->shape(&c));
        for (int o = 0; o < k->op->n_out; o++)
            if (k->absent >> o & 1)
                c.out[o] = (ndp_view){0};
        ndp_op_cost(&c, &flops, &bytes);
        if (flops != k->flops || bytes != k->bytes)
            print_error("case %d, %s: %g operations and %g bytes, expected %g and %g\n", i, k->op->name, flops, bytes,
                        k->flops, k->bytes),
                wrong++;
    }
    assert_int_equal(wrong, 0);
}

/* Marks run nothing. */
static void every_op_has_a_case(void **state) {
    (void)state;
    bool has[NDP_OP_COUNT] = {false};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        has[cases[i].op->id] = true;
    for (int i = 0; i < NDP_OP_COUNT; i++)
        if (!has[i] && ndp_op_kinds[i] != NDP_KIND_MARK)
            fail_msg("%s has no case: add one to tests/ops/test_costs.c", ndp_all_ops[i]->name);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exact_costs), cmocka_unit_test(every_op_has_a_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
