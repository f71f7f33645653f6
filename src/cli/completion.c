/* Completion for bash and zsh (pages.h). Each script has a part that does not depend on the tables, and lists made from
 * them. */
#include "cli/pages.h"

#include <stdlib.h>
#include <string.h>

/* Between single quotes of a shell; characters of `escaped` get a backslash. */
static void put_quoted(FILE *out, const char *text, const char *escaped) {
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fprintf(out, strchr(escaped, *text) ? "\\%c" : "%c", *text);
}

/* " | ' checkpoint list'": the words of each command, as a pattern of `case`. */
static void put_pattern(void *user, const cli_command *c, const char *words) {
    (void)c;
    fprintf(user, "%s' %s'", strcmp(words, cli_commands[0]->name) == 0 ? "" : " | ", words);
}

const cli_command *const *cli_parts_of(const cli_command *c) { return c == &cmd_help ? cli_commands : c->parts; }

static void put_case_of_words(void *user, const cli_key *key) {
    if (*key->words)
        fprintf(user, "    %s) echo '%s' ;;\n", key->name, key->words);
}

/* The function NAME that prints the values of the key $1. */
static ndp_status put_words_function(FILE *out, const char *name) {
    fprintf(out, "%s() {\n    case $1 in\n", name);
    ndp_status st = cli_visit_keys(put_case_of_words, out);
    fputs("    esac\n}\n", out);
    return st;
}

void cli_put_action(FILE *out, const char *action, const cli_option *o) {
    const char *place = strstr(action, "%s");
    char *words = place ? cli_words_of(o) : NULL;
    fprintf(out, "%.*s%s%s", place ? (int)(place - action) : (int)strlen(action), action, words ? words : "",
            place ? place + 2 : "");
    free(words);
}

static void put_names(FILE *out, const cli_command *const *commands) {
    for (; *commands; commands++)
        fprintf(out, "%s ", (*commands)->name);
}

/* ---- bash ---- */

static void put_key_name(void *user, const cli_key *key) { fprintf(user, "%s ", key->name); }

static void put_bash_action(FILE *out, cli_value kind, const cli_option *o) {
    static const char *const actions[] = {[CLI_VALUE_NONE] = ":",
                                          [CLI_VALUE_ANY] = ":",
                                          [CLI_VALUE_FILE] = "_ndparallel_files -f",
                                          [CLI_VALUE_FOLDER] = "_ndparallel_files -d",
                                          [CLI_VALUE_PROGRAM] = "_ndparallel_files -c",
                                          [CLI_VALUE_KEY] = "_ndparallel_add \"$_ndparallel_keys\"",
                                          [CLI_VALUE_ASSIGNMENT] = "_ndparallel_assign",
                                          [CLI_VALUE_WORDS] = "_ndparallel_add '%s'"};
    cli_put_action(out, actions[kind], o);
    fputs(" ;;\n", out);
}

/* What follows an option with a value, of one command. */
static void put_bash_values(void *user, const cli_command *c, const char *words) {
    FILE *out = user;
    const cli_option *o;
    for (int i = 0; (o = cli_option_of(c, i)); i++) {
        if (!o->value || !o->help)
            continue;
        fprintf(out, "    ' %s --%s'", words, o->name);
        if (o->key)
            fprintf(out, " | ' %s -%c'", words, o->key);
        fputs(") ", out);
        put_bash_action(out, cli_value_of(o), o);
    }
}

static void put_bash_options(void *user, const cli_command *c, const char *words) {
    FILE *out = user;
    const cli_option *o;
    fprintf(out, "    ' %s') _ndparallel_add '", words);
    for (int i = 0; (o = cli_option_of(c, i)); i++)
        if (o->help)
            fprintf(out, "--%s ", o->name);
    fputs("--help --usage' ;;\n", out);
}

static void put_bash_arguments(void *user, const cli_command *c, const char *words) {
    FILE *out = user;
    fprintf(out, "    ' %s') ", words);
    if (cli_parts_of(c)) {
        fputs("((at_part)) && _ndparallel_add '", out);
        put_names(out, cli_parts_of(c));
        fputs("'; ", out);
    }
    put_bash_action(out, cli_value_of_arguments(c), NULL);
}

