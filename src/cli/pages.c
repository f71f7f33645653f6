/* Manual pages and completion as files (pages.h). */
#include "cli/pages.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the tables ---- */

char *cli_words_below(const char *before, const cli_command *c) {
    char *words;
    return asprintf(&words, "%s%s%s", before, *before ? " " : "", c->name) < 0 ? NULL : words;
}

static void visit_list(const cli_command *const *list, const char *before,
                       void (*visit)(void *user, const cli_command *c, const char *words), void *user) {
    for (; list && *list; list++) {
        char *words = cli_words_below(before, *list);
        if (!words)
            return;
        visit(user, *list, words);
        visit_list((*list)->parts, words, visit, user);
        free(words);
    }
}

void cli_visit_commands(void (*visit)(void *user, const cli_command *c, const char *words), void *user) {
    visit_list(cli_commands, "", visit, user);
}

ndp_status cli_visit_keys(void (*visit)(void *user, const cli_key *key), void *user) {
    char *text;
    ndp_status st = ndp_config_describe(NULL, 0, NDP_KEYS_FIELDS, &text);
    if (st != NDP_OK)
        return st;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *words = strchr(line, '\t'), *meaning = strchr(words + 1, '\t');
        *words = *meaning = *end = '\0';
        visit(user, &(cli_key){line, words + 1, meaning + 1});
    }
    free(text);
    return NDP_OK;
}

cli_value cli_value_of(const cli_option *o) {
    static const struct {
        const char *value;
        cli_value kind;
    } kinds[] = {{"FILE", CLI_VALUE_FILE},   {"JSONL", CLI_VALUE_FILE}, {"DIR", CLI_VALUE_FOLDER},
                 {"DUMP", CLI_VALUE_FOLDER}, {"KEY", CLI_VALUE_KEY},    {"KEY=VALUE", CLI_VALUE_ASSIGNMENT}};
    if (!o->value)
        return CLI_VALUE_NONE;
    if (o->choices)
        return CLI_VALUE_WORDS;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(o->value, kinds[i].value) == 0)
            return kinds[i].kind;
    return strncmp(o->value, "FILE.", 5) == 0 ? CLI_VALUE_FILE : CLI_VALUE_ANY;
}

cli_value cli_value_of_arguments(const cli_command *c) {
    if (!c->usage || c->parts == cli_commands)
        return CLI_VALUE_ANY;
    return strstr(c->usage, "PROGRAM")                                          ? CLI_VALUE_PROGRAM
           : strncmp(c->usage, "[KEY", 4) == 0                                  ? CLI_VALUE_KEY
           : strncmp(c->usage, "RUN", 3) == 0 || strcmp(c->usage, "[DIR]") == 0 ? CLI_VALUE_FOLDER
           : c->takes_job || c->argument                                        ? CLI_VALUE_FILE
                                                                                : CLI_VALUE_ANY;
}

char *cli_words_of(const cli_option *o) {
    char *words = strdup(o->choices()), *to = words;
    for (char *from = words; words && *from; from++)
        if (*from != ',')
            *to++ = *from;
    if (words)
        *to = '\0';
    return words;
}

/* ---- files ---- */

/* The file that is written, below a folder. After the first error nothing more is. */
typedef struct page_files {
    const char *folder;
    char path[PATH_MAX];
    FILE *out;
    bool failed;
} page_files;

static void report(page_files *g) {
    cli_error(1, "cannot write %s: %s", g->path, strerror(errno));
    g->failed = true;
}

static bool begin_file(page_files *g, const char *name) {
    if (g->failed)
        return false;
    snprintf(g->path, sizeof g->path, "%s/%s", g->folder, name);
    g->out = fopen(g->path, "w");
    if (!g->out)
        report(g);
    return g->out;
}

static void end_file(page_files *g) {
    bool failed = ferror(g->out);
    if (fclose(g->out) != 0 || failed)
        report(g);
}

static void write_command(void *user, const cli_command *c, const char *words) {
    page_files *g = user;
    char name[CLI_FULL_NAME + 32];
    snprintf(name, sizeof name, "man/ndparallel-%s.1", words);
    for (char *space; (space = strchr(name, ' '));)
        *space = '-';
    if (!begin_file(g, name))
        return;
    cli_write_command_page(g->out, c, words);
    end_file(g);
}

static ndp_status write_main_page(FILE *out) {
    cli_write_main_page(out);
    return NDP_OK;
}

static void make_folder(page_files *g, const char *name) {
    snprintf(g->path, sizeof g->path, "%s%s%s", g->folder, *name ? "/" : "", name);
    if (!g->failed && mkdir(g->path, 0777) != 0 && errno != EEXIST)
        report(g);
}

int cli_generate(const char *folder) {
    static const struct {
        const char *name;
        ndp_status (*write)(FILE *out);
    } files[] = {{"man/ndparallel.1", write_main_page},
                 {"man/ndparallel-job.5", cli_write_job_page},
                 {"completion/ndparallel.bash", cli_write_bash},
                 {"completion/_ndparallel", cli_write_zsh},
                 {"completion/ndparallel.fish", cli_write_fish}};
    page_files g = {.folder = folder};
    make_folder(&g, "");
    make_folder(&g, "man");
    make_folder(&g, "completion");
    cli_visit_commands(write_command, &g);
    for (size_t i = 0; i < sizeof files / sizeof *files && begin_file(&g, files[i].name); i++) {
        ndp_status st = files[i].write(g.out);
        end_file(&g);
        if (st != NDP_OK)
            return cli_fail(st, false);
    }
    return g.failed;
}
