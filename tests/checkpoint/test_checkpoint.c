/* Checkpoints: written on one layout and read on another, pruned, damaged, and killed at every point. */
#include "base/clock.h"
#include "base/fault.h"
#include "checkpoint/ranks.h"
#include "checkpoint/steps.h"

#include <signal.h>
#include <sys/wait.h>

typedef struct job {
    const char *folder;
    int64_t step, shard_bytes;
    int keep, rank, kind; /* whose n-th operation of the kind fails */
    int64_t nth;
    bool behind; /* in the background */
} job;

static ndp_status save_body(ndp_transport *t, void *arg) {
    job *j = arg;
    ndp_comm *world = NULL;
    NDP_TRY(ndp_comm_create(t, world_of(t), "world", &world));
    bool mine = ndp_comm_rank(world) == j->rank;
    if (mine)
        ndp_fault_arm((ndp_fault_kind)j->kind, j->nth);
    ndp_status st = (j->behind ? save_step_behind : save_step)(world, j->folder, j->step, j->keep, j->shard_bytes);
    if (mine) {
        if (!ndp_fault_fired((ndp_fault_kind)j->kind))
            j->nth = 0;
        ndp_fault_arm((ndp_fault_kind)j->kind, 0);
    }
    ndp_comm_destroy(world);
    return st;
}

static ndp_status load_body(ndp_transport *t, void *arg) {
    job *j = arg;
    ndp_comm *world = NULL;
    NDP_TRY(ndp_comm_create(t, world_of(t), "world", &world));
    ndp_resume r = {0};
    ndp_status st = ndp_resume_choose(world, j->folder, -1, 2, &r);
    if (st == NDP_OK && (r.step != j->step || r.n_aside || r.unverifiable))
        st = NDP_FAIL(NDP_EBUG, "the newest is step %lld, expected %lld", (long long)r.step, (long long)j->step);
    if (st == NDP_OK)
        st = check_step(j->folder, r.step, ndp_comm_rank(world), ndp_comm_size(world));
    ndp_resume_release(&r);
    ndp_comm_destroy(world);
    return st;
}

static void save(const char *folder, int64_t step, int keep) { CHECK_OK(save_step(NULL, folder, step, keep, 1 << 20)); }

static void want_steps(const char *folder, int n, const int64_t *want) {
    int64_t *steps = NULL;
    int found = 0;
    CHECK_OK(ndp_checkpoint_steps(folder, &steps, &found));
    assert_int_equal(found, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(steps[i], want[i]);
    free(steps);
}
#define STEPS(...)                                                                                                     \
    NDP_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]) { __VA_ARGS__ }

static void any_layout_reads_what_any_wrote(void **state) {
    static const int worlds[] = {1, 2, 3, 4, 7};
    static const int64_t shard_bytes[] = {1 << 20, 1000};
    int64_t step = 0;
    for (int k = 0; k < NDP_COUNT(worlds) * 4; k++) {
        job j = {.folder = *state, .step = ++step, .shard_bytes = shard_bytes[k & 1], .keep = 2, .rank = -1};
        j.behind = k & 2;
        CHECK_OK(ndp_local_world(worlds[k >> 2], save_body, &j));
        for (int i = 0; i < NDP_COUNT(worlds); i++)
            CHECK_OK(ndp_local_world(worlds[i], load_body, &j));
    }
}

/* What other programs see: a folder of plain safetensors, the weights under their own names. */
static void files_are_ordinary(void **state) {
    char path[512], step[512];
    save(*state, 100, 0);
    in(*state, "step-00000100", step);
    assert_true(ndp_path_exists(in(step, "manifest.json", path)));
    ndp_safetensors *f = NULL;
    CHECK_OK(ndp_safetensors_open(in(step, "model.safetensors", path), &f));
    assert_int_equal(ndp_safetensors_count(f), WEIGHTS);
    assert_non_null(ndp_safetensors_find(f, "model.norm.weight"));
    ndp_safetensors_close(f);
    CHECK_OK(ndp_safetensors_open(in(step, "optimizer.safetensors", path), &f));
    assert_non_null(ndp_safetensors_find(f, "optimizer.m.model.norm.weight"));
    ndp_safetensors_close(f);
    ndp_weights *w = NULL;
    CHECK_OK(ndp_weights_open(step, &w));
    CHECK_OK(ndp_weights_check(w, tensors, WEIGHTS, NULL, NULL));
    ndp_weights_close(w);
}

