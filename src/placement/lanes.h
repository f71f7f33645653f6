/* Inside the placement room: the ranks that are checked together, and their groups.
 *
 * A world is checked as *lanes*: all ranks with one pair of coordinates on the data axes (dp_replicate, dp_shard), on
 * all coordinates of pp, cp, sp and tp. Ranks that differ on a data axis do the same with other samples and slices, so
 * the other coordinates need no lane: a value that is of this lane's samples has a mark for each data axis (ndp_own),
 * which a sum over all ranks of that axis removes. Each chosen pair of coordinates is checked by itself, under the
 * assumption that the others do as it does; that all pass proves the assumption.
 *
 * Ranks that exchange rows for their experts are lanes together: with ep, lanes have a block of coordinates on
 * dp_shard, the fewest that no group of ep leaves. Their micro-batches are then one, in which each coordinate has a
 * stretch of rows of its own; the mark is that of blocks. */
#ifndef NDP_PLACEMENT_LANES_H
#define NDP_PLACEMENT_LANES_H

#include "placement/items.h"
#include "placement/placement.h"
#include "placement/share.h"

/* Data axes on which a value is of this rank's own samples. */
typedef enum ndp_own { NDP_OWN_NONE = 0, NDP_OWN_REPLICATE = 1, NDP_OWN_SHARD = 2, NDP_OWN_BOTH = 3 } ndp_own;

/* Rows of an extent that follow each other in the micro-batch: [row, row + n) here are those from `at` on. */
typedef struct ndp_row_run {
    int64_t row, n, at;
} ndp_row_run;

/* Rows of the micro-batch of all lanes. A coordinate on dp_shard has `stretch` of them, of which the first `real` ones
 * are no padding. */
typedef struct ndp_lane_real {
    int64_t real, stretch;
    int data; /* coordinates */
} ndp_lane_real;

typedef struct ndp_lane {
    const ndp_program *program; /* its own, or that of a rank with tables of the same sizes, for which it stands in */
    bool stands_in;             /* the program's numbers that depend on the coordinate are taken from the tables */
    ndp_mesh mesh;              /* this lane's */
    const ndp_segments *tables; /* this lane's claims: by buffer of program->opts.model */
    ndp_lane_real batch;
    int64_t first_row; /* of its stretch */
    ndp_row_run *rows[NDP_EXTENTS];
    int64_t n_rows[NDP_EXTENTS];
} ndp_lane;

/* The lanes of a group, in the order of its ranks, as a lane sees it. */
typedef struct ndp_members {
    int *lanes;
    int n;
    int me;      /* this lane's place among them */
    int ranks;   /* of the whole group, on data axes too */
    int rank;    /* this rank's place in it */
    ndp_own own; /* the data axes that the group spans, if the axis has more than one rank */
} ndp_members;

typedef struct ndp_lanes {
    ndp_lane *items; /* index: (((pp * data + coordinate on dp_shard) * CP + cp) * SP + sp) * TP + tp */
    int n, stage;    /* stage: lanes of one place on pp, which follow each other */
    int size[NDP_AXES];
    int dp[2], data; /* their coordinates on dp_replicate and dp_shard, there the first of `data` */
    const ndp_claims *claims;
    ndp_members (*members)[NDP_GROUPS]; /* by lane */
    ndp_arena arena;
} ndp_lanes;

/* How many coordinates on dp_shard lanes have together; the first is a multiple of it. */
int ndp_lanes_data(const ndp_layout *layout);
/* How many blocks of them there are on a data axis, 0: dp_replicate, 1: dp_shard. */
static inline int ndp_lanes_blocks(const ndp_lanes *l, int k) {
    return k ? l->size[NDP_DP_SHARD] / l->data : l->size[NDP_DP_REPLICATE];
}

/* The lanes at `dp` of a world of which some programs are given. NDP_EBUG: a lane has no program of the sizes of its
 * tables. Release in any case. */
