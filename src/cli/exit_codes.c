/* The table of exit codes, made from its list. */
#include "cli/exit_codes.h"

#include <stddef.h>

#define ROW_OF(NAME, number, shown, when) {shown, when},
const cli_exit_row cli_exit_rows[] = {CLI_EXIT_CODES_LIST(ROW_OF){NULL, NULL}};