static void the_caller_s_numbers_return(void **state) {
    part p;
    part_init(&p, 0, 1, TENSORS, 5);
    struct json_object *extra = json_object_new_object();
    json_object_object_add(extra, "config", json_object_new_string("a/b\"c"));
    json_object_object_add(extra, "loss", json_object_new_double(1.25));
    ndp_checkpoint_info info = {5, (int64_t)1 << 60, INT64_MAX, extra, NULL};
    CHECK_OK(ndp_checkpoint_save(NULL, *state, &info, tensors, TENSORS, p.pieces, p.n, 0, NDP_SHARD_BYTES, NULL));
    json_object_put(extra);
    ndp_checkpoint *c = NULL;
    CHECK_OK(ndp_checkpoint_open(*state, 5, &c));
    const ndp_checkpoint_info *got = ndp_checkpoint_get_info(c);
    const char *config = "";
    double loss = 0;
    assert_true(got->step == 5 && got->samples == (int64_t)1 << 60 && got->seed == INT64_MAX);
    CHECK_OK(ndp_json_string(got->extra, "", "config", &config));
    CHECK_OK(ndp_json_double(got->extra, "", "loss", &loss));
    assert_string_equal(config, "a/b\"c");
    assert_true(loss == 1.25);
    assert_non_null(ndp_checkpoint_find(c, "lm_head.weight"));
    assert_non_null(ndp_checkpoint_find(c, "optimizer.m.model.norm.weight"));
    assert_null(ndp_checkpoint_find(c, "optimizer.m.none"));
    ndp_tensor_spec more[TENSORS + 1];
    memcpy(more, tensors, sizeof tensors);
    more[TENSORS] = (ndp_tensor_spec){"optimizer.m.none", NDP_F32, 1, {1}, NULL};
    CHECK_FAILS(ndp_checkpoint_check(c, more, TENSORS + 1), NDP_EFORMAT, "1 missing: optimizer.m.none");
    CHECK_FAILS(ndp_checkpoint_check(c, tensors, TENSORS - 1), NDP_EFORMAT,
                "1 that the model does not have: optimizer.v");
    ndp_checkpoint_close(c);
    CHECK_FAILS(ndp_checkpoint_open(*state, 6, &c), NDP_EIO, "step-00000006': No such file or directory");
}

/* Without an optimizer's tensors there is no file of them. */
static void weights_alone(void **state) {
    part p;
    float x;
    part_init(&p, 0, 1, WEIGHTS, 1);
    ndp_checkpoint_info info = {.step = 1};
    CHECK_OK(ndp_checkpoint_save(NULL, *state, &info, tensors, WEIGHTS, p.pieces, p.n, 0, NDP_SHARD_BYTES, NULL));
    ndp_checkpoint *c = NULL;
    CHECK_OK(ndp_checkpoint_open(*state, 1, &c));
    CHECK_OK(ndp_checkpoint_check(c, tensors, WEIGHTS));
    CHECK_FAILS(ndp_checkpoint_check(c, tensors, TENSORS), NDP_EFORMAT, "none of 2 tensors such as optimizer.m.model");
    CHECK_FAILS(ndp_checkpoint_read(c, "optimizer.m.x", 0, 1, &x, NDP_F32), NDP_EFORMAT, "no tensor optimizer.m.x");
    ndp_checkpoint_close(c);
}

static void only_the_newest_are_kept(void **state) {
    char path[512];
    for (int64_t step = 10; step <= 50; step += 10)
        save(*state, step, 3);
    want_steps(*state, STEPS(50, 40, 30));
    assert_false(ndp_path_exists(in(*state, "step-00000020", path)));
    save(*state, 35, 2); /* of a run that went back: it stays, though two are newer */
    want_steps(*state, STEPS(50, 40, 35));
    save(*state, 60, 0);
    want_steps(*state, STEPS(60, 50, 40, 35));
    save(*state, 123456789012, 1);
    want_steps(*state, STEPS(123456789012));
    CHECK_OK(check_step(*state, 123456789012, 0, 1));
}

