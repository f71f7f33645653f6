/* Ops: the vocabulary of unit graphs. An op is one const table of rules: shape, backward, cost. Its kernels are
 * the devices' (device/device.h): `ref` in ops/ref/, `cpu` in ops/cpu/, a table each, made from the list below.
 *
 * Every operand is a matrix (tensor/view.h). B batch, S sequence, T = B x S local rows (tokens), C hidden, H heads,
 * KV kv heads, D head dim, F ffn, V vocabulary. No broadcasting, no control flow; extents (document starts, positions)
 * are integer operands. Kernels allocate nothing: they get scratch memory, whose size is known beforehand.
 *
 * `ref` kernels are plain C loops over ndp_view_get/set, in fp64, for any storage type, on one thread: the reference
 * that all others are tested against. `cpu` kernels are vectorised and threaded (exec->threads, OpenMP), for fp32 and
 * bf16 storage, and compute and accumulate in fp32. The result of a kernel does not depend on the number of threads.
 *
 * Layouts differ in how they split sums: over k of a product, over keys, over rows. With NDP_SUMS_SPLIT the cpu kernels
 * of one rank split all of these as ranks would: the same types, rounded as often, in another order. The results differ
 * by that alone, and the bounds on layouts are measured by it (verify/outcome.h). Each of the NDP_SPLITS places to
 * split at rounds other elements to other values. States that are codes then have larger scales, and so other codes, as
 * they have in the other blocks of a rank of the tensor axis.
 */
#ifndef NDP_OPS_OP_H
#define NDP_OPS_OP_H

#include "base/text.h"
#include "device/device.h"
#include "tensor/view.h"

/* In place of a label: the head says which id has the largest logit; or the row has no label, but values (xent, below).
 */
enum { NDP_LABEL_BEST = INT32_MAX, NDP_LABEL_NONE = INT32_MAX - 1 };

enum { NDP_OP_MAX_IN = 9, NDP_OP_MAX_OUT = 5, NDP_SPLITS = 6 };

/* Rows that conv_silu can reach: the row itself and those before it. */
enum { NDP_MAX_TAPS = 8 };

typedef struct ndp_op ndp_op;

/* What an op does between ranks: nothing, or one operation of a communicator, which the executor begins and waits for.
 * Its operands are contiguous (ld == cols). */
typedef enum ndp_collective {
    NDP_LOCAL,
    NDP_ALL_GATHER,
    NDP_REDUCE_SCATTER,
    NDP_ALL_REDUCE,
    NDP_ALL_TO_ALL,
    NDP_SHIFT,
    NDP_SEND, /* messages, to and from attr.peer */
    NDP_RECV,
    NDP_COLLECTIVES
} ndp_collective;

/* clang-format off */
/* The numbers of a call that are not tensors: X(type, name). An op lists those that it, or its backward, reads
 * (ndp_op.reads); all others are 0 in its calls. */
#define NDP_OP_ATTRS(X) \
    X(int, heads) \
    X(int, kv_heads) \
    X(int, head_dim) \
    X(int, v_dim)          /* attention, delta_rule: of a head's values and results; 0: head_dim */ \
    X(int, rotary_dim)     /* rope: the columns of each head that turn, behind `skipped`; 0: all. latent_keys: those \
                              that all heads share, the last */ \
    X(int, skipped)        /* rope: the first columns of each head, which do not turn */ \
    X(bool, neighbours)    /* rope: neighbouring columns turn together, not those half of them apart */ \
    X(int, window)         /* attention: a query sees this many latest keys, itself included; 0: all */ \
    X(double, scale)       /* attention: on q.k; scale: on x; mean_squares: on the sum; dora_squares: on b a; pair_loss: \
                              beta; pair_rows: on the nll; clip_factor: on the gradient; route: on weights, 0: none; \
                              router_bias_step: the rate; xent*: on the entropy of a token's weight; \
                              swiglu_clipped: on the gate in the sigmoid */ \
    X(double, cap)         /* attention: on scores, cap, xent*: on logits: c tanh(x / c); 0: none; swiglu_clipped: \
                              the limit */ \
    X(double, eps)         /* norms */ \
    X(double, max_norm)    /* clip_factor: of the gradient; 0: no clipping */ \
    X(double, drop)        /* dropout: the share of elements that become 0 */ \
    X(bool, inverse)       /* rope: rotate back; all_to_all_rows: rows go back */ \
    X(bool, train)         /* xent, xent_grad, row_score: also make gradients; marks: the backward starts here */ \
    X(int64_t, vocab)      /* xent*, row_*: real columns; the rest is padding */ \
    X(int, unit_offset)    /* rmsnorm*, add_rmsnorm, norm_by*: weight is (1 + w) when 1 */ \
    X(bool, values)        /* xent*: also the entropy and the best id of each row, without train */ \
    X(int, parts)          /* heads_*: cuts of the heads; xent_grad: slices of the vocabulary; document_sums: \
                              documents; choice_counts: samples; router_losses, stack_bias*: ranks with the same rows; \
                              row_slopes: slices of the vocabulary; ops of pieces of rows: pieces of a rank */ \
    X(int64_t, first)      /* embedding*, xent*: the id that row 0 of the table stands for; heads_*: the first part; \
                              add_columns, dora*: the first column; attention: the sink of the first head; \
                              dropout: the model's column that column 0 is; \
                              unpack: the number of the first block in the whole tensor; \
                              route_order: the first expert; route_exchange: this rank's place in the group; \
                              router_bias_step: the expert of the first element; \
                              own_rows: the first row, all_gather with `alike`: of this rank */ \
    X(bool, alike)         /* all_gather: all ranks have the same gradient, and each takes its rows of it */ \
    X(int64_t, row_blocks) /* unpack: from the first block of a row to that of the next one; 0: rows are whole, and \
                              blocks continue from one to the next */ \
    X(int64_t, row_group)  /* unpack: so many rows count as one there; 0: each */ \
    X(bool, wide_grad)     /* linear, linear_stack, take_rows, xent_grad: dx, attention: dk and dv, give_rows: x, \
                              conv_silu, piece_ends: dx, delta_rule: db, \
                              latent_keys: dshared are stored wide (ndp_wide); collectives, heads_*: the gradient \
                              arrives wide, and its sum is stored as `type` */ \
    X(ndp_dtype, type)     /* copy, unpack: of the output; see wide_grad */ \
    X(int, all_parts)      /* heads_*: parts of all ranks with these heads; `parts` of them from `first` on are cut here */ \
    X(int, group)          /* collectives: an ndp_group_kind */ \
    X(int, ranks)          /* of that group; route_exchange: that have the experts; ops of pieces of rows: see \
                              ops/row_pieces.h */ \
    X(int, place)          /* the same: this rank among them */ \
    X(int, ends)           /* piece_ends: rows of a piece */ \
    X(int64_t, go)         /* all_to_all_rows: rows of x, the most that go, */ \
    X(int64_t, come)       /* and rows of y, the most that come; */ \
    X(int64_t, mean)       /* all_to_all_rows: how many go on average, linear_stack*: how many rows have an expert \
                              here on average, 0: all; for costs */ \
    X(int, peer)           /* send, recv: the other rank's place in the group */ \
    X(int, tag)            /* send, recv: of the message; dropout: which one of the unit */ \
    X(int, mask)           /* count_valid: bits that a number must have to count */ \
    X(int, loss)           /* pair_loss: an ndp_preference_kind; xent*, with train: an ndp_token_weight */ \
    X(double, gamma)       /* pair_loss; xent*: the exponent of such a weight */ \
    X(double, center)      /* pair_loss: of the squared sum of two rewards */ \
    X(double, label_smoothing) \
    X(double, desirable_weight) \
    X(double, undesirable_weight) \
    X(int, choices)        /* route: experts of a row; xent*: largest logits that a token's weight is made of */ \
    X(int, experts)        /* route_order: of this rank, from attr.first on; route_exchange: of all ranks */ \
    X(int64_t, capacity)       /* route_exchange: choices of a rank's experts that a round takes, at least K; \
                              route_order: sorted rows; 0: all. conv_step, delta_step: rows of a text */ \
    X(bool, renormalise)   /* route: a row's weights are divided by their sum */ \
    X(bool, sigmoid)       /* route: experts count by the sigmoids of their logits, not by the softmax; gate_by: the \
                              gate passes by its sigmoid, not its silu */ \
    X(int, groups)         /* route, with sigmoid: of experts, equal ones; 0: one */ \
    X(int, open_groups)    /* route: a row chooses from so many of them; */ \
    X(int, group_best)     /* route: those with the largest sums of so many best experts */ \
    X(bool, spectral)      /* newton_schulz: the form of the optimizer muon_spectral */ \
    X(double, balance)     /* router_losses: the coefficient of each loss */ \
    X(double, z_loss)
