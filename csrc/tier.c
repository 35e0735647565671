#include "tier.h"

#include <inttypes.h>
#include <string.h>

#include "crc32c.h"
#include "transfer.h"

/* One store or load, from its submission until its result is freed. */
typedef struct tier_job {
    kvreg_transfer_job transfer; /* first, so that a callback finds the job */
    kvreg_tier *tier;
    kvreg_tier_result result;
    uint64_t submitted_ns;
    /* Neighbours in the list of jobs in flight, and then in the list of results. Under the results
     * lock. */
    struct tier_job *older, *newer;
    uint64_t number; /* the tier's own, in the order of submission */
    uint32_t *slots, *rows; /* of the blocks to copy; they lie behind the blocks */
    uint8_t *wrong;         /* 1 for a block whose checksum did not fit; behind those; each is
                             * written by the worker that has the block */
    kvreg_cache_block blocks[];
} tier_job;

typedef struct job_list {
    tier_job *oldest, *newest;
} job_list;

/* How far a tier's end has come; see kvreg_tier_close. */
typedef enum tier_phase { OPEN, CLOSING, WITHOUT_CACHE, CLOSED } tier_phase;

struct kvreg_tier {
    kvreg_rows primary;
    size_t block_bytes;
    uint32_t forks; /* kvreg_os_fork_count() where the tier was made */
    bool verify;

    void *region;
    size_t region_bytes;
    kvreg_cache cache;
    const kvreg_backend *backend;
    kvreg_backend_memory memory;
    kvreg_rows slots;
    const kvreg_copy_kernel *store_kernel, *load_kernel;
    kvreg_transfer *transfer;

    kvreg_os_mutex results_lock;
    kvreg_os_condition finished; /* a job left the list of those in flight, or a waiter left */
    job_list in_flight, results; /* these, and all below, under the results lock */
    tier_phase phase;
    uint64_t next_number;
    uint32_t waiters;            /* threads in kvreg_tier_drain or kvreg_tier_reset: the cache
                                  * stays until they have left */
    kvreg_tier_stats stats;      /* those of the cache once it is gone */
};

/* -- Job lists ----------------------------------------------------------------------------- */

static void append(job_list *list, tier_job *job)
{
    job->older = list->newest;
    job->newer = NULL;
    if (list->newest == NULL)
        list->oldest = job;
    else
        list->newest->newer = job;
    list->newest = job;
}

static void prepend(job_list *list, tier_job *job)
{
    job->older = NULL;
    job->newer = list->oldest;
    if (list->oldest == NULL)
        list->newest = job;
    else
        list->oldest->older = job;
    list->oldest = job;
}

static void take_out(job_list *list, tier_job *job)
{
    if (job->older == NULL)
        list->oldest = job->newer;
    else
        job->older->newer = job->newer;
    if (job->newer == NULL)
        list->newest = job->older;
    else
        job->newer->older = job->older;
}

/* -- Jobs ---------------------------------------------------------------------------------- */

/* Room for a job of at most n blocks, with nothing of it decided; NULL when there is no memory. */
static tier_job *new_job(size_t n)
{
    size_t block = sizeof(kvreg_cache_block) + 2 * sizeof(uint32_t) + sizeof(uint8_t);
    if (n > (SIZE_MAX - sizeof(tier_job)) / block)
        return NULL;
    tier_job *job = kvreg_os_alloc(sizeof *job + n * block);
    if (job != NULL) {
        job->slots = (uint32_t *)(job->blocks + n);
        job->rows = job->slots + n;
        job->wrong = (uint8_t *)(job->rows + n);
        memset(job->wrong, 0, n);
    }
    return job;
}

static uint64_t *counter(kvreg_tier *tier, bool load)
{
    return load ? &tier->stats.loads_in_flight : &tier->stats.stores_in_flight;
}

