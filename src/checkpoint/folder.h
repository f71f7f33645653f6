/* A Hugging Face folder of weights as one set of named tensors: model.safetensors, or shards named by
 * model.safetensors.index.json. Opening it checks every file whole (see safetensors.h) and that every tensor lies in
 * the shard that the index says. */
#ifndef NDP_CHECKPOINT_FOLDER_H
#define NDP_CHECKPOINT_FOLDER_H

#include "checkpoint/lock.h"
#include "checkpoint/safetensors.h"
#include "comm/comm.h"

/* ---- reading ---- */

typedef struct ndp_weights ndp_weights;

NDP_API ndp_status ndp_weights_open(const char *folder, ndp_weights **out);
/* Whether there is anything to open: config.json may be there alone. */
bool ndp_weights_exist(const char *folder);
/* The same where it has to be: NDP_EIO names what is missing and how to get it. Opens nothing. */
NDP_API ndp_status ndp_weights_find_files(const char *folder);
/* The same for files named STEM instead of model. */
NDP_API ndp_status ndp_weights_open_stem(const char *folder, const char *stem, ndp_weights **out);
void ndp_weights_close(ndp_weights *w);

/* Files of a bare model leave out `prefix` of all names: where no name begins with it, it is put before all of them
 * save lm_head's. NDP_ENOMEM. */
NDP_API ndp_status ndp_weights_prefix(ndp_weights *w, const char *prefix);

int ndp_weights_count(const ndp_weights *w);
/* Sorted by name; borrowed. */
const ndp_tensor_entry *ndp_weights_at(const ndp_weights *w, int i);
/* NULL when there is none of that name. */
const ndp_tensor_entry *ndp_weights_find(const ndp_weights *w, const char *name);
/* Elements [first, first + count) of tensor `name`, as ndp_safetensors_read gives them. NDP_EFORMAT: no such tensor. */
NDP_API ndp_status ndp_weights_read(const ndp_weights *w, const char *name, int64_t first, int64_t count, void *dest,
                                    ndp_dtype type, bool finite);

/* NDP_EIO names a file that lost bytes since the set was opened (see ndp_safetensors_check): after reading, before the
 * use. */
NDP_API ndp_status ndp_weights_intact(const ndp_weights *w);

/* True for a tensor that a model may leave unread: a tied lm_head.weight, say. */
typedef bool ndp_weights_ignore(const char *name, void *arg);

/* Whether the folder holds exactly the tensors `expected` (names and shapes; any float type serves). NDP_EFORMAT lists,
 * in one message, what is missing, what has another shape or a type that cannot be read, and what is there beyond it,
 * up to 5 names of each. Buffers "...rotary_emb.inv_freq" are always ignorable; others are where `ignore` (may be NULL)
 * says so. */
NDP_API ndp_status ndp_weights_check(const ndp_weights *w, const ndp_tensor_spec *expected, int n,
                                     ndp_weights_ignore *ignore, void *arg);

/* ---- writing ---- */

/* Where elements come from that are not in the host's memory: reads n of them, `stride` apart from element `first` on.
 */
typedef struct ndp_piece_source {
    ndp_status (*read)(void *user, int64_t first, int64_t n, int64_t stride, void *out);
    void *user;
} ndp_piece_source;

/* Elements [first, first + count) of tensor number `tensor` of a list, held by this rank. */
typedef struct ndp_file_piece {
    int tensor;
    int64_t first, count;
    const void *data;
    ndp_dtype dtype;                /* of data; the file's is the tensor's */
    int64_t stride;                 /* data holds them so many places apart (0: 1) */
    const ndp_piece_source *source; /* in place of `data`; NULL: none. Borrowed */
    int64_t at;                     /* the place of the first one in the source */
} ndp_file_piece;

#define NDP_SHARD_BYTES (5000000000LL) /* as transformers' save_pretrained */

/* Collective over `world` (NULL: one rank): writes `specs` as a weights folder. `folder` is made if need be; other
 * files in it are left alone, older weights are replaced only once all new ones are durable. The pieces of all ranks
 * hold every element exactly once: of replicas one rank gives its own. All ranks return alike. */
NDP_API ndp_status ndp_weights_save(ndp_comm *world, const char *folder, const ndp_tensor_spec *specs, int n,
                                    const ndp_file_piece *pieces, int n_pieces, int64_t max_shard_bytes);
/* The same under a lock that rank 0 holds (NULL: none). Where it is no longer held, older weights stay, and nothing is
 * removed. */
NDP_API ndp_status ndp_weights_save_locked(ndp_comm *world, const ndp_lock *lock, const char *folder,
                                           const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces,
                                           int n_pieces, int64_t max_shard_bytes);

#endif