static void the_same_step_is_replaced(void **state) {
    char path[512];
    save(*state, 7, 2);
    for (int g = 1; g < 3; g++) {
        part p;
        ndp_checkpoint_info info = {.step = 7, .samples = g};
        part_init(&p, 0, 1, TENSORS, g);
        CHECK_OK(ndp_checkpoint_save(NULL, *state, &info, tensors, TENSORS, p.pieces, p.n, 2, NDP_SHARD_BYTES, NULL));
        ndp_checkpoint *c = NULL;
        float x[MOST];
        CHECK_OK(ndp_checkpoint_open(*state, 7, &c));
        assert_int_equal(ndp_checkpoint_get_info(c)->samples, g);
        CHECK_OK(ndp_checkpoint_read(c, tensors[0].name, 0, MOST, x, NDP_F32));
        CHECK_OK(check_values(0, 0, MOST, g, x));
        ndp_checkpoint_close(c);
        assert_false(ndp_path_exists(in(*state, ".step-00000007.tmp", path)));
    }
}

/* The step that a resume chooses, which verifies. */
static int64_t newest(const char *folder) {
    ndp_resume r = {0};
    CHECK_OK(ndp_resume_choose(NULL, folder, -1, 1, &r));
    int64_t step = r.step;
    assert_int_equal(r.n_aside, 0);
    ndp_resume_release(&r);
    return step;
}

static void want_damage(const char *folder, int64_t step, const char *words) {
    ndp_examined e;
    CHECK_OK(ndp_checkpoint_examine(NULL, folder, step, true, 2, &e));
    if (e.state != NDP_CHECKPOINT_DAMAGED || !strstr(e.words, words))
        fail_msg("step %lld is in state %d: '%s', expected '%s'", (long long)step, e.state, e.words, words);
}

static void damage_is_named(void **state) {
    char path[512], name[512], older[512];
    for (int64_t step = 1; step <= 7; step++)
        save(*state, step, 0);
    put_file(in(*state, "step-00000005/manifest.json", path), "{\"format\":", 10);
    assert_int_equal(truncate(in(*state, "step-00000004/optimizer.safetensors", path), 100), 0);
    assert_int_equal(unlink(in(*state, "step-00000003/model.safetensors", path)), 0);
    assert_int_equal(rename(in(*state, "step-00000002", path), in(*state, "step-00000009", name)), 0);
    assert_int_equal(mkdir(in(*state, "step-7", path), 0777), 0);        /* not a name of ours */
    assert_int_equal(mkdir(in(*state, "step-00000008", path), 0777), 0); /* no manifest */
    assert_int_equal(rename(in(*state, "step-00000006/model.safetensors", path), in(*state, "elsewhere", name)), 0);
    assert_int_equal(symlink("../elsewhere", path), 0);
    in(*state, "step-00000007/model.safetensors.index.json", path);
    put_file(path, "{}", 2);
    want_steps(*state, STEPS(9, 8, 7, 6, 5, 4, 3, 1));
    want_damage(*state, 9, "its manifest is of step 2");
    want_damage(*state, 8, "step-00000008/manifest.json': No such file");
    want_damage(*state, 7, "model.safetensors.index.json' is not in the manifest");
    want_damage(*state, 6, "step-00000006/model.safetensors' is a symbolic link");
    want_damage(*state, 5, "step-00000005/manifest.json");
    want_damage(*state, 4, "optimizer.safetensors' has 100 bytes, its manifest says ");
    want_damage(*state, 3, "step-00000003/model.safetensors': No such file");
    ndp_resume r = {0};
    CHECK_FAILS(ndp_resume_choose(NULL, *state, -1, 1, &r), NDP_EINVAL, "Steps that verify: 1; ");
    for (int64_t step = 3; step < 10; step++)
        CHECK_OK(ndp_folder_remove(ndp_step_name(step, name) ? in(*state, name, older) : NULL));
    assert_int_equal(newest(*state), 1);
    assert_int_equal(newest(in(*state, "none", path)), -1);
}

