/* GGUF, the one file of a model that llama.cpp, Ollama and LM Studio run (version 3, little-endian):
 *
 *   "GGUF", version, number of tensors, number of keys
 *   keys       name, type, value: what a model is, and its tokenizer
 *   tensors    name, extents (the innermost first), type, offset in the data
 *   the data   each tensor at a multiple of 32 bytes
 *
 * Names and values are those that llama.cpp's convert_hf_to_gguf.py writes. A file is a list of keys and of tensors,
 * made from a Hugging Face folder (gguf_tensors.c, gguf_keys.c, gguf_tokenizer.c), then written tensor by tensor in
 * pieces (gguf_file.c), so the memory does not depend on the model's size. */
#ifndef NDP_WEIGHTS_GGUF_H
#define NDP_WEIGHTS_GGUF_H

#include "checkpoint/folder.h"
#include "model/facts.h"
#include "text/tokenizer.h"

/* Numbers as files have them. */
typedef enum ndp_gguf_type { NDP_GGUF_F32 = 0, NDP_GGUF_F16 = 1, NDP_GGUF_Q8_0 = 8, NDP_GGUF_BF16 = 30 } ndp_gguf_type;
enum { NDP_GGUF_U32 = 4, NDP_GGUF_I32 = 5, NDP_GGUF_FLOAT = 6, NDP_GGUF_BOOL = 7, NDP_GGUF_TEXT = 8 };
enum { NDP_GGUF_DIMS = 4, NDP_GGUF_BLOCK = 32, NDP_GGUF_BLOCK_BYTES = 34, NDP_GGUF_ALIGN = 32 };

#define NDP_GGUF_SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's space */

/* A tensor of the file: the elements of `members` tensors of the folder, one after the other. An element of a member is
 * at `first` plus, for each of four indices, the index times the stride; the first index runs fastest. So transposing,
 * cutting and reordering rows are numbers. */
typedef struct ndp_gguf_tensor {
    const char *name;
    ndp_gguf_type type;
    int dims;
    int64_t shape[NDP_GGUF_DIMS]; /* in the file, the innermost first */
    const char *const *members;   /* [n_members], names in the folder; NULL: `values` */
    int n_members;
    int64_t first, extent[NDP_GGUF_DIMS], stride[NDP_GGUF_DIMS];
    float add;           /* to every element */
    const float *values; /* computed here */
} ndp_gguf_tensor;

typedef struct ndp_gguf {
    ndp_arena arena;
    ndp_str keys; /* as the file has them */
    int64_t n_keys;
    ndp_gguf_tensor *tensors;
    int64_t n, capacity;
    ndp_gguf_type type; /* of matrices */
    /* What it is made from; borrowed. */
    const char *folder;
    const ndp_weights *weights;
    const ndp_facts *facts;
    const struct ndp_gguf_family *family;
} ndp_gguf;

/* A family that llama.cpp reads, and what its converter and its code do with it that others do not. */
typedef enum ndp_gguf_trait {
    NDP_GGUF_TURNED = 1,          /* rows of queries and keys go to where pairs of neighbours turn */
    NDP_GGUF_POST_NORM = 2,       /* the norm before the MLP is named after the attention */
    NDP_GGUF_WINDOWS = 4,         /* windows are keys; without it every layer sees all keys */
    NDP_GGUF_SUMS = 8,            /* weights of choices are divided by their sum, without it they are not, */
    NDP_GGUF_ROUTER_KEYS = 16,    /* or as keys say */
    NDP_GGUF_SCALES = 32,         /* granite's multipliers are keys */
    NDP_GGUF_LOG_MULTIPLIER = 64, /* yarn's mscale_all_dim is a key */
    NDP_GGUF_HEAD = 128,          /* a tied head is a tensor of its own, */
    NDP_GGUF_NO_HEAD = 256        /* or every head is tied */
} ndp_gguf_trait;
typedef struct ndp_gguf_family {
    const char *type, *architecture; /* model_type; llama.cpp's name */
    unsigned traits;
} ndp_gguf_family;

/* NDP_ENOTSUP lists the families that there are. */
NDP_API ndp_status ndp_gguf_family_find(const char *type, const ndp_gguf_family **out);
/* The type of a word: "fp32", "f16", "bf16", "q8_0". NDP_EINVAL lists them. */
NDP_API ndp_status ndp_gguf_type_parse(const char *word, ndp_gguf_type *out);

/* gguf_tensors.c: lists the tensors of g->weights. NDP_EFORMAT names one that has no place. */
NDP_API ndp_status ndp_gguf_list_tensors(ndp_gguf *g);
/* gguf_keys.c: what the model is; `name` for people. Warns of what llama.cpp computes in another way. */
ndp_status ndp_gguf_model_keys(ndp_gguf *g, const char *name);
/* gguf_tokenizer.c: the tokenizer of g->folder; without one, the file is of ids alone, with a warning. NDP_ENOTSUP
 * names what llama.cpp does not have. */
ndp_status ndp_gguf_tokenizer_keys(ndp_gguf *g);

/* gguf_words.c: of a parsed tokenizer.json how words are found. Byte-level, or SentencePiece's, or of bytes alone. */
typedef enum ndp_gguf_words { NDP_GGUF_BYTE_LEVEL, NDP_GGUF_PIECES, NDP_GGUF_BYTES } ndp_gguf_words;
struct json_object;
ndp_status ndp_gguf_words_keys(ndp_gguf *g, struct json_object *root, ndp_gguf_words *kind);

/* ---- gguf_file.c ---- */

void ndp_gguf_put_u32(ndp_gguf *g, const char *key, int64_t value);
void ndp_gguf_put_float(ndp_gguf *g, const char *key, double value);
void ndp_gguf_put_bool(ndp_gguf *g, const char *key, bool value);
void ndp_gguf_put_text(ndp_gguf *g, const char *key, const char *text, size_t n);
/* Begins a list of n values of a type, which follow as bytes: ndp_gguf_add_text, or ndp_str_add_bytes on g->keys. */
void ndp_gguf_put_list(ndp_gguf *g, const char *key, int type, int64_t n);
void ndp_gguf_add_text(ndp_gguf *g, const char *text, size_t n);

/* Blocks of 32 numbers: d, a half, and 32 signed bytes, of which each number is d times one. d is the largest magnitude
 * / 127; halves are rounded away from zero, as the Q8_0 of llama.cpp's gguf package does. */
void ndp_gguf_encode_q8_0(const float *x, int64_t blocks, unsigned char *out);
/* Writes the file, which must not exist; it is durable afterwards. NDP_EIO, NDP_EFORMAT: a number is not finite, or
 * beyond fp16's range. */
NDP_API ndp_status ndp_gguf_write(const ndp_gguf *g, const char *path);
/* A whole model folder as the file `path`, which must not exist. */
NDP_API ndp_status ndp_gguf_convert(const char *folder, const char *name, ndp_gguf_type type, const char *path,
                                    int64_t *tensors);
void ndp_gguf_release(ndp_gguf *g);

#endif
