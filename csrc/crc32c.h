/* CRC-32C, the checksum of iSCSI (RFC 3720, polynomial 0x1EDC6F41, reflected). */
#ifndef KVREG_CRC32C_H
#define KVREG_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `bytes` bytes: by the CPU's own instruction where it has one. */
uint32_t kvreg_crc32c(const void *data, size_t bytes);

/* The same without that instruction. */
uint32_t kvreg_crc32c_portable(const void *data, size_t bytes);

#endif
