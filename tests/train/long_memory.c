/* Proof 9: what training takes is what the plan says. The SmolLM2-135M shape, with 8 heads so that 2 divides them: one
 * rank, dp_replicate 2 x dp_shard 2, tp 2, cp 2 and sp 2, as threads of one process and as processes:
 * anonymous + shared memory at its highest, less what was there before the
 * trainer was made, against the sum of the ranks' budgets. Shared pages count once a node. A mixture of experts too,
 * with all rows on the same experts. */
#include "check.h"
#include "checkpoint/safetensors.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <unistd.h>

#define TOLERANCE 0.03
enum { STEPS = 2 };

typedef struct memory_case {
    const char *name, *transport, *precision;
    int size[NDP_AXES]; /* of the axes */
    int length, threads;
    bool recompute;
    ndp_packing base; /* of qlora; NONE: no adapter */
    bool mixture;     /* of experts, instead */
    int ep;
    int chosen[2]; /* the experts of all rows, with ep */
} memory_case;

static const memory_case cases[] = {
    {"one", "self", "fp32", {1, 1, 1, 1, 1, 1}, 1024, 2, false, NDP_PACKING_NONE, false, 0, {0}},
    {"one-bf16", "self", "bf16", {1, 1, 1, 1, 1, 1}, 1024, 2, true, NDP_PACKING_NONE, false, 0, {0}},
    {"threads", "local", "fp32", {1, 2, 2, 1, 1, 1}, 128, 1, false, NDP_PACKING_NONE, false, 0, {0}},
    {"threads-bf16", "local", "bf16", {1, 2, 2, 1, 1, 1}, 128, 1, false, NDP_PACKING_NONE, false, 0, {0}},
    {"ranks", "shm", "fp32", {1, 2, 2, 1, 1, 1}, 128, 1, false, NDP_PACKING_NONE, false, 0, {0}},
    {"ranks-bf16", "shm", "bf16", {1, 2, 2, 1, 1, 1}, 128, 1, true, NDP_PACKING_NONE, false, 0, {0}},
    {"tp-threads", "local", "fp32", {1, 1, 1, 1, 1, 2}, 256, 1, false, NDP_PACKING_NONE, false, 0, {0}},
    {"tp-ranks", "shm", "fp32", {1, 1, 1, 1, 1, 2}, 256, 1, false, NDP_PACKING_NONE, false, 0, {0}},
    {"tp-ranks-bf16", "shm", "bf16", {1, 1, 1, 1, 1, 2}, 256, 1, true, NDP_PACKING_NONE, false, 0, {0}},
    {"cp-threads", "local", "fp32", {1, 1, 1, 2, 1, 1}, 512, 1, false, NDP_PACKING_NONE, false, 0, {0}},
    {"cp-ranks", "shm", "fp32", {1, 1, 1, 2, 1, 1}, 512, 1, false, NDP_PACKING_NONE, false, 0, {0}},
    {"cp-ranks-bf16", "shm", "bf16", {1, 1, 1, 2, 1, 1}, 512, 1, true, NDP_PACKING_NONE, false, 0, {0}},
    {"sp-threads", "local", "fp32", {1, 1, 1, 1, 2, 1}, 512, 1, false, NDP_PACKING_NONE, false, 0, {0}},
    {"sp-ranks", "shm", "fp32", {1, 1, 1, 1, 2, 1}, 512, 1, false, NDP_PACKING_NONE, false, 0, {0}},
    {"sp-ranks-bf16", "shm", "bf16", {1, 1, 1, 1, 2, 1}, 512, 1, true, NDP_PACKING_NONE, false, 0, {0}},
    {"one-nf4", "self", "bf16", {1, 1, 1, 1, 1, 1}, 1024, 2, true, NDP_PACKING_NF4, false, 0, {0}},
    {"threads-nf4", "local", "bf16", {1, 2, 2, 1, 1, 1}, 128, 1, false, NDP_PACKING_NF4, false, 0, {0}},
    {"ranks-nf4", "shm", "bf16", {1, 2, 2, 1, 1, 1}, 128, 1, true, NDP_PACKING_NF4, false, 0, {0}},
    {"tp-ranks-int8", "shm", "bf16", {1, 1, 1, 1, 1, 2}, 256, 1, true, NDP_PACKING_INT8, false, 0, {0}},
    {"one-mixture", "self", "fp32", {1, 1, 1, 1, 1, 1}, 1024, 2, false, NDP_PACKING_NONE, true, 0, {0}},
    {"one-mixture-bf16", "self", "bf16", {1, 1, 1, 1, 1, 1}, 1024, 2, true, NDP_PACKING_NONE, true, 0, {0}},
    {"tp-mixture", "local", "fp32", {1, 1, 1, 1, 1, 2}, 512, 1, false, NDP_PACKING_NONE, true, 0, {0}},
    {"cp-mixture-bf16", "local", "bf16", {1, 1, 1, 2, 1, 1}, 512, 1, false, NDP_PACKING_NONE, true, 0, {0}},
    /* A row on each rank, all rows on one rank (in rounds), all on the other. */
    {"ep-each", "local", "fp32", {1, 1, 2, 1, 1, 1}, 512, 1, false, NDP_PACKING_NONE, true, 2, {5, 2}},
    {"ep-one", "local", "fp32", {1, 1, 2, 1, 1, 1}, 512, 1, false, NDP_PACKING_NONE, true, 2, {5, 6}},
    {"ep-other-ranks", "shm", "fp32", {1, 1, 2, 1, 1, 1}, 512, 1, false, NDP_PACKING_NONE, true, 2, {1, 2}},
    {"ep-tp-one-bf16", "local", "bf16", {1, 1, 1, 1, 1, 2}, 512, 1, true, NDP_PACKING_NONE, true, 2, {5, 6}},
};

