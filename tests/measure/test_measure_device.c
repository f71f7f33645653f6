/* Devices are measured, whatever they are; the fit of measurements made by hand is exact. What a device reaches, a test
 * cannot know. */
#include "check.h"
#include "cluster/host_share.h"
#include "measure/group_timing.h"
#include "measure/measure_calls.h"
#include "measure/measure_device.h"
#include "ops/devices.h"

#include <math.h>

/* ---- measuring ---- */

/* Appends a line: "linear 1024 x 1024 x 1024, fp32: 21.3 ms, 100.8 GFLOP/s". */
static void describe(const ndp_timing *m, ndp_str *out) {
    static const char *const units[] = {"calls/s", "GB/s", "GFLOP/s", "GFLOP/s"};
    double unit = m->kind == NDP_TIMING_CALL ? 1 : 1e9;
    ndp_str_addf(out, "%s: %.4g ms, %.4g %s\n", m->name, 1e3 * m->seconds, m->rate / unit, units[m->kind]);
}

static void check_timings(const ndp_timings *all) {
    int n[NDP_TIMING_KINDS] = {0}, types[NDP_RATES] = {0};
    assert_true(all->n > 0 && all->n <= NDP_MOST_TIMINGS);
    assert_true(all->memory_bytes > 0);
    for (int i = 0; i < all->n; i++) {
        const ndp_timing *m = &all->of[i];
        assert_true(isfinite(m->seconds) && m->seconds > 0);
        assert_true(isfinite(m->rate) && m->rate > 0);
        assert_true(m->m > 0 && m->n > 0 && m->k > 0 && m->bytes > 0);
        assert_int_equal(m->calls, m->kind == NDP_TIMING_ATTENTION ? 2 : 1);
        if (m->kind == NDP_TIMING_PRODUCT)
            assert_true(m->flops == 2.0 * (double)(m->m * m->n * m->k));
        if (m->kind == NDP_TIMING_ATTENTION)
            assert_true(m->flops == 14.0 * (double)(m->m * (m->m + 1) / 2 * m->n * m->k));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(m->name, all->of[j].name);
        n[m->kind]++, types[m->type]++;
    }
    for (int i = 0; i < NDP_TIMING_KINDS; i++)
        assert_true(n[i] > 0);
    assert_true(types[NDP_RATE_FP32] > 0 && types[NDP_RATE_BF16] > 0);
}

static bool is_share(double x) { return x > 0 && x <= 1; }

static void check_facts(const ndp_device_facts *f, const ndp_efficiency *e) {
    assert_true(is_share(e->matmul) && is_share(e->attention) && is_share(e->memory));
    assert_true(f->flops[NDP_RATE_FP32] > 0 && f->flops[NDP_RATE_BF16] > 0 && f->flops[NDP_RATE_FP8] == 0);
    assert_true(f->memory_bandwidth > 0 && f->memory_bytes > 0 && f->call_seconds > 0);
}

static void measure(const char *name, double budget) {
    const ndp_device *d;
    ndp_timings all;
    ndp_device_facts f = {.links = {.bandwidth = 3}, .nics = {.count = 5}};
    ndp_efficiency e = {.links = 0.25, .nics = 0.5};
    ndp_str text = {0};
    if (ndp_device_find(name, &d) != NDP_OK) {
        print_message("SKIPPED: %s\n", ndp_error_message());
        return;
    }
    const ndp_exec exec = ndp_exec_of(d, 2, 0);
    CHECK_OK(ndp_measure_device(&exec, NULL, budget, &all));
    check_timings(&all);
    assert_int_equal(all.multiprocessors, d->host_memory ? 2 : 0);
    CHECK_OK(ndp_fit_device(&all, &f, &e, &text));
    check_facts(&f, &e);
    assert_true(f.links.bandwidth == 3 && f.nics.count == 5 && e.links == 0.25 && e.nics == 0.5);
    for (int i = 0; i < all.n; i++)
        describe(&all.of[i], &text);
    assert_false(text.failed);
    assert_non_null(strstr(text.data, "call of copy: "));
    ndp_str_release(&text);
}