static const char bash_begin[] =
    "# Completion for bash: source this file, or put it into /usr/share/bash-completion/completions as ndparallel.\n"
    "# Made from the program's tables by `ndparallel help --generate DIR`.\n"
    "_ndparallel_add() { COMPREPLY+=($(compgen -W \"$1\" -- \"$cur\")); }\n"
    "_ndparallel_files() {\n"
    "    local IFS=$'\\n'\n"
    "    compopt -o filenames\n"
    "    COMPREPLY+=($(compgen \"$1\" -- \"$cur\"))\n"
    "}\n"
    "# KEY=VALUE\n"
    "_ndparallel_assign() {\n"
    "    local words\n"
    "    if [[ $cur != *=* ]]; then\n"
    "        compopt -o nospace\n"
    "        COMPREPLY+=($(compgen -S = -W \"$_ndparallel_keys\" -- \"$cur\"))\n"
    "        return\n"
    "    fi\n"
    "    words=$(_ndparallel_words \"${cur%%=*}\")\n"
    "    before+=${cur%%=*}=\n"
    "    cur=${cur#*=}\n"
    "    if [[ $words ]]; then _ndparallel_add \"$words\"; else _ndparallel_files -f; fi\n"
    "}\n";

/* The shell's own words end at '=', so the line is read here. `before` is what stands in the word before the text to be
 * completed, which readline replaces only if '=' breaks no words. */
static const char bash_walk[] = "_ndparallel() {\n"
                                "    local line=${COMP_LINE:0:COMP_POINT} at= before= at_part=1 cur prev i\n"
                                "    local -a words\n"
                                "    read -ra words <<<\"$line\"\n"
                                "    [[ $line == *[[:space:]] ]] && words+=('')\n"
                                "    cur=${words[${#words[@]} - 1]}\n"
                                "    prev=${words[${#words[@]} - 2]}\n"
                                "    COMPREPLY=()\n"
                                "    for ((i = 1; i < ${#words[@]} - 1; i++)); do\n"
                                "        case \"$at ${words[i]}\" in\n        ";

static const char bash_find[] = ") at+=\" ${words[i]}\" ;;\n"
                                "        *) at_part=0; break ;;\n"
                                "        esac\n"
                                "    done\n"
                                "    if [[ $cur == --*=* ]]; then\n"
                                "        prev=${cur%%=*}\n"
                                "        before=$prev=\n"
                                "        cur=${cur#*=}\n"
                                "    fi\n"
                                "    case \"$at $prev\" in\n";

static const char bash_end[] =
    "    esac\n"
    "    [[ $COMP_WORDBREAKS == *=* || ! $before ]] || COMPREPLY=(\"${COMPREPLY[@]/#/$before}\")\n"
    "}\n"
    "complete -F _ndparallel ndparallel\n";

ndp_status cli_write_bash(FILE *out) {
    fputs(bash_begin, out);
    ndp_status st = put_words_function(out, "_ndparallel_words");
    fputs("_ndparallel_keys='", out);
    if (st == NDP_OK)
        st = cli_visit_keys(put_key_name, out);
    fprintf(out, "'\n%s", bash_walk);
    cli_visit_commands(put_pattern, out);
    fputs(bash_find, out);
    cli_visit_commands(put_bash_values, out);
    fputs("    *) _ndparallel_others ;;\n", out);
    fputs(bash_end, out);
    fputs("_ndparallel_others() {\n    if [[ $cur == -* ]]; then\n    case $at in\n    '') _ndparallel_add '--help "
          "--version' "
          ";;\n",
          out);
    cli_visit_commands(put_bash_options, out);
    fputs("    esac\n    return\n    fi\n    case $at in\n    '') _ndparallel_add '", out);
    put_names(out, cli_commands);
    fputs("' ;;\n", out);
    cli_visit_commands(put_bash_arguments, out);
    fputs("    esac\n}\n", out);
    return st;
}

/* ---- zsh ---- */

static void put_zsh_key(void *user, const cli_key *key) {
    fprintf(user, "    '%s:", key->name);
    put_quoted(user, key->meaning, "");
    fputs("'\n", user);
}

static void put_zsh_action(FILE *out, cli_value kind, const cli_option *o) {
    static const char *const actions[] = {[CLI_VALUE_NONE] = " ",
                                          [CLI_VALUE_ANY] = " ",
                                          [CLI_VALUE_FILE] = "_files",
                                          [CLI_VALUE_FOLDER] = "_files -/",
                                          [CLI_VALUE_PROGRAM] = "_command_names -e",
                                          [CLI_VALUE_KEY] = "_ndparallel_key",
                                          [CLI_VALUE_ASSIGNMENT] = "_ndparallel_assign",
                                          [CLI_VALUE_WORDS] = "(%s)"};
    cli_put_action(out, actions[kind], o);
}

