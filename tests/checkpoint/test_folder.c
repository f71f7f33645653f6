/* Weights folders: single files and shards, what an index can get wrong, what the check of a model reports, and exports
 * by several ranks that replace what was there, or leave it. */
#include "base/fault.h"
#include "checkpoint/ranks.h"

#define SHARD "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
#define SHARD_B "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"

static void put_image(const char *folder, const char *name, const char *header, size_t payload) {
    char path[512];
    size_t size;
    unsigned char *bytes = image(header, payload, &size);
    put_file(in(folder, name, path), bytes, size);
    free(bytes);
}

static void put_text(const char *folder, const char *name, const char *text) {
    char path[512];
    put_file(in(folder, name, path), text, strlen(text));
}

/* Weights that another process cuts while they are read are named before anybody uses what was read. */
static void cut_weights_are_named(void **state) {
    char path[512];
    float x[4096];
    ndp_weights *w;
    put_image(*state, "model.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4096],\"data_offsets\":[0,16384]}}",
              16384);
    CHECK_OK(ndp_weights_open(*state, &w));
    CHECK_OK(ndp_weights_read(w, "a", 0, 4096, x, NDP_F32, false));
    CHECK_OK(ndp_weights_intact(w));
    assert_int_equal(truncate(in(*state, "model.safetensors", path), 5000), 0);
    CHECK_OK(ndp_weights_read(w, "a", 0, 4096, x, NDP_F32, false));
    assert_true(x[4095] == 0);
    CHECK_FAILS(ndp_weights_intact(w), NDP_EIO, "model.safetensors' was cut from ");
    ndp_weights_close(w);
}

static void damaged_indices(void **state) {
    static const struct {
        const char *index;
        ndp_status code;
        const char *words;
    } cases[] = {
        {"", NDP_EFORMAT, "model.safetensors.index.json: the JSON text ends"},
        {"[]", NDP_EFORMAT, "no object \"weight_map\""},
        {"{\"weight_map\":[]}", NDP_EFORMAT, "no object \"weight_map\""},
        {"{\"weight_map\":{\"a\":1}}", NDP_EFORMAT, "tensor a: its shard is not the name of a file"},
        {"{\"weight_map\":{\"a\":\"s1\\u0000\"}}", NDP_EFORMAT, "tensor a: its shard is not the name of a file"},
        {"{\"weight_map\":{\"a\":\"\"}}", NDP_EFORMAT, "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"../s1\"}}", NDP_EFORMAT, "\"../s1\" is not the name of a file"},
        {"{\"weight_map\":{\"a\":\"..\"}}", NDP_EFORMAT, "\"..\" is not the name of a file"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", NDP_EFORMAT, "is not the name of a file"},
        {"{\"weight_map\":{\"a\":\"s9\"}}", NDP_EIO, "tensor a is in \"s9\", which is missing"},
        {"{\"weight_map\":{\"a\":\"s2\"}}", NDP_EFORMAT, "tensor a should be in"},
        {"{\"weight_map\":{\"a\":\"s1\",\"a\":\"s2\"}}", NDP_EFORMAT, "same key twice"},
        {"{\"weight_map\":{\"b\":\"s2\",\"a\":\"broken\"}}", NDP_EFORMAT, "broken"},
        {"{\"weight_map\":{\"b\":\"s2\",\"c\":\"s4\",\"d\":\"s5\"}}", NDP_EFORMAT, "tensor x is in two files"},
        {"{\"weight_map\":{\"a\":\"s1\",\"e\":\"s6\"}}", NDP_EFORMAT, "tensor a is in 2 shards"},
    };
    ndp_weights *w = NULL;
    put_image(*state, "s1", SHARD, 8);
    put_image(*state, "s2", SHARD_B, 4);
    put_image(*state, "broken", SHARD, 7);
    put_image(*state, "s4",
              "{\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
              "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
              2);
    put_image(*state, "s5",
              "{\"d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
              "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
              2);
    put_image(*state, "s6",
              "{\"e\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
              "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
              2);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        put_text(*state, "model.safetensors.index.json", cases[i].index);
        CHECK_FAILS(ndp_weights_open(*state, &w), cases[i].code, cases[i].words);
        assert_null(w);
    }
    /* A tensor that its shard has and the index has not is there all the same. */
    put_text(*state, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"s1\",\"c\":\"s4\",\"b\":\"s2\"}}");
    CHECK_OK(ndp_weights_open(*state, &w));
    assert_int_equal(ndp_weights_count(w), 4);
    assert_string_equal(ndp_weights_at(w, 3)->spec.name, "x");
    assert_int_equal(ndp_weights_find(w, "a")->elements, 2);
    assert_null(ndp_weights_find(w, "z"));
    float x;
    CHECK_FAILS(ndp_weights_read(w, "z", 0, 1, &x, NDP_F32, true), NDP_EFORMAT, "no tensor z");
    ndp_weights_close(w);
}

