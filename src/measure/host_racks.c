/* Which hosts share a switch (ndp_host_links_group).
 *
 * Two hosts whose link is slow while all hosts are busy are apart: what joins their switches is shared. Two hosts whose
 * link is as fast as their NICs may be apart too, where few others used that trunk at the time. So each link has a
 * weight, a slow one more than a fast one, and the racks are those with a great sum of the weights inside them: the two
 * racks whose links weigh most, on average, are joined as long as that does not make the sum less. Among links alike it
 * prefers hosts which are slow to the same others: these are likely on the same side. */
#include "measure/host_links.h"
#include "measure/median.h"

#include <stdlib.h>
#include <string.h>

static const double near_share = 0.7; /* of a NIC; two links on a trunk for one get half */
static const double slow_weight = -2; /* racks stay apart if more than a third of the links between them are slow */
static const double common_weight = 0.05;

typedef struct rack_search {
    ndp_host_links *l;
    double *weight;                      /* [n][n] by host: of the link, both ways together */
    double *common;                      /* [n][n] by host: others that both are slow to */
    double *links, *weights, *in_common; /* [n][n] by rack: number, and sums of the two */
    int *sizes;                          /* by rack */
    double *memory;
} rack_search;

static ndp_status search_init(rack_search *s) {
    size_t n = (size_t)s->l->n, all = 5 * n * n;
    double *memory = calloc(1, all * sizeof *memory + n * sizeof *s->sizes);
    NDP_CHECK_MEMORY(memory, "for the racks of %d hosts", s->l->n);
    s->memory = s->weight = memory;
    s->common = s->weight + n * n;
    s->links = s->common + n * n;
    s->weights = s->links + n * n;
    s->in_common = s->weights + n * n;
    s->sizes = (int *)(void *)(memory + all);
    return NDP_OK;
}

/* ---- weights ---- */

/* What one rank of a host passes at best. All of its ranks may pass more, but only one was in the rounds. */
static double one_rank_rate(const ndp_host_links *l, int host) {
    double best = l->alone[host];
    for (int k = 0; k < l->n; k++)
        best = l->together[host * l->n + k] > best ? l->together[host * l->n + k] : best;
    return best;
}

/* The slower one of two hosts limits their link. If that is a slow host, whose part of a trunk may be more than it can
 * use, a fast link means nothing. */
static void weigh(rack_search *s) {
    const ndp_host_links *l = s->l;
    int n = l->n;
    double *rate = s->links, *sorted = rate + n; /* n x n has room: n is 2 at least */
    for (int i = 0; i < n; i++)
        sorted[i] = rate[i] = one_rank_rate(l, i);
    double usual = ndp_median(sorted, n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            double is = l->together[i * n + k], most = rate[i] < rate[k] ? rate[i] : rate[k];
            double weight = is == 0 ? 0 : is < near_share * most ? slow_weight : most < usual / 2 ? 0 : 1;
            s->weight[i * n + k] += weight;
            s->weight[k * n + i] += weight;
        }
}

static void count_common(rack_search *s) {
    int n = s->l->n;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n && s->weight[j * n + i] < 0; k++)
                s->common[i * n + k] += s->weight[j * n + k] < 0;
}

/* ---- the search ---- */

/* Sums over the links between every two racks. */
static void sum_up(rack_search *s) {
    const ndp_host_links *l = s->l;
    int n = l->n;
    size_t bytes = (size_t)n * (size_t)n * sizeof *s->links;
    memset(s->links, 0, bytes);
    memset(s->weights, 0, bytes);
    memset(s->in_common, 0, bytes);
    memset(s->sizes, 0, (size_t)n * sizeof *s->sizes);
    for (int i = 0; i < n; i++) {
        s->sizes[l->rack_of[i]]++;
        for (int k = 0; k < n; k++) {
            int at = l->rack_of[i] * n + l->rack_of[k];
            s->links[at] += l->together[i * n + k] > 0;
            s->weights[at] += s->weight[i * n + k];
            s->in_common[at] += s->common[i * n + k];
        }
    }
}

/* The two racks to join next: the smallest ones of those alike. */
static bool find_two(const rack_search *s, int *a, int *b) {
    double best = -1;
    int n = s->l->n, size = 0;
    for (int i = 0; i < s->l->racks; i++)
        for (int k = i + 1; k < s->l->racks; k++) {
            int at = i * n + k, both = s->sizes[i] + s->sizes[k];
            double mean = (s->weights[at] + common_weight * s->in_common[at]) / (s->sizes[i] * s->sizes[k]);
            if (s->links[at] + s->links[k * n + i] == 0 || s->weights[at] < 0 || mean < best ||
                (mean == best && both >= size))
                continue;
            best = mean;
            size = both;
            *a = i;
            *b = k;
        }
    return best >= 0;
}

/* Adds the sums of rack b to those of a; the last one becomes rack b. */
static void join(rack_search *s, int a, int b) {
    ndp_host_links *l = s->l;
    double *sums[] = {s->links, s->weights, s->in_common};
    int n = l->n, last = --l->racks;
    for (int t = 0; t < NDP_COUNT(sums); t++) {
        for (int k = 0; k < n; k++)
            sums[t][a * n + k] += sums[t][b * n + k];
        for (int k = 0; k < n; k++)
            sums[t][k * n + a] += sums[t][k * n + b];
        for (int k = 0; k < n; k++)
            sums[t][b * n + k] = sums[t][last * n + k];
        for (int k = 0; k < n; k++)
            sums[t][k * n + b] = sums[t][k * n + last];
    }
    s->sizes[a] += s->sizes[b];
    s->sizes[b] = s->sizes[last];
    for (int i = 0; i < n; i++)
        l->rack_of[i] = l->rack_of[i] == b ? a : l->rack_of[i] == last ? b : l->rack_of[i];
}

/* Numbers the racks in the order of their first hosts. */
static void number_racks(rack_search *s) {
    ndp_host_links *l = s->l;
    int *number = s->sizes;
    l->racks = 0;
    for (int rack = 0; rack < l->n; rack++)
        number[rack] = -1;
    for (int i = 0; i < l->n; i++) {
        if (number[l->rack_of[i]] < 0)
            number[l->rack_of[i]] = l->racks++;
        l->rack_of[i] = number[l->rack_of[i]];
    }
}

ndp_status ndp_host_links_group(ndp_host_links *l) {
    rack_search s = {.l = l};
    int a = 0, b = 0;
    l->racks = l->n;
    for (int i = 0; i < l->n; i++)
        l->rack_of[i] = i;
    if (l->n < 2)
        return NDP_OK;
    NDP_TRY(search_init(&s));
    weigh(&s);
    count_common(&s);
    sum_up(&s);
    while (find_two(&s, &a, &b))
        join(&s, a, b);
    number_racks(&s);
    free(s.memory);
    return NDP_OK;
}
