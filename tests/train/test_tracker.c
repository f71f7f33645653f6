/* The tracker `tensorboard`: its files are read here by a reader of their own, frame by frame, with its own CRC-32C;
 * the numbers must be those of metrics.jsonl, also of a run that was resumed twice, and after a disk that was full. */
#include "train/tracker.h"

#include "base/crc32c.h"
#include "base/fault.h"
#include "base/json.h"
#include "train/metrics_file.h"
#include "train/started_run.h"
#include "train/tiny_run.h"

#include <math.h>

/* ---- CRC-32C ---- */

/* Bit by bit. */
static uint32_t slow_crc(const void *bytes, size_t n) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= ((const unsigned char *)bytes)[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* Of RFC 3720, appendix B.4, and the digits that all CRCs are known for. */
static void known_crcs(void **state) {
    (void)state;
    unsigned char bytes[4][32];
    static const uint32_t known[] = {0x8a9136aa, 0x62a8ab43, 0x46dd794e, 0x113fdb5c};
    for (int i = 0; i < 32; i++) {
        bytes[0][i] = 0;
        bytes[1][i] = 255;
        bytes[2][i] = (unsigned char)i;
        bytes[3][i] = (unsigned char)(31 - i);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(ndp_crc32c(bytes[i], 32), known[i]);
    assert_int_equal(ndp_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(ndp_crc32c("", 0), 0);
    for (size_t n = 0; n < 32; n++)
        assert_int_equal(ndp_crc32c(bytes[2], n), slow_crc(bytes[2], n));
}

/* ---- reading event files ---- */

typedef struct scalar {
    char tag[64];
    int64_t step;
    float value;
} scalar;

/* What a reader of TensorBoard has of a folder. */
typedef struct shown {
    scalar scalars[4096];
    int n, files, frames, starts;
    int64_t purged; /* scalars that a later file has made void */
    ndp_str job;
} shown;

/* A field of a protocol buffer. */
typedef struct field {
    int number, type;
    uint64_t value;            /* of a varint */
    const unsigned char *data; /* of the others */
    size_t n;
} field;

static uint64_t take_varint(const unsigned char **at, const unsigned char *end) {
    uint64_t v = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        v |= (uint64_t)(**at & 127) << shift;
        if (!(*(*at)++ & 128))
            return v;
    }
    fail_msg("a varint has no end");
    return 0;
}

static bool take_field(const unsigned char **at, const unsigned char *end, field *f) {
    if (*at == end)
        return false;
    uint64_t key = take_varint(at, end);
    *f = (field){.number = (int)(key >> 3), .type = (int)(key & 7)};
    if (f->type == 0) {
        f->value = take_varint(at, end);
        return true;
    }
    f->n = f->type == 1 ? 8 : f->type == 5 ? 4 : f->type == 2 ? take_varint(at, end) : SIZE_MAX;
    assert_true(f->n <= (size_t)(end - *at));
    f->data = *at;
    *at += f->n;
    return true;
}

static void read_value(shown *s, int64_t step, const field *value) {
    const unsigned char *at = value->data, *end = at + value->n;
    scalar *one = &s->scalars[s->n];
    bool text = false;
    assert_true(s->n < NDP_COUNT(s->scalars));
    *one = (scalar){.step = step};
    for (field f; take_field(&at, end, &f);) {
        if (f.number == 1 && f.type == 2)
            snprintf(one->tag, sizeof one->tag, "%.*s", (int)f.n, (const char *)f.data);
        else if (f.number == 2 && f.type == 5)
            memcpy(&one->value, f.data, sizeof one->value);
        else
            text = true;
        if (f.number == 8) { /* the tensor: its string is last */
            ndp_str_release(&s->job);
            ndp_str_add_bytes(&s->job, f.data, f.n);
        }
    }
    if (text)
        assert_string_equal(one->tag, "job");
    s->n += !text;
}

static void drop_from(shown *s, int64_t step) {
    int kept = 0;
    for (int i = 0; i < s->n; i++)
        if (s->scalars[i].step < step)
            s->scalars[kept++] = s->scalars[i];
    s->purged += s->n - kept;
    s->n = kept;
}

static void read_event(shown *s, const unsigned char *data, size_t n, bool first) {
    const unsigned char *at = data, *end = data + n;
    double time = 0;
    int64_t step = 0;
    for (field f; take_field(&at, end, &f);) {
        if (f.number == 1 && f.type == 1)
            memcpy(&time, f.data, sizeof time);
        else if (f.number == 2 && f.type == 0)
            step = (int64_t)f.value;
        else if (f.number == 3) {
            assert_true(first && f.n == 13 && memcmp(f.data, "brain.Event:2", 13) == 0);
        } else if (f.number == 7) {
            assert_true(f.n == 2 && memcmp(f.data, "\x08\x01", 2) == 0);
            s->starts++;
            drop_from(s, step);
        } else if (f.number == 5) {
            const unsigned char *in = f.data;
            for (field value; take_field(&in, f.data + f.n, &value);)
                read_value(s, step, &value);
        } else
            fail_msg("an event has field %d", f.number);
    }
    assert_true(fabs(time - ndp_clock_seconds(CLOCK_REALTIME)) < 3600);
}

static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

static void read_frames(shown *s, const char *path) {
    char *data;
    size_t size, at = 0;
    CHECK_OK(ndp_file_read(path, &data, &size));
    for (int frame = 0; at < size; frame++, s->frames++) {
        uint64_t n;
        uint32_t crc[2];
        assert_true(size - at >= 16);
        memcpy(&n, data + at, 8);
        memcpy(&crc[0], data + at + 8, 4);
        assert_true(n <= size - at - 16);
        memcpy(&crc[1], data + at + 12 + n, 4);
        assert_int_equal(crc[0], masked(slow_crc(data + at, 8)));
        assert_int_equal(crc[1], masked(slow_crc(data + at + 12, n)));
        read_event(s, (const unsigned char *)data + at + 12, n, frame == 0);
        at += 16 + n;
    }
    free(data);
    s->files++;
}

static ndp_status add_name(void *user, const char *folder, const char *name) {
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, folder, name));
    return name[0] == '.' ? NDP_OK : ndp_strings_add(user, path);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* FOLDER/tb, in the order of the names; the caller releases `job` and frees it. */
static shown *read_all(const char *folder) {
    shown *s = calloc(1, sizeof *s);
    ndp_strings names = {0};
    char *tb = ndp_format("%s/tb", folder);
    assert_non_null(s);
    CHECK_OK(ndp_folder_visit(tb, add_name, &names));
    qsort(names.items, (size_t)names.n, sizeof *names.items, by_name);
    for (int i = 0; i < names.n; i++)
        read_frames(s, names.items[i]);
    ndp_strings_release(&names);
    free(tb);
    return s;
}

static void drop(shown *s) {
    ndp_str_release(&s->job);
    free(s);
}

/* ---- a run ---- */

static void train(const ndp_config *c, int64_t from, int64_t fails) {
    run_started((started_run){c, from, fails, NDP_FAULT_APPEND});
}

static const scalar *find(const shown *s, const char *tag, int64_t step) {
    for (int i = 0; i < s->n; i++)
        if (s->scalars[i].step == step && strcmp(s->scalars[i].tag, tag) == 0)
            return &s->scalars[i];
    fail_msg("no %s of step %lld", tag, (long long)step);
    return NULL;
}

/* Every number of metrics.jsonl, and nothing else, each once. */
static void compare(const char *folder, const shown *s) {
    char *path = ndp_format("%s/metrics.jsonl", folder), *text;
    size_t size;
    int numbers = 0;
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct json_object *o = NULL;
        CHECK_OK(ndp_json_parse(line, strlen(line), path, &o));
        int64_t step = json_object_get_int64(json_object_object_get(o, "step"));
        json_object_object_foreach(o, key, value) {
            char tag[64];
            bool held = strncmp(key, "eval_", 5) == 0;
            if (strcmp(key, "step") == 0 || !value)
                continue;
            snprintf(tag, sizeof tag, "%s/%s", held ? "eval" : "train", held ? key + 5 : key);
            const float expected = (float)json_object_get_double(value);
            const scalar *got = find(s, tag, step);
            if (memcmp(&got->value, &expected, sizeof expected) != 0)
                fail_msg("%s of step %lld is %.9g, expected %.9g", tag, (long long)step, (double)got->value,
                         (double)expected);
            numbers++;
        }
        json_object_put(o);
    }
    assert_int_equal(s->n, numbers);
    free(text);
    free(path);
}

