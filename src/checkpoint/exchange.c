/* Writing chunks whose elements are spread over ranks. Called by shards_write.c.
 *
 * Every chunk is assembled and written by one rank, its writer, chosen in turn among the ranks that hold at least half
 * as much of it as any rank does. In step i, every writer makes the i-th of its chunks: the others send it the elements
 * that they hold, it adds its own, hashes the chunk and writes it with one call. A rank needs memory for one chunk, one
 * outgoing and one incoming message, whatever the model's size.
 *
 *   step i   for d in 1 .. size - 1:   send to rank + d, receive from rank - d
 *            add own elements, hash, write
 *
 * Invariant: all ranks go through the same steps and distances in the same order, so no two ranks wait for each other.
 * A rank whose writing fails takes part to the end, and the failure is agreed on afterwards.
 *
 * A copy for a background save is made by the same steps: a writer keeps its chunks, one after the other, and hashes
 * and writes them later.
 *
 * A message is the number of its runs, then for each run its offset in the chunk and its size, then the runs' elements
 * in the file's type. Words: a *part* is the elements of one tensor in one chunk; a *run* is where it overlaps a piece
 * that a rank holds (overlap.h). */
#include "base/clock.h"
#include "checkpoint/agree.h"
#include "checkpoint/chunk_writer.h"
#include "checkpoint/overlap.h"

#include <stdlib.h>

typedef struct run_header {
    uint32_t at, bytes; /* within the chunk */
} run_header;

typedef struct gather {
    ndp_shards *s;
    ndp_comm *world; /* NULL: one rank */
    int rank, size;
    ndp_shard_copy *copy; /* takes the chunks; NULL: files do */
    ndp_held_pieces pieces;
    int64_t *order, *begin;  /* rank r writes parts order[begin[r]] .. order[begin[r + 1]] */
    int64_t *held;           /* bytes that this rank holds of each part */
    int64_t *writers;        /* of each part: the rank that writes it */
    int64_t steps;           /* of the rank with the most parts */
    int64_t *sizes, *coming; /* of messages in each step, [rank][step]: to that rank, and from it */
    char *chunk, *out, *in;
    ndp_arena arena; /* of these arrays */
    int64_t in_most; /* capacity of `in` */
    int64_t filled;  /* bytes of the chunk so far */
    ndp_chunk_writer writer;
    ndp_status failed; /* of writing; the exchange goes on for the other ranks */
    char *why;
} gather;

/* ---- messages ---- */

static ndp_dtype stored_type(const gather *g, const ndp_shard_part *part) { return g->s->specs[part->tensor].dtype; }

/* Counts the runs and bytes of a part that this rank holds. */
static int64_t count_runs(const gather *g, const ndp_shard_part *part, int64_t *bytes) {
    int64_t n = 0, elements = 0;
    ndp_overlap o;
    for (int cursor = ndp_overlap_first(&g->pieces, part); ndp_overlap_next(&g->pieces, part, &cursor, &o); n++)
        elements += o.count;
    *bytes = elements * (int64_t)ndp_dtype_size(stored_type(g, part));
    return n;
}

static int64_t message_bytes(const gather *g, const ndp_shard_part *part) {
    int64_t bytes, n = count_runs(g, part, &bytes);
    return n ? (int64_t)sizeof(int64_t) + n * (int64_t)sizeof(run_header) + bytes : 0;
}

static ndp_status pack(gather *g, const ndp_shard_part *part) {
    ndp_dtype stored = stored_type(g, part);
    size_t size = ndp_dtype_size(stored);
    int64_t bytes, n = count_runs(g, part, &bytes), i = 0;
    memcpy(g->out, &n, sizeof n);
    run_header *headers = (run_header *)(g->out + sizeof n);
    char *to = (char *)(headers + n);
    ndp_overlap o;
    for (int cursor = ndp_overlap_first(&g->pieces, part); ndp_overlap_next(&g->pieces, part, &cursor, &o); i++) {
        headers[i] = (run_header){(uint32_t)((size_t)o.at * size), (uint32_t)((size_t)o.count * size)};
        NDP_TRY(ndp_overlap_convert(&o, to, stored));
        to += headers[i].bytes;
    }
    return NDP_OK;
}

