/* Proof 3 for families of models on pipelines: every schedule, alone and with one other axis. */
#ifndef TESTS_VERIFY_FAMILY_PIPELINES_H
#define TESTS_VERIFY_FAMILY_PIPELINES_H

#include "base/json.h"
#include "verify/families.h"
#include "verify/pipelines.h"

static inline void set_layers(json_object *o, int layers) {
    json_object *n = json_object_new_int(layers);
    json_object_object_add(o, json_object_object_get(o, "n_layer") ? "n_layer" : "num_hidden_layers", n);
}

/* The family's model with another number of layers; lists with an entry a layer are repeated. Freed by the caller. */
static inline char *family_json(const family_model *m, int layers) {
    json_object *o;
    int64_t were = 0;
    CHECK_OK(ndp_json_parse(m->json, strlen(m->json), m->name, &o));
    CHECK_OK(ndp_json_int(o, m->name, "num_hidden_layers", 1, 99, &were));
    CHECK_OK(ndp_json_int(o, m->name, "n_layer", 1, 99, &were));
    json_object_object_foreach(o, key, value) {
        (void)key;
        bool by_layer = json_object_is_type(value, json_type_array) && (int)json_object_array_length(value) == were;
        for (int i = (int)were; by_layer && i < layers; i++)
            json_object_array_add(value, json_object_get(json_object_array_get_idx(value, (size_t)(i % were))));
    }
    set_layers(o, layers);
    char *text = ndp_format("%s", json_object_to_json_string(o));
    json_object_put(o);
    return text;
}

/* pp 2 alone, with dp_shard, tp, cp and dp_replicate; of mixtures also with ranks that share experts. Sizes as in
 * staged_layouts, and ep. */
static const int paired_layouts[][7] = {{2, 1, 1, 1, 1, 1, 1}, {2, 1, 2, 1, 1, 1, 1}, {2, 1, 1, 1, 1, 2, 1},
                                        {2, 1, 1, 2, 1, 1, 1}, {2, 2, 1, 1, 1, 1, 1}, {2, 1, 2, 1, 1, 1, 2},
                                        {2, 1, 1, 1, 1, 2, 2}};
enum { WITH_EXPERTS = 2 };

/* Schedule and layout by number. Accumulation 3: fewer micro-batches than some schedules have stages, more than others;
 * the other choices are drawn (way_of). */
static inline way paired_way(int on, int layout) {
    ndp_layout l = NDP_LAYOUT_ONE;
    memcpy(l.size, paired_layouts[layout], sizeof paired_layouts[layout]);
    way w = way_of(&l, on * NDP_COUNT(paired_layouts) + layout, 6);
    put_on(&w, &schedules[on]);
    w.accumulation = 3;
    return w;
}

/* Gradients of step 1, and of the last of `steps`. */
static inline void check_schedules(const subject *s, int steps) {
    family f = {.s = *s};
    const int layouts = NDP_COUNT(paired_layouts) - (facts_of(s).experts ? 0 : WITH_EXPERTS);
    f.s.steps = steps;
    for (int i = 0; i < NDP_COUNT(schedules); i++)
        for (int layout = 0; layout < layouts; layout++) {
            char text[WAY_TEXT], words[512];
            way w = paired_way(i, layout);
            if (left_out())
                continue;
            const char *bad = try_way(&f, &w, words);
            if (bad)
                printf("OUT OF BOUNDS: %s, %s: %s\n", f.s.name, way_text(&w, text), bad);
        }
    print_family(&f);
    family_release(&f);
    assert_int_equal(f.passed, f.tried);
    const int all = NDP_COUNT(schedules) * layouts;
    assert_in_range(f.tried, getenv("NDP_TEST_EVERY") ? 1 : all, all);
}

/* The gradients of steps 1, 2 and 3 of a family on every schedule and layout. */
static inline void check_family_pipelines(const family_model *m, int layers, const char *optimizer) {
    char *path, *json = family_json(m, layers), *name = ndp_format("%s of %d layers, %s", m->name, layers, optimizer);
    subject s = family_subject(the_corpus, &(family_model){m->name, json}, "fp32", &path);
    bool plain = strcmp(optimizer, "sgd") == 0;
    s.name = name, s.optimizer = optimizer, s.lr = plain ? 0.02 : s.lr, s.clip = plain ? 0 : s.clip;
    for (int steps = 2; steps <= 3; steps++)
        check_schedules(&s, steps);
    free(name);
    free(json);
    free(path);
}

#endif