static void every_device_is_measured(void **state) {
    (void)state;
    measure("cpu", 0.4);
    measure("ref", 0.1);
    measure("sim", 0.1);
}

static void this_cpu_is_measured_at_once(void **state) {
    (void)state;
    ndp_device_facts f = {0};
    ndp_efficiency e = {0};
    CHECK_OK(ndp_measure_cpu(1, &f, &e));
    check_facts(&f, &e);
    assert_int_equal(f.multiprocessors, 1);
}

static void a_device_that_only_plans_is_refused(void **state) {
    (void)state;
    ndp_timings all = {.n = 7};
    const ndp_exec exec = ndp_exec_of(&ndp_device_null, 1, 0);
    CHECK_FAILS(ndp_measure_device(&exec, NULL, 1, &all), NDP_EINVAL, "null only plans");
    assert_int_equal(all.n, 7);
}

/* ---- a device that counts what it gives ---- */

static int maps, mapped, opened, maps_until_none;

static ndp_status counted_open(const ndp_device *d, const ndp_device_opts *opts, ndp_device_context **out) {
    opened++;
    return ndp_host_open(d, opts, out);
}
static void counted_close(ndp_device_context *c) {
    opened--;
    ndp_host_close(c);
}
static ndp_status counted_map(ndp_device_context *c, size_t bytes, ndp_memory_kind kind, void **out) {
    if (++maps == maps_until_none)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a test");
    mapped++;
    return ndp_host_memory_map(c, bytes, kind, out);
}
static void counted_unmap(ndp_device_context *c, void *data, size_t bytes, ndp_memory_kind kind) {
    mapped--;
    ndp_host_memory_unmap(c, data, bytes, kind);
}

static ndp_device counted_device(int until_none) {
    ndp_device d = ndp_device_cpu;
    d.open = counted_open, d.close = counted_close, d.memory_map = counted_map, d.memory_unmap = counted_unmap;
    maps = mapped = opened = 0;
    maps_until_none = until_none;
    return d;
}

static void all_memory_is_given_back(void **state) {
    (void)state;
    ndp_device d = counted_device(0);
    const ndp_exec exec = ndp_exec_of(&d, 1, 0);
    ndp_timings all;
    CHECK_OK(ndp_measure_device(&exec, NULL, 0.1, &all));
    assert_true(maps > 0);
    assert_int_equal(mapped, 0);
    assert_int_equal(opened, 0);
    for (int until = 1; until < 60; until += until < 20 ? 1 : 9) { /* fewer than the smallest shapes need */
        d = counted_device(until);
        CHECK_FAILS(ndp_measure_device(&exec, NULL, 0, &all), NDP_ENOMEM, "no memory for a test");
        assert_int_equal(mapped, 0);
        assert_int_equal(opened, 0);
    }
}

static void an_op_that_the_device_lacks_is_skipped(void **state) {
    (void)state;
    const ndp_kernel *kernels[NDP_OP_COUNT];
    memcpy(kernels, ndp_device_cpu.kernels, sizeof kernels);
    kernels[NDP_OP_attention_bwd] = NULL;
    ndp_device d = ndp_device_cpu;
    d.kernels = kernels;
    const ndp_exec exec = ndp_exec_of(&d, 1, 0);
    ndp_timings all;
    ndp_device_facts f;
    ndp_efficiency e;
    ndp_str misses = {0};
    CHECK_OK(ndp_measure_device(&exec, NULL, 0.05, &all));
    for (int i = 0; i < all.n; i++)
        assert_int_not_equal(all.of[i].kind, NDP_TIMING_ATTENTION);
    CHECK_FAILS(ndp_fit_device(&all, &f, &e, &misses), NDP_EINVAL, "no measurement of kind attention");
    ndp_str_release(&misses);
}

/* ---- shapes ---- */

