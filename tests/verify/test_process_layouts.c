/* Proof 3 between processes: a dozen layouts against one rank, by this program itself (it starts itself as the ranks,
 * so that gradients can be compared), and some by ndparallel train and what it writes. Ranks that share memory are
 * started by shm, and some once more by mpirun; those on nodes of their own by mpirun. */
#include "base/json.h"
#include "verify/mixtures.h"

/* Updates of 8 samples. `gathered`: every rank on a node of its own, so that all goes through MPI's own collectives. */
static const way layouts[] = {
    {.shard = 2, .accumulation = 4},
    {.cp = 2, .tp = 2, .accumulation = 4, .recompute = true},
    {.shard = 2, .sp = 2, .tp = 2, .accumulation = 2},
    {.replicate = 2, .shard = 2, .accumulation = 2, .gathered = true, .recompute = true},
    {.replicate = 4, .accumulation = 2},
    {.tp = 4, .accumulation = 4, .whole_rows = true},
    {.tp = 8, .accumulation = 4},
    {.sp = 4, .accumulation = 8, .gathered = true},
    {.cp = 3, .accumulation = 4, .contiguous = true},
    {.cp = 3, .tp = 2, .accumulation = 4, .gathered = true},
    {.replicate = 2, .cp = 2, .tp = 2, .accumulation = 2, .all_gather = true},
    {.shard = 2, .cp = 2, .sp = 2, .accumulation = 2, .gathered = true, .keep = true},
    {.pp = 2, .shard = 2, .accumulation = 4},
    {.pp = 4, .accumulation = 8, .schedule = "zero_bubble", .recompute = true},
    {.pp = 2, .tp = 2, .accumulation = 2, .schedule = "interleaved"},
    {.pp = 2, .shard = 2, .accumulation = 4, .schedule = "zbv", .gathered = true},
};

/* Of a mixture. */
static const way expert_layouts[] = {
    {.shard = 2, .ep = 2, .accumulation = 4},
    {.cp = 2, .tp = 2, .ep = 4, .accumulation = 2, .recompute = true},
    {.shard = 2, .sp = 2, .ep = 2, .accumulation = 2, .gathered = true},
    {.shard = 2, .tp = 2, .ep = 4, .accumulation = 2, .whole_rows = true, .capacity = "1"},
};

enum {
    UPDATES = 3,
    TRAINED = 3 /* also by the program: the first of them */,
    TWICE = 3 /* by mpirun as well, as all pipelines */
};

/* mpirun must be there; TSan does not see through MPI. */
static bool have_mpirun(void) { return !getenv("TSAN_OPTIONS") && system("command -v mpirun >/dev/null 2>&1") == 0; }

static subject small_subject(const corpus *c, const char *name) {
    subject s = odd_subject(c, name, "fp32");
    s.length = 64, s.window = 24, s.steps = UPDATES;
    return s;
}

static way small_way(const way *of) {
    way w = *of;
    w.global = 8, w.threads = 1;
    return w;
}

static char *write_job(const corpus *c, const subject *s, const way *w, const char *transport, const char *output) {
    char *path = ndp_format("%s/job.yaml", c->folder), *yaml;
    ndp_config *config = configure(s, w);
    set(config, "train.transport=%s", transport);
    set(config, "train.output_dir=%s", output);
    CHECK_OK(ndp_config_text(config, &yaml));
    CHECK_OK(ndp_file_write_atomic(path, yaml, strlen(yaml)));
    ndp_config_destroy(config);
    free(yaml);
    return path;
}

/* ---- this program as ranks ---- */

enum { ARRAYS = 6 };

/* The numbers of an outcome, as a file holds them. */
static void arrays_of(outcome *o, void *data[ARRAYS], size_t bytes[ARRAYS]) {
    ndp_outcome *of = &o->of;
    size_t whole = (size_t)of->first[of->n] * ndp_dtype_size(of->type);
    void *const all[ARRAYS] = {of->loss, of->norm, of->tokens, of->kept[0], of->kept[1], of->kept[2]};
    const size_t sizes[ARRAYS] = {sizeof of->loss, sizeof of->norm, sizeof of->tokens, whole, whole, whole};
    memcpy(data, all, sizeof all);
    memcpy(bytes, sizes, sizeof sizes);
}

static int be_rank(const char *job) {
    ndp_config *c;
    outcome o = {0};
    subject s = {0};
    way w = {0};
    ndp_status st = ndp_config_create(&c);
    if (st == NDP_OK)
        st = ndp_config_read(c, job);
    if (st == NDP_OK)
        s.steps = c->train.steps;
    if (st == NDP_OK)
        st = ndp_world_run(c, run_rank, &(running){.subject = &s, .way = &w, .config = c, .out = &o});
    if (st != NDP_OK)
        fprintf(stderr, "%s (%s)\n", ndp_error_message(), ndp_error_trail());
    if (st == NDP_OK && ndp_world_launched_rank() == 0) {
        char *path = ndp_format("%s.out", job);
        FILE *f = fopen(path, "wb");
        void *data[ARRAYS];
        size_t bytes[ARRAYS];
        arrays_of(&o, data, bytes);
        for (int i = 0; i < ARRAYS; i++)
            fwrite(data[i], 1, bytes[i], f);
        fclose(f);
        free(path);
    }
    outcome_release(&o);
    ndp_config_destroy(c);
    return st != NDP_OK;
}