ndp_status ndp_lanes_init(const ndp_program *const *programs, int n, const int dp[2], const ndp_claims *claims,
                          ndp_lanes *out);
void ndp_lanes_release(ndp_lanes *l);

static inline const ndp_members *ndp_lane_members(const ndp_lanes *l, int lane, ndp_group_kind kind) {
    return &l->members[lane][kind];
}

/* "rank 5 (tp 1, cp 0)" */
ndp_text ndp_lane_text(const ndp_lanes *l, int lane);
/* NDP_EBUG: "placement: rank 5 (tp 1, cp 0): ..." */
#define ndp_lane_refuse(l, lane, ...) ndp_lane_refused(l, lane, NDP_FAIL(NDP_EBUG, __VA_ARGS__))
ndp_status ndp_lane_refused(const ndp_lanes *l, int lane, ndp_status st);

/* True if both are the same memory, in the same shape. */
static inline bool ndp_operands_same(const ndp_operand *a, const ndp_operand *b) {
    return a->base == b->base && a->offset == b->offset && a->view.rows == b->view.rows &&
           a->view.cols == b->view.cols && a->view.ld == b->view.ld && a->view.dtype == b->view.dtype;
}

/* ---- segments ---- */

/* The number of a buffer in the whole model; NDP_NONE: it has none of that name. */
int ndp_whole_buffer(const ndp_model *whole, const char *name);

/* What two segments may have in common. */
enum {
    NDP_SAME_SIZES = 1,     /* rows and columns, place in the buffer, members of a stack */
    NDP_SAME_RECTANGLE = 2, /* rows and columns of the tensor, members of a stack */
    NDP_SAME_TENSOR = 4,
    NDP_SAME_NUMBERS = 8 /* copies of elements, and the groups over which gradients are summed */
};
bool ndp_segments_same(const ndp_segment *a, const ndp_segment *b, unsigned what);
/* The share of rows and columns of a segment, one of its matrices, among those of its tensor's part. */
ndp_share ndp_segment_share(const ndp_segment *s, ndp_dim_key tensor, int64_t row, int64_t rows, int64_t col,
                            int64_t cols);
/* The share of rows [at, at + n) in those of the micro-batch of all lanes; padding counts nothing. */
ndp_share ndp_rows_share(const ndp_lane_real *batch, int64_t at, int64_t n);
/* The share of a micro-batch's rows that a lane has of an extent. */
ndp_share ndp_lane_rows(const ndp_lanes *l, int lane, ndp_extent extent);

/* ---- running lanes ---- */

/* Runs a lane until it waits for another one. *moved: it has come further; *over: it has ended. */
typedef ndp_status ndp_lane_fn(void *user, int lane, bool *moved, bool *over);
/* Runs lanes in turns until all have ended. What a lane gets of others it gets by meetings alone, so any order that
 * does not stop shows the same. *stuck: a lane that waits forever; NDP_NONE: none. */
ndp_status ndp_lanes_run(int first, int n, ndp_lane_fn *advance, void *user, int *stuck);

/* ---- where lanes meet ---- */

/* Operations that members begin and then wait for: the k-th begins of all members of a group on a channel meet. What a
 * member hands in the meeting does not own. Memory is an arena's. */
typedef struct ndp_meeting {
    void **handed;
    int64_t n, capacity;
} ndp_meeting;
typedef struct ndp_meetings {
    ndp_meeting *of; /* by lane and channel */
    int channels;
    ndp_arena *arena;
} ndp_meetings;
ndp_status ndp_meetings_init(const ndp_lanes *l, int channels, ndp_arena *arena, ndp_meetings *out);
/* Lane `lane` begins an operation on `channel`; *number: which one it is there. */
ndp_status ndp_meet_begin(ndp_meetings *m, int lane, int channel, void *handed, int64_t *number);
/* What a member (a lane) handed in to operation `number` of the channel; NULL: it has not begun it yet. */
void *ndp_meet_handed(const ndp_meetings *m, int member, int channel, int64_t number);

#endif
