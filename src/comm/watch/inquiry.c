#include "comm/watch/inquiry.h"
#include "base/clock.h"
#include "comm/watch/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUESTION, ANSWER, FAILURE, TAGS };

static const int64_t bytes_of[TAGS] = {sizeof(ndp_question), sizeof(ndp_answer), sizeof(ndp_failure)};

#define ASK_SECONDS 0.2 /* between two questions about one rank */

static ndp_status said(const char *text) {
    return text ? NDP_FAIL(NDP_ECOMM, "MPI failed while ranks asked each other where they are: %s", text) : NDP_OK;
}

bool ndp_inquiry_is_near(const ndp_inquiry *q, int rank) { return !q || q->node_of[rank] == q->node_of[q->t->rank]; }

/* `left` first: a rank that leaves has begun all before. */
ndp_arrival ndp_inquiry_judge(const ndp_transport *t, int rank, const ndp_awaited *a) {
    bool left = atomic_load(&t->health->of[rank].left) != 0;
    ndp_arrival v = ndp_journal_judge(&t->journals[rank], a);
    v.left = left;
    return v;
}

/* ---- out ---- */

/* *out = NULL when all are on their way: what was to be said is said later, or not at all. */
static ndp_status free_slot(ndp_inquiry *q, ndp_inquiry_slot **out) {
    *out = NULL;
    for (int k = 0; k < NDP_INQUIRY_SLOTS && !*out; k++) {
        int done;
        NDP_TRY(said(q->api->test(&q->out[k].request, &done)));
        if (done)
            *out = &q->out[k];
    }
    return NDP_OK;
}

/* Times into ages, and back. */
static void turn_times(ndp_standing *s, double now) {
    s->looked = now - s->looked;
    s->record.begun = now - s->record.begun;
    if (s->record.ended > 0)
        s->record.ended = now - s->record.ended;
}

static ndp_status answer(ndp_inquiry *q, int to, const ndp_question *asked, ndp_inquiry_slot *slot) {
    const ndp_transport *t = q->t;
    ndp_answer *a = &slot->data.answer;
    *a = (ndp_answer){.number = asked->number, .about = asked->about, .standing.record.kind = -1};
    if (asked->about >= 0 && asked->about < t->world && ndp_inquiry_is_near(q, asked->about)) {
        ndp_journal *j = &t->journals[asked->about];
        double now = ndp_now();
        a->arrival = ndp_inquiry_judge(t, asked->about, &asked->whether);
        a->standing = ndp_journal_read(j);
        turn_times(&a->standing, now);
    }
    return said(q->api->send(q->comm, a, sizeof *a, to, ANSWER, &slot->request));
}

/* ---- in ---- */

static ndp_status fail_message(int from, const char *what) {
    return NDP_FAIL(
        NDP_ECOMM,
        "rank %d sent a damaged %s; do all ranks run the same build? ndparallel --version tells on each host", from,
        what);
}

static bool answer_is_sound(const ndp_answer *a, int world) {
    int come;
    unsigned char left;
    memcpy(&come, &a->arrival.come, sizeof come);
    memcpy(&left, &a->arrival.left, sizeof left);
    return come >= NDP_COME_UNKNOWN && come <= NDP_COME_NO && left <= 1 && ndp_standing_is_sound(&a->standing, world);
}

/* Answers of an earlier wait say nothing about now. */
static ndp_status take(ndp_inquiry *q, int from, const ndp_answer *a) {
    const ndp_transport *t = q->t;
    if (!answer_is_sound(a, t->world))
        return fail_message(from, "answer");
    q->far[from].owes = false;
    if (a->about < 0 || a->about >= t->world || ndp_inquiry_is_near(q, a->about))
        return NDP_OK;
    ndp_far *f = &q->far[a->about];
    if (!q->wait || a->number != q->wait || f->wait != q->wait)
        return NDP_OK;
    double now = ndp_now();
    ndp_standing s = a->standing;
    turn_times(&s, now);
    ndp_journal_put(&t->journals[a->about], &s);
    f->heard = now;
    f->arrival = a->arrival;
    if (from == a->about) {
        f->asked = 0;
        f->tries = 0;
    }
    return NDP_OK;
}

static ndp_status take_failure(ndp_inquiry *q, int from, ndp_failure *f) {
    if (f->rank < 0 || f->rank >= q->t->world)
        return fail_message(from, "failure");
    f->message[sizeof f->message - 1] = '\0';
    ndp_health_fail(q->t->health, f->rank, f->message);
    return NDP_OK;
}

/* One message, when there is one; *more = false when there is none, or it cannot be answered now. */
static ndp_status serve_one(ndp_inquiry *q, bool *more) {
    ndp_inquiry_slot *slot;
    int done, from;
    *more = false;
    NDP_TRY(free_slot(q, &slot));
    if (!slot)
        return NDP_OK;
    if (q->in_from < 0) {
        NDP_TRY(said(q->api->probe(q->comm, &done, &q->in_from, &q->in_tag)));
        if (!done)
            return NDP_OK;
        from = q->in_from;
        if (from < 0 || from >= q->t->world || q->in_tag < 0 || q->in_tag >= TAGS) {
            q->in_from = -1;
            return fail_message(from, "message");
        }
        NDP_TRY(said(q->api->recv(q->comm, &q->in.data, bytes_of[q->in_tag], q->in_from, q->in_tag, &q->in.request)));
    }
    NDP_TRY(said(q->api->test(&q->in.request, &done)));
    if (!done)
        return NDP_OK;
    from = q->in_from;
    q->in_from = -1;
    *more = true;
    if (q->in_tag == QUESTION)
        return answer(q, from, &q->in.data.question, slot);
    return q->in_tag == ANSWER ? take(q, from, &q->in.data.answer) : take_failure(q, from, &q->in.data.failure);
}

