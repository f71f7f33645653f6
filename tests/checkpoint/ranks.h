/* Tensors saved by any number of ranks and read by any other number. The bodies run on rank threads, where cmocka's
 * assertions must not: they return statuses. */
#ifndef TESTS_CHECKPOINT_RANKS_H
#define TESTS_CHECKPOINT_RANKS_H

#include "checkpoint/background.h"
#include "checkpoint/files.h"

static const ndp_tensor_spec tensors[] = {
    {"model.embed_tokens.weight", NDP_F32, 2, {37, 8}, NULL},
    {"model.layers.0.mlp.up_proj.weight", NDP_F32, 2, {24, 8}, NULL},
    {"model.norm.weight", NDP_F32, 1, {8}, NULL},
    {"lm_head.weight", NDP_BF16, 2, {37, 8}, NULL},
    {"optimizer.m.model.norm.weight", NDP_F32, 1, {8}, NULL},
    {"optimizer.v.model.embed_tokens.weight", NDP_F32, 2, {37, 8}, NULL},
};
enum { TENSORS = NDP_COUNT(tensors), WEIGHTS = 4, MOST = 37 * 8 };

static inline ndp_group world_of(ndp_transport *t) {
    return (ndp_group){0, 1, ndp_transport_world(t), ndp_transport_rank(t)};
}

static inline int64_t border(int64_t n, int rank, int world, int cut) {
    int64_t at = rank * n / world + cut;
    return rank == 0 ? 0 : rank == world || at > n ? n : at;
}

/* Elements [*first, *first + *count) of n that rank `rank` of `world` owns. `cut` shifts the borders: layouts differ.
 */
static inline void own_part(int64_t n, int rank, int world, int cut, int64_t *first, int64_t *count) {
    *first = border(n, rank, world, cut);
    *count = border(n, rank + 1, world, cut) - *first;
}

/* What one rank holds of generation g, in pieces of at most 50 elements. */
typedef struct part {
    float values[TENSORS][MOST];
    ndp_file_piece pieces[TENSORS * 8];
    int n;
} part;

static inline void part_init(part *p, int rank, int world, int n_tensors, int64_t g) {
    p->n = 0;
    for (int t = 0; t < n_tensors; t++) {
        int64_t first, count;
        own_part(ndp_tensor_elements(&tensors[t]), rank, world, 1, &first, &count);
        for (int64_t i = 0; i < count; i++)
            p->values[t][i] =
                tensors[t].dtype == NDP_BF16 ? (float)((first + i) % 128 + g % 64) : element(t, first + i, g);
        for (int64_t i = 0; i < count; i += 50)
            p->pieces[p->n++] =
                (ndp_file_piece){t, first + i, count - i < 50 ? count - i : 50, &p->values[t][i], NDP_F32, 1, NULL, 0};
    }
}

static inline ndp_status check_values(int t, int64_t first, int64_t count, int64_t g, const float *x) {
    for (int64_t i = 0; i < count; i++) {
        float want = tensors[t].dtype == NDP_BF16 ? (float)((first + i) % 128 + g % 64) : element(t, first + i, g);
        if (x[i] != want)
            return NDP_FAIL(NDP_EBUG, "%s[%lld] is %g, expected %g", tensors[t].name, (long long)(first + i), x[i],
                            (double)want);
    }
    return NDP_OK;
}

/* Reads what `rank` of `world` owns under another cut, of one step. */
static inline ndp_status check_step(const char *folder, int64_t step, int rank, int world) {
    ndp_checkpoint *c = NULL;
    NDP_TRY(ndp_checkpoint_open(folder, step, &c));
    float x[MOST];
    ndp_status st = ndp_checkpoint_check(c, tensors, TENSORS);
    for (int t = 0; t < TENSORS && st == NDP_OK; t++) {
        int64_t first, count;
        own_part(ndp_tensor_elements(&tensors[t]), rank, world, 2, &first, &count);
        st = ndp_checkpoint_read(c, tensors[t].name, first, count, x, NDP_F32);
        if (st == NDP_OK)
            st = check_values(t, first, count, step, x);
    }
    const ndp_checkpoint_info *info = ndp_checkpoint_get_info(c);
    if (st == NDP_OK && (info->step != step || info->samples != step * 10 || info->seed != 42))
        st = NDP_FAIL(NDP_EBUG, "step %lld has other numbers", (long long)step);
    ndp_checkpoint_close(c);
    return st;
}

static inline ndp_status save_step_behind(ndp_comm *world, const char *folder, int64_t step, int keep,
                                          int64_t shard_bytes) {
    part p;
    ndp_save_cost cost;
    part_init(&p, world ? ndp_comm_rank(world) : 0, world ? ndp_comm_size(world) : 1, TENSORS, step);
    const ndp_save_request r = {.folder = folder,
                                .info = {.step = step, .samples = step * 10, .seed = 42},
                                .specs = tensors,
                                .n = TENSORS,
                                .pieces = p.pieces,
                                .n_pieces = p.n,
                                .keep = keep,
                                .max_shard_bytes = shard_bytes};
    return save_in_background(world, &r, step % 2, &cost);
}

static inline ndp_status save_step(ndp_comm *world, const char *folder, int64_t step, int keep, int64_t shard_bytes) {
    part p;
    ndp_checkpoint_info info = {.step = step, .samples = step * 10, .seed = 42};
    part_init(&p, world ? ndp_comm_rank(world) : 0, world ? ndp_comm_size(world) : 1, TENSORS, step);
    return ndp_checkpoint_save(world, folder, &info, tensors, TENSORS, p.pieces, p.n, keep, shard_bytes, NULL);
}

#endif
