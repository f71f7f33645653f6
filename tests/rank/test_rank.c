/* One rank of a job: what it opens to train and to evaluate, and what it refuses before it takes memory or makes a
 * cache. */
#include "checkpoint/agree.h"
#include "train/resumes.h"

#include <dirent.h>

typedef struct opened {
    const ndp_config *config;
    ndp_rank_opts opts;
    const char *refused; /* NULL: it opens */
    int ranks;
    int64_t rows, held;
    ndp_batch_shape shape;
    ndp_hash128 base;
    int met; /* ranks that came to the barrier */
} opened;

static ndp_status open_rank(ndp_world *w, void *arg) {
    opened *o = arg;
    ndp_rank r;
    __atomic_fetch_add(&o->met, 1, __ATOMIC_SEQ_CST);
    NDP_TRY(ndp_world_barrier(w));
    assert_int_equal(__atomic_load_n(&o->met, __ATOMIC_SEQ_CST), ndp_world_size(w));
    ndp_status st = ndp_rank_open(o->config, w, &o->opts, &r);
    if (o->refused) {
        if (st == NDP_OK)
            fail_msg("it opened, expected: %s", o->refused);
        if (!strstr(ndp_error_message(), o->refused))
            fail_msg("'%s' does not say '%s'", ndp_error_message(), o->refused);
        return NDP_OK;
    }
    NDP_TRY(st);
    if (ndp_is_first(r.world)) {
        o->ranks = ndp_comm_size(r.world);
        o->rows = r.data.dataset ? ndp_dataset_rows(r.data.dataset) : -1;
        o->held = r.data.held ? ndp_dataset_rows(r.data.held) : -1;
        o->shape = r.feed.shape;
        st = ndp_rank_hash_unsaved(&r);
        o->base = r.base;
    }
    assert_true(r.planned.programs > 0 && r.planned_gpu == 0 && r.feed.whole.tokens && r.feed.whole.rows == r.job.model.rows);
    ndp_rank_close(&r);
    return st;
}

/* `sets` end with NULL. */
static opened open_job(const char *folder, int base, const char *const *sets, ndp_rank_opts opts, const char *refused) {
    ndp_config *c = configure(folder, base, "none");
    for (; *sets; sets++)
        set(c, folder, *sets);
    opened o = {.config = c, .opts = opts, .refused = refused};
    CHECK_OK(ndp_world_run(c, open_rank, &o));
    ndp_config_destroy(c);
    o.config = NULL;
    return o;
}

static void rows_and_shapes(void **state) {
    static const char *const train[] = {"parallelism.dp_shard_size=2", NULL};
    opened all = open_job(*state, COSINE, train, (ndp_rank_opts){0}, NULL);
    assert_int_equal(all.ranks, 2);
    assert_int_equal(all.shape.data_ranks, 2);
    assert_true(all.rows > 0 && all.held > 0 && all.shape.global % (all.shape.micro * 2) == 0);
    /* only what is held out; nothing; and a run that holds nothing out has nothing to evaluate */
    opened held = open_job(*state, COSINE, train, (ndp_rank_opts){.forward_only = true}, NULL);
    assert_true(held.rows == -1 && held.held == all.held);
    opened none = open_job(*state, COSINE, train, (ndp_rank_opts){.no_data = true}, NULL);
    assert_true(none.rows == -1 && none.held == -1);
    open_job(*state, COSINE, (const char *const[]){"data.validation_files=[]", "train.eval_every=0", NULL},
             (ndp_rank_opts){.forward_only = true}, "there is no held-out data");
}

/* Memory is compared before texts are tokenized: the folder of the cache stays empty. */
static void too_much_memory(void **state) {
    static const char *const sets[] = {"data.cache_dir=@/unused",         "data.sequence_length=200",
                                       "batch.micro_batch_size=10000000", "batch.global_batch_size=10000000",
                                       "train.force_memory=false",        NULL};
    open_job(*state, COSINE, sets, (ndp_rank_opts){0}, "Lower batch.micro_batch_size or data.sequence_length");
    char *path = ndp_format("%s/unused", (char *)*state);
    DIR *d = opendir(path);
    if (d)
        fail_msg("it made %s", path);
    free(path);
}

/* Weights that steps read and no checkpoint has: by their contents, wherever they lie. */
static void what_no_checkpoint_holds(void **state) {
    char *command = ndp_format("cp -r %1$s/model %1$s/moved", (char *)*state);
    assert_int_equal(system(command), 0);
    free(command);
    static const ndp_hash128 none = {0, 0};
    static const char *const there[] = {"model.config=null", "model.path=@/model", NULL}, *const elsewhere[] = {
                                                                                              "model.config=null",
                                                                                              "model.path=@/moved",
                                                                                              NULL};
    opened whole = open_job(*state, COSINE, there, (ndp_rank_opts){0}, NULL);
    opened first = open_job(*state, LORA, there, (ndp_rank_opts){0}, NULL);
    opened moved = open_job(*state, LORA, elsewhere, (ndp_rank_opts){0}, NULL);
    assert_true(ndp_hash128_equal(whole.base, none)); /* all of them are in the checkpoint */
    assert_true(!ndp_hash128_equal(first.base, none) && ndp_hash128_equal(first.base, moved.base));
    opened refers = open_job(*state, REFERRED, (const char *const[]){NULL}, (ndp_rank_opts){0}, NULL);
    assert_true(ndp_hash128_equal(refers.base, first.base));
}

static void a_folder_without_a_run(void **state) {
    static const char *const sets[] = {NULL};
    char *folder = ndp_format("%s/tokens", (char *)*state);
    open_job(*state, COSINE, sets, (ndp_rank_opts){.forward_only = true, .weights_of = folder}, folder);
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_and_shapes), cmocka_unit_test(too_much_memory),
                                       cmocka_unit_test(what_no_checkpoint_holds),
                                       cmocka_unit_test(a_folder_without_a_run)};
    return cmocka_run_group_tests(tests, make_folder, tiny_teardown);
}
