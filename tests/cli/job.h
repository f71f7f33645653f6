/* A job that trains a small random Llama: everything in one folder. */
#ifndef TESTS_CLI_JOB_H
#define TESTS_CLI_JOB_H

#include "cli/program.h"
#include "train/tiny_model.h"

#include <sys/stat.h>

static const char job_text[] = "model: {path: %s/model}\n"
                               "data: {files: [%s/data/corpus.jsonl], sequence_length: 32, cache_dir: %s/cache}\n"
                               "parallelism: {dp_shard_size: 2}\n"
                               "batch: {global_batch_size: 4}\n"
                               "train: {steps: 4, output_dir: %s/run, threads: 1, force_memory: true}\n"
                               "checkpoint: {every: 2}\n";

/* A path below `folder`; good for the next three calls. */
static inline const char *in(const char *folder, const char *name) {
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline void write_corpus(const char *folder) {
    ndp_str text = {0};
    for (int d = 0; d < 40; d++)
        ndp_str_addf(&text, "{\"text\": \"document %d is about %d apples and %d pears\"}\n", d, d * d, 7 * d);
    tiny_write(in(folder, "data"), "corpus.jsonl", text.data);
    ndp_str_release(&text);
}

/* cmocka: the folder, as *state; tiny_teardown removes it. */
static inline int make_job(void **state) {
    char *folder = strdup("/tmp/ndp-job-XXXXXX");
    assert_true(folder && mkdtemp(folder));
    *state = folder;
    assert_int_equal(mkdir(in(folder, "model"), 0700), 0);
    assert_int_equal(mkdir(in(folder, "data"), 0700), 0);
    tiny_write_config(in(folder, "model"), "null");
    tiny_write_tokenizer(in(folder, "model"), true);
    tiny_write_weights(in(folder, "model"), 3, NDP_F32);
    write_corpus(folder);
    char *job = ndp_format(job_text, folder, folder, folder, folder);
    tiny_write(folder, "job.yaml", job);
    free(job);
    return 0;
}

#endif
