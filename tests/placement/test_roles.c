/* What the check says of some ranks of a world is what it says of all: of right programs, and of programs that were
 * changed alike on every rank. Worlds of 65 to 256 ranks, which dry runs check by roles. */
#include "placement/mutations.h"
#include "placement/random_worlds.h"

enum { LARGEST = 256, MUTANTS_OF_A_WORLD = 6 };

typedef struct verdicts {
    int worlds, right, refused, differ;
} verdicts;

/* The programs of the roles, among those of all ranks. */
static int take_roles(const planned *w, const ndp_program **roles) {
    int ranks[MOST_ROLES], n = roles_of(w, ranks);
    for (int i = 0; i < n; i++)
        roles[i] = w->programs[ranks[i]];
    return n;
}

static bool passes(const ndp_program *const *programs, int n) {
    return ndp_placement_check(&(ndp_placement_opts){programs, n, &ndp_engine_claims}, NULL) == NDP_OK;
}

static void compare_roles(const planned *w, const ndp_program *const *roles, int n, const char *change, verdicts *v) {
    char text[WORLD_TEXT], said[600] = "";
    bool all = passes(w->programs, w->n);
    if (!all)
        snprintf(said, sizeof said, "%s", ndp_error_message());
    bool some = passes(roles, n);
    v->right += all, v->refused += !all, v->differ += all != some;
    if (all != some)
        printf("DIFFERS: %s: %s: all ranks %s, %d roles %s: %s\n", world_text(w, text), change, all ? "pass" : "do not",
               n, some ? "pass" : "do not", all ? ndp_error_message() : said);
}

/* Changes all programs alike, and compares again. */
static void compare_mutant(const planned *w, const ndp_program *const *roles, int n, const mutation *m, verdicts *v) {
    static journal j[LARGEST];
    char text[512];
    bool any = false;
    for (int i = 0; i < w->n; i++)
        any |= mutation_apply(m, (ndp_program *)w->programs[i], &j[i]);
    if (any)
        compare_roles(w, roles, n, mutation_text(m, w->programs[0], text, sizeof text), v);
    for (int i = 0; i < w->n; i++)
        journal_undo(&j[i]);
}

static void compare_world(const planned *w, uint64_t number, verdicts *v) {
    const ndp_program *roles[MOST_ROLES];
    int n = take_roles(w, roles);
    mutations all = {0};
    v->worlds++;
    compare_roles(w, roles, n, "as it is", v);
    mutations_of(w->programs[0], &all);
    for (uint64_t k = 0; k < MUTANTS_OF_A_WORLD && all.n > 0; k++)
        compare_mutant(w, roles, n, &all.items[ndp_rng_below(5, number, k, (uint64_t)all.n)], v);
    free(all.items);
}

static void roles_stand_for_all(void **state) {
    (void)state;
    int wanted = getenv("NDP_WORLDS") ? atoi(getenv("NDP_WORLDS")) : 6;
    verdicts v = {0};
    for (uint64_t i = 0; v.worlds < wanted; i++) {
        planned w;
        int size = random_world(i, &w);
        if (size == 0)
            continue;
        if (size > 64 && size <= LARGEST) {
            world_plan(&w, NULL, size);
            compare_world(&w, i, &v);
        }
        world_release(&w);
    }
    printf("  %d worlds of 65 to %d ranks: %d programs or mutants pass, %d are refused; roles differ in %d\n", v.worlds,
           LARGEST, v.right, v.refused, v.differ);
    assert_int_equal(v.differ, 0);
    assert_true(v.right >= v.worlds && v.refused > v.worlds);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(roles_stand_for_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