/* Adds a message of `size` bytes to the chunk of `part`. It is untrusted: nothing is written out of bounds. */
static ndp_status unpack(gather *g, const ndp_shard_part *part, const char *message, int64_t size, int from) {
    int64_t n, most = (size - (int64_t)sizeof n) / (int64_t)sizeof(run_header);
    memcpy(&n, message, sizeof n);
    const run_header *headers = (const run_header *)(message + sizeof n);
    bool good = part && n >= 0 && n <= most;
    const char *data = (const char *)(headers + (good ? n : 0)), *end = message + size;
    for (int64_t i = 0; good && i < n; i++) {
        good = (int64_t)headers[i].at + headers[i].bytes <= part->chunk->bytes && headers[i].bytes <= end - data;
        if (good)
            memcpy(g->chunk + headers[i].at, data, headers[i].bytes);
        data += good ? headers[i].bytes : 0;
        g->filled += good ? headers[i].bytes : 0;
    }
    return good ? NDP_OK
                : NDP_FAIL(NDP_ECOMM, "a message from rank %d does not fit its chunk; do all ranks run the same build?",
                           from);
}

/* A part that this rank holds alone and in one piece: each block is hashed while it is in the CPU cache. */
static ndp_status hash_own(gather *g, const ndp_shard_part *part, const ndp_overlap *o) {
    enum { BLOCK = 1 << 18 };
    ndp_dtype stored = stored_type(g, part);
    int64_t size = (int64_t)ndp_dtype_size(stored), most = BLOCK / size;
    const ndp_hash_kernel *kernel = ndp_hash_best();
    ndp_hasher hasher;
    kernel->begin(&hasher);
    for (int64_t done = 0, n; done < o->count; done += n) {
        n = o->count - done < most ? o->count - done : most;
        char *to = g->chunk + done * size;
        NDP_TRY(ndp_overlap_convert(&(ndp_overlap){o->piece, o->skip + done, o->at + done, n}, to, stored));
        double start = ndp_thread_now();
        kernel->add(&hasher, to, (size_t)(n * size));
        g->s->hashing += ndp_thread_now() - start;
    }
    part->chunk->hash = kernel->end(&hasher);
    g->filled = part->chunk->bytes;
    return NDP_OK;
}

/* Adds this rank's own elements and, unless it is kept for later, hashes the chunk. */
static ndp_status add_own(gather *g, const ndp_shard_part *part) {
    ndp_dtype stored = stored_type(g, part);
    int64_t size = (int64_t)ndp_dtype_size(stored);
    ndp_overlap o;
    for (int cursor = ndp_overlap_first(&g->pieces, part); ndp_overlap_next(&g->pieces, part, &cursor, &o);
         g->filled += o.count * size) {
        if (o.count == part->count && g->filled == 0 && !g->copy)
            return hash_own(g, part, &o);
        NDP_TRY(ndp_overlap_convert(&o, g->chunk + o.at * size, stored));
    }
    if (g->copy)
        return NDP_OK;
    double start = ndp_thread_now();
    part->chunk->hash = ndp_hash_of(g->chunk, (size_t)part->chunk->bytes);
    g->s->hashing += ndp_thread_now() - start;
    return NDP_OK;
}

/* The part that a rank writes in a step; NULL: it has written all of its parts. */
static const ndp_shard_part *part_of(const gather *g, int rank, int64_t step) {
    int64_t at = g->begin[rank] + step;
    return at < g->begin[rank + 1] ? &g->s->parts[g->order[at]] : NULL;
}

/* Exchanges messages with the ranks at one distance. */
static ndp_status exchange_at(gather *g, int64_t step, int distance) {
    int to = (g->rank + distance) % g->size, from = (g->rank - distance + g->size) % g->size;
    int64_t out = g->sizes[to * g->steps + step], in = g->coming[from * g->steps + step];
    ndp_work sending, receiving;
    if (in < 0 || in > g->in_most || (in && in < (int64_t)sizeof in))
        return NDP_FAIL(NDP_ECOMM, "rank %d announced a message of %lld bytes; do all ranks run the same build?", from,
                        (long long)in);
    if (out) {
        NDP_TRY(pack(g, part_of(g, to, step)));
        NDP_TRY(ndp_send_begin(g->world, g->out, out, to, 0, &sending));
    }
    if (in)
        NDP_TRY(ndp_recv_begin(g->world, g->in, in, from, 0, &receiving));
    if (out)
        NDP_TRY(ndp_wait(&sending));
    if (in) {
        NDP_TRY(ndp_wait(&receiving));
        NDP_TRY(unpack(g, part_of(g, g->rank, step), g->in, in, from));
    }
    return NDP_OK;
}