/* clang-format on */

#define NDP_ATTR_FIELD(type, name) type name;
typedef struct ndp_op_attr {
    bool accumulate; /* of any op: outputs that are sums: += instead of = (set by the program, not the model) */
    NDP_OP_ATTRS(NDP_ATTR_FIELD)
} ndp_op_attr;
#undef NDP_ATTR_FIELD

/* NDP_READS_<name>: a bit of ndp_op.reads. */
#define NDP_ATTR_PLACE(type, name) NDP_ATTR_##name,
#define NDP_ATTR_BIT(type, name) NDP_READS_##name = 1ull << NDP_ATTR_##name,
enum { NDP_OP_ATTRS(NDP_ATTR_PLACE) };
enum { NDP_OP_ATTRS(NDP_ATTR_BIT) };
#undef NDP_ATTR_PLACE
#undef NDP_ATTR_BIT

/* Columns of a head's values, and of what attention makes of it. */
static inline int ndp_v_dim(const ndp_op_attr *a) { return a->v_dim ? a->v_dim : a->head_dim; }

/* One call of an op. While a program is lowered the views have no data: they are the shapes. */
typedef struct ndp_op_call {
    const ndp_op *op;
    const ndp_op_attr *attr;
    const ndp_exec *exec;
    ndp_queue *queue;             /* of exec->device */
    ndp_view in[NDP_OP_MAX_IN];   /* data == NULL: absent optional operand */
    ndp_view out[NDP_OP_MAX_OUT]; /* likewise: an output that nothing reads */
    void *scratch;                /* as many bytes as the kernel's scratch() returns, 64-byte aligned */
    void *plan;                   /* what the kernel's prepare() made, or NULL */
} ndp_op_call;

/* The place to split sums at, 1 .. NDP_SPLITS; 0: sums are not split. */
static inline int ndp_split_place(const ndp_exec *exec) { return exec->sums == NDP_SUMS_SPLIT ? exec->split_place : 0; }

/* Where a sum of n terms is split in two; n: it is not. Before half, where a library may split it by itself. */
static inline int64_t ndp_split_at(int64_t n, int place) {
    int64_t at = n * place / (2 * NDP_SPLITS + 1);
    return place == 0 ? n : at > 0 ? at : 1;
}

/* What a backward rule can ask for, implemented by graph/. Values are small integers; -1 is "none". */
typedef struct ndp_bwd ndp_bwd;
struct ndp_bwd {
    const ndp_op_attr *attr; /* of the forward node */
    const int *in, *out;     /* values of the forward node */
    /* The gradient arriving at output i of the forward node (-1: nothing flows in). */
    int (*grad_out)(ndp_bwd *b, int i);
    /* True when the gradient of input i is wanted (it depends on an activation or a trainable parameter). */
    bool (*wants)(ndp_bwd *b, int i);
    /* Adds an op to the graph for the input gradients; outs[k] = i means that its output k is the gradient of in[i]
     * (-1: of none); made[k] becomes the value (NULL: not asked). When in[i] already has a gradient from another
     * consumer, an `add` follows, unless acc_slot >= 0: then ins[acc_slot] is filled with that earlier gradient (-1,
     * absent, when there is none) and the op adds it itself. */
    ndp_status (*input_grad)(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, int *ins, int n_in, const int *outs,
                             int n_out, int acc_slot, int *made);
    /* Adds an op to the same list whose output is only used by the rule itself; returns that. */
    ndp_status (*intermediate)(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, const int *ins, int n_in,
                               int *made);
    /* The value is a contribution to the gradient of in[i] as it stands: no op, but an `add` when there is another. */
    ndp_status (*pass_grad)(ndp_bwd *b, int i, int value);
    /* Columns of a gradient from `col` on, as many as in[i] has: a view, not a copy. */
    int (*columns)(ndp_bwd *b, int value, int64_t col, int i);
    /* Adds an op to the graph for the weight gradients; its one output is the gradient of parameter in[i]. The op adds
     * to it when attr->accumulate is set. */
    ndp_status (*weight_grad)(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, const int *ins, int n_in, int i);
    /* Adds the rows of a value to out[i] of the forward node, which is an input of the engine's: a sum over all runs of
     * the backward. */
    ndp_status (*add_up)(ndp_bwd *b, int value, int i);
};

