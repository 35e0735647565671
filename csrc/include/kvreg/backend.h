/* Where the bytes of a host tier's slots live.
 *
 * A backend hands a tier one range of memory that the process can read and write: all slots, one
 * after the other. The tier copies blocks to and from it with its own worker threads, so a backend
 * has no part in a copy; it decides what memory that is. "dram" is the one that kvreg brings.
 *
 * Part of the C core, which the Python package does not offer for linking: a program that compiles
 * the files of csrc/ itself gives a backend to a tier by kvreg_tier_config (csrc/tier.h).
 *
 * A backend is a constant `kvreg_backend`. Its functions are called by the thread that opens or
 * closes a tier, never during a copy and never two at once for one tier. A child that fork() made
 * calls `close` too, for its own copy of the mapping: threads that the backend started are not
 * there. */
#ifndef KVREG_BACKEND_H
#define KVREG_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvreg/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a backend built against this header would no longer fit. */
#define KVREG_BACKEND_VERSION 1

/* The pages that slots lie on. */
typedef enum kvreg_huge_pages {
    KVREG_HUGE_PAGES_AUTO, /* transparent huge pages where the system has them */
    KVREG_HUGE_PAGES_OFF,  /* ordinary pages, also where the system would take huge ones */
    KVREG_HUGE_PAGES_2MIB, /* huge pages of that size, which the system holds in reserve */
    KVREG_HUGE_PAGES_1GIB,
} kvreg_huge_pages;

/* The NUMA nodes that slots lie on. */
typedef enum kvreg_numa {
    KVREG_NUMA_DEFAULT,    /* each page where the system puts it: near who first writes to it */
    KVREG_NUMA_NODE,       /* kvreg_memory_options.node, and no other */
    KVREG_NUMA_INTERLEAVE, /* page by page in turn on all nodes that the process may use */
} kvreg_numa;

/* What the user wishes of the memory. All zeros are the defaults. */
typedef struct kvreg_memory_options {
    kvreg_huge_pages huge_pages;
    kvreg_numa numa;
    uint32_t node; /* for KVREG_NUMA_NODE */
    /* Take every page from the machine soon and in the background, not when it is first written.
     * `open` does not wait for it, and `close` does not wait for the rest of it. */
    bool prefault;
} kvreg_memory_options;

/* What a tier needs. */
typedef struct kvreg_backend_request {
    uint64_t slots;          /* at least 1 */
    uint64_t block_bytes;    /* bytes of each slot; at least 1. slots * block_bytes fits size_t */
    uint64_t metadata_bytes; /* ordinary memory that the tier itself takes besides */
    kvreg_memory_options options;
} kvreg_backend_request;

/* What a backend gives. */
typedef struct kvreg_backend_memory {
    void *base;       /* the first slot; aligned to a page */
    size_t stride;    /* bytes from one slot to the next; at least block_bytes */
    uint64_t bytes;   /* memory taken for all of it */
    void *context;    /* the backend's own, for close; NULL where it needs nothing */
} kvreg_backend_memory;

typedef struct kvreg_backend {
    uint32_t version; /* KVREG_BACKEND_VERSION */
    const char *name;

    /* Says whether the machine can give what is asked, before anything is mapped.
     * KVREG_E_ARGUMENT: an option has a value that this backend or this machine cannot serve.
     * KVREG_E_MEMORY: the text states what was asked, what there is, and which limit binds.
     * KVREG_OK: it may fill *error, too, with that status and a warning for the user. */
    kvreg_status (*check)(const kvreg_backend_request *request, kvreg_error *error);

    /* Maps the slots' bytes, whose content does not matter, and fills *memory. After a failure
     * nothing is mapped and close is not called. */
    kvreg_status (*open)(const kvreg_backend_request *request, kvreg_backend_memory *memory,
                         kvreg_error *error);

    /* Unmaps what open mapped. No thread uses it any more. */
    void (*close)(kvreg_backend_memory *memory);
} kvreg_backend;

#ifdef __cplusplus
}
#endif
#endif
