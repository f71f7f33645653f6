/* Whole runs of a tiny model on a small text, in processes of their own, and what they leave behind. */
#ifndef TESTS_TRAIN_TINY_RUN_H
#define TESTS_TRAIN_TINY_RUN_H

#include "base/clock.h"
#include "base/text.h"
#include "check.h"
#include "job/job.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TINY_STEPS = 7 };

typedef struct tiny_layout {
    const char *name;
    int replicate, shard, cp, tp;
} tiny_layout;

static inline int tiny_ranks(const tiny_layout *l) { return l->replicate * l->shard * l->cp * l->tp; }

/* Another seed with each run of the program; $NDP_TEST_SEED repeats one. */
static inline uint64_t tiny_seed(void) {
    const char *text = getenv("NDP_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
    printf("seed %llu; NDP_TEST_SEED repeats it\n", (unsigned long long)seed);
    return seed;
}

/* ---- the job ---- */

static inline void tiny_put(const char *folder, const char *name, const char *text) {
    char *path = ndp_format("%s/%s", folder, name);
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(path);
}

/* cmocka: a folder with a model, a text and a job, as *state. The job starts whatever memory other processes leave at
 * the moment. */
static inline int tiny_make(void **state) {
    char *folder = strdup("/tmp/ndp-run-XXXXXX");
    ndp_str text = {0};
    *state = folder;
    if (!folder || !mkdtemp(folder))
        return -1;
    tiny_put(folder, "model.json",
             "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 258, "
             "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
             "\"intermediate_size\": 64, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "
             "\"tie_word_embeddings\": true, \"bos_token_id\": 256, \"eos_token_id\": 257}");
    for (int d = 0; d < 60; d++)
        ndp_str_addf(&text, "There were %d bears and %d foxes, and they shared %d apples.\n%s", d, 3 * d, d * d,
                     d % 4 == 3 ? "\n" : "");
    tiny_put(folder, "text.txt", text.data);
    ndp_str_release(&text);
    text = (ndp_str){0};
    ndp_str_addf(&text,
                 "model: {config: %s/model.json, init: random}\n"
                 "data: {files: [%s/text.txt], tokenizer: bytes, sequence_length: 32}\n"
                 "batch: {global_batch_size: 8}\n"
                 "schedule: {name: constant}\n"
                 "checkpoint: {every: 2, keep: 2}\n"
                 "train: {steps: %d, threads: 1, force_memory: true}\n",
                 folder, folder, TINY_STEPS);
    tiny_put(folder, "job.yaml", text.data);
    ndp_str_release(&text);
    return 0;
}

static inline int tiny_drop(void **state) {
    ndp_status st = ndp_folder_remove(*state);
    free(*state);
    return st == NDP_OK ? 0 : -1;
}

/* FOLDER/RUN and its cache. */
static inline void tiny_remove(const char *folder, const char *run) {
    char *path = ndp_format("%s/%s", folder, run), *cache = ndp_format("%s.cache", path);
    CHECK_OK(ndp_folder_remove(path));
    CHECK_OK(ndp_folder_remove(cache));
    free(path);
    free(cache);
}

__attribute__((format(printf, 2, 3))) static inline void tiny_set(ndp_config *c, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    CHECK_OK(ndp_config_set(c, text));
}

/* The job in FOLDER/RUN, on rank threads. The token cache is beside it, in FOLDER/RUN.cache. */
static inline ndp_config *tiny_configure(const char *folder, const tiny_layout *l, const char *run) {
    ndp_config *c;
    char *job = ndp_format("%s/job.yaml", folder);
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_read(c, job));
    free(job);
    tiny_set(c, "parallelism.dp_replicate_size=%d", l->replicate);
    tiny_set(c, "parallelism.dp_shard_size=%d", l->shard);
    tiny_set(c, "parallelism.cp_size=%d", l->cp);
    tiny_set(c, "parallelism.tp_size=%d", l->tp);
    tiny_set(c, "train.transport=local");
    tiny_set(c, "train.output_dir=%s/%s", folder, run);
    tiny_set(c, "data.cache_dir=%s/%s.cache", folder, run);
    return c;
}

/* ---- processes ---- */

/* Waits for a child: true with its status, or false after so many seconds. */
static inline bool tiny_wait(pid_t child, double seconds, int *status) {
    const struct timespec nap = {.tv_nsec = 500000};
    for (double end = ndp_now() + seconds; ndp_now() < end; nanosleep(&nap, NULL))
        if (waitpid(child, status, WNOHANG) == child)
            return true;
    return waitpid(child, status, WNOHANG) == child;
}