static void folders_without_weights(void **state) {
    ndp_weights *w = NULL;
    char path[512];
    CHECK_FAILS(ndp_weights_open(*state, &w), NDP_EIO, "holds neither model.safetensors nor");
    put_text(*state, "pytorch_model.bin", "x");
    CHECK_FAILS(ndp_weights_open(*state, &w), NDP_EIO, "pytorch_model.bin is not read: transformers saves it");
    CHECK_FAILS(ndp_weights_check_files(*state), NDP_EIO, "pytorch_model.bin is not read: transformers saves it");
    assert_int_equal(unlink(in(*state, "pytorch_model.bin", path)), 0);
    put_text(*state, "pytorch_model.bin.index.json", "x");
    CHECK_FAILS(ndp_weights_check_files(*state), NDP_EIO, "pytorch_model.bin is not read: transformers saves it");
    put_text(*state, "model.safetensors.index.json", "x");
    CHECK_FAILS(ndp_weights_check_files(*state), NDP_EFORMAT, "model.safetensors.index.json");
    put_text(*state, "model.safetensors.index.json", "{\"weight_map\": {\"w\": \"model-1.safetensors\"}}");
    CHECK_FAILS(ndp_weights_check_files(*state), NDP_EIO, "tensor w is in \"model-1.safetensors\", which is missing");
    CHECK_FAILS(ndp_weights_open(in(*state, "none", path), &w), NDP_EIO, "is not a folder");
}

static bool is_head(const char *name, void *arg) {
    (void)arg;
    return strcmp(name, "lm_head.weight") == 0;
}

static void check_reports_everything(void **state) {
    static const char header[] =
        "{\"e0\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"e1\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[4,8]},"
        "\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
        "\"l.0.rotary_emb.inv_freq\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]}}";
    const ndp_tensor_spec good[] = {{"e0", NDP_BF16, 1, {1}, NULL}};
    const ndp_tensor_spec bad[] = {{"e0", NDP_F32, 2, {1, 1}, NULL}, {"e1", NDP_F32, 1, {4}, NULL},
                                   {"m1", NDP_F32, 1, {1}, NULL},    {"m2", NDP_F32, 1, {1}, NULL},
                                   {"m3", NDP_F32, 1, {1}, NULL},    {"m4", NDP_F32, 1, {1}, NULL},
                                   {"m5", NDP_F32, 1, {1}, NULL},    {"m6", NDP_F32, 1, {1}, NULL}};
    const ndp_tensor_spec all[] = {{"e0", NDP_F32, 1, {1}, NULL}, {"lm_head.weight", NDP_F32, 1, {1}, NULL}};
    ndp_weights *w = NULL;
    put_image(*state, "model.safetensors", header, 16);
    CHECK_OK(ndp_weights_open(*state, &w));
    CHECK_FAILS(ndp_weights_check(w, bad, NDP_COUNT(bad), NULL, NULL), NDP_EFORMAT,
                ": 6 missing: m1, m2, m3, m4, m5, ...; 2 of another shape or type: e0 is [1], expected [1, 1], e1 is "
                "F8_E4M3, which is not read as a weight; 1 that the model does not have: lm_head.weight");
    CHECK_FAILS(ndp_weights_check(w, bad, NDP_COUNT(bad), is_head, NULL), NDP_EFORMAT, "not read as a weight");
    assert_null(strstr(ndp_error_message(), "lm_head"));
    CHECK_FAILS(ndp_weights_check(w, good, 1, is_head, NULL), NDP_EFORMAT, ": 1 that the model does not have: e1");
    CHECK_FAILS(ndp_weights_check(w, all, 2, NULL, NULL), NDP_EFORMAT, ": 1 that the model does not have: e1");
    ndp_weights_close(w);
    put_image(*state, "model.safetensors", SHARD_B, 4);
    CHECK_OK(ndp_weights_open(*state, &w));
    CHECK_OK(ndp_weights_check(w, &(ndp_tensor_spec){"b", NDP_BF16, 1, {1}, NULL}, 1, NULL, NULL));
    ndp_weights_close(w);
}

