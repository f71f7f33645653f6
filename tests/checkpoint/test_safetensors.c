/* One safetensors file: what is written is what is read, and every way in which a file can be damaged has its message.
 */
#include "base/fault.h"
#include "checkpoint/files.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static ndp_status open_image(const char *header, size_t payload) {
    size_t size;
    unsigned char *bytes = image(header, payload, &size);
    ndp_safetensors *f = NULL;
    ndp_status st = ndp_safetensors_open_memory(bytes, size, "file", &f);
    ndp_safetensors_close(f);
    free(bytes);
    return st;
}

#define T(name, dtype, shape, begin, end)                                                                              \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void good_headers(void **state) {
    (void)state;
    CHECK_OK(open_image("{}", 0));
    CHECK_OK(open_image("{}        ", 0));
    CHECK_OK(open_image("{" T("a", "F32", "[2,3]", 0, 24) "}", 24));
    CHECK_OK(open_image("{" T("a", "F32", "[]", 0, 4) "," T("empty", "F64", "[0,5]", 4, 4) "}", 4));
    CHECK_OK(open_image("{" T("b", "BF16", "[2]", 3, 7) "," T("a", "BOOL", "[3]", 0, 3) "}", 7));
    CHECK_OK(open_image("{\"__metadata__\":{\"format\":\"pt\"}," T("a", "F8_E4M3", "[3]", 0, 3) "}", 3));
}

static void damaged_headers(void **state) {
    static const struct {
        const char *header;
        size_t payload;
        const char *words;
    } cases[] = {
        {"", 0, "file: the header does not begin with '{'"},
        {"[1]", 0, "does not begin with '{'"},
        {" {}", 0, "does not begin with '{'"},
        {"{\"a\":1", 0, "file: the JSON text ends before its value does, at byte 7"},
        {"{} x", 0, ", at byte 4"},
        {"{\"a\":1}", 0, "file: tensor a: its description is not an object"},
        {"{\"\xff\":{}}", 0, "not valid UTF-8"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ \"a\" is not a string"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: dtype is missing"},
        {"{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: dtype is not a string"},
        {"{" T("a", "F33", "[1]", 0, 4) "}", 4, "tensor a: unknown dtype \"F33\""},
        {"{" T("a", "F32\\u0000", "[1]", 0, 4) "}", 4, "tensor a: unknown dtype \"F32\\u0000\""},
        {"{" T("a", "F32 ", "[1]", 0, 4) "}", 4, "tensor a: unknown dtype \"F32 \""},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor a: shape is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a: data_offsets is missing"},
        {"{" T("a", "F32", "7", 0, 4) "}", 4, "tensor a: shape is not an array"},
        {"{" T("a", "F32", "[1,-1]", 0, 4) "}", 4, "tensor a: shape[1] is -1"},
        {"{" T("a", "F32", "[1.5]", 0, 4) "}", 4, "tensor a: shape[0] is 1.5"},
        {"{" T("a", "F32", "[null]", 0, 4) "}", 4, "tensor a: shape[0] is null"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "tensor a: shape has 9 numbers, at most 8"},
        {"{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, "[4294967296, 4294967296] overflows"},
        {"{" T("a", "F32", "[99999999999999999999]", 0, 4) "}", 4, "overflows"},
        {"{" T("a", "F32", "[2]", 0, 4) "}", 4, "F32 [2] takes 8 bytes, but its data_offsets [0, 4] hold 4"},
        {"{" T("a", "BF16", "[2]", 0, 8) "}", 8, "BF16 [2] takes 4 bytes"},
        {"{" T("a", "F32", "[1]", 4, 0) "}", 4, "tensor a: data_offsets are not [begin, end]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "tensor a: data_offsets are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "data_offsets has 3 numbers"},
        {"{" T("a", "F32", "[1]", -4, 0) "}", 4, "tensor a: data_offsets[0] is -4"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 5, "tensor a lies at [0, 8) of the data, but the file holds only 5 bytes"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 2, 6) "}", 6, "tensors a and b overlap by 2 bytes"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 0, 4) "}", 8, "overlap by 4 bytes"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 8, 12) "}", 12,
         "a hole of 4 bytes between a and tensor b"},
        {"{" T("a", "F32", "[1]", 4, 8) "}", 8, "a hole of 4 bytes between the start and tensor a"},
        {"{" T("a", "F32", "[1]", 0, 4) "}", 9, "5 bytes after the last tensor belong to none"},
        {"{}", 1, "1 bytes after the last tensor"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, "same key twice"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("\\u0061", "F32", "[1]", 4, 8) "}", 8, "same key twice"},
    };
    (void)state;
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        CHECK_FAILS(open_image(cases[i].header, cases[i].payload), NDP_EFORMAT, cases[i].words);
    }
}

