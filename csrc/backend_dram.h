/* Slots in ordinary memory of this process. */
#ifndef KVREG_BACKEND_DRAM_H
#define KVREG_BACKEND_DRAM_H

#include "kvreg/backend.h"

extern const kvreg_backend kvreg_backend_dram;

#endif
