/* Completion for fish (pages.h): as completion.c for the other shells. */
#include "cli/pages.h"

/* fish has backslashes between single quotes. */
static void put_fish(FILE *out, const char *text) {
    for (; *text; text++)
        fprintf(out, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
}

static void put_fish_key(void *user, const cli_key *key) {
    fprintf(user, "    echo '%s'\"$argv\"\\t'", key->name);
    put_fish(user, key->meaning);
    fputs("'\n", user);
}

static void put_fish_words(void *user, const cli_key *key) {
    if (*key->words)
        fprintf(user, "        case %s\n            string split ' ' '%s'\n", key->name, key->words);
}

static void put_fish_action(FILE *out, cli_value kind, const cli_option *o) {
    static const char *const actions[] = {[CLI_VALUE_NONE] = "",
                                          [CLI_VALUE_ANY] = " -x",
                                          [CLI_VALUE_FILE] = " -r -F",
                                          [CLI_VALUE_FOLDER] = " -x -a '(__fish_complete_directories)'",
                                          [CLI_VALUE_PROGRAM] = " -x -a '(__fish_complete_subcommand)'",
                                          [CLI_VALUE_KEY] = " -x -a '(__ndparallel_keys)'",
                                          [CLI_VALUE_ASSIGNMENT] = " -x -a '(__ndparallel_assign)'",
                                          [CLI_VALUE_WORDS] = " -x -a '%s'"};
    cli_put_action(out, actions[kind], o);
}

/* The commands that may follow these words, " train" or "". */
static void put_fish_parts(FILE *out, const char *words, const cli_command *const *parts) {
    for (; parts && *parts; parts++) {
        fprintf(out, "complete -c ndparallel -n '__ndparallel_at%s' -f -a %s -d '", words, (*parts)->name);
        put_fish(out, (*parts)->about);
        fputs("'\n", out);
    }
}

static void put_fish_command(void *user, const cli_command *c, const char *words) {
    FILE *out = user;
    const cli_option *o;
    char after[64];
    snprintf(after, sizeof after, " %s", words);
    put_fish_parts(out, after, cli_parts_of(c));
    for (int i = 0; (o = cli_option_of(c, i)); i++) {
        if (!o->help)
            continue;
        fprintf(out, "complete -c ndparallel -n '__ndparallel_in %s' -l %s", words, o->name);
        if (o->key)
            fprintf(out, " -s %c", o->key);
        put_fish_action(out, cli_value_of(o), o);
        fputs(" -d '", out);
        put_fish(out, o->help);
        fputs("'\n", out);
    }
    cli_value arguments = cli_value_of_arguments(c);
    if (arguments == CLI_VALUE_KEY || arguments == CLI_VALUE_FOLDER) {
        fprintf(out, "complete -c ndparallel -n '__ndparallel_in %s'", words);
        put_fish_action(out, arguments, NULL);
        putc('\n', out);
    } else if (arguments == CLI_VALUE_ANY)
        fprintf(out, "complete -c ndparallel -n '__ndparallel_in %s' -f\n", words);
    fprintf(out, "complete -c ndparallel -n '__ndparallel_in %s' -l help -d 'Give a help list'\n", words);
    fprintf(out, "complete -c ndparallel -n '__ndparallel_in %s' -l usage -d 'Give a short usage message'\n", words);
}

static void put_fish_path(void *user, const cli_command *c, const char *words) {
    (void)c;
    fprintf(user, " '%s'", words);
}

static const char fish_functions[] =
    "end\n"
    "# KEY=VALUE\n"
    "function __ndparallel_assign\n"
    "    set -l word (string replace -r '^--[a-z-]+=' '' -- (commandline -ct))\n"
    "    if not string match -q '*=*' -- $word\n"
    "        __ndparallel_keys =\n"
    "        return\n"
    "    end\n"
    "    set -l key (string replace -r '=.*' '' -- $word)\n"
    "    set -l values (__ndparallel_words $key)\n"
    "    if test (count $values) -gt 0\n"
    "        string replace -r '^' $key= -- $values\n"
    "    else\n"
    "        string replace -r '^' $key= -- (__fish_complete_path (string replace -r '^[^=]*=' '' -- $word))\n"
    "    end\n"
    "end\n"
    "# The words that name the command, as far as they are typed.\n"
    "function __ndparallel_path\n"
    "    set -l at\n"
    "    for word in (commandline -opc)[2..-1]\n"
    "        set -l longer $at $word\n"
    "        contains -- \"$longer\" $__ndparallel_commands\n"
    "        or break\n"
    "        set at $longer\n"
    "    end\n"
    "    echo \"$at\"\n"
    "end\n"
    "# The command is this one.\n"
    "function __ndparallel_in\n"
    "    test \"$argv\" = (__ndparallel_path)\n"
    "end\n"
    "# The same, with nothing after it.\n"
    "function __ndparallel_at\n"
    "    set -l words (commandline -opc)\n"
    "    test \"$argv\" = \"$words[2..-1]\"\n"
    "end\n"
    "set -g __ndparallel_commands";

ndp_status cli_write_fish(FILE *out) {
    fputs("# Completion for fish: put this file into ~/.config/fish/completions.\n"
          "# Made from the program's tables by `ndparallel help --generate DIR`.\n"
          "function __ndparallel_words\n    switch $argv[1]\n",
          out);
    ndp_status st = cli_visit_keys(put_fish_words, out);
    fputs("    end\nend\n# The keys, each with $argv after it.\nfunction __ndparallel_keys\n", out);
    if (st == NDP_OK)
        st = cli_visit_keys(put_fish_key, out);
    fputs(fish_functions, out);
    cli_visit_commands(put_fish_path, out);
    fputs("\n", out);
    put_fish_parts(out, "", cli_commands);
    fputs("complete -c ndparallel -n '__ndparallel_at' -l version -d 'Print the version'\n", out);
    cli_visit_commands(put_fish_command, out);
    return st;
}
