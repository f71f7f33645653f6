/* KTO against TRL's trainer (tests/golden/README.md, kto): losses, gradient norms, the estimate of the KL divergence,
 * rewards and log-probabilities of a whole job, from records to steps; on one rank with several sizes of micro-batch,
 * and on every axis. And what the answers of an update are compared with, in runs that are resumed or longer. */
#include "train/golden.h"

#include "base/json.h"
#include "job/job.h"
#include "train/trainer.h"

#include <ftw.h>
#include <math.h>

typedef struct kto_case {
    const char *name;
    struct json_object *json, *book;
    const ndp_config *config;
    double worst;
} kto_case;

static double number(struct json_object *o, const char *key, double missing) {
    struct json_object *value;
    return json_object_object_get_ex(o, key, &value) ? json_object_get_double(value) : missing;
}

/* TRL computes in fp32, and leaves out means over no answers. */
static void check_step(kto_case *c, const ndp_metrics *m) {
    struct json_object *want =
        json_object_array_get_idx(json_object_object_get(c->json, "updates"), (size_t)m->step - 1);
    const struct {
        const char *key;
        double have;
    } numbers[] = {{"loss", m->loss},
                   {"grad_norm", m->grad_norm},
                   {"kl", m->pair.kl},
                   {"rewards/chosen", m->pair.reward_chosen},
                   {"rewards/rejected", m->pair.reward_rejected},
                   {"logps/chosen", m->pair.logp_chosen},
                   {"logps/rejected", m->pair.logp_rejected}};
    assert_int_equal(m->pair.pairs, 8);
    assert_true(isnan(m->pair.accuracy));
    for (int i = 0; i < NDP_COUNT(numbers); i++) {
        double expected = number(want, numbers[i].key, NAN), off = fabs(numbers[i].have - expected);
        if (isnan(expected) && isnan(numbers[i].have))
            continue;
        off /= 1 + fabs(expected);
        c->worst = off > c->worst ? off : c->worst;
        if (!(off <= 2e-4))
            fail_msg("%s, step %lld: %s is %.9g, TRL has %.9g", c->name, (long long)m->step, numbers[i].key,
                     numbers[i].have, expected);
    }
}

static ndp_status train(ndp_world *w, void *arg) {
    kto_case *c = arg;
    ndp_trainer *t;
    NDP_TRY(ndp_trainer_open(c->config, w, &(ndp_rank_opts){0}, &t));
    ndp_status st = NDP_OK;
    for (int step = 0; step < 6 && st == NDP_OK; step++) {
        ndp_metrics m;
        st = ndp_trainer_step(t, &m);
        if (st == NDP_OK && ndp_comm_rank(t->rank.world) == 0)
            check_step(c, &m);
    }
    if (st == NDP_OK && ndp_trainer_needs_weights(t) && ndp_trainer_step(t, NULL) == NDP_OK) /* the reference ends */
        st = NDP_FAIL(NDP_EBUG, "a step beyond the last one");
    ndp_trainer_destroy(t);
    return st;
}

static ndp_config *configure(const kto_case *c, const char *cache, const char *layout) {
    char folder[1024];
    ndp_config *o;
    golden_folder("kto", folder, sizeof folder);
    CHECK_OK(ndp_config_create(&o));
    char *text = ndp_format(
        "model: {path: %1$s}\n"
        "data: {files: [%1$s/%2$s.jsonl], format: preference, tokenizer: bytes, shuffle: false, sequence_length: 40,\n"
        "       cache_dir: %3$s}\n"
        "loss: {name: kto, variant: %7$s, beta: %4$g, desirable_weight: %5$g, undesirable_weight: %6$g}\n"
        "batch: {global_batch_size: 8, micro_batch_size: 8}\n"
        "optimizer: {lr: 1.0e-3, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1, max_grad_norm: 1.0}\n"
        "schedule: {name: constant, warmup_steps: 0}\n"
        "train: {steps: 6, threads: 1, device: cpu}\n",
        folder, c->name, cache, number(c->json, "beta", 0), number(c->json, "desirable_weight", 1),
        number(c->json, "undesirable_weight", 1),
        json_object_object_get_ex(c->json, "loss_type", NULL) ? "apo_zero" : "sigmoid");
    CHECK_OK(ndp_config_parse(o, text, strlen(text), "job"));
    char *words = strdup(layout), *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        CHECK_OK(ndp_config_set(o, word));
    free(words);
    free(text);
    return o;
}

static int remove_one(const char *path, const struct stat *unused, int type, struct FTW *walk) {
    (void)unused, (void)type, (void)walk;
    return remove(path);
}

static void as_trl(void **state) {
    (void)state;
    static const char *const layouts[] = {"",
                                          "batch.micro_batch_size=1",
                                          "batch.micro_batch_size=4 parallelism.dp_shard_size=2",
                                          "batch.micro_batch_size=2 parallelism.dp_replicate_size=2",
                                          "batch.micro_batch_size=4 parallelism.cp_size=2",
                                          "batch.micro_batch_size=8 parallelism.sp_size=2",
                                          "batch.micro_batch_size=2 parallelism.tp_size=2",
                                          "batch.micro_batch_size=1 parallelism.pp_size=2",
                                          "batch.micro_batch_size=2 parallelism.tp_size=2 parallelism.dp_shard_size=2"};
    char path[1100], folder[1024], cache[] = "/tmp/ndp-kto-XXXXXX";
    struct json_object *book;
    assert_non_null(mkdtemp(cache));
    snprintf(path, sizeof path, "%s/cases.json", golden_folder("kto", folder, sizeof folder));
    CHECK_OK(ndp_json_read(path, &book));
    json_object_object_foreach(json_object_object_get(book, "cases"), name, json) {
        kto_case c = {.name = name, .json = json, .book = book};
        for (int i = 0; i < NDP_COUNT(layouts); i++) {
            if (i > 0 && left_out())
                continue;
            ndp_config *o = configure(&c, cache, layouts[i]);
            c.config = o;
            CHECK_OK(ndp_world_run(o, train, &c));
            ndp_config_destroy(o);
        }
        printf("%-10s off by %.2g\n", name, c.worst);
    }
    json_object_put(book);
    nftw(cache, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_trl)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
