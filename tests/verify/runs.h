/* Training jobs run in many ways, and what comes out of them.
 *
 * A subject is what is trained (model, data, precision, optimizer); a way is how (layout, accumulation, switches). The
 * outcome of a subject must not depend on the way. Runs are those of the public interface, on `local`. */
#ifndef TESTS_VERIFY_RUNS_H
#define TESTS_VERIFY_RUNS_H

#include "base/rng.h"
#include "check.h"
#include "verify/outcome.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_STEPS = NDP_VERIFY_STEPS };

/* ---- what is trained ---- */

typedef struct subject {
    const char *name;
    const char *model, *path; /* the key and what it says: model.path or model.config */
    const char *data, *tokenizer, *cache;
    const char *precision, *device, *optimizer;
    double lr, clip, momentum;
    int length, window, steps;
    bool one_a_row;               /* documents */
    const char *frozen, *trained; /* model.frozen, model.trained; NULL: nothing */
    ndp_packing base;             /* qlora beside projections that are stored so; NONE: no adapter */
    const char *groups;           /* optimizer.groups; NULL: none */
    const char *routes;           /* moe.routes; NULL: mixtures choose */
    const char *moe;              /* other keys of the section moe, "key=value key=value"; NULL: none */
    const char *loss; /* the section `loss` of preference data, whose pairs are two rows; NULL: the loss of tokens */
} subject;

/* A folder for one test program, removed at its end. */
static inline int make_folder(void **state) {
    const char *base = getenv("TMPDIR");
    char *path = ndp_format("%s/ndp-train-XXXXXX", base ? base : "/tmp");
    *state = path;
    return path && mkdtemp(path) ? 0 : -1;
}

static inline int drop_folder(void **state) {
    ndp_status st = ndp_folder_remove(*state);
    free(*state);
    return st == NDP_OK ? 0 : -1;
}

/* FOLDER/NAME: `documents` documents of letters, of 1 to `longest` letters, short ones more often. Blocks of
 * `lonely` documents of one letter lie between them: without a BOS nothing in them can be predicted. */
static inline char *write_corpus(const char *folder, const char *name, int documents, int longest, int lonely) {
    char *path = ndp_format("%s/%s", folder, name);
    ndp_str text = {0};
    for (int d = 0; d < documents; d++) {
        uint64_t n = ndp_rng_below(5, 1, (uint64_t)d, (uint64_t)longest);
        n = 1 + (n * n) / (uint64_t)longest;
        ndp_str_add(&text, "{\"text\":\"");
        for (uint64_t i = 0; i < n;
             i++) /* each letter leans on the one before, so that there is something to train on */
            ndp_str_addf(&text, "%c", 'a' + (int)((i * 3 + ndp_rng_below(5, 2, (uint64_t)d * 4096 + i, 6)) % 16));
        ndp_str_add(&text, "\"}\n");
        for (int i = 0; d % 4 == 3 && i < lonely; i++)
            ndp_str_addf(&text, "{\"text\":\"%c\"}\n", 'a' + i % 16);
    }
    assert_false(text.failed);
    CHECK_OK(ndp_file_write_atomic(path, text.data, text.length));
    ndp_str_release(&text);
    return path;
}

/* FOLDER/tokenizer.json: the letters a to p, no special token. */
static inline char *write_tokenizer(const char *folder) {
    char *path = ndp_format("%s/tokenizer.json", folder);
    ndp_str text = {0};
    ndp_str_add(&text, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < 16; i++)
        ndp_str_addf(&text, "%s\"%c\":%d", i ? "," : "", 'a' + i, i);
    ndp_str_add(&text, "}}}");
    assert_false(text.failed);
    CHECK_OK(ndp_file_write_atomic(path, text.data, text.length));
    ndp_str_release(&text);
    return path;
}

/* ---- how it is trained ---- */

/* A bug put into one run: into a rank's model before its engine is made, or into the engine's program. */
typedef struct fault {
    const char *name;
    const char *seen; /* part of what the comparison must say */
    void (*program)(ndp_program *p, int rank);
} fault;

