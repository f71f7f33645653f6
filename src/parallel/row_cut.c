/* Which rows and heads a rank has, from its coordinates alone. */
#include "parallel/row_cut.h"

ndp_row_cut ndp_cut_rows(int64_t rows, const ndp_mesh *mesh, const ndp_parallel *how) {
    const int *size = mesh->layout.size;
    ndp_row_cut r = {.real = rows,
                     .cp = size[NDP_CP],
                     .cp_rank = mesh->coord[NDP_CP],
                     .sp = size[NDP_SP],
                     .sp_rank = mesh->coord[NDP_SP],
                     .zigzag = size[NDP_CP] > 1 && how->cp_zigzag,
                     .ring = size[NDP_CP] > 1 && how->cp_method == NDP_CP_RING};
    int64_t unit = (r.cp > 1 ? 2 * r.cp : 1) * (int64_t)r.sp * size[NDP_TP];
    r.padded = (rows + unit - 1) / unit * unit;
    r.queries = r.padded / r.cp;
    r.keys = r.padded;
    r.tokens = r.queries / r.sp;
    r.slice = how->tp_sequence_parallel ? r.tokens / size[NDP_TP] : r.tokens;
    r.routed = ndp_mixtures_are_sliced(mesh) ? r.tokens / size[NDP_TP] : r.tokens;
    return r;
}

bool ndp_mixtures_are_sliced(const ndp_mesh *mesh) {
    return mesh->layout.size[NDP_EP] > 1 && mesh->layout.size[NDP_TP] > 1;
}

/* Row number i of what rank `cp_rank` holds. */
static int64_t row_of(const ndp_row_cut *r, int cp_rank, int64_t i) {
    if (!r->zigzag)
        return cp_rank * r->queries + i;
    int64_t chunk = r->queries / 2;
    return i < chunk ? cp_rank * chunk + i : (2 * r->cp - 1 - cp_rank) * chunk + i - chunk;
}

int64_t ndp_row_cut_at(const ndp_row_cut *r, ndp_extent extent, int64_t i) {
    if (extent == NDP_EXTENT_DOCUMENTS)
        return i;
    if (extent == NDP_EXTENT_TOKENS)
        return row_of(r, r->cp_rank, r->sp_rank * r->tokens + i);
    if (extent == NDP_EXTENT_QUERIES)
        return row_of(r, r->cp_rank, i);
    int block = (int)(i / r->queries), rank = r->ring ? (r->cp_rank - block + r->cp) % r->cp : block;
    return row_of(r, rank, i % r->queries);
}

int ndp_local_heads(const ndp_mesh *mesh, int heads) {
    int tp = mesh->layout.size[NDP_TP];
    if (heads % tp != 0 && tp % heads != 0)
        return heads;
    return heads >= tp ? heads / tp : 1;
}

ndp_op_attr ndp_local_attr(const ndp_mesh *mesh, ndp_op_attr attr) {
    attr.heads = attr.heads ? ndp_local_heads(mesh, attr.heads) : 0;
    attr.kv_heads = attr.kv_heads ? ndp_local_heads(mesh, attr.kv_heads) : 0;
    return attr;
}