/* How the rows of an op's outputs depend on the rows of its operands, parameters aside. It decides on which axes a
 * graph with the op may be cut (parallel/apply.c); there is no default, since a wrong one would be wrong silently. */
typedef enum ndp_rows_rule {
    NDP_ROWS_ALIKE =
        1,          /* row t is made of row t of each operand: ranks with some of the rows make those of the result */
    NDP_ROWS_MIXED, /* a row depends on other rows, or moves: only a pass of the op's own may cut them */
    NDP_ROWS_SUMMED /* as ALIKE, but some outputs are sums over rows; the step adds up what the ranks make */
} ndp_rows_rule;
/* What runs an op. A kernel by rows works on ranges of independent rows, one by columns on blocks of columns of a sum
 * over rows; threads share these ranges. */
typedef enum ndp_op_kind {
    NDP_KIND_ROWS,
    NDP_KIND_COLUMNS,
    NDP_KIND_PIECES,     /* an update of an optimizer: blocks of the pieces of a slice */
    NDP_KIND_WHOLE,      /* a kernel that spreads its own work */
    NDP_KIND_HOST,       /* no kernel: the executor runs it on the host, once all before it has run */
    NDP_KIND_COLLECTIVE, /* no kernel: the executor begins it and waits for it */
    NDP_KIND_MARK        /* runs nothing: it is there for its backward */
} ndp_op_kind;

