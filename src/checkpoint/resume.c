/* Which checkpoint a run resumes from. All ranks come to the same decision: the list is rank 0's, and
 * ndp_checkpoint_examine returns the same on all ranks. */
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/steps.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct candidates {
    ndp_comm *world;
    const char *folder;
    int threads;
    int64_t *steps; /* newest first */
    int n;
    int64_t aside; /* folders set aside by earlier resumes */
} candidates;

static ndp_status count_aside(void *user, const char *folder, const char *name) {
    (void)folder;
    *(int64_t *)user += ndp_step_is_aside(name);
    return NDP_OK;
}

/* Collective: rank 0's list for all ranks. */
static ndp_status list(candidates *c) {
    ndp_status st = NDP_OK;
    if (ndp_is_first(c->world)) {
        st = ndp_checkpoint_steps(c->folder, &c->steps, &c->n);
        if (st == NDP_OK)
            st = ndp_folder_visit(c->folder, count_aside, &c->aside);
    }
    NDP_TRY(ndp_agree(c->world, st));
    int64_t counts[] = {c->n, c->aside};
    NDP_TRY(ndp_share_now(c->world, counts, sizeof counts, 0));
    if (!ndp_is_first(c->world)) {
        c->n = (int)counts[0];
        c->aside = counts[1];
        c->steps = malloc(((size_t)c->n + 1) * sizeof *c->steps);
    }
    NDP_TRY(ndp_agree(c->world, c->steps || c->n == 0
                                    ? NDP_OK
                                    : NDP_FAIL(NDP_ENOMEM, "not enough memory for a list of %d checkpoints", c->n)));
    return ndp_share_now(c->world, c->steps, (size_t)c->n * sizeof *c->steps, 0);
}

static ndp_status examine(const candidates *c, int i, ndp_examined *e) {
    return ndp_checkpoint_examine(c->world, c->folder, c->steps[i], true, c->threads, e);
}

/* ---- refusals ---- */

/* "Steps that verify: 20, 10; ..." */
static ndp_status add_verified(const candidates *c, int first, ndp_str *s) {
    int n = 0;
    ndp_str steps = {0};
    for (int i = first; i < c->n; i++) {
        ndp_examined e;
        ndp_status st = examine(c, i, &e);
        if (st != NDP_OK) {
            ndp_str_release(&steps);
            return st;
        }
        if (e.state != NDP_CHECKPOINT_DAMAGED)
            ndp_str_addf(&steps, "%s%lld%s", n++ ? ", " : "", (long long)c->steps[i],
                         e.state == NDP_CHECKPOINT_UNVERIFIABLE ? " (without hashes)" : "");
    }
    if (n)
        ndp_str_addf(s, "Steps that verify: %s; resume from one of them with --resume-from STEP", steps.data);
    else
        ndp_str_add(s, "No checkpoint verifies: start again in another train.output_dir");
    s->failed |= steps.failed;
    ndp_str_release(&steps);
    return NDP_OK;
}

/* NDP_EINVAL with `why` and the steps that verify, among those from index `first` on. */
static ndp_status refuse(const candidates *c, int first, ndp_str *why) {
    ndp_str_add(why, ". ");
    ndp_status st = add_verified(c, first, why);
    if (st == NDP_OK)
        st = why->failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory to say why '%s' cannot be resumed", c->folder)
                         : NDP_FAIL(NDP_EINVAL, "%s", why->data);
    ndp_str_release(why);
    return st;
}

/* A damaged checkpoint of the list. */
typedef struct bad_one {
    int at; /* its index */
    ndp_examined e;
} bad_one;

/* before: the next damaged one; NULL: there is no other checkpoint. */
static ndp_status refuse_damaged(const candidates *c, const bad_one *newest, const bad_one *before) {
    ndp_str why = {0};
    ndp_str_addf(&why, "the newest checkpoint in '%s', of step %lld, is damaged (%.300s)", c->folder,
                 (long long)c->steps[newest->at], newest->e.words);
    if (before)
        ndp_str_addf(&why, ", and so is the one before it, of step %lld (%.300s); nothing was changed",
                     (long long)c->steps[before->at], before->e.words);
    else
        ndp_str_add(&why, ", and there is no other; nothing was changed");
    return refuse(c, before ? before->at + 1 : c->n, &why);
}

static ndp_status refuse_wanted(const candidates *c, int64_t wanted, const ndp_examined *e) {
    ndp_str why = {0};
    if (e)
        ndp_str_addf(&why, "--resume-from %lld: that checkpoint in '%s' is damaged (%.300s); nothing was changed",
                     (long long)wanted, c->folder, e->words);
    else
        ndp_str_addf(&why, "--resume-from %lld: there is no checkpoint of that step in '%s'", (long long)wanted,
                     c->folder);
    return refuse(c, 0, &why);
}

