/* A list of tensors cut into safetensors files, and the writing of those files by all ranks together. Internal to the
 * room: an export (folder.h) and a checkpoint (checkpoint.h) are both this, plus who renames what.
 *
 * One file is STEM.safetensors; several are STEM-00001-of-0000N.safetensors and STEM.safetensors.index.json, as Hugging
 * Face names them. Each file is cut into chunks (manifest.h): its header, then every tensor by itself, in ranges of
 * NDP_CHUNK_BYTES. Both cuts are functions of the list alone; no layout of ranks changes them.
 *
 * A chunk is written by one rank, whole and at once, and hashed by it on the way. The ranks that hold parts of it send
 * them to that rank (gather.c), so that a tensor cut by columns is not written row by row. */
#ifndef NDP_CHECKPOINT_SHARDS_H
#define NDP_CHECKPOINT_SHARDS_H

#include "base/arena.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

enum { NDP_CHUNK_BYTES = 4 << 20 };

typedef struct ndp_shard_file {
    char name[64];
    const char *stem;
    ndp_tensor_spec *specs; /* n of them, in the order of the list */
    int n;
    int64_t data_bytes, bytes; /* of its tensors; of the file */
    ndp_chunk *chunks;         /* the first is the header; hashes are known once the file is written */
    int64_t n_chunks;
} ndp_shard_file;

/* The chunks that hold elements: [first, first + count) of a tensor. In the order of files, and of offsets in them. */
typedef struct ndp_shard_part {
    int file, tensor; /* of the list */
    int64_t first, count;
    ndp_chunk *chunk;
} ndp_shard_part;

typedef struct ndp_shards {
    const ndp_tensor_spec *specs; /* the caller's list */
    int n;
    ndp_shard_file *files;
    int n_files;
    int *file_of, *place; /* of each tensor of the list: its file, and its number there */
    ndp_shard_part *parts;
    int64_t n_parts;
    ndp_manifest_file *indices; /* as written by rank 0; at most one a stem */
    int n_indices;
    double hashing; /* seconds that this rank has hashed */
    ndp_arena arena;
} ndp_shards;

/* Cuts the list into files of at most `max_bytes` of data (a larger tensor has a file of its own). Tensors whose name
 * begins with "STEM." for one of `stems` go into files of that stem, all others into files of stems[0]. Borrows the
 * list; the stems are literals. `*s` is {0} before, and is released by the caller also when this fails. */
NDP_API ndp_status ndp_shards_plan(ndp_shards *s, const ndp_tensor_spec *specs, int n, const char *const *stems,
                                   int n_stems, int64_t max_bytes);
void ndp_shards_release(ndp_shards *s);

/* Collective: writes all files into `folder`, which exists and holds none of them. The pieces of all ranks must hold
 * every element of every tensor exactly once; what does not add up is NDP_EBUG and names the tensor. After success all
 * bytes are durable, the index files are written too, and all ranks know the hash of every chunk with elements, rank 0
 * those of headers and indices. All ranks return alike. */
NDP_API ndp_status ndp_shards_write(ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces,
                                    int n_pieces);

/* gather.c, for ndp_shards_write. Collective: the parts of the files, which rank 0 has created. */
NDP_API ndp_status ndp_shards_gather(ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces,
                                     int n_pieces);

/* Calls of the system around what was written. They pass the fault points, and name path and cause. */
NDP_API ndp_status ndp_durable_rename(const char *from, const char *to);
NDP_API ndp_status ndp_durable_folder(const char *path);
/* An empty folder, in place of what a killed run may have left of that name. */
NDP_API ndp_status ndp_fresh_folder(const char *path);
/* Removes what a failure left behind, as far as it goes; the message of the failure `st` stays. */
void ndp_remove_quietly(const char *folder, ndp_status st);

#endif
