/* Checkpoints with 8-bit states (weights/state_codes.h). A run that is saved, resumed on another layout and saved again
 * has the same bytes in both checkpoints, codes and scales included, unless tp_size or ep_size changes: then the states
 * are those of the first checkpoint, encoded in the blocks that the new ranks have. */
#include "ops/pieces.h"
#include "train/guarded_trainer.h"
#include "verify/runs.h"
#include "weights/state_codes.h"

#include <json-c/json.h>
#include <math.h>

/* Tensors of at least 4,096 elements that no number of a block divides: fused and transposed ones, glued ones whose
 * blocks end inside of each other, kv heads that ranks of tp share. */
static const struct {
    const char *name, *json;
} models[] = {
    {"llama", "{\"model_type\": \"llama\", \"vocab_size\": 263, \"hidden_size\": 76, \"intermediate_size\": 90, "
              "\"num_hidden_layers\": 2, \"max_position_embeddings\": 64, \"initializer_range\": 0.1, "
              "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 30, \"attention_bias\": true}"},
    {"phi3", "{\"model_type\": \"phi3\", \"vocab_size\": 263, \"hidden_size\": 56, \"intermediate_size\": 75, "
             "\"num_hidden_layers\": 2, \"max_position_embeddings\": 64, \"initializer_range\": 0.1, "
             "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"tie_word_embeddings\": true}"},
    {"gpt_neox", "{\"model_type\": \"gpt_neox\", \"vocab_size\": 263, \"hidden_size\": 72, \"intermediate_size\": 75, "
                 "\"num_hidden_layers\": 2, \"max_position_embeddings\": 64, \"initializer_range\": 0.1, "
                 "\"num_attention_heads\": 4, \"rotary_pct\": 1.0}"},
    {"gpt2", "{\"model_type\": \"gpt2\", \"vocab_size\": 263, \"n_layer\": 2, \"n_embd\": 52, \"n_head\": 4, "
             "\"n_inner\": 85, \"n_positions\": 50, \"initializer_range\": 0.1}"},
    {"mixtral", "{\"model_type\": \"mixtral\", \"vocab_size\": 263, \"hidden_size\": 76, \"intermediate_size\": 91, "
                "\"num_hidden_layers\": 2, \"max_position_embeddings\": 64, \"initializer_range\": 0.1, "
                "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 30, "
                "\"num_local_experts\": 5, \"num_experts_per_tok\": 2}"}};
enum { MIXTURE = NDP_COUNT(models) - 1 };

enum { STEPS = 3, LENGTH = 40 };

typedef struct place {
    subject s;
    char *path;
} place;

static place place_of(const corpus *c, int model) {
    place p = {.s = odd_subject(c, models[model].name, "fp32")};
    p.path = ndp_format("%s/%s.json", c->folder, models[model].name);
    CHECK_OK(ndp_file_write_atomic(p.path, models[model].json, strlen(models[model].json)));
    p.s.path = p.path, p.s.length = LENGTH, p.s.window = 0, p.s.steps = STEPS + 1, p.s.optimizer = "adamw8bit";
    return p;
}

static way of_twelve(way w) {
    ndp_layout l = layout_of(&w);
    w.global = 12, w.threads = 1, w.accumulation = 12 / data_ranks_of(&l);
    return w;
}

/* ---- saving, and saving what was resumed ---- */

typedef struct saving {
    const ndp_config *config;
    const char *from, *to; /* from: NULL: it trains; else it only resumes from there */
    ndp_str said;
} saving;

static void note(void *user, const char *line) { ndp_str_addf(&((saving *)user)->said, "%s\n", line); }

static ndp_status save_body(ndp_world *w, void *arg) {
    saving *s = arg;
    ndp_trainer *t;
    int64_t step;
    const ndp_train_opts opts = {.say = note, .user = s};
    NDP_TRY(guarded_trainer_create(s->config, w, &t));
    t->rank.opts = &opts;
    ndp_status st = NDP_OK;
    if (s->from)
        st = ndp_trainer_resume(t, s->from, &step);
    for (int i = 0; i < STEPS && !s->from && st == NDP_OK; i++) {
        ndp_metrics m;
        st = ndp_trainer_step(t, &m);
    }
    if (st == NDP_OK && s->to)
        st = ndp_trainer_save(t, s->to);
    guarded_trainer_destroy(t);
    return st;
}

