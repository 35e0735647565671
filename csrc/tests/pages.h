/* What the system does with the pages of a mapping. */
#ifndef KVREG_PAGES_H
#define KVREG_PAGES_H

#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "os.h"

/* Whether the kernel's calls are emulated, in which case some do nothing: an emulator says yes to
 * advice of any kind. */
static inline bool emulated(void)
{
    uint8_t *memory = kvreg_os_map(1);
    bool taken = madvise(memory, kvreg_os_page_round(1), 9999) == 0;
    kvreg_os_unmap(memory, 1);
    return taken;
}

/* How many of the pages the machine has given, be it one page of zeros for all of them. */
static inline size_t resident_pages(void *memory, size_t bytes)
{
    size_t pages = bytes / kvreg_os_page_round(1), count = 0;
    unsigned char *present = kvreg_os_alloc(pages);
    CHECK(present != NULL && mincore(memory, bytes, present) == 0);
    for (size_t i = 0; i < pages; i++)
        count += present[i] & 1;
    kvreg_os_free(present);
    return count;
}

static inline long page_faults(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_minflt;
}

/* How many pages were not ready for a write, which does not change them. */
static inline size_t faults_of_writing(void *memory, size_t bytes)
{
    size_t page = kvreg_os_page_round(1);
    long before = page_faults();
    for (size_t i = 0; i < bytes; i += page) {
        volatile uint8_t *byte = (uint8_t *)memory + i;
        *byte = *byte;
    }
    return (size_t)(page_faults() - before);
}

/* Whether pages at `address` are placed by `mode`, and on these nodes. */
static inline bool placed(void *address, int mode, const kvreg_os_nodes *nodes)
{
    kvreg_os_nodes found = { { 0 } };
    int found_mode;
    CHECK(syscall(SYS_get_mempolicy, &found_mode, found.words, KVREG_OS_NODES_MAX + 1, address,
                  MPOL_F_ADDR) == 0);
    return found_mode == mode && memcmp(&found, nodes, sizeof found) == 0;
}

#endif
