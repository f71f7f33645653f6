/* A table of options with nested sections: what is read, stated, defaulted, and said of names that it does not have. */
#include "options/option_table.h"

#include "check.h"
#include <stdlib.h>
#include <string.h>

typedef struct machine {
    char *name;
    int cores;
    double rate, far;
    ndp_strings tags;
} machine;

static const char *const kinds[] = {"disk", "tape", NULL};
static const ndp_option rows[] = {
    {.section = "", .key = "name", .offset = offsetof(machine, name), .type = NDP_OPTION_TEXT, .value = "m"},
    {.section = "", .key = "tags", .offset = offsetof(machine, tags), .type = NDP_OPTION_LIST, .value = "[]"},
    {.section = "cpu", .key = "cores", .offset = offsetof(machine, cores), .type = NDP_OPTION_INT, "4", 1, 64},
    {.section = "cpu.link",
     .key = "rate",
     .offset = offsetof(machine, rate),
     .type = NDP_OPTION_NUMBER,
     .value = "2.5",
     .interval = "(0, 10]"},
    {.section = "cpu.link.far",
     .key = "rate",
     .offset = offsetof(machine, far),
     .type = NDP_OPTION_NUMBER,
     .interval = "(0, 10]"},
};
static const ndp_option_section sections[] = {
    {"", NULL, NULL}, {"cpu", NULL, NULL}, {"cpu.link", NULL, NULL}, {"cpu.link.far", NULL, NULL}};

static ndp_status refuse(ndp_yaml *y, const ndp_option_key *key);
static const ndp_option_table table = {.rows = rows,
                                       .n = NDP_COUNT(rows),
                                       .sections = sections,
                                       .section_count = NDP_COUNT(sections),
                                       .expected = "keys such as 'name:'",
                                       .refuse = refuse};

static ndp_status refuse(ndp_yaml *y, const ndp_option_key *key) {
    ndp_str s = {0};
    ndp_option_unknown(&table, key, strcmp(key->name, "title") == 0 ? "use name" : NULL,
                       strcmp(key->section, "cpu.link") == 0 ? "lanes" : NULL, &s);
    return ndp_yaml_fail_str(y, key->node, &s);
}

/* `kind` is no row's: disk or tape. */
static ndp_status read_kind(ndp_option_reading *r, const ndp_option_key *key, bool *taken) {
    const ndp_option kind = {.section = "", .key = "kind", .type = NDP_OPTION_WORD, .words = kinds};
    *taken = strcmp(key->name, "kind") == 0;
    return *taken ? ndp_option_read(&kind, r->y, key->value, r->user) : NDP_OK;
}

static void release(machine *m) {
    for (int i = 0; i < NDP_COUNT(rows); i++)
        ndp_option_release(&rows[i], m);
}

static ndp_status read_text(const char *text, machine *m, int *kind, ndp_option_reading *r) {
    ndp_yaml y;
    *r = (ndp_option_reading){.table = &table, .y = &y, .into = m, .other = read_kind, .user = kind};
    *m = (machine){0};
    CHECK_OK(ndp_option_defaults(&table, "", m));
    CHECK_OK(ndp_option_defaults(&table, "cpu", m));
    ndp_status st = ndp_yaml_open(&y, "machine.yaml", text, strlen(text), 0);
    if (st == NDP_OK)
        st = ndp_option_read_section(r, "", y.root);
    ndp_yaml_close(&y);
    return st;
}

static void sections_nest(void **state) {
    (void)state;
    machine m;
    int kind = 0;
    ndp_option_reading r;
    CHECK_OK(read_text("cpu:\n  link: {far: {rate: 1}, rate: 10}\n  cores: 8\nname: big\nkind: tape\n", &m, &kind, &r));
    assert_string_equal(m.name, "big");
    assert_int_equal(m.cores, 8);
    assert_int_equal(kind, 1);
    assert_true(m.rate == 10 && m.far == 1);
    assert_true(r.stated[0] && !r.stated[1] && r.stated[2] && r.stated[3] && r.stated[4]);
    release(&m);
}

/* What has no default is left; a section that is empty, or only comments, states nothing. */
static void defaults(void **state) {
    (void)state;
    static const char *const texts[] = {"", "cpu:\n", "cpu: {link: ~}\n", "cpu:\n  # cores: 3\n"};
    for (int i = 0; i < NDP_COUNT(texts); i++) {
        machine m;
        int kind = 0;
        ndp_option_reading r;
        CHECK_OK(read_text(texts[i], &m, &kind, &r));
        assert_string_equal(m.name, "m");
        assert_int_equal(m.cores, 4);
        assert_true(m.rate == 2.5 && m.far == 0 && m.tags.n == 0);
        for (int k = 0; k < NDP_COUNT(rows); k++)
            assert_false(r.stated[k]);
        release(&m);
    }
}

static void wrong_names_and_values(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"nam: x\n", "machine.yaml:1: unknown key 'nam'; did you mean 'name'?"},
        {"title: x\n", "machine.yaml:1: unknown key 'title'; use name"},
        {"cores: 3\n", "machine.yaml:1: unknown key 'cores'; did you mean 'cpu.cores'?"},
        {"cqu: {a: 1}\n", "machine.yaml:1: unknown section 'cqu'; did you mean 'cpu'?"},
        {"cpu: {name: x}\n", "machine.yaml:1: unknown key 'name' in 'cpu'; did you mean 'name'?"},
        {"cpu:\n  link: {zzz: 1}\n", "machine.yaml:2: unknown key 'zzz' in 'cpu.link'; known are rate, far, lanes"},
        {"cpu: {link: 3}\n", "machine.yaml:1: 'cpu.link' is a section: expected KEY: VALUE below it"},
        {"cpu:\n  cores:3\n", "machine.yaml:2: YAML needs a space after the colon: 'cores: 3'"},
        {"cpu: {cores: 65}\n", "machine.yaml:1: 'cpu.cores' is '65', expected a whole number from 1 to 64"},
        {"cpu: {link: {far: {rate: 0}}}\n", "machine.yaml:1: 'cpu.link.far.rate' is '0', expected a number in (0, 10]"},
        {"? [a]\n: 1\n", "machine.yaml:1: expected a word as the key"},
        {"kind: card\n", "machine.yaml:1: 'kind' is 'card', expected disk or tape"},
        {"[a]\n", "machine.yaml:1: expected keys such as 'name:'"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        machine m;
        int kind = 0;
        ndp_option_reading r;
        ndp_status st = read_text(cases[i][0], &m, &kind, &r);
        if (st != NDP_EINVAL || strncmp(ndp_error_message(), cases[i][1], strlen(cases[i][1])) != 0)
            fail_msg("case %d, status %d: %s", i, st, ndp_error_message());
        release(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sections_nest), cmocka_unit_test(defaults),
                                       cmocka_unit_test(wrong_names_and_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