/* Returns what was said. */
static char *save(const place *p, way w, const char *from, const char *to) {
    w = of_twelve(w);
    ndp_config *c = configure(&p->s, &w);
    saving s = {.config = c, .from = from, .to = to};
    char text[WAY_TEXT];
    if (ndp_world_run(c, save_body, &s) != NDP_OK)
        fail_msg("%s, %s: %s", p->s.name, way_text(&w, text), ndp_error_message());
    ndp_config_destroy(c);
    return s.said.data ? s.said.data : strdup("");
}

static ndp_weights *states_in(const char *folder) {
    ndp_weights *w;
    char *path = ndp_format("%s/step-%08d", folder, STEPS);
    CHECK_OK(ndp_weights_open_stem(path, "optimizer", &w));
    free(path);
    return w;
}

static int64_t elements_of(const ndp_tensor_entry *t) {
    int64_t n = 1;
    for (int i = 0; i < t->spec.ndim; i++)
        n *= t->spec.shape[i];
    return n;
}

static void *values_of(const ndp_weights *w, const char *name, int64_t *n) {
    const ndp_tensor_entry *t = ndp_weights_find(w, name);
    if (!t)
        fail_msg("there is no tensor %s", name);
    *n = elements_of(t);
    void *out = malloc((size_t)*n * 8 + 1);
    CHECK_OK(ndp_weights_read(w, name, 0, *n, out, t->spec.dtype, false));
    return out;
}

/* Names of all states of a checkpoint. */
typedef struct names {
    const char *of[512];
    int n;
} names;

static names names_in(const ndp_weights *w) {
    names out = {.n = 0};
    for (int i = 0; i < ndp_weights_count(w) && out.n < 512; i++)
        out.of[out.n++] = ndp_weights_at(w, i)->spec.name;
    assert_true(out.n > 20 && out.n < 512);
    return out;
}

static int same_states(const char *a, const char *b) {
    ndp_weights *x = states_in(a), *y = states_in(b);
    names all = names_in(x);
    int codes = 0;
    assert_int_equal(all.n, names_in(y).n);
    for (int i = 0; i < all.n; i++) {
        int64_t n, m;
        void *p = values_of(x, all.of[i], &n), *q = values_of(y, all.of[i], &m);
        const ndp_tensor_entry *t = ndp_weights_find(x, all.of[i]);
        assert_true(n == m && t->spec.dtype == ndp_weights_find(y, all.of[i])->spec.dtype);
        if (memcmp(p, q, (size_t)n * ndp_dtype_size(t->spec.dtype)) != 0)
            fail_msg("%s: %s is not what it was", b, all.of[i]);
        codes += t->spec.dtype == NDP_U8;
        free(p);
        free(q);
    }
    ndp_weights_close(x);
    ndp_weights_close(y);
    return codes;
}

static void no_other_layout_changes_a_code(void **state) {
    static const way from[] = {{.shard = 1}, {.tp = 2}, {.shard = 2, .tp = 4}},
                     to[] = {{.shard = 2}, {.shard = 3}, {.replicate = 2, .shard = 2}, {.cp = 2},
                             {.sp = 2},    {.pp = 2},    {.pp = 2, .shard = 2}};
    for (int m = 0; m < NDP_COUNT(models); m++) {
        place p = place_of(*state, m);
        for (int i = 0; i < NDP_COUNT(from); i++) {
            char *first = ndp_format("%s/codes-%d-%d", ((corpus *)*state)->folder, m, i);
            free(save(&p, from[i], NULL, first));
            for (int k = 0; k < NDP_COUNT(to); k++) {
                way w = to[k];
                w.tp = from[i].tp;
                if (w.tp == 4 && (w.sp > 1 || (w.pp > 1 && w.shard > 1)))
                    continue; /* few heads, many ranks */
                char *again = ndp_format("%s-%d", first, k), *said = save(&p, w, first, again);
                assert_null(strstr(said, "quantized"));
                assert_in_range(same_states(first, again), 4, 500);
                free(again);
                free(said);
            }
            free(first);
        }
        free(p.path);
    }
}

/* ---- other ranks that share experts ---- */

