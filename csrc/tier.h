/* A host tier: a cache of blocks, a backend that holds their bytes, and workers that copy them to
 * and from the engine's primary rows.
 *
 * Locks, none of which is held during a copy. The cache lock may be taken under the results lock;
 * otherwise none is taken while another is held.
 *   results lock  (tier.c)      jobs in flight and results not yet taken
 *   cache lock    (cache.h)     index, eviction policy, slot states
 *   queue lock    (transfer.h)  jobs that wait for a worker
 *
 * Any thread may call any function here until kvreg_tier_close is called. From then on those that
 * use the blocks may not be called: kvreg_tier_lookup, kvreg_tier_touch, kvreg_tier_end_step,
 * kvreg_tier_store and kvreg_tier_load. At last one thread calls kvreg_tier_free, and nobody
 * anything after it. In a child made by fork() only kvreg_tier_inherited, kvreg_tier_close and
 * kvreg_tier_free may be called. */
#ifndef KVREG_TIER_H
#define KVREG_TIER_H

#include "cache.h"
#include "kvreg/backend.h"
#include "kvreg/copy.h"

typedef struct kvreg_tier kvreg_tier;

typedef struct kvreg_tier_config {
    kvreg_rows primary;       /* the engine's rows; they outlive the tier's last copy */
    size_t block_bytes;       /* bytes of a block, at most the primary rows' stride */
    uint64_t capacity_bytes;  /* of blocks; at least one block */
    uint32_t workers;         /* threads; 0: kvreg_transfer_default_workers() */
    const int *worker_cpus;   /* a CPU for each worker, or NULL */
    const char *policy;       /* name of the eviction policy */
    const kvreg_backend *backend;
    bool verify;              /* keep a CRC-32C of every block and check it on load */
    bool watched;             /* keep events until they are taken */
    kvreg_memory_options memory; /* for the backend */
} kvreg_tier_config;

/* How a job ended. */
typedef struct kvreg_tier_result {
    int64_t job;
    bool load;
    size_t keys;          /* keys that the job had */
    size_t failed;        /* of them, dropped by a store, or not served by a load */
    size_t declined;      /* of them, not admitted by the eviction policy; stores only */
    size_t blocks;        /* copied. Of a load keys - failed; of a store as many or, where blocks
                           * were there already or not admitted, fewer */
    uint64_t bytes;       /* copied */
    uint64_t ns;          /* from submission to the end of the last copy */
    const kvreg_cache_block *served; /* `blocks` of them, in the order of the job's keys */
    void *memory;         /* for kvreg_tier_free_result */
} kvreg_tier_result;

typedef struct kvreg_tier_stats {
    kvreg_cache_stats cache;
    uint64_t stored_blocks, stored_bytes; /* copied into the tier */
    uint64_t loaded_blocks, loaded_bytes; /* copied out of it */
    uint64_t store_copy_ns, load_copy_ns; /* spent copying, summed over the workers */
    uint64_t stores_in_flight, loads_in_flight; /* jobs not finished */
    uint64_t results;                     /* waiting to be taken */
    uint64_t slots;
    uint64_t data_bytes;                  /* taken for the slots */
    uint64_t metadata_bytes;              /* taken for the region */
    uint32_t workers;
} kvreg_tier_stats;

/* KVREG_E_ARGUMENT: a value is not allowed. KVREG_E_MEMORY: the backend, or the machine, has not
 * the memory. KVREG_E_SYSTEM: a thread would not start, or the backend says so. After a failure
 * nothing is held. After a success error->text is a warning of the backend's, or empty. */
kvreg_status kvreg_tier_open(const kvreg_tier_config *config, kvreg_tier **tier,
                             kvreg_error *error);

/* Finishes every job, ends the threads and unmaps everything. Waits for the copies and for threads
 * in kvreg_tier_drain and kvreg_tier_reset. Calling it again waits for the first call's end and
 * does nothing. In a child made by fork() it does nothing: threads and memory are the parent's. */
void kvreg_tier_close(kvreg_tier *tier);

/* Frees the tier, which is closed, and the results that nobody took. */
void kvreg_tier_free(kvreg_tier *tier);

/* Whether this process got the tier through fork() and cannot use it. */
bool kvreg_tier_inherited(const kvreg_tier *tier);

kvreg_found kvreg_tier_lookup(kvreg_tier *tier, kvreg_key *key);
void kvreg_tier_touch(kvreg_tier *tier, kvreg_key *keys, size_t n, const kvreg_use *by);
void kvreg_tier_end_step(kvreg_tier *tier);

/* Start a job that copies primary row rows[i] to or from the block of keys[i], which are in prefix
 * order. Neither waits for a copy. Rows were checked to be below config.primary.rows; both arrays
 * may be freed afterwards. KVREG_E_MEMORY: nothing was started. */
kvreg_status kvreg_tier_store(kvreg_tier *tier, int64_t job, kvreg_key *keys,
                              const uint32_t *rows, size_t n, const kvreg_use *by,
                              kvreg_error *error);
kvreg_status kvreg_tier_load(kvreg_tier *tier, int64_t job, kvreg_key *keys,
                             const uint32_t *rows, size_t n, const kvreg_use *by,
                             kvreg_error *error);

/* Waits like kvreg_tier_drain, then forgets every block. A store that another thread submits in the
 * meantime may be forgotten or not; a tier that was closed in the meantime has none to forget.
 * KVREG_E_MEMORY: nothing was forgotten. */
kvreg_status kvreg_tier_reset(kvreg_tier *tier, kvreg_error *error);

/* Moves the events since the last call to the caller, who frees the list with kvreg_os_free.
 * KVREG_E_MEMORY: they stay. */
kvreg_status kvreg_tier_take_events(kvreg_tier *tier, kvreg_event **list, size_t *count,
                                    kvreg_error *error);

/* Takes the oldest result there is; false when there is none. */
bool kvreg_tier_take_result(kvreg_tier *tier, kvreg_tier_result *result);

/* Undoes a take: the result is the oldest again. It cannot fail. */
void kvreg_tier_give_back_result(kvreg_tier *tier, const kvreg_tier_result *result);

void kvreg_tier_free_result(kvreg_tier_result *result);

/* Waits until every job submitted before this call has its result waiting. */
void kvreg_tier_drain(kvreg_tier *tier);

/* Whether any job is in flight or any result waits. */
bool kvreg_tier_pending(kvreg_tier *tier);

void kvreg_tier_read_stats(kvreg_tier *tier, kvreg_tier_stats *stats);

#endif
