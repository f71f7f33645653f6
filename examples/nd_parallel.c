/* ND-parallel training with libndparallel: a model on a mesh of four sizes, whose product is the number of ranks.
 *
 *     nd_parallel MODEL DATA [DP_REPLICATE DP_SHARD CP TP]
 *
 * MODEL is a Hugging Face folder, or a config.json for random weights; DATA is text, or JSONL. Alone, the program runs
 * its ranks as threads; started by `ndparallel launch -n N -- nd_parallel ...`, mpirun or srun, it is one of N ranks.
 * The loss is the same on every layout. The trained model is written to ./nd_parallel_model.
 */
#include <ndparallel/ndparallel.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 20 };

typedef struct job {
    ndp_config *config;
    atomic_bool begun; /* a rank of this process has met the others */
} job;

static void print_error(void) { fprintf(stderr, "nd_parallel: %s\n", ndp_error_message()); }

/* The settings: all that is not said has a default, which `ndparallel config` lists. */
static ndp_status configure(ndp_config *c, int argc, char **argv) {
    static const char *const axes[] = {"dp_replicate", "dp_shard", "cp", "tp"};
    bool facts = strlen(argv[1]) > 5 && strcmp(argv[1] + strlen(argv[1]) - 5, ".json") == 0;
    ndp_status st = ndp_config_setf(c, "model.%s=\"%s\"", facts ? "config" : "path", argv[1]);
    if (st == NDP_OK)
        st = ndp_config_setf(c, "data.files=\"%s\"", argv[2]);
    for (int i = 0; i < 4 && argc == 7 && st == NDP_OK; i++)
        st = ndp_config_setf(c, "parallelism.%s_size=%s", axes[i], argv[3 + i]);

    static const char *const settings[] = {
        "data.sequence_length=128", "batch.global_batch_size=16", /* rows of all ranks together: what the layout does
                                                                     not change */
        "optimizer.name=adamw",     "optimizer.lr=1e-3",          "schedule.warmup_steps=5",
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0] && st == NDP_OK; i++)
        st = ndp_config_set(c, settings[i]);
    return st == NDP_OK ? ndp_config_setf(c, "train.steps=%d", STEPS) : st;
}

/* The loop. All ranks make the same calls; rank 0 prints. */
static ndp_status run(ndp_trainer *t, bool first) {
    for (int i = 0; i < STEPS; i++) {
        ndp_metrics m;
        ndp_status st = ndp_trainer_step(t, &m); /* next batch, forward, backward, clipping, update */
        if (st != NDP_OK)
            return st;
        if (first)
            printf("step %2lld  loss %.4f  grad_norm %.3f  lr %.2e  %.0f tokens/s\n", (long long)m.step, m.loss,
                   m.grad_norm, m.lr, m.tokens_per_second);
    }
    return ndp_trainer_export(t, "nd_parallel_model"); /* whole tensors in a Hugging Face folder, each rank its part */
}

/* What each rank does. */
static ndp_status train(ndp_world *world, void *arg) {
    job *j = arg;
    bool first = ndp_world_rank(world) == 0;
    ndp_trainer *t = NULL; /* this rank's part of model, optimizer and data */
    j->begun = true;
    ndp_status st = ndp_trainer_create(j->config, world, &t);
    if (st == NDP_OK && first)
        printf("training on %d ranks\n", ndp_world_size(world));
    if (st == NDP_OK)
        st = run(t, first);
    if (st != NDP_OK && ndp_world_fail(world)) /* the others fail for this reason, and keep still */
        print_error();
    ndp_trainer_destroy(t);
    return st;
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 7) {
        fprintf(stderr, "usage: nd_parallel MODEL DATA [DP_REPLICATE DP_SHARD CP TP]\n");
        return 2;
    }
    job j = {0};
    ndp_status st = ndp_config_create(&j.config);
    if (st == NDP_OK)
        st = configure(j.config, argc, argv);
    if (st == NDP_OK)
        st = ndp_world_run(j.config, train, &j);
    if (st != NDP_OK && !j.begun)
        print_error();
    ndp_config_destroy(j.config);
    return st == NDP_OK ? 0 : 1;
}
