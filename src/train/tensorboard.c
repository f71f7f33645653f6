/* The tracker `tensorboard`: event files of TensorBoard, FOLDER/tb/events.out.tfevents.SECONDS.HOST.PROCESS.0, a file
 * for each start of a run. A file is a list of frames, each written at once:
 *
 *   u64 length, u32 masked CRC-32C of these 8 bytes, an Event as a protocol buffer, u32 masked CRC-32C of it
 *
 * The first Event has the version of the format, the second one says which step the run begins with, so that readers
 * drop the steps that a run before had written and lost; then comes the job as a text, then an Event for each step.
 * Readers take the files in the order of their names, so the seconds in a name are later than those of all others. */
#include "base/clock.h"
#include "base/crc32c.h"
#include "train/appended.h"
#include "train/metrics_file.h"
#include "train/tracker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tensorboard {
    ndp_appended file;
    ndp_str value, summary, event; /* reused by each step */
} tensorboard;

/* ---- protocol buffers ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(ndp_str *out, uint64_t v) {
    for (; v > 127; v >>= 7)
        ndp_str_add_bytes(out, &(unsigned char){(unsigned char)(v | 128)}, 1);
    ndp_str_add_bytes(out, &(unsigned char){(unsigned char)v}, 1);
}

static void put_key(ndp_str *out, int field, int type) { put_varint(out, (uint64_t)(field << 3 | type)); }

static void put_int(ndp_str *out, int field, int64_t v) {
    put_key(out, field, VARINT);
    put_varint(out, (uint64_t)v);
}

static void put_double(ndp_str *out, int field, double v) {
    put_key(out, field, FIXED64);
    ndp_str_add_bytes(out, &v, sizeof v);
}

static void put_float(ndp_str *out, int field, float v) {
    put_key(out, field, FIXED32);
    ndp_str_add_bytes(out, &v, sizeof v);
}

static void put_bytes(ndp_str *out, int field, const void *bytes, size_t n) {
    put_key(out, field, BYTES);
    put_varint(out, n);
    ndp_str_add_bytes(out, bytes, n);
}

static void put_string(ndp_str *out, int field, const char *text) { put_bytes(out, field, text, strlen(text)); }

/* ---- events ---- */

enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_NUMBER = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRINGS = 8, TYPE_STRING = 7 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };
static const char shape_of_one[] = "\x12\x02\x08\x01";         /* {dim: {size: 1}} */
static const char metadata_of_text[] = "\x0a\x06\x0a\x04text"; /* {plugin_data: {plugin_name: "text"}} */

static void add_frame(ndp_str *out, const void *event) {
    const ndp_str *e = event;
    const uint64_t length = e->length;
    const uint32_t crcs[] = {ndp_crc32c(&length, sizeof length), ndp_crc32c(e->data, e->length)};
    uint32_t masked[2];
    for (int i = 0; i < 2; i++)
        masked[i] = (crcs[i] >> 15 | crcs[i] << 17) + 0xa282ead8u;
    ndp_str_add_bytes(out, &length, sizeof length);
    ndp_str_add_bytes(out, &masked[0], sizeof masked[0]);
    ndp_str_add_bytes(out, e->data, e->length);
    ndp_str_add_bytes(out, &masked[1], sizeof masked[1]);
}

/* An event without its contents yet. `time`: seconds since 1970. */
static void begin_event(tensorboard *t, int64_t step, double time) {
    t->event.length = t->summary.length = 0;
    put_double(&t->event, EVENT_TIME, time);
    put_int(&t->event, EVENT_STEP, step);
}

static ndp_status write_event(tensorboard *t) {
    if (t->summary.length)
        put_bytes(&t->event, EVENT_SUMMARY, t->summary.data, t->summary.length);
    NDP_CHECK_MEMORY(!t->value.failed && !t->summary.failed && !t->event.failed, "for a record of %s", t->file.path);
    return ndp_appended_add(&t->file, add_frame, &t->event);
}

/* Numbers that a line of metrics.jsonl has as null are left out. */
static void add_scalar(void *user, const ndp_metric *one) {
    tensorboard *t = user;
    char tag[80];
    const double x = one->whole ? (double)one->count : one->x;
    if (!isfinite(x))
        return;
    snprintf(tag, sizeof tag, "%s/%s", one->held ? "eval" : "train", one->key);
    t->value.length = 0;
    put_string(&t->value, VALUE_TAG, tag);
    put_float(&t->value, VALUE_NUMBER, (float)x);
    put_bytes(&t->summary, SUMMARY_VALUE, t->value.data, t->value.length);
}

