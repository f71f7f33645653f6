/* The table of commands is complete, and every synonym leads to a command. */
#include "check.h"
#include "cli/commands.h"

#include <stdio.h>
#include <string.h>

/* Calls `visit` for every command and sub-command. */
static void visit_all(const cli_command *const *list, void (*visit)(const cli_command *)) {
    for (; *list; list++) {
        visit(*list);
        if ((*list)->parts)
            visit_all((*list)->parts, visit);
    }
}

static void check_row(const cli_command *c) {
    assert_non_null(c->name);
    if (!c->about || !*c->about || !c->help || !*c->help)
        fail_msg("%s has no help", c->name);
    if (!c->run && !c->parts)
        fail_msg("%s does nothing", c->name);
    for (int i = 0; i < 2; i++)
        if (!c->examples[i] || strncmp(c->examples[i], "ndparallel ", 11) != 0 || strlen(c->examples[i]) > 76)
            fail_msg("%s: example %d is '%s'", c->name, i, c->examples[i] ? c->examples[i] : "missing");
    if (strcmp(c->examples[0], c->examples[1]) == 0)
        fail_msg("%s: both examples are '%s'", c->name, c->examples[0]);
    const cli_option *o;
    for (int i = 0; (o = cli_option_of(c, i)); i++)
        if (o->help && (!*o->help || o->help[strlen(o->help) - 1] == '.'))
            fail_msg("%s --%s: help '%s'", c->name, o->name, o->help);
}

static void every_row_is_complete(void **state) {
    (void)state;
    visit_all(cli_commands, check_row);
}

/* Splits a synonym's command into words. */
static int split(char *text, char *words[], int most) {
    int n = 0;
    for (char *word = strtok(text, " "); word && n < most; word = strtok(NULL, " "))
        words[n++] = word;
    return n;
}

static bool has_option(const cli_command *c, const char *name) {
    const cli_option *o;
    for (int i = 0; (o = cli_option_of(c, i)); i++)
        if (strcmp(o->name, name) == 0)
            return true;
    return false;
}

static void every_synonym_leads_to_a_command(void **state) {
    (void)state;
    for (const cli_synonym *s = cli_synonyms; s->word; s++) {
        char text[64], name[CLI_FULL_NAME], *words[4], *word = text;
        int used;
        snprintf(text, sizeof text, "%s", s->word);
        if (cli_find(&word, 1, &used, name))
            fail_msg("%s is a command", s->word);
        snprintf(text, sizeof text, "%s", s->command);
        int n = split(text, words, 4);
        const cli_command *c = cli_find(words, n, &used, name);
        if (!c || used < n - 1)
            fail_msg("%s leads to `ndparallel %s`, which is no command", s->word, s->command);
        if (used < n && (strncmp(words[used], "--", 2) != 0 || !has_option(c, words[used] + 2)))
            fail_msg("%s leads to `ndparallel %s`: no such option", s->word, s->command);
    }
}

static void words_lead_down_the_table(void **state) {
    (void)state;
    char checkpoint[] = "checkpoint", list[] = "list", run[] = "run", name[CLI_FULL_NAME];
    char *words[] = {checkpoint, list, run};
    int used;
    assert_string_equal(cli_find(words, 3, &used, name)->name, "list");
    assert_int_equal(used, 2);
    assert_string_equal(name, "ndparallel checkpoint list");
    assert_ptr_equal(cli_find(words, 1, &used, name), &cmd_checkpoint);
    assert_null(cli_find(words + 1, 2, &used, name));
    assert_int_equal(used, 0);
    assert_null(cli_find(words, 0, &used, name));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(every_synonym_leads_to_a_command),
        cmocka_unit_test(words_lead_down_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
