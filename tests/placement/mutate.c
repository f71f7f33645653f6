/* Applying a mutation to the program of a rank. */
#include "placement/mutations.h"

#include <string.h>

static bool is_in_place(const ndp_call *c) { return c->op->in_place || c->in_place; }

static const ndp_operand absent = {.base = NDP_NONE, .value = NDP_NONE};

/* Rows [first, first + rows) of an operand. */
static ndp_operand rows_of(ndp_operand x, int64_t first, int64_t rows) {
    x.offset += (size_t)(first * x.view.ld) * ndp_dtype_size(x.view.dtype);
    x.view.rows = rows;
    return x;
}

static void remove_pair(const edited *e, int begin) {
    int wait = edited_call(e, begin)->partner;
    edited_remove(e, wait);
    edited_remove(e, begin);
}

/* A collective becomes what this rank alone can do: it keeps or takes its own part. */
static bool drop(const edited *e, int i) {
    const ndp_call c = *edited_call(e, i);
    if (is_in_place(&c)) {
        remove_pair(e, i);
        return true;
    }
    int rank = ndp_mesh_group(&e->program->opts.step.mesh, (ndp_group_kind)c.attr.group).rank;
    ndp_operand in[] = {c.in[0], absent}, out = c.out[0];
    const ndp_op *op = &ndp_op_copy;
    ndp_op_attr attr = {.type = out.view.dtype};
    int64_t most = in[0].view.rows < out.view.rows ? in[0].view.rows : out.view.rows;
    if (c.op == &ndp_op_all_gather)
        out = rows_of(out, rank * in[0].view.rows, in[0].view.rows);
    if (c.op == &ndp_op_reduce_scatter)
        in[0] = rows_of(in[0], rank * out.view.rows, out.view.rows);
    if (c.op == &ndp_op_all_to_all_rows)
        in[0] = rows_of(in[0], 0, most), out = rows_of(out, 0, most);
    if (c.attr.accumulate)
        op = &ndp_op_add, in[1] = out;
    edited_remove(e, c.partner);
    return edited_kernel(e, i, op, &attr, in, 2, &out, 1);
}

static bool again(const edited *e, int i) {
    const ndp_call *c = edited_call(e, i);
    if (!c || c->kind == NDP_CALL_KERNEL) {
        edited_copy(e, i, i + 1, i);
        return true;
    }
    int wait = c->partner;
    edited_copy(e, i, wait + 1, wait);
    edited_copy(e, wait, wait + 2, wait + 1);
    edited_pair(e, wait + 1, wait + 2);
    return true;
}

/* Moves a call, with its wait, before place `at`, into the ranges of entry `like`. */
static bool move(const edited *e, int i, int at, int like) {
    const ndp_call *c = edited_call(e, i);
    bool pair = c && c->kind == NDP_CALL_BEGIN;
    int wait = pair ? c->partner : NDP_NONE;
    if (at > i && at <= wait)
        return false;
    edited_copy(e, i, at, like);
    i += i >= at, wait += pair && wait >= at;
    if (pair) {
        edited_copy(e, wait, at + 1, at);
        i += i > at, wait += wait > at;
        edited_pair(e, at, at + 1);
        edited_remove(e, wait);
    }
    edited_remove(e, i);
    return true;
}

static bool other_group(const mutation *m, const edited *e, int i) {
    ndp_call *c = edited_call(e, i), *wait = edited_call(e, c->partner);
    const ndp_mesh *mesh = &e->program->opts.step.mesh;
    if (ndp_mesh_group(mesh, (ndp_group_kind)m->which).count != c->attr.ranks)
        return false;
    journal_keep(e->journal, c, sizeof *c);
    journal_keep(e->journal, wait, sizeof *wait);
    c->channel += m->which - c->attr.group;
    c->attr.group = m->which;
    wait->channel = c->channel, wait->attr.group = c->attr.group;
    return true;
}

static bool other_op(const mutation *m, const edited *e, int i) {
    const ndp_op *op = ndp_all_ops[m->which];
    ndp_call *c = edited_call(e, i);
    const ndp_call was = *c;
    if (was.kind == NDP_CALL_BEGIN) {
        ndp_call *wait = edited_call(e, was.partner);
        journal_keep(e->journal, c, sizeof *c);
        journal_keep(e->journal, wait, sizeof *wait);
        c->op = wait->op = op;
        return true;
    }
    ndp_operand in[NDP_OP_MAX_IN];
    memcpy(in, was.in, (size_t)was.n_in * sizeof *in);
    if (op == &ndp_op_copy) /* of one of the operands */
        in[0] = was.in[m->to], in[1] = absent;
    ndp_op_attr attr = was.attr;
    attr.type = was.out[0].view.dtype;
    if (!edited_kernel(e, i, op, &attr, in, was.n_in, was.out, was.n_out))
        return false;
    c->pgrad = was.pgrad;
    c->scratch = was.scratch, c->scratch_offset = was.scratch_offset;
    return true;
}