typedef struct way {
    int replicate, shard, cp, sp, tp, ep; /* sizes; 0 also means 1 */
    int global, accumulation, threads;
    int split_place; /* of the kernels (ops/op.h) */
    ndp_recompute recompute;
    bool keep;     /* reshard_after_forward is false */
    bool gathered; /* as if every rank had a node of its own: real gathers, not shared memory */
    bool whole_rows, all_gather, contiguous; /* tp without sequence parallelism; cp without ring, without zig-zag */
    const char *schedule;                    /* of a pipeline, a word of pipeline.schedule; NULL: 1f1b */
    const char *file;                        /* of schedule `file` */
    int pp, chunks;       /* sizes of a pipeline; chunks: virtual stages, 0: as few as the schedule has */
    bool once;            /* gradients are reduced once an update, as always with a pipeline */
    const char *capacity; /* moe.capacity_factor; NULL: its default */
    const fault *fault;
} way;

static inline ndp_layout layout_of(const way *w) {
    ndp_layout l = NDP_LAYOUT_ONE;
    const int sizes[] = {w->pp, w->replicate, w->shard, w->cp, w->sp, w->tp, w->ep};
    for (int i = 0; i < NDP_COUNT(sizes); i++)
        l.size[NDP_PP + i] = sizes[i] ? sizes[i] : 1;
    return l;
}

static inline int ranks_of(const ndp_layout *l) {
    int ranks = 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        ranks *= l->size[axis];
    return ranks;
}

/* Ranks that read different samples. */
static inline int data_ranks_of(const ndp_layout *l) { return l->size[NDP_DP_REPLICATE] * l->size[NDP_DP_SHARD]; }

/* The k-th divisor of n, from 0; 0 when there are fewer. */
static inline int divisor(int n, int k) {
    for (int d = 1; d <= n; d++)
        if (n % d == 0 && k-- == 0)
            return d;
    return 0;
}

/* Samples of an update for so many data ranks, as few as one rank can cut in at least `ways` ways. */
static inline int global_batch(int ranks, int accumulation, int ways) {
    int n = ranks * accumulation;
    while (divisor(n, ways - 1) == 0)
        n += ranks * accumulation;
    return n;
}

static inline way one_rank(int global, int accumulation, int threads) {
    return (way){.global = global, .accumulation = accumulation, .threads = threads};
}

static const char *const recompute_words[] = {"none", "block", "selective"};

enum { WAY_TEXT = 256 };

static inline const char *way_text(const way *w, char out[WAY_TEXT]) {
    char axes[128], pipeline[64] = "";
    ndp_layout l = layout_of(w);
    if (w->pp > 1)
        snprintf(pipeline, sizeof pipeline, ", %s%s%.0d", w->schedule ? w->schedule : "1f1b", w->chunks ? " v " : "",
                 w->chunks);
    snprintf(out, WAY_TEXT, "%s%s%s%s%s%s%s, global batch %d, accumulation %d, %d thread%s, recompute %s%s, %s",
             ndp_layout_text(&l, axes, sizeof axes), pipeline,
             w->cp > 1 ? w->all_gather ? ", all_gather" : ", ring" : "",
             w->cp > 1 ? w->contiguous ? ", contiguous" : ", zig-zag" : "",
             w->tp > 1 ? w->whole_rows ? ", whole rows" : ", cut rows" : "", w->capacity ? ", capacity " : "",
             w->capacity ? w->capacity : "", w->global, w->accumulation, w->threads, w->threads > 1 ? "s" : "",
             recompute_words[w->recompute], w->keep ? ", kept" : "", w->gathered ? "gathered" : "in place");
    return out;
}

__attribute__((format(printf, 2, 3))) static inline void set(ndp_config *c, const char *fmt, ...) {
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    CHECK_OK(ndp_config_set(c, text));
}

