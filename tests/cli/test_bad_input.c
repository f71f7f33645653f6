/* What is wrong with a job's files, folders and hosts: one message with the cause and the way out, all ranks end, and
 * nothing that was on disk is harmed. Through the program, with ranks as threads and as processes. */
#include "cli/job.h"

#include <fts.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <xxhash.h>

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

/* A number for all names and bytes below a folder; 0 when there is none. */
static uint64_t content(const char *folder) {
    char *roots[] = {(char *)folder, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    uint64_t sum = 0;
    for (FTSENT *e; walk && (e = fts_read(walk)) != NULL;) {
        if (e->fts_info != FTS_F)
            continue;
        char *data;
        size_t size;
        CHECK_OK(ndp_file_read(e->fts_path, &data, &size));
        sum = XXH3_64bits_withSeed(e->fts_path, strlen(e->fts_path), sum);
        sum = XXH3_64bits_withSeed(data, size, sum);
        free(data);
    }
    fts_close(walk);
    return sum;
}

/* ---- running it ---- */

typedef enum transport { LOCAL, SHM, MPI, TRANSPORTS } transport;

static const char *const transport_names[] = {"local", "shm", "mpi"};
static bool have(transport t) { return t != MPI || have_mpirun(); }

static outcome train(const char *folder, transport t, const char *set, const char *option) {
    char *argv[] = {getenv("NDP_PROGRAM"),
                    "train",
                    (char *)in(folder, "job.yaml"),
                    "--transport",
                    (char *)(uintptr_t)transport_names[t],
                    "--set",
                    set ? (char *)set : "train.seed=42",
                    (char *)option,
                    NULL};
    find_leaks(t != MPI);
    outcome o = program_run(argv);
    find_leaks(false);
    return o;
}

static void check_words(const outcome *o, const char *const *words, const char *what) {
    for (; *words; words++)
        if (!strstr(o->text.data, *words))
            fail_msg("%s: the message lacks '%s': %s", what, *words, o->text.data);
}

/* One message, of these words, and the end of all ranks, with nothing of the user's touched. */
static void refused(const char *folder, transport t, const char *set, const char *const *words) {
    uint64_t before = content(in(folder, "model")) + content(in(folder, "data")), run = content(in(folder, "run"));
    outcome o = train(folder, t, set, NULL);
    const char *how = transport_names[t];
    if (o.code == 0 || o.code > 2 || count_of(o.text.data, "ndparallel: ") != 1)
        fail_msg("%s: code %d and %d messages, expected 1 or 2 and one: %s", how, o.code,
                 count_of(o.text.data, "ndparallel: "), o.text.data);
    check_words(&o, words, how);
    assert_int_equal(content(in(folder, "model")) + content(in(folder, "data")), before);
    assert_int_equal(content(in(folder, "run")), run);
    print_message("%5.2f s  %s", o.seconds, o.text.data);
    ndp_str_release(&o.text);
}

static void refused_by_all(const char *folder, const char *set, const char *const *words) {
    for (transport t = LOCAL; t < TRANSPORTS; t++)
        if (have(t))
            refused(folder, t, set, words);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- weights ---- */

typedef struct file {
    char *data;
    size_t size;
} file;

static file read_weights(const char *folder) {
    file f;
    CHECK_OK(ndp_file_read(in(folder, "model/model.safetensors"), &f.data, &f.size));
    return f;
}

static void write_weights(const char *folder, file f, size_t size) {
    CHECK_OK(ndp_file_write_atomic(in(folder, "model/model.safetensors"), f.data, size));
    free(f.data);
}

/* The file again, with another header before the same data. */
static void change_header(const char *folder, void (*change)(struct json_object *header)) {
    file f = read_weights(folder);
    uint64_t n;
    memcpy(&n, f.data, 8);
    char *text = strndup(f.data + 8, n);
    struct json_object *header = json_tokener_parse(text);
    assert_non_null(header);
    change(header);
    const char *changed = json_object_to_json_string_ext(header, JSON_C_TO_STRING_PLAIN);
    ndp_str out = {0};
    uint64_t length = strlen(changed);
    ndp_str_add_bytes(&out, &length, 8);
    ndp_str_add(&out, changed);
    ndp_str_add_bytes(&out, f.data + 8 + n, f.size - 8 - n);
    write_weights(folder, (file){out.data, out.length}, out.length);
    json_object_put(header);
    free(text);
    free(f.data);
}

static void no_weights(void **state) {
    assert_int_equal(unlink(in(*state, "model/model.safetensors")), 0);
    refused_by_all(*state, NULL, WORDS("holds neither model.safetensors nor", "download", "/model'"));
}

/* The weights are named first, by all that read a model. */
static void refused_by_commands(const char *folder, const char *const *words) {
    refused_by_all(folder, NULL, words);
    char *model = (char *)in(folder, "model"), *job = (char *)in(folder, "job.yaml"),
         *text = (char *)in(folder, "data/corpus.jsonl"), *binary = getenv("NDP_PROGRAM");
    char *const commands[][7] = {{binary, "train", job, "--dry-run"},
                                 {binary, "evaluate", "--model", model, "--data", text},
                                 {binary, "generate", "--model", model, "--prompt", "a"}};
    for (int i = 0; i < NDP_COUNT(commands); i++) {
        outcome o = program_run((char **)commands[i]);
        assert_int_equal(o.code, 1);
        assert_int_equal(count_of(o.text.data, "ndparallel: "), 1);
        check_words(&o, words, commands[i][1]);
        ndp_str_release(&o.text);
    }
}

static void no_weights_nor_tokenizer(void **state) {
    assert_int_equal(unlink(in(*state, "model/model.safetensors")), 0);
    assert_int_equal(unlink(in(*state, "model/tokenizer.json")), 0);
    refused_by_commands(*state, WORDS("holds neither model.safetensors nor", "download"));
    tiny_write(in(*state, "model"), "pytorch_model.bin", "x");
    refused_by_commands(
        *state, WORDS("holds neither model.safetensors nor", "pytorch_model.bin is not read", "save_pretrained"));
}

static void no_folder(void **state) {
    refused_by_all(*state, "model.path=/no/such/model", WORDS("model.path", "/no/such/model", "is not a folder"));
}

static void truncated(void **state) {
    file f = read_weights(*state);
    write_weights(*state, f, f.size / 2);
    refused_by_all(*state, NULL,
                   WORDS("model.safetensors: tensor ", "the file holds only", "download or copy it again"));
}

static void header_longer_than_the_file(void **state) {
    file f = read_weights(*state);
    uint64_t n = f.size + 1000;
    memcpy(f.data, &n, 8);
    write_weights(*state, f, f.size);
    refused_by_all(*state, NULL, WORDS("the header should have", "cut off; download or copy it again"));
}

static struct json_object *member_of(struct json_object *header, const char *tensor, const char *key) {
    struct json_object *t = NULL, *value = NULL;
    assert_true(json_object_object_get_ex(header, tensor, &t) && json_object_object_get_ex(t, key, &value));
    return value;
}

/* Moves a tensor's place by `bytes`. */
static void move(struct json_object *header, const char *tensor, int64_t bytes) {
    struct json_object *at = member_of(header, tensor, "data_offsets");
    for (size_t i = 0; i < 2; i++) {
        struct json_object *x = json_object_array_get_idx(at, i);
        json_object_set_int64(x, json_object_get_int64(x) + bytes);
    }
}

static void overlap(struct json_object *header) { move(header, "model.norm.weight", -4); }
static void overlapping(void **state) {
    change_header(*state, overlap);
    refused_by_all(*state, NULL, WORDS("model.norm.weight", "overlap by 4 bytes", "download or copy it again"));
}

static void far_away(struct json_object *header) { move(header, "model.norm.weight", (int64_t)1 << 40); }
static void out_of_range(void **state) {
    change_header(*state, far_away);
    refused_by_all(*state, NULL, WORDS("model.norm.weight lies at", "the file holds only"));
}

static void integers(struct json_object *header) {
    struct json_object *t;
    assert_true(json_object_object_get_ex(header, "model.norm.weight", &t));
    json_object_object_add(t, "dtype", json_object_new_string("I32"));
}
static void wrong_type(void **state) {
    change_header(*state, integers);
    refused_by_all(*state, NULL,
                   WORDS("model.norm.weight", "I32, which is not read as a weight", "Take both from the same model"));
}

static void flip(struct json_object *header) {
    struct json_object *shape = member_of(header, "model.layers.1.mlp.up_proj.weight", "shape");
    int64_t rows = json_object_get_int64(json_object_array_get_idx(shape, 0));
    json_object_set_int64(json_object_array_get_idx(shape, 0),
                          json_object_get_int64(json_object_array_get_idx(shape, 1)));
    json_object_set_int64(json_object_array_get_idx(shape, 1), rows);
}
static void wrong_shape(void **state) {
    change_header(*state, flip);
    refused_by_all(*state, NULL,
                   WORDS("not those of its config.json", "model.layers.1.mlp.up_proj.weight", "[16, 20]", "[20, 16]"));
}

static void rename_one(struct json_object *header) {
    struct json_object *t;
    assert_true(json_object_object_get_ex(header, "model.layers.1.mlp.up_proj.weight", &t));
    json_object_object_add(header, "model.layers.1.mlp.experts.0.weight", json_object_get(t));
    json_object_object_del(header, "model.layers.1.mlp.up_proj.weight");
}
static void missing_and_extra(void **state) {
    change_header(*state, rename_one);
    refused_by_all(*state, NULL,
                   WORDS("missing", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.experts.0.weight"));
}

/* On 4 ranks. At the end of the file, in the last slice: a rank finds it that is not the first. */
static void a_nan(void **state) {
    file f = read_weights(*state);
    float bad = NAN;
    memcpy(f.data + f.size - 4, &bad, 4);
    write_weights(*state, f, f.size);
    refused_by_all(*state, "parallelism.dp_replicate_size=2",
                   WORDS("rank 1: ", "lm_head.weight holds a NaN or an infinity at element 4159", "copy it again"));
}

/* ---- facts ---- */

static void config_with(const char *folder, const char *key, const char *json) {
    struct json_object *config = json_object_from_file(in(folder, "model/config.json"));
    json_object_object_add(config, key, json_tokener_parse(json));
    assert_int_equal(json_object_to_file(in(folder, "model/config.json"), config), 0);
    json_object_put(config);
}

static void unsupported_features(void **state) {
    static const struct {
        const char *key, *json, *word, *back;
    } features[] = {
        {"model_type", "\"mamba\"", "model_type 'mamba' is not supported; supported: llama", "\"llama\""},
        {"hidden_act", "\"gelu\"", "hidden_act", "\"silu\""},
        {"rope_scaling", "{\"rope_type\": \"dynamic\", \"factor\": 4}", "'dynamic'", "null"},
        {"layer_types", "[\"full_attention\", \"linear_attention\"]", "layer_types", "null"},
        {"num_local_experts", "8", "num_local_experts", "null"},
        {"quantization_config", "{\"bits\": 4}", "quantization_config", "null"},
    };
    for (int i = 0; i < NDP_COUNT(features); i++) {
        config_with(*state, features[i].key, features[i].json);
        refused(*state, (transport)(i % 3 == MPI && !have_mpirun() ? LOCAL : i % 3), NULL,
                WORDS("config.json", "is not supported", features[i].word));
        config_with(*state, features[i].key, features[i].back);
    }
}

static void no_json(void **state) {
    tiny_write(in(*state, "model"), "config.json", "{\"model_type\": \"llama\", ");
    refused_by_all(*state, NULL, WORDS("config.json", "JSON"));
}

static void longer_than_the_model(void **state) {
    refused_by_all(*state, "data.sequence_length=201",
                   WORDS("data.sequence_length 201", "max_position_embeddings 200", "model.allow_longer: true"));
}

/* ---- data ---- */

static void empty_corpus(void **state) {
    tiny_write(in(*state, "data"), "corpus.jsonl", "");
    refused_by_all(*state, NULL, WORDS("the corpus is empty", "corpus.jsonl", "without a document"));
}

static void no_corpus(void **state) {
    refused_by_all(*state, "data.files=/no/such/corpus.txt", WORDS("/no/such/corpus.txt", "No such file"));
}

static void invalid_utf8(void **state) {
    tiny_write(in(*state, "data"), "text.txt", "all is well\nuntil \xff here\n");
    char *set = ndp_format("data.files=%s", in(*state, "data/text.txt"));
    refused_by_all(*state, set, WORDS("text.txt", "UTF-8", "text.txt:2: byte 18", "iconv"));
    free(set);
}

static void invalid_record(void **state) {
    tiny_write(in(*state, "data"), "corpus.jsonl", "{\"text\": \"fine\"}\n{\"words\": \"not\"}\n");
    refused_by_all(*state, NULL, WORDS("corpus.jsonl:2", "no 'text'", "it has: words", "data.text_field"));
}

/* No error: a document may be longer than all rows together. */
static void a_long_document(void **state) {
    size_t n = (size_t)4 << 20;
    char *text = malloc(n + 64);
    assert_non_null(text);
    strcpy(text, "{\"text\": \"");
    memset(text + 10, 'x', n);
    strcpy(text + 10 + n, "\"}\n");
    tiny_write(in(*state, "data"), "corpus.jsonl", text);
    free(text);
    outcome o = train(*state, LOCAL, NULL, NULL);
    if (o.code != 0)
        fail_msg("code %d: %s", o.code, o.text.data);
    assert_true(strstr(o.text.data, "1 document, 41943") != NULL);
    ndp_str_release(&o.text);
}

/* ---- folders and disks ---- */

static void another_run(void **state) {
    outcome o = train(*state, LOCAL, NULL, NULL);
    if (o.code != 0)
        fail_msg("code %d: %s", o.code, o.text.data);
    ndp_str_release(&o.text);
    refused_by_all(*state, NULL, WORDS("holds another run", "--resume", "choose another folder"));
}

static void unwritable(void **state) {
    tiny_write(*state, "file", "");
    char *set = ndp_format("train.output_dir=%s", in(*state, "file/run"));
    refused_by_all(*state, set, WORDS("cannot create the folder", "/file'", "File exists"));
    free(set);
}

static bool may_mount(void) { return system("unshare -m true >/dev/null 2>&1") == 0; }

/* A disk that grows after the first run. */
static const char small_disk[] = "mkdir -p %s/run && mount -t tmpfs -o size=%dk none %s/run || exit 99\n"
                                 "\"$NDP_PROGRAM\" train %s/job.yaml --transport=%s; echo code=$?\n"
                                 "ls %s/run/checkpoints; mount -o remount,size=4m %s/run\n"
                                 "\"$NDP_PROGRAM\" train %s/job.yaml --transport=%s --resume; echo resumed=$?\n"
                                 "ls %s/run/model\n";

/* A checkpoint is about 170 KiB, the model 70: what the disk holds of them is there afterwards, whole. */
static void fill_disk(const char *folder, transport t, int kib, const char *unwritten, const char *newest) {
    const char *const *names = transport_names;
    char *script =
        ndp_format(small_disk, folder, kib, folder, folder, names[t], folder, folder, folder, names[t], folder);
    char *resume = ndp_format("resume: from step %s", newest);
    outcome o = program_run((char *[]){"unshare", "-m", "sh", "-c", script, NULL});
    check_words(&o,
                WORDS("ndparallel: ", unwritten, "No space left on device", "Free some space", "code=1", resume, "resumed=0",
                      "model.safetensors"),
                names[t]);
    if (count_of(o.text.data, "ndparallel: ") != 1)
        fail_msg("more than one message: %s", o.text.data);
    ndp_str_release(&o.text);
    free(resume);
    free(script);
}

static void full_disk(void **state) {
    if (!may_mount()) {
        print_message("SKIPPED: a small disk needs the right to mount\n");
        skip();
    }
    for (transport t = LOCAL; t < TRANSPORTS; t++)
        if (have(t)) {
            fill_disk(*state, t, 240, "step-00000004", "2");
            fill_disk(*state, t, 380, "/run/model/", "4");
        }
}

/* ---- ranks and hosts ---- */

/* An mpirun before the real one in PATH, which starts `rank` in the place of the program. */
static void put_between(const char *folder, const char *rank) {
    char *mpirun = ndp_format(
        "#!/bin/sh\nPATH=${PATH#*:}\nfor a; do shift; [ \"$a\" = \"$NDP_PROGRAM\" ] && a=%s/rank; set -- \"$@\" "
        "\"$a\"; done\nexec mpirun \"$@\"\n",
        folder);
    assert_int_equal(mkdir(in(folder, "bin"), 0700), 0);
    tiny_write(in(folder, "bin"), "mpirun", mpirun);
    tiny_write(folder, "rank", rank);
    assert_int_equal(chmod(in(folder, "bin/mpirun"), 0700), 0);
    assert_int_equal(chmod(in(folder, "rank"), 0700), 0);
    free(mpirun);
}

static outcome train_between(const char *folder) {
    char *path = ndp_format("PATH=%s/bin:%s", folder, getenv("PATH"));
    char *argv[] = {"env",
                    path,
                    getenv("NDP_PROGRAM"),
                    "train",
                    (char *)in(folder, "job.yaml"),
                    "--set",
                    "train.steps=100000",
                    "--transport",
                    "mpi",
                    NULL};
    outcome o = program_run(argv);
    free(path);
    return o;
}

/* The same without mpirun: `launch` starts the script as the ranks of a job. */
static outcome train_by_script(const char *folder, const char *rank) {
    tiny_write(folder, "rank", rank);
    assert_int_equal(chmod(in(folder, "rank"), 0700), 0);
    char *argv[] = {getenv("NDP_PROGRAM"),
                    "launch",
                    "-n",
                    "2",
                    "--",
                    (char *)in(folder, "rank"),
                    "train",
                    (char *)in(folder, "job.yaml"),
                    "--set",
                    "train.steps=100000",
                    NULL};
    return program_run(argv);
}

/* The rank's end is that of the run, long before its last step; one message. */
static void script_dies(const char *folder, const char *rank, int code, const char *words) {
    outcome o = train_by_script(folder, rank);
    if (o.code != code || count_of(o.text.data, "ndparallel: ") != 1)
        fail_msg("code %d after %.1f s: %s", o.code, o.seconds, o.text.data);
    check_words(&o, WORDS("ndparallel: rank 1 (process ", words), "dead rank");
    print_message("%5.2f s  code %d  %s", o.seconds, o.code, o.text.data);
    ndp_str_release(&o.text);
}

static void rank_that_dies(const char *folder, const char *how, const char *const *words) {
    if (!have_mpirun()) {
        print_message("SKIPPED: needs mpirun, and no thread sanitizer\n");
        skip();
    }
    put_between(folder, how);
    outcome o = train_between(folder);
    if (o.code == 0)
        fail_msg("code %d after %.1f s: %s", o.code, o.seconds, o.text.data);
    check_words(&o, words, "dead rank");
    print_message("%5.2f s  code %d  %s", o.seconds, o.code, o.text.data);
    ndp_str_release(&o.text);
}

static void dies_before_it_joins(void **state) {
    rank_that_dies(*state, "#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 7\nexec \"$NDP_PROGRAM\" \"$@\"\n",
                   WORDS("ndparallel: ", "ended with code 7"));
}

static void is_killed_at_work(void **state) {
    rank_that_dies(
        *state,
        "#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 1 ] && { (sleep 2; kill -9 $$) & }\nexec \"$NDP_PROGRAM\" \"$@\"\n",
        WORDS("ndparallel: ", "signal 9"));
}

static void process_dies_before_it_joins(void **state) {
    script_dies(*state, "#!/bin/sh\n[ $NDP_RANK = 1 ] && exit 7\nexec \"$NDP_PROGRAM\" \"$@\"\n", 7,
                "ended with code 7");
    script_dies(*state, "#!/bin/sh\n[ $NDP_RANK = 1 ] && { (sleep 2; kill -9 $$) & }\nexec \"$NDP_PROGRAM\" \"$@\"\n",
                128 + SIGKILL, "was killed by signal 9");
}

/* Ranks that someone else started: they tell each other, not a launcher. */
static outcome train_joined(const char *folder, const char *what) {
    if (!have_mpirun()) {
        print_message("SKIPPED: needs mpirun, and no thread sanitizer\n");
        skip();
    }
    char *argv[] = {"mpirun",
                    "--allow-run-as-root",
                    "--oversubscribe",
                    "--mca",
                    "btl",
                    "self,vader",
                    "-n",
                    "2",
                    (char *)what,
                    "train",
                    (char *)in(folder, "job.yaml"),
                    NULL};
    return program_run(argv);
}

static void joined_ranks_end_together(void **state) {
    file f = read_weights(*state);
    write_weights(*state, f, f.size / 2);
    outcome o = train_joined(*state, getenv("NDP_PROGRAM"));
    if (o.code != 2 || count_of(o.text.data, "ndparallel: ") != 1)
        fail_msg("code %d: %s", o.code, o.text.data);
    check_words(&o, WORDS("rank 0: ", "download or copy it again"), "joined");
    ndp_str_release(&o.text);
}

static void joined_rank_dies_at_start(void **state) {
    tiny_write(*state, "rank", "#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 3\nexec \"$NDP_PROGRAM\" \"$@\"\n");
    assert_int_equal(chmod(in(*state, "rank"), 0700), 0);
    outcome o = train_joined(*state, in(*state, "rank"));
    if (o.code == 0)
        fail_msg("code %d after %.1f s: %s", o.code, o.seconds, o.text.data);
    ndp_str_release(&o.text);
}

static void host_without_a_name(void **state) {
    if (!have_mpirun() || system("unshare -u true >/dev/null 2>&1") != 0) {
        print_message("SKIPPED: another host name needs mpirun and the right to set it\n");
        skip();
    }
    char *script = ndp_format("hostname nowhere-to-be-found; exec \"$NDP_PROGRAM\" train %s/job.yaml --transport mpi",
                              (char *)*state);
    outcome o = program_run((char *[]){"unshare", "-u", "sh", "-c", script, NULL});
    check_words(&o, WORDS("does not resolve", "127.0.1.1 nowhere-to-be-found", "/etc/hosts"), "host name");
    print_message("%5.2f s  code %d\n", o.seconds, o.code);
    ndp_str_release(&o.text);
    free(script);
}

static void unknown_host(void **state) {
    if (!have_mpirun()) {
        print_message("SKIPPED: needs mpirun, and no thread sanitizer\n");
        skip();
    }
    tiny_write(*state, "hosts", "no-such-host.invalid slots=2\n");
    char *option = ndp_format("--hostfile=%s", in(*state, "hosts"));
    outcome o = train(*state, MPI, NULL, option);
    if (o.code == 0)
        fail_msg("code 0: %s", o.text.data);
    check_words(&o, WORDS("hosts:1: the host 'no-such-host.invalid' does not resolve", "/etc/hosts"), "hosts");
    print_message("%5.2f s  code %d %s\n", o.seconds, o.code, o.text.data);
    ndp_str_release(&o.text);
    free(option);
}

#define JOB_TEST(f) cmocka_unit_test_setup_teardown(f, make_job, tiny_teardown)

int main(int argc, char **argv) {
    if (!getenv("NDP_PROGRAM")) {
        printf("SKIPPED: NDP_PROGRAM names no program\n");
        return 77;
    }
    find_leaks(false);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        JOB_TEST(no_weights),
        JOB_TEST(no_weights_nor_tokenizer),
        JOB_TEST(no_folder),
        JOB_TEST(truncated),
        JOB_TEST(header_longer_than_the_file),
        JOB_TEST(overlapping),
        JOB_TEST(out_of_range),
        JOB_TEST(wrong_type),
        JOB_TEST(wrong_shape),
        JOB_TEST(missing_and_extra),
        JOB_TEST(a_nan),
        JOB_TEST(unsupported_features),
        JOB_TEST(no_json),
        JOB_TEST(longer_than_the_model),
        JOB_TEST(empty_corpus),
        JOB_TEST(no_corpus),
        JOB_TEST(invalid_utf8),
        JOB_TEST(invalid_record),
        JOB_TEST(a_long_document),
        JOB_TEST(another_run),
        JOB_TEST(unwritable),
        JOB_TEST(full_disk),
        JOB_TEST(dies_before_it_joins),
        JOB_TEST(is_killed_at_work),
        JOB_TEST(process_dies_before_it_joins),
        JOB_TEST(joined_ranks_end_together),
        JOB_TEST(joined_rank_dies_at_start),
        JOB_TEST(host_without_a_name),
        JOB_TEST(unknown_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