static void shapes_are_halved_down_to_the_smallest(void **state) {
    (void)state;
    ndp_timed_shape s = {.kind = NDP_TIMING_PRODUCT, .op = &ndp_op_linear, .m = 16, .n = 512, .k = 256};
    int halvings = 0;
    while (ndp_timed_halve(&s))
        halvings++;
    assert_int_equal(halvings, 3 + 2);
    assert_true(s.m == 16 && s.n == 64 && s.k == 64); /* thin stays thin */
    s = (ndp_timed_shape){.kind = NDP_TIMING_PRODUCT, .op = &ndp_op_linear, .m = 512, .n = 512, .k = 512};
    for (int i = 0; i < 4; i++)
        assert_true(ndp_timed_halve(&s));
    assert_true(s.m == 128 && s.n == 256 && s.k == 256); /* each in turn */
    s = (ndp_timed_shape){.kind = NDP_TIMING_ATTENTION, .op = &ndp_op_attention, .m = 256, .n = 8, .k = 128};
    assert_true(ndp_timed_halve(&s) && s.n == 4 && s.m == 256);
    assert_true(ndp_timed_halve(&s) && s.n == 4 && s.m == 128);
    assert_true(ndp_timed_halve(&s) && s.n == 4 && s.m == 64);
    assert_true(ndp_timed_halve(&s) && s.n == 2 && s.m == 64);
    assert_true(ndp_timed_halve(&s) && s.n == 1);
    assert_false(ndp_timed_halve(&s));
}

/* ---- the fit ---- */

static void check_near(double x, double expected) {
    if (fabs(x - expected) > 1e-9 * fabs(expected))
        fail_msg("%.17g, not %.17g", x, expected);
}

static const ndp_timing no_calls = {"call", NDP_TIMING_CALL, NDP_RATE_FP32, 1, 1, 1, 1, 0, 8, 1e-12, 0};
static const ndp_timing memory = {"copy", NDP_TIMING_MEMORY, NDP_RATE_FP32, 1, 1, 1, 1, 0, 1000, 10, 0};

static ndp_timing timed(const char *name, ndp_timing_kind kind, ndp_rate_type type, double flops, double seconds) {
    ndp_timing m = {
        .kind = kind, .type = type, .calls = kind == NDP_TIMING_ATTENTION ? 2 : 1, .flops = flops, .bytes = 1};
    snprintf(m.name, sizeof m.name, "%s", name);
    m.seconds = seconds;
    return m;
}

static void the_fit_is_exact(void **state) {
    (void)state;
    ndp_timings all = {.memory_bytes = 4096, .multiprocessors = 12};
    ndp_timing call = no_calls, slow_memory = memory;
    call.seconds = 1;
    slow_memory.seconds = 12.5;
    const ndp_timing list[] = {call, memory, slow_memory,
                               /* without the call 10, 12.5 and 20 s: shares 1, 0.8 and 0.5; of bf16 1 and 0.8 */
                               timed("A", NDP_TIMING_PRODUCT, NDP_RATE_FP32, 1000, 11),
                               timed("B", NDP_TIMING_PRODUCT, NDP_RATE_FP32, 1000, 13.5),
                               timed("C", NDP_TIMING_PRODUCT, NDP_RATE_FP32, 1000, 21),
                               timed("D", NDP_TIMING_PRODUCT, NDP_RATE_BF16, 4000, 11),
                               timed("E", NDP_TIMING_PRODUCT, NDP_RATE_BF16, 4000, 13.5),
                               timed("F", NDP_TIMING_ATTENTION, NDP_RATE_FP32, 500, 12),
                               timed("G", NDP_TIMING_ATTENTION, NDP_RATE_BF16, 1200, 12)};
    memcpy(all.of, list, sizeof list);
    all.n = NDP_COUNT(list);
    ndp_device_facts f = {0};
    ndp_efficiency e = {0};
    ndp_str misses = {0};
    CHECK_OK(ndp_fit_device(&all, &f, &e, &misses));
    check_near(f.flops[NDP_RATE_FP32], 100);
    check_near(f.flops[NDP_RATE_BF16], 400);
    assert_true(f.flops[NDP_RATE_FP8] == 0);
    check_near(f.call_seconds, 1);
    check_near(f.memory_bandwidth, 100);
    assert_true(f.memory_bytes == 4096 && f.multiprocessors == 12);
    check_near(e.matmul, 0.8);
    check_near(e.attention, (0.5 + 0.3) / 2);
    check_near(e.memory, 0.9);
    check_near(ndp_fit_seconds(&all.of[3], false, &f, &e), 13.5);
    check_near(ndp_fit_seconds(&all.of[8], false, &f, &e), 14.5);
    assert_string_equal(misses.data, "copy: measured 1e+04 ms, by the fit 1.111e+04 ms (+11%)\n"
                                     "copy: measured 1.25e+04 ms, by the fit 1.111e+04 ms (-11%)\n"
                                     "A: measured 1.1e+04 ms, by the fit 1.35e+04 ms (+23%)\n"
                                     "C: measured 2.1e+04 ms, by the fit 1.35e+04 ms (-36%)\n"
                                     "D: measured 1.1e+04 ms, by the fit 1.35e+04 ms (+23%)\n"
                                     "F: measured 1.2e+04 ms, by the fit 1.45e+04 ms (+21%)\n"
                                     "G: measured 1.2e+04 ms, by the fit 9500 ms (-21%)\n");
    ndp_str_release(&misses);
}