static void enter_flight(kvreg_tier *tier, tier_job *job)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    job->number = tier->next_number++;
    append(&tier->in_flight, job);
    ++*counter(tier, job->result.load);
    kvreg_os_mutex_unlock(&tier->results_lock);
}

static void count_copied(kvreg_tier_stats *stats, const tier_job *job)
{
    const kvreg_tier_result *result = &job->result;
    /* Relaxed: the worker that ends a job sees what the others added. */
    uint64_t ns = atomic_load_explicit(&job->transfer.copy_ns, memory_order_relaxed);
    *(result->load ? &stats->loaded_blocks : &stats->stored_blocks) += result->blocks;
    *(result->load ? &stats->loaded_bytes : &stats->stored_bytes) += result->bytes;
    *(result->load ? &stats->load_copy_ns : &stats->store_copy_ns) += ns;
}

/* Leaves the blocks whose checksum did not fit out of a load's result. */
static void leave_out_wrong(tier_job *job)
{
    size_t served = 0;
    for (size_t i = 0; i < job->result.blocks; i++)
        if (!job->wrong[i])
            job->blocks[served++] = job->blocks[i];
    job->result.failed += job->result.blocks - served;
    job->result.blocks = served;
    job->result.bytes = served * job->tier->block_bytes;
}

/* Makes a job's result available. */
static void finish(tier_job *job)
{
    kvreg_tier *tier = job->tier;
    job->result.ns = kvreg_os_monotonic_ns() - job->submitted_ns;
    kvreg_os_mutex_lock(&tier->results_lock);
    take_out(&tier->in_flight, job);
    --*counter(tier, job->result.load);
    append(&tier->results, job);
    tier->stats.results++;
    count_copied(&tier->stats, job);
    kvreg_os_condition_wake_all(&tier->finished);
    kvreg_os_mutex_unlock(&tier->results_lock);
}

static void finish_transfer(kvreg_transfer_job *transfer)
{
    tier_job *job = (tier_job *)transfer;
    leave_out_wrong(job);
    finish(job);
}

static void *row_at(const kvreg_rows *rows, uint32_t number)
{
    return (uint8_t *)rows->base + number * rows->stride;
}

static void checked_store(kvreg_transfer_job *transfer, size_t first, size_t count)
{
    tier_job *job = (tier_job *)transfer;
    for (size_t i = first; i < first + count; i++) {
        const void *row = row_at(&transfer->src, job->rows[i]);
        *kvreg_cache_checksum(&job->tier->cache, job->slots[i]) =
            kvreg_crc32c(row, transfer->block_bytes);
        kvreg_transfer_copy(transfer, i, 1);
    }
}

static void checked_load(kvreg_transfer_job *transfer, size_t first, size_t count)
{
    tier_job *job = (tier_job *)transfer;
    for (size_t i = first; i < first + count; i++) {
        const void *slot = row_at(&transfer->src, job->slots[i]);
        job->wrong[i] = kvreg_crc32c(slot, transfer->block_bytes) !=
                        *kvreg_cache_checksum(&job->tier->cache, job->slots[i]);
        if (!job->wrong[i])
            kvreg_transfer_copy(transfer, i, 1);
    }
}

static void piece_stored(kvreg_transfer_job *transfer, size_t first, size_t count)
{
    tier_job *job = (tier_job *)transfer;
    kvreg_cache_end_store(&job->tier->cache, job->slots + first, count);
}

static void piece_loaded(kvreg_transfer_job *transfer, size_t first, size_t count)
{
    tier_job *job = (tier_job *)transfer;
    size_t end = first + count;
    while (first < end) {
        /* A run of blocks that fared alike. */
        size_t run = 1;
        while (first + run < end && job->wrong[first + run] == job->wrong[first])
            run++;
        (job->wrong[first] ? kvreg_cache_reject_load : kvreg_cache_end_load)(
            &job->tier->cache, job->slots + first, run);
        first += run;
    }
}

