/* What tests of the axis pp share: a model with enough layers for two stages on each of four ranks, all schedules, and
 * files of two more. */
#ifndef TESTS_VERIFY_PIPELINES_H
#define TESTS_VERIFY_PIPELINES_H

#include "verify/invariance.h"

/* FOLDER/tall.json or tall-tied.json: 9 layers, odd sizes. Freed by the caller. */
static inline char *write_tall(const char *folder, bool tied) {
    char *path = ndp_format("%s/tall%s.json", folder, tied ? "-tied" : "");
    char *text = ndp_format("{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], "
                            "\"vocab_size\": 259, \"hidden_size\": 20, \"num_hidden_layers\": 9, "
                            "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, "
                            "\"intermediate_size\": 33, \"max_position_embeddings\": 256, "
                            "\"tie_word_embeddings\": %s, \"initializer_range\": 0.1, \"rms_norm_eps\": 1e-5}",
                            tied ? "true" : "false");
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(text);
    return path;
}

/* `path` as write_tall made it. */
static inline subject tall_subject(const corpus *c, const char *path, const char *name, const char *precision) {
    subject s = odd_subject(c, name, precision);
    s.path = path, s.length = 29, s.window = 0;
    return s;
}

typedef struct schedule {
    const char *name;
    int chunks; /* virtual stages */
} schedule;

static const schedule schedules[] = {{"1f1b", 1},        {"gpipe", 1}, {"zero_bubble", 1}, {"zero_bubble", 2},
                                     {"interleaved", 2}, {"zbv", 2},   {"dualpipev", 2}};

static inline void put_on(way *w, const schedule *s) { w->schedule = s->name, w->chunks = s->chunks; }

/* FOLDER/swapped-PP.csv: zbv with the ranks in the opposite order, so that embedding and head are on the last one. */
static inline char *write_swapped(const char *folder, int pp, int micro_batches) {
    char *path = ndp_format("%s/swapped-%d.csv", folder, pp);
    ndp_pipeline p;
    CHECK_OK(ndp_pipeline_make(NDP_PIPELINE_ZBV, pp, 2, micro_batches, &p));
    for (int i = 0; i < pp / 2; i++) {
        ndp_pipeline_row row = p.rows[i];
        p.rows[i] = p.rows[pp - 1 - i], p.rows[pp - 1 - i] = row;
    }
    CHECK_OK(ndp_pipeline_write(&p, path));
    ndp_pipeline_release(&p);
    return path;
}

/* FOLDER/uneven.csv: three stages on two ranks, the middle one on rank 1. */
static inline char *write_uneven(const char *folder, int micro_batches) {
    char *path = ndp_format("%s/uneven.csv", folder);
    ndp_str text = {0};
    ndp_str_add(&text, "0F0,0F1");
    for (int m = 0; m < micro_batches; m++) {
        ndp_str_addf(&text, ",2F%d,2B%d", m, m);
        if (m + 2 < micro_batches)
            ndp_str_addf(&text, ",0F%d", m + 2);
        ndp_str_addf(&text, ",0I%d,0W%d", m, m);
    }
    ndp_str_add(&text, "\n1F0");
    for (int m = 0; m < micro_batches; m++) {
        if (m + 1 < micro_batches)
            ndp_str_addf(&text, ",1F%d", m + 1);
        ndp_str_addf(&text, ",1I%d,1W%d", m, m);
    }
    ndp_str_add(&text, "\n");
    CHECK_OK(ndp_file_write_atomic(path, text.data, text.length));
    ndp_str_release(&text);
    return path;
}

/* FOLDER/flat.csv: the same stages, all forwards before all gradients: results wait long for their readers. */
static inline char *write_flat(const char *folder, int micro_batches) {
    static const char *const rows[][5] = {{"0F", "2F", "2B", "0I", "0W"}, {"1F", "1I", "1W", NULL, NULL}};
    char *path = ndp_format("%s/flat.csv", folder);
    ndp_str text = {0};
    for (int r = 0; r < 2; r++, ndp_str_add(&text, "\n"))
        for (int a = 0; a < 5 && rows[r][a]; a++)
            for (int m = 0; m < micro_batches; m++)
                ndp_str_addf(&text, "%s%s%d", a || m ? "," : "", rows[r][a], m);
    CHECK_OK(ndp_file_write_atomic(path, text.data, text.length));
    ndp_str_release(&text);
    return path;
}

/* pp, dp_replicate, dp_shard, cp, sp, tp: pp alone, with each other axis, and with two or three of them. */
static const int staged_layouts[][6] = {{2, 1, 1, 1, 1, 1}, {4, 1, 1, 1, 1, 1}, {2, 1, 2, 1, 1, 1}, {2, 2, 1, 1, 1, 1},
                                        {2, 1, 1, 1, 1, 2}, {2, 1, 1, 2, 1, 1}, {2, 1, 1, 1, 2, 1}, {4, 1, 2, 1, 1, 1},
                                        {4, 1, 1, 1, 1, 2}, {2, 1, 2, 1, 1, 2}, {2, 1, 1, 2, 2, 1}, {2, 1, 2, 2, 1, 2}};

enum { SAMPLES = 16 /* of an update */ };

/* Layout i on a schedule: fewer, as many and more micro-batches than stages, the other choices drawn (way_of). */
static inline way staged_way(const int layout[6], const schedule *s, int i) {
    ndp_layout l = NDP_LAYOUT_ONE;
    memcpy(l.size, layout, 6 * sizeof layout[0]);
    way w = way_of(&l, i, SAMPLES);
    int most = SAMPLES / data_ranks_of(&l), accumulation = 2 << i % 3;
    put_on(&w, s);
    w.accumulation = accumulation < most ? accumulation : most;
    return w;
}

#endif