/* "name=dpo beta=0.5": keys of a section. */
static inline void set_keys(ndp_config *c, const char *section, const char *keys) {
    char text[256], *rest = NULL;
    snprintf(text, sizeof text, "%s", keys);
    for (char *key = strtok_r(text, " ", &rest); key; key = strtok_r(NULL, " ", &rest))
        set(c, "%s.%s", section, key);
}

static inline ndp_config *configure(const subject *s, const way *w) {
    ndp_config *c;
    ndp_layout l = layout_of(w);
    CHECK_OK(ndp_config_create(&c));
    set(c, "%s=%s", s->model, s->path);
    set(c, "model.sliding_window=%d", s->window);
    set(c, "model.frozen=%s", s->frozen ? s->frozen : "[]");
    set(c, "model.trained=%s", s->trained ? s->trained : "[]");
    if (s->base != NDP_PACKING_NONE) {
        set(c, "adapter.type=qlora");
        set(c, "adapter.base=%s", s->base == NDP_PACKING_NF4 ? "nf4" : "int8");
        set(c, "adapter.r=4");
        set(c, "adapter.dropout=0.05");
        set(c, "adapter.init=random");
    }
    set(c, "data.files=[%s]", s->data);
    set(c, "data.cache_dir=%s", s->cache);
    set(c, "data.sequence_length=%d", s->length);
    set(c, "data.packing=%s", s->one_a_row ? "false" : "true");
    if (s->routes)
        set(c, "moe.routes=%s", s->routes);
    if (s->moe)
        set_keys(c, "moe", s->moe);
    if (w->capacity)
        set(c, "moe.capacity_factor=%s", w->capacity);
    if (s->loss) {
        set(c, "data.format=preference");
        set_keys(c, "loss", s->loss);
    }
    if (s->tokenizer)
        set(c, "data.tokenizer=%s", s->tokenizer);
    set(c, "precision.compute=%s", s->precision);
    set(c, "train.device=%s", s->device);
    set(c, "train.share_gpu=true");
    set(c, "train.steps=%d", s->steps);
    set(c, "train.transport=%s", ranks_of(&l) > 1 ? "local" : "self");
    set(c, "train.threads=%d", w->threads);
    set(c, "train.force_memory=true"); /* whatever other processes leave at this moment */
    set(c, "train.recompute=%s", recompute_words[w->recompute]);
    set(c, "optimizer.name=%s", s->optimizer);
    set(c, "optimizer.lr=%g", s->lr);
    set(c, "optimizer.max_grad_norm=%g", s->clip);
    set(c, "optimizer.momentum=%g", s->momentum);
    if (s->groups)
        set(c, "optimizer.groups=%s", s->groups);
    set(c, "schedule.name=constant");
    set(c, "schedule.warmup_steps=0");
    for (int axis = 0; axis < NDP_SIZES; axis++)
        set(c, "parallelism.%s_size=%d", ndp_axis_name((ndp_axis)axis), l.size[axis]);
    set(c, "parallelism.cp_method=%s", w->all_gather ? "all_gather" : "ring");
    set(c, "parallelism.cp_zigzag=%s", w->contiguous ? "false" : "true");
    set(c, "parallelism.tp_sequence_parallel=%s", w->whole_rows ? "false" : "true");
    set(c, "parallelism.reshard_after_forward=%s", w->keep ? "false" : "true");
    if (w->once)
        set(c, "parallelism.reduce_every=update");
    if (w->schedule)
        set(c, "pipeline.schedule=%s", w->schedule);
    if (w->file)
        set(c, "pipeline.file=%s", w->file);
    if (w->chunks)
        set(c, "pipeline.virtual_stages=%d", w->chunks);
    set(c, "batch.global_batch_size=%d", w->global);
    set(c, "batch.micro_batch_size=%d", w->global / (data_ranks_of(&l) * w->accumulation));
    return c;
}

/* ---- what came out ---- */