/* Manifests of version 1 as they are, and of version 2 with their seal; `?` stands for a hash. */
static void manifests_by_hand(void **state) {
#define HEAD "{\"format\":\"ndparallel checkpoint\",\"version\":1,"
#define HEAD2 "{\"format\":\"ndparallel checkpoint\",\"version\":2,"
#define NUMBERS "\"step\":1,\"samples\":2,\"seed\":3,"
#define FILE_A "\"extra\":{},\"files\":[{\"name\":\"a\",\"bytes\":9,\"chunks\":"
#define H "\"00000000000000000000000000000000\""
    static const struct {
        const char *text;
        bool sealed;
        ndp_status code;
        const char *words;
    } cases[] = {
        {HEAD NUMBERS "\"files\":[]}", false, NDP_OK, ""},
        {HEAD NUMBERS "\"files\":[{\"name\":\"a\",\"bytes\":0}],\"extra\":{}}", false, NDP_OK, ""},
        {"", false, NDP_EFORMAT, "m: the JSON text ends before its value does, at byte 1"},
        {"[]", false, NDP_EFORMAT, "m: not an object"},
        {"{}", false, NDP_EFORMAT, "\"format\" is not"},
        {"{\"format\":\"ndparallel checkpoint\"}", false, NDP_EFORMAT, "\"version\" is missing"},
        {"{\"format\":\"ndparallel checkpoint\",\"version\":2}", false, NDP_EFORMAT, "does not end with its hash"},
        {"{\"format\":\"ndparallel checkpoint\",\"version\":3", true, NDP_ENOTSUP,
         "checkpoint version 3 is not supported"},
        {HEAD "\"step\":1,\"samples\":2,\"files\":[]}", false, NDP_EFORMAT, "\"seed\" is missing"},
        {HEAD "\"step\":-1,\"samples\":2,\"seed\":3,\"files\":[]}", false, NDP_EFORMAT, "\"step\" is -1"},
        {HEAD "\"step\":1,\"samples\":2.5,\"seed\":3,\"files\":[]}", false, NDP_EFORMAT, "\"samples\" is 2.5"},
        {HEAD NUMBERS "\"extra\":1,\"files\":[]}", false, NDP_EFORMAT, "\"extra\" is not an object"},
        {HEAD "\"step\":1,\"samples\":2,\"seed\":3}", false, NDP_EFORMAT, "no array \"files\""},
        {HEAD NUMBERS "\"files\":{}}", false, NDP_EFORMAT, "no array \"files\""},
        {HEAD NUMBERS "\"files\":[null]}", false, NDP_EFORMAT, "is not an object"},
        {HEAD NUMBERS "\"files\":[{\"bytes\":1}]}", false, NDP_EFORMAT, "\"\" is not the name"},
        {HEAD NUMBERS "\"files\":[{\"name\":\"../x\",\"bytes\":1}]}", false, NDP_EFORMAT, "\"../x\" is not the name"},
        {HEAD NUMBERS "\"files\":[{\"name\":\"a/b\",\"bytes\":1}]}", false, NDP_EFORMAT, "\"a/b\" is not the name"},
        {HEAD NUMBERS "\"files\":[{\"name\":\"a\"}]}", false, NDP_EFORMAT, "\"bytes\" is missing"},
        {HEAD NUMBERS "\"files\":[{\"name\":\"a\",\"bytes\":null}]}", false, NDP_EFORMAT, "\"bytes\""},
        {HEAD NUMBERS "\"files\":[{\"name\":\"a\",\"bytes\":-1}]}", false, NDP_EFORMAT, "\"bytes\" is -1"},
        {HEAD NUMBERS "\"files\":[{\"name\":\"a\",\"bytes\":1},{\"name\":\"a\",\"bytes\":1}]}", false, NDP_EFORMAT,
         "\"a\" is listed twice"},
        /* What came with version 2 is not of version 1: a flipped digit makes nothing unverifiable. */
        {HEAD NUMBERS "\"files\":[],\"extra\":{},\"hash\":" H "}", false, NDP_EFORMAT,
         "\"hash\" is not a known member"},
        {HEAD NUMBERS "\"files\":[{\"name\":\"a\",\"bytes\":9,\"chunks\":[]}]}", false, NDP_EFORMAT,
         "\"chunks\" is not a known member"},
        {HEAD2 NUMBERS FILE_A "[[0,5," H "],[5,4," H "]]}]", true, NDP_OK, ""},
        {HEAD2 NUMBERS "\"extra\":{},\"files\":[]", true, NDP_OK, ""},
        {HEAD2 "\"step\":1,\"samples\":2,\"extra\":{},\"files\":[]", true, NDP_EFORMAT, "\"seed\" is missing"},
        {HEAD2 "\"step\":1,\"seed\":3,\"extra\":{},\"files\":[]", true, NDP_EFORMAT, "\"samples\" is missing"},
        {HEAD2 "\"samples\":1,\"seed\":3,\"extra\":{},\"files\":[]", true, NDP_EFORMAT, "\"step\" is missing"},
        {HEAD2 NUMBERS "\"files\":[]", true, NDP_EFORMAT, "\"extra\" is missing"},
        {HEAD2 NUMBERS "\"extra\":{}", true, NDP_EFORMAT, "\"files\" is missing"},
        {HEAD2 NUMBERS "\"extra\":{},\"files\":[],\"more\":1", true, NDP_EFORMAT, "\"more\" is not a known member"},
        {HEAD2 NUMBERS "\"extra\":{},\"files\":[{\"name\":\"a\",\"bytes\":9}]", true, NDP_EFORMAT,
         "no array \"chunks\""},
        {HEAD2 NUMBERS FILE_A "[[0,5," H "]]}]", true, NDP_EFORMAT, "a has 9 bytes, its chunks cover 5"},
        {HEAD2 NUMBERS FILE_A "[[0,5," H "],[4,5," H "]]}]", true, NDP_EFORMAT, "a chunk of 5 bytes at 4; expected"},
        {HEAD2 NUMBERS FILE_A "[[0,5," H "],[6,3," H "]]}]", true, NDP_EFORMAT, "a chunk of 3 bytes at 6; expected"},
        {HEAD2 NUMBERS FILE_A "[[0,9," H "],[9,0," H "]]}]", true, NDP_EFORMAT, "a chunk of 0 bytes at 9"},
        {HEAD2 NUMBERS FILE_A "[[0,999999999," H "]]}]", true, NDP_EFORMAT, "a chunk of 999999999 bytes"},
        {HEAD2 NUMBERS FILE_A "[[0,9,\"00\"]]}]", true, NDP_EFORMAT, "is not [offset, bytes, \"hash\"]"},
        {HEAD2 NUMBERS FILE_A "[[0,9]]}]", true, NDP_EFORMAT, "is not [offset, bytes, \"hash\"]"},
        {HEAD2 NUMBERS FILE_A "[[0,\"9\"," H "]]}]", true, NDP_EFORMAT, "is not [offset, bytes, \"hash\"]"},
    };
    (void)state;
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_manifest m = {0};
        ndp_str text = {0};
        ndp_str_add(&text, cases[i].text);
        if (cases[i].sealed)
            ndp_manifest_seal(&text);
        if (cases[i].code == NDP_OK)
            CHECK_OK(ndp_manifest_parse(text.data, text.length, "m", &m));
        else
            CHECK_FAILS(ndp_manifest_parse(text.data, text.length, "m", &m), cases[i].code, cases[i].words);
        ndp_manifest_release(&m);
        ndp_str_release(&text);
    }
}