/* ---- exports ---- */

typedef struct job {
    const char *folder;
    int64_t shard_bytes, generation;
    int rank, kind; /* whose n-th operation of the kind fails */
    int64_t nth;
    bool hole; /* the last rank withholds a piece */
} job;

static ndp_status export_body(ndp_transport *t, void *arg) {
    job *j = arg;
    ndp_comm *world = NULL;
    NDP_TRY(ndp_comm_create(t, world_of(t), "world", &world));
    part p;
    int rank = ndp_comm_rank(world), n = ndp_comm_size(world);
    part_init(&p, rank, n, WEIGHTS, j->generation);
    p.n -= j->hole && rank == n - 1;
    if (rank == j->rank)
        ndp_fault_arm((ndp_fault_kind)j->kind, j->nth);
    ndp_status st = ndp_weights_save(world, NULL, j->folder, tensors, WEIGHTS, p.pieces, p.n, j->shard_bytes);
    if (rank == j->rank) {
        bool fired = ndp_fault_fired((ndp_fault_kind)j->kind);
        ndp_fault_arm((ndp_fault_kind)j->kind, 0);
        j->nth = fired ? j->nth : 0;
    }
    ndp_comm_destroy(world);
    return st;
}

/* The generation that the folder holds, whole; -1 when it does not open. */
static int64_t generation_of(const char *folder) {
    ndp_weights *w = NULL;
    float x[MOST];
    if (ndp_weights_open(folder, &w) != NDP_OK)
        return -1;
    CHECK_OK(ndp_weights_check(w, tensors, WEIGHTS, NULL, NULL));
    CHECK_OK(ndp_weights_read(w, tensors[0].name, 0, 1, x, NDP_F32, true));
    int64_t g = (int64_t)(x[0] / 0.125f);
    for (int t = 0; t < WEIGHTS; t++) {
        int64_t n = ndp_tensor_elements(&tensors[t]);
        CHECK_OK(ndp_weights_read(w, tensors[t].name, 0, n, x, NDP_F32, true));
        CHECK_OK(check_values(t, 0, n, g, x));
    }
    ndp_weights_close(w);
    return g;
}

static void exports_in_shards(void **state) {
    static const struct {
        int64_t bytes;
        const char *last;
        bool sharded;
    } cases[] = {
        {1, "model-00004-of-00004.safetensors", true},          {1000, "model-00003-of-00003.safetensors", true},
        {37 * 8 * 4, "model-00003-of-00003.safetensors", true}, {1 << 20, "model.safetensors", false},
        {2000, "model-00002-of-00002.safetensors", true},
    };
    char path[512];
    put_text(*state, "config.json", "{}");
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        job j = {.folder = *state, .shard_bytes = cases[i].bytes, .generation = 1 + i, .rank = -1};
        CHECK_OK(ndp_local_world(1 + i, export_body, &j));
        assert_int_equal(generation_of(*state), 1 + i);
        assert_true(ndp_path_exists(in(*state, cases[i].last, path)));
        assert_int_equal(ndp_path_exists(in(*state, "model.safetensors.index.json", path)), cases[i].sharded);
        assert_int_equal(ndp_path_exists(in(*state, "model.safetensors", path)), !cases[i].sharded);
        for (int before = 0; before < i; before++) /* nothing is left of the older ones */
            assert_int_equal(ndp_path_exists(in(*state, cases[before].last, path)),
                             strcmp(cases[before].last, cases[i].last) == 0);
        assert_false(ndp_path_exists(in(*state, ".export.tmp", path)));
        assert_true(ndp_path_exists(in(*state, "config.json", path)));
    }
}

static void index_is_hugging_face_s(void **state) {
    char path[512], *text = NULL;
    size_t size;
    job j = {.folder = *state, .shard_bytes = 1000, .rank = -1};
    CHECK_OK(ndp_local_world(2, export_body, &j));
    CHECK_OK(ndp_file_read(in(*state, "model.safetensors.index.json", path), &text, &size));
    struct json_object *index = NULL, *metadata = NULL, *map = NULL;
    CHECK_OK(ndp_json_parse(text, size, path, &index));
    assert_true(json_object_object_get_ex(index, "metadata", &metadata));
    assert_true(json_object_object_get_ex(index, "weight_map", &map));
    int64_t total = 0;
    const char *shard = "";
    CHECK_OK(ndp_json_int(metadata, path, "total_size", 0, INT64_MAX, &total));
    assert_int_equal(total, 37 * 8 * 4 + 24 * 8 * 4 + 8 * 4 + 37 * 8 * 2);
    assert_int_equal(json_object_object_length(map), WEIGHTS);
    CHECK_OK(ndp_json_string(map, path, "model.norm.weight", &shard));
    assert_string_equal(shard, "model-00002-of-00003.safetensors");
    json_object_put(index);
    free(text);
}

