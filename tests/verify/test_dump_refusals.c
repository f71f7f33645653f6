/* A folder that is not a dump of the job's model is refused with one message, before anything large is allocated. */
#include "verify/dumps.h"

#include <sys/resource.h>

static const way one = {.global = DUMP_ROWS, .accumulation = 2, .threads = 1};

static char *file_of(const char *folder, const char *name) { return ndp_format("%s/%s.safetensors", folder, name); }

/* Replaces a text of the header by another one of the same length, the first time it is there. */
static void edit_header(const char *folder, const char *file, const char *from, const char *to) {
    char *path = file_of(folder, file), *data;
    size_t size;
    assert_int_equal(strlen(from), strlen(to));
    CHECK_OK(ndp_file_read(path, &data, &size));
    char *at = memmem(data, size, from, strlen(from));
    if (!at)
        fail_msg("no %s in %s", from, path);
    memcpy(at, to, strlen(to));
    CHECK_OK(ndp_file_write_atomic(path, data, size));
    free(data);
    free(path);
}

/* A file with the header alone, `bytes` long: the rest are holes. */
static void write_sparse(const char *folder, const char *file, const char *header, int64_t bytes) {
    char *path = file_of(folder, file);
    int64_t n = (int64_t)strlen(header);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0 && write(fd, &n, sizeof n) == sizeof n && write(fd, header, (size_t)n) == n);
    assert_int_equal(ftruncate(fd, 8 + n + bytes), 0);
    close(fd);
    free(path);
}

static void patch_double(const char *folder, const char *file, const char *tensor, int64_t at, double x) {
    patch(folder, file, tensor, at, 1, &x);
}
static void patch_integer(const char *folder, const char *tensor, int64_t at, int64_t x) {
    patch(folder, "batch", tensor, at, 1, &x);
}
static void remove_file(const char *folder, const char *file) {
    char *path = file_of(folder, file);
    assert_int_equal(unlink(path), 0);
    free(path);
}
static void cut_file(const char *folder, const char *file, int64_t bytes) {
    char *path = file_of(folder, file);
    assert_int_equal(truncate(path, bytes), 0);
    free(path);
}