static void describe_store(tier_job *job)
{
    const kvreg_tier *tier = job->tier;
    job->transfer.lane = KVREG_LANE_STORE;
    job->transfer.kernel = tier->store_kernel;
    job->transfer.dst = tier->slots;
    job->transfer.dst_rows = job->slots;
    job->transfer.src = tier->primary;
    job->transfer.src_rows = job->rows;
    job->transfer.copy = tier->verify ? checked_store : kvreg_transfer_copy;
    job->transfer.piece_done = piece_stored;
}

static void describe_load(tier_job *job)
{
    const kvreg_tier *tier = job->tier;
    job->transfer.lane = KVREG_LANE_LOAD;
    job->transfer.kernel = tier->load_kernel;
    job->transfer.dst = tier->primary;
    job->transfer.dst_rows = job->rows;
    job->transfer.src = tier->slots;
    job->transfer.src_rows = job->slots;
    job->transfer.copy = tier->verify ? checked_load : kvreg_transfer_copy;
    job->transfer.piece_done = piece_loaded;
}

/* Starts a job whose blocks the cache has chosen; one that has none to copy ends at once. */
static void start(kvreg_tier *tier, tier_job *job, const uint32_t *rows)
{
    size_t blocks = job->result.blocks;
    for (size_t i = 0; i < blocks; i++) {
        job->slots[i] = job->blocks[i].slot;
        job->rows[i] = rows[job->blocks[i].key];
    }
    job->tier = tier;
    job->result.bytes = blocks * tier->block_bytes;
    job->result.served = job->blocks;
    job->result.memory = job;
    job->submitted_ns = kvreg_os_monotonic_ns();
    job->transfer = (kvreg_transfer_job){
        .block_bytes = tier->block_bytes,
        .blocks = blocks,
        .job_done = finish_transfer,
    };
    enter_flight(tier, job);
    if (blocks == 0) {
        finish(job);
        return;
    }
    if (job->result.load)
        describe_load(job);
    else
        describe_store(job);
    kvreg_transfer_submit(tier->transfer, &job->transfer);
}

/* Ends an attempt to submit: frees the job, if there is one. */
static kvreg_status out_of_memory(tier_job *job, size_t n, kvreg_error *error)
{
    kvreg_os_free(job);
    return kvreg_fail(error, KVREG_E_MEMORY, "no memory to describe a job of %zu blocks", n);
}

kvreg_status kvreg_tier_store(kvreg_tier *tier, int64_t id, kvreg_key *keys,
                              const uint32_t *rows, size_t n, const kvreg_use *by,
                              kvreg_error *error)
{
    kvreg_cache_placed placed;
    tier_job *job = new_job(n);
    if (job == NULL ||
        !kvreg_cache_begin_store(&tier->cache, keys, n, by, job->blocks, &placed))
        return out_of_memory(job, n, error);
    job->result = (kvreg_tier_result){
        .job = id,
        .keys = n,
        .failed = placed.dropped,
        .declined = placed.declined,
        .blocks = placed.blocks,
    };
    start(tier, job, rows);
    return KVREG_OK;
}

kvreg_status kvreg_tier_load(kvreg_tier *tier, int64_t id, kvreg_key *keys,
                             const uint32_t *rows, size_t n, const kvreg_use *by,
                             kvreg_error *error)
{
    size_t blocks;
    tier_job *job = new_job(n);
    if (job == NULL || !kvreg_cache_begin_load(&tier->cache, keys, n, by, job->blocks, &blocks))
        return out_of_memory(job, n, error);
    job->result = (kvreg_tier_result){
        .job = id, .load = true, .keys = n, .failed = n - blocks, .blocks = blocks,
    };
    start(tier, job, rows);
    return KVREG_OK;
}

/* -- Results ------------------------------------------------------------------------------- */

