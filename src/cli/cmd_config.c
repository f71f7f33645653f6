#include "cli/cli.h"

static const struct argp_option options[] = {
    {"defaults", 'd', NULL, 0, "Prints the defaults as a job file", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    bool *defaults = state->input;
    (void)arg;
    if (key != 'd')
        return ARGP_ERR_UNKNOWN;
    *defaults = true;
    return 0;
}

static ndp_status defaults_text(char **text) {
    ndp_config *c;
    ndp_status st = ndp_config_create(&c);
    if (st != NDP_OK)
        return st;
    st = ndp_config_text(c, text);
    ndp_config_destroy(c);
    return st;
}

int cmd_config(int argc, char **argv) {
    static const struct argp argp = {
        options, parse, NULL, "Lists the keys of a job file: what they mean, what they may be, their defaults.",
        NULL,    NULL,  NULL};
    bool defaults = false;
    argp_parse(&argp, argc, argv, 0, NULL, &defaults);
    char *text = NULL;
    ndp_status st = defaults ? defaults_text(&text) : ndp_config_keys(&text);
    return cli_print(st, text, false);
}
