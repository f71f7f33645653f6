/* A model of one's own, that no family has: an architecture is a few functions of a program, given to a configuration.
 * Training, plans, proofs and checkpoints of that configuration know it then. The rules of ndparallel.h hold; all
 * functions and types here are there since 0.2.
 *
 *     static const ndp_architecture mine = {sizeof mine, "mine", sizeof(my_facts), my_read, my_build, NULL};
 *     ndp_config_add_architecture(c, &mine);      // a config.json with "model_type": "mine" is one of these
 *
 * examples/own_model.c is a whole one, docs/guide/your-own-model.md the guide. */
#ifndef NDPARALLEL_MODEL_H
#define NDPARALLEL_MODEL_H

#include <ndparallel/ndparallel.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Every struct that is passed in begins with its size, so that a later version may have more members. This makes the
 * options of a function below: NDP_OPTS(ndp_linear_opts, .name = "up", .columns = 512). */
#define NDP_OPTS(type, ...) (&(type){sizeof(type), __VA_ARGS__})

/* ---- an architecture ---- */

/* A config.json while it is read, and a model while it is built. Valid during the call that gets it. */
typedef struct ndp_model_json ndp_model_json;
typedef struct ndp_model_builder ndp_model_builder;

/* Elements of a tensor that are to be drawn. */
typedef struct ndp_drawn {
    size_t size;
    const char *name;     /* as files have it: "blocks.0.up.weight" */
    int dimensions;       /* 1: a vector, of shape[1]; 2: a matrix */
    int64_t shape[2];     /* rows and columns of the whole tensor */
    int64_t first, count; /* which elements, row by row */
    uint64_t seed;        /* train.seed */
} ndp_drawn;

enum { NDP_FACTS_BYTES = 1024 };

typedef struct ndp_architecture {
    size_t size;
    const char *name;  /* the "model_type" of its config.json; at most 31 characters */
    size_t facts_size; /* of its facts: a struct without pointers, of at most NDP_FACTS_BYTES */
    /* Reads the facts, which are all 0 at first, from config.json, by the functions below. The library itself reads
     * "max_position_embeddings", which is needed, "bos_token_id" and "eos_token_id". */
    void (*read)(ndp_model_json *config, void *facts);
    /* Builds the model of these facts, by the functions below. It is called often, by several threads at once, and must
     * do the same for the same facts. */
    void (*build)(const void *facts, ndp_model_builder *b);
    /* Sets the first values of d->count elements: a function of (seed, name, element) alone, however they are cut into
     * calls. NULL: matrices are normal with deviation 0.02, biases 0, norms 1. */
    void (*random)(const void *facts, const ndp_drawn *d, float *out);
} ndp_architecture;

/* The configuration, and copies of it that the library makes, know the architecture from now on. It is borrowed: it
 * lives as long as the configuration, its worlds and its trainers. All ranks add the same. The program `ndparallel` and
 * configurations without it refuse its models by name. NDP_EINVAL: a member that is missing or too large, the name of a
 * family or of one that was added, or a ninth one. */
NDP_API ndp_status ndp_config_add_architecture(ndp_config *c, const ndp_architecture *a);

/* ndp_checkpoint_export of a run of that architecture, which RUN/job.yaml cannot name. */
NDP_API ndp_status ndp_architecture_export(const ndp_architecture *a, const char *run, int64_t step, const char *folder,
                                           int64_t *exported);

/* `count` elements from `first` on of a normal distribution with mean 0, as a function of (seed, name, element): for
 * ndp_architecture.random. */
void ndp_draw_normal(const ndp_drawn *d, double deviation, float *out);

/* ---- reading config.json ---- */

/* Each returns the value of a key, which is needed and is one of the facts that identify a run: a checkpoint is resumed
 * with the same ones. A missing key, another type, or a value beyond the bounds is NDP_EFORMAT, which names it; then,
 * and after any error, they return 0. */
int64_t ndp_model_json_int(ndp_model_json *config, const char *key, int64_t least, int64_t most);
double ndp_model_json_number(ndp_model_json *config, const char *key, double least, double most);
bool ndp_model_json_flag(ndp_model_json *config, const char *key);
/* Which of `n` words the text is: its place among them. */
int ndp_model_json_word(ndp_model_json *config, const char *key, const char *const *words, int n);
/* Whether there is such a key, other than null. */
bool ndp_model_json_has(ndp_model_json *config, const char *key);
/* Refuses the facts: the message of NDP_EFORMAT, as printf formats it. The first error of a call counts. */
__attribute__((format(printf, 2, 3))) void ndp_model_json_fail(ndp_model_json *config, const char *format, ...);

