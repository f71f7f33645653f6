/* The forms of adapters, as two tables: the factors that train beside a frozen projection W [outputs, inputs], with
 * their shapes, names and first values; and the forms, each with some of the factors and with what becomes of W:
 *
 *   lora   W' = W + scale B A                  A [r, inputs], B [outputs, r] (Hu et al., arXiv:2106.09685)
 *   dora   W'' = m W' / |W'|, row by row       m [outputs], the length of each row (Liu et al., arXiv:2402.09353)
 *
 * Names in files are those of PEFT. The tables of parameters and the graphs of units read them, and so does what
 * matches, loads, exports and merges adapters (weights/). */
#ifndef NDP_MODEL_ADAPTER_FORM_H
#define NDP_MODEL_ADAPTER_FORM_H

#include "base/arena.h"

/* What an adapter has beside a projection; or a tensor of the model itself, which an adapter may have whole. */
typedef enum ndp_factor {
    NDP_FACTOR_A,
    NDP_FACTOR_B,
    NDP_FACTOR_LENGTH,
    NDP_FACTORS,
    NDP_NO_FACTOR = NDP_FACTORS, /* a tensor of the model */
    NDP_ADAPTER_PARTS
} ndp_factor;

/* How long a dimension of a factor is. */
typedef enum ndp_factor_dim { NDP_FACTOR_ONE, NDP_FACTOR_RANK, NDP_FACTOR_INPUTS, NDP_FACTOR_OUTPUTS } ndp_factor_dim;

typedef enum ndp_factor_start {
    NDP_START_UNIFORM, /* random in +- 1 / sqrt(columns), as PEFT's kaiming_uniform with a = sqrt(5) */
    NDP_START_ZERO,    /* or small random numbers (ndp_adapter.random_b) */
    NDP_START_LENGTHS  /* the lengths that the rows of W have */
} ndp_factor_start;

typedef struct ndp_factor_rule {
    const char *ending;    /* of its tensor's name, after that of the module */
    ndp_factor_dim dim[2]; /* of its rows, of its columns; one row: a vector */
    ndp_factor_start start;
} ndp_factor_rule;
extern const ndp_factor_rule ndp_factor_rules[NDP_FACTORS];

typedef enum ndp_adapter_form { NDP_LORA, NDP_DORA, NDP_ADAPTER_FORMS } ndp_adapter_form;

typedef struct ndp_form_rule {
    const char *name;   /* for people */
    const char *key;    /* of adapter_config.json, that asks for it; NULL: none does */
    int factors;        /* it has the first so many factors */
    ndp_factor lengths; /* the lengths that the rows of W' get; NDP_NO_FACTOR: they keep theirs */
} ndp_form_rule;
extern const ndp_form_rule ndp_form_rules[NDP_ADAPTER_FORMS];

/* Rows and columns of a factor beside a projection [outputs, inputs]. Returns its dimensions in files: 1 for a vector,
 * which has one row here. */
int ndp_factor_shape(ndp_factor factor, int64_t r, int64_t outputs, int64_t inputs, int64_t shape[2]);
/* Whether it has a part for each part of a fused tensor; else the parts share one. */
bool ndp_factor_has_parts(ndp_factor factor);
/* What B A is multiplied by: alpha / r, or alpha / sqrt(r) (rsLoRA, Kalajdzievski, arXiv:2312.03732). */
double ndp_adapter_scale(double alpha, int r, bool rslora);

/* ---- names ---- */

/* Before the name of a tensor of an adapter: PEFT wraps the model. */
#define NDP_ADAPTER_PREFIX "base_model.model."

/* Which factor a tensor is, by its name. */
ndp_factor ndp_factor_of(const char *tensor);
/* The name of a factor beside the tensor MODULE.weight; NULL: no memory. */
const char *ndp_factor_name(ndp_arena *arena, const char *tensor, ndp_factor factor);
/* The name less NDP_ADAPTER_PREFIX; NULL: it does not begin so. */
const char *ndp_adapter_inner(const char *tensor);

enum { NDP_MODULE_NAME = 512 };
/* The module of a tensor or of a factor: "model.layers.0.self_attn.q_proj". Empty: the name has no dot. */
void ndp_module_of(const char *tensor, char out[NDP_MODULE_NAME]);

#endif