/* The bytes of a real one: every flip of a bit, every byte that is lost or added. */
static void every_byte_of_a_manifest_counts(void **state) {
    char path[512], *text = NULL;
    size_t size;
    save(*state, 100, 0);
    CHECK_OK(ndp_file_read(in(*state, "step-00000100/manifest.json", path), &text, &size));
    for (size_t i = 0; i < size * 8; i++) {
        ndp_manifest m = {0};
        text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
        assert_int_equal(ndp_manifest_parse(text, size, "m", &m), NDP_EFORMAT);
        text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
    }
    for (size_t n = 0; n < size; n++) {
        ndp_manifest m = {0};
        assert_int_equal(ndp_manifest_parse(text, n, "m", &m), NDP_EFORMAT);
    }
    for (char *v = strstr(text, "\"version\": 2"); *v != '2' || (*v = '1', false); v++)
        ;
    ndp_manifest m = {0};
    CHECK_FAILS(ndp_manifest_parse(text, size, "m", &m), NDP_EFORMAT, "\"hash\" is not a known member");
    free(text);
}

static void names_of_steps(void **state) {
    (void)state;
    assert_int_equal(ndp_step_of_name("step-00000100"), 100);
    assert_int_equal(ndp_step_of_name("step-123456789"), 123456789);
    static const char *const others[] = {"",
                                         "step-",
                                         "step-1",
                                         "step-000000001",
                                         "step-00000100.tmp",
                                         "step--0000001",
                                         "step- 0000001",
                                         "step-99999999999999999999",
                                         "xstep-00000001",
                                         ".step-00000001"};
    for (int i = 0; i < NDP_COUNT(others); i++) {
        assert_int_equal(ndp_step_of_name(others[i]), -1);
    }
    for (int64_t g = 0; g < 4; g++) { /* and back */
        char path[NDP_PATH], name[64];
        CHECK_OK(ndp_beside_path(path, "x", "step-00000100", g));
        assert_string_equal(path, g == 2   ? "x/.step-00000100.2.tmp"
                                  : g == 3 ? "x/.step-00000100.3.tmp"
                                           : "x/.step-00000100.tmp");
        assert_true(ndp_beside_of(path + 2, name));
        assert_string_equal(name, "step-00000100");
    }
}