static ndp_status add_step(void *self, const ndp_metrics *m) {
    tensorboard *t = self;
    begin_event(t, m->step, m->time > 0 ? m->time : ndp_time());
    ndp_metrics_each(m, add_scalar, t);
    return write_event(t);
}

/* ---- the start of a file ---- */

/* Markdown, which shows indented lines as they are. */
static void add_indented(ndp_str *out, const char *text) {
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\n");
        n += text[n] == '\n';
        ndp_str_add(out, "    ");
        ndp_str_add_bytes(out, text, n);
    }
}

static void add_text(tensorboard *t, const char *tag, const char *text) {
    ndp_str shown = {0}, tensor = {0};
    add_indented(&shown, text);
    put_int(&tensor, TENSOR_TYPE, TYPE_STRING);
    put_bytes(&tensor, TENSOR_SHAPE, shape_of_one, sizeof shape_of_one - 1);
    put_bytes(&tensor, TENSOR_STRINGS, shown.data, shown.length);
    t->value.length = 0;
    put_string(&t->value, VALUE_TAG, tag);
    put_bytes(&t->value, VALUE_METADATA, metadata_of_text, sizeof metadata_of_text - 1);
    put_bytes(&t->value, VALUE_TENSOR, tensor.data, tensor.length);
    put_bytes(&t->summary, SUMMARY_VALUE, t->value.data, t->value.length);
    t->summary.failed |= shown.failed || tensor.failed;
    ndp_str_release(&shown);
    ndp_str_release(&tensor);
}

/* What cannot be written now is kept; the first step then says so. */
static ndp_status write_start(tensorboard *t, const char *folder, int64_t first) {
    char path[NDP_PATH], *job;
    size_t size;
    NDP_TRY(ndp_path_join(path, folder, "job.yaml"));
    NDP_TRY(ndp_file_read(path, &job, &size));
    put_double(&t->event, EVENT_TIME, ndp_time());
    put_string(&t->event, EVENT_VERSION, "brain.Event:2");
    (void)!write_event(t);
    static const char start[] = {SESSION_STATUS << 3 | VARINT, SESSION_START};
    begin_event(t, first, ndp_time());
    put_bytes(&t->event, EVENT_SESSION, start, sizeof start);
    (void)!write_event(t);
    begin_event(t, first, ndp_time());
    add_text(t, "job", job);
    (void)!write_event(t);
    free(job);
    return NDP_OK;
}

static const char stem[] = "events.out.tfevents.";

static ndp_status find_newest(void *newest, const char *folder, const char *name) {
    long long seconds;
    (void)folder;
    if (strncmp(name, stem, sizeof stem - 1) == 0 && sscanf(name + sizeof stem - 1, "%10lld.", &seconds) == 1 &&
        seconds > *(long long *)newest)
        *(long long *)newest = seconds;
    return NDP_OK;
}

/* The path of a new file, after all others of the folder in their order. */
static ndp_status choose_name(const char *folder, char **path) {
    char host[256] = "localhost";
    long long newest = 0, now = (long long)time(NULL);
    NDP_TRY(ndp_folder_create(folder));
    NDP_TRY(ndp_folder_visit(folder, find_newest, &newest));
    (void)!gethostname(host, sizeof host - 1);
    *path = ndp_format("%s/%s%010lld.%s.%d.0", folder, stem, now > newest ? now : newest + 1, host, (int)getpid());
    return NDP_OK;
}

static void close_file(void *self) {
    tensorboard *t = self;
    if (t->file.missing > 0)
        (void)!ndp_appended_flush(&t->file);
    ndp_appended_close(&t->file);
    ndp_str_release(&t->value);
    ndp_str_release(&t->summary);
    ndp_str_release(&t->event);
    free(t);
}

static ndp_status open_file(const char *folder, int64_t first, void **out) {
    char room[NDP_PATH], *path;
    *out = NULL;
    NDP_TRY(ndp_path_join(room, folder, "tb"));
    NDP_TRY(choose_name(room, &path));
    tensorboard *t = calloc(1, sizeof *t);
    if (!t) {
        free(path);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a tracker");
    }
    ndp_status st = ndp_appended_open(&t->file, path, "record", 0);
    if (st == NDP_OK)
        st = write_start(t, folder, first);
    if (st == NDP_OK)
        *out = t;
    else
        close_file(t);
    return st;
}

const ndp_tracker_kind ndp_tracker_tensorboard = {open_file, add_step, close_file};
