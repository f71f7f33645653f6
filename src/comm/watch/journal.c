/* A journal is a ring of the last NDP_JOURNAL_RECORDS operations and the state of one wait. Its rank writes it at each
 * begin, wait and end (comm.c, wait.c, mpi_plain.c, p2p.c); the watchdog, the state query and, for records, the
 * transports read it. A read is a copy under the lock, so a reader never sees half an update. */
#include "comm/watch/journal.h"
#include "base/clock.h"
#include "base/turns.h"
#include "comm/watch/health.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { LOCK_TRIES = 100000 };

/* The holder copies for a microsecond. One that was killed meanwhile holds the lock forever: hence the limit. */
static void lock(ndp_journal *j) {
    for (int i = 0; i < LOCK_TRIES && atomic_exchange_explicit(&j->lock, 1, memory_order_acquire); i++)
        ndp_yield();
}

static void unlock(ndp_journal *j) { atomic_store_explicit(&j->lock, 0, memory_order_release); }

/* ---- records ---- */

static void copy_text(char *out, size_t size, const char *text) {
    size_t n = text ? strnlen(text, size - 1) : 0;
    memcpy(out, text ? text : "", n);
    memset(out + n, 0, size - n);
}

static ndp_call_site call_site_of(const ndp_comm *c) {
    ndp_call_site p = {.instr = c->instr, .call = c->call};
    copy_text(p.what, sizeof p.what, c->what);
    return p;
}

static ndp_record *slot(ndp_journal *j, uint32_t number) { return &j->records[number % NDP_JOURNAL_RECORDS]; }

ndp_record *ndp_journal_record(ndp_journal *j, const ndp_work *w) { return slot(j, w->record); }

static uint64_t hash_of_rows(const ndp_work *w) {
    size_t n = (size_t)w->comm->group.count;
    return w->rows ? XXH3_64bits_withSeed(w->rows, n * n * sizeof *w->rows, w->back) : 0;
}

void ndp_journal_begin(ndp_journal *j, ndp_work *w) {
    const ndp_comm *c = w->comm;
    ndp_record r = {.kind = w->kind,
                    .type = w->type,
                    .base = c->group.base,
                    .stride = c->group.stride,
                    .members = c->group.count,
                    .comm = c->number,
                    .reduce = w->reduce,
                    .peer = ndp_comm_world_rank(c, w->peer),
                    .tag = w->tag,
                    .sequence = ndp_work_is_message(w) ? 0 : c->operations,
                    .count = w->count,
                    .rows = hash_of_rows(w),
                    .at = call_site_of(c),
                    .begun = ndp_now(),
                    .waypoint = w->waypoint};
    copy_text(r.group, sizeof r.group, c->name);
    lock(j);
    w->record = j->last = ++j->begun;
    *slot(j, w->record) = r;
    unlock(j);
}

void ndp_journal_set_sequence(ndp_journal *j, const ndp_work *w, uint32_t sequence) {
    lock(j);
    ndp_journal_record(j, w)->sequence = sequence;
    unlock(j);
}

void ndp_journal_end(ndp_journal *j, const ndp_work *w) {
    double now = ndp_now();
    lock(j);
    if (j->begun - w->record < NDP_JOURNAL_RECORDS) {
        slot(j, w->record)->ended = now;
        slot(j, w->record)->in_place = w->in_place;
        slot(j, w->record)->waited = w->waited;
        j->last = w->record;
    }
    unlock(j);
}

void ndp_journal_device_wait_begin(ndp_journal *j, const ndp_work *w, const ndp_call_site *at, int blocked_on) {
    double now = ndp_now();
    lock(j);
    j->wait |= 1;
    j->last_poll = now;
    j->wait_record = w->record;
    j->wait_site = *at;
    j->blocked_on = blocked_on;
    j->peer_wait = 0;
    unlock(j);
}

void ndp_journal_wait_begin(ndp_journal *j, const ndp_work *w, int blocked_on) {
    const ndp_call_site at = call_site_of(w->comm);
    ndp_journal_device_wait_begin(j, w, &at, blocked_on);
}

void ndp_journal_set_on_device(ndp_journal *j, bool waits) {
    lock(j);
    j->on_device = waits;
    unlock(j);
}

void ndp_journal_set_place(ndp_journal *j, const ndp_device_place *p) {
    lock(j);
    j->place = *p;
    unlock(j);
}