static void damaged_frames(void **state) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } cases[] = {
        {"", 0, "0 bytes is too short"},
        {"\2\0\0\0\0\0\0", 7, "7 bytes is too short"},
        {"\0\0\0\0\0\0\0\0", 8, "does not begin with '{'"},
        {"\3\0\0\0\0\0\0\0{}", 10, "should have 3 bytes, but the file holds only 2 after its first 8"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "18446744073709551615 bytes (at most 104857600"},
        {"\x01\x00\x40\x06\0\0\0\0{}", 10, "104857601 bytes (at most"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "git lfs pull"},
    };
    char path[512];
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_safetensors *f = NULL;
        CHECK_FAILS(ndp_safetensors_open_memory(cases[i].bytes, cases[i].size, "m", &f), NDP_EFORMAT, cases[i].words);
        put_file(in(*state, "x.safetensors", path), cases[i].bytes, cases[i].size);
        CHECK_FAILS(ndp_safetensors_open(path, &f), NDP_EFORMAT, cases[i].words);
        CHECK_FAILS(ndp_safetensors_open(path, &f), NDP_EFORMAT, path);
        assert_null(f);
    }
    ndp_safetensors *f = NULL;
    CHECK_FAILS(ndp_safetensors_open(in(*state, "none", path), &f), NDP_EIO, "No such file");
    CHECK_FAILS(ndp_safetensors_open(*state, &f), NDP_EIO, "folder");
}

/* Cutting a good file anywhere, or growing it, never leaves a file that opens. */
static void every_cut_is_noticed(void **state) {
    size_t size;
    (void)state;
    unsigned char *bytes = image("{" T("a", "F32", "[2]", 0, 8) "," T("b", "I64", "[1]", 8, 16) "}", 17, &size);
    for (size_t n = 0; n <= size; n++) {
        unsigned char *cut = malloc(n + 1); /* of its own, so that a sanitizer sees a read past its end */
        ndp_safetensors *f = NULL;
        memcpy(cut, bytes, n);
        if (n == size - 1)
            CHECK_OK(ndp_safetensors_open_memory(cut, n, "cut", &f));
        else
            CHECK_FAILS(ndp_safetensors_open_memory(cut, n, "cut", &f), NDP_EFORMAT, "cut: ");
        ndp_safetensors_close(f);
        free(cut);
    }
    free(bytes);
}

/* ---- round trips ---- */

enum { ELEMENTS = 100003 }; /* more than one block of conversion */

static const ndp_tensor_spec specs[] = {
    {"model.norm", NDP_F32, 1, {5}, NULL},         {"half", NDP_F16, 2, {3, 4}, NULL},
    {"empty", NDP_F32, 2, {0, 7}, NULL},           {"scalar", NDP_F64, 0, {0}, NULL},
    {"brain", NDP_BF16, 1, {ELEMENTS}, NULL},      {"ids", NDP_I32, 1, {3}, NULL},
    {"quote\"\\\n\xc3\xa9", NDP_U8, 1, {3}, NULL}, {"long", NDP_I64, 1, {2}, NULL},
};

static void fill(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i % 251) - 125.0f; /* exact in every float type */
}