/* clang-format off */
/* The list: one row an op. The ids, the names and every device's table of kernels are made from it.
 *
 * `?` marks an optional operand, `~` an integer one (i32). "Wide" is fp32, or fp64 for fp64 (ndp_wide).
 *
 * The shape rule names an output's type, but some ops also write the other of fp32 and bf16 if the destination that the
 * graph gives has it: copy, heads_split, heads_merge, add, linear and linear_stack (fp32 of bf16 operands), take_rows,
 * give_rows, attention's o, attention_bwd's dq, dk, dv (fp32 of bf16 operands).
 *
 * embedding       (ids~ [T,1], table [V,C])                    -> x [T,C]               x[t] = table[ids[t] - first]
 *                 0 where the table has no such row
 * embedding_dw    (ids~ [T,1], dx [T,C])                       -> dtable [V,C]
 *                 summed in row order. Rows not named stay, or become 0 if not accumulating; ids without a row: ignored
 * linear          (x [T,K], w [N,K], b? [1,N])                 -> y [T,N]               y = x w^T + b
 * linear_dx       (dy [T,N], w [N,K], acc? [T,K])              -> dx [T,K]              dx = acc + dy w
 *                 dx and acc are wide with attr.wide_grad; dy may be wide, as y may
 * linear_dw       (dy [T,N], x [T,K])                          -> dw [N,K]              dw (+)= dy^T x
 * linear_db       (dy [T,N])                                   -> db [1,N]              db (+)= sum of rows
 * linear_stack    (x [N,K], w [E*M,K], offsets~ [E+1,1])       -> y [N,M]               y = x w_e^T, e: the row's group
 *                 E matrices one below the other, [M,K] each; rows offsets[e] .. offsets[e+1] - 1 are of group e (an
 *                 expert's), offsets[0] = 0, offsets[E] <= N. Rows from offsets[E] on are of none: y is 0
 * linear_stack_dx (dy [N,M], w [E*M,K], offsets~ [E+1,1], acc? [N,K]) -> dx [N,K]       dx = acc + dy w_e
 *                 dx and acc are wide with attr.wide_grad
 * linear_stack_dw (dy [N,M], x [N,K], offsets~ [E+1,1])        -> dw [E*M,K]            dw_e (+)= dy_e^T x_e
 *                 of the rows of group e; 0, or nothing added, where it has none
 * stack_bias      (y [N,M], b [E,M], offsets~ [E+1,1])         -> y in place            y += b_e / attr.parts
 *                 of the rows of group e; rows of none stay
 * stack_bias_db   (dy [N,M], offsets~ [E+1,1])                 -> db [E,M]              db_e (+)= sum / attr.parts
 * rmsnorm         (x [T,G*C], w [1,C])                         -> y [T,G*C], rstd [T,G] y = x rstd w
 *                 for each run of C columns; G is 1, or the number of heads
 * rmsnorm_dx      (dy [T,G*C], x [T,G*C], w [1,C], rstd [T,G], acc? [T,G*C]) -> dx [T,G*C]   dx = acc + d/dx
 * rmsnorm_dw      (dy [T,G*C], x [T,G*C], rstd [T,G])          -> dw [1,C]
 * add_rmsnorm     (x [T,C], h [T,C], w [1,C])                  -> s [T,C], y [T,C], rstd [T,1]   s = x + h, y = norm(s)
 *                 its backward: ds = rmsnorm_dx(dy, s, w, rstd, acc = gradient arriving at s); dx = dh = ds (one value)
 * mean_squares    (x [T,C])                                    -> m [T,1] wide          m = attr.scale * sum of x^2
 *                 this rank's part of a mean
 * mean_squares_dx (dm [T,1], x [T,C], acc? [T,C])              -> dx [T,C]              acc may be wide
 * norm_by         (x [T,C], w [1,C], m [T,1])                  -> y [T,C], rstd [T,1]   rmsnorm where m is the mean
 *                 its dw is rmsnorm_dw
 * norm_by_dx      (dy [T,C], x [T,C], w [1,C], rstd [T,1])     -> dx? [T,C] wide, dm? [T,1]      dx for a given m
 * dora_squares    (w [N,K], a [R,K], b [N,R])                  -> sq [N,1] wide
 *                 of each row of w + attr.scale b a: the sum of its squares
 * dora            (u [T,C], m [1,N], sq [N,1] wide)            -> y [T,C]
 *                 column attr.first + i is u m[i] / sqrt(sq[i]), i < N; the other columns are those of u. sq has no
 *                 gradient
 * dora_dm         (dy [T,C], u [T,C], sq [N,1] wide)           -> dm [1,N]
 * layernorm       (x [T,C], w [1,C], b? [1,C])                 -> y [T,C], stats [T,2]  y = (x - mean) rstd w + b
 *                 stats: mean, rstd
 * layernorm_dx    (dy [T,C], x [T,C], w [1,C], stats [T,2], acc? [T,C]) -> dx [T,C]     dx = acc + d/dx
 * layernorm_dw    (dy [T,C], x [T,C], stats [T,2])             -> dw [1,C]
 * rope            (x [T,>=(heads+kv_heads)*D], pos~ [T,1], table [P,R]) -> x in place
 *                 turns R = rotary_dim columns of each head, behind attr.skipped: i with R/2 + i (rotate-half), or with
 *                 attr.neighbours 2 i with 2 i + 1. Table row p: cos of R/2 angles, then sin of R/2
 * latent_keys     (kv [T,H*(D-R+E)], shared [T,R])             -> k [T,H*D], v [T,H*E]
 *                 a head of k is the first D - R columns of that of kv, then shared; one of v the last E.
 *                 D = attr.head_dim, R = attr.rotary_dim, E = attr.v_dim
 * latent_keys_bwd (dk [T,H*D], dv [T,H*E])                     -> dkv [T,H*(D-R+E)], dshared [T,R]
 *                 dshared is a sum over heads, wide with attr.wide_grad
 * swiglu          (gu [T,2F]: gate, then up)                   -> a [T,F]               a = silu(gate) up
 * swiglu_bwd      (da [T,F], gu [T,2F])                        -> dgu [T,2F]
 * swiglu_clipped  (gu [T,2F]: gate and up in turn)             -> a [T,F]               a = (u + 1) g sigmoid(scale g)
 *                 g = min(gate, c), u = up within -c and c, c = attr.cap; what is cut off has no gradient
 * swiglu_clipped_bwd (da [T,F], gu [T,2F])                     -> dgu [T,2F]
 * geglu           (gu [T,2F]: gate, then up)                   -> a [T,F]               a = gelu(gate) up
 * geglu_bwd       (da [T,F], gu [T,2F])                        -> dgu [T,2F]
 * gate_rows       (x [T,C], gate [T,1] wide)                   -> y [T,C]               y = sigmoid(gate[t]) x[t]
 *                 dx is gate_rows of dy
 * gate_rows_dg    (dy [T,C], x [T,C], gate [T,1] wide)         -> dgate [T,1] wide      sigmoid'(gate[t]) dy[t].x[t]
 * gate_by         (x [T,C], gate [T,C])                        -> y [T,C]               y = x silu(gate)
 *                 or x sigmoid(gate), with attr.sigmoid
 * gate_by_bwd     (dy [T,C], x [T,C], gate [T,C])              -> dx? [T,C], dgate? [T,C]
 * gelu            (x [T,F])                                    -> a [T,F]               the tanh form
 * gelu_bwd        (da [T,F], x [T,F])                          -> dx [T,F]
 * gelu_erf        (x [T,F])                                    -> a [T,F]               the exact form
 * gelu_erf_bwd    (da [T,F], x [T,F])                          -> dx [T,F]
 * causal_conv     (x [T,C], w [J,C], start~ [T,1])             -> y [T,C]
 *                 each column by its own taps: y[t] = sum of w[j] x[t - j] over j < J with t - j >= start[t]
 * causal_conv_dx  (dy [T,C], w [J,C], start~ [T,1], acc? [T,C]) -> dx [T,C]             dx = acc + d/dx
 * causal_conv_dw  (dy [T,C], x [T,C], start~ [T,1])            -> dw [J,C]
 * conv_silu       (x [T,C], w [C,J], start~ [T,1], ends? [E,C]) -> y [T,C]
 *                 y = silu(u), u as y of causal_conv, but taps are as files have them: a row of w is a column's, and
 *                 its last number weighs the row itself. J <= NDP_MAX_TAPS. w may have more rows: those of
 *                 x begin at attr.first, and dw is 0 elsewhere. Of pieces of rows (ops/row_pieces.h), ends has the last
 *                 rows of the pieces of all ranks (piece_ends); start counts the rows of x, and those before a piece
 *                 as if they stood before its first row there, below 0 too
 * conv_silu_dx    (dy [T,C], x [T,C], w [C,J], start~ [T,1], acc? [T,C], ends?) -> dx [T,C]
 *                 dx = acc + d/dx
 * conv_silu_dw    (dy [T,C], x [T,C], w [C,J], start~ [T,1], ends?) -> dw [C,J]
 * conv_silu_dends (dy [T,C], x [T,C], w [C,J], start~ [T,1], ends [E,C]) -> dends [E,C] wide
 * piece_ends      (x [T,C])                                    -> y [P*n,C]
 *                 the last n = attr.ends rows of each of P = attr.parts pieces
 * piece_ends_dx   (dy [P*n,C], x [T,C], acc? [T,C])            -> dx [T,C]              wide with attr.wide_grad
 * delta_decay     (a [T,H], alog [1,H], dt [1,H])              -> g [T,H] wide          g = -exp(alog) softplus(a + dt)
 * delta_decay_da  (dg [T,H] wide, a, alog, dt)                 -> da [T,H]
 * delta_decay_dlog, delta_decay_ddt (dg [T,H] wide, a, alog, dt) -> dalog, ddt [1,H]    alog and dt may be wide
 * delta_rule      (q [T,G*D], k [T,G*D], v [T,H*E], g [T,H] wide, b [T,H], start~ [T,1], states? [P*H*D,E] wide)
 *                                                              -> o [T,H*E]
 *                 G = attr.kv_heads, D = attr.head_dim, E = attr.v_dim, or D without. Head h of H = attr.heads has q
 *                 and k of head h / (H/G), divided by their lengths, q also by sqrt(D), and a state S [D,E], which is 0
 *                 before the first row of a document. A row changes it, then reads it (ops/delta_rule.c):
 *                 S = exp(g) S, S += k d^T with d = sigmoid(b) (v - S^T k), o = S^T q
 *                 Of P pieces of rows (ops/row_pieces.h), states has the state before each piece and head; without
 *                 it is 0. start as of conv_silu
 * delta_rule_bwd  (do [T,H*E], q, k, v, g, b, start~, states?, dstates? [P*H*D,E] wide)
 *                                                              -> dq?, dk?, dv?, dg? [T,H] wide, db? [T,H]
 *                 do may be wide when q is bf16. dstates: the gradient of the state after each piece; without it is 0
 * delta_map       (k, v, g, b, start~)                         -> map [P*H*D,E+D] wide
 *                 what the rows of a piece do to the state S before it, of each piece and head: U [D,E] and A [D,D],
 *                 beside each other; the state after it is U + A S
 * delta_map_back  (do, q, k, g, b, start~)                     -> back [P*H*D,E] wide
 *                 V [D,E] of each piece and head: where dS is the gradient of the state after a piece, that of the
 *                 state before it is V + A^T dS
 * delta_states    (maps [N*P*H*D,E+D] wide, backs? [N*P*H*D,E] wide) -> states [P*H*D,E] wide
 *                 of the maps of all N = attr.ranks ranks, the state before each piece of this rank; with backs, the
 *                 gradient of the state after it
 * scale           (x [T,N])                                    -> x in place            x = attr.scale x
 * scale_by        (x [T,N], by [1,1] wide)                     -> x in place            x = by x; by has no gradient
 * cap             (x [T,N])                                    -> x in place            x = c tanh(x / c), c = attr.cap
 * add             (a [T,N], b [T,N])                           -> c [T,N]               c may be a or b
 * add_bias        (y [T,N], b [1,N])                           -> y in place            b is added to every row
 * add_columns     (y [T,N], z [T,n])                           -> y in place            z is added to n columns, from
 *                                                                                       attr.first on
 * dropout         (x [T,C], key~ [T,1], unit~ [1,1])           -> y [T,C]               0, or x / (1 - attr.drop)
 *                 A function of attr.tag, unit, key[t] and the column of the model's that column c is, attr.first + c
 *                 (ops/dropout.h): on every device, however ranks cut rows and columns
 * copy            (x [T,N], acc? [T,N])                        -> y [T,N] of attr.type  y = x + acc, rounded once
 * unpack          (codes [E,X] u8, scales [E,B] u8 or [E,N] fp32, nested? [E,Y] fp32) -> w [E*N,K] of attr.type
 *                 E packed matrices (tensor/packed.h): nf4 with nested, int8 without. The values are fp32, each rounded
 *                 once to attr.type: the same bits on every device. The attributes are of a matrix
 *
 * A mixture of experts: each of T rows goes to K = attr.choices of E experts. Choice j of row t has the number t K + j;
 * there are N = T K. "Sorted" rows are one for each choice, by expert, then by number (ops/route.c, ops/take_rows.c).
 * route           (logits [T,E], samples?~ [T,1], given?~ [T,K], bias? [1,E] wide)
 *                                                              -> choices~ [T,K], weights [T,K] wide, seen? [T,E]
 *                 choices: the experts with the largest logits, the largest first, of equal ones the lower first; NaN
 *                 counts as -inf. weights: their part of softmax(logits); with attr.renormalise divided by the sum of
 *                 the K. A row of sample -1 is padding: choices -1, weights 0. Choices have no gradient. given: the
 *                 choices, if present; a row of -1 is like padding. seen: the logits.
 *                 With attr.sigmoid the choices are those with the largest keys, sigmoid(logit) + bias, in open groups
 *                 (ops/route.h), and weights are sigmoids, without the bias. seen: the keys
 * route_dx        (dweights [T,K] wide, logits [T,E], choices~ [T,K], acc? [T,E]) -> dlogits [T,E]
 *                 dlogits = acc + d/dlogits; acc, or 0, where choices are -1
 * choice_counts   (choices~ [T,K], samples~ [T,1])             -> counts [B,E] fp64
 *                 how often the rows of each of B = attr.parts samples chose each of E = attr.experts
 * choice_loads    (choices~ [T,K])                             -> loads [1,E] fp64
 *                 loads (+)= how often all rows chose each of E = attr.experts
 * router_losses_dx (logits [T,E], counts? [B,E], samples~ [T,1], scale [1,1], acc? [T,E]) -> dlogits [T,E],
 *                 losses [T,2] fp64
 *                 with p = softmax(logits[t]), z the log of their exponentials' sum, and f[e] = E counts[b,e] / (the
 *                 sum of counts[b]), b = samples[t]: losses are the sum of f p (0 without counts), and z^2. dlogits =
 *                 acc + d(attr.balance f.p + attr.z_loss z^2) scale / attr.parts. Padding has none of both
 * route_order     (choices~ [T,K])                             -> order~ [N,1], places~ [T,K], offsets~ [E+1,1]
 *                 N = attr.capacity, or T K. order: the choice that each sorted row is of; -1 after the last one,
 *                 choices of no expert are left out. places: the sorted row of each choice, -1: none. offsets: where
 *                 the rows of expert e begin; the last one is how many there are. E = attr.experts
 * route_exchange  (choices~ [P*T,K], index?~ [1,1])            -> order~ [N,1], places~ [T,J], rows~ [P,P],
 *                 here~ [R,K], later~ [1,1]
 *                 choices of P = attr.ranks ranks, T rows each, whose experts these ranks have (ndp_expert_rank). A row
 *                 goes once to each rank that has a choice of it. order, places: as of route_order, of this rank's rows
 *                 by the rank that they go to; places of a row follow its choices, J = min(P, K). rows[p,q]: how many
 *                 go from rank p to rank q. here: the choices of the rows that come, in the order of ranks and rows;
 *                 -1: of an expert of another rank, and behind the last row; R = P T, at most attr.capacity. With
 *                 attr.capacity rows go in rounds (ops/route.h): those of round 0, or 1 + index. later: how many follow
 *                 round 0, on any rank
 * take_rows       (x [T,C], order~ [N,1], places~ [T,K], weights? [T,K] wide) -> y [N,C]
 *                 y[n] = x[order[n] / K], times the weight of that choice; 0 where order is -1. With attr.wide_grad dx
 *                 is a sum of wide rows, rounded to attr.type once
 * give_rows       (y [N,C], order~ [N,1], places~ [T,K], weights? [T,K] wide, acc? [T,C]) -> x [T,C]
 *                 x[t] = acc + the sum of y[places[t,j]], times weights[t,j], over j in order; rounded once. y may be
 *                 wide; x and acc are wide with attr.wide_grad. Each of the two is the other's backward
 * give_rows_dw    (dx [T,C], y [N,C], places~ [T,K])           -> dweights [T,K] wide
 * weigh_rows      (x [N,C], order~ [N,1], places~ [T,K], weights [T,K] wide)
 *                                                              -> x in place            x[n] = weights[order[n]] x[n]
 * weigh_rows_dw   (dy [N,C], y [N,C], places~ [T,K], weights)  -> dweights [T,K] wide   y is the op's result: its own
 *                 operand is y / weight; 0 where the weight is 0
 *                 the dot product of dx[t] and y[places[t,j]]; 0 where places is -1. Either may be wide
 *
 * attention       (q [T,H*D], k [S,KV*D], v [S,KV*E], q_pos~ [T,1], q_low~ [T,1], k_pos~ [S,1], sink? [1,X])
 *                                                              -> o [T,H*E], lse [T,H]
 *                 E = attr.v_dim, or D without.
 *                 query t sees key s where max(q_low[t], q_pos[t] - window + 1) <= k_pos[s] <= q_pos[t]. GQA: query
 *                 head h reads kv head h / (H/KV). lse = log of the sum of exp of the scaled scores (-inf where a row
 *                 sees nothing; its o is 0). Positions are rows of the whole (unsharded) micro-batch, so batch rows
 *                 and documents are one idea. sink: head h has sink[attr.first + h], a score without a value, in that
 *                 sum
 * attention_bwd   (do [T,H*E], q, k, v, o, lse, q_pos~, q_low~, k_pos~)
 *                                                              -> dq [T,H*D], dk [S,KV*D], dv [S,KV*E]
 *                 o and do may be wide when q is bf16; dk and dv are wide with attr.wide_grad
 * attention_dsink (do [T,H*E], o [T,H*E], lse [T,H], sink [1,X]) -> dsink [1,X]
 *                 -sum of exp(sink - lse[t]) do[t].o[t] of each head; 0 of those that are not here
 * attention_merge (o [T,H*D] wide, lse [T,H] wide, o2 [T,H*D] wide, lse2 [T,H] wide)
 *                                                              -> o in place, lse' [T,H]
 *                 two attentions over disjoint keys become one: lse' = log(exp lse + exp lse2), o = o exp(lse - lse') +
 *                 o2 exp(lse2 - lse'); rows that saw nothing (-inf) add nothing. lse' may be lse or lse2.
 * heads_split     (x [T,H*D])                                  -> y [P*T,n*D]
 *                 row p*T + t has the heads of part p of row t, P = attr.parts. n = H / P; with fewer heads than parts
 *                 each is repeated: n = 1, part p has head p*H / P. One of H and P divides the other.
 * heads_merge     (y [P*T,n*D])                                -> x [T,H*D]
 *                 the way back; repeated heads are summed in part order. x is stored as attr.type with attr.wide_grad
 * xent            (x [T,C], w [V,C], labels~ [T,1], scale [1,1] or [T,1] fp64)
 *                                                              -> nll [T,1], dx? [T,C], dw? [V,C], values? [T,2]
 *                 the head: logits in chunks of rows, never all; label < 0: ignored (nll 0, no gradient). nll is the
 *                 bare token loss; of label NDP_LABEL_BEST, without attr.train, the id with the largest logit, the
 *                 lowest of equal ones (exact below 2^24). With attr.train dx and dw are gradients of sum(nll * scale),
 *                 dw accumulating if attr.accumulate. With attr.values: the entropy of softmax(logits) and that id;
 *                 a row with NDP_LABEL_NONE has nll 0 then, and one with label < 0 has values 0.
 *                 attr.loss: nll is times the row's weight (ops/token_weight.h), which has no gradient.
 * xent_logits     (x [R,C], w [V,C], labels~ [R,1])            -> logits [R,V] wide, stats [R,3 or more] wide
 *                 of a slice of the vocabulary, ids attr.first on. stats of a row: the maximum of its attr.vocab real
 *                 columns, the sum of exp(logit - maximum), the label's logit if it is in the slice, else 0; of label
 *                 NDP_LABEL_BEST the slice's best id. With attr.values also the mean of its logits by softmax, and
 *                 that id; with a weight by entropy its attr.choices largest logits, -inf where it has fewer. All 0
 *                 where label < 0; then, or when no row has a label, the logits may be anything.
 * xent_grad       (logits [R,V] wide, stats [P*R,.] wide, x [R,C], w [V,C], labels~ [R,1], scale [1,1] or [R,1] fp64)
 *                                                              -> nll [R,1] wide, dx? [R,C], dw? [V,C], values? [R,2]
 *                 xent's results from the stats of all P = attr.parts slices (row p*R + t: row t of slice p) and the
 *                 logits of one of them, which are overwritten. dx is this slice's part, wide with attr.wide_grad.
 * row_slopes      (logits [R,v] wide, all? [P*R,M] wide, labels~ [R,1], scale [1,1] or [R,1] fp64)
 *                                                              -> nll [R,1] wide, slopes [R,v]
 *                 the loss of each row by a function of its logits (step/loss_rows.h), and its derivatives times scale,
 *                 stored as attr.type. all: the logits of all P = attr.parts slices of the vocabulary, in the first
 *                 columns of rows p*R + t; absent: logits has all of it. Slice p begins at id p V / P, V = attr.vocab.
 *                 label < 0: ignored (nll and slopes 0). attr.cap: of the logits, which come without
 * kv_append       (cache [M,X], new [n,X], row~ [n,1])         -> cache in place        row row[t] of cache = new[t]
 * conv_step       (tail [X,(J-1)*C], x [T,C], w [C,J], start~ [T,1], row~ [T,1])   -> tail in place, y [T,C]
 * delta_step      (state [X,H*D*E] wide, q, k, v, g, b as of delta_rule, start~ [T,1], row~ [T,1])
 *                                                              -> state in place, o [T,H*E]
 *                 conv_silu and delta_rule of rows that continue X texts (ops/delta_step.c); attr.capacity: rows of a
 *                 cache that a text has
 * reduce_sum      (x [T,N], weights? [T,1] fp64)               -> sum [1,N] fp64        sum (+)= rows, in order
 *                 x has one column, or is fp64; each row is multiplied by its weight
 *
 * Pairs of documents (ops/preference.h): documents~ are numbers with marks, document 2 i + 1 is rejected for 2 i.
 * document_sums   (nll [T,1] wide, documents~ [T,1])           -> sums [D,2] fp64
 *                 of the rows of each document's answer: the sum of -nll, and how many there are. D = attr.parts
 * row_score       (x [T,1] wide, scale? [T,1] fp64)          -> nll [T,1] wide, dx? [T,1] wide
 *                 in place of a log-probability each row has a score: nll = -x, and with attr.train dx = -scale, the
 *                 gradient of sum(nll * scale)
 * pair_loss       (sums [D,2], reference? [D,1] fp64)          -> slopes [D,1] fp64, pairs [D/2,6] fp64
 *                 slopes: derivatives of each pair's loss by the log-probabilities of its two documents
 * pair_rows       (documents~ [T,1], nll [T,1] wide, sums [D,2], slopes [D,1], pairs [D/2,6], scale [1,1] fp64,
 *                 nll_scale [1,1] fp64)                        -> scales [T,1] fp64, parts [T,7] fp64
 *                 scales: of a row's gradient: -slope * scale, and attr.scale * nll_scale where the row counts in the
 *                 nll. parts: pairs / rows of the pair's answers, and the nll where it counts; summed over all rows
 *                 they are the sums over pairs, and the nll
 *
 * Of a step, on slices of n elements and numbers of one element. pieces, [P,3] or [P,4] i64 (ops/pieces.h), may be
 * absent: none.
 * count_valid     (labels~ [M,T])                              -> valid [1,1] i64       labels that are not negative
 *                 and have all bits of attr.mask
 * zero            (x of any type)                              -> x in place            x = 0
 * loss_scale      (valid [1,1] i64)                            -> scale [1,1] fp64      1 / valid; 0 if valid is 0
 * square_sum      (grad [1,n], pieces? [P,3] i64)              -> sum [1,1] fp64
 *                 sum (+)= for each piece in order: the sum of its squares / its copies
 * clip_factor     (squares [1,1] fp64, loss? [1,1] fp64)       -> norm [1,1] fp64, clip [1,1] fp64
 *                 norm = attr.scale sqrt(squares), clip = attr.scale min(1, attr.max_norm / norm); attr.scale if
 *                 either of the two is 0. NaN if the norm or the loss is not finite. The numbers of a step may be
 *                 others than the program's (ndp_step_input)
 * adamw, adamw8bit, sgd, lion, muon (w [1,n], grad [1,n], pieces? [P,3] i64, constants [G,8] fp64, clip? [1,1] fp64,
 *                 state0? [1,n], state1? [1,n])                -> w in place, copy? [1,n] bf16
 *                 one update of the elements in pieces, with clip * grad (absent: 1). The states change in place, copy
 *                 is the new w; constants: ops/update.h. If clip is NaN, nothing is written: w, states and copy stay as
 *                 they are. adamw has both states, lion the first, sgd the first or none; muon has none, and its grad
 *                 is what newton_schulz made: its length does not depend on the gradient's, and clip does not scale it.
 *                 adamw8bit is adamw with states stored as u8 codes: scales0, scales1 [1,B] of w's type follow, and
 *                 pieces [P,4] say where the scales of a piece begin (ops/dynamic_map.h)
 * muon_momentum   (operands as above; w is a direction u, written; state0 m) -> u, nothing
 *                 m = b m + (1 - b) g, u = k m + (1 - k) g
 * router_bias_step (bias [1,n], loads [1,E] fp64, clip? [1,1] fp64) -> bias in place
 *                 bias[i] += attr.scale x the sign of mean(loads) - loads[e], of expert e = attr.first + i; those from
 *                 E on stay, and all if clip is NaN
 * newton_schulz   (x [R,C])                                    -> x in place
 *                 singular values near 1, times 0.2 sqrt(max(R, C)), or with attr.spectral sqrt(R / C)
 *                 (ops/newton_schulz.h)
 *
 * Between the P = attr.ranks ranks of attr.group (ops/collectives.c):
 * all_gather      (x [R,C])                                    -> y [P*R,C]             the rows of all ranks, in order
 * reduce_scatter  (x [P*R,C])                                  -> y [R,C]               this rank's rows of the sum
 * all_reduce      (x)                                          -> x in place            the sum
 * all_to_all      (x [P*R,C])                                  -> y [P*R,C]             part p, R rows, goes to rank p
 * all_to_all_rows (x [M,C], rows~ [P,P])                       -> y [N,C]
 *                 rows[p,q] rows of rank p go to rank q, in the order of ranks; with attr.inverse rows[q,p]. What
 *                 follows the last row that comes is not defined
 * shift           (x [R,C])                                    -> y [R,C]               the previous rank's x
 * send            (x [R,C])                                    -> x as it is            a message to rank attr.peer
 * recv            (x [R,C])                                    -> x in place            one from it
 *
 * Marks:
 * enter           (x)                                          -> x in place            its gradient is summed over the
 *                                                                                       group
 * own_rows        (x [P*R,C])                                  -> y [R,C] in place      rows of x from attr.first on;
 *                 each rank has others, and their gradients are gathered
 * given_gradient  (x [T,C], dx [T,C])                          -> nothing               dx is the gradient of x
 * row_loss        (x [T,C], w [V,C], labels~ [T,1], scale [1,1] or [T,1] fp64) -> nll [T,1], dx? [T,C], dw? [V,C]
 *                 as xent, by row_slopes: parallel/ writes it as products with these between them
 * router_losses   (logits [T,E], counts? [B,E], samples~ [T,1], scale [1,1]) -> sums [1,2] fp64
 *                 logits get the gradient of router_losses_dx, to whose losses the backward adds up `sums`
 */
