/* Zeroed memory that begins at a cache line. */
#ifndef KVREG_TESTS_LINES_H
#define KVREG_TESTS_LINES_H

#include <stdlib.h>
#include <string.h>

#include "check.h"

static inline void *new_lines(size_t bytes)
{
    size_t whole = (bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, whole);
    CHECK(memory != NULL);
    return memset(memory, 0, whole);
}

#endif