typedef struct outcome {
    ndp_outcome of;
    int empty_ranks; /* without a valid label in their share of an update: of all steps */
    double rounds;   /* the most of a step, in which rows went to experts of other ranks; 0: none did */
} outcome;

static inline void outcome_release(outcome *o) { ndp_outcome_release(&o->of); }

typedef struct running {
    const subject *subject;
    const way *way;
    const ndp_config *config;
    ndp_rank_opts opts;
    outcome *out;
} running;

/* The trainer's engine made anew with what a configuration cannot say. */
static inline ndp_status alter(ndp_trainer *t, const way *w) {
    int rank = ndp_transport_rank(t->rank.transport);
    const ndp_config *c = t->rank.job.config;
    ndp_engine_opts o;
    ndp_engine_destroy(t->engine);
    t->engine = NULL;
    NDP_TRY(ndp_job_engine(&t->rank.job, rank, &t->rank.exec, &o));
    o.model = &t->model, o.transport = t->rank.transport, o.step.node_ranks = w->gathered ? 1 : 0;
    NDP_TRY(ndp_engine_create(&o, &t->engine));
    if (w->fault)
        w->fault->program((ndp_program *)ndp_engine_program(t->engine), rank);
    return c->model.init == NDP_INIT_RANDOM ? ndp_weights_draw(t->engine, (uint64_t)c->train.seed)
                                            : ndp_weights_load(t->engine, c->model.path);
}

/* Ranks whose share of the update just made has no label to predict. */
static inline ndp_status count_empty(const ndp_trainer *t, outcome *o) {
    int64_t empty = 1, rows = ndp_engine_model(t->engine)->inputs->rows[NDP_EXTENT_TOKENS];
    int32_t *labels = malloc((size_t)rows * sizeof *labels);
    for (int m = 0; m < t->rank.job.batch.accumulation; m++) {
        NDP_TRY(ndp_engine_input(t->engine, m, "labels", labels));
        for (int64_t i = 0; i < rows; i++)
            empty = empty && labels[i] < 0;
    }
    free(labels);
    ndp_work w;
    NDP_TRY(ndp_all_reduce_begin(t->rank.world, &empty, 1, NDP_I64, NDP_SUM, &w));
    NDP_TRY(ndp_wait(&w));
    o->empty_ranks += (int)empty;
    return NDP_OK;
}

static inline ndp_status train_steps(ndp_trainer *t, const running *r, bool keep, outcome *o) {
    if (r->way->gathered || r->way->fault)
        NDP_TRY(alter(t, r->way));
    NDP_TRY(ndp_outcome_init(&o->of, t, r->subject->steps, keep));
    for (int s = 0; s < o->of.steps; s++) {
        NDP_TRY(ndp_outcome_step(&o->of, t));
        NDP_TRY(count_empty(t, o));
        o->rounds = fmax(o->rounds, t->newest.rounds);
    }
    return NDP_OK;
}

static inline ndp_status run_rank(ndp_world *w, void *arg) {
    const running *r = arg;
    bool first = ndp_world_rank(w) == 0;
    ndp_trainer *t;
    outcome o = {0};
    NDP_TRY(ndp_trainer_open(r->config, w, &r->opts, &t));
    ndp_status st = train_steps(t, r, first, &o);
    ndp_trainer_destroy(t);
    if (st == NDP_OK && first)
        *r->out = o;
    else
        outcome_release(&o);
    return st;
}

/* With mixtures that record what they would choose, and go where `given` says (NULL: they choose), unless a file does.
 */
static inline outcome train_given(const subject *s, const way *w, const ndp_choices *given) {
    outcome o = {0};
    char text[WAY_TEXT];
    ndp_config *c = configure(s, w);
    ndp_rank_opts opts = {
        .split_place = w->split_place, .given = given && given->chosen && !s->routes ? given : NULL, .record = true};
    running r = {s, w, c, opts, &o};
    if (ndp_world_run(c, run_rank, &r) != NDP_OK)
        fail_msg("%s, %s: %s (%s)", s->name, way_text(w, text), ndp_error_message(), ndp_error_trail());
    ndp_config_destroy(c);
    return o;
}