static ndp_status exchange(gather *g, int64_t step) {
    for (int distance = 1; distance < g->size; distance++)
        NDP_TRY(exchange_at(g, step, distance));
    return NDP_OK;
}

/* ---- writing ---- */

/* Writes the chunk, or leaves it where it is, in the copy. */
static ndp_status finish_chunk(gather *g, const ndp_shard_part *part) {
    if (g->filled != part->chunk->bytes)
        return NDP_FAIL(NDP_EBUG, "tensor %s: the ranks gave %lld bytes of the %lld from element %lld on",
                        g->s->specs[part->tensor].name, (long long)g->filled, (long long)part->chunk->bytes,
                        (long long)part->first);
    return g->copy ? NDP_OK : ndp_chunk_write(&g->writer, part, g->chunk);
}

/* Keeps the first failure: later exchanges must not replace its message. */
static void note(gather *g, ndp_status st) {
    if (st == NDP_OK || g->failed != NDP_OK)
        return;
    g->failed = st;
    g->why = strdup(ndp_error_message());
}

static ndp_status write_all(gather *g) {
    int64_t at = 0;
    for (int64_t step = 0; step < g->steps; step++) {
        const ndp_shard_part *own = part_of(g, g->rank, step);
        g->filled = 0;
        g->chunk = g->copy && own ? g->copy->data + at : g->chunk;
        at += own ? own->chunk->bytes : 0;
        if (g->size > 1)
            NDP_TRY(exchange(g, step));
        if (!own || g->failed != NDP_OK)
            continue;
        ndp_status st = add_own(g, own);
        note(g, st == NDP_OK ? finish_chunk(g, own) : st);
    }
    if (g->failed == NDP_OK)
        return ndp_chunk_writer_close(&g->writer);
    if (g->why)
        ndp_error_set(g->failed, g->why);
    return g->failed;
}

/* ---- choosing writers ---- */

/* A different number for each rank of a part, and for each part of a rank. Whichever ranks can write a part, such as
 * the two of a tensor axis among many, each has the highest as often, so that all keep about as much in a copy. */
static int64_t place_of(const gather *g, int64_t part, int64_t rank) {
    bool power = (g->size & (g->size - 1)) == 0;
    return power ? rank ^ part % g->size : (rank + part) % g->size;
}

static int64_t rank_at(const gather *g, int64_t part, int64_t place) {
    bool power = (g->size & (g->size - 1)) == 0;
    return power ? place ^ part % g->size : (place - part % g->size + g->size) % g->size;
}

/* Collective. */
static ndp_status pick_writers(const gather *g) {
    int64_t n = g->s->n_parts, *writers = g->writers;
    const int64_t *held = g->held;
    memcpy(writers, held, (size_t)n * sizeof *held);
    NDP_TRY(ndp_reduce_now(g->world, writers, n, NDP_I64, NDP_MAX));
    for (int64_t c = 0; c < n; c++)
        writers[c] = held[c] && 2 * held[c] >= writers[c] ? 1 + place_of(g, c, g->rank) : 0;
    NDP_TRY(ndp_reduce_now(g->world, writers, n, NDP_I64, NDP_MAX));
    for (int64_t c = 0; c < n; c++) {
        if (!writers[c])
            return NDP_FAIL(NDP_EBUG, "tensor %s: no rank gave element %lld", g->s->specs[g->s->parts[c].tensor].name,
                            (long long)g->s->parts[c].first);
        writers[c] = rank_at(g, c, writers[c] - 1);
    }
    return NDP_OK;
}

/* Lists the parts of each rank, in the order of the files. */
static void sort_by_writer(gather *g) {
    const int64_t *writers = g->writers;
    for (int64_t c = 0; c < g->s->n_parts; c++)
        g->begin[writers[c] + 1]++;
    for (int r = 0; r < g->size; r++)
        g->begin[r + 1] += g->begin[r];
    for (int64_t c = 0; c < g->s->n_parts; c++)
        g->order[g->begin[writers[c]]++] = c;
    for (int r = g->size; r > 0; r--)
        g->begin[r] = g->begin[r - 1];
    g->begin[0] = 0;
}