static int data_ranks(const memory_case *c) { return c->size[NDP_DP_REPLICATE] * c->size[NDP_DP_SHARD]; }

static const char smollm2[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 49152, \"hidden_size\": "
    "576, "
    "\"num_hidden_layers\": 30, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 1536, "
    "\"max_position_embeddings\": 8192, \"rope_theta\": 100000, \"rms_norm_eps\": 1e-5, "
    "\"initializer_range\": 0.041666666666666664, \"tie_word_embeddings\": true}";

enum { MIXTURES = 6, CHOICES = 2 };

static const char mixtral[] =
    "{\"model_type\": \"mixtral\", \"vocab_size\": 8192, \"hidden_size\": 512, \"num_hidden_layers\": 6, "
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 512, \"num_local_experts\": 8, "
    "\"num_experts_per_tok\": 2, \"max_position_embeddings\": 8192}";

/* ---- the system's view of this process, in KiB ---- */

static int64_t number_of(const char *path, const char *key) {
    char line[256];
    long long value = -1;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (value < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %lld", &value);
    fclose(f);
    if (value < 0)
        fail_msg("%s has no %s", path, key);
    return value;
}

static int64_t status_of(const char *key) { return number_of("/proc/self/status", key); }

/* This process's part of the shared pages that it has mapped. */
static int64_t shared_part(void) { return number_of("/proc/self/smaps_rollup", "Pss_Shmem"); }

/* Pages of files (of programs, of the data) are not ours to plan: the system drops them when it needs room. */
static int64_t private_peak(void) { return status_of("VmHWM") - status_of("RssFile") - status_of("RssShmem"); }

static void forget_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    assert_non_null(f);
    fputs("5", f);
    assert_int_equal(fclose(f), 0);
}

/* ---- one rank ---- */

typedef struct run {
    const memory_case *c;
    const ndp_config *config;
    int64_t before, peak, planned; /* KiB of all ranks; rank 0 of the process */
} run;

/* Processes count themselves; threads are counted by rank 0 of their process. */
static ndp_status sum(ndp_comm *world, const memory_case *c, int64_t mine, bool of_process, int64_t *out) {
    ndp_work w;
    int64_t n = of_process && strcmp(c->transport, "shm") != 0 && ndp_comm_rank(world) != 0 ? 0 : mine;
    NDP_TRY(ndp_all_reduce_begin(world, &n, 1, NDP_I64, NDP_SUM, &w));
    NDP_TRY(ndp_wait(&w));
    if (ndp_comm_rank(world) == 0)
        *out = n;
    return NDP_OK;
}

static ndp_status train(run *r, ndp_world *w, ndp_comm *world, ndp_trainer **out) {
    NDP_TRY(sum(world, r->c, status_of("RssAnon") + shared_part(), true, &r->before));
    NDP_TRY(ndp_trainer_create(r->config, w, out));
    ndp_metrics m;
    for (int i = 0; i < STEPS; i++)
        NDP_TRY(ndp_trainer_step(*out, &m));
    NDP_TRY(sum(world, r->c, private_peak() + shared_part(), true, &r->peak));
    ndp_budget budget;
    ndp_program_budget(ndp_engine_program((*out)->engine), &budget);
    return sum(world, r->c, (int64_t)(budget.total / 1024), false, &r->planned);
}

static ndp_status body(ndp_world *w, void *arg) {
    run *r = arg;
    ndp_comm *world;
    ndp_trainer *t = NULL;
    ndp_group all = {0, 1, ndp_world_size(w), ndp_world_rank(w)};
    NDP_TRY(ndp_comm_create(w, all, "memory", &world));
    if (ndp_world_rank(w) == 0 || strcmp(r->c->transport, "shm") == 0)
        forget_peak();
    ndp_status st = train(r, w, world, &t);
    ndp_trainer_destroy(t);
    ndp_comm_destroy(world);
    return st;
}

/* ---- one world ---- */

__attribute__((format(printf, 2, 3))) static void set(ndp_config *c, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    CHECK_OK(ndp_config_set(c, text));
}

/* FOLDER/routes.safetensors: all rows to the same experts. */
static void write_routes(const char *folder, int rows, const int chosen_by_all[CHOICES]) {
    char path[1024], names[MIXTURES][32];
    int32_t *chosen = calloc((size_t)rows * CHOICES, sizeof *chosen);
    ndp_tensor_spec specs[MIXTURES];
    ndp_safetensors_writer *w;
    for (int i = 0; i < rows * CHOICES; i++)
        chosen[i] = chosen_by_all[i % CHOICES];
    for (int l = 0; l < MIXTURES; l++) {
        snprintf(names[l], sizeof names[l], "layers.%d.choices", l);
        specs[l] = (ndp_tensor_spec){.name = names[l], .dtype = NDP_I32, .ndim = 2, .shape = {rows, CHOICES}};
    }
    snprintf(path, sizeof path, "%s/routes.safetensors", folder);
    unlink(path);
    CHECK_OK(ndp_safetensors_create(path, specs, MIXTURES, &w));
    for (int l = 0; l < MIXTURES; l++)
        CHECK_OK(ndp_safetensors_write(w, l, 0, rows * CHOICES, chosen, NDP_I32));
    ndp_safetensors_writer_destroy(w);
    free(chosen);
}

static ndp_config *configure(const memory_case *c, const char *folder) {
    ndp_config *config;
    CHECK_OK(ndp_config_create(&config));
    set(config, "model.config=%s/%s.json", folder, c->mixture ? "mixtral" : "config");
    if (c->mixture) {
        write_routes(folder, c->length * data_ranks(c), c->ep ? c->chosen : (const int[]){5, 2});
        set(config, "moe.routes=%s/routes.safetensors", folder);
    }
    set(config, "data.files=%s/corpus.txt", folder);
    set(config, "data.tokenizer=bytes");
    set(config, "data.cache_dir=%s", folder);
    set(config, "data.sequence_length=%d", c->length);
    set(config, "batch.global_batch_size=%d", data_ranks(c));
    for (int axis = 0; axis < NDP_AXES; axis++)
        set(config, "parallelism.%s_size=%d", ndp_axis_name((ndp_axis)axis), c->size[axis]);
    if (c->ep)
        set(config, "parallelism.ep_size=%d", c->ep);
    set(config, "precision.compute=%s", c->precision);
    set(config, "train.recompute=%s", c->recompute ? "block" : "none");
    set(config, "train.threads=%d", c->threads);
    set(config, "train.transport=%s", c->transport);
    if (c->base) {
        set(config, "adapter.type=qlora");
        set(config, "adapter.base=%s", c->base == NDP_PACKING_NF4 ? "nf4" : "int8");
    }
    return config;
}

static void run_world(const memory_case *c, const char *folder, run *r) {
    ndp_config *config = configure(c, folder);
    *r = (run){.c = c, .config = config};
    CHECK_OK(ndp_world_run(config, body, r));
    ndp_config_destroy(config);
}

/* A process: rank 0 leaves the numbers in a file. */
static int be_a_rank(const char *name, const char *folder) {
    const memory_case *c = cases;
    while (c < cases + NDP_COUNT(cases) && strcmp(c->name, name) != 0)
        c++;
    run r;
    run_world(c, folder, &r);
    if (r.planned) {
        char text[128], path[1024];
        snprintf(text, sizeof text, "%lld %lld %lld\n", (long long)r.before, (long long)r.peak, (long long)r.planned);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    }
    return 0;
}

static void launch(const memory_case *c, const char *folder, run *r) {
    char program[1024] = "", path[1024];
    assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    char *argv[] = {program, (char *)c->name, (char *)folder, NULL};
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    o.ranks = 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        o.ranks *= c->size[axis];
    o.argv = argv;
    int code;
    ndp_status st = ndp_launch(&o, &code);
    CHECK_OK(st);
    assert_int_equal(code, 0);
    char *text;
    size_t size;
    long long before, peak, planned;
    snprintf(path, sizeof path, "%s/%s", folder, c->name);
    CHECK_OK(ndp_file_read(path, &text, &size));
    assert_int_equal(sscanf(text, "%lld %lld %lld", &before, &peak, &planned), 3);
    free(text);
    *r = (run){.before = before, .peak = peak, .planned = planned};
}

/* ---- the proof ---- */

static char folder_name[] = "/tmp/ndp-memory-XXXXXX";

static int make_folder(void **state) {
    char path[64], text[65536];
    if (!mkdtemp(folder_name))
        return -1;
    snprintf(path, sizeof path, "%s/config.json", folder_name);
    if (ndp_file_write_atomic(path, smollm2, strlen(smollm2)) != NDP_OK)
        return -1;
    snprintf(path, sizeof path, "%s/mixtral.json", folder_name);
    if (ndp_file_write_atomic(path, mixtral, strlen(mixtral)) != NDP_OK)
        return -1;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i % 61 == 60 ? '\n' : 'a' + (i * i / 7) % 26);
    snprintf(path, sizeof path, "%s/corpus.txt", folder_name);
    *state = folder_name;
    return ndp_file_write_atomic(path, text, sizeof text) == NDP_OK ? 0 : -1;
}