/* '*--set=[help]:KEY=VALUE:action' */
static void put_zsh_option(FILE *out, const cli_option *o, const char *dashes, const char *name) {
    bool is_long = dashes[1];
    fprintf(out, " \\\n            '*%s%s%s[", dashes, name, !o->value ? "" : is_long ? "=" : "+");
    put_quoted(out, o->help, "[]");
    fputs("]", out);
    if (o->value) {
        fputs(":", out);
        put_quoted(out, o->value, ":");
        fputs(":", out);
        put_zsh_action(out, cli_value_of(o), o);
    }
    fputs("'", out);
}

static void put_zsh_parts(FILE *out, const cli_command *const *parts) {
    fputs("parts=(", out);
    for (; *parts; parts++) {
        fprintf(out, "'%s:", (*parts)->name);
        put_quoted(out, (*parts)->about, "");
        fputs(parts[1] ? "' " : "'", out);
    }
    fputs(")", out);
}

static void put_zsh_command(void *user, const cli_command *c, const char *words) {
    FILE *out = user;
    const cli_option *o;
    fprintf(out, "    ' %s')\n", words);
    if (cli_parts_of(c)) {
        fputs("        ", out);
        put_zsh_parts(out, cli_parts_of(c));
        fputs("\n        (( CURRENT == 2 )) && _describe -t commands command parts\n", out);
    }
    fputs("        _arguments -s", out);
    for (int i = 0; (o = cli_option_of(c, i)); i++) {
        if (!o->help)
            continue;
        put_zsh_option(out, o, "--", o->name);
        if (o->key)
            put_zsh_option(out, o, "-", (char[]){(char)o->key, '\0'});
    }
    fputs(" \\\n            '--help[Give a help list]'"
          " \\\n            '--usage[Give a short usage message]'"
          " \\\n            "
          "'*:argument:",
          out);
    put_zsh_action(out, cli_value_of_arguments(c), NULL);
    fputs("' ;;\n", out);
}

static const char zsh_functions[] = ")\n"
                                    "_ndparallel_key() { _describe -t keys key _ndparallel_keys; }\n"
                                    "# KEY=VALUE\n"
                                    "_ndparallel_assign() {\n"
                                    "    local -a values\n"
                                    "    if [[ $PREFIX != *=* ]]; then\n"
                                    "        _describe -t keys key _ndparallel_keys -S =\n"
                                    "        return\n"
                                    "    fi\n"
                                    "    values=(${=$(_ndparallel_words \"${PREFIX%%=*}\")})\n"
                                    "    compset -P '*='\n"
                                    "    if (( $#values )); then compadd -- $values; else _files; fi\n"
                                    "}\n";

static const char zsh_walk[] = "_ndparallel() {\n"
                               "    local at=''\n"
                               "    local -a parts\n"
                               "    while (( CURRENT > 2 )); do\n"
                               "        case \"$at $words[2]\" in\n"
                               "        (";

static const char zsh_find[] = ") at=\"$at $words[2]\"; shift words; (( CURRENT-- )) ;;\n"
                               "        (*) break ;;\n"
                               "        esac\n"
                               "    done\n"
                               "    case $at in\n"
                               "    '')\n        ";

ndp_status cli_write_zsh(FILE *out) {
    fputs("#compdef ndparallel\n"
          "# Completion for zsh: put this file into a folder of $fpath.\n"
          "# Made from the program's tables by `ndparallel help --generate DIR`.\n",
          out);
    ndp_status st = put_words_function(out, "_ndparallel_words");
    fputs("typeset -ga _ndparallel_keys\n_ndparallel_keys=(\n", out);
    if (st == NDP_OK)
        st = cli_visit_keys(put_zsh_key, out);
    fprintf(out, "%s%s", zsh_functions, zsh_walk);
    cli_visit_commands(put_pattern, out);
    fputs(zsh_find, out);
    put_zsh_parts(out, cli_commands);
    fputs("\n        _describe -t commands command parts\n        _arguments '--help[List the commands]' "
          "'--version[Print "
          "the version]' ;;\n",
          out);
    cli_visit_commands(put_zsh_command, out);
    fputs("    esac\n}\n_ndparallel \"$@\"\n", out);
    return st;
}