/* On processors a device whose calls take exactly what host_share.h says has shares of 1, whatever the shapes. */
static void the_fit_of_a_host_has_no_shapes(void **state) {
    (void)state;
    ndp_timings all = {.memory_bytes = 4096, .multiprocessors = 2, .host = true};
    ndp_timing call = no_calls;
    call.seconds = 1e-9;
    all.of[all.n++] = call;
    all.of[all.n++] = memory;
    for (int64_t k = 16; k <= 256; k *= 4) {
        ndp_timing product = timed("P", NDP_TIMING_PRODUCT, NDP_RATE_FP32, 2.0 * 64 * 32 * (double)k, 0),
                   attention = timed("A", NDP_TIMING_ATTENTION, NDP_RATE_FP32, 1000.0 * (double)k, 0);
        product.m = 64, product.n = 32, product.k = k;
        attention.m = 256, attention.n = 4, attention.k = k;
        product.calls = attention.calls = 0;
        product.seconds = product.flops / (100 * ndp_host_product_share(64, 32, (double)k));
        attention.seconds = attention.flops / (100 * ndp_host_attention_share(128, (double)k));
        all.of[all.n++] = product;
        all.of[all.n++] = attention;
    }
    ndp_device_facts f = {0};
    ndp_efficiency e = {0};
    ndp_str misses = {0};
    CHECK_OK(ndp_fit_device(&all, &f, &e, &misses));
    check_near(f.flops[NDP_RATE_FP32], 100);
    check_near(e.matmul, 1);
    check_near(e.attention, 1);
    assert_null(misses.data);
    ndp_str_release(&misses);
}

static void a_miss_of_11_percent_is_named_and_one_of_9_is_not(void **state) {
    (void)state;
    ndp_timings all = {.n = 6,
                       .of = {no_calls, memory, timed("9% off", NDP_TIMING_PRODUCT, NDP_RATE_FP32, 100, 1 / 1.09),
                              timed("the median", NDP_TIMING_PRODUCT, NDP_RATE_FP32, 100, 1),
                              timed("11% off", NDP_TIMING_PRODUCT, NDP_RATE_FP32, 100, 1 / 0.89),
                              timed("attention", NDP_TIMING_ATTENTION, NDP_RATE_FP32, 50, 1)}};
    ndp_device_facts f = {0};
    ndp_efficiency e = {0};
    ndp_str misses = {0};
    CHECK_OK(ndp_fit_device(&all, &f, &e, &misses));
    check_near(f.flops[NDP_RATE_FP32], 109);
    check_near(e.matmul, 1 / 1.09);
    assert_string_equal(misses.data, "11% off: measured 1124 ms, by the fit 1000 ms (-11%)\n");
    ndp_str_release(&misses);
}