bool kvreg_tier_take_result(kvreg_tier *tier, kvreg_tier_result *result)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    tier_job *job = tier->results.oldest;
    if (job != NULL) {
        take_out(&tier->results, job);
        tier->stats.results--;
    }
    kvreg_os_mutex_unlock(&tier->results_lock);
    if (job == NULL)
        return false;
    *result = job->result;
    return true;
}

void kvreg_tier_give_back_result(kvreg_tier *tier, const kvreg_tier_result *result)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    prepend(&tier->results, result->memory);
    tier->stats.results++;
    kvreg_os_mutex_unlock(&tier->results_lock);
}

void kvreg_tier_free_result(kvreg_tier_result *result)
{
    kvreg_os_free(result->memory);
}

/* Whether a job with a number below `limit` is in flight. Under the results lock. */
static bool in_flight_before(const kvreg_tier *tier, uint64_t limit)
{
    return tier->in_flight.oldest != NULL && tier->in_flight.oldest->number < limit;
}

/* Waits until no job submitted before this call is in flight, and keeps the cache until
 * let_cache_go. Returns whether it is still there. */
static bool wait_for_jobs(kvreg_tier *tier)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    uint64_t limit = tier->next_number;
    tier->waiters++;
    while (in_flight_before(tier, limit))
        kvreg_os_condition_wait(&tier->finished, &tier->results_lock);
    bool has_cache = tier->phase < WITHOUT_CACHE;
    kvreg_os_mutex_unlock(&tier->results_lock);
    return has_cache;
}

static void let_cache_go(kvreg_tier *tier)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    tier->waiters--;
    kvreg_os_condition_wake_all(&tier->finished);
    kvreg_os_mutex_unlock(&tier->results_lock);
}

void kvreg_tier_drain(kvreg_tier *tier)
{
    wait_for_jobs(tier);
    let_cache_go(tier);
}

bool kvreg_tier_pending(kvreg_tier *tier)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    bool pending = tier->in_flight.oldest != NULL || tier->results.oldest != NULL;
    kvreg_os_mutex_unlock(&tier->results_lock);
    return pending;
}

/* -- Cache --------------------------------------------------------------------------------- */

kvreg_found kvreg_tier_lookup(kvreg_tier *tier, kvreg_key *key)
{
    return kvreg_cache_lookup(&tier->cache, key);
}

void kvreg_tier_touch(kvreg_tier *tier, kvreg_key *keys, size_t n, const kvreg_use *by)
{
    kvreg_cache_touch(&tier->cache, keys, n, by);
}

void kvreg_tier_end_step(kvreg_tier *tier)
{
    kvreg_cache_end_step(&tier->cache);
}

kvreg_status kvreg_tier_reset(kvreg_tier *tier, kvreg_error *error)
{
    bool cleared = !wait_for_jobs(tier) || kvreg_cache_clear(&tier->cache);
    let_cache_go(tier);
    if (cleared)
        return KVREG_OK;
    return kvreg_fail(error, KVREG_E_MEMORY, "no memory for the events of a reset");
}

kvreg_status kvreg_tier_take_events(kvreg_tier *tier, kvreg_event **list, size_t *count,
                                    kvreg_error *error)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    bool taken = tier->phase < WITHOUT_CACHE
                     ? kvreg_cache_take_events(&tier->cache, list, count)
                     : kvreg_events_take(&tier->cache.events, list, count);
    kvreg_os_mutex_unlock(&tier->results_lock);
    if (taken)
        return KVREG_OK;
    return kvreg_fail(error, KVREG_E_MEMORY, "no memory to hand over the events");
}

void kvreg_tier_read_stats(kvreg_tier *tier, kvreg_tier_stats *stats)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    *stats = tier->stats;
    if (tier->phase < WITHOUT_CACHE)
        kvreg_cache_read_stats(&tier->cache, &stats->cache);
    kvreg_os_mutex_unlock(&tier->results_lock);
}

/* -- Life ---------------------------------------------------------------------------------- */