static void write_all(const char *path) {
    float *x = malloc(ELEMENTS * sizeof *x);
    ndp_safetensors_writer *w = NULL;
    CHECK_OK(ndp_safetensors_create(path, specs, NDP_COUNT(specs), &w));
    for (int t = 0; t < NDP_COUNT(specs); t++) {
        int64_t n = ndp_tensor_elements(&specs[t]);
        fill(x, n);
        if (t < 5)
            CHECK_OK(ndp_safetensors_write(w, t, 0, n, x, NDP_F32));
    }
    CHECK_OK(ndp_safetensors_write(w, 5, 1, 2, (int32_t[]){-7, 9}, NDP_I32));
    CHECK_OK(ndp_safetensors_write(w, 5, 0, 1, (int32_t[]){1 << 30}, NDP_I32));
    CHECK_OK(ndp_safetensors_write(w, 6, 0, 3, "xyz", NDP_U8));
    CHECK_OK(ndp_safetensors_write(w, 7, 0, 2, (int64_t[]){INT64_MIN, 3}, NDP_I64));
    CHECK_OK(ndp_safetensors_sync(w));
    ndp_safetensors_writer_destroy(w);
    free(x);
}

static void round_trip(void **state) {
    char path[512];
    write_all(in(*state, "all.safetensors", path));
    ndp_safetensors *f = NULL;
    CHECK_OK(ndp_safetensors_open(path, &f));
    assert_int_equal(ndp_safetensors_count(f), NDP_COUNT(specs));
    assert_string_equal(ndp_safetensors_metadata(f, "format"), "pt");
    assert_null(ndp_safetensors_metadata(f, "other"));
    assert_null(ndp_safetensors_find(f, "hal"));
    float *want = malloc(ELEMENTS * sizeof *want), *got = malloc(ELEMENTS * sizeof *got);
    for (int t = 0; t < NDP_COUNT(specs); t++) {
        const ndp_tensor_entry *e = ndp_safetensors_find(f, specs[t].name);
        assert_ptr_equal(e, ndp_safetensors_at(f, t)); /* the order of the list */
        assert_int_equal(e->spec.dtype, specs[t].dtype);
        assert_int_equal(e->spec.ndim, specs[t].ndim);
        assert_memory_equal(e->spec.shape, specs[t].shape, (size_t)specs[t].ndim * 8);
        if (t >= 5)
            continue;
        fill(want, e->elements);
        CHECK_OK(ndp_safetensors_read(f, e, 0, e->elements, got, NDP_F32, true));
        assert_memory_equal(want, got, (size_t)e->elements * 4);
    }
    int32_t ids[3];
    int64_t longs[2];
    char text[4] = "";
    const ndp_tensor_entry *e = ndp_safetensors_find(f, "ids");
    CHECK_OK(ndp_safetensors_read(f, e, 0, 3, ids, NDP_I32, true));
    assert_true(ids[0] == 1 << 30 && ids[1] == -7 && ids[2] == 9);
    CHECK_OK(ndp_safetensors_read(f, ndp_safetensors_at(f, 6), 0, 3, text, NDP_U8, true));
    assert_string_equal(text, "xyz");
    CHECK_OK(ndp_safetensors_read(f, ndp_safetensors_at(f, 7), 0, 2, longs, NDP_I64, true));
    assert_true(longs[0] == INT64_MIN && longs[1] == 3);
    CHECK_FAILS(ndp_safetensors_read(f, e, 0, 3, got, NDP_F32, false), NDP_ENOTSUP, "ids is stored as I32");
    CHECK_FAILS(ndp_safetensors_read(f, e, 1, 3, ids, NDP_I32, false), NDP_EBUG, "[1, +3) requested, it has 3");
    CHECK_FAILS(ndp_safetensors_read(f, e, -1, 1, ids, NDP_I32, false), NDP_EBUG, "ids");
    CHECK_FAILS(ndp_safetensors_read(f, e, 2, INT64_MAX, ids, NDP_I32, false), NDP_EBUG, "ids");
    free(want);
    free(got);
    ndp_safetensors_close(f);
}

