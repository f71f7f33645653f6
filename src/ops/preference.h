/* Losses of preference data: pairs of documents, an answer that was chosen and one that was rejected (DPO,
 * arXiv:2305.18290; IPO, 2310.12036; ORPO, 2403.07691; SimPO, 2405.14734), or single answers, which are wanted or not
 * (KTO, 2402.01306). Or of a reward model: the loss of Bradley and Terry (InstructGPT, 2203.02155). Formulas and names
 * are TRL's.
 *
 * A loss is a row of the list below and a formula of two numbers, one a document: the log-probability of its answer,
 * less that of the reference model if REFERENCE, divided by the tokens of the answer if AVERAGE. The formula gives the
 * loss and its derivatives. Kernels of all devices call these functions.
 *
 * Where the loss scores (ndp_preference_scores), a document's number is no log-probability, but the reward that the
 * model's head gives its last token.
 *
 * A single answer is a pair of which the other document is empty. In its place stands a number that all answers of an
 * update are compared with, the estimate of the KL divergence from the reference model (TO_POINT), or 0: minus that is
 * what the empty document has as its reference, so the formula sees it as the log-ratio of that document. */
#ifndef NDP_OPS_PREFERENCE_H
#define NDP_OPS_PREFERENCE_H

#include "ops/op.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* The words of loss.name and loss.variant. */
#define NDP_LOSSES(X)                                                                                                  \
    X(XENT, xent)                                                                                                      \
    X(DPO, dpo)                                                                                                        \
    X(ORPO, orpo)                                                                                                      \
    X(SIMPO, simpo)                                                                                                    \
    X(KTO, kto)                                                                                                        \
    X(REWARD, reward)
#define NDP_LOSS_VARIANTS(X)                                                                                           \
    X(SIGMOID, sigmoid)                                                                                                \
    X(HINGE, hinge)                                                                                                    \
    X(IPO, ipo)                                                                                                        \
    X(ROBUST, robust)                                                                                                  \
    X(APO_ZERO, apo_zero)
#define NDP_LOSS_ENUMERATOR(NAME, name) NDP_LOSS_##NAME,
typedef enum ndp_loss { NDP_LOSSES(NDP_LOSS_ENUMERATOR) NDP_LOSS_COUNT } ndp_loss;
typedef enum ndp_loss_variant { NDP_LOSS_VARIANTS(NDP_LOSS_ENUMERATOR) NDP_LOSS_VARIANT_COUNT } ndp_loss_variant;
#undef NDP_LOSS_ENUMERATOR

/* All losses of preference data, listed here only: X(NAME, name, variant, REFERENCE, AVERAGE, SMOOTHED, MARGIN, WHOLE,
 * SINGLE, SFT, formula). `name` and `variant`: of the lists above. SMOOTHED: it reads loss.label_smoothing; MARGIN:
 * loss.gamma. WHOLE: the nll of chosen documents, which loss.sft_weight (default `SFT`) adds, is that of prompt and
 * answer, else of the answer. SINGLE: of single answers, weighted by loss.desirable_weight and
 * undesirable_weight, and TO_POINT of them those that are compared with the estimate of the KL divergence. */
enum { NDP_PAIR, NDP_SINGLE, NDP_SINGLE_TO_POINT };
#define NDP_PREFERENCES(X)                                                                                             \
    X(DPO_SIGMOID, dpo, sigmoid, true, false, false, false, false, NDP_PAIR, 0, sigmoid)                               \
    X(DPO_HINGE, dpo, hinge, true, false, false, false, false, NDP_PAIR, 0, hinge)                                     \
    X(DPO_IPO, dpo, ipo, true, true, false, false, false, NDP_PAIR, 0, ipo)                                            \
    X(DPO_ROBUST, dpo, robust, true, false, true, false, false, NDP_PAIR, 0, robust)                                   \
    X(DPO_APO_ZERO, dpo, apo_zero, true, false, false, false, false, NDP_PAIR, 0, anchored)                            \
    X(ORPO, orpo, sigmoid, false, true, false, false, true, NDP_PAIR, 1, odds)                                         \
    X(SIMPO, simpo, sigmoid, false, true, true, true, false, NDP_PAIR, 0, margin)                                      \
    X(KTO, kto, sigmoid, true, false, false, false, false, NDP_SINGLE_TO_POINT, 0, value)                              \
    X(KTO_APO_ZERO, kto, apo_zero, true, false, false, false, false, NDP_SINGLE, 0, value)                             \
    X(REWARD, reward, sigmoid, false, false, false, false, false, NDP_PAIR, 0, reward)

