/* Checkpoints of three steps, the newest or more of them damaged: nothing of it goes unseen, the right one is loaded,
 * and nothing is lost. */
#ifndef TESTS_CHECKPOINT_DAMAGE_RUNS_H
#define TESTS_CHECKPOINT_DAMAGE_RUNS_H

#include "checkpoint/damage.h"

enum { STEPS = 3, SHARD = 1000 /* bytes: three files of weights and an index */ };
static const int64_t damaged_steps[STEPS] = {30, 20, 10};

typedef struct trial {
    const char *folder; /* the checkpoints */
    int damaged;        /* of the newest */
    int64_t wanted;     /* by --resume-from; -1 */
    int64_t loads;      /* the step that has to be loaded; -1: none */
    int aside;          /* folders set aside then */
    int threads;
    const char *words; /* of the refusal */
} trial;

static inline ndp_status load_chosen(ndp_comm *world, const trial *t, const ndp_resume *r) {
    ndp_str names = {0};
    ndp_status st = check_step(t->folder, r->step, ndp_comm_rank(world), ndp_comm_size(world));
    if (st == NDP_OK)
        st = ndp_resume_settle(world, t->folder, r, &names);
    ndp_str_release(&names);
    return st;
}

/* What a trainer does to resume. */
static inline ndp_status resume_body(ndp_transport *transport, void *arg) {
    const trial *t = arg;
    ndp_comm *world = NULL;
    ndp_resume r = {0};
    NDP_TRY(ndp_comm_create(transport, world_of(transport), "world", &world));
    ndp_status st = ndp_resume_choose(world, t->folder, t->wanted, t->threads, &r);
    if (st == NDP_OK && (r.step != t->loads || r.n_aside != t->aside || r.unverifiable))
        st = NDP_FAIL(NDP_EBUG, "step %lld was chosen, with %d aside", (long long)r.step, r.n_aside);
    if (st == NDP_OK)
        st = load_chosen(world, t, &r);
    ndp_resume_release(&r);
    ndp_comm_destroy(world);
    return st;
}

/* Files and folders in `folder`, and below. */
static inline int count_entries(const char *folder) {
    struct dirent *e;
    int n = 0;
    DIR *d = opendir(folder);
    while (d && (e = readdir(d))) {
        char path[512];
        if (e->d_name[0] == '.')
            continue;
        n += 1 + (e->d_type == DT_DIR ? count_entries(in(folder, e->d_name, path)) : 0);
    }
    if (d)
        closedir(d);
    return n;
}

static inline const char *step_in(const char *folder, int64_t step, char out[512]) {
    char name[64];
    return in(folder, ndp_step_name(step, name), out);
}

typedef struct tally {
    int damages, silent, misnamed, wrong; /* wrong: another step loaded, something lost or overwritten */
    int of[DAMAGES];
} tally;

/* Does the examination find it, and name what it is? */
static inline void look(const char *folder, int64_t step, damage_kind kind, const expected *e, tally *all) {
    ndp_examined x;
    CHECK_OK(ndp_checkpoint_examine(NULL, folder, step, true, 1, &x));
    all->damages++;
    all->of[kind]++;
    if (x.state != NDP_CHECKPOINT_DAMAGED) {
        all->silent++;
        print_message("SILENT: %s of %s, step %lld\n", damage_names[kind], e->file, (long long)step);
    } else if (!strstr(x.words, e->file) || !strstr(x.words, e->tensor)) {
        all->misnamed++;
        print_message("MISNAMED: %s of %s, tensor '%s': %s\n", damage_names[kind], e->file, e->tensor, x.words);
    }
}

static inline void resume(const trial *t, int ranks, tally *all) {
    int before = count_entries(t->folder);
    char path[512];
    ndp_status st = ndp_local_world(ranks, resume_body, (void *)(uintptr_t)t);
    bool right = t->loads < 0 ? st == NDP_EINVAL && strstr(ndp_error_message(), t->words) : st == NDP_OK;
    if (!right)
        print_message("WRONG: %d damaged, wanted %lld: %s\n", t->damaged, (long long)t->wanted,
                      st == NDP_OK ? "resumed" : ndp_error_message());
    for (int i = 0; i < STEPS; i++) { /* what was set aside has its name no more, all else has */
        bool gone = t->loads >= 0 && i < t->aside;
        if (ndp_path_exists(step_in(t->folder, damaged_steps[i], path)) == gone) {
            right = false;
            print_message("WRONG: %s %s\n", path, gone ? "is still there" : "is gone");
        }
    }
    all->wrong += !right || count_entries(t->folder) != before;
}

/* The damage of one trial, in a copy of `intact`. */
static inline void run_trial(const char *intact, const char *folder, int number, uint64_t *seed, tally *all) {
    char from[512], to[512], aside[512];
    int damaged = number % 32 == 31 ? 3 : number % 8 == 7 ? 2 : 1, ranks = 1 + number % 4;
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < STEPS; i++)
        copy_folder(step_in(intact, damaged_steps[i], from), step_in(folder, damaged_steps[i], to));
    for (int i = 0; i < damaged; i++) {
        damage_kind kind = i == 0 ? (damage_kind)(number % DAMAGES) : (damage_kind)below(seed, DAMAGES);
        step_in(intact, damaged_steps[(i + 1) % STEPS], from);
        expected e = damage(step_in(folder, damaged_steps[i], to), from, kind, seed);
        look(folder, damaged_steps[i], kind, &e, all);
    }
    trial t = {folder, damaged, -1, damaged == 1 ? 20 : -1, damaged == 1, 1 + number % 2, "Steps that verify: 10; "};
    if (damaged == 3)
        t.words = "No checkpoint verifies";
    resume(&t, ranks, all);
    if (damaged > 1) {
        t.wanted = 10;
        t.loads = damaged == 2 ? 10 : -1;
        t.aside = damaged == 2 ? 2 : 0;
        resume(&t, ranks, all);
    }
    ending(step_in(folder, 30, to), ".damaged", aside);
    all->wrong += damaged < 3 && !ndp_path_exists(aside);
    CHECK_OK(ndp_folder_remove(folder));
}

/* `trials` of them, each with 1 to 3 damages. */
static inline void run_trials(const char *folder, int trials) {
    const char *text = getenv("NDP_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 20261122, state = seed;
    char intact[512], work[512];
    tally all = {0};
    in(folder, "intact", intact);
    for (int i = STEPS - 1; i >= 0; i--)
        CHECK_OK(save_step(NULL, intact, damaged_steps[i], 0, SHARD));
    for (int i = 0; i < trials; i++)
        run_trial(intact, in(folder, "work", work), i, &state, &all);
    for (int k = 0; k < DAMAGES; k++) {
        print_message("  %4d x %s\n", all.of[k], damage_names[k]);
        assert_true(all.of[k] > 0);
    }
    print_message("seed %llu: %d damages of %d runs on 1 to 4 ranks: %d silent, %d misnamed, %d runs went wrong\n",
                  (unsigned long long)seed, all.damages, trials, all.silent, all.misnamed, all.wrong);
    assert_int_equal(all.silent + all.misnamed + all.wrong, 0);
}

#endif