/* An all_reduce of the first half of its columns, or rows. */
static bool half(const edited *e, int i) {
    edited_own_operands(e, i);
    ndp_call *c = edited_call(e, i);
    for (int k = 0; k < 2; k++) {
        ndp_view *v = k ? &c->out[0].view : &c->in[0].view;
        if (v->rows > 1)
            v->rows /= 2;
        else
            v->cols /= 2, v->ld = v->cols;
    }
    return true;
}

static bool other_operand(const mutation *m, const edited *e, int i) {
    edited of;
    int k = mutation_find(e->program, &m->other, e->journal, &of);
    if (k == NDP_NONE)
        return false;
    const ndp_call *from = edited_call(&of, k);
    ndp_operand x = m->to < from->n_in ? from->in[m->to] : from->out[m->to - from->n_in];
    edited_own_operands(e, i);
    ndp_call *c = edited_call(e, i);
    if (x.base == NDP_NONE || x.view.rows != c->in[m->which].view.rows || x.view.cols != c->in[m->which].view.cols)
        return false;
    c->in[m->which] = x;
    if (m->which == 0 && c->op->in_place)
        c->out[0] = x;
    return true;
}

static bool change_operand(const mutation *m, const edited *e, int i) {
    edited_own_operands(e, i);
    ndp_operand *x = &edited_call(e, i)->in[m->which];
    size_t row = (size_t)x->view.ld * ndp_dtype_size(x->view.dtype);
    if (m->kind == MUTATION_ABSENT)
        *x = absent;
    else if (x->offset < row)
        return false;
    else
        x->offset -= row;
    return true;
}

static bool change_call(const mutation *m, const edited *e, int i) {
    ndp_call *c = edited_call(e, i), *wait = c->kind == NDP_CALL_BEGIN ? edited_call(e, c->partner) : c;
    journal_keep(e->journal, c, sizeof *c);
    journal_keep(e->journal, wait, sizeof *wait);
    if (m->kind == MUTATION_NUMBER)
        mutation_set_number(&c->attr, m->which, m->to);
    else
        c->attr.accumulate = !c->attr.accumulate;
    wait->attr = c->attr;
    return true;
}

/* ---- runs and messages ---- */

static bool change_run(const mutation *m, const edited *e, int i) {
    ndp_instr *in = &e->program->instrs[i];
    edited of;
    journal_keep(e->journal, in, sizeof *in);
    switch (m->kind) {
    case MUTATION_ACCUMULATE:
        in->accumulate ^= 1u << m->which;
        return true;
    case MUTATION_MICRO_BATCH:
        in->micro_batch = m->to;
        return true;
    case MUTATION_PHASE:
        in->phase = (ndp_phase)m->to;
        return true;
    default: {
        int k = mutation_find(e->program, &m->other, e->journal, &of);
        if (k == NDP_NONE || e->program->instrs[k].bases[m->which] == NDP_NONE)
            return false;
        in->bases[m->which] = e->program->instrs[k].bases[m->which];
        return true;
    }
    }
}

/* Both sends hand in each other's value. */
static bool swap_messages(const mutation *m, const edited *e, int i) {
    edited of;
    int k = mutation_find(e->program, &m->other, e->journal, &of);
    if (k == NDP_NONE)
        return false;
    edited_own_operands(e, i);
    edited_own_operands(e, k);
    ndp_call *a = edited_call(e, i), *b = edited_call(e, k);
    ndp_operand in = a->in[0], out = a->out[0];
    a->in[0] = b->in[0], a->out[0] = b->out[0];
    b->in[0] = in, b->out[0] = out;
    return true;
}

static size_t *place_of(const edited *e, const mutation_site *s, int i) {
    ndp_staging *staging = &e->program->staging;
    return &staging->places[s->graph == NDP_NONE ? (size_t)e->program->instrs[i].work
                                                 : staging->of_list[s->graph][s->phase] + (size_t)i];
}

