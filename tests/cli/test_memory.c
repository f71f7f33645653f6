/* Plans above the memory that there is: refused with numbers before anything large is allocated, whatever sets the
 * limit (control groups, ulimit) and however ranks are made; plans just below it run. No process is killed. */
#include "cli/job.h"

#include <sys/stat.h>

#define MIB ((int64_t)1 << 20)

/* ---- limits ---- */

typedef enum limit { SPACE, DATA, GROUP, ANCESTOR, LIMITS } limit;
static const char *const limit_names[] = {"RLIMIT_AS", "RLIMIT_DATA", "control group", "ancestor of the group"};

/* A group with a group in it, below this process's own; "" where that is not permitted. */
typedef struct groups {
    char outer[400], inner[420];
    const char *file; /* of the limit */
} groups;

static bool write_file(const char *folder, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return written;
}

static void remove_groups(const groups *g) {
    if (*g->outer) {
        rmdir(g->inner);
        rmdir(g->outer);
    }
}

static bool try_groups(groups *g, const char *above, const char *file) {
    snprintf(g->outer, sizeof g->outer, "%s/ndp-test-%d", above, (int)getpid());
    snprintf(g->inner, sizeof g->inner, "%s/inner", g->outer);
    g->file = file;
    if (mkdir(g->outer, 0755) == 0 && mkdir(g->inner, 0755) == 0 && write_file(g->outer, file, "1000000000000"))
        return true;
    remove_groups(g);
    g->outer[0] = '\0';
    return false;
}

static groups own; /* of this program, while it runs */

static int make_groups(void **state) {
    (void)state;
    if (!try_groups(&own, "/sys/fs/cgroup/memory", "memory.limit_in_bytes"))
        (void)try_groups(&own, "/sys/fs/cgroup", "memory.max");
    return 0;
}

static int end_groups(void **state) {
    (void)state;
    remove_groups(&own);
    return 0;
}

static bool have_groups(void) {
    if (!*own.outer)
        print_message("SKIPPED: limits of control groups, which may not be made here\n");
    return *own.outer != '\0';
}

/* The words that run `sh -c SCRIPT sh ...` under the limit. */
static char *script_of(limit l, int64_t bytes) {
    const groups *g = &own;
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)bytes);
    if (l == SPACE || l == DATA)
        return ndp_format("ulimit -%c %lld; exec \"$@\"", l == SPACE ? 'v' : 'd', (long long)(bytes / 1024));
    assert_true(write_file(g->inner, g->file, l == GROUP ? number : "1000000000000"));
    assert_true(write_file(g->outer, g->file, l == ANCESTOR ? number : "1000000000000"));
    return ndp_format("echo $$ >%s/cgroup.procs; exec \"$@\"", g->inner);
}

/* Words at blanks; @ is the folder. */
static outcome run(const char *folder, limit l, int64_t bytes, const char *arguments) {
    ndp_str text = {0};
    for (const char *at = arguments; *at; at++)
        if (*at == '@')
            ndp_str_add(&text, folder);
        else
            ndp_str_add_bytes(&text, at, 1);
    char *script = bytes ? script_of(l, bytes) : ndp_format("exec \"$@\""), *rest = text.data;
    char *argv[24] = {"sh", "-c", script, "sh", getenv("NDP_PROGRAM")};
    int n = 5;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        argv[n++] = word;
    outcome o = program_run(argv);
    ndp_str_release(&text);
    free(script);
    return o;
}

/* ---- a model of some 30 MB, of which training takes four times as much ---- */