/* What a launched rank 0 left; its tensors are those of `like`, which lives longer. */
static outcome read_outcome(const char *job, const outcome *like) {
    outcome o = *like;
    o.of.arena = (ndp_arena){0};
    o.of.routed = (ndp_choices){0}; /* not written */
    char *path = ndp_format("%s.out", job);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (int k = 0; k < NDP_KEPT; k++)
        o.of.kept[k] = calloc((size_t)o.of.first[o.of.n], ndp_dtype_size(o.of.type));
    void *data[ARRAYS];
    size_t bytes[ARRAYS];
    arrays_of(&o, data, bytes);
    for (int i = 0; i < ARRAYS; i++)
        assert_int_equal(fread(data[i], 1, bytes[i], f), bytes[i]);
    fclose(f);
    free(path);
    return o;
}

static void check_launched(const corpus *c, const subject *s, const way *w, const char *transport, const outcome *one) {
    char self[4096], text[WAY_TEXT], words[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    char *job = write_job(c, s, w, transport, "unused");
    char *const argv[] = {self, (char *)"--rank", job, NULL};
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    ndp_layout l = layout_of(w);
    o.ranks = ranks_of(&l), o.threads = 1, o.argv = argv, o.transport = transport;
    int code;
    if (w->gathered)
        setenv("NDP_NODE_RANKS", "1", 1);
    CHECK_OK(ndp_launch(&o, &code));
    unsetenv("NDP_NODE_RANKS");
    assert_int_equal(code, 0);
    outcome launched = read_outcome(job, one);
    ndp_bounds bounds = bounds_of(s, w);
    ndp_difference d = compare(&launched, one, &bounds);
    const char *bad = ndp_difference_words(&d, words, sizeof words);
    if (bad)
        fail_msg("%s, %s: %s", transport, way_text(w, text), bad);
    printf("%s, %s: gradient of step 1 off by %.1e, loss by %.1e\n", transport, way_text(w, text),
           d.of[NDP_MEASURE_FIRST_GRADIENT].worst.off, d.of[NDP_MEASURE_LOSS].worst.off);
    outcome_release(&launched);
    free(job);
}

static void gradients(void **state) {
    bool mpirun = have_mpirun();
    subject s = small_subject(*state, "processes");
    way alone = one_rank(8, 1, 1);
    outcome one = train(&s, &alone);
    if (!mpirun)
        print_message("SKIPPED in part: no mpirun, or TSan\n");
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        way w = small_way(&layouts[i]);
        if (left_out())
            continue;
        if (!w.gathered)
            check_launched(*state, &s, &w, "shm", &one);
        if (mpirun && (w.gathered || i < TWICE || w.pp > 1))
            check_launched(*state, &s, &w, "mpi", &one);
    }
    outcome_release(&one);
}

/* Its choices are its own; on these batches rounding decides none. */
static void mixtures(void **state) {
    bool mpirun = have_mpirun();
    char *path;
    subject s = mixture_subject(*state, &mixture_models[1], "fp32", &path);
    s.steps = UPDATES;
    way alone = one_rank(8, 1, 1);
    outcome one = train(&s, &alone);
    for (int i = 0; i < NDP_COUNT(expert_layouts); i++) {
        way w = small_way(&expert_layouts[i]);
        if (!w.gathered)
            check_launched(*state, &s, &w, "shm", &one);
        if (mpirun)
            check_launched(*state, &s, &w, "mpi", &one);
    }
    outcome_release(&one);
    free(path);
}

/* ---- ndparallel train ---- */

static void run_program(const char *program, const char *job, const char *folder, outcome *o) {
    char *command = ndp_format("'%s' train '%s' > '%s.log' 2>&1", program, job, job),
         *path = ndp_format("%s/metrics.jsonl", folder);
    char *text;
    size_t size;
    if (system(command) != 0)
        fail_msg("%s failed", command);
    CHECK_OK(ndp_file_read(path, &text, &size));
    ndp_outcome *of = &o->of;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, of->steps++) {
        struct json_object *json;
        assert_true(of->steps < MOST_STEPS);
        CHECK_OK(ndp_json_parse(line, (size_t)(end - line), path, &json));
        CHECK_OK(ndp_json_double(json, path, "loss", &of->loss[of->steps]));
        CHECK_OK(ndp_json_double(json, path, "grad_norm", &of->norm[of->steps]));
        CHECK_OK(ndp_json_int(json, path, "tokens", 1, 1 << 20, &of->tokens[of->steps]));
        json_object_put(json);
    }
    free(text);
    free(path);
    free(command);
}

static void metrics(void **state) {
    const corpus *c = *state;
    const char *program = getenv("NDP_PROGRAM");
    if (!program || access(program, X_OK) != 0) {
        print_message("SKIPPED: NDP_PROGRAM does not name the program\n");
        skip();
    }
    subject s = small_subject(c, "program");
    outcome one = {0};
    for (int i = -1; i < TRAINED; i++) {
        way w = i < 0 ? one_rank(8, 1, 1) : small_way(&layouts[i]);
        char *folder = ndp_format("%s/run%d", c->folder, i), *job = write_job(c, &s, &w, "auto", folder),
             text[WAY_TEXT], words[512];
        outcome o = {0};
        run_program(program, job, folder, i < 0 ? &one : &o);
        assert_int_equal(one.of.steps, UPDATES);
        ndp_bounds bounds = bounds_of(&s, &w);
        ndp_difference d = i < 0 ? (ndp_difference){0} : compare(&o, &one, &bounds);
        const char *bad = ndp_difference_words(&d, words, sizeof words);
        if (bad)
            fail_msg("ndparallel train, %s: %s", way_text(&w, text), bad);
        free(folder);
        free(job);
    }
}

int main(int argc, char **argv) {
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0); /* of the ranks: MPI's own are not ours to find */
    if (argc == 3 && strcmp(argv[1], "--rank") == 0)
        return be_rank(argv[2]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients), cmocka_unit_test(mixtures),
                                       cmocka_unit_test(metrics)};
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