static ndp_config *configure(const char *folder, const char *run) {
    ndp_config *c = tiny_configure(folder, &(tiny_layout){"shard", 1, 2, 1, 1}, run);
    tiny_set(c, "data.validation_files=%s/text.txt", folder);
    tiny_set(c, "train.eval_every=2");
    tiny_set(c, "train.trackers=[tensorboard]");
    tiny_set(c, "checkpoint.keep=9");
    return c;
}

/* As a run is resumed from an older checkpoint, and when all is done; then as a killed run that has no line of its last
 * checkpoint. The bits are those of a run without a tracker. */
static void resumed(void **state) {
    const char *folder = *state;
    ndp_config *c = configure(folder, "run"), *alone = configure(folder, "alone");
    char *run = ndp_format("%s/run", folder);
    static const int64_t from[] = {-1, 4, 2, 0};
    int purged = 0;
    for (int i = 0; i < NDP_COUNT(from); i++) {
        train(c, from[i], 0);
        shown *s = read_all(run);
        assert_int_equal(s->files, i + 1);
        assert_int_equal(s->starts, i + 1);
        assert_non_null(memmem(s->job.data, s->job.length, "    train:\n", 11));
        assert_true(from[i] <= 0 || s->purged > purged);
        purged = (int)s->purged;
        compare(run, s);
        drop(s);
    }
    tiny_set(alone, "train.trackers=[]");
    train(alone, -1, 0);
    assert_true(tiny_same_weights(folder, "run", "alone", "model"));
    char *tb = ndp_format("%s/alone/tb", folder);
    assert_false(ndp_path_exists(tb));
    free(tb);
    free(run);
    ndp_config_destroy(alone);
    ndp_config_destroy(c);
}