static ndp_status take_tables(gather *g) {
    size_t parts = ((size_t)g->s->n_parts + 1) * sizeof(int64_t), ranks = (size_t)g->size;
    g->order = ndp_arena_alloc(&g->arena, parts);
    g->held = ndp_arena_alloc(&g->arena, parts);
    g->writers = ndp_arena_alloc(&g->arena, parts);
    g->begin = ndp_arena_alloc(&g->arena, (ranks + 1) * sizeof *g->begin);
    NDP_CHECK_MEMORY(g->order && g->held && g->writers && g->begin, "to gather %lld chunks", (long long)g->s->n_parts);
    return NDP_OK;
}

/* Collective: tells each rank the sizes of the messages that it will get. */
static ndp_status share_sizes(gather *g) {
    ndp_work w;
    for (int r = 0; r < g->size; r++)
        g->steps = g->begin[r + 1] - g->begin[r] > g->steps ? g->begin[r + 1] - g->begin[r] : g->steps;
    size_t bytes = (size_t)(g->size * g->steps) * sizeof *g->sizes + 1;
    g->sizes = ndp_arena_alloc(&g->arena, bytes);
    g->coming = ndp_arena_alloc(&g->arena, bytes);
    NDP_TRY(ndp_agree(g->world, NDP_MEMORY(g->sizes && g->coming, "for the sizes of %lld messages",
                                           (long long)(g->size * g->steps))));
    for (int r = 0; r < g->size; r++)
        for (int64_t step = 0; step < g->steps; step++) {
            const ndp_shard_part *part = r == g->rank ? NULL : part_of(g, r, step);
            g->sizes[r * g->steps + step] = part ? message_bytes(g, part) : 0;
        }
    if (g->size == 1 || g->steps == 0)
        return NDP_OK;
    NDP_TRY(ndp_all_to_all_begin(g->world, g->sizes, g->coming, g->steps * (int64_t)sizeof *g->sizes, &w));
    return ndp_wait(&w);
}

/* Collective. Allocates a chunk and the largest messages. */
static ndp_status take_buffers(gather *g) {
    int64_t chunk = 0, sent = 0;
    for (int64_t c = 0; c < g->s->n_parts; c++)
        chunk = g->s->parts[c].chunk->bytes > chunk ? g->s->parts[c].chunk->bytes : chunk;
    for (int64_t i = 0; i < g->size * g->steps; i++)
        sent = g->sizes[i] > sent ? g->sizes[i] : sent;
    int64_t received = sent;
    NDP_TRY(ndp_reduce_now(g->world, &received, 1, NDP_I64, NDP_MAX));
    g->in_most = received;
    g->chunk = ndp_arena_alloc(&g->arena, g->copy ? 1 : (size_t)chunk + 1);
    g->out = ndp_arena_alloc(&g->arena, g->size > 1 ? (size_t)sent + 1 : 1);
    g->in = ndp_arena_alloc(&g->arena, g->size > 1 ? (size_t)received + 1 : 1);
    return ndp_agree(g->world, g->chunk && g->out && g->in
                                   ? NDP_OK
                                   : NDP_FAIL(NDP_ENOMEM, "not enough memory to save: %lld bytes for a chunk",
                                              (long long)(chunk + sent + received)));
}

/* Collective. */
static ndp_status prepare(gather *g, const ndp_file_piece *pieces, int n_pieces) {
    ndp_status own = take_tables(g);
    NDP_TRY(
        ndp_agree(g->world, own == NDP_OK ? ndp_held_pieces_sort(g->s, pieces, n_pieces, &g->arena, &g->pieces) : own));
    for (int64_t c = 0; c < g->s->n_parts; c++)
        count_runs(g, &g->s->parts[c], &g->held[c]);
    NDP_TRY(pick_writers(g));
    sort_by_writer(g);
    NDP_TRY(share_sizes(g));
    return take_buffers(g);
}

