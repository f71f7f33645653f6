/* Facts and efficiencies from measurements. A median, unlike a mean, is not moved by one shape that is far from the
 * others, which the list of misses names instead. */
#include "measure/measure_device.h"

#include "base/cpu.h"
#include "base/memory_limit.h"
#include "cluster/host_share.h"
#include "measure/median.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* A share of the measured seconds: what is further off is a miss. */
static const double near_enough = 0.10;

static bool is_compute(const ndp_timing *m) { return m->kind == NDP_TIMING_PRODUCT || m->kind == NDP_TIMING_ATTENTION; }

static ndp_status check_measures(const ndp_timings *all) {
    static const char *const names[] = {"call", "memory", "product", "attention"};
    int n[NDP_TIMING_KINDS] = {0};
    for (int i = 0; i < all->n; i++) {
        const ndp_timing *m = &all->of[i];
        double work = is_compute(m) ? m->flops : m->bytes;
        NDP_CHECK(m->seconds > 0 && isfinite(m->seconds) && work > 0 && isfinite(work),
                  "%s: %g s for %g %s is no measurement", m->name, m->seconds, work,
                  is_compute(m) ? "operations" : "bytes");
        n[m->kind]++;
    }
    for (int i = 0; i < NDP_TIMING_KINDS; i++)
        NDP_CHECK(n[i] > 0, "no measurement of kind %s: a device cannot be described without one", names[i]);
    return NDP_OK;
}

/* What the shape of a product or of attention, whose queries see half of the rows, reaches of a large one's rate. */
static double shape_share(const ndp_timing *m, bool host) {
    if (!host)
        return 1;
    return m->kind == NDP_TIMING_PRODUCT ? ndp_host_product_share((double)m->m, (double)m->n, (double)m->k)
                                         : ndp_host_attention_share((double)m->m / 2, (double)m->k);
}

/* Of a large shape, without what its calls cost before they compute, so that ndp_fit_seconds does not count that twice.
 */
static double rate_of(const ndp_timing *m, double call_seconds, bool host) {
    if (!is_compute(m))
        return m->bytes / m->seconds;
    return m->flops / fmax(m->seconds - m->calls * call_seconds, m->seconds / 2) / shape_share(m, host);
}

/* Of the shares of the best that the measurements of this kind reach. */
static double median_share(const ndp_timings *all, ndp_timing_kind kind, const ndp_device_facts *f) {
    double shares[NDP_MOST_TIMINGS];
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        const ndp_timing *m = &all->of[i];
        if (m->kind == kind)
            shares[n++] =
                rate_of(m, f->call_seconds, all->host) / (is_compute(m) ? f->flops[m->type] : f->memory_bandwidth);
    }
    return ndp_median(shares, n);
}

static void set_facts(const ndp_timings *all, ndp_device_facts *f) {
    f->call_seconds = INFINITY;
    for (int i = 0; i < all->n; i++)
        if (all->of[i].kind == NDP_TIMING_CALL)
            f->call_seconds = fmin(f->call_seconds, all->of[i].seconds);
    f->memory_bandwidth = 0;
    memset(f->flops, 0, sizeof f->flops);
    for (int i = 0; i < all->n; i++) {
        const ndp_timing *m = &all->of[i];
        double *best = is_compute(m) ? &f->flops[m->type] : &f->memory_bandwidth;
        if (m->kind != NDP_TIMING_CALL)
            *best = fmax(*best, rate_of(m, f->call_seconds, all->host));
    }
    f->memory_bytes = all->memory_bytes;
    f->multiprocessors = all->multiprocessors;
}

double ndp_fit_seconds(const ndp_timing *m, bool host, const ndp_device_facts *f, const ndp_efficiency *e) {
    double share = m->kind == NDP_TIMING_ATTENTION ? e->attention : e->matmul;
    double compute = is_compute(m) ? m->flops / (f->flops[m->type] * share * shape_share(m, host)) : 0;
    double memory = m->kind == NDP_TIMING_CALL ? 0 : m->bytes / (f->memory_bandwidth * e->memory);
    return fmax(compute + m->calls * f->call_seconds, memory);
}