/* NDP_PREFERENCE_NONE: rows are no pairs; the loss is that of their tokens. */
#define NDP_PREFERENCE_ENUMERATOR(NAME, ...) NDP_PREFERENCE_##NAME,
typedef enum ndp_preference_kind {
    NDP_PREFERENCE_NONE,
    NDP_PREFERENCES(NDP_PREFERENCE_ENUMERATOR) NDP_PREFERENCE_KINDS
} ndp_preference_kind;
#undef NDP_PREFERENCE_ENUMERATOR

typedef struct ndp_preference_row {
    const char *name, *variant;
    bool reference, average, smoothed, margin, whole;
    int single;        /* NDP_PAIR, ... */
    double sft_weight; /* the default */
} ndp_preference_row;
/* By ndp_preference_kind; the row of NONE has no names. */
extern const ndp_preference_row ndp_preference_table[NDP_PREFERENCE_KINDS];
/* The row of a loss and a variant; NDP_PREFERENCE_NONE: there is none. */
ndp_preference_kind ndp_preference_find(ndp_loss loss, ndp_loss_variant variant);

/* A loss with its options. */
typedef struct ndp_preference {
    ndp_preference_kind kind;
    double beta, gamma, label_smoothing, sft_weight;
    double desirable_weight, undesirable_weight; /* of a loss of single answers */
    double center;                               /* of one that scores */
} ndp_preference;
/* A loss of rewards: the model has a head of one column (facts.score). */
static inline bool ndp_preference_scores(ndp_preference_kind kind) { return kind == NDP_PREFERENCE_REWARD; }
/* Documents of a micro-batch of so many rows, each of which has one answer: a pair has two rows or one. */
int ndp_preference_documents(const ndp_preference *p, int rows);

/* ---- rows of tokens ---- */

/* What a row of a micro-batch is of: a document's number and marks, or -1: nothing that counts. Documents 2 i and
 * 2 i + 1 are pair i: chosen, rejected. A single answer is one of them. */
enum {
    NDP_DOCUMENT_ANSWER = 1, /* its label is a token of the answer */
    NDP_DOCUMENT_NLL = 2,    /* its label counts in the nll */
    NDP_DOCUMENT_PAIR = 4,   /* it stands for its pair when pairs are counted: one row of each */
    NDP_DOCUMENT_MARKS = 3   /* bits of the marks */
};
static inline int64_t ndp_document_of(int64_t code) { return code < 0 ? -1 : code >> NDP_DOCUMENT_MARKS; }
static inline bool ndp_document_has(int64_t code, int64_t mark) { return code >= 0 && (code & mark) == mark; }

/* Columns of what pair_loss makes of a pair; and of what rows of tokens add up to, of which nll is no pair's. The loss
 * comes first. */
enum {
    NDP_PAIR_LOSS,
    NDP_PAIR_REWARD_CHOSEN,
    NDP_PAIR_REWARD_REJECTED,
    NDP_PAIR_ACCURACY, /* of single answers: whether it is the chosen one */
    NDP_PAIR_LOGP_CHOSEN,
    NDP_PAIR_LOGP_REJECTED,
    NDP_PAIR_COLUMNS,
    NDP_PAIR_NLL = NDP_PAIR_COLUMNS,
    NDP_PAIR_SUMS
};

/* The operands of pair_rows. */
enum {
    NDP_PAIR_ROWS_DOCUMENTS,
    NDP_PAIR_ROWS_NLL,
    NDP_PAIR_ROWS_SUMS,
    NDP_PAIR_ROWS_SLOPES,
    NDP_PAIR_ROWS_PAIRS,
    NDP_PAIR_ROWS_SCALE,     /* 1 / pairs of the update */
    NDP_PAIR_ROWS_NLL_SCALE, /* 1 / tokens of it that count in the nll */
    NDP_PAIR_ROWS_OPERANDS
};

/* ---- formulas ---- */