/* The line of the step that was saved last is lost: it is written again, with the tracker's numbers of it. */
static void lost_line(void **state) {
    const char *folder = *state;
    ndp_config *c = configure(folder, "lost");
    char *run = ndp_format("%s/lost", folder), *path = ndp_format("%s/metrics.jsonl", run), *text;
    size_t size;
    train(c, -1, 0);
    CHECK_OK(ndp_file_read(path, &text, &size));
    text[size - 1] = '\0';
    char *last = strrchr(text, '\n');
    assert_non_null(last);
    CHECK_OK(ndp_file_write_atomic(path, text, (size_t)(last + 1 - text)));
    train(c, 0, 0);
    shown *s = read_all(run);
    compare(run, s);
    assert_true(s->purged > 0);
    drop(s);
    free(text);
    free(path);
    free(run);
    ndp_config_destroy(c);
}

/* ---- a disk that is full ---- */

/* A write that fails in the middle of a run, and the last one, which is tried again when the run ends. */
static void full_disk_in_a_run(void **state) {
    static const int64_t fails[] = {3, TINY_STEPS - 1};
    for (int i = 0; i < NDP_COUNT(fails); i++) {
        char *name = ndp_format("full-%d", i), *run = ndp_format("%s/%s", (const char *)*state, name);
        ndp_config *c = configure(*state, name);
        train(c, -1, fails[i]);
        shown *s = read_all(run);
        compare(run, s);
        assert_int_equal(s->frames, 3 + TINY_STEPS);
        drop(s);
        ndp_config_destroy(c);
        free(run);
        free(name);
    }
}