static kvreg_status count_slots(const kvreg_tier_config *config, uint32_t *slots,
                                kvreg_error *error)
{
    uint64_t fit = config->capacity_bytes / config->block_bytes;
    if (fit < 1)
        return kvreg_fail(error, KVREG_E_ARGUMENT,
                          "a capacity of %" PRIu64 " bytes is less than one block of %zu bytes",
                          config->capacity_bytes, config->block_bytes);
    if (fit > KVREG_SLOTS_MAX)
        return kvreg_fail(error, KVREG_E_ARGUMENT,
                          "a capacity of %" PRIu64 " bytes is %" PRIu64 " blocks of %zu bytes; "
                          "a tier holds at most %d",
                          config->capacity_bytes, fit, config->block_bytes, KVREG_SLOTS_MAX);
    *slots = (uint32_t)fit;
    return KVREG_OK;
}

static kvreg_status check_backend(const kvreg_backend *backend, kvreg_error *error)
{
    if (backend->version == KVREG_BACKEND_VERSION)
        return KVREG_OK;
    return kvreg_fail(error, KVREG_E_ARGUMENT,
                      "backend %.64s is of interface version %u; this library needs %d",
                      backend->name, backend->version, KVREG_BACKEND_VERSION);
}

static kvreg_status choose_kernels(kvreg_tier *tier, uint32_t slots, kvreg_error *error)
{
    kvreg_status status = kvreg_copy_choose(tier->block_bytes, slots * tier->block_bytes,
                                            &tier->store_kernel, error);
    if (status != KVREG_OK)
        return status;
    return kvreg_copy_choose(tier->block_bytes, tier->primary.rows * tier->block_bytes,
                             &tier->load_kernel, error);
}

static kvreg_status map_region(kvreg_tier *tier, uint32_t slots, const kvreg_policy *policy,
                               bool watched, kvreg_error *error)
{
    tier->region = kvreg_os_map(tier->region_bytes);
    if (tier->region == NULL)
        return kvreg_fail(error, KVREG_E_MEMORY, "the system refused to map %zu bytes of metadata",
                          tier->region_bytes);
    kvreg_os_prefer_huge_pages(tier->region, tier->region_bytes);
    kvreg_cache_init(&tier->cache, tier->region, slots, policy, watched);
    return KVREG_OK;
}

static void unmap_region(kvreg_tier *tier)
{
    kvreg_os_unmap(tier->region, tier->region_bytes);
}

/* Takes what the tier needs, one thing after the other; what was taken before a failure is given
 * back in the reverse order. */
static kvreg_status take_resources(kvreg_tier *tier, const kvreg_tier_config *config,
                                   uint32_t slots, const kvreg_policy *policy, uint32_t workers,
                                   kvreg_error *error)
{
    kvreg_backend_request request = {
        .slots = slots,
        .block_bytes = config->block_bytes,
        .metadata_bytes = tier->region_bytes,
        .options = config->memory,
    };
    kvreg_status status = tier->backend->check(&request, error);
    if (status != KVREG_OK)
        return status;
    status = map_region(tier, slots, policy, config->watched, error);
    if (status != KVREG_OK)
        return status;
    status = tier->backend->open(&request, &tier->memory, error);
    if (status != KVREG_OK)
        goto unmap;
    tier->slots = (kvreg_rows){ tier->memory.base, tier->memory.stride, slots };
    status = kvreg_transfer_open(workers, config->worker_cpus, &tier->transfer, error);
    if (status == KVREG_OK)
        return KVREG_OK;
    tier->backend->close(&tier->memory);
unmap:
    unmap_region(tier);
    return status;
}