/* What pair_loss reads. */
static inline ndp_preference ndp_pair_preference(const ndp_op_attr *a) {
    ndp_preference p = {(ndp_preference_kind)a->loss, a->scale, a->gamma, a->label_smoothing, 0, a->desirable_weight,
                        a->undesirable_weight,        a->center};
    return p;
}

typedef struct ndp_pair_terms {
    double loss, chosen, rejected; /* and its derivatives by the two numbers */
} ndp_pair_terms;

/* log(1 / (1 + exp(-x))), without overflow. */
static inline double ndp_log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }
static inline double ndp_sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
/* log(1 - exp(x)) of x < 0, without cancellation. */
static inline double ndp_log1m_exp(double x) { return x < -0.6931471805599453 ? log1p(-exp(x)) : log(-expm1(x)); }

/* Of a loss of chosen - rejected alone. */
static inline ndp_pair_terms ndp_pair_of_difference(double loss, double slope) {
    ndp_pair_terms t = {loss, slope, -slope};
    return t;
}

static inline ndp_pair_terms ndp_pair_sigmoid(const ndp_preference *p, double chosen, double rejected) {
    double x = p->beta * (chosen - rejected);
    return ndp_pair_of_difference(-ndp_log_sigmoid(x), -p->beta * ndp_sigmoid(-x));
}

static inline ndp_pair_terms ndp_pair_hinge(const ndp_preference *p, double chosen, double rejected) {
    double left = 1 - p->beta * (chosen - rejected);
    return ndp_pair_of_difference(left > 0 ? left : 0, left > 0 ? -p->beta : 0);
}

static inline ndp_pair_terms ndp_pair_ipo(const ndp_preference *p, double chosen, double rejected) {
    double off = chosen - rejected - 1 / (2 * p->beta);
    return ndp_pair_of_difference(off * off, 2 * off);
}

/* The label is wrong with the probability label_smoothing; unbiased. */
static inline ndp_pair_terms ndp_pair_robust(const ndp_preference *p, double chosen, double rejected) {
    double x = p->beta * (chosen - rejected), e = p->label_smoothing, by = 1 / (1 - 2 * e);
    return ndp_pair_of_difference(by * (e * ndp_log_sigmoid(-x) - (1 - e) * ndp_log_sigmoid(x)),
                                  -by * p->beta * ((1 - e) * ndp_sigmoid(-x) + e * ndp_sigmoid(x)));
}

/* The ratio of the odds of the two answers. */
static inline ndp_pair_terms ndp_pair_odds(const ndp_preference *p, double chosen, double rejected) {
    double x = chosen - rejected - (ndp_log1m_exp(chosen) - ndp_log1m_exp(rejected));
    double slope = -p->beta * ndp_sigmoid(-x);
    ndp_pair_terms t = {-p->beta * ndp_log_sigmoid(x), slope / -expm1(chosen), slope / expm1(rejected)};
    return t;
}

static inline ndp_pair_terms ndp_pair_margin(const ndp_preference *p, double chosen, double rejected) {
    double x = p->beta * (chosen - rejected) - p->gamma, e = p->label_smoothing;
    return ndp_pair_of_difference(-(1 - e) * ndp_log_sigmoid(x) - e * ndp_log_sigmoid(-x),
                                  p->beta * (e * ndp_sigmoid(x) - (1 - e) * ndp_sigmoid(-x)));
}

/* APO-zero (arXiv:2408.06266): the chosen answer becomes more probable than under the reference, the rejected one less.
 */
static inline ndp_pair_terms ndp_pair_anchored(const ndp_preference *p, double chosen, double rejected) {
    double c = ndp_sigmoid(p->beta * chosen), r = ndp_sigmoid(p->beta * rejected);
    ndp_pair_terms t = {1 - c + r, -p->beta * c * ndp_sigmoid(-p->beta * chosen),
                        p->beta * r * ndp_sigmoid(-p->beta * rejected)};
    return t;
}

/* The value of an answer beside what it is compared with, from the curve of prospect theory. */
static inline ndp_pair_terms ndp_pair_value(const ndp_preference *p, double chosen, double rejected) {
    double better = ndp_sigmoid(p->beta * (chosen - rejected)), worse = ndp_sigmoid(p->beta * (rejected - chosen));
    return ndp_pair_of_difference(worse, -p->beta * better * worse);
}