void ndp_inquiry_progress(ndp_inquiry *q) {
    int there, from, tag;
    if (q && q->api->probe(q->comm, &there, &from, &tag))
        return; /* it is over anyway */
}

/* Whether the messages arrive is not waited for. */
void ndp_inquiry_tell_failure(ndp_inquiry *q, const char *message) {
    if (!q)
        return;
    ndp_failure *f = &q->failure;
    f->rank = q->t->rank;
    snprintf(f->message, sizeof f->message, "%s", message);
    for (int r = 0; r < q->t->world; r++) {
        uint64_t request;
        if (!ndp_inquiry_is_near(q, r) && q->api->send(q->comm, f, sizeof *f, r, FAILURE, &request))
            return;
    }
}

ndp_status ndp_inquiry_serve(ndp_inquiry *q, const ndp_awaited *a) {
    if (!q)
        return NDP_OK;
    ndp_standing me = ndp_journal_read(&q->t->journals[q->t->rank]);
    q->wait = me.waiting ? me.waits : 0;
    q->awaited = a ? *a : (ndp_awaited){0};
    for (bool more = true; more;)
        NDP_TRY(serve_one(q, &more));
    return NDP_OK;
}

/* ---- asking ---- */

/* Whom to ask about `rank`: itself, and while it is silent in turn the ranks of its node; -1: nobody now. */
static int whom(const ndp_inquiry *q, int rank) {
    int mates = 0, turn = q->far[rank].tries, chosen = -1;
    for (int r = 0; r < q->t->world; r++)
        mates += q->node_of[r] == q->node_of[rank] && r != rank;
    turn %= mates + 1;
    for (int r = 0; r < q->t->world && turn > 0; r++)
        if (q->node_of[r] == q->node_of[rank] && r != rank && --turn == 0)
            chosen = r;
    chosen = chosen < 0 ? rank : chosen;
    return q->far[chosen].owes ? -1 : chosen;
}

static ndp_status ask(ndp_inquiry *q, int rank, ndp_far *f, double now) {
    ndp_inquiry_slot *slot;
    int to = whom(q, rank);
    f->tried = now;
    f->tries++;
    if (f->asked <= 0)
        f->asked = now;
    NDP_TRY(free_slot(q, &slot));
    if (!slot || to < 0)
        return NDP_OK;
    slot->data.question = (ndp_question){.number = q->wait, .about = rank, .whether = q->awaited};
    q->far[to].owes = true;
    return said(q->api->send(q->comm, &slot->data.question, sizeof slot->data.question, to, QUESTION, &slot->request));
}

ndp_status ndp_inquiry_ask(ndp_inquiry *q, int rank) {
    ndp_far *f = &q->far[rank];
    double now = ndp_now();
    if (!q->wait)
        return NDP_OK;
    if (f->wait != q->wait)
        *f = (ndp_far){.wait = q->wait, .owes = f->owes};
    return now - f->tried >= ASK_SECONDS ? ask(q, rank, f, now) : NDP_OK;
}

const ndp_far *ndp_inquiry_heard(const ndp_inquiry *q, int rank) {
    const ndp_far *f = &q->far[rank];
    return q->wait && f->wait == q->wait && f->heard > 0 ? f : NULL;
}

double ndp_inquiry_silence(const ndp_inquiry *q, int rank) {
    if (ndp_inquiry_is_near(q, rank) || q->far[rank].wait != q->wait || q->far[rank].asked <= 0)
        return 0;
    return ndp_now() - q->far[rank].asked;
}

/* ---- the handle ---- */

ndp_status ndp_inquiry_create(const ndp_mpi_api *api, ndp_transport *t, const int *node_of, ndp_inquiry **out) {
    ndp_inquiry *q = calloc(1, sizeof *q);
    ndp_far *far = calloc((size_t)t->world, sizeof *far);
    const char *text = q && far ? api->comm_create(0, 1, t->world, &q->comm) : NULL;
    if (!q || !far || text) {
        free(q);
        free(far);
        return text ? NDP_FAIL(NDP_ECOMM, "MPI gives no communicator of %d ranks: %s", t->world, text)
                    : NDP_FAIL(NDP_ENOMEM, "no memory for a world of %d ranks", t->world);
    }
    q->api = api;
    q->t = t;
    q->node_of = node_of;
    q->far = far;
    q->in_from = -1;
    *out = q;
    return NDP_OK;
}

void ndp_inquiry_destroy(ndp_inquiry *q, bool quiet) {
    if (!q)
        return;
    free(q->far);
    if (quiet) /* MPI may still read and write here; the process is about to end */
        return;
    q->api->comm_destroy(q->comm);
    free(q);
}