ndp_status ndp_shards_share_hashes(ndp_shards *s, ndp_comm *world, const int64_t *own, int64_t n_own) {
    int64_t n = s->n_parts, *halves = calloc(2 * (size_t)n + 1, sizeof *halves);
    ndp_status st =
        ndp_agree(world, halves ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld hashes", (long long)n));
    for (int64_t i = 0; i < n_own && st == NDP_OK; i++) {
        ndp_hash128 h = s->parts[own[i]].chunk->hash;
        halves[2 * own[i]] = (int64_t)h.high;
        halves[2 * own[i] + 1] = (int64_t)h.low;
    }
    if (st == NDP_OK)
        st = ndp_reduce_now(world, halves, 2 * n, NDP_I64, NDP_SUM); /* only one rank's is not 0 */
    for (int64_t c = 0; c < n && st == NDP_OK; c++)
        s->parts[c].chunk->hash = (ndp_hash128){.high = (uint64_t)halves[2 * c], .low = (uint64_t)halves[2 * c + 1]};
    free(halves);
    return st;
}

static void release(gather *g) {
    ndp_safetensors_writer_destroy(g->writer.open);
    ndp_arena_release(&g->arena);
    free(g->why);
}

static gather gather_of(ndp_shards *s, ndp_comm *world) {
    return (gather){
        .s = s, .world = world, .rank = world ? ndp_comm_rank(world) : 0, .size = world ? ndp_comm_size(world) : 1};
}

static const int64_t *own_parts(const gather *g, int64_t *n) {
    *n = g->begin[g->rank + 1] - g->begin[g->rank];
    return g->order + g->begin[g->rank];
}

ndp_status ndp_shards_gather(ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces,
                             int n_pieces) {
    gather g = gather_of(s, world);
    g.writer = (ndp_chunk_writer){.s = s, .folder = folder};
    int64_t n;
    ndp_status st = prepare(&g, pieces, n_pieces);
    if (st == NDP_OK)
        st = ndp_agree(world, write_all(&g));
    if (st == NDP_OK) {
        const int64_t *own = own_parts(&g, &n);
        st = ndp_shards_share_hashes(s, world, own, n);
    }
    release(&g);
    return st;
}

/* ---- a copy ---- */

/* What this rank has to keep, and whether there is space for it. */
static ndp_status take_copy(gather *g) {
    int64_t bytes = 0;
    const int64_t *own = own_parts(g, &g->copy->n);
    g->copy->parts = ndp_arena_alloc(&g->s->arena, ((size_t)g->copy->n + 1) * sizeof *own);
    NDP_CHECK_MEMORY(g->copy->parts, "to copy %lld chunks", (long long)g->copy->n);
    memcpy(g->copy->parts, own, (size_t)g->copy->n * sizeof *own);
    for (int64_t i = 0; i < g->copy->n; i++)
        bytes += g->s->parts[own[i]].chunk->bytes;
    if (g->copy->data && bytes > g->copy->bytes)
        return NDP_FAIL(NDP_EBUG, "a copy of %lld bytes has space for %lld", (long long)bytes,
                        (long long)g->copy->bytes);
    g->copy->bytes = bytes;
    return NDP_OK;
}

ndp_status ndp_shards_copy(ndp_shards *s, ndp_comm *world, const ndp_file_piece *pieces, int n_pieces,
                           ndp_shard_copy *copy) {
    gather g = gather_of(s, world);
    g.copy = copy;
    ndp_status st = prepare(&g, pieces, n_pieces);
    if (st == NDP_OK)
        st = ndp_agree(world, take_copy(&g));
    if (st == NDP_OK && copy->data)
        st = ndp_agree(world, write_all(&g));
    release(&g);
    return st;
}

ndp_status ndp_shards_write_copy(ndp_shards *s, const char *folder, const ndp_shard_copy *copy) {
    ndp_chunk_writer w = {.s = s, .folder = folder};
    const char *at = copy->data;
    ndp_status st = NDP_OK;
    for (int64_t i = 0; i < copy->n && st == NDP_OK; i++) {
        const ndp_shard_part *part = &s->parts[copy->parts[i]];
        double start = ndp_thread_now();
        part->chunk->hash = ndp_hash_of(at, (size_t)part->chunk->bytes);
        s->hashing += ndp_thread_now() - start;
        st = ndp_chunk_write(&w, part, at);
        at += part->chunk->bytes;
    }
    if (st == NDP_OK)
        return ndp_chunk_writer_close(&w);
    ndp_safetensors_writer_destroy(w.open);
    return st;
}