#define NDP_OP_LIST(ROWS, COLUMNS, PIECES, WHOLE, HOST, COLLECTIVE, MARK) \
    ROWS(embedding) \
    COLUMNS(embedding_dw) \
    WHOLE(linear) \
    WHOLE(linear_dx) \
    WHOLE(linear_dw) \
    COLUMNS(linear_db) \
    WHOLE(linear_stack) \
    WHOLE(linear_stack_dx) \
    WHOLE(linear_stack_dw) \
    ROWS(stack_bias) \
    COLUMNS(stack_bias_db) \
    ROWS(rmsnorm) \
    ROWS(rmsnorm_dx) \
    COLUMNS(rmsnorm_dw) \
    ROWS(add_rmsnorm) \
    ROWS(layernorm) \
    ROWS(layernorm_dx) \
    COLUMNS(layernorm_dw) \
    ROWS(mean_squares) \
    ROWS(mean_squares_dx) \
    ROWS(norm_by) \
    ROWS(norm_by_dx) \
    ROWS(dora_squares) \
    ROWS(dora) \
    COLUMNS(dora_dm) \
    ROWS(rope) \
    ROWS(latent_keys) \
    ROWS(latent_keys_bwd) \
    ROWS(swiglu) \
    ROWS(swiglu_bwd) \
    ROWS(swiglu_clipped) \
    ROWS(swiglu_clipped_bwd) \
    ROWS(geglu) \
    ROWS(geglu_bwd) \
    ROWS(gate_rows) \
    ROWS(gate_rows_dg) \
    ROWS(gate_by) \
    ROWS(gate_by_bwd) \
    ROWS(gelu) \
    ROWS(gelu_bwd) \
    ROWS(gelu_erf) \
    ROWS(gelu_erf_bwd) \
    ROWS(causal_conv) \
    ROWS(causal_conv_dx) \
    COLUMNS(causal_conv_dw) \
    ROWS(conv_silu) \
    ROWS(conv_silu_dx) \
    ROWS(conv_silu_dw) \
    ROWS(conv_silu_dends) \
    ROWS(piece_ends) \
    ROWS(piece_ends_dx) \
    ROWS(delta_decay) \
    ROWS(delta_decay_da) \
    COLUMNS(delta_decay_dlog) \
    COLUMNS(delta_decay_ddt) \
    WHOLE(delta_rule) \
    WHOLE(delta_rule_bwd) \
    WHOLE(delta_map) \
    WHOLE(delta_map_back) \
    WHOLE(delta_states) \
    ROWS(scale) \
    ROWS(scale_by) \
    ROWS(cap) \
    ROWS(add) \
    ROWS(add_bias) \
    ROWS(add_columns) \
    ROWS(dropout) \
    ROWS(copy) \
    ROWS(unpack) \
    ROWS(route) \
    ROWS(route_dx) \
    WHOLE(choice_counts) \
    WHOLE(choice_loads) \
    ROWS(router_losses_dx) \
    WHOLE(route_order) \
    WHOLE(route_exchange) \
    ROWS(take_rows) \
    ROWS(give_rows) \
    ROWS(give_rows_dw) \
    ROWS(weigh_rows) \
    ROWS(weigh_rows_dw) \
    WHOLE(attention) \
    WHOLE(attention_bwd) \
    COLUMNS(attention_dsink) \
    ROWS(attention_merge) \
    ROWS(heads_split) \
    ROWS(heads_merge) \
    WHOLE(xent) \
    WHOLE(xent_logits) \
    WHOLE(xent_grad) \
    HOST(row_slopes) \
    WHOLE(kv_append) \
    WHOLE(conv_step) \
    WHOLE(delta_step) \
    WHOLE(reduce_sum) \
    WHOLE(row_score) \
    WHOLE(document_sums) \
    WHOLE(pair_loss) \
    WHOLE(pair_rows) \
    WHOLE(count_valid) \
    WHOLE(zero) \
    WHOLE(loss_scale) \
    WHOLE(square_sum) \
    WHOLE(clip_factor) \
    PIECES(adamw) \
    PIECES(adamw8bit) \
    PIECES(sgd) \
    PIECES(lion) \
    PIECES(muon) \
    PIECES(muon_momentum) \
    WHOLE(newton_schulz) \
    WHOLE(router_bias_step) \
    COLLECTIVE(all_gather) \
    COLLECTIVE(reduce_scatter) \
    COLLECTIVE(all_reduce) \
    COLLECTIVE(all_to_all) \
    COLLECTIVE(all_to_all_rows) \
    COLLECTIVE(shift) \
    COLLECTIVE(send) \
    COLLECTIVE(recv) \
    MARK(enter) \
    MARK(own_rows) \
    MARK(given_gradient) \
    MARK(row_loss) \
    MARK(router_losses)
