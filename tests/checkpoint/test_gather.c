/* Tensors cut by columns, by rows, transposed and unevenly over ranks, written in whole chunks: the files are those of
 * one rank, byte for byte, in a few large writes. */
#include "checkpoint/background.h"
#include "checkpoint/files.h"

#include <fcntl.h>
#include <pthread.h>

/* The first two have several chunks, the last but one is cut by columns of 2 bytes. */
static const ndp_tensor_spec tensors[] = {
    {"model.embed.weight", NDP_F32, 2, {1531, 1024}, NULL},
    {"model.down.weight", NDP_F32, 2, {1024, 1229}, NULL},
    {"model.norm.weight", NDP_F32, 1, {1023}, NULL},
    {"model.empty.weight", NDP_F32, 2, {0, 4}, NULL},
    {"lm_head.weight", NDP_BF16, 2, {63, 129}, NULL},
    {"optimizer.m.model.up.weight", NDP_F32, 2, {129, 257}, NULL},
};
enum { TENSORS = NDP_COUNT(tensors) };

typedef enum cut { ROWS, COLUMNS, TRANSPOSED, FLAT, CUTS } cut;

typedef struct job {
    const char *folder;
    cut cut;
    int64_t *calls; /* of the system, to write: of all ranks */
    pthread_mutex_t *lock;
    enum { SAVED, BEHIND, EXPORTED } way; /* behind: in the background */
} job;

static int64_t rows_of(const ndp_tensor_spec *t) { return t->ndim == 1 ? 1 : t->shape[0]; }
static int64_t cols_of(const ndp_tensor_spec *t) { return t->shape[t->ndim - 1]; }

static float value(int t, int64_t i) { return (float)((i * 2654435761u + (uint64_t)t * 977) % 100003) - 50000.f; }

static int64_t border(int64_t n, int rank, int world) { return rank * n / world; }

/* A rank's rectangle of a tensor, in memory of its own, and its pieces. TRANSPOSED: kept by columns. */
typedef struct holding {
    float *data[TENSORS];
    ndp_file_piece *pieces;
    int n;
} holding;

static void add_piece(holding *h, int t, int64_t first, int64_t count, const float *from, int64_t stride) {
    if (count)
        h->pieces[h->n++] = (ndp_file_piece){t, first, count, from, NDP_F32, stride, NULL, 0};
}

static void hold_rectangle(holding *h, int t, cut c, int rank, int world) {
    int64_t rows = rows_of(&tensors[t]), cols = cols_of(&tensors[t]);
    int64_t row = c == ROWS ? border(rows, rank, world) : 0, row_end = c == ROWS ? border(rows, rank + 1, world) : rows;
    int64_t col = c == ROWS ? 0 : border(cols, rank, world), col_end = c == ROWS ? cols : border(cols, rank + 1, world);
    int64_t height = row_end - row, width = col_end - col;
    for (int64_t r = 0; r < height; r++) {
        for (int64_t k = 0; k < width; k++)
            h->data[t][c == TRANSPOSED ? k * height + r : r * width + k] = value(t, (row + r) * cols + col + k);
        add_piece(h, t, (row + r) * cols + col, width, h->data[t] + (c == TRANSPOSED ? r : r * width),
                  c == TRANSPOSED ? height : 1);
    }
}

static void hold_range(holding *h, int t, int rank, int world) {
    int64_t n = ndp_tensor_elements(&tensors[t]), first = border(n, rank, world), end = border(n, rank + 1, world);
    for (int64_t i = first; i < end; i++)
        h->data[t][i - first] = value(t, i);
    add_piece(h, t, first, end - first, h->data[t], 0);
}

