/* Ranks of a lost host move to free slots of the others, in the order of the hostfile; ranks of the others stay. Two
 * hosts that were cut off from each other have named each other, so a host that was named and can be reached is the
 * last choice, but one. Called before a restart (plan/restart.c). */
#include "launch/spare_hosts.h"

#include <stdlib.h>
#include <string.h>

/* ---- which are lost ---- */

/* This host was named if the other one is cut off. */
static void note_named(const ndp_spare_seek *s, ndp_spare_hosts *h) {
    for (int i = 0; i < h->list.n; i++)
        for (int k = 0; k < s->n_named && !h->lost[i]; k++)
            h->lost[i] = ndp_is_same_host(h->list.items[i].name, s->named[k]) && !ndp_is_here(h->list.items[i].name);
}

/* Asks those that are (not) lost so far whether they answer. */
static ndp_status ask(ndp_spare_hosts *h, bool lost) {
    ndp_host *asked = calloc((size_t)h->list.n + 1, sizeof *asked);
    bool *reached = calloc((size_t)h->list.n + 1, sizeof *reached);
    int n = 0;
    for (int i = 0; asked && reached && i < h->list.n; i++)
        if (h->lost[i] == lost)
            asked[n++] = h->list.items[i];
    ndp_status st = NDP_MEMORY(asked && reached, "for a list of hosts");
    if (st == NDP_OK)
        ndp_hosts_try(asked, n, reached);
    for (int i = 0, k = 0; st == NDP_OK && i < h->list.n; i++)
        if (h->lost[i] == lost)
            h->lost[i] = !reached[k++];
    free(asked);
    free(reached);
    return st;
}

static void count(ndp_spare_hosts *h) {
    h->slots = h->n_lost = 0;
    for (int i = 0; i < h->list.n; i++) {
        h->n_lost += h->lost[i];
        h->slots += h->lost[i] ? 0 : h->list.items[i].slots;
    }
}

static ndp_status name_lost(ndp_spare_hosts *h) {
    ndp_str names = {0};
    ndp_str_add(&names, h->n_lost == 1 ? "host" : "hosts");
    for (int i = 0, k = 0; i < h->list.n; i++)
        if (h->lost[i])
            ndp_str_addf(&names, "%s %s", k++ ? "," : "", h->list.items[i].name);
    ndp_str_add(&names, h->n_lost == 1 ? " is lost" : " are lost");
    h->names = ndp_str_detach(&names);
    return NDP_MEMORY(h->names, "for the names of hosts");
}

static ndp_status check_slots(const ndp_spare_seek *s, const ndp_spare_hosts *h) {
    for (int i = 0; i < h->list.n && h->n_lost; i++)
        NDP_CHECK(h->list.items[i].stated,
                  "%s, and %s:%d does not say how many ranks '%s' takes: write slots=N in each line, and continue with "
                  "--resume",
                  h->names, s->hostfile, h->list.items[i].line, h->list.items[i].name);
    return NDP_OK;
}

static ndp_status find(const ndp_spare_seek *s, ndp_spare_hosts *h) {
    NDP_TRY(ndp_hosts_read(s->hostfile, &h->list));
    h->lost = calloc((size_t)h->list.n + 1, sizeof *h->lost);
    NDP_CHECK_MEMORY(h->lost, "for a list of hosts");
    h->a_slot = 1;
    note_named(s, h);
    count(h);
    bool all = h->slots < s->ranks; /* are needed, those that were named as well */
    if (all)
        memset(h->lost, 0, (size_t)h->list.n * sizeof *h->lost);
    NDP_TRY(ask(h, false));
    count(h);
    if (!all && h->slots < s->ranks) {
        NDP_TRY(ask(h, true));
        count(h);
    }
    if (h->slots < s->ranks && s->oversubscribe)
        h->a_slot = 2;
    NDP_TRY(name_lost(h));
    return check_slots(s, h);
}

ndp_status ndp_spare_hosts_find(const ndp_spare_seek *s, ndp_spare_hosts *out) {
    ndp_spare_hosts h = {0};
    ndp_status st = find(s, &h);
    if (st == NDP_OK)
        *out = h;
    else
        ndp_spare_hosts_release(&h);
    return st;
}

