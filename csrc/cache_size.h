#ifndef KVREG_CACHE_SIZE_H
#define KVREG_CACHE_SIZE_H

#include <stddef.h>

/* Bytes of the last-level cache of the machine's first CPU; 0: the system does not say. `root`
 * goes before the path of /sys: "" but in tests. */
size_t kvreg_os_llc_bytes(const char *root);

#endif