static void a_hole_is_refused(void **state) {
    job j = {.folder = *state, .shard_bytes = 1 << 20, .rank = -1, .hole = true};
    CHECK_FAILS(ndp_local_world(3, export_body, &j), NDP_EBUG,
                "tensor lm_head.weight has 296 elements, the ranks gave");
    assert_int_equal(generation_of(*state), -1);
}

/* Every operation of every rank fails in turn: the failure is told on all ranks, and the folder holds the older weights
 * or the new ones, whole; or, between the files of a sharded export, none that opens. */
static void exports_fail_whole(void **state) {
    int failures = 0;
    for (int sharded = 0; sharded < 2; sharded++)
        for (int k = 0; k < NDP_FAULT_KINDS * 2; k++)
            for (int64_t n = 1;; n++) {
                int64_t bytes = sharded ? 1000 : 1 << 20, old = 2 * n, new = old + 1;
                job before = {.folder = *state, .shard_bytes = bytes, .generation = old, .rank = -1};
                CHECK_OK(ndp_local_world(2, export_body, &before));
                job j = {*state, bytes, new, .rank = k & 1, .kind = k >> 1, .nth = n};
                ndp_status st = ndp_local_world(2, export_body, &j);
                int64_t g = generation_of(*state);
                if (j.nth == 0) {
                    CHECK_OK(st);
                    assert_int_equal(g, new);
                    break;
                }
                failures++;
                if (st != NDP_EIO)
                    fail_msg("kind %d, operation %lld: status %d", j.kind, (long long)n, st);
                bool moving = sharded && j.kind == NDP_FAULT_RENAME;
                if (g != old && g != new && !(moving && g == -1))
                    fail_msg("kind %d, operation %lld: generation %lld is left", j.kind, (long long)n, (long long)g);
            }
    print_message("%d failures\n", failures);
    assert_true(failures > 40);
}

static void real_model_through_shards(void **state) {
    const char *data = getenv("NDP_TEST_DATA");
    if (!data) {
        print_message("NDP_TEST_DATA is not set: stories260K is not copied\n");
        skip();
    }
    char path[512];
    snprintf(path, sizeof path, "%s/models/stories260K", data);
    ndp_weights *w = NULL, *copy = NULL;
    CHECK_OK(ndp_weights_open(path, &w));
    int n = ndp_weights_count(w);
    ndp_tensor_spec *list = calloc((size_t)n, sizeof *list);
    ndp_file_piece *pieces = calloc((size_t)n, sizeof *pieces);
    for (int i = 0; i < n; i++) {
        const ndp_tensor_entry *e = ndp_weights_at(w, i);
        float *x = malloc(e->bytes);
        CHECK_OK(ndp_weights_read(w, e->spec.name, 0, e->elements, x, NDP_F32, true));
        list[i] = e->spec;
        pieces[i] = (ndp_file_piece){i, 0, e->elements, x, NDP_F32, 1, NULL, 0};
    }
    CHECK_OK(ndp_weights_save(NULL, NULL, *state, list, n, pieces, n, 200000));
    CHECK_OK(ndp_weights_open(*state, &copy));
    CHECK_OK(ndp_weights_check(copy, list, n, NULL, NULL));
    for (int i = 0; i < n; i++) {
        float *x = malloc((size_t)pieces[i].count * sizeof *x);
        CHECK_OK(ndp_weights_read(copy, list[i].name, 0, pieces[i].count, x, NDP_F32, true));
        assert_memory_equal(x, pieces[i].data, (size_t)pieces[i].count * sizeof *x);
        free(x);
        free((void *)(uintptr_t)pieces[i].data);
    }
    free(list);
    free(pieces);
    ndp_weights_close(w);
    ndp_weights_close(copy);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(cut_weights_are_named),    IN_FOLDER(damaged_indices),    IN_FOLDER(folders_without_weights),
        IN_FOLDER(check_reports_everything), IN_FOLDER(exports_in_shards),  IN_FOLDER(index_is_hugging_face_s),
        IN_FOLDER(a_hole_is_refused),        IN_FOLDER(exports_fail_whole), IN_FOLDER(real_model_through_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