void ndp_journal_set_blocked_on(ndp_journal *j, int blocked_on, uint32_t peer_wait) {
    lock(j);
    j->blocked_on = blocked_on;
    j->peer_wait = peer_wait;
    unlock(j);
}

void ndp_journal_wait_end(ndp_journal *j) {
    lock(j);
    j->wait = (j->wait | 1) + 1;
    unlock(j);
}

void ndp_journal_poll(ndp_journal *j, double now) {
    lock(j);
    j->polls++;
    j->last_poll = now;
    unlock(j);
}

ndp_rank_state ndp_journal_read(ndp_journal *j) {
    ndp_rank_state s = {.record.kind = -1};
    lock(j);
    s.wait = j->wait;
    s.waiting = j->wait & 1;
    s.blocked_on = s.waiting ? j->blocked_on : -1;
    s.peer_wait = s.waiting ? j->peer_wait : 0;
    uint32_t number = s.waiting ? j->wait_record : j->last;
    s.known = j->begun > 0;
    s.on_device = j->on_device != 0;
    s.place = j->place;
    if (s.waiting)
        s.at = j->wait_site;
    if (number && j->begun - number < NDP_JOURNAL_RECORDS)
        s.record = *slot(j, number);
    s.polls = j->polls;
    s.last_poll = j->last_poll;
    unlock(j);
    return s;
}

void ndp_journal_put(ndp_journal *j, const ndp_rank_state *s) {
    lock(j);
    j->begun = s->known;
    j->wait = s->wait;
    j->blocked_on = s->blocked_on;
    j->peer_wait = s->peer_wait;
    j->wait_site = s->at;
    j->on_device = s->on_device;
    j->place = s->place;
    j->wait_record = j->last = s->known && s->record.kind >= 0;
    *slot(j, 1) = s->record;
    j->polls = s->polls;
    j->last_poll = s->last_poll;
    unlock(j);
}

/* ---- data of other processes ---- */

static bool text_ends(const char *text, size_t size) { return memchr(text, '\0', size) != NULL; }

/* Reads the byte: a bool other than 0 and 1 would be undefined. */
static bool is_bool(const bool *b) {
    unsigned char byte;
    memcpy(&byte, b, sizeof byte);
    return byte <= 1;
}

static bool group_is_sound(const ndp_record *r, int world) {
    return r->base >= 0 && r->base < world && r->stride >= 0 && r->stride <= world && r->members >= 0 &&
           r->members <= world && (int64_t)r->base + (int64_t)r->stride * (r->members - 1) < world;
}

bool ndp_record_is_sound(const ndp_record *r, int world) {
    return text_ends(r->group, sizeof r->group) && text_ends(r->at.what, sizeof r->at.what) && r->kind >= 0 &&
           r->kind < NDP_WORK_KINDS && r->type >= 0 && r->type < NDP_DTYPES && r->count >= 0 &&
           r->count <= INT64_MAX / 8 && group_is_sound(r, world);
}

bool ndp_rank_state_is_sound(const ndp_rank_state *s, int world) {
    return is_bool(&s->known) && is_bool(&s->waiting) && is_bool(&s->on_device) &&
           text_ends(s->place.at.what, sizeof s->place.at.what) && text_ends(s->place.doing, sizeof s->place.doing) &&
           s->blocked_on >= -1 && s->blocked_on < world && text_ends(s->at.what, sizeof s->at.what) &&
           (s->record.kind == -1 || ndp_record_is_sound(&s->record, world));
}

/* ---- searching: from the newest record to the oldest ---- */

static uint32_t records_kept(const ndp_journal *j) {
    return j->begun < NDP_JOURNAL_RECORDS ? j->begun : NDP_JOURNAL_RECORDS;
}

/* An operation of the stream that the expected one belongs to: collectives of a communicator, or messages to or from
 * one rank. */
static bool is_of_stream(const ndp_record *r, const ndp_expected_op *e) {
    bool message = r->kind == NDP_WORK_SEND || r->kind == NDP_WORK_RECV;
    int wanted = e->receive ? NDP_WORK_RECV : NDP_WORK_SEND;
    return r->base == e->base && r->comm == e->comm && (e->to < 0 ? !message : r->kind == wanted && r->peer == e->to);
}

/* The rank's host has submitted it and its device, if it is one of a device, has come to its begin. */
static bool has_come(const ndp_journal *j, const ndp_record *r, const ndp_expected_op *e) {
    return r->waypoint == 0 || e->on_host || (j->place.waypoint && (int32_t)(j->place.waypoint - r->waypoint) >= 0);
}

