/* CRC-32C (Castagnoli), the checksum of TFRecord frames. */
#ifndef NDP_BASE_CRC32C_H
#define NDP_BASE_CRC32C_H

#include "base/status.h"

/* Of n bytes: 0xe3069283 of the digits "123456789". */
NDP_API uint32_t ndp_crc32c(const void *bytes, size_t n);

#endif