static void add_misses(const ndp_timings *all, const ndp_device_facts *f, const ndp_efficiency *e, ndp_str *out) {
    for (int i = 0; i < all->n; i++) {
        const ndp_timing *m = &all->of[i];
        double fit = ndp_fit_seconds(m, all->host, f, e), off = fit / m->seconds - 1;
        if (fabs(off) > near_enough)
            ndp_str_addf(out, "%s: measured %.4g ms, by the fit %.4g ms (%+.0f%%)\n", m->name, 1e3 * m->seconds,
                         1e3 * fit, 100 * off);
    }
}

ndp_status ndp_fit_device(const ndp_timings *measures, ndp_device_facts *facts, ndp_efficiency *e, ndp_str *misses) {
    NDP_TRY(check_measures(measures));
    set_facts(measures, facts);
    e->matmul = median_share(measures, NDP_TIMING_PRODUCT, facts);
    e->attention = median_share(measures, NDP_TIMING_ATTENTION, facts);
    e->memory = median_share(measures, NDP_TIMING_MEMORY, facts);
    add_misses(measures, facts, e, misses);
    return NDP_OK;
}

ndp_status ndp_measure_cpu(int threads, ndp_device_facts *facts, ndp_efficiency *e) {
    const double seconds = 0.5;
    const ndp_exec exec = ndp_exec_of(&ndp_device_cpu, threads, 0);
    ndp_timings measures;
    ndp_str misses = {0}; /* shapes are small: many */
    NDP_TRY(ndp_measure_device(&exec, NULL, seconds, &measures));
    ndp_status st = ndp_fit_device(&measures, facts, e, &misses);
    ndp_str_release(&misses);
    return st;
}

/* Rates by the threads of a rank, which measurements of their own would give a little otherwise to every layout of a
 * plan. */
static struct {
    pthread_mutex_t lock;
    int n;
    struct measured_cpu {
        int threads;
        ndp_device_facts facts;
    } of[16];
} cpus = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ndp_status find_cpu(int threads, ndp_device_facts *out) {
    ndp_efficiency unused; /* the file's stand */
    for (int i = 0; i < cpus.n; i++)
        if (cpus.of[i].threads == threads) {
            *out = cpus.of[i].facts;
            return NDP_OK;
        }
    NDP_TRY(ndp_measure_cpu(threads, out, &unused));
    if (cpus.n < NDP_COUNT(cpus.of))
        cpus.of[cpus.n++] = (struct measured_cpu){threads, *out};
    return NDP_OK;
}

ndp_status ndp_cluster_complete(ndp_cluster *c) {
    bool known = c->facts.memory_bandwidth > 0 && c->facts.flops[NDP_RATE_FP32] + c->facts.flops[NDP_RATE_BF16] > 0;
    if (known || !c->like || strcmp(c->like, "cpu") != 0)
        return NDP_OK;
    int devices = 1;
    ndp_device_facts facts = {0};
    char name[NDP_CPU_NAME];
    for (int i = 0; i < c->nodes; i++)
        devices = c->devices_of[i] > devices ? c->devices_of[i] : devices;
    pthread_mutex_lock(&cpus.lock);
    ndp_status st = find_cpu(ndp_device_threads(devices), &facts);
    pthread_mutex_unlock(&cpus.lock);
    NDP_TRY(st);
    c->facts.full_name = c->facts.full_name ? c->facts.full_name : strdup(ndp_cpu_name(name));
    NDP_CHECK_MEMORY(c->facts.full_name, "for the name of a device");
    memcpy(c->facts.flops, facts.flops, sizeof facts.flops);
    c->facts.memory_bandwidth = facts.memory_bandwidth, c->facts.multiprocessors = facts.multiprocessors;
    c->facts.call_seconds = facts.call_seconds, c->facts.memory_bytes = (double)ndp_memory_available();
    return NDP_OK;
}