/* Waits so long and then kills it: its status. */
static inline int tiny_kill_after(pid_t child, double seconds) {
    int status;
    if (!tiny_wait(child, seconds, &status)) {
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    return status;
}

/* Its status; fails if it does not end. */
static inline int tiny_end(pid_t child, const char *what) {
    int status;
    if (!tiny_wait(child, HANGS, &status)) {
        kill(child, SIGKILL);
        fail_msg("%s: it hung for %d s", what, HANGS);
    }
    return status;
}

static inline bool tiny_was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

/* ---- the program ---- */

typedef struct tiny_job {
    const char *folder, *run;
    const tiny_layout *layout;
    const char *transport, *log; /* log: what it writes, in `folder` */
    bool resume;
    int steps, seed, every; /* 0: the job's; every: steps from one checkpoint to the next */
} tiny_job;

/* The words of a command line. */
typedef struct tiny_words {
    char *items[40];
    int n;
} tiny_words;

__attribute__((format(printf, 2, 3))) static inline void tiny_add(tiny_words *w, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    assert_true(w->n + 1 < NDP_COUNT(w->items) && vasprintf(&w->items[w->n++], fmt, args) >= 0);
    va_end(args);
}

/* Starts $NDP_PROGRAM on the job in a process of its own. */
static inline pid_t tiny_start(const tiny_job *j) {
    const char *names[] = {"dp_replicate", "dp_shard", "cp", "tp"};
    const int sizes[] = {j->layout->replicate, j->layout->shard, j->layout->cp, j->layout->tp};
    tiny_words w = {{0}, 0};
    tiny_add(&w, "%s", getenv("NDP_PROGRAM"));
    tiny_add(&w, "train");
    tiny_add(&w, "%s/job.yaml", j->folder);
    tiny_add(&w, "--transport=%s", j->transport);
    for (int i = 0; i < NDP_COUNT(sizes); i++)
        tiny_add(&w, "--set=parallelism.%s_size=%d", names[i], sizes[i]);
    tiny_add(&w, "--set=train.output_dir=%s/%s", j->folder, j->run);
    tiny_add(&w, "--set=data.cache_dir=%s/%s.cache", j->folder, j->run);
    if (j->steps)
        tiny_add(&w, "--set=train.steps=%d", j->steps);
    if (j->seed)
        tiny_add(&w, "--set=train.seed=%d", j->seed);
    if (j->every)
        tiny_add(&w, "--set=checkpoint.every=%d", j->every);
    if (j->resume)
        tiny_add(&w, "--resume");
    tiny_add(&w, "%s/%s", j->folder, j->log);
    char *log = w.items[--w.n];
    w.items[w.n] = NULL;
    pid_t child = fork();
    if (child == 0) {
        int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
        execv(w.items[0], w.items);
        _exit(127);
    }
    free(log);
    while (w.n)
        free(w.items[--w.n]);
    return child;
}

/* What it wrote; freed by the caller. */
static inline char *tiny_log(const tiny_job *j) {
    char *path = ndp_format("%s/%s", j->folder, j->log), *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    free(path);
    return text;
}

/* What this process writes to stderr goes to a file, until it is restored. */
static inline int tiny_redirect_stderr(const char *path) {
    fflush(stderr);
    int own = dup(STDERR_FILENO), file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(own >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    close(file);
    return own;
}

static inline void tiny_restore_stderr(int own) {
    dup2(own, STDERR_FILENO);
    close(own);
}

/* ---- what is there ---- */

static inline bool tiny_same_file(const char *a, const char *b) {
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    CHECK_OK(ndp_file_read(a, &x, &n));
    CHECK_OK(ndp_file_read(b, &y, &m));
    bool same = n == m && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

/* All safetensors of RUN/PART have the bits of REFERENCE/PART; at least one. */
static inline bool tiny_same_weights(const char *folder, const char *run, const char *reference, const char *part) {
    char own[512], other[512];
    int n = 0, same = 0;
    snprintf(other, sizeof other, "%s/%s/%s", folder, reference, part);
    DIR *d = opendir(other);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strstr(e->d_name, ".safetensors"))
            continue;
        snprintf(own, sizeof own, "%s/%s/%s/%s", folder, run, part, e->d_name);
        snprintf(other, sizeof other, "%s/%s/%s/%s", folder, reference, part, e->d_name);
        n++;
        same += ndp_path_exists(own) && tiny_same_file(own, other);
    }
    if (d)
        closedir(d);
    return n > 0 && same == n;
}

/* metrics.jsonl up to what depends on the clock, line by line; freed by the caller. */
static inline char *tiny_metrics(const char *folder, const char *run) {
    char *path = ndp_format("%s/%s/metrics.jsonl", folder, run), *text;
    size_t size;
    ndp_str out = {0};
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *end = strstr(line, ", \"tokens_per_second\"");
        if (!end)
            fail_msg("%s has the line '%s'", path, line);
        *end = '\0';
        ndp_str_addf(&out, "%s\n", line);
    }
    free(text);
    free(path);
    return ndp_str_detach(&out);
}

/* What the last call of tiny_count_left found first. */
static char tiny_left[512];
static int tiny_n_left;

static inline int tiny_note_left(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info, (void)type;
    const char *name = path + where->base;
    bool left = strstr(name, ".tmp") || strncmp(name, "lock", 4) == 0 || strncmp(name, "building-", 9) == 0;
    if (left && tiny_n_left++ == 0)
        snprintf(tiny_left, sizeof tiny_left, "%s", path);
    return 0;
}

static inline void tiny_nothing_left(const char *folder, const char *run, const char *ending, const char *what) {
    char *path = ndp_format("%s/%s%s", folder, run, ending);
    tiny_n_left = 0;
    nftw(path, tiny_note_left, 16, FTW_PHYS);
    if (tiny_n_left)
        fail_msg("%s: %d files are left over, such as %s", what, tiny_n_left, tiny_left);
    free(path);
}

/* A run that has ended well after `steps`: bits, losses, nothing left over. */
static inline void tiny_check_end(const char *folder, const char *run, const char *reference, int steps,
                                  const char *what) {
    char step[64];
    snprintf(step, sizeof step, "checkpoints/step-%08d", steps);
    const char *parts[] = {"model", step};
    for (int i = 0; i < NDP_COUNT(parts); i++)
        if (!tiny_same_weights(folder, run, reference, parts[i]))
            fail_msg("%s: %s has other bits than the run that was left alone", what, parts[i]);
    char *own = tiny_metrics(folder, run), *other = tiny_metrics(folder, reference);
    if (strcmp(own, other) != 0)
        fail_msg("%s: metrics.jsonl has\n%sexpected\n%s", what, own, other);
    free(own);
    free(other);
    tiny_nothing_left(folder, run, "", what);
    tiny_nothing_left(folder, run, ".cache", what);
}

#endif