/* ---- failures ---- */

/* Every operation of every rank fails in turn: all ranks hear of it, and the checkpoint before is as it was. Once the
 * new one is renamed it stands, whole, whatever fails after. */
static void every_operation_fails_in_turn(void **state) {
    int failures = 0;
    int64_t good = 1, step = 1;
    char path[512], words[64];
    save(*state, good, 0);
    for (int way = 0; way < 4; way++)
        for (int k = 0; k < NDP_FAULT_KINDS * 3; k++)
            for (int64_t n = 1;; n++) {
                job j = {*state, ++step, way & 1 ? 1000 : 1 << 20, .keep = 2, .rank = k % 3, .kind = k / 3, .nth = n};
                j.behind = way & 2;
                ndp_status st = ndp_local_world(3, save_body, &j);
                int64_t latest = newest(*state);
                CHECK_OK(check_step(*state, latest, 0, 1));
                if (latest != good && latest != step)
                    fail_msg("step %lld is lost, the newest is %lld", (long long)good, (long long)latest);
                good = latest;
                snprintf(path, sizeof path, "%s/.step-%08lld.tmp", (char *)*state, (long long)step);
                if (j.kind != NDP_FAULT_RENAME)
                    assert_false(ndp_path_exists(path));
                if (j.nth == 0) {
                    CHECK_OK(st);
                    assert_int_equal(latest, step);
                    break;
                }
                failures++;
                snprintf(words, sizeof words, "%s", j.kind == NDP_FAULT_WRITE ? "No space left" : "Input/output error");
                CHECK_FAILS(st, NDP_EIO, words);
            }
    print_message("%d failures\n", failures);
    assert_true(failures > 120);
    CHECK_OK(ndp_checkpoint_clean(*state));
    CHECK_OK(check_step(*state, good, 0, 1));
}

/* A failing replacement of the same step leaves the older one of that step. */
static void a_failed_replacement_harms_nothing(void **state) {
    save(*state, 3, 0);
    for (int k = 0; k < 2 * NDP_FAULT_KINDS; k++)
        for (int64_t n = 1, kind = k / 2;; n++) {
            ndp_fault_arm((ndp_fault_kind)kind, n);
            ndp_status st = (k % 2 ? save_step_behind : save_step)(NULL, *state, 3, 0, 1 << 20);
            bool fired = ndp_fault_fired((ndp_fault_kind)kind);
            ndp_fault_arm((ndp_fault_kind)kind, 0);
            CHECK_OK(check_step(*state, 3, 0, 1));
            if (!fired)
                break;
            assert_int_equal(st, NDP_EIO);
        }
}

/* A process that saves without end is killed at any moment: what it left loads, and its leavings are swept. TSan and
 * qemu start no thread after a fork. */
static void killed_at_any_moment(void **state) {
    char next[512];
    int64_t last = 1;
    double start = ndp_now();
    save(*state, last, 0);
    double one_save = ndp_now() - start;
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            for (int64_t step = last + 1;; step++)
                if ((round % 2 && !SANITIZED && !EMULATED ? save_step_behind : save_step)(NULL, *state, step, 2,
                                                                                          2000) != NDP_OK)
                    break;
            _exit(1);
        }
        snprintf(next, sizeof next, "%s/step-%08lld", (char *)*state, (long long)last + 1);
        for (double since = ndp_now(); !ndp_path_exists(next) && ndp_now() - since < HANGS;)
            usleep(500);
        usleep((useconds_t)(one_save * 1e6 * 0.1 * round)); /* somewhere in the save after it */
        kill(child, SIGKILL);
        int status;
        assert_true(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        int64_t latest = -1, *steps = NULL;
        int n = 0;
        CHECK_OK(ndp_checkpoint_steps(*state, &steps, &n));
        for (int i = 0; i < n; i++) { /* a checkpoint's name means a whole checkpoint */
            ndp_examined e;
            CHECK_OK(ndp_checkpoint_examine(NULL, *state, steps[i], true, 1, &e));
            assert_int_equal(e.state, NDP_CHECKPOINT_VERIFIED);
            CHECK_OK(check_step(*state, steps[i], 0, 1));
        }
        latest = n ? steps[0] : 0;
        free(steps);
        assert_true(latest > last);
        last = latest;
        CHECK_OK(ndp_checkpoint_clean(*state));
    }
    print_message("%lld steps saved\n", (long long)last);
}

