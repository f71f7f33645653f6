/* Architectures: kinds of models that share nothing but units, buffers and inputs. Each has facts of its own, which it
 * reads from config.json; other rooms know of a model what ndp_model_spec says, and use the table for the rest.
 *
 * The library knows the architectures of ndp_architectures, and those that a program adds to its configuration, which
 * come from the public header model.h (own_table.c). The list is alone in its file (architectures.c): a test that
 * defines it is linked with its own, for what no public function builds (tests/verify/test_stack_job.c). */
#ifndef NDP_MODEL_ARCHITECTURE_H
#define NDP_MODEL_ARCHITECTURE_H

#include "model/model.h"

#include <ndparallel/model.h>

enum { NDP_TENSOR_NAME = 64, NDP_MOST_OWN = 8 };

/* Architectures that a configuration has beside those of the library; borrowed. */
typedef struct ndp_own_list {
    const ndp_architecture *items[NDP_MOST_OWN];
    int n;
} ndp_own_list;
/* What ndp_config_add_architecture does. */
ndp_status ndp_own_add(ndp_own_list *list, const ndp_architecture *a);

/* What a config.json says of any model. */
typedef struct ndp_model_spec {
    const ndp_architecture_table *architecture;
    void *facts;             /* its own; owned */
    char type[32];           /* model_type */
    int64_t vocab;           /* ids of tokens are below it */
    int hidden;              /* columns of the activations between units */
    ndp_layout_facts layout; /* heads and kv_heads 0: no attention, so they limit no axis */
    int head_dim;            /* the most columns of a head; 0: not known, or no attention */
    int64_t positions;       /* the longest sequence it was made for */
    bool learned_positions;  /* each is a row of a table: there are no more */
    int64_t bos, eos;        /* -1: none */
    double dropout;          /* the largest probability that it asks for */
    int64_t parameters;      /* distinct ones */
    int64_t largest;         /* elements of the largest tensor of its files */
    const char *prefix;      /* what files of the bare model (without a head) leave out of all names; "": nothing */
    /* Of a model of several parts, of which the text is built: its model_type (NULL: it is the whole), and what the
     * names of all of its tensors but the head's begin with ("": nothing else does not). Exports copy the tensors of
     * other parts from the model folder, unread. */
    const char *composite, *text;
    const char *alias; /* what files may have in place of `prefix`; NULL: nothing */
    /* Two tensors that config.json makes one, but files may hold apart: the embedding, the head. "": it ties none. */
    char tie[2][NDP_TENSOR_NAME];
    /* Modules behind the last layer that are not built: exports copy their tensors from the model folder, unread. */
    int carried;
    const char
        *packed;   /* what config.json says is packed in the folder, and is dequantised where it is read; or NULL */
    bool own_head; /* the weights hold the head that config.json ties: it is a tensor of its own */
    bool rewards;  /* config.json is that of a reward model: its head is `score` */
    /* The key that config.json lacks, where `dropout` is the family's own; NULL: config.json says it. */
    const char *dropout_lacks;
} ndp_model_spec;

/* One fact as text, for the identity of a run. */
typedef struct ndp_fact {
    const char *key, *value; /* "hidden_size", "64"; value NULL: out of memory */
    bool shape;              /* the shapes of tensors depend on it */
} ndp_fact;
typedef void ndp_fact_visitor(void *user, const ndp_fact *fact);

struct json_object;
struct ndp_architecture_table {
    const char *name;
    size_t facts_size; /* of its own facts, `facts` below: a struct without pointers to memory that it owns */
    bool (*has)(const char *model_type);
    /* From config.json; `what` names it in messages. NDP_ENOTSUP, NDP_EFORMAT: the message has the key and its value.
     */
    ndp_status (*read)(struct json_object *config, const char *what, void *facts);
    /* Fills all of `out` but architecture, facts and own_head; what does not exist keeps its value: 0, no token, no
     * name.
     */
    void (*describe)(const void *facts, ndp_model_spec *out);
    /* The whole model, forward graphs only: ndp_parallel_apply makes of it what a rank computes. It begins with
     * ndp_model_init. NDP_ENOTSUP, NDP_EINVAL: an option that it cannot follow; none is ignored. */
    ndp_status (*build)(const void *facts, const ndp_model_opts *opts, ndp_model *out);
    /* Initial values of `count` elements of a tensor, as files hold it, from `first` on: a function of (seed, name,
     * element). The facts are those of a built model, here and below. */
    void (*random)(const void *facts, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count, float *out);
    /* Calls `visit` with each fact that decides what the model computes. */
    void (*list)(const void *facts, ndp_fact_visitor *visit, void *user);
    /* True for a tensor of files that holds no parameter of its own. NULL: there are none. */
    bool (*ignores)(const void *facts, const char *tensor);
    /* True for a tensor of files that is ignored, and that exports have again: of ndp_model_spec.carried. NULL: there
     * are none. */
    bool (*carries)(const void *facts, const char *tensor);
    /* Whether the two tensors of ndp_model_spec.tie are one. NULL: it names none. */
    void (*set_tied)(void *facts, bool tied);
};

/* Ends with NULL. The first refuses the model types that none has. */
extern const ndp_architecture_table *const ndp_architectures[];

/* Reads config.json. `own` (NULL: none) comes before the architectures of the library. The caller releases `out`.
 * NDP_EIO, and the errors of `read`. */
NDP_API ndp_status ndp_model_spec_read(const char *path, const ndp_own_list *own, ndp_model_spec *out);
/* The same of its text; `what` names it in messages. */
NDP_API ndp_status ndp_model_spec_parse(struct json_object *config, const char *what, const ndp_own_list *own,
                                        ndp_model_spec *out);
/* Where config.json ties the head: says whether the weights hold one of their own nevertheless. */
void ndp_model_spec_set_own_head(ndp_model_spec *s, bool own);
void ndp_model_spec_release(ndp_model_spec *s);

/* NDP_EINVAL: a name in opts->frozen is that of no unit, or nothing is left to train; and the errors of `build`. */
NDP_API ndp_status ndp_model_build(const ndp_model_spec *s, const ndp_model_opts *opts, ndp_model *out);

/* What the architecture says of a built model; nothing in it is owned. */
void ndp_model_describe(const ndp_model *m, ndp_model_spec *out);

#endif