/* The rewards may all be larger by one number; `center` keeps those of a pair near zero. */
static inline ndp_pair_terms ndp_pair_reward(const ndp_preference *p, double chosen, double rejected) {
    double x = chosen - rejected, sum = chosen + rejected, by_sum = 2 * p->center * sum;
    ndp_pair_terms t = {-ndp_log_sigmoid(x) + p->center * sum * sum, by_sum - ndp_sigmoid(-x),
                        by_sum + ndp_sigmoid(-x)};
    return t;
}

#define NDP_PREFERENCE_FORMULA(NAME, name, variant, REFERENCE, AVERAGE, SMOOTHED, MARGIN, WHOLE, SINGLE, SFT, formula) \
    case NDP_PREFERENCE_##NAME:                                                                                        \
        return ndp_pair_##formula(p, chosen, rejected);
static inline ndp_pair_terms ndp_pair_formula(const ndp_preference *p, double chosen, double rejected) {
    switch (p->kind) {
        NDP_PREFERENCES(NDP_PREFERENCE_FORMULA)
    default:
        return ndp_pair_of_difference(0, 0);
    }
}
#undef NDP_PREFERENCE_FORMULA

#define NDP_PREFERENCE_FLAGS(NAME, name, variant, REFERENCE, AVERAGE, SMOOTHED, MARGIN, WHOLE, SINGLE, ...)            \
    case NDP_PREFERENCE_##NAME:                                                                                        \
        *reference = REFERENCE, *average = AVERAGE, *single = SINGLE != NDP_PAIR;                                      \
        break;
static inline void ndp_preference_flags(ndp_preference_kind kind, bool *reference, bool *average, bool *single) {
    *reference = *average = *single = false;
    switch (kind) {
        NDP_PREFERENCES(NDP_PREFERENCE_FLAGS)
    default:
        break;
    }
}
#undef NDP_PREFERENCE_FLAGS

/* A document: the sum of the log-probabilities of its answer, how many tokens that has, and the reference model's sum.
 */
typedef struct ndp_pair_document {
    double logp, tokens, reference;
} ndp_pair_document;

/* Fills out[NDP_PAIR_COLUMNS], and the derivatives of the loss by the two sums of log-probabilities. A pair of which a
 * document has no answer counts nothing; of single answers, one in which both have, or none. */
static inline void ndp_pair_judge(const ndp_preference *p, const ndp_pair_document *chosen,
                                  const ndp_pair_document *rejected, double *out, double *by_chosen,
                                  double *by_rejected) {
    bool reference, average, single, has_c = chosen->tokens > 0, has_r = rejected->tokens > 0;
    ndp_preference_flags(p->kind, &reference, &average, &single);
    *by_chosen = *by_rejected = 0;
    for (int i = 0; i < NDP_PAIR_COLUMNS; i++)
        out[i] = 0;
    if (single ? has_c == has_r : !has_c || !has_r)
        return;
    double c = chosen->logp, r = rejected->logp, nc = average ? chosen->tokens : 1, nr = average ? rejected->tokens : 1;
    double ratio_c = reference ? c - chosen->reference : c / nc, ratio_r = reference ? r - rejected->reference : r / nr;
    double weight = !single ? 1 : has_c ? p->desirable_weight : p->undesirable_weight;
    ndp_pair_terms t = ndp_pair_formula(p, reference ? ratio_c / nc : ratio_c, reference ? ratio_r / nr : ratio_r);
    *by_chosen = weight * t.chosen / nc, *by_rejected = weight * t.rejected / nr;
    out[NDP_PAIR_LOSS] = weight * t.loss;
    out[NDP_PAIR_REWARD_CHOSEN] = has_c ? p->beta * ratio_c : 0;
    out[NDP_PAIR_REWARD_REJECTED] = has_r ? p->beta * ratio_r : 0;
    out[NDP_PAIR_ACCURACY] = single ? has_c : p->beta * ratio_c > p->beta * ratio_r;
    out[NDP_PAIR_LOGP_CHOSEN] = reference ? c : ratio_c;
    out[NDP_PAIR_LOGP_REJECTED] = reference ? r : ratio_r;
}

#endif