static ndp_status hold(holding *h, cut c, int rank, int world) {
    h->pieces = calloc(10000, sizeof *h->pieces);
    for (int t = 0; t < TENSORS; t++) {
        h->data[t] = malloc(((size_t)ndp_tensor_elements(&tensors[t]) + 1) * sizeof(float));
        if (!h->data[t] || !h->pieces)
            return NDP_FAIL(NDP_ENOMEM, "not enough memory for the test");
        if (c == FLAT)
            hold_range(h, t, rank, world);
        else
            hold_rectangle(h, t, c, rank, world);
    }
    return NDP_OK;
}

static void let_go(holding *h) {
    for (int t = 0; t < TENSORS; t++)
        free(h->data[t]);
    free(h->pieces);
}

/* Write calls that this thread has made. */
static int64_t write_calls(void) {
    char text[512] = "";
    int fd = open("/proc/thread-self/io", O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    const char *at = n > 0 ? strstr(text, "syscw: ") : NULL;
    return at ? strtoll(at + 7, NULL, 10) : -1;
}

static ndp_status save_held(const job *j, ndp_comm *world, const holding *h) {
    ndp_checkpoint_info info = {.step = 1};
    const ndp_save_request r = {j->folder, info, tensors, h->pieces, TENSORS, h->n, 0, NDP_SHARD_BYTES};
    ndp_save_cost cost;
    if (j->way == BEHIND)
        return save_in_background(world, &r, true, &cost);
    if (j->way == EXPORTED)
        return ndp_weights_save(world, NULL, j->folder, tensors, TENSORS, h->pieces, h->n, 4000000);
    return ndp_checkpoint_save(world, j->folder, &info, tensors, TENSORS, h->pieces, h->n, 0, NDP_SHARD_BYTES, NULL);
}

static ndp_status body(ndp_transport *t, void *arg) {
    job *j = arg;
    holding h = {0};
    ndp_comm *world = NULL;
    int rank = ndp_transport_rank(t), ranks = ndp_transport_world(t);
    NDP_TRY(ndp_comm_create(t, (ndp_group){0, 1, ranks, rank}, "world", &world));
    ndp_status st = hold(&h, j->cut, rank, ranks);
    int64_t before = write_calls();
    if (st == NDP_OK)
        st = save_held(j, world, &h);
    pthread_mutex_lock(j->lock);
    *j->calls += write_calls() - before;
    pthread_mutex_unlock(j->lock);
    let_go(&h);
    ndp_comm_destroy(world);
    return st;
}

/* Saves and returns the write calls. */
static int64_t run(const char *folder, cut c, int ranks, int way) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int64_t calls = 0;
    job j = {folder, c, &calls, &lock, way};
    CHECK_OK(ndp_local_world(ranks, body, &j));
    return calls;
}

static void want_equal(const char *folder, const char *other, const char *name) {
    char path[512];
    ndp_mapped a = {0}, b = {0};
    CHECK_OK(ndp_file_map(in(folder, name, path), &a));
    CHECK_OK(ndp_file_map(in(other, name, path), &b));
    if (a.size != b.size || memcmp(a.data, b.data, a.size) != 0)
        fail_msg("%s of '%s' and '%s' differ", name, folder, other);
    ndp_file_unmap(&a);
    ndp_file_unmap(&b);
}

/* The elements are what they should be, whichever rank wrote them. */
static void want_values(const char *folder) {
    ndp_checkpoint *c = NULL;
    CHECK_OK(ndp_checkpoint_open(folder, 1, &c));
    CHECK_OK(ndp_checkpoint_check(c, tensors, TENSORS));
    for (int t = 0; t < TENSORS; t++) {
        int64_t n = ndp_tensor_elements(&tensors[t]);
        float *x = malloc(((size_t)n + 1) * sizeof *x), want;
        CHECK_OK(ndp_checkpoint_read(c, tensors[t].name, 0, n, x, NDP_F32));
        for (int64_t i = 0; i < n; i++) {
            uint16_t rounded;
            want = value(t, i);
            if (tensors[t].dtype == NDP_BF16) {
                ndp_convert(&want, NDP_F32, &rounded, NDP_BF16, 1);
                ndp_convert(&rounded, NDP_BF16, &want, NDP_F32, 1);
            }
            if (x[i] != want)
                fail_msg("%s[%lld] is %g, expected %g", tensors[t].name, (long long)i, x[i], want);
        }
        free(x);
    }
    ndp_checkpoint_close(c);
}