static ndp_tracker *open_alone(const char *folder) {
    ndp_tracker *t = NULL;
    ndp_strings names = {0};
    CHECK_OK(ndp_strings_add(&names, "tensorboard"));
    CHECK_OK(ndp_strings_add(&names, "tensorboard")); /* is one */
    tiny_put(folder, "job.yaml", "a: 1\n");
    CHECK_OK(ndp_tracker_open(&names, folder, 1, &t));
    ndp_strings_release(&names);
    return t;
}

static void add_step(ndp_tracker *t, int64_t step, ndp_status expected) {
    ndp_metrics m = {.step = step, .loss = 1.5, .grad_norm = NAN, .eval_tokens = 3, .eval_loss = INFINITY};
    m.pair = (ndp_pair_metrics){.pairs = 2, .margin = (double)step, .accuracy = NAN, .nll = NAN, .kl = NAN};
    m.eval_pair = m.pair;
    assert_int_equal(ndp_tracker_add(t, &m), expected);
}

/* What failed is written with a later step, and no frame is torn; NaN and infinity are left out. */
static void full_disk(void **state) {
    char *folder = ndp_format("%s/full", (const char *)*state);
    CHECK_OK(ndp_folder_create(folder));
    ndp_tracker *t = open_alone(folder);
    add_step(t, 1, NDP_OK);
    ndp_fault_arm(NDP_FAULT_APPEND, 1);
    add_step(t, 2, NDP_EIO);
    add_step(t, 3, NDP_OK);
    ndp_fault_arm_from(NDP_FAULT_APPEND, 1);
    add_step(t, 4, NDP_EIO);
    add_step(t, 5, NDP_EIO);
    shown *s = read_all(folder);
    assert_int_equal(s->frames, 3 + 3);
    drop(s);
    ndp_fault_arm(NDP_FAULT_APPEND, 0);
    ndp_tracker_close(t);
    s = read_all(folder);
    assert_int_equal(s->frames, 3 + 5);
    assert_true(find(s, "train/rewards/margins", 4)->value == 4 && find(s, "eval/rewards/margins", 5)->value == 5);
    assert_true(find(s, "train/loss", 2)->value == 1.5F && find(s, "eval/pairs", 2)->value == 2);
    for (int i = 0; i < s->n; i++)
        assert_true(isfinite(s->scalars[i].value));
    drop(s);
    ndp_tracker_close(NULL);
    CHECK_OK(ndp_tracker_add(NULL, &(ndp_metrics){0}));
    free(folder);
}

/* A file of this process follows one that a clock of tomorrow has named. */
static void later_names(void **state) {
    char *folder = ndp_format("%s/names", (const char *)*state), *tb = ndp_format("%s/tb", folder);
    CHECK_OK(ndp_folder_create(tb));
    ndp_strings names = {0};
    tiny_put(tb, "events.out.tfevents.4000000000.other.1.0", "");
    for (int i = 0; i < 2; i++)
        ndp_tracker_close(open_alone(folder));
    CHECK_OK(ndp_folder_visit(tb, add_name, &names));
    qsort(names.items, (size_t)names.n, sizeof *names.items, by_name);
    assert_int_equal(names.n, 3);
    assert_non_null(strstr(names.items[1], "tfevents.4000000001."));
    assert_non_null(strstr(names.items[2], "tfevents.4000000002."));
    ndp_strings_release(&names);
    free(tb);
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_crcs), cmocka_unit_test(resumed),
                                       cmocka_unit_test(lost_line),  cmocka_unit_test(full_disk_in_a_run),
                                       cmocka_unit_test(full_disk),  cmocka_unit_test(later_names)};
    return cmocka_run_group_tests(tests, tiny_make, tiny_drop);
}
