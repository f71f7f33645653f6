/* What `verify --against` prints. */
#ifndef NDP_CLI_PRINT_AGAINST_H
#define NDP_CLI_PRINT_AGAINST_H

#include <ndparallel/ndparallel.h>

/* A table of loss, tokens and every gradient, and the causes of what differs. */
void cli_print_against(const ndp_against *a, const char *folder);
/* The same as one line of JSON. */
void cli_print_against_json(const ndp_against *a, const char *folder);

/* A share of a bound: "0.3%", "20%", "28x". */
void cli_share_text(double share, char out[16]);

#endif
