from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kvreg.core_error cimport kvreg_error, kvreg_status


cdef extern from "kvreg/copy.h" nogil:
    ctypedef struct kvreg_rows:
        void *base
        size_t stride
        size_t rows


cdef extern from "kvreg/backend.h" nogil:
    ctypedef enum kvreg_huge_pages:
        KVREG_HUGE_PAGES_AUTO
        KVREG_HUGE_PAGES_OFF
        KVREG_HUGE_PAGES_2MIB
        KVREG_HUGE_PAGES_1GIB

    ctypedef enum kvreg_numa:
        KVREG_NUMA_DEFAULT
        KVREG_NUMA_NODE
        KVREG_NUMA_INTERLEAVE

    ctypedef struct kvreg_memory_options:
        kvreg_huge_pages huge_pages
        kvreg_numa numa
        uint32_t node
        bint prefault

    ctypedef struct kvreg_backend:
        pass


cdef extern from "backend_dram.h" nogil:
    const kvreg_backend kvreg_backend_dram


cdef extern from "os.h" nogil:
    void kvreg_os_free(void *memory)
    uint64_t kvreg_os_monotonic_ns()


cdef extern from "events.h" nogil:
    ctypedef struct kvreg_event:
        uint8_t removed
        uint8_t key_bytes
        uint8_t *key


cdef extern from "index.h" nogil:
    enum:
        KVREG_KEY_MAX

    ctypedef struct kvreg_key:
        const uint8_t *data
        uint16_t bytes


cdef extern from "cache.h" nogil:
    ctypedef enum kvreg_found:
        KVREG_MISS
        KVREG_HIT
        KVREG_RETRY

    ctypedef struct kvreg_cache_block:
        uint32_t slot
        uint32_t key

    ctypedef struct kvreg_cache_stats:
        uint64_t hits, misses, retries, evictions
        uint64_t dropped_oversized, dropped_promised, dropped_busy, declined
        uint64_t absent, rejected, groups
        uint32_t used, pinned, promised


cdef extern from "policy.h" nogil:
    ctypedef struct kvreg_policy:
        const char *name

    const kvreg_policy *kvreg_policies[]

    enum:
        KVREG_TICKS_A_SECOND

    ctypedef struct kvreg_use:
        uint32_t request
        uint32_t now
        bint whole

    uint32_t kvreg_request_number(const char *name, size_t bytes)


cdef extern from "transfer.h" nogil:
    enum:
        KVREG_WORKERS_MAX


cdef extern from "tier.h" nogil:
    ctypedef struct kvreg_tier:
        pass

    ctypedef struct kvreg_tier_config:
        kvreg_rows primary
        size_t block_bytes
        uint64_t capacity_bytes
        uint32_t workers
        const int *worker_cpus
        const char *policy
        const kvreg_backend *backend
        bint verify
        bint watched
        kvreg_memory_options memory

    ctypedef struct kvreg_tier_result:
        int64_t job
        bint load
        size_t keys, failed, blocks
        uint64_t bytes, ns
        const kvreg_cache_block *served

    ctypedef struct kvreg_tier_stats:
        kvreg_cache_stats cache
        uint64_t stored_blocks, stored_bytes, loaded_blocks, loaded_bytes
        uint64_t store_copy_ns, load_copy_ns
        uint64_t stores_in_flight, loads_in_flight, results
        uint64_t slots, data_bytes, metadata_bytes
        uint32_t workers

    kvreg_status kvreg_tier_open(
        const kvreg_tier_config *config, kvreg_tier **tier, kvreg_error *error)
    void kvreg_tier_close(kvreg_tier *tier)
    void kvreg_tier_free(kvreg_tier *tier)
    bint kvreg_tier_inherited(const kvreg_tier *tier)
    kvreg_found kvreg_tier_lookup(kvreg_tier *tier, kvreg_key *key)
    void kvreg_tier_touch(
        kvreg_tier *tier, kvreg_key *keys, size_t n, const kvreg_use *by)
    void kvreg_tier_end_step(kvreg_tier *tier)
    kvreg_status kvreg_tier_store(
        kvreg_tier *tier, int64_t job, kvreg_key *keys, const uint32_t *rows, size_t n,
        const kvreg_use *by, kvreg_error *error)
    kvreg_status kvreg_tier_load(
        kvreg_tier *tier, int64_t job, kvreg_key *keys, const uint32_t *rows, size_t n,
        const kvreg_use *by, kvreg_error *error)
    kvreg_status kvreg_tier_reset(kvreg_tier *tier, kvreg_error *error)
    kvreg_status kvreg_tier_take_events(
        kvreg_tier *tier, kvreg_event **list, size_t *count, kvreg_error *error)
    bint kvreg_tier_take_result(kvreg_tier *tier, kvreg_tier_result *result)
    void kvreg_tier_give_back_result(kvreg_tier *tier, const kvreg_tier_result *result)
    void kvreg_tier_free_result(kvreg_tier_result *result)
    void kvreg_tier_drain(kvreg_tier *tier)
    bint kvreg_tier_pending(kvreg_tier *tier)
    void kvreg_tier_read_stats(kvreg_tier *tier, kvreg_tier_stats *stats)


cdef class OwnedTier:
    cdef kvreg_tier *tier         # NULL where it could not be opened
    cdef object view              # the tier's own memoryview of the primary tier's buffer
    cdef bint shut_down

    cdef int close(self) except -1


cdef class NativeTier:
    cdef OwnedTier _owned
    cdef kvreg_tier *_tier        # the owned one; NULL until it is open
    cdef bint _writable           # whether loads may write to the primary rows
    cdef size_t _primary_rows
    cdef object _miss, _hit, _retry
    cdef object _job_result
    cdef object _clock            # tells the time in seconds; None: the system's clock does
    cdef object _event            # makes an event of (keys, removed); None: no events are kept
    cdef str _rows_attribute      # of a job
    cdef bint _drops_fail         # a store that drops blocks has failed
    cdef dict _jobs               # of jobs without a collected result: id -> keys, loads only
    cdef dict _results            # made and not returned yet: id -> result
    cdef bint _collecting         # a call of get_finished_jobs is making results
    cdef kvreg_event *_untold     # taken from the core and not returned yet; may be NULL
    cdef size_t _untold_count
    cdef bint _telling            # a call of take_events is making events

    cdef int _check_usable(self) except -1
    cdef int _check_not_inherited(self) except -1
    cdef int _describe_use(self, object req_context, bint whole, kvreg_use *out) except -1
    cdef object _submit(self, object job_metadata, bint load)
    cdef int _start(
        self, int64_t job, bint load, tuple held, kvreg_key *keys, const uint32_t *rows,
        const kvreg_use *by,
    ) except -1
    cdef int _make_results(self) except -1
    cdef object _make_result(self, const kvreg_tier_result *result)
    cdef int _take_untold(self) except -1
    cdef list _group_events(self, const kvreg_event *events, size_t count)