/* Files and manifest: the chunks are also those of one rank, and so are those of a background save. */
static void every_cut_writes_the_same_files(void **state) {
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "manifest.json"};
    static const int worlds[] = {2, 3, 5, 8};
    char one[512], other[512], step[2][512];
    run(in(*state, "one", one), FLAT, 1, SAVED);
    want_values(one);
    for (int k = 0; k < 2 * CUTS; k++)
        for (int w = 0; w < NDP_COUNT(worlds); w++) {
            run(in(*state, "other", other), (cut)(k / 2), worlds[w], k % 2 ? BEHIND : SAVED);
            for (int f = 0; f < NDP_COUNT(files); f++)
                want_equal(in(one, "step-00000001", step[0]), in(other, "step-00000001", step[1]), files[f]);
            ndp_examined e;
            CHECK_OK(ndp_checkpoint_examine(NULL, other, 1, true, 2, &e));
            assert_int_equal(e.state, NDP_CHECKPOINT_VERIFIED);
            CHECK_OK(ndp_folder_remove(other));
        }
}

static void exports_too(void **state) {
    static const char *const files[] = {"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors",
                                        "model.safetensors.index.json"};
    char one[512], other[512];
    run(in(*state, "one", one), FLAT, 1, EXPORTED);
    run(in(*state, "other", other), COLUMNS, 3, EXPORTED);
    for (int f = 0; f < NDP_COUNT(files); f++)
        want_equal(one, other, files[f]);
}

/* 11.5 MB in 7 chunks, whose rows would be thousands of writes. */
static void few_writes(void **state) {
    enum { CHUNKS = 2 + 2 + 1 + 1 + 1, OTHERS = 3 }; /* two headers and the manifest */
    char folder[512];
    if (write_calls() < 0 || EMULATED) {
        print_message("/proc/thread-self/io is not there, or counts qemu's: writes are not counted\n");
        skip();
    }
    for (int c = 0; c < CUTS; c++) {
        int64_t calls = run(in(*state, "few", folder), (cut)c, 4, SAVED);
        print_message("cut %d: %lld writes\n", c, (long long)calls);
        assert_in_range(calls, CHUNKS, CHUNKS + OTHERS);
        CHECK_OK(ndp_folder_remove(folder));
    }
}

/* Two ranks that give the same elements while others are given by none are an error, although the counts are right. */
static ndp_status overlapping_body(ndp_transport *t, void *arg) {
    enum { HALF = 1 << 20 };
    const ndp_tensor_spec spec = {"w", NDP_F32, 1, {2 * HALF}, NULL};
    const ndp_checkpoint_info info = {.step = 1};
    ndp_comm *world = NULL;
    NDP_TRY(ndp_comm_create(t, (ndp_group){0, 1, 2, ndp_transport_rank(t)}, "world", &world));
    float *half = calloc(HALF, sizeof *half);
    ndp_file_piece piece = {0, 0, HALF, half, NDP_F32, 1, NULL, 0};
    ndp_status st = ndp_checkpoint_save(world, arg, &info, &spec, 1, &piece, 1, 0, NDP_SHARD_BYTES, NULL);
    free(half);
    ndp_comm_destroy(world);
    return st;
}

static void elements_given_twice(void **state) {
    CHECK_FAILS(ndp_local_world(2, overlapping_body, *state), NDP_EBUG, "tensor w: no rank gave element 1048576");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(every_cut_writes_the_same_files),
        IN_FOLDER(exports_too),
        IN_FOLDER(few_writes),
        IN_FOLDER(elements_given_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
