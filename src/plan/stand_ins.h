/* The programs of some ranks that stand for all of a world (stand_ins.c). Inside plan. */
#ifndef NDP_PLAN_STAND_INS_H
#define NDP_PLAN_STAND_INS_H

#include "plan/plan_parts.h"

/* Ranks whose programs are the same share one, in which each has its own groups. */
typedef struct ndp_stand_ins {
    int *ranks;
    ndp_engine **engines; /* NULL: shares that of an earlier rank */
    ndp_program *shared;  /* of those, with the rank's own mesh and slices (`owned`); the rest is borrowed */
    const ndp_program **programs;
    ndp_engine_memory *scores; /* what those with an engine need besides, for held-out rows */
    int n;
} ndp_stand_ins;

/* Worlds of up to this many ranks are checked whole. */
enum { NDP_WHOLE_WORLD = 64 };

/* Those that a check proves: all of a small world; else of every stage the first and the last of each other axis, and
 * of tp each with parts of other sizes. `w` is {0}; release it in any case. NDP_ENOMEM. */
ndp_status ndp_stand_ins_of_check(const ndp_dry_run *d, const ndp_model *m, ndp_stand_ins *w);
/* Those whose programs say what all need and how long a step takes: one of each stage and each size of parts. The
 * others differ from them in who they are, in the tables of their slices' pieces, which are some KiB, and in the sums
 * over tp of the gradients of norms, which the ranks have whose slices have norms. */
ndp_status ndp_stand_ins_first(const ndp_dry_run *d, const ndp_model *m, ndp_stand_ins *w);
/* Builds the program of rank i of the list, after those before it. */
ndp_status ndp_stand_ins_build(const ndp_dry_run *d, const ndp_model *m, size_t enough, ndp_stand_ins *w, int i);
void ndp_stand_ins_release(ndp_stand_ins *w);

#endif