/* A rank whose peers are gone drops its save: what was renamed stays, all else is removed. */
static void a_dropped_save(void **state) {
    char path[512];
    int64_t bytes;
    save(*state, 1, 0);
    for (int committing = 0; committing < 2; committing++) {
        part p;
        ndp_background_save *b;
        ndp_save_cost cost;
        bool ended;
        const int64_t step = 2 + committing;
        part_init(&p, 0, 1, TENSORS, step);
        ndp_save_request r = {
            *state,         {.step = step, .samples = step * 10, .seed = 42}, tensors, p.pieces, TENSORS, p.n, 0,
            NDP_SHARD_BYTES};
        CHECK_OK(ndp_background_save_bytes(NULL, &r, &bytes));
        char *space = malloc((size_t)bytes);
        CHECK_OK(ndp_background_save_begin(NULL, &r, space, bytes, &b));
        if (committing)
            CHECK_OK(ndp_background_save_go_on(b, &ended, &cost));
        assert_int_equal(ndp_background_save_drop(b), committing);
        free(space);
        snprintf(path, sizeof path, "%s/.step-%08lld.tmp", (char *)*state, (long long)step);
        assert_false(ndp_path_exists(path));
        assert_int_equal(newest(*state), committing ? 3 : 1);
    }
    CHECK_OK(check_step(*state, 3, 0, 1));
    assert_false(ndp_background_save_drop(NULL));
}

static void leavings_are_swept(void **state) {
    char path[512];
    save(*state, 1, 0);
    assert_int_equal(mkdir(in(*state, ".step-00000002.tmp", path), 0777), 0);
    put_file(in(*state, ".step-00000002.tmp/model.safetensors", path), "x", 1);
    assert_int_equal(mkdir(in(*state, ".other.tmp", path), 0777), 0);
    /* It loses its name before any of its files: who has written it may be about to commit it. */
    ndp_fault_arm(NDP_FAULT_RENAME, 1);
    CHECK_FAILS(ndp_checkpoint_clean(*state), NDP_EIO, "cannot rename ");
    ndp_fault_arm(NDP_FAULT_RENAME, 0);
    assert_true(ndp_path_exists(in(*state, ".step-00000002.tmp/model.safetensors", path)));
    assert_int_equal(mkdir(in(*state, ".step-00000002.0.tmp", path), 0777), 0); /* of a start that was killed here */
    put_file(in(*state, ".step-00000002.0.tmp/model.safetensors", path), "x", 1);
    CHECK_OK(ndp_checkpoint_clean(*state));
    assert_false(ndp_path_exists(in(*state, ".step-00000002.0.tmp", path)));
    assert_false(ndp_path_exists(in(*state, ".step-00000002.tmp", path)));
    assert_true(ndp_path_exists(in(*state, ".other.tmp", path)));
    CHECK_OK(check_step(*state, 1, 0, 1));
    CHECK_OK(ndp_checkpoint_clean(in(*state, "none", path)));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(any_layout_reads_what_any_wrote),
        IN_FOLDER(files_are_ordinary),
        IN_FOLDER(the_caller_s_numbers_return),
        IN_FOLDER(weights_alone),
        IN_FOLDER(only_the_newest_are_kept),
        IN_FOLDER(the_same_step_is_replaced),
        IN_FOLDER(damage_is_named),
        cmocka_unit_test(manifests_by_hand),
        IN_FOLDER(every_byte_of_a_manifest_counts),
        cmocka_unit_test(names_of_steps),
        IN_FOLDER(every_operation_fails_in_turn),
        IN_FOLDER(a_failed_replacement_harms_nothing),
        IN_FOLDER(killed_at_any_moment),
        IN_FOLDER(a_dropped_save),
        IN_FOLDER(leavings_are_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