kvreg_status kvreg_tier_open(const kvreg_tier_config *config, kvreg_tier **opened,
                             kvreg_error *error)
{
    const kvreg_policy *policy = NULL;
    uint32_t slots = 0;
    *error = (kvreg_error){ .status = KVREG_OK };
    kvreg_status status = kvreg_policy_find(config->policy, &policy, error);
    if (status == KVREG_OK)
        status = check_backend(config->backend, error);
    if (status == KVREG_OK)
        status = count_slots(config, &slots, error);
    if (status != KVREG_OK)
        return status;
    kvreg_tier *tier = kvreg_os_alloc(sizeof *tier);
    if (tier == NULL)
        return kvreg_fail(error, KVREG_E_MEMORY, "no memory for a tier");
    uint32_t workers =
        config->workers == 0 ? kvreg_transfer_default_workers() : config->workers;
    *tier = (kvreg_tier){
        .primary = config->primary,
        .block_bytes = config->block_bytes,
        .forks = kvreg_os_fork_count(),
        .verify = config->verify,
        .region_bytes = kvreg_cache_region_bytes(slots, policy),
        .backend = config->backend,
    };
    status = choose_kernels(tier, slots, error);
    if (status == KVREG_OK)
        status = take_resources(tier, config, slots, policy, workers, error);
    if (status != KVREG_OK) {
        kvreg_os_free(tier);
        return status;
    }
    kvreg_os_mutex_init(&tier->results_lock);
    kvreg_os_condition_init(&tier->finished);
    tier->stats.slots = slots;
    tier->stats.data_bytes = tier->memory.bytes;
    tier->stats.metadata_bytes = tier->region_bytes;
    tier->stats.workers = workers;
    *opened = tier;
    return KVREG_OK;
}

bool kvreg_tier_inherited(const kvreg_tier *tier)
{
    return tier->forks != kvreg_os_fork_count();
}

/* Begins the end of a tier and waits until no job is in flight and no thread waits for one. False
 * when another thread has begun it: then waits for the end of that. */
static bool begin_close(kvreg_tier *tier)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    bool first = tier->phase == OPEN;
    if (first) {
        tier->phase = CLOSING;
        while (tier->in_flight.oldest != NULL || tier->waiters > 0)
            kvreg_os_condition_wait(&tier->finished, &tier->results_lock);
    }
    while (!first && tier->phase != CLOSED)
        kvreg_os_condition_wait(&tier->finished, &tier->results_lock);
    kvreg_os_mutex_unlock(&tier->results_lock);
    return first;
}

/* Takes the cache's last figures, since it goes away. Threads that came to wait since begin_close
 * go first. */
static void part_with_cache(kvreg_tier *tier)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    while (tier->waiters > 0)
        kvreg_os_condition_wait(&tier->finished, &tier->results_lock);
    kvreg_cache_read_stats(&tier->cache, &tier->stats.cache);
    tier->phase = WITHOUT_CACHE;
    kvreg_os_mutex_unlock(&tier->results_lock);
    kvreg_cache_destroy(&tier->cache);
}

static void unmap_all(kvreg_tier *tier)
{
    tier->backend->close(&tier->memory);
    unmap_region(tier);
}

static void end_close(kvreg_tier *tier)
{
    kvreg_os_mutex_lock(&tier->results_lock);
    tier->phase = CLOSED;
    kvreg_os_condition_wake_all(&tier->finished);
    kvreg_os_mutex_unlock(&tier->results_lock);
}

void kvreg_tier_close(kvreg_tier *tier)
{
    if (!kvreg_tier_inherited(tier) && begin_close(tier)) {
        kvreg_transfer_close(tier->transfer);
        part_with_cache(tier);
        unmap_all(tier);
        end_close(tier);
    }
}

void kvreg_tier_free(kvreg_tier *tier)
{
    if (!kvreg_tier_inherited(tier)) {
        kvreg_tier_result result;
        while (kvreg_tier_take_result(tier, &result))
            kvreg_tier_free_result(&result);
        kvreg_os_condition_destroy(&tier->finished);
        kvreg_os_mutex_destroy(&tier->results_lock);
        kvreg_events_free(&tier->cache.events);
    }
    kvreg_os_free(tier);
}