/* ---- building a model ----
 *
 * A model is a list of units: the embedding, one block or more, the head. A unit begins with ndp_build_unit; then each
 * function below adds an op, declares the tensors that it reads, and returns its result: a number above 0 that is valid
 * until the unit ends. T rows (tokens) are in each value. A tensor is called UNIT.NAME.weight, with a bias
 * UNIT.NAME.bias. Units that compute the same share a graph; a model has at most 18 that differ.
 *
 * Errors are kept: the first one is reported once build returns, as NDP_EINVAL with the name of the unit, and what
 * follows it returns 0.
 *
 * Tensor parallelism cuts a product by its columns where its options say so, or as its operand is cut already: the
 * next product (ndp_build_linear) sums over the ranks. What is cut may meet gelu, causal_conv, and the sum with what is
 * cut alike; norms, the head and the end of a unit need whole columns. An op that mixes rows (causal_conv) is refused
 * by name where an axis cuts rows: cp, sp, and tp unless its operand's columns are cut or parallelism
 * .tp_sequence_parallel is false. */

/* Ends the unit before, with x as its result, and begins another one; returns the result as the new unit's first value.
 * The first unit has none: x is 0 and it returns 0. `format`, as of printf, makes the name: letters, digits, '.', '_',
 * '-', at most 63. */
__attribute__((format(printf, 3, 4))) int ndp_build_unit(ndp_model_builder *b, int x, const char *format, ...);

/* The rows of a table [rows, columns] that the tokens name -> [T, columns]. Begins the first unit; the columns are
 * those between all units, the rows the vocabulary. */
typedef struct ndp_embedding_opts {
    size_t size;
    const char *name;
    int64_t rows, columns;
} ndp_embedding_opts;
int ndp_build_embedding(ndp_model_builder *b, const ndp_embedding_opts *o);

typedef enum ndp_norm_kind { NDP_NORM_RMS, NDP_NORM_LAYER } ndp_norm_kind;
/* x [T,C] -> [T,C]: RMS norm, or layer norm. */
typedef struct ndp_norm_opts {
    size_t size;
    const char *name;
    ndp_norm_kind kind;
    double eps; /* 0: 1e-5 */
    bool bias;  /* of a layer norm */
} ndp_norm_opts;
int ndp_build_norm(ndp_model_builder *b, int x, const ndp_norm_opts *o);

/* x [T,K] -> x w^T [T,columns] with w [columns, K]. Adapters and packed weights apply to it in blocks. */
typedef struct ndp_linear_opts {
    size_t size;
    const char *name;
    int64_t columns;
    bool bias;
    bool cut; /* tensor parallelism cuts the columns of the result; x is not cut */
} ndp_linear_opts;
int ndp_build_linear(ndp_model_builder *b, int x, const ndp_linear_opts *o);

typedef enum ndp_gated_kind { NDP_GATED_SILU, NDP_GATED_GELU } ndp_gated_kind;
/* x [T,K] -> act(x g^T) * (x u^T) [T,columns]: two products, g and u [columns, K], with a gated activation. The result
 * is cut by its columns. */
typedef struct ndp_gated_opts {
    size_t size;
    const char *gate, *up; /* names; NULL: "gate", "up" */
    int64_t columns;
    ndp_gated_kind activation;
    bool bias;
} ndp_gated_opts;
int ndp_build_gated(ndp_model_builder *b, int x, const ndp_gated_opts *o);

/* x [T,C] -> [T, heads * head_dim]: causal attention within documents, from three products of x, NAME.q, NAME.k and
 * NAME.v, q and k turned by RoPE. The result is cut by its heads. All attention of a model has the same heads, and at
 * most two tables of angles. */
typedef struct ndp_attention_opts {
    size_t size;
    const char *name;
    int heads, kv_heads; /* kv_heads 0: as many; heads is a multiple of them */
    int head_dim;
    int window;        /* a token sees this many latest ones, itself included; 0: all */
    double scale;      /* of scores; 0: 1 / sqrt(head_dim) */
    double rope_theta; /* 0: no RoPE */
    int rotary_dim;    /* columns of each head that turn, the first: an even number; 0: all */
    bool bias;
} ndp_attention_opts;
int ndp_build_attention(ndp_model_builder *b, int x, const ndp_attention_opts *o);

/* x [T,C] -> [T,C]: each column filtered by its own taps over the rows before it in its document. w [taps, C]: row j
 * weighs the row j back. */
typedef struct ndp_conv_opts {
    size_t size;
    const char *name;
    int taps;
} ndp_conv_opts;
int ndp_build_causal_conv(ndp_model_builder *b, int x, const ndp_conv_opts *o);

/* x -> gelu(x), the tanh form; x + y. */
int ndp_build_gelu(ndp_model_builder *b, int x);
int ndp_build_add(ndp_model_builder *b, int x, int y);
/* x -> factor x, in the memory of x, which nothing else may read; not of a unit's first value or attention's result. */
int ndp_build_scale(ndp_model_builder *b, int x, double factor);

/* Ends the last unit: logits x w^T and the loss of tokens. */
typedef struct ndp_head_opts {
    size_t size;
    const char *name; /* of its matrix [vocabulary, C]; NULL: that of the embedding (tied) */
} ndp_head_opts;
void ndp_build_head(ndp_model_builder *b, int x, const ndp_head_opts *o);

/* Refuses to build: the message of NDP_EINVAL, as printf formats it. */
__attribute__((format(printf, 2, 3))) void ndp_build_fail(ndp_model_builder *b, const char *format, ...);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