static inline outcome train(const subject *s, const way *w) { return train_given(s, w, NULL); }

/* ---- the models ---- */

/* odd: tests/golden/odd/config.json, random: vocabulary 509, ffn 172, 5 layers, 8 heads, 4 kv heads, biases; packed
 * documents, rows of 250 tokens, window 64. nines: random, 9 heads, 3 kv heads, a tied table. stories: stories260K of
 * $NDP_TEST_DATA, trained, 8 heads, 4 kv heads, on its kind of text; NULL without. */
typedef struct corpus {
    char *folder, *text, *tokenizer, *odd, *nines, *stories, *tales;
} corpus;

/* FOLDER/nines.json: odd numbers of heads, kv heads, features and tokens. */
static inline char *write_nines(const char *folder) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 263, "
        "\"hidden_size\": 72, \"num_hidden_layers\": 3, \"num_attention_heads\": 9, \"num_key_value_heads\": 3, "
        "\"head_dim\": 8, \"intermediate_size\": 101, \"max_position_embeddings\": 256, "
        "\"tie_word_embeddings\": true, \"initializer_range\": 0.05, \"rms_norm_eps\": 1e-5}";
    char *path = ndp_format("%s/nines.json", folder);
    CHECK_OK(ndp_file_write_atomic(path, config, sizeof config - 1));
    return path;
}

static inline int make_corpus(void **state) {
    corpus *c = calloc(1, sizeof *c);
    const char *data = getenv("NDP_TEST_DATA"), *source = getenv("NDP_SOURCE_DIR");
    void *folder;
    if (!c || !source || make_folder(&folder) != 0) {
        print_error("NDP_SOURCE_DIR must name the sources\n");
        free(c);
        return -1;
    }
    c->folder = folder;
    c->text = write_corpus(folder, "corpus.jsonl", 300, 900, 0);
    c->tokenizer = write_tokenizer(folder);
    c->nines = write_nines(folder);
    c->odd = ndp_format("%s/tests/golden/odd/config.json", source);
    if (data) {
        c->stories = ndp_format("%s/models/stories260K", data);
        c->tales = ndp_format("%s/corpora/tinystories.jsonl", data);
    }
    *state = c;
    return 0;
}

static inline int drop_corpus(void **state) {
    corpus *c = *state;
    if (!c)
        return 0;
    void *folder = c->folder;
    free(c->text);
    free(c->tokenizer);
    free(c->odd);
    free(c->nines);
    free(c->stories);
    free(c->tales);
    free(c);
    return drop_folder(&folder);
}

static inline subject odd_subject(const corpus *c, const char *name, const char *precision) {
    return (subject){.name = name,
                     .model = "model.config",
                     .path = c->odd,
                     .data = c->text,
                     .tokenizer = "bytes",
                     .cache = c->folder,
                     .precision = precision,
                     .device = strcmp(precision, "fp64") == 0 ? "ref" : "cpu",
                     .optimizer = "adamw",
                     .lr = 3e-4,
                     .clip = 1,
                     .length = 250,
                     .window = 64,
                     .steps = MOST_STEPS};
}

static inline subject nines_subject(const corpus *c, const char *name, const char *precision) {
    subject s = odd_subject(c, name, precision);
    s.path = c->nines, s.length = 97, s.window = 0;
    return s;
}

/* The trained model; skips the test where there is none. */
static inline subject stories_subject(const corpus *c, const char *name, const char *precision) {
    if (!c->stories) {
        print_message("SKIPPED: %s (NDP_TEST_DATA is not set)\n", name);
        skip();
    }
    subject s = odd_subject(c, name, precision);
    s.model = "model.path", s.path = c->stories, s.data = c->tales, s.tokenizer = NULL, s.length = 100, s.window = 0,
    s.lr = 3e-4;
    return s;
}

#endif
