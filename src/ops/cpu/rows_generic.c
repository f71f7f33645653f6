#define NDP_ROWS_TABLE ndp_rows_generic
#include "ops/cpu/rows_impl.h"
