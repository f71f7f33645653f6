/* Errors and output, for all commands. */
#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "cli/wrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

int cli_fail(ndp_status st, bool debug) { return cli_fail_of("", st, debug); }

int cli_fail_of(const char *who, ndp_status st, bool debug) {
    fflush(stdout);
    fprintf(stderr, "ndparallel: %s%s\n", who, ndp_error_message());
    if (st == NDP_EBUG || debug)
        fprintf(stderr, "  at %s\n", ndp_error_trail());
    if (st == NDP_EBUG)
        fprintf(stderr,
                "  This is a bug in ndparallel. Please report these lines and the output of `ndparallel env`.\n");
    return ndp_exit_code(st);
}

int cli_end_output(int code) {
    errno = ferror(stdout) ? errno : 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "ndparallel: cannot write the output: %s\n", strerror(errno ? errno : EIO));
    return code ? code : CLI_EXIT_FAILED;
}

int cli_print(ndp_status st, char *text, bool debug) {
    if (st != NDP_OK)
        return cli_fail(st, debug);
    size_t length = strlen(text);
    ndp_str fitting = {0};
    cli_wrap(&fitting, text, cli_line_width());
    printf("%s%s", fitting.data && !fitting.failed ? fitting.data : text,
           length && text[length - 1] == '\n' ? "" : "\n");
    int code = cli_end_output(0); /* before free, which may set errno */
    ndp_str_release(&fitting);
    free(text);
    return code;
}

void cli_print_json(ndp_json_out *o) {
    if (o->text.failed) {
        fprintf(stderr, "ndparallel: %s\n", strerror(ENOMEM));
        exit(CLI_EXIT_FAILED);
    }
    printf("%s\n", o->text.data);
    ndp_str_release(&o->text);
}
