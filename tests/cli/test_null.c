/* NULL for each pointer of each public function: it is refused with a message that names the argument, or it means what
 * the header says, and nothing crashes. The functions and their arguments are those of the header as it is: one without
 * a row below fails. */
#include "cli/public_calls.h"

/* ---- the calls ---- */

static bool is_among(const char *name, const char *names) {
    for (size_t n = strlen(name); names && *names; names += strcspn(names, " "), names += strspn(names, " "))
        if (strncmp(name, names, n) == 0 && (!names[n] || names[n] == ' '))
            return true;
    return false;
}

static void pass_null(calling *it, const row *r, const char *argument) {
    char refusal[2 * NAME + 16];
    it->null = argument;
    it->met = false;
    ndp_status st = r->call(it);
    snprintf(refusal, sizeof refusal, "%s: %s is NULL", r->name, argument);
    if (!it->met)
        fail_msg("%s has an argument %s, and its row none", r->name, argument);
    bool refused = st == NDP_EINVAL && strcmp(ndp_error_message(), refusal) == 0;
    if (r->means && refused == is_among(argument, r->means))
        fail_msg("%s with NULL for %s: status %d, %s", r->name, argument, st, st ? ndp_error_message() : "");
    if (r->means && !refused && st != NDP_OK)
        fail_msg("%s with NULL for %s: %s", r->name, argument, ndp_error_message());
    release_results(it);
}

/* One test of cmocka for each function: one that crashes is named by it. */
typedef struct calling_of {
    calling *it;
    const declared *function;
} calling_of;

static void null_for_each_pointer(void **state) {
    const calling_of *of = *state;
    const row *r = row_of(of->function->name);
    if (!r)
        fail_msg("%s is declared in ndparallel.h, and has no row", of->function->name);
    for (int i = 0; i < of->function->n; i++)
        pass_null(of->it, r, of->function->pointers[i]);
}

static void each_row_is_declared(void **state) {
    const declared *all = ((const calling_of *)*state)->function;
    for (int r = 0; r < NDP_COUNT(rows); r++) {
        int i = 0;
        while (i < MOST_FUNCTIONS && strcmp(all[i].name, rows[r].name) != 0)
            i++;
        if (i == MOST_FUNCTIONS)
            fail_msg("%s has a row, and is not declared in ndparallel.h", rows[r].name);
    }
}

/* ---- options ---- */

/* Members that have to be set, and arrays that a count goes with. */
static void options_that_lack_something(void **state) {
    calling *it = ((const calling_of *)*state)->it;
    ndp_evaluation *files = NULL;
    ndp_launch_opts launch = NDP_LAUNCH_OPTS_INIT;
    CHECK_FAILS(ndp_launch(&launch, &it->n), NDP_EINVAL, "nothing to launch");
    ndp_evaluate_opts evaluate = NDP_EVALUATE_OPTS_INIT;
    CHECK_FAILS(ndp_evaluate(&evaluate, &it->evaluation, &files), NDP_EINVAL, "no model is given");
    evaluate.model = it->model, evaluate.data_count = 1;
    CHECK_FAILS(ndp_evaluate(&evaluate, &it->evaluation, &files), NDP_EINVAL, "ndp_evaluate: o->data is NULL");
    evaluate.data_count = 0;
    CHECK_FAILS(ndp_evaluate(&evaluate, &it->evaluation, &files), NDP_EINVAL, "");
    ndp_generate_opts generate = NDP_GENERATE_OPTS_INIT;
    CHECK_FAILS(ndp_generate(&generate, on_token, NULL), NDP_EINVAL, "no model is given");
    CHECK_FAILS(ndp_generate_file(&generate, it->data, 1, on_line, NULL, &it->generated), NDP_EINVAL,
                "no model is given");
    CHECK_FAILS(ndp_dialog_create(&generate, NULL, 0, &it->dialog_out), NDP_EINVAL, "no model is given");
    generate.model = it->model, generate.prompt = NULL, generate.threads = 1, generate.force_memory = true;
    CHECK_OK(ndp_generate(&generate, on_token, NULL));
    generate.stop_count = 1;
    CHECK_FAILS(ndp_generate(&generate, on_token, NULL), NDP_EINVAL, "stop is NULL, but stop_count is 1");
    ndp_tokenize_opts tokenize = NDP_TOKENIZE_OPTS_INIT;
    CHECK_FAILS(ndp_tokenize(&tokenize, on_line, NULL), NDP_EINVAL, "no tokenizer is given");
    ndp_verify_opts verify = NDP_VERIFY_OPTS_INIT;
    CHECK_FAILS(ndp_verify(it->config, &verify, &it->verdict), NDP_EINVAL, "");
    verify.n = 1;
    CHECK_FAILS(ndp_verify(it->config, &verify, &it->verdict), NDP_EINVAL, "ndp_verify: o->layouts is NULL");
    CHECK_FAILS(ndp_verify_dump(it->config, &(ndp_dump_opts){0}), NDP_EINVAL, "ndp_verify_dump: o->folder is NULL");
    CHECK_FAILS(ndp_verify_against(it->config, &(ndp_against_opts){0}, &it->against), NDP_EINVAL,
                "ndp_verify_against: o->folder is NULL");
    ndp_restart_opts restart = NDP_RESTART_OPTS_INIT;
    CHECK_FAILS(ndp_restart_find(it->config, &restart, &it->restart), NDP_EINVAL, "only with a hostfile");
    restart.hostfile = it->hosts, restart.n_lost = 1;
    CHECK_FAILS(ndp_restart_find(it->config, &restart, &it->restart), NDP_EINVAL, "ndp_restart_find: o->lost is NULL");
    ndp_train_opts train = NDP_TRAIN_OPTS_INIT;
    train.resume = true, train.accept_count = 1;
    CHECK_FAILS(ndp_train(it->config, it->world, &train), NDP_EINVAL, "ndp_train: o->accept is NULL");
    ndp_import_opts import = NDP_IMPORT_OPTS_INIT;
    import.assignment_count = 1;
    CHECK_FAILS(ndp_config_import(it->config, it->job, &import, &it->text[0], &it->text[1]), NDP_EINVAL,
                "ndp_config_import: o->assignments is NULL");
}

/* ---- the world ---- */

static ndp_status run_calls(ndp_world *w, void *arg) {
    calling *it = arg;
    static declared all[MOST_FUNCTIONS];
    static calling_of of[MOST_FUNCTIONS + 1];
    static struct CMUnitTest tests[MOST_FUNCTIONS + 2];
    size_t n = 0;
    open_trainers(it, w);
    int declarations = read_headers(all);
    for (int i = 0; i < declarations; i++)
        if (all[i].n) {
            of[n] = (calling_of){it, &all[i]};
            tests[n] = (struct CMUnitTest){all[i].name, null_for_each_pointer, NULL, NULL, &of[n]};
            n++;
        }
    of[n] = (calling_of){it, all};
    tests[n] = (struct CMUnitTest){"each_row_is_declared", each_row_is_declared, NULL, NULL, &of[n]};
    n++;
    tests[n++] = (struct CMUnitTest){"options_that_lack_something", options_that_lack_something, NULL, NULL, &of[0]};
    int failed = _cmocka_run_group_tests("null", tests, n, NULL, NULL);
    close_trainers(it);
    return failed ? NDP_EBUG : NDP_OK;
}

int main(void) {
    void *folder;
    calling it = {.null = ""};
    make_job(&folder);
    make_values(&it, folder, 1);
    ndp_status st = ndp_world_run(it.config, run_calls, &it);
    release_values(&it);
    tiny_teardown(&folder);
    return st != NDP_OK;
}