/* Any stored float type as any wanted one, from any place, at any alignment of the data in the file. */
static void conversions_at_any_alignment(void **state) {
    static const char *const names[] = {"F32", "BF16", "F16", "F64"};
    static const ndp_dtype types[] = {NDP_F32, NDP_BF16, NDP_F16, NDP_F64};
    enum { N = 3001 };
    (void)state;
    for (int k = 0; k < 4 * 4 * 8; k++) {
        int stored = k & 3, wanted = k >> 2 & 3, pad = k >> 4;
        size_t bytes = N * ndp_dtype_size(types[stored]), size;
        char header[200];
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}%*s",
                 names[stored], N, bytes, pad, "");
        unsigned char *file = image(header, bytes, &size);
        float want[N], got[N];
        double buffer[N];
        fill(want, N);
        ndp_convert(want, NDP_F32, buffer, types[stored], N);
        memcpy(file + size - bytes, buffer, bytes);
        ndp_safetensors *f = NULL;
        CHECK_OK(ndp_safetensors_open_memory(file, size, "file", &f));
        CHECK_OK(ndp_safetensors_read(f, ndp_safetensors_at(f, 0), 7, N - 7, buffer, types[wanted], true));
        ndp_convert(buffer, types[wanted], got, NDP_F32, N - 7);
        assert_memory_equal(want + 7, got, (N - 7) * sizeof *got);
        ndp_safetensors_close(f);
        free(file);
    }
}

static void non_finite_elements_are_named(void **state) {
    static const ndp_dtype types[] = {NDP_F32, NDP_BF16, NDP_F16, NDP_F64};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    char path[512], words[64];
    for (int k = 0; k < 16; k++) {
        ndp_tensor_spec spec = {"w", types[k & 3], 1, {100}, NULL};
        float x[100], y[100];
        fill(x, 100);
        x[40 + k] = bad[k >> 2];
        ndp_safetensors_writer *w = NULL;
        ndp_safetensors *f = NULL;
        snprintf(words, sizeof words, "tensor w holds a NaN or an infinity at element %d", 40 + k);
        CHECK_OK(ndp_safetensors_create(in(*state, "bad", path), &spec, 1, &w));
        CHECK_OK(ndp_safetensors_write(w, 0, 0, 100, x, NDP_F32));
        ndp_safetensors_writer_destroy(w);
        CHECK_OK(ndp_safetensors_open(path, &f));
        CHECK_OK(ndp_safetensors_read(f, ndp_safetensors_at(f, 0), 0, 40 + k, y, NDP_F32, true));
        CHECK_OK(ndp_safetensors_read(f, ndp_safetensors_at(f, 0), 0, 100, y, NDP_F32, false));
        CHECK_FAILS(ndp_safetensors_read(f, ndp_safetensors_at(f, 0), 3, 97, y, NDP_F32, true), NDP_EFORMAT, words);
        ndp_safetensors_close(f);
        unlink(path);
    }
}

/* ---- writers ---- */