static const char config[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 16000, \"hidden_size\": "
    "256, \"num_hidden_layers\": 4, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": "
    "768, "
    "\"max_position_embeddings\": 512, \"initializer_range\": 0.04, \"tie_word_embeddings\": true}";

static const char job[] = "model: {config: %s/large/config.json}\n"
                          "data: {files: [%s/data/corpus.jsonl], validation_files: [%s/data/corpus.jsonl], "
                          "tokenizer: bytes, sequence_length: 32, cache_dir: %s/cache}\n"
                          "batch: {global_batch_size: 4}\n"
                          "train: {steps: 1, output_dir: %s/run, threads: 1}\n";

static int setup(void **state) {
    if (make_job(state))
        return -1;
    char *folder = *state, *text = ndp_format(job, folder, folder, folder, folder, folder);
    tiny_write(folder, "large.yaml", text);
    free(text);
    if (mkdir(in(folder, "large"), 0700))
        return -1;
    tiny_write(in(folder, "large"), "config.json", config);
    outcome o = run(folder, SPACE, 0, "train @/large.yaml --transport=self --set train.output_dir=@/trained");
    int code = o.code;
    ndp_str_release(&o.text);
    return code;
}

#define MPI "--transport=mpi --ranks="
#define LOCAL "--transport=local --ranks="

/* What a run may use, in MiB: less than it needs (about 120 MiB for training, 30 for the model), and enough to start.
 */
static const struct {
    limit limit;
    int mib;
    const char *arguments;
} refusals[] = {
    {GROUP, 60, "train @/large.yaml --transport=self"},
    {GROUP, 100, "train @/large.yaml --transport=self --resume"},
    {ANCESTOR, 110, "train @/large.yaml --transport=self"},
    {SPACE, 150, "train @/large.yaml --transport=self"},
    {DATA, 80, "train @/large.yaml --transport=self"},
    {GROUP, 60, "train @/large.yaml " LOCAL "2"},
    {ANCESTOR, 90, "train @/large.yaml " LOCAL "4 --set parallelism.tp_size=2"},
    {DATA, 90, "train @/large.yaml " LOCAL "2 --set parallelism.dp_replicate_size=2"},
    {GROUP, 80, "train @/large.yaml " MPI "2"},
    {GROUP, 150, "train @/large.yaml " MPI "2 --set parallelism.dp_replicate_size=2"},
    {ANCESTOR, 110, "train @/large.yaml " MPI "2 --set parallelism.tp_size=2"},
    {SPACE, 300, "train @/large.yaml " MPI "2 --set parallelism.cp_size=2"},
    {ANCESTOR, 130, "train @/large.yaml " MPI "4 --set parallelism.sp_size=2"},
    {GROUP, 100, "verify @/large.yaml --layout tp=2 --steps 1"},
    {SPACE, 250, "verify @/large.yaml --layout dp_shard=2 --steps 1"},
    {GROUP, 20, "evaluate @/large.yaml --model @/trained/model --transport=self"},
    {GROUP, 45, "evaluate @/large.yaml --model @/trained/model " MPI "2"},
    {GROUP, 20, "evaluate --model @/trained/model --data @/data/corpus.jsonl"},
    {ANCESTOR, 20, "generate --model @/trained/model -n 4"},
    {DATA, 20, "generate --model @/trained/model -n 4"},
};

static bool can_try(limit l, const char *arguments) {
    bool group = l == GROUP || l == ANCESTOR;
    return (!group || *own.outer) && (!strstr(arguments, "mpi") || have_mpirun());
}

static void too_large_plans_are_refused(void **state) {
    int refused = 0, killed = 0, tried = 0;
    (void)have_groups();
    for (int i = 0; i < NDP_COUNT(refusals); i++) {
        limit l = refusals[i].limit;
        if (!can_try(l, refusals[i].arguments))
            continue;
        outcome o = run(*state, l, refusals[i].mib * MIB, refusals[i].arguments);
        static const char *const marks[] = {"RLIMIT_AS of ", "RLIMIT_DATA of ", "/inner/memory.", "memory."};
        bool right = o.code == 2 && count_of(o.text.data, "ndparallel: ") == 1 && strstr(o.text.data, " needs ") &&
                     strstr(o.text.data, " available (") && strstr(o.text.data, marks[l]) &&
                     strstr(o.text.data, "--force-memory");
        tried++;
        refused += right;
        killed += o.code == 128 + SIGKILL || strstr(o.text.data, "signal 9") != NULL;
        print_message("%5.2f s  code %d  %s %d MiB, %s: %s", o.seconds, o.code, limit_names[l], refusals[i].mib,
                      refusals[i].arguments, o.text.data);
        ndp_str_release(&o.text);
    }
    print_message("%d of %d refused, %d killed\n", refused, tried, killed);
    assert_int_equal(refused, tried);
    assert_int_equal(killed, 0);
    assert_false(ndp_path_exists(in(*state, "run"))); /* nothing was begun */
}

/* ---- plans that fit ---- */

/* The number that stands before `unit` and after `words`, in MiB. */
static int64_t mebibytes(const outcome *o, const char *words) {
    const char *at = strstr(o->text.data, words);
    double value = 0;
    char unit[8];
    if (!at || sscanf(at + strlen(words), " %lf %7[A-Za-z]", &value, unit) != 2 || strcmp(unit, "MiB") != 0)
        fail_msg("no MiB after '%s' in: %s", words, o->text.data);
    return (int64_t)value + 1;
}

/* Under a limit of what the refusal asks for, what is in use then, and 4%. */
static void plans_that_fit_run(void **state) {
    static const char *const runs[] = {
        "train @/large.yaml --transport=self", "train @/large.yaml " LOCAL "2 --set parallelism.tp_size=2",
        "train @/large.yaml " MPI "2", "evaluate --model @/trained/model --data @/data/corpus.jsonl"};
    if (!have_groups())
        skip();
    for (int i = 0; i < NDP_COUNT(runs); i++) {
        if (!can_try(GROUP, runs[i]))
            continue;
        outcome small = run(*state, GROUP, (i == 3 ? 20 : 60) * MIB, runs[i]);
        int64_t need = mebibytes(&small, " needs ") + mebibytes(&small, i == 3 ? "of 20.0 MiB, " : "of 60.0 MiB, ");
        outcome enough = run(*state, GROUP, need * MIB * 104 / 100, runs[i]);
        print_message("%5.2f s  code %d  %lld MiB: %s\n", enough.seconds, enough.code, (long long)need * 104 / 100,
                      runs[i]);
        if (enough.code != 0)
            fail_msg("code %d under %lld MiB: %s", enough.code, (long long)need * 104 / 100, enough.text.data);
        ndp_str_release(&small.text);
        ndp_str_release(&enough.text);
        CHECK_OK(ndp_folder_remove(in(*state, "run")));
    }
}

/* ---- batch.micro_batch_size auto ---- */

#define AUTO "train @/large.yaml --set batch.global_batch_size=24 --set data.sequence_length=128 "
#define AUTO_MORE " --set batch.micro_batch_size="

/* A limit between what one row needs and what all rows need. */
static const struct {
    limit limit;
    int mib;
    const char *arguments;
} automatic[] = {
    {GROUP, 228, AUTO "--transport=self"},
    {GROUP, 260, AUTO "--transport=self --set train.recompute=block"},
    {ANCESTOR, 350, AUTO "--transport=self"},
    {GROUP, 250, AUTO "--transport=self --set precision.compute=bf16"},
    {DATA, 240, AUTO "--transport=self"},
    {DATA, 320, AUTO "--transport=self"},
    {GROUP, 450, AUTO LOCAL "2 --set parallelism.dp_replicate_size=2"},
    {GROUP, 330, AUTO LOCAL "2"},
    {GROUP, 300, AUTO LOCAL "2 --set parallelism.tp_size=2"},
    {GROUP, 330, AUTO LOCAL "2 --set parallelism.pp_size=2"},
    {GROUP, 430, AUTO MPI "2"},
    {GROUP, 460, AUTO "--transport=shm --ranks=2 --set parallelism.dp_replicate_size=2"},
};

/* Returns the number right before `words`, or 0 without one. */
static int number_before(const char *text, const char *words) {
    const char *end = text ? strstr(text, words) : NULL, *at = end;
    while (at && at > text && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return at ? atoi(at) : 0;
}

static void larger_is_refused(const char *folder, int i, int rows) {
    char *arguments = ndp_format("%s" AUTO_MORE "%d", automatic[i].arguments, rows);
    outcome o = run(folder, automatic[i].limit, automatic[i].mib * MIB, arguments);
    if (o.code != 2 || !strstr(o.text.data, " available ("))
        fail_msg("%s: code %d: %s", arguments, o.code, o.text.data);
    ndp_str_release(&o.text);
    free(arguments);
}

/* The micro-batch that a command chooses under a limit. */
static int chosen(const char *folder, limit l, int64_t bytes, const char *command, const char *arguments) {
    char *all = ndp_format("%s @/large.yaml --set batch.global_batch_size=24 --set data.sequence_length=128 "
                           "--set batch.micro_batch_size=auto %s",
                           command, arguments);
    outcome o = run(folder, l, bytes, all);
    const char *line = strstr(o.text.data, "\nmicro-batch ");
    int rows = line && o.code == 0 ? atoi(line + strlen("\nmicro-batch ")) : 0;
    if (rows < 1)
        fail_msg("%s: code %d: %s", all, o.code, o.text.data);
    ndp_str_release(&o.text);
    free(all);
    return rows;
}

/* A plan and the run choose the same, however near a limit is: around the one from which on a plan takes more rows. A
 * process that trains has some pages more mapped than one that plans: `near` is how near limits of a process are. */
static void plans_choose_as_runs_do(void **state) {
    static const struct {
        limit limit;
        int64_t near;
        const char *layout, *transport; /* of the run; a plan's is a key */
    } cases[] = {{GROUP, MIB / 4, "--set parallelism.dp_shard_size=1", ""},
                 {GROUP, MIB / 4, "--set parallelism.dp_replicate_size=2", ""},
                 {SPACE, MIB, "--set parallelism.dp_shard_size=1", " --transport=self"},
                 {DATA, MIB, "--set parallelism.dp_shard_size=1", " --transport=self"},
                 {SPACE, MIB, "--set parallelism.dp_replicate_size=2", " --transport=shm --ranks=2"},
                 {GROUP, MIB / 4, "--set parallelism.pp_size=2", ""}};
    for (int i = 0; i < NDP_COUNT(cases); i += short_or_all(2, 1)) {
        limit l = cases[i].limit;
        if (l == GROUP && !have_groups())
            continue;
        int64_t low = 340 * MIB, high = 1200 * MIB;
        int least = chosen(*state, l, low, "plan", cases[i].layout);
        assert_true(chosen(*state, l, high, "plan", cases[i].layout) > least);
        while (high - low > MIB / 8)
            *(chosen(*state, l, (low + high) / 2, "plan", cases[i].layout) > least ? &high : &low) = (low + high) / 2;
        char *run = ndp_format("%s%s", cases[i].layout, cases[i].transport);
        for (int k = -1; k <= 1; k += l == GROUP ? 1 : 2) {
            int64_t bytes = high + k * cases[i].near;
            int planned = chosen(*state, l, bytes, "plan", cases[i].layout),
                ran = chosen(*state, l, bytes, "train", run);
            CHECK_OK(ndp_folder_remove(in(*state, "run")));
            if (planned != ran)
                fail_msg("%s of %lld bytes, %s: %d is planned and %d runs", limit_names[l], (long long)bytes, run,
                         planned, ran);
        }
        free(run);
    }
}

static void auto_fits_and_the_next_does_not(void **state) {
    (void)have_groups();
    for (int i = 0; i < NDP_COUNT(automatic); i += short_or_all(2, 1)) {
        if (!can_try(automatic[i].limit, automatic[i].arguments))
            continue;
        char *arguments = ndp_format("%s" AUTO_MORE "auto", automatic[i].arguments);
        outcome o = run(*state, automatic[i].limit, automatic[i].mib * MIB, arguments);
        const char *line = strstr(o.text.data, "micro-batch ");
        int rows = line ? atoi(line + strlen("micro-batch ")) : 0, next = number_before(line, " would need ");
        print_message("%5.2f s  code %d  %s %d MiB, %s: %.*s\n", o.seconds, o.code, limit_names[automatic[i].limit],
                      automatic[i].mib, arguments, line ? (int)strcspn(line, "\n") : 0, line);
        if (o.code != 0 || rows < 1 || next <= rows)
            fail_msg("%s: code %d: %s", arguments, o.code, o.text.data);
        ndp_str_release(&o.text);
        free(arguments);
        CHECK_OK(ndp_folder_remove(in(*state, "run")));
        larger_is_refused(*state, i, next);
    }
}

/* 300 MiB of files that were just read do not count as in use. */
static void pages_of_files_make_room(void **state) {
    if (!have_groups())
        skip();
    char *big = ndp_format("dd if=/dev/zero of=%s/big bs=1M count=150 2>/dev/null; sync; cat %s/big %s/big >/dev/null; "
                           "echo $$ >%s/cgroup.procs; cat %s/big %s/big >/dev/null; exec \"$@\"",
                           (char *)*state, (char *)*state, (char *)*state, own.inner, (char *)*state, (char *)*state);
    char *at = ndp_format("%s/large.yaml", (char *)*state);
    assert_true(write_file(own.inner, own.file, "200000000"));
    outcome o =
        program_run((char *[]){"sh", "-c", big, "sh", getenv("NDP_PROGRAM"), "train", at, "--transport=self", NULL});
    if (o.code != 0)
        fail_msg("code %d: %s", o.code, o.text.data);
    ndp_str_release(&o.text);
    free(at);
    free(big);
}

/* ---- what else is said ---- */

static void a_dry_run_compares(void **state) {
    static const char plan[] = "train @/large.yaml --dry-run --ranks 2 --set parallelism.dp_replicate_size=2";
    outcome o = run(*state, DATA, 0, plan);
    if (o.code != 0 || !strstr(o.text.data, "a node of 2 ranks needs ") || !strstr(o.text.data, " available\n") ||
        strstr(o.text.data, "warning"))
        fail_msg("code %d: %s", o.code, o.text.data);
    ndp_str_release(&o.text);
    o = run(*state, SPACE, 150 * MIB, plan);
    if (o.code != 0 || !strstr(o.text.data, "warning: on this host it would be refused: the run needs ") ||
        !strstr(o.text.data, "RLIMIT_AS of 150.0 MiB"))
        fail_msg("code %d: %s", o.code, o.text.data);
    ndp_str_release(&o.text);
}

/* ---- checkpoint.async ---- */

/* Whether saves are written while the steps go on, as the plan says and as the run does. */
static void want_saves(const char *folder, limit l, int64_t bytes, const char *way, bool background) {
    char *plan = ndp_format("train @/large.yaml %s --dry-run", way),
         *train = ndp_format("train @/large.yaml %s --transport=%s", way, strstr(way, "shard") ? "shm" : "self");
    outcome planned = run(folder, l, bytes, plan), ran = run(folder, l, bytes, train);
    const char *says = background
                           ? "saves: written while the steps go on, from a copy of "
                           : "saves: the steps wait until they are written (checkpoint.async auto): with a copy ";
    if (planned.code != 0 || !strstr(planned.text.data, says))
        fail_msg("%lld bytes, %s: code %d: %s", (long long)bytes, plan, planned.code, planned.text.data);
    if (ran.code != 0 || count_of(ran.text.data, "checkpoint: ") != 4 ||
        count_of(ran.text.data, "; steps waited ") != (background ? 3 : 0))
        fail_msg("%lld bytes, %s: code %d: %s", (long long)bytes, train, ran.code, ran.text.data);
    ndp_str_release(&planned.text);
    ndp_str_release(&ran.text);
    CHECK_OK(ndp_folder_remove(in(folder, "run")));
    free(plan);
    free(train);
}

/* Between what the steps need and what they need with a copy, `auto` takes none and `true` is refused; from there on it
 * is taken, and is all that the run takes. */
static void copies_for_saves_that_fit(void **state) {
#define SAVES "--set train.steps=4 --set checkpoint.every=1 --set data.validation_files=[]"
    static const char *const layouts[] = {SAVES, SAVES " --set parallelism.dp_shard_size=2"};
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        want_saves(*state, SPACE, 0, layouts[i], true);
        if (!have_groups())
            continue;
        char *must = ndp_format("train @/large.yaml %s --transport=%s --set checkpoint.async=", layouts[i],
                                i ? "shm" : "self"),
             *with = ndp_format("%strue", must), *without = ndp_format("%sfalse", must);
        outcome all = run(*state, GROUP, 60 * MIB, with), steps = run(*state, GROUP, 60 * MIB, without);
        if (all.code != 2 || !strstr(all.text.data, "Set checkpoint.async: auto, lower"))
            fail_msg("%s: code %d: %s", with, all.code, all.text.data);
        int64_t taken = mebibytes(&all, "of 60.0 MiB, "), need = mebibytes(&steps, " needs ") + taken,
                more = mebibytes(&all, " needs ") + taken;
        print_message("%lld MiB, with a copy %lld MiB\n", (long long)need, (long long)more);
        assert_in_range(more - need, 70, 110);
        want_saves(*state, GROUP, (need + more) / 2 * MIB, layouts[i], false);
        want_saves(*state, GROUP, more * MIB * 104 / 100, layouts[i], true);
        ndp_str_release(&all.text);
        ndp_str_release(&steps.text);
        free(must);
        free(with);
        free(without);
    }
}

/* It warns, and then fails where the memory is taken: a limit of the process kills no rank. */
static void force_starts_it(void **state) {
    static const char *const runs[] = {"train @/large.yaml --transport=self --force-memory",
                                       "train @/large.yaml --transport=self --set train.force_memory=true",
                                       "generate --model @/trained/model -n 4 --force-memory",
                                       "evaluate --model @/trained/model --data @/data/corpus.jsonl --force-memory"};
    for (int i = 0; i < NDP_COUNT(runs); i++) {
        outcome o = run(*state, DATA, 20 * MIB, runs[i]);
        if (o.code != 1 || !strstr(o.text.data, "starting anyway (--force-memory)") ||
            count_of(o.text.data, "memory") < 3)
            fail_msg("%s: code %d: %s", runs[i], o.code, o.text.data);
        ndp_str_release(&o.text);
    }
}

#define JOB_TEST(f) cmocka_unit_test_setup_teardown(f, setup, tiny_teardown)

int main(void) {
    if (!getenv("NDP_PROGRAM")) {
        printf("SKIPPED: NDP_PROGRAM names no program\n");
        return 77;
    }
    if (SANITIZED) {
        printf("SKIPPED: a sanitizer takes memory that no plan has\n");
        return 77;
    }
    find_leaks(false);
    const struct CMUnitTest tests[] = {
        JOB_TEST(too_large_plans_are_refused),
        JOB_TEST(plans_that_fit_run),
        JOB_TEST(pages_of_files_make_room),
        JOB_TEST(a_dry_run_compares),
        JOB_TEST(force_starts_it),
        JOB_TEST(auto_fits_and_the_next_does_not),
        JOB_TEST(plans_choose_as_runs_do),
        JOB_TEST(copies_for_saves_that_fit),
    };
    return cmocka_run_group_tests(tests, make_groups, end_groups);
}