/* 500 bytes at 100 a second take longer than 100 operations at 100 a second. */
static void the_longer_of_operations_and_bytes_counts(void **state) {
    (void)state;
    ndp_device_facts f = {.flops = {100}, .memory_bandwidth = 100, .call_seconds = 0.25};
    ndp_efficiency e = {.matmul = 0.5, .attention = 0.25, .memory = 1};
    ndp_timing m = timed("thin", NDP_TIMING_PRODUCT, NDP_RATE_FP32, 100, 1);
    check_near(ndp_fit_seconds(&m, false, &f, &e), 2.25);
    m.bytes = 500;
    check_near(ndp_fit_seconds(&m, false, &f, &e), 5);
    m.kind = NDP_TIMING_ATTENTION, m.calls = 2, m.bytes = 1;
    check_near(ndp_fit_seconds(&m, false, &f, &e), 4.5);
}

/* Four sizes, whose larger two pass `inside` or `between` bytes a second where the links have 100. */
static ndp_cluster fit_groups(double inside, double between) {
    ndp_cluster c = {.links.bandwidth = 100, .facts.links.bandwidth = 100, .nics.bandwidth = 100};
    ndp_group_timings t = {.n = 2 * NDP_TIMED_SIZES};
    ndp_str misses = {0};
    for (int i = 0; i < t.n; i++) {
        bool crosses = i >= NDP_TIMED_SIZES;
        double bytes = 1000 << i % NDP_TIMED_SIZES, rate = crosses ? between : inside;
        t.of[i] = (ndp_group_timing){"", crosses, bytes, 0.5 + bytes / rate, 0.5, 100};
    }
    ndp_group_timings_fit(&t, &c, &misses);
    assert_int_equal(misses.length, 0);
    ndp_str_release(&misses);
    return c;
}

/* Ranks of a node work on each other's memory, which may be faster than a message; nothing is faster than a NIC. */
static void collectives_may_pass_more_than_messages(void **state) {
    (void)state;
    ndp_cluster c = fit_groups(50, 80);
    assert_true(c.links.bandwidth == 100 && c.facts.links.bandwidth == 100);
    check_near(c.efficiency.links, 0.5);
    check_near(c.efficiency.nics, 0.8);
    c = fit_groups(1500, 99.9);
    check_near(c.links.bandwidth, 1500);
    check_near(c.facts.links.bandwidth, 1500);
    check_near(c.efficiency.links, 1);
    check_near(c.efficiency.nics, 0.999);
}

static void what_is_no_measurement_is_refused(void **state) {
    (void)state;
    ndp_device_facts f = {.memory_bytes = 3};
    ndp_efficiency e = {0};
    ndp_str misses = {0};
    ndp_timings all = {.n = 3, .of = {no_calls, memory, timed("product", NDP_TIMING_PRODUCT, NDP_RATE_FP32, 100, 1)}};
    CHECK_FAILS(ndp_fit_device(&all, &f, &e, &misses), NDP_EINVAL, "no measurement of kind attention");
    all.of[all.n++] = timed("attention", NDP_TIMING_ATTENTION, NDP_RATE_FP32, 100, 0);
    CHECK_FAILS(ndp_fit_device(&all, &f, &e, &misses), NDP_EINVAL, "attention: 0 s for 100 operations");
    all.of[3].seconds = NAN;
    CHECK_FAILS(ndp_fit_device(&all, &f, &e, &misses), NDP_EINVAL, "attention: nan s");
    assert_true(f.memory_bytes == 3 && misses.length == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_device_is_measured),
        cmocka_unit_test(this_cpu_is_measured_at_once),
        cmocka_unit_test(a_device_that_only_plans_is_refused),
        cmocka_unit_test(all_memory_is_given_back),
        cmocka_unit_test(an_op_that_the_device_lacks_is_skipped),
        cmocka_unit_test(shapes_are_halved_down_to_the_smallest),
        cmocka_unit_test(the_fit_is_exact),
        cmocka_unit_test(the_fit_of_a_host_has_no_shapes),
        cmocka_unit_test(a_miss_of_11_percent_is_named_and_one_of_9_is_not),
        cmocka_unit_test(the_longer_of_operations_and_bytes_counts),
        cmocka_unit_test(what_is_no_measurement_is_refused),
        cmocka_unit_test(collectives_may_pass_more_than_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
