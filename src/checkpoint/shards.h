/* A list of tensors divided into safetensors files (shards), and writing them with all ranks. Internal to the room: an
 * export (folder.h) and a checkpoint (checkpoint.h) are both this, plus their own renames.
 *
 * A single file is STEM.safetensors; several are STEM-00001-of-0000N.safetensors and STEM.safetensors.index.json, the
 * names that Hugging Face uses. Each file is divided into chunks (manifest.h): its header, then every tensor by itself
 * in ranges of NDP_CHUNK_BYTES. Both divisions are functions of the list alone, not of the layout of ranks.
 *
 * A chunk is written by one rank with one call, which also hashes it. The ranks that hold elements of it send them to
 * that rank (exchange.c), so that a tensor cut by columns is not written row by row. */
#ifndef NDP_CHECKPOINT_SHARDS_H
#define NDP_CHECKPOINT_SHARDS_H

#include "base/arena.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

enum { NDP_CHUNK_BYTES = 4 << 20 };

typedef struct ndp_shard_file {
    char name[64];
    const char *stem;
    ndp_tensor_spec *specs; /* [n], in the order of the list */
    int n;
    int64_t data_bytes, bytes; /* of its tensors; of the file */
    ndp_chunk *chunks;         /* the first one is the header; hashes are set by writing */
    int64_t n_chunks;
} ndp_shard_file;

/* A chunk's elements: [first, first + count) of a tensor. Listed in the order of files, and of offsets in them. */
typedef struct ndp_shard_part {
    int file, tensor; /* indices: of the file, of the tensor in the list */
    int64_t first, count;
    ndp_chunk *chunk;
} ndp_shard_part;

typedef struct ndp_shards {
    const ndp_tensor_spec *specs; /* the caller's list */
    int n;
    ndp_shard_file *files;
    int n_files;
    int *file_of, *place; /* for each tensor of the list: its file, and its index there */
    ndp_shard_part *parts;
    int64_t n_parts;
    ndp_manifest_file *indices; /* as written by rank 0; at most one per stem */
    int n_indices;
    double hashing; /* seconds that this rank spent hashing */
    ndp_arena arena;
} ndp_shards;

/* Divides the list into files of at most `max_bytes` of data (a larger tensor has a file of its own). Tensors whose
 * names start with "STEM." for one of `stems` go into files of that stem, all others into files of stems[0]. Borrows
 * the list; the stems are literals. `*s` must be {0}; the caller releases it, also on failure. */
NDP_API ndp_status ndp_shards_plan(ndp_shards *s, const ndp_tensor_spec *specs, int n, const char *const *stems,
                                   int n_stems, int64_t max_bytes);
void ndp_shards_release(ndp_shards *s);

/* Collective: writes all files into `folder`, which exists and has none of them. The pieces of all ranks must hold
 * every element of every tensor exactly once; otherwise NDP_EBUG names the tensor. After success all bytes are durable,
 * the index files are written, all ranks know the hash of every chunk with elements, and rank 0 those of headers and
 * indices. All ranks return the same status. */
NDP_API ndp_status ndp_shards_write(ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces,
                                    int n_pieces);

/* exchange.c, for ndp_shards_write. Collective: writes the parts of the files, which rank 0 has created. */
NDP_API ndp_status ndp_shards_gather(ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces,
                                     int n_pieces);

/* The chunks that this rank writes, for a background save. */
typedef struct ndp_shard_copy {
    char *data;     /* one after the other; NULL: none is taken, only `bytes` is set */
    int64_t bytes;  /* space at `data`; then what is in it */
    int64_t *parts; /* [n], in the order of the files; of the plan's arena */
    int64_t n;
} ndp_shard_copy;

/* The parts of ndp_shards_write, where what is saved is copied first. Collective: checks the pieces and creates the
 * files, which are not durable yet; copies them. */
NDP_API ndp_status ndp_shards_create(ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces,
                                     int n_pieces);
NDP_API ndp_status ndp_shards_copy(ndp_shards *s, ndp_comm *world, const ndp_file_piece *pieces, int n_pieces,
                                   ndp_shard_copy *copy);
/* Not collective: hashes the copy and writes it, durably; rank 0: makes the files as they were created durable. */
ndp_status ndp_shards_write_copy(ndp_shards *s, const char *folder, const ndp_shard_copy *copy);
ndp_status ndp_shards_sync(const ndp_shards *s, const char *folder);
/* Collective: shares the hash of each chunk with elements, which its writer knows: `own` are the n parts of this rank.
 */
ndp_status ndp_shards_share_hashes(ndp_shards *s, ndp_comm *world, const int64_t *own, int64_t n);
/* Rank 0: writes the index files. */
ndp_status ndp_shards_write_indices(ndp_shards *s, const char *folder);

/* System calls around writing. They pass the fault points; errors name path and cause. */
/* The error of creating or writing a file of so many bytes, from `errno`; of a full disk with the space it has. */
NDP_API ndp_status ndp_write_failed(const char *path, int64_t bytes);
/* Reserves all space of a new file; on a file system that cannot, only sets the size. -1 with errno. */
NDP_API int ndp_file_reserve(int fd, int64_t size);
NDP_API ndp_status ndp_durable_rename(const char *from, const char *to);
/* Renames, unless `to` exists (*taken). File systems that cannot do this atomically check first. */
ndp_status ndp_rename_new(const char *from, const char *to, bool *taken);
NDP_API ndp_status ndp_durable_folder(const char *path);
/* Creates an empty folder, replacing what a killed run may have left under that name. */
NDP_API ndp_status ndp_fresh_folder(const char *path);
/* Removes what a failure left behind, as far as possible; keeps the message of the failure `st`. */
void ndp_remove_quietly(const char *folder, ndp_status st);

#endif
