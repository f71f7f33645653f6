/* For any CPU. */
#define NDP_HASH_TABLE ndp_hash_generic
#include "checkpoint/cpu/hash_impl.h"