/* ---- the choice ---- */

static ndp_status take_asides(ndp_resume *r, int n) {
    r->aside = calloc((size_t)n + 1, sizeof *r->aside);
    r->damaged = calloc((size_t)n + 1, sizeof *r->damaged);
    return NDP_MEMORY(r->aside && r->damaged, "for %d checkpoints", n);
}

static void set_aside(ndp_resume *r, int64_t step, bool damaged, const ndp_examined *e) {
    if (r->n_aside == 0)
        snprintf(r->words, sizeof r->words, "%s", e->words);
    r->aside[r->n_aside] = step;
    r->damaged[r->n_aside++] = damaged;
}

static void go_on_from(ndp_resume *r, int64_t step, const ndp_examined *e) {
    r->step = step;
    r->unverifiable = e->state == NDP_CHECKPOINT_UNVERIFIABLE;
}

static ndp_status refuse_asides(const candidates *c) {
    return NDP_FAIL(NDP_EINVAL,
                    "'%s' contains no checkpoint but %lld that were set aside (`ndparallel checkpoint list` shows "
                    "them): a run does not start over next to them; start it in another train.output_dir",
                    c->folder, (long long)c->aside);
}

/* Goes from the newest one to older ones: past all that are not folders, and past one damaged checkpoint. */
static ndp_status choose_newest(const candidates *c, ndp_resume *r) {
    bad_one bad = {.at = -1}, it;
    if (c->n == 0)
        return c->aside ? refuse_asides(c) : NDP_OK;
    for (it.at = 0; it.at < c->n; it.at++) {
        NDP_TRY(examine(c, it.at, &it.e));
        if (it.e.state != NDP_CHECKPOINT_DAMAGED) {
            go_on_from(r, c->steps[it.at], &it.e);
            return NDP_OK;
        }
        if (bad.at >= 0 && !bad.e.no_folder && !it.e.no_folder)
            return refuse_damaged(c, &bad, &it);
        if (bad.at < 0 || !it.e.no_folder)
            bad = it;
        set_aside(r, c->steps[it.at], true, &it.e);
    }
    return refuse_damaged(c, &bad, NULL);
}

static ndp_status choose_wanted(const candidates *c, int64_t wanted, ndp_resume *r) {
    int at = 0;
    ndp_examined e;
    while (at < c->n && c->steps[at] != wanted)
        at++;
    if (at == c->n)
        return refuse_wanted(c, wanted, NULL);
    NDP_TRY(examine(c, at, &e));
    if (e.state == NDP_CHECKPOINT_DAMAGED)
        return refuse_wanted(c, wanted, &e);
    go_on_from(r, wanted, &e);
    for (int i = 0; i < at; i++) {
        NDP_TRY(examine(c, i, &e));
        set_aside(r, c->steps[i], e.state == NDP_CHECKPOINT_DAMAGED, &e);
    }
    return NDP_OK;
}

ndp_status ndp_resume_choose(ndp_comm *world, const char *folder, int64_t wanted, int threads, ndp_resume *out) {
    candidates c = {.world = world, .folder = folder, .threads = threads};
    ndp_resume r = {.step = -1};
    ndp_status st = list(&c);
    if (st == NDP_OK)
        st = ndp_agree(world, take_asides(&r, c.n));
    if (st == NDP_OK)
        st = wanted < 0 ? choose_newest(&c, &r) : choose_wanted(&c, wanted, &r);
    free(c.steps);
    if (st == NDP_OK)
        *out = r;
    else
        ndp_resume_release(&r);
    return st;
}

void ndp_resume_release(ndp_resume *r) {
    free(r->aside);
    free(r->damaged);
    *r = (ndp_resume){0};
}

/* ---- afterwards ---- */

static ndp_status settle(const char *folder, const ndp_resume *r, ndp_str *said) {
    for (int i = 0; i < r->n_aside; i++) {
        char name[64];
        NDP_TRY(ndp_step_set_aside(folder, r->aside[i], r->damaged[i] ? "damaged" : "superseded", name));
        ndp_str_addf(said, "%s%s", said->length ? ", " : "", name);
    }
    return NDP_OK;
}

ndp_status ndp_resume_settle(ndp_comm *world, const char *folder, const ndp_resume *r, ndp_str *said) {
    return ndp_agree(world, ndp_is_first(world) ? settle(folder, r, said) : NDP_OK);
}