/* Experts of 27 blocks and a part: all of a stack are cut into blocks from a rank's first one on. */
static void no_other_axis_changes_a_code_of_experts(void **state) {
    static const way from[] = {{.shard = 2, .ep = 2}, {.shard = 2, .tp = 2, .ep = 4}},
                     to[2][4] = {{{.cp = 2, .ep = 2},
                                  {.shard = 4, .ep = 2},
                                  {.replicate = 2, .sp = 2, .ep = 2},
                                  {.pp = 2, .shard = 3, .cp = 2, .ep = 2}},
                                 {{.cp = 2, .tp = 2, .ep = 4},
                                  {.shard = 4, .tp = 2, .ep = 4, .whole_rows = true},
                                  {.pp = 2, .sp = 2, .tp = 2, .ep = 4},
                                  {.replicate = 3, .shard = 2, .tp = 2, .ep = 4}}};
    place p = place_of(*state, MIXTURE);
    for (int i = 0; i < NDP_COUNT(from); i++) {
        char *first = ndp_format("%s/experts-%d", ((corpus *)*state)->folder, i);
        free(save(&p, from[i], NULL, first));
        for (int k = 0; k < NDP_COUNT(to[i]); k++) {
            char *again = ndp_format("%s-%d", first, k), *said = save(&p, to[i][k], first, again);
            assert_null(strstr(said, "quantized"));
            assert_in_range(same_states(first, again), 4, 500);
            free(again);
            free(said);
        }
        free(first);
    }
    free(p.path);
}

/* ---- another tp_size, or ep_size ---- */

/* The moment of each element of a tensor, in the order of the file, that is a part by itself and starts with a block.
 */
static float *moments_of(const ndp_weights *w, const char *name, int state, int64_t *n) {
    char full[512];
    ndp_dynamic_map map;
    int64_t blocks;
    snprintf(full, sizeof full, "optimizer.%s.%s", state ? "v" : "m", name);
    uint8_t *codes = values_of(w, full, n);
    snprintf(full, sizeof full, "optimizer.%s_absmax.%s", state ? "v" : "m", name);
    float *scales = values_of(w, full, &blocks), *out = malloc((size_t)*n * sizeof *out);
    assert_int_equal(blocks, (*n + NDP_CODE_BLOCK - 1) / NDP_CODE_BLOCK);
    ndp_dynamic_fill(state == 0, &map);
    for (int64_t i = 0; i < *n; i++)
        out[i] = map.values[codes[i]] * scales[i / NDP_CODE_BLOCK];
    free(codes);
    free(scales);
    return out;
}

