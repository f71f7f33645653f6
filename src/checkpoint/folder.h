/* A Hugging Face folder of weights as one set of named tensors: model.safetensors, or shards listed in
 * model.safetensors.index.json. Opening it checks every file completely (see safetensors.h), and that every tensor is
 * in the shard that the index names. */
#ifndef NDP_CHECKPOINT_FOLDER_H
#define NDP_CHECKPOINT_FOLDER_H

#include "base/arena.h"
#include "base/hash128.h"
#include "base/text.h"
#include "checkpoint/lock.h"
#include "checkpoint/safetensors.h"
#include "comm/comm.h"
#include "tensor/segments.h"

/* ---- reading ---- */

typedef struct ndp_weights ndp_weights;

NDP_API ndp_status ndp_weights_open(const char *folder, ndp_weights **out);
/* Whether there are weights to open: the folder may contain only a config.json. */
bool ndp_weights_exist(const char *folder);
/* NDP_EINVAL for a model folder or file of a kind that is not read, a LoRA adapter or GGUF: says what to use instead. A
 * path that does not exist, or anything else, is NDP_OK. */
NDP_API ndp_status ndp_model_folder_refuse(const char *path);
/* The same as a check, which keeps nothing open: NDP_EIO names the missing files and how to get it. */
NDP_API ndp_status ndp_weights_check_files(const char *folder);
/* The same for files named STEM instead of model. */
NDP_API ndp_status ndp_weights_open_stem(const char *folder, const char *stem, ndp_weights **out);
/* The same for all files STEM*.safetensors, without an index. NDP_EFORMAT: a tensor is in two of them. */
NDP_API ndp_status ndp_weights_open_all(const char *folder, const char *stem, ndp_weights **out);
void ndp_weights_close(ndp_weights *w);

/* How a model names its tensors. The files of a bare model omit `prefix` in all names: if no name starts with it, it is
 * put before all names but lm_head's. With a `text` (PREFIX WORD "."; "": there is none), the model is the text of one
 * of several parts, and names of files are those of the text that begin with one of
 *
 *   PREFIX WORD .          model.language_model.layers.0...     and  lm_head.weight
 *   WORD . PREFIX          language_model.model.layers.0...     and  language_model.lm_head.weight
 *   WORD .                 language_model.layers.0...           a bare model
 *   PREFIX                 model.layers.0...                    and  lm_head.weight
 *
 * the first of them that there is: they become those of the first row. Others stay. NDP_EFORMAT: there are names of the
 * first and of the second row. Without a text, files may have an `alias` in place of the prefix: NULL, they may not.
 * NDP_ENOMEM. */
typedef struct ndp_naming {
    const char *prefix, *text, *alias;
} ndp_naming;
NDP_API ndp_status ndp_weights_rename(ndp_weights *w, const ndp_naming *n);
/* The name that files have for a tensor of the text, which became `name`: the same, or one from the arena; NULL: no
 * memory. */
const char *ndp_weights_file_name(const ndp_weights *w, ndp_arena *arena, const char *name);

/* Where the set has `tensor`, and it is the members of a stack, a pattern, one after the other, [n, rows of all words,
 * columns]: takes it as a tensor for each member, as the pattern names them. Of another shape it stays. NDP_ENOMEM. */
NDP_API ndp_status ndp_weights_unstack(ndp_weights *w, const char *tensor, const ndp_segment *members);

/* Where the set lacks `tensor`, [stack, in, out], but has it as MXFP4 (checkpoint/mxfp4.h): takes the two tensors
 * of that as the one, in bf16. Of other shapes they stay. NDP_ENOMEM. */
NDP_API ndp_status ndp_weights_dequantise(ndp_weights *w, const char *tensor, const int64_t shape[3]);

/* True for a tensor that a model may ignore, such as a tied lm_head.weight. */
typedef bool ndp_weights_ignore(const char *name, void *arg);

/* Takes packed matrices (checkpoint/packed_forms.h) as ones of bf16, or of the type that is stated beside them. Tensors
 * of types that cannot
 * be converted, of those that `stays` names, can be read as bits, and are written as what they are. NDP_ENOMEM. */
NDP_API ndp_status ndp_weights_widen(ndp_weights *w, ndp_weights_ignore *stays, void *arg);

/* Whether files have that matrix of so many elements as nf4 with nested scales, as it is packed here: then its part
 * SCALES goes to `codes`, and its part NESTED to `nested` (tensor/packed.h). */