ndp_peer_progress ndp_journal_progress(ndp_journal *j, const ndp_expected_op *e) {
    lock(j);
    uint32_t kept = records_kept(j);
    bool submitted = false; /* and the device has not come there */
    ndp_peer_progress p = {.progress = kept == j->begun && e->sequence ? NDP_PROGRESS_NOT_BEGUN : NDP_PROGRESS_UNKNOWN};
    for (uint32_t k = 0; k < kept && e->sequence; k++) {
        const ndp_record *r = slot(j, j->begun - k);
        if (!is_of_stream(r, e))
            continue;
        bool as_far = (int32_t)(r->sequence - e->sequence) >= 0;
        if (as_far && !has_come(j, r, e)) {
            submitted = true;
            if (r->sequence == e->sequence)
                p.progress = NDP_PROGRESS_NOT_BEGUN;
            continue;
        }
        p.progress = as_far ? NDP_PROGRESS_BEGUN : NDP_PROGRESS_NOT_BEGUN;
        break;
    }
    /* Its device goes on to what is submitted, also while its host waits for something else. */
    p.wait = j->wait & 1 && (!submitted || j->on_device) ? j->wait : 0;
    unlock(j);
    return p;
}

static bool is_with(const ndp_record *r, int rank) {
    if (r->ended <= 0 || r->kind == NDP_WORK_SEND || r->kind == NDP_WORK_RECV)
        return false;
    for (int p = 0; p < r->members; p++)
        if (r->base + p * r->stride == rank)
            return true;
    return false;
}

bool ndp_journal_last_with(ndp_journal *j, int rank, ndp_record *out) {
    bool found = false;
    lock(j);
    for (uint32_t k = 0; k < records_kept(j) && !found; k++) {
        const ndp_record *r = slot(j, j->begun - k);
        found = is_with(r, rank);
        if (found)
            *out = *r;
    }
    unlock(j);
    return found;
}

/* ---- comparison and text ---- */

bool ndp_record_matches(const ndp_record *a, const ndp_record *b) {
    bool named = a->at.what[0] && b->at.what[0];
    return a->kind == b->kind && a->type == b->type && a->reduce == b->reduce && a->peer == b->peer &&
           a->count == b->count && a->rows == b->rows && a->sequence == b->sequence &&
           !(named && strncmp(a->at.what, b->at.what, sizeof a->at.what) != 0);
}

static int put_call_site(const ndp_call_site *p, char *out, size_t size) {
    out[0] = '\0';
    if (p->instr >= 0 && p->call >= 0)
        return snprintf(out, size, "#%d.%d ", p->instr, p->call);
    return p->instr >= 0 ? snprintf(out, size, "#%d ", p->instr) : 0;
}

char *ndp_place_text(const ndp_device_place *p, char *out, size_t size) {
    char place[32];
    put_call_site(&p->at, place, sizeof place);
    snprintf(out, size, "%s%s%s%s", place, p->doing, p->at.what[0] ? " " : "", p->at.what);
    return out;
}

static const char *peer_words(const ndp_record *r, char out[24]) {
    bool has = r->kind == NDP_WORK_BROADCAST || r->kind == NDP_WORK_SEND || r->kind == NDP_WORK_RECV;
    out[0] = '\0';
    if (has)
        snprintf(out, 24, " %s rank %d", r->kind == NDP_WORK_SEND ? "to" : "from", r->peer);
    return out;
}

char *ndp_record_text(const ndp_record *r, char *out, size_t size) {
    char place[32], name[NDP_CALL_SITE_NAME + 4], peer[24], more[32] = "";
    bool message = r->kind == NDP_WORK_SEND || r->kind == NDP_WORK_RECV;
    put_call_site(&r->at, place, sizeof place);
    name[0] = '\0';
    if (r->at.what[0])
        snprintf(name, sizeof name, " %s", r->at.what);
    else if (!message)
        snprintf(name, sizeof name, " no. %u", r->sequence);
    if (message)
        snprintf(more, sizeof more, ", tag %d", r->tag);
    else if (r->reduce == NDP_MAX)
        snprintf(more, sizeof more, ", maximum");
    else if (r->rows)
        snprintf(more, sizeof more, " a row, counts %08llx", (unsigned long long)(r->rows >> 32));
    bool typed = r->type != NDP_U8;
    snprintf(out, size, "%s%s%s%s", place, ndp_work_kind_name(r->kind), name, peer_words(r, peer));
    if (r->kind == NDP_WORK_BARRIER)
        return out;
    size_t n = strlen(out);
    snprintf(out + n, size - n, " (%lld bytes%s%s%s)", (long long)r->count * (long long)ndp_dtype_size(r->type),
             typed ? " of " : "", typed ? ndp_dtype_name((ndp_dtype)r->type) : "", more);
    return out;
}