/* [rows, cols] in two parts of rows or of columns, each row by row: what two ranks of tp have. */
static void cut_in_two(const float *x, int64_t rows, int64_t cols, bool by_rows, float *out) {
    int64_t at = 0;
    for (int part = 0; part < 2; part++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                if ((by_rows ? 2 * r / rows : 2 * c / cols) == part)
                    out[at++] = x[r * cols + c];
}

/* The states of one rank in the blocks of two, made here; and whether these are the resumed ones. */
static void check_cut(const ndp_weights *one, const ndp_weights *two, const char *name, bool by_rows) {
    for (int state = 0; state < 2; state++) {
        char full[512];
        ndp_dynamic_map map;
        int64_t n, scales_n, m, scale = 0;
        float *moments = moments_of(one, name, state, &n), *cut = malloc((size_t)n * sizeof *cut);
        const ndp_tensor_entry *t;
        snprintf(full, sizeof full, "optimizer.%s.%s", state ? "v" : "m", name);
        t = ndp_weights_find(two, full);
        uint8_t *codes = values_of(two, full, &m), *wanted = malloc((size_t)n);
        float *in_file = malloc((size_t)n * sizeof *in_file), *theirs = malloc((size_t)n * sizeof *theirs);
        snprintf(full, sizeof full, "optimizer.%s_absmax.%s", state ? "v" : "m", name);
        float *scales = values_of(two, full, &scales_n);
        for (int64_t i = 0; i < n; i++)
            in_file[i] = (float)codes[i];
        cut_in_two(moments, t->spec.shape[0], t->spec.shape[1], by_rows, cut);
        cut_in_two(in_file, t->spec.shape[0], t->spec.shape[1], by_rows, theirs);
        ndp_dynamic_fill(state == 0, &map);
        for (int64_t half = 0; half < 2; half++)
            for (int64_t at = 0; at < n / 2; at += NDP_CODE_BLOCK, scale++) {
                int64_t left = n / 2 - at;
                float *x = cut + half * n / 2 + at;
                int count = left < NDP_CODE_BLOCK ? (int)left : NDP_CODE_BLOCK;
                float s = ndp_dynamic_encode(state == 0, &map, x, count, wanted + half * n / 2 + at);
                if (s != scales[scale])
                    fail_msg("%s: scale %lld is %g, must be %g", name, (long long)scale, (double)scales[scale],
                             (double)s);
            }
        assert_int_equal(scale, scales_n);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(wanted[i], (int)theirs[i]);
        void *all[] = {moments, cut, codes, wanted, in_file, theirs, scales};
        for (int i = 0; i < NDP_COUNT(all); i++)
            free(all[i]);
    }
}

static void another_tp_size_quantizes_anew(void **state) {
    place p = place_of(*state, 0);
    char *one = ndp_format("%s/one", p.s.cache), *two = ndp_format("%s/two", p.s.cache),
         *back = ndp_format("%s/back", p.s.cache), *same = ndp_format("%s/same", p.s.cache);
    free(save(&p, (way){.shard = 2}, NULL, one));
    char *said = save(&p, (way){.shard = 2, .tp = 2}, one, two);
    assert_non_null(strstr(said, "resume: 8-bit states are quantized anew: their blocks were those of tp_size 1 and "
                                 "ep_size 1, now they are those of 2 and 1\n"));
    assert_null(strstr(strstr(said, "anew") + 4, "anew")); /* once, whatever the number of ranks */
    free(said);
    ndp_weights *a = states_in(one), *b = states_in(two);
    check_cut(a, b, "model.layers.0.self_attn.q_proj.weight", true);
    check_cut(a, b, "model.layers.1.self_attn.o_proj.weight", false);
    check_cut(a, b, "model.layers.1.mlp.gate_proj.weight", true);
    check_cut(a, b, "model.layers.0.mlp.down_proj.weight", false);
    ndp_weights_close(a);
    ndp_weights_close(b);
    /* and on from there: the blocks of the second checkpoint are read as its tp_size says */
    free(save(&p, (way){.shard = 3, .tp = 2}, two, same));
    same_states(two, same);
    said = save(&p, (way){.pp = 2}, two, back);
    assert_non_null(strstr(said, "blocks were those of tp_size 2 and ep_size 1, now they are those of 1 and 1\n"));
    free(said);
    char *paths[] = {one, two, back, same, p.path};
    for (int i = 0; i < NDP_COUNT(paths); i++)
        free(paths[i]);
}

/* There and back: every scale is a moment, the largest of its block. It is what it was but for half the distance of two
 * codes, 0.9 / 64, when it was encoded with the largest of another block, and once more if it is negative, since the
 * map has no -1. */
static void moments_survive_another_size(void **state) {
    static const way by_ways[] = {{.tp = 2}, {.tp = 4}, {.shard = 2, .ep = 2}, {.cp = 2, .tp = 2, .ep = 4}};
    for (int m = 0; m < NDP_COUNT(models); m++) {
        place p = place_of(*state, m);
        char *from = ndp_format("%s/stay-%d", p.s.cache, m), *by = ndp_format("%s/by-%d", p.s.cache, m),
             *to = ndp_format("%s/to-%d", p.s.cache, m);
        for (int k = 0; k < (m == MIXTURE ? NDP_COUNT(by_ways) : 2); k++) {
            free(save(&p, (way){.shard = 1}, NULL, from));
            free(save(&p, by_ways[k], from, by));
            free(save(&p, (way){.shard = 2}, by, to));
            ndp_weights *a = states_in(from), *b = states_in(to);
            names all = names_in(a);
            for (int i = 0; i < all.n; i++) {
                int64_t n, n_to;
                double off = 0, most = 0;
                if (!strstr(all.of[i], "absmax"))
                    continue;
                float *x = values_of(a, all.of[i], &n), *y = values_of(b, all.of[i], &n_to);
                assert_int_equal(n, n_to);
                for (int64_t e = 0; e < n; e++)
                    off = fmax(off, fabs((double)(x[e] - y[e]))), most = fmax(most, (double)x[e]);
                if (!(off <= 2 * 0.9 / 128 * 1.001 * most))
                    fail_msg("%s, %d: a scale is off by %g of %g", all.of[i], k, off, most);
                free(x);
                free(y);
            }
            ndp_weights_close(a);
            ndp_weights_close(b);
        }
        char *paths[] = {from, by, to, p.path};
        for (int i = 0; i < NDP_COUNT(paths); i++)
            free(paths[i]);
    }
}

/* ---- what a manifest says ---- */

/* Writes a checkpoint of the trainer's states whose manifest says `blocks` of them; NULL: nothing. */
static ndp_status forge(ndp_trainer *t, const char *folder, const char *blocks) {
    ndp_tensor_list list = {0};
    ndp_checkpoint *c;
    char *own = ndp_format("%s-own", folder);
    CHECK_OK(ndp_trainer_save(t, own));
    CHECK_OK(ndp_checkpoint_open(own, 0, &c));
    ndp_checkpoint_info info = *ndp_checkpoint_get_info(c);
    json_object_object_del(info.extra, "state_blocks");
    if (blocks)
        json_object_object_add(info.extra, "state_blocks", json_tokener_parse(blocks));
    CHECK_OK(ndp_tensor_list_add(&list, t->engine, NDP_OWNED_MASTER, NDP_TENSORS_RUN, NDP_F32));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(
            ndp_tensor_list_add(&list, t->engine, (ndp_owned_kind)(NDP_OWNED_STATE0 + k), NDP_TENSORS_RUN, NDP_F32));
        CHECK_OK(ndp_state_codes_add(&list, t->engine, k, (ndp_code_cut){1, 1}, NDP_F32));
    }
    ndp_status st = ndp_checkpoint_save(NULL, folder, &info, list.specs, list.n, list.pieces, list.n_pieces, 0,
                                        NDP_SHARD_BYTES, NULL);
    ndp_tensor_list_release(&list);
    ndp_checkpoint_close(c);
    free(own);
    return st;
}