static void ranks_share_one_file(void **state) {
    const ndp_tensor_spec two[] = {{"a", NDP_BF16, 2, {10, 7}, NULL}, {"b", NDP_F32, 1, {40}, NULL}};
    enum { RANKS = 5 };
    ndp_safetensors_writer *w[RANKS];
    char path[512];
    for (int r = 0; r < RANKS; r++)
        CHECK_OK(r == 0 ? ndp_safetensors_create(in(*state, "shared", path), two, 2, &w[r])
                        : ndp_safetensors_join(path, two, 2, &w[r]));
    for (int r = RANKS - 1; r >= 0; r--) {
        float a[14], b[8];
        for (int i = 0; i < 14; i++)
            a[i] = (float)(r * 14 + i);
        for (int i = 0; i < 8; i++)
            b[i] = (float)(r * 8 + i) + 0.25f;
        CHECK_OK(ndp_safetensors_write(w[r], 0, r * 14, 14, a, NDP_F32));
        CHECK_OK(ndp_safetensors_write(w[r], 1, r * 8, 8, b, NDP_F32));
        CHECK_OK(ndp_safetensors_sync(w[r]));
        ndp_safetensors_writer_destroy(w[r]);
    }
    ndp_safetensors *f = NULL;
    float a[70], b[40];
    CHECK_OK(ndp_safetensors_open(path, &f));
    CHECK_OK(ndp_safetensors_read(f, ndp_safetensors_at(f, 0), 0, 70, a, NDP_F32, true));
    CHECK_OK(ndp_safetensors_read(f, ndp_safetensors_at(f, 1), 0, 40, b, NDP_F32, true));
    for (int i = 0; i < 70; i++)
        assert_true(a[i] == (float)i && (i >= 40 || b[i] == (float)i + 0.25f));
    ndp_safetensors_close(f);
    ndp_safetensors_writer *other = NULL;
    CHECK_FAILS(ndp_safetensors_join(path, two, 1, &other), NDP_EIO, "the ranks do not agree on its tensors");
    CHECK_FAILS(ndp_safetensors_create(path, two, 2, &other), NDP_EIO, "File exists");
    CHECK_FAILS(ndp_safetensors_join(in(*state, "none", path), two, 2, &other), NDP_EIO, "which rank 0 created");
}

static void refused_lists_and_writes(void **state) {
    const ndp_tensor_spec twice[] = {
        {"a", NDP_F32, 1, {1}, NULL}, {"b", NDP_F32, 1, {1}, NULL}, {"a", NDP_F32, 1, {1}, NULL}};
    const ndp_tensor_spec huge = {"huge", NDP_F32, 2, {(int64_t)1 << 40, (int64_t)1 << 40}, NULL};
    const ndp_tensor_spec metadata = {"__metadata__", NDP_F32, 1, {1}, NULL}, one = {"one", NDP_F32, 1, {4}, NULL};
    int64_t size;
    char path[512];
    float x[4] = {0};
    CHECK_FAILS(ndp_safetensors_size(twice, 3, &size, NULL), NDP_EINVAL, "tensor a would be saved twice");
    CHECK_FAILS(ndp_safetensors_size(&huge, 1, &size, NULL), NDP_EINVAL, "huge");
    CHECK_FAILS(ndp_safetensors_size(&metadata, 1, &size, NULL), NDP_EINVAL, "__metadata__");
    CHECK_OK(ndp_safetensors_size(&one, 1, &size, NULL));
    ndp_safetensors_writer *w = NULL;
    CHECK_OK(ndp_safetensors_create(in(*state, "one", path), &one, 1, &w));
    struct stat info;
    assert_true(stat(path, &info) == 0 && info.st_size == size && size % 8 == 0);
    CHECK_FAILS(ndp_safetensors_write(w, 0, 2, 3, x, NDP_F32), NDP_EBUG, "[2, +3) of tensor one, which has 4");
    CHECK_FAILS(ndp_safetensors_write(w, 1, 0, 1, x, NDP_F32), NDP_EBUG, "tensor number 1 of 1");
    CHECK_FAILS(ndp_safetensors_write(w, 0, 0, 1, x, NDP_I32), NDP_EBUG, "stored as fp32, given as int32");
    ndp_safetensors_writer_destroy(w);
}