/* A collective has the place of another, which begins while it is under way. */
static bool take_place(const mutation *m, const edited *e, int i) {
    edited of;
    int k = mutation_find(e->program, &m->other, e->journal, &of);
    if (k == NDP_NONE)
        return false;
    size_t *mine = place_of(e, &m->site, i), theirs = *place_of(e, &m->other, k);
    journal_keep(e->journal, mine, sizeof *mine);
    *mine = theirs;
    return true;
}

/* The other side of a message on this rank's neighbour: the same value and tag, received instead of sent. */
static bool drop_message(const mutation *m, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    bool any = false;
    for (int i = 0; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        if (ndp_instr_is(in, NDP_CALL_BEGIN) && in->role != NDP_NONE && in->call.channel == m->site.channel &&
            in->micro_batch == m->site.micro_batch && strcmp(in->what, m->site.what) == 0) {
            remove_pair(&e, i--);
            any = true;
        }
    }
    return any;
}

/* The range that begins with the call is another one: longer or shorter at either end, not there, of another count or
 * with another number of the iteration. */
static bool change_range(const mutation *m, const edited *e, int i) {
    ndp_list *list = e->list;
    int k = 0;
    while (list && k < list->repeats.n && list->repeats.items[k].first != i)
        k++;
    if (!list || k == list->repeats.n)
        return false;
    ndp_repeat *x = &list->repeats.items[k];
    journal_keep(e->journal, x, sizeof *x);
    journal_keep(e->journal, &list->counts[k], sizeof list->counts[k]);
    journal_keep(e->journal, &list->indices[k], sizeof list->indices[k]);
    journal_keep(e->journal, &list->repeats.n, sizeof list->repeats.n);
    switch (m->which) {
    case 0:
        x->first--, x->n++;
        return x->first >= 0;
    case 1:
        x->first++, x->n--;
        return x->n > 0;
    case 2:
        x->n--;
        return x->n > 0;
    case 3:
        x->n++;
        return x->first + x->n <= list->n;
    case 4:
        list->repeats.n = 0;
        return true;
    case 5:
        list->counts[k].offset += 64;
        return true;
    default:
        list->indices[k].offset += 64;
        return true;
    }
}

/* ---- all ---- */

static bool apply_call(const mutation *m, const edited *e, int i) {
    edited of;
    int k;
    switch (m->kind) {
    case MUTATION_DROPPED:
        return drop(e, i);
    case MUTATION_REMOVED:
        remove_pair(e, i);
        return true;
    case MUTATION_TWICE:
    case MUTATION_RUN_TWICE:
        return again(e, i);
    case MUTATION_GROUP:
        return other_group(m, e, i);
    case MUTATION_OP:
        return other_op(m, e, i);
    case MUTATION_EARLY:
        k = mutation_find(e->program, &m->other, e->journal, &of);
        return k != NDP_NONE && k < i && move(e, i, k, k);
    case MUTATION_LATE:
        k = mutation_find(e->program, &m->other, e->journal, &of);
        return k != NDP_NONE && k > i && move(e, i, k + 1, k);
    case MUTATION_PART:
        return half(e, i);
    case MUTATION_SKIPPED:
    case MUTATION_RUN_SKIPPED:
        edited_remove(e, i);
        return true;
    case MUTATION_OPERAND:
        return other_operand(m, e, i);
    case MUTATION_ABSENT:
    case MUTATION_SHIFTED:
        return change_operand(m, e, i);
    case MUTATION_RANGE:
        return change_range(m, e, i);
    default:
        return change_call(m, e, i);
    }
}

bool mutation_apply(const mutation *m, ndp_program *p, journal *j) {
    edited e;
    bool done;
    if (m->pp != NDP_NONE && p->opts.step.mesh.coord[NDP_PP] != m->pp)
        return false;
    if (m->kind == MUTATION_DROPPED && m->site.graph == NDP_NONE && m->site.op &&
        (m->site.op == &ndp_op_send || m->site.op == &ndp_op_recv))
        return drop_message(m, p, j);
    int i = mutation_find(p, &m->site, j, &e);
    if (i == NDP_NONE)
        return false;
    if (m->kind == MUTATION_MESSAGE)
        done = swap_messages(m, &e, i);
    else if (m->kind == MUTATION_STAGED)
        done = take_place(m, &e, i);
    else if (!edited_call(&e, i) && m->kind != MUTATION_RUN_TWICE && m->kind != MUTATION_RUN_SKIPPED)
        done = change_run(m, &e, i);
    else
        done = apply_call(m, &e, i);
    return done;
}