typedef struct forging {
    const ndp_config *config;
    const char *folder, *blocks;
} forging;

static ndp_status forge_body(ndp_world *w, void *arg) {
    const forging *f = arg;
    ndp_trainer *t;
    int64_t step;
    NDP_TRY(guarded_trainer_create(f->config, w, &t));
    CHECK_OK(forge(t, f->folder, f->blocks));
    ndp_status st = ndp_trainer_resume(t, f->folder, &step);
    guarded_trainer_destroy(t);
    return st;
}

static void manifests_are_checked(void **state) {
    static const struct {
        const char *blocks, *words; /* NULL: it is read */
    } cases[] = {
        {"{\"elements\": 256, \"tp_size\": 1}", NULL},
        {"{\"elements\": 256, \"tp_size\": 1, \"ep_size\": 2}", NULL}, /* there are no experts */
        {NULL, "has state_blocks of 0 elements, tp_size 0 and ep_size 1, expected 256 elements and sizes of 1 to 4096"},
        {"{\"elements\": 128, \"tp_size\": 1}", "of 128 elements, tp_size 1"},
        {"{\"elements\": 256, \"tp_size\": 0}", "of 256 elements, tp_size 0"},
        {"{\"elements\": 256, \"tp_size\": 1, \"ep_size\": 0}", "tp_size 1 and ep_size 0"},
        {"{\"elements\": 256, \"tp_size\": 1, \"ep_size\": 4097}", "ep_size 4097"},
        {"{\"elements\": 256, \"tp_size\": 4097}", "tp_size 4097"},
        {"{\"elements\": 256, \"tp_size\": -1}", "tp_size -1"},
        {"[1, 2]", "of 0 elements"},
        {"{\"elements\": 256, \"tp_size\": 4}", "22 of another shape or type: optimizer.m_absmax."},
    };
    place p = place_of(*state, 0);
    way w = of_twelve((way){.shard = 1});
    ndp_config *c = configure(&p.s, &w);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *folder = ndp_format("%s/forged-%d", p.s.cache, i);
        forging f = {c, folder, cases[i].blocks};
        if (cases[i].words)
            CHECK_FAILS(ndp_world_run(c, forge_body, &f), NDP_EFORMAT, cases[i].words);
        else
            CHECK_OK(ndp_world_run(c, forge_body, &f));
        free(folder);
    }
    ndp_config_destroy(c);
    free(p.path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_other_layout_changes_a_code), cmocka_unit_test(no_other_axis_changes_a_code_of_experts),
        cmocka_unit_test(another_tp_size_quantizes_anew), cmocka_unit_test(moments_survive_another_size),
        cmocka_unit_test(manifests_are_checked)};
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