static int drop_folder(void **state) { return ndp_folder_remove(*state) == NDP_OK ? 0 : -1; }

static void check_case(const memory_case *c, const char *folder) {
    run r;
    if (strcmp(c->transport, "shm") == 0)
        launch(c, folder, &r);
    else
        run_world(c, folder, &r);
    double taken = (double)(r.peak - r.before), off = taken / (double)r.planned - 1;
    print_message("%-14s %s: %.1f MiB taken, %.1f MiB planned: %+.2f%%\n", c->name, c->precision, taken / 1024,
                  (double)r.planned / 1024, 100 * off);
    if (off > TOLERANCE || off < -TOLERANCE)
        fail_msg("%s: %.0f KiB taken, %lld planned", c->name, taken, (long long)r.planned);
}

static void check_cases(int first, int n, const char *folder) {
    for (int i = first; i < first + n; i++)
        check_case(&cases[i], folder);
}

static void one_rank(void **state) { check_cases(0, 2, *state); }
static void four_threads(void **state) { check_cases(2, 2, *state); }
static void four_processes(void **state) { check_cases(4, 2, *state); }
static void tensor_threads(void **state) { check_cases(6, 1, *state); }
static void tensor_processes(void **state) { check_cases(7, 2, *state); }
static void context_threads(void **state) { check_cases(9, 1, *state); }
static void context_processes(void **state) { check_cases(10, 2, *state); }
static void sequence_threads(void **state) { check_cases(12, 1, *state); }
static void sequence_processes(void **state) { check_cases(13, 2, *state); }
static void packed(void **state) { check_cases(15, 4, *state); }
static void mixtures(void **state) { check_cases(19, 4, *state); }
static void shared_experts(void **state) { check_cases(23, 4, *state); }

int main(int argc, char **argv) {
    if (argc == 3)
        return be_a_rank(argv[1], argv[2]);
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank),           cmocka_unit_test(four_threads),
                                       cmocka_unit_test(four_processes),     cmocka_unit_test(tensor_threads),
                                       cmocka_unit_test(tensor_processes),   cmocka_unit_test(context_threads),
                                       cmocka_unit_test(context_processes),  cmocka_unit_test(sequence_threads),
                                       cmocka_unit_test(sequence_processes), cmocka_unit_test(packed),
                                       cmocka_unit_test(mixtures),           cmocka_unit_test(shared_experts)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