static void no_batch(const char *f) { remove_file(f, "batch"); }
static void no_gradients(const char *f) { remove_file(f, "gradients"); }
static void no_labels(const char *f) { edit_header(f, "batch", "\"labels\"", "\"labelz\""); }
static void no_tokens(const char *f) { edit_header(f, "batch", "\"tokens\"", "\"tokenz\""); }
static void float_ids(const char *f) {
    write_sparse(f, "batch",
                 "{\"input_ids\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]},"
                 "\"labels\":{\"dtype\":\"I64\",\"shape\":[2,4],\"data_offsets\":[32,96]},"
                 "\"loss\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[96,100]},"
                 "\"tokens\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[100,108]}}",
                 108);
}
/* input_ids, labels of rows x columns, of zeros. */
static void zeros(const char *f, int64_t rows, int64_t columns, int64_t label_columns) {
    int64_t ids = 8 * rows * columns, labels = 8 * rows * label_columns;
    char *header =
        ndp_format("{\"input_ids\":{\"dtype\":\"I64\",\"shape\":[%lld,%lld],\"data_offsets\":[0,%lld]},"
                   "\"labels\":{\"dtype\":\"I64\",\"shape\":[%lld,%lld],\"data_offsets\":[%lld,%lld]},"
                   "\"loss\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[%lld,%lld]},"
                   "\"tokens\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[%lld,%lld]}}",
                   (long long)rows, (long long)columns, (long long)ids, (long long)rows, (long long)label_columns,
                   (long long)ids, (long long)(ids + labels), (long long)(ids + labels), (long long)(ids + labels + 4),
                   (long long)(ids + labels + 4), (long long)(ids + labels + 12));
    write_sparse(f, "batch", header, ids + labels + 12);
    free(header);
}
static void short_labels(const char *f) { zeros(f, 2, 4, 3); }
static void long_rows(const char *f) { zeros(f, 2, 100, 100); }
static void sparse_batch(const char *f) { zeros(f, 100000000, 64, 64); }
static void sparse_rows(const char *f) { zeros(f, 1 << 30, 2, 2); }
static void sparse_gradients(const char *f) {
    write_sparse(f, "gradients",
                 "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[1000000,25000],\"data_offsets\":"
                 "[0,100000000000]}}",
                 100000000000);
}
static void no_gradient(const char *f) {
    edit_header(f, "gradients", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.op_proj.weight");
}
static void other_shape(const char *f) { edit_header(f, "gradients", "[263,24]", "[24,263]"); }
static void nan_gradient(const char *f) { patch_double(f, "gradients", "model.norm.weight", 3, NAN); }
static void infinite_gradient(const char *f) { patch_double(f, "gradients", "model.norm.weight", 3, INFINITY); }
static void nan_weight(const char *f) { patch_double(f, "weights", "model.norm.weight", 3, NAN); }
static void nan_loss(const char *f) { patch_double(f, "batch", "loss", 0, NAN); }
static void large_id(const char *f) { patch_integer(f, "input_ids", 40, 263); }
static void negative_id(const char *f) { patch_integer(f, "input_ids", 40, -1); }
static void large_label(const char *f) { patch_integer(f, "labels", 41, 263); }
static void other_label(const char *f) { patch_integer(f, "labels", 41, -1); }
static void large_position(const char *f) { patch_integer(f, "position_ids", 1, DUMP_LENGTH); }
static void late_start(const char *f) { patch_integer(f, "document_starts", 33, 2); }
static void no_label(const char *f) {
    for (int64_t i = 0; i < DUMP_ROWS * DUMP_LENGTH; i++)
        patch_integer(f, "labels", i, NDP_DUMP_NO_LABEL);
}
static void cut_gradients(const char *f) { cut_file(f, "gradients", 30000); }
static void cut_header(const char *f) { cut_file(f, "gradients", 100); }
static void cut_batch(const char *f) { cut_file(f, "batch", 4); }
static void twice(const char *f) {
    char *from = file_of(f, "gradients"), *to = file_of(f, "gradients-2"), *data;
    size_t size;
    CHECK_OK(ndp_file_read(from, &data, &size));
    CHECK_OK(ndp_file_write_atomic(to, data, size));
    free(data), free(from), free(to);
}

typedef struct refusal {
    void (*make)(const char *folder);
    ndp_status status;
    const char *words;
} refusal;

static const refusal refusals[] = {
    {no_batch, NDP_EIO, "batch.safetensors"},
    {no_gradients, NDP_EIO, "holds no gradients.safetensors"},
    {no_labels, NDP_EFORMAT, "has no tensor labels; a dump needs input_ids, labels, loss and tokens"},
    {no_tokens, NDP_EFORMAT, "has no tensor tokens"},
    {float_ids, NDP_EFORMAT, "input_ids is F32, expected I64 or I32"},
    {short_labels, NDP_EFORMAT, "labels is [2, 3], but input_ids is [2, 4]"},
    {long_rows, NDP_EINVAL, "whose rows have 100 tokens: data.sequence_length 100 is longer than the model's"},
    {sparse_batch, NDP_EFORMAT, "2^31 in all at most"},
    {sparse_rows, NDP_EFORMAT, "2^31 in all at most"},
    {sparse_gradients, NDP_EFORMAT, "are not those of the job's model"},
    {no_gradient, NDP_EFORMAT,
     "the gradients are not those of the job's model: 1 missing: model.layers.1.mlp.up_proj.weight; 1 that the model"},
    {other_shape, NDP_EFORMAT, "model.embed_tokens.weight is [24, 263], expected [263, 24]"},
    {nan_gradient, NDP_EFORMAT, "model.norm.weight"},
    {infinite_gradient, NDP_EFORMAT, "model.norm.weight"},
    {nan_weight, NDP_EFORMAT, "model.norm.weight"},
    {nan_loss, NDP_EFORMAT, "loss"},
    {large_id, NDP_EFORMAT, "input_ids[1, 8] is 263, expected 0 to 262, an id of the model"},
    {negative_id, NDP_EFORMAT, "input_ids[1, 8] is -1"},
    {large_label, NDP_EFORMAT, "labels[1, 9] is 263, expected 0 to 262, or -100"},
    {other_label, NDP_EFORMAT, "labels[1, 9] is -1"},
    {large_position, NDP_EFORMAT, "position_ids[0, 1] is 32, expected 0 to 31"},
    {late_start, NDP_EFORMAT, "document_starts[1, 1] is 2, expected that column"},
    {no_label, NDP_EINVAL, "labels is -100 everywhere"},
    {cut_gradients, NDP_EFORMAT, "cut off"},
    {cut_header, NDP_EFORMAT, "cut off"},
    {cut_batch, NDP_EFORMAT, "too short"},
    {twice, NDP_EFORMAT, "is in two files"}};

static int64_t peak_bytes(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_maxrss * 1024;
}

static ndp_status against(const ndp_config *c, const char *folder) {
    ndp_against a;
    ndp_status st = ndp_verify_against(c, &(ndp_against_opts){.folder = folder}, &a);
    if (st == NDP_OK)
        ndp_against_release(&a);
    return st;
}

/* Each with one message, and in little memory. */
static void refused(void **state) {
    (void)state;
    char *right = dump_folder("right"), *folder;
    ndp_config *c = dump_job(family_called("llama"), &one);
    ndp_config *other = dump_job(family_called("mistral"), &one);
    make_dump(c, right, NULL, NULL);
    int64_t before = peak_bytes();
    for (int i = 0; i < NDP_COUNT(refusals); i++) {
        folder = dump_folder("refused");
        copy_dump(right, folder);
        refusals[i].make(folder);
        CHECK_FAILS(against(c, folder), refusals[i].status, refusals[i].words);
        free(folder);
    }
    CHECK_FAILS(against(other, right), NDP_EFORMAT, "are not those of the job's model");
    CHECK_FAILS(against(c, "/nowhere/at/all"), NDP_EINVAL, "not a folder (No such file or directory)");
    ndp_dump_opts writing = {.folder = "/nowhere/at/all"};
    set(c, "data.format=preference");
    set(c, "loss.name=dpo");
    CHECK_FAILS(against(c, right), NDP_ENOTSUP, "the job's loss is that of pairs");
    CHECK_FAILS(ndp_verify_dump(c, &writing), NDP_ENOTSUP, "the job's loss is that of pairs");
    assert_true(peak_bytes() - before < (64 << 20) || SANITIZED);
    ndp_config_destroy(c);
    ndp_config_destroy(other);
    free(right);
}

/* Rows that the format allows and this host has no memory for: of 4 billion bytes each array. */
static void more_rows_than_memory(void **state) {
    (void)state;
    char *folder = dump_folder("huge"), *right = dump_folder("right");
    ndp_config *c = dump_job(family_called("llama"), &one);
    make_dump(c, right, NULL, NULL);
    copy_dump(right, folder);
    zeros(folder, (1 << 30) - 1, 2, 2);
    set(c, "train.force_memory=false");
    struct rlimit now, least;
    assert_int_equal(getrlimit(RLIMIT_DATA, &now), 0);
    least = (struct rlimit){.rlim_cur = 4LL << 30, .rlim_max = now.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &least), 0);
    CHECK_FAILS(against(c, folder), NDP_EINVAL, "the comparison with a dump needs");
    assert_int_equal(setrlimit(RLIMIT_DATA, &now), 0);
    ndp_config_destroy(c);
    free(folder);
    free(right);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused), cmocka_unit_test(more_rows_than_memory)};
    return cmocka_run_group_tests(tests, make_the_corpus, drop_the_corpus);
}
