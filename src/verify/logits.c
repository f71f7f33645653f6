/* Logits of a dump next to ours, which the judge's device makes from what the head reads. */
#include "verify/against.h"

#include <math.h>

/* Of all of them together. In bf16 torch is off by up to 0.016 for the models of tests/golden (manifest.json). */
static const double fp32_bound = 2e-5, bf16_bound = 0.05;

enum { BLOCK = 8192 };

typedef struct comparing {
    const ndp_dump *dump;
    int64_t row;        /* of the dump */
    double apart, ours; /* squares */
} comparing;

static ndp_status compare_position(void *user, int64_t position, const double *logits, int64_t n) {
    comparing *k = user;
    int64_t first = (k->row * k->dump->length + position) * n;
    double dump[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t now = n - at < BLOCK ? n - at : BLOCK;
        NDP_TRY(ndp_safetensors_read(k->dump->batch, k->dump->logits, first + at, now, dump, NDP_F64, true));
        for (int64_t i = 0; i < now; i++) {
            k->apart += (dump[i] - logits[at + i]) * (dump[i] - logits[at + i]);
            k->ours += logits[at + i] * logits[at + i];
        }
    }
    return NDP_OK;
}

static ndp_status compare_rows(const ndp_comparison *c, comparing *k, ndp_judged *unused) {
    NDP_TRY(ndp_judged_init(unused, c->judge));
    for (k->row = 0; k->row < c->rows->n; k->row++)
        NDP_TRY(ndp_judge_add(c->judge, c->rows, k->row, 0, unused));
    return ndp_safetensors_check(c->dump->batch);
}

ndp_status ndp_compare_logits(const ndp_comparison *c, ndp_against *out) {
    comparing k = {.dump = c->dump};
    ndp_judged unused = {0};
    ndp_partial *p = c->judge->partial;
    if (!c->dump->logits || !p)
        return NDP_OK;
    p->logits = compare_position, p->user = &k;
    ndp_status st = compare_rows(c, &k, &unused);
    p->logits = NULL;
    ndp_judged_release(&unused);
    out->has_logits = true;
    out->logits_off = k.apart == 0 ? 0 : sqrt(k.apart / k.ours);
    out->logits_bound = (c->config->precision.compute == NDP_BF16 ? bf16_bound : fp32_bound) +
                        ndp_rounding_of(c->dump->logits->spec.dtype);
    NDP_TRY(st);
    return out->n_causes == 0 && !(out->logits_off <= out->logits_bound)
               ? ndp_add_cause(out, "the logits are different, though the loss and the gradients agree")
               : NDP_OK;
}
