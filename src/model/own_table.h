/* Architectures of a program's own: the table of functions (architecture.h) behind all that the public header model.h
 * describes, and the facts that it keeps of one. */
#ifndef NDP_MODEL_OWN_TABLE_H
#define NDP_MODEL_OWN_TABLE_H

#include "model/facts.h"

enum { NDP_OWN_FACTS = 48, NDP_OWN_WORD = 48 };

/* A fact that identifies a run: a key of config.json that was read. */
typedef struct ndp_own_key {
    char key[NDP_OWN_WORD], value[NDP_OWN_WORD];
    bool shape;
} ndp_own_key;

typedef struct ndp_own_rope {
    double theta;
    int dim;
} ndp_own_rope;

typedef struct ndp_own_facts {
    ndp_architecture of; /* with members that the program's version lacks as 0; what it points to is the program's */
    char type[32];
    int64_t positions, bos, eos;
    /* What a model built of the facts has. */
    int64_t vocab, parameters, largest;
    int hidden;
    ndp_layout_facts layout;
    ndp_own_rope ropes[NDP_ROPES]; /* set while a model is built, for its tables */
    int n_ropes;
    ndp_own_key keys[NDP_OWN_FACTS];
    int n_keys;
    _Alignas(16) unsigned char facts[NDP_FACTS_BYTES];
} ndp_own_facts;

extern const ndp_architecture_table ndp_own_table;
/* Says whose facts they are, before they are read. */
void ndp_own_begin(void *facts, const ndp_architecture *a);

/* Builds a model, whose facts have what it has. NDP_EINVAL, NDP_ENOTSUP. */
ndp_status ndp_own_build(const ndp_own_facts *f, const ndp_model_opts *opts, ndp_model *out);

#endif