void ndp_spare_hosts_release(ndp_spare_hosts *h) {
    ndp_host_list_release(&h->list);
    free(h->lost);
    free(h->names);
    *h = (ndp_spare_hosts){0};
}

/* ---- places ---- */

/* Places of ranks: hosts, by their number in the list. */
typedef struct places {
    const ndp_spare_hosts *h;
    int *of, *used; /* of a rank, -1: none yet; ranks of a host */
    int ranks;
} places;

static void put(places *p, int rank, int host) {
    p->of[rank] = host;
    p->used[host]++;
}

/* Where they were. */
static void keep(places *p, const char *const *before) {
    const ndp_host_list *list = &p->h->list;
    for (int r = 0, host = 0, filled = 0; r < p->ranks; r++) {
        while (!before && host < list->n && filled == list->items[host].slots)
            host++, filled = 0;
        const ndp_host *was = before ? ndp_host_find(list, before[r]) : host < list->n ? &list->items[host] : NULL;
        filled++;
        if (was && !p->h->lost[was - list->items])
            put(p, r, (int)(was - list->items));
    }
}

/* In the free places of a slot, then in its second ones. */
static void fill(places *p) {
    const ndp_host_list *list = &p->h->list;
    for (int a_slot = 1, host = 0, r = 0; a_slot <= p->h->a_slot; a_slot++, host = 0)
        for (; r < p->ranks; r++) {
            if (p->of[r] >= 0)
                continue;
            while (host < list->n && (p->h->lost[host] || p->used[host] >= list->items[host].slots * a_slot))
                host++;
            if (host == list->n)
                break;
            put(p, r, host);
        }
}

static void say_moved(const places *p, const bool *stays, ndp_str *out) {
    for (int r = 0, n = 0; r < p->ranks; r++) {
        int first = r;
        if (stays[r])
            continue;
        while (r + 1 < p->ranks && !stays[r + 1] && p->of[r + 1] == p->of[first])
            r++;
        ndp_str_addf(out, n++ ? ", rank" : "rank");
        ndp_str_addf(out, r > first ? "s %d-%d" : " %d", first, r);
        ndp_str_addf(out, "%s on %s", n == 1 ? r > first ? " start" : " starts" : "", p->h->list.items[p->of[r]].name);
    }
    if (p->h->a_slot > 1)
        ndp_str_addf(out, "%sup to two ranks a slot", out->length ? ", " : "");
}

static ndp_status name_places(const places *p, char ***out) {
    char **names = calloc((size_t)p->ranks + 1, sizeof *names);
    bool ok = names;
    for (int r = 0; ok && r < p->ranks; r++)
        ok = (names[r] = strdup(p->h->list.items[p->of[r]].name));
    for (int r = 0; !ok && names && names[r]; r++)
        free(names[r]);
    if (!ok)
        free(names);
    else
        *out = names;
    return NDP_MEMORY(ok, "for the hosts of %d ranks", p->ranks);
}

ndp_status ndp_spare_hosts_place(const ndp_spare_hosts *h, int ranks, const char *const *before, ndp_str *moved,
                                 char ***out) {
    NDP_CHECK(ranks <= ndp_spare_hosts_room(h), "%d ranks, and hosts with %d places are left", ranks,
              ndp_spare_hosts_room(h));
    places p = {h, malloc(sizeof *p.of * (size_t)(ranks + 1)), calloc((size_t)h->list.n + 1, sizeof *p.used), ranks};
    bool *stays = calloc((size_t)ranks + 1, sizeof *stays);
    ndp_status st = NDP_MEMORY(p.of && p.used && stays, "for the hosts of %d ranks", ranks);
    for (int r = 0; r < ranks && st == NDP_OK; r++)
        p.of[r] = -1;
    if (st == NDP_OK) {
        keep(&p, before);
        for (int r = 0; r < ranks; r++)
            stays[r] = p.of[r] >= 0;
        fill(&p);
        say_moved(&p, stays, moved);
        st = name_places(&p, out);
    }
    free(p.of);
    free(p.used);
    free(stays);
    return st;
}