char *ndp_last_text(const ndp_rank_state *s, char *out, size_t size) {
    char text[160];
    out[0] = '\0';
    if (s->record.kind >= 0)
        snprintf(out, size, "; its last operation was %s of group %s", ndp_record_text(&s->record, text, sizeof text),
                 s->record.group);
    size_t n = strlen(out);
    if (s->place.waypoint && !s->place.idle)
        snprintf(out + n, size - n, "; its device was last seen at %s", ndp_place_text(&s->place, text, sizeof text));
    return out;
}

ndp_status ndp_record_mismatch(const ndp_comm *c, int rank_a, const ndp_record *a, int rank_b, const ndp_record *b) {
    char one[160], other[160];
    return NDP_FAIL(NDP_ECOMM, "%s: rank %d is at %s, rank %d at %s", c->name, rank_a,
                    ndp_record_text(a, one, sizeof one), rank_b, ndp_record_text(b, other, sizeof other));
}

/* ---- the file ---- */

static void write_record(FILE *f, const ndp_record *r, double now) {
    char text[160];
    fprintf(f, "%s %s, begun %.6f s ago, ", r->group, ndp_record_text(r, text, sizeof text), now - r->begun);
    if (r->ended > 0)
        fprintf(f, "took %.6f s, waited for %.6f s%s\n", r->ended - r->begun, r->waited,
                r->in_place ? ", in place" : "");
    else
        fprintf(f, "not ended\n");
}

/* 0: there is no such file. */
static uint64_t inode_of(const char *folder, const char *name) {
    char path[NDP_JOURNAL_PREFIX];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

void ndp_transport_keep_journals(ndp_transport *t, const char *folder) {
    uint32_t none = 0;
    ndp_health *h = t->health;
    if (!h || strlen(folder) >= sizeof h->folder || !atomic_compare_exchange_strong(&h->keeps, &none, 1))
        return;
    memcpy(h->folder, folder, strlen(folder) + 1);
    h->lock = inode_of(folder, "lock");
    h->job = inode_of(folder, "job.yaml");
    atomic_store(&h->keeps, 2);
}

/* At the end of a run its lock is gone. */
static bool is_ours(const ndp_health *h) {
    uint64_t lock = inode_of(h->folder, "lock");
    return h->job && inode_of(h->folder, "job.yaml") == h->job && (lock == 0 || lock == h->lock);
}

const char *ndp_journal_prefix(const ndp_health *h, char out[NDP_JOURNAL_PREFIX]) {
    const char *given = getenv("NDP_JOURNAL");
    if (given && *given)
        return given;
    if (!h || atomic_load(&h->keeps) != 2 || !is_ours(h))
        return NULL;
    snprintf(out, NDP_JOURNAL_PREFIX, "%s/journal", h->folder);
    return out;
}

void ndp_journal_write_file(const char *prefix, const ndp_journal *j, int rank, int world, const char *why) {
    char path[4096];
    snprintf(path, sizeof path, "%s.rank%d", prefix, rank);
    FILE *f = fopen(path, "we");
    if (!f)
        return;
    uint32_t first = j->begun > NDP_JOURNAL_RECORDS ? j->begun - NDP_JOURNAL_RECORDS + 1 : 1;
    fprintf(f, "rank %d of %d failed: %s\n%u operations were begun; the last of them, group first:\n", rank, world, why,
            j->begun);
    for (uint32_t n = first; n <= j->begun; n++)
        if (ndp_record_is_sound(&j->records[n % NDP_JOURNAL_RECORDS], world))
            write_record(f, &j->records[n % NDP_JOURNAL_RECORDS], ndp_now());
    fclose(f);
}

void ndp_journal_write(ndp_transport *t) {
    char own[NDP_JOURNAL_PREFIX];
    const char *prefix = ndp_journal_prefix(t->health, own);
    if (!prefix || !t->journals || t->journal_written)
        return;
    t->journal_written = true;
    ndp_journal_write_file(prefix, &t->journals[t->rank], t->rank, t->world, ndp_error_message());
}