/* A limit on the size of files stands for a full disk: the failure comes at once, and leaves nothing. */
static void no_room(void **state) {
    const ndp_tensor_spec big = {"big", NDP_F32, 1, {1 << 20}, NULL};
    struct rlimit old, small = {.rlim_cur = 1 << 16};
    char path[512];
    ndp_safetensors_writer *w = NULL;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ndp_status st = ndp_safetensors_create(in(*state, "big", path), &big, 1, &w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    CHECK_FAILS(st, NDP_EIO, "bytes (4.0 MiB), its disk has ");
    assert_non_null(strstr(ndp_error_message(), path));
    assert_false(ndp_path_exists(path));
}

static void every_failed_write_is_told(void **state) {
    const ndp_tensor_spec spec = {"w", NDP_BF16, 1, {ELEMENTS * 3}, NULL};
    float *x = calloc((size_t)spec.shape[0], sizeof *x);
    char path[512];
    int64_t n = 1;
    for (;; n++) {
        ndp_safetensors_writer *w = NULL;
        ndp_fault_arm(NDP_FAULT_WRITE, n);
        ndp_status st = ndp_safetensors_create(in(*state, "w", path), &spec, 1, &w);
        bool created = st == NDP_OK;
        assert_int_equal(ndp_path_exists(path), created);
        if (created)
            st = ndp_safetensors_write(w, 0, 0, spec.shape[0], x, NDP_F32);
        ndp_safetensors_writer_destroy(w);
        unlink(path);
        if (!ndp_fault_fired(NDP_FAULT_WRITE))
            break;
        CHECK_FAILS(st, NDP_EIO, "No space left");
        assert_non_null(strstr(ndp_error_message(), path));
    }
    ndp_fault_arm(NDP_FAULT_WRITE, 0);
    assert_true(n > 5); /* open, reserve, header, and more than one block */
    free(x);
}

/* ---- real files ---- */

/* Reading every tensor and writing it again gives the same data, byte for byte. */
static void copy_and_compare(const char *source, const char *copy) {
    ndp_safetensors *f = NULL, *g = NULL;
    ndp_safetensors_writer *w = NULL;
    CHECK_OK(ndp_safetensors_open(source, &f));
    int n = ndp_safetensors_count(f);
    ndp_tensor_spec *list = calloc((size_t)n, sizeof *list);
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        list[i] = ndp_safetensors_at(f, i)->spec;
        bytes += ndp_safetensors_at(f, i)->bytes;
    }
    CHECK_OK(ndp_safetensors_create(copy, list, n, &w));
    for (int i = 0; i < n; i++) {
        const ndp_tensor_entry *e = ndp_safetensors_at(f, i);
        double *x = malloc((size_t)e->elements * sizeof *x);
        CHECK_OK(ndp_safetensors_read(f, e, 0, e->elements, x, NDP_F64, true));
        CHECK_OK(ndp_safetensors_write(w, i, 0, e->elements, x, NDP_F64));
        free(x);
    }
    CHECK_OK(ndp_safetensors_sync(w));
    ndp_safetensors_writer_destroy(w);
    CHECK_OK(ndp_safetensors_open(copy, &g));
    ndp_mapped a = {0}, b = {0};
    CHECK_OK(ndp_file_map(source, &a));
    CHECK_OK(ndp_file_map(copy, &b));
    assert_true(a.size > bytes && b.size > bytes);
    assert_memory_equal(a.data + a.size - bytes, b.data + b.size - bytes, bytes);
    ndp_file_unmap(&a);
    ndp_file_unmap(&b);
    ndp_safetensors_close(f);
    ndp_safetensors_close(g);
    free(list);
}

static void real_files(void **state) {
    static const char *const models[] = {"stories260K", "stories15M"};
    const char *data = getenv("NDP_TEST_DATA");
    if (!data) {
        print_message("NDP_TEST_DATA is not set: the story models are not read\n");
        skip();
    }
    for (int i = 0; i < NDP_COUNT(models); i++) {
        char path[512], copy[512];
        snprintf(path, sizeof path, "%s/models/%s/model.safetensors", data, models[i]);
        copy_and_compare(path, in(*state, models[i], copy));
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_headers),
        cmocka_unit_test(damaged_headers),
        IN_FOLDER(damaged_frames),
        cmocka_unit_test(every_cut_is_noticed),
        IN_FOLDER(round_trip),
        cmocka_unit_test(conversions_at_any_alignment),
        IN_FOLDER(non_finite_elements_are_named),
        IN_FOLDER(ranks_share_one_file),
        IN_FOLDER(refused_lists_and_writes),
        IN_FOLDER(no_room),
        IN_FOLDER(every_failed_write_is_told),
        IN_FOLDER(real_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