NDP_API bool ndp_weights_nf4(const ndp_weights *w, const char *name, int64_t elements, uint8_t *codes, float *nested);

/* As it was opened; borrowed. */
const char *ndp_weights_folder(const ndp_weights *w);
int ndp_weights_count(const ndp_weights *w);
/* Sorted by name; borrowed. */
const ndp_tensor_entry *ndp_weights_at(const ndp_weights *w, int i);
/* NULL: there is no tensor of that name. */
const ndp_tensor_entry *ndp_weights_find(const ndp_weights *w, const char *name);
/* Elements [first, first + count) of tensor `name`, as ndp_safetensors_read gives them. NDP_EFORMAT: no such tensor. */
NDP_API ndp_status ndp_weights_read(const ndp_weights *w, const char *name, int64_t first, int64_t count, void *dest,
                                    ndp_dtype type, bool finite);

/* Whether two tensors of a set have the same shape and values, as fp64; 0 equals -0, NaN nothing. */
NDP_API ndp_status ndp_weights_same(const ndp_weights *w, const ndp_tensor_entry *a, const ndp_tensor_entry *b,
                                    bool *same);

/* Gives the memory of these elements back: they are read from the file again when they are needed. */
void ndp_weights_forget(const ndp_weights *w, const char *name, int64_t first, int64_t count);

/* NDP_EIO names a file that lost bytes since the set was opened (see ndp_safetensors_check). Call it after reading,
 * before use. */
NDP_API ndp_status ndp_weights_intact(const ndp_weights *w);

/* Appends to `out` in what a set differs from the tensors `expected` (names and shapes; any float type is fine), with
 * up to 5 names each: missing tensors, those with another shape or an unreadable type, and unexpected ones; nothing if
 * it does not. Ignores what ndp_weights_check ignores. NDP_ENOMEM. */
NDP_API ndp_status ndp_weights_compare(const ndp_weights *w, const ndp_tensor_spec *expected, int n,
                                       ndp_weights_ignore *ignore, void *arg, ndp_str *out);
/* Checks that the folder contains exactly the tensors `expected`: NDP_EFORMAT says in one message what is wrong.
 * Buffers "...rotary_emb.inv_freq" are always ignored, others if `ignore` (may be NULL) says so. */
NDP_API ndp_status ndp_weights_check(const ndp_weights *w, const ndp_tensor_spec *expected, int n,
                                     ndp_weights_ignore *ignore, void *arg);

/* ---- writing ---- */

/* Elements that are not in the host's memory (on a device): `read` copies n of them into `out`, starting at element
 * `first` and `stride` apart. */
typedef struct ndp_piece_source {
    ndp_status (*read)(void *user, int64_t first, int64_t n, int64_t stride, void *out);
    void *user;
} ndp_piece_source;

/* Elements [first, first + count) of tensor number `tensor` of a list, held by this rank. */
typedef struct ndp_file_piece {
    int tensor;
    int64_t first, count;
    const void *data;
    ndp_dtype dtype;                /* of the elements; the file has the tensor's type */
    int64_t stride;                 /* distance between elements (0: 1) */
    const ndp_piece_source *source; /* in place of `data`, borrowed; NULL: none */
    int64_t at;                     /* index of the first one in the source */
} ndp_file_piece;

#define NDP_SHARD_BYTES (5000000000LL) /* as transformers' save_pretrained */

/* Collective over `world` (NULL: one rank): writes `specs` as a weights folder. `folder` is created if missing; other
 * files in it are left alone, and older weights are replaced only after all new ones are durable. The pieces of all
 * ranks together hold every element exactly once (of replicas, one rank contributes). All ranks return the same status.
 * Under a lock that rank 0 holds (NULL: none): if it is no longer held, older weights stay and nothing is removed. */
NDP_API ndp_status ndp_weights_save(ndp_comm *world, const ndp_lock *lock, const char *folder,
                                    const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces, int n_pieces,
                                    int64_t max_shard_bytes);
/* The same for files named `stem`, a literal, instead of model. */
NDP_API ndp_status ndp_weights_save_stem(ndp_comm *world, const ndp_lock *lock, const char *folder, const char *stem,
                                         const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces,
                                         int n_pieces, int64_t max_shard_bytes);
/* The hash of all tensors: names, types, shapes and values. Reads all of it. NDP_EIO. */
NDP_API ndp_status ndp_weights_hash(const ndp_weights *w, ndp_hash128 *out);
/* Of a model folder. */
NDP_API ndp_status ndp_weights_hash_folder(const char *folder, ndp_hash128 *out);

#endif