/* clang-format on */

#define NDP_OP_NONE(name)
/* X(name) for all ops, for those that have kernels, and for those whose kernels work on ranges. */
#define NDP_OPS(X) NDP_OP_LIST(X, X, X, X, X, X, X)
#define NDP_KERNEL_OPS(X) NDP_OP_LIST(X, X, X, X, NDP_OP_NONE, NDP_OP_NONE, NDP_OP_NONE)
#define NDP_RANGE_OPS(X) NDP_OP_LIST(X, X, X, NDP_OP_NONE, NDP_OP_NONE, NDP_OP_NONE, NDP_OP_NONE)

/* NDP_OP_<name>: an op's place in the list, and in each device's table of kernels. */
#define NDP_OP_ID(name) NDP_OP_##name,
typedef enum ndp_op_id { NDP_OPS(NDP_OP_ID) NDP_OP_COUNT } ndp_op_id;
#undef NDP_OP_ID

struct ndp_op {
    ndp_op_id id;
    const char *name;
    int n_in, n_out;
    uint32_t optional_in; /* bit i: in[i] may be absent */
    bool in_place;        /* output 0 is input 0, changed; of a mark with fewer rows, those from attr.first on */
    bool constant;        /* no gradient flows back through it: its results are constants to what reads them */
    ndp_rows_rule rows;
    /* Fills rows, cols and dtype of out[] from in[] (data is not looked at); NDP_EBUG names a mismatch. */
    ndp_status (*shape)(ndp_op_call *c);
    /* Writes the backward; NULL: not differentiable. */
    ndp_status (*backward)(ndp_bwd *b);
    /* Operations for each element of in[0]: a multiply-add is two, an exponential or a division about ten. */
    double flops;
    /* Sets what else a call costs than this: `flops`, and the bytes of each operand, once. NULL: nothing else. */
    void (*cost)(const ndp_op_call *shapes, double *flops, double *bytes);
    ndp_collective collective;
    uint64_t reads;                 /* the attributes that it reads, besides `accumulate` (NDP_READS_<name>) */
    const struct ndp_op_flow *flow; /* ops/flow.h; NULL: no unit has it */
};

/* The first members of an op: its number and its name. */
#define NDP_NAMED(op) .id = NDP_OP_##op, .name = #op

/* Those of `attr` that the op reads; the others are 0. */
ndp_op_attr ndp_op_attr_of(const ndp_op *op, const ndp_op_attr *attr);
bool ndp_op_attrs_equal(const ndp_op_attr *a, const ndp_op_attr *b);

/* Floating point operations of a call, and bytes read and written. */
void ndp_op_cost(const ndp_op_call *shapes, double *flops, double *bytes);

#define NDP_OP_DECLARE(name) extern const ndp_op ndp_op_##name;
NDP_OPS(NDP_OP_DECLARE)
#undef NDP_OP_DECLARE

/* By id. */
extern const ndp_op *const ndp_all_ops[NDP_OP_COUNT];
extern const ndp_op_kind ndp_op_kinds[NDP_OP_COUNT];

#endif
