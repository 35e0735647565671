/* Slots in ordinary memory of this process, on the pages and NUMA nodes that the user chose. */
#ifndef KVREG_BACKEND_DRAM_H
#define KVREG_BACKEND_DRAM_H

#include "kvreg/backend.h"

extern const kvreg_backend kvreg_backend_dram;

/* Its `check`. `root` goes before the paths of /proc and /sys: "" but in tests. */
kvreg_status kvreg_backend_dram_check(const char *root, const kvreg_backend_request *request,
                                      kvreg_error *error);

#endif
