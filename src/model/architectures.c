/* The architectures that a program knows, and nothing else: see architecture.h. */
#include "model/decoder.h"

const ndp_architecture_table *const ndp_architectures[] = {&ndp_decoder, NULL};
