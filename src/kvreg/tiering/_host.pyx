# cython: boundscheck=False, wraparound=False
# Every index below runs over a length that was read first.
"""The binding of the native host tier: converts, checks, calls, translates errors."""

from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cython cimport final, no_gc_clear
from libc.math cimport floor
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kvreg.buffer_format cimport may_hold_references
from kvreg.core_error cimport KVREG_OK, raise_core_error
from kvreg.row_ids cimport fill_row_ids


cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)


cdef tuple policy_names():
    cdef list names = []
    cdef size_t i = 0
    while kvreg_policies[i] != NULL:
        names.append(kvreg_policies[i].name.decode())
        i += 1
    return tuple(names)


EVICTION_POLICIES = policy_names()
MOST_WORKERS = KVREG_WORKERS_MAX


cdef int fill_key(object key, kvreg_key *out) except -1:
    """Point `out` at the bytes of a key, which must stay alive as long as it is used."""
    if not PyBytes_Check(key):
        raise TypeError(f"a key must be bytes; this is a {type(key).__name__}: {key!r}")
    cdef Py_ssize_t length = PyBytes_GET_SIZE(key)
    if length < 1 or length > KVREG_KEY_MAX:
        raise ValueError(
            f"a key must have 1 to {<int>KVREG_KEY_MAX} bytes; this one has {length}: {key!r}"
        )
    out.data = <const uint8_t *>PyBytes_AS_STRING(key)
    out.bytes = <uint16_t>length
    return 0


cdef bytes as_policy_name(object policy):
    """The name as the core takes it: a string that ends with the first 0 byte."""
    if not isinstance(policy, str):
        raise TypeError(f"eviction_policy must be a str, not {policy!r}")
    if "\0" in policy:
        raise ValueError(f"unknown eviction policy {policy!r}")
    return policy.encode("utf-8", "backslashreplace")


cdef int64_t as_job_id(object job_id) except? -1:
    """The id as the core takes it, which is also what its result is found by."""
    if not PyIndex_Check(job_id):
        raise TypeError(
            f"a job's id must be an int; this is a {type(job_id).__name__}: {job_id!r}"
        )
    try:
        return PyNumber_Index(job_id)
    except OverflowError:
        raise ValueError(f"a job's id must fit 64 bits, signed; it is {job_id}") from None


cdef void *allocate(size_t bytes) except NULL:
    cdef void *memory = PyMem_Malloc(bytes)
    if memory == NULL:
        raise MemoryError(f"no memory for {bytes} bytes")
    return memory


cdef kvreg_key *new_keys(tuple keys) except NULL:
    """The keys as the core takes them: for PyMem_Free, and pointing into `keys`."""
    cdef Py_ssize_t i, n = len(keys)
    cdef kvreg_key *out = <kvreg_key *>allocate(n * sizeof(kvreg_key))
    try:
        for i in range(n):
            fill_key(keys[i], &out[i])
    except BaseException:
        PyMem_Free(out)
        raise
    return out


cdef uint32_t as_request_number(object req_context) except? 0:
    """A number that tells the request from others; 0 where the context does not name it."""
    name = getattr(req_context, "req_id", None)
    if not isinstance(name, str):
        return 0
    cdef bytes encoded = name.encode("utf-8", "surrogatepass")
    return kvreg_request_number(encoded, len(encoded))


cdef uint32_t as_ticks(double seconds) except? 0:
    """The time as eviction policies count it, which wraps."""
    cdef double ticks = floor(seconds * <int>KVREG_TICKS_A_SECOND)
    if not -2.0 ** 62 < ticks < 2.0 ** 62:
        raise ValueError(f"the clock must tell a time in seconds, not {seconds!r}")
    return <uint32_t><int64_t>ticks


cdef int fill_cpus(tuple worker_cpus, uint32_t workers, int *out) except -1:
    """Write a CPU's number for each worker to `out`, which has room for KVREG_WORKERS_MAX."""
    cdef Py_ssize_t i, n = len(worker_cpus)
    if n != workers or n > KVREG_WORKERS_MAX:
        raise ValueError(f"worker_cpus has {n} CPUs for {workers} threads")
    for i in range(n):
        out[i] = worker_cpus[i]
    return 0


cdef int describe_primary(object view, kvreg_tier_config *config) except -1:
    """Fill in the primary rows and the block's size from a memoryview."""
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.ndim != 2:
        raise ValueError(
            f"the primary view must have 2 dimensions, (num_blocks, row_bytes); it has "
            f"{buffer.ndim}"
        )
    if buffer.shape[0] < 1 or buffer.shape[1] < 1 or buffer.itemsize < 1:
        raise ValueError(
            f"the primary view must hold a byte; its shape is {view.shape}, of items of "
            f"{buffer.itemsize} bytes"
        )
    if may_hold_references(buffer.format):
        raise TypeError(
            "the primary view may hold references to Python objects, which are no bytes to "
            f"copy; its format is {view.format!r}"
        )
    cdef Py_ssize_t row_bytes = buffer.shape[1] * buffer.itemsize
    if buffer.suboffsets != NULL or (
        buffer.shape[1] > 1 and buffer.strides[1] != buffer.itemsize
    ):
        raise ValueError(
            f"the bytes of a row of the primary view must be contiguous; its strides are "
            f"{view.strides} for items of {buffer.itemsize} bytes"
        )
    if buffer.shape[0] > 1 and buffer.strides[0] < row_bytes:
        raise ValueError(
            f"the rows of the primary view must follow one another without overlap: rows of "
            f"{row_bytes} bytes with strides {view.strides}"
        )
    if buffer.shape[0] > <Py_ssize_t>0xffffffff:
        raise ValueError(
            f"the primary view has {buffer.shape[0]} rows; at most 2**32 - 1 fit"
        )
    config.primary.base = buffer.buf
    config.primary.stride = <size_t>max(buffer.strides[0], row_bytes)
    config.primary.rows = <size_t>buffer.shape[0]
    config.block_bytes = <size_t>row_bytes
    return 0


cdef dict HUGE_PAGES = {
    "auto": KVREG_HUGE_PAGES_AUTO,
    "off": KVREG_HUGE_PAGES_OFF,
    "2MiB": KVREG_HUGE_PAGES_2MIB,
    "1GiB": KVREG_HUGE_PAGES_1GIB,
}


cdef int describe_memory(
    object huge_pages, object numa_node, object prefault, kvreg_memory_options *out
) except -1:
    """Fill in what the user wishes of the memory."""
    if not isinstance(huge_pages, str) or huge_pages not in HUGE_PAGES:
        allowed = ", ".join(f'"{name}"' for name in HUGE_PAGES)
        raise ValueError(f"huge_pages must be one of {allowed}, not {huge_pages!r}")
    out.huge_pages = <kvreg_huge_pages><int>HUGE_PAGES[huge_pages]
    out.node = 0
    if numa_node is None:
        out.numa = KVREG_NUMA_DEFAULT
    elif isinstance(numa_node, str) and numa_node == "interleave":
        out.numa = KVREG_NUMA_INTERLEAVE
    elif (
        isinstance(numa_node, int)
        and not isinstance(numa_node, bool)
        and 0 <= numa_node <= 0xffffffff
    ):
        out.numa = KVREG_NUMA_NODE
        out.node = numa_node
    else:
        raise ValueError(
            f'numa_node must be None, "interleave" or the number of a node, 0 or more, not '
            f"{numa_node!r}"
        )
    if not isinstance(prefault, bool):
        raise ValueError(f"prefault must be True or False, not {prefault!r}")
    out.prefault = prefault
    return 0


# no_gc_clear, here and below: in a cycle other finalizers may still call the tier's methods.
@final
@no_gc_clear
cdef class OwnedTier:
    """The core's tier and the view that it copies from and to."""

    cdef int close(self) except -1:
        self.shut_down = True
        if self.tier != NULL:
            with nogil:
                kvreg_tier_close(self.tier)
        self.view.release()
        return 0

    # The garbage collector clears a cycle's memoryviews under the copies, but calls every
    # finalizer before. It is not NativeTier that has this one: a subclass could override it.
    def __del__(self):
        self.close()

    def __dealloc__(self):
        if self.tier != NULL:
            kvreg_tier_free(self.tier)


# What a method is given may run its owner's code (a collection's iterator, a number's
# __index__, the type of a result, a finalizer), and that may call the tier again, shut it down,
# or let another thread do so. So a method converts first; then it checks; and nobody else's
# code runs between the check and the call of the core that it is for.
@no_gc_clear
cdef class NativeTier:
    """A host tier without its Python side; see `HostMemoryTier`."""

    def _open(
        self,
        view,
        uint64_t capacity_bytes,
        uint32_t workers,
        list worker_cpus,
        policy,
        *,
        bint verify,
        huge_pages,
        numa_node,
        prefault,
        tuple lookup_results,
        job_result,
        event,
        clock,
        str rows_attribute,
        bint drops_fail,
    ):
        """Take the resources of the tier; return a warning, or None.

        Called once, by the subclass's constructor.

        `workers` 0 means the default; `worker_cpus` may be None. `verify` keeps a checksum of
        each block. `lookup_results` are what `lookup` answers with, for miss, hit and retry.
        `job_result` makes a result of (job_id, success, successful_keys, seconds, bytes), and
        `event` one of (keys, removed), by name; None where no events are to be kept.
        `rows_attribute` is where a job has its rows. `drops_fail`: a store that drops blocks
        has failed.
        `clock` tells the time in seconds; None: the system's monotonic clock does.
        `huge_pages`, `numa_node` and `prefault` are as the user gave them.
        """
        cdef kvreg_tier_config config
        cdef kvreg_error error
        cdef int cpus[KVREG_WORKERS_MAX]
        cdef bytes policy_name = as_policy_name(policy)
        cdef dict jobs = {}, results = {}
        miss, hit, retry = lookup_results
        if worker_cpus is not None:
            fill_cpus(tuple(worker_cpus), workers, cpus)
        own = memoryview(view)
        cdef OwnedTier owned = OwnedTier.__new__(OwnedTier)
        owned.view = own
        try:
            describe_primary(own, &config)
            describe_memory(huge_pages, numa_node, prefault, &config.memory)
            config.capacity_bytes = capacity_bytes
            config.workers = workers
            config.worker_cpus = NULL if worker_cpus is None else cpus
            config.policy = policy_name
            config.backend = &kvreg_backend_dram
            config.verify = verify
            config.watched = event is not None
            if self._tier != NULL:
                raise RuntimeError("the tier is open already")
            if kvreg_tier_open(&config, &owned.tier, &error) != KVREG_OK:
                raise_core_error(&error)
        except BaseException:
            # A traceback may keep the tier alive, and with it an export of the buffer.
            own.release()
            raise
        # Nothing from here on can fail.
        self._owned = owned
        self._tier = owned.tier
        self._writable = not own.readonly
        self._primary_rows = config.primary.rows
        self._jobs = jobs
        self._results = results
        self._miss, self._hit, self._retry = miss, hit, retry
        self._job_result = job_result
        self._event = event
        self._clock = clock
        self._rows_attribute = rows_attribute
        self._drops_fail = drops_fail
        return error.text.decode("utf-8", "replace") if error.text[0] else None

    def __dealloc__(self):
        kvreg_os_free(self._untold)

    cdef int _check_not_inherited(self) except -1:
        if self._tier == NULL:
            raise RuntimeError("the tier was never opened")
        if kvreg_tier_inherited(self._tier):
            raise RuntimeError(
                "the tier belongs to the process that made it; after fork() make a new one"
            )
        return 0

    cdef int _check_usable(self) except -1:
        self._check_not_inherited()
        if self._owned.shut_down:
            raise RuntimeError("the tier is shut down")
        return 0

    def lookup(self, key, req_context):
        """Say whether the tier has the block named `key`; a hit holds until the step ends.

        Raises:
            TypeError, ValueError: `key` is not bytes of length 1 to 64.
            RuntimeError: the tier is shut down, or was inherited by fork().
        """
        cdef kvreg_key native
        self._check_usable()
        fill_key(key, &native)
        cdef kvreg_found found = kvreg_tier_lookup(self._tier, &native)
        if found == KVREG_HIT:
            return self._hit
        return self._miss if found == KVREG_MISS else self._retry

    def touch(self, keys, req_context):
        """Note that a request uses blocks: all of its `keys`, in prefix order.

        Raises: as `lookup`.
        """
        cdef kvreg_use by
        self._check_usable()
        cdef tuple held = tuple(keys)
        cdef kvreg_key *native = new_keys(held)
        try:
            self._describe_use(req_context, True, &by)
            self._check_usable()
            kvreg_tier_touch(self._tier, native, len(held), &by)
        finally:
            PyMem_Free(native)

    def submit_store(self, job_metadata):
        """Start a copy of primary rows into the tier.

        What does not fit is dropped from the tail of the job, whose result then has `success`
        False, unless the engine counts that as success.

        Raises:
            TypeError: a key, a row number or the job's id is of the wrong type.
            ValueError: a key's length, a row number, the number of rows or the job's id is out
                of range, or the id is in use.
            RuntimeError: the tier is shut down, or was inherited by fork().
        """
        self._submit(job_metadata, False)

    def submit_load(self, job_metadata):
        """Start a copy of blocks from the tier into primary rows.

        Keys that the tier does not have ready fail alone: `successful_keys` of the result names
        the others.

        Raises: as `submit_store`, and ValueError where the primary view is read-only.
        """
        self._submit(job_metadata, True)

    cdef int _describe_use(self, object req_context, bint whole, kvreg_use *out) except -1:
        out.request = as_request_number(req_context)
        if self._clock is None:
            out.now = as_ticks(kvreg_os_monotonic_ns() * 1e-9)
        else:
            out.now = as_ticks(self._clock())
        out.whole = whole
        return 0

    cdef object _submit(self, object job_metadata, bint load):
        cdef kvreg_use by
        cdef kvreg_key *keys = NULL
        cdef uint32_t *rows = NULL
        self._check_usable()
        if load and not self._writable:
            raise ValueError("the primary view is read-only: nothing can be loaded into it")
        cdef int64_t job = as_job_id(job_metadata.job_id)
        cdef tuple held = tuple(job_metadata.keys)
        cdef Py_ssize_t n = len(held)
        try:
            keys = new_keys(held)
            rows = <uint32_t *>allocate(n * sizeof(uint32_t))
            fill_row_ids(
                getattr(job_metadata, self._rows_attribute),
                self._rows_attribute,
                rows,
                n,
                self._primary_rows,
            )
            self._describe_use(getattr(job_metadata, "req_context", None), False, &by)
            self._start(job, load, held, keys, rows, &by)
        finally:
            PyMem_Free(rows)
            PyMem_Free(keys)

    cdef int _start(
        self, int64_t job, bint load, tuple held, kvreg_key *keys, const uint32_t *rows,
        const kvreg_use *by,
    ) except -1:
        """Start a converted job; `keys` point into `held`."""
        cdef kvreg_error error
        cdef kvreg_status status
        cdef object job_id = job
        self._check_usable()
        if job_id in self._jobs:
            raise ValueError(f"job {job_id} is in use: its result was not collected yet")
        # Before the job starts: nothing after it may fail.
        self._jobs[job_id] = held if load else None
        if load:
            status = kvreg_tier_load(self._tier, job, keys, rows, len(held), by, &error)
        else:
            status = kvreg_tier_store(self._tier, job, keys, rows, len(held), by, &error)
        if status != KVREG_OK:
            del self._jobs[job_id]
            raise_core_error(&error)
        return 0

    def get_finished_jobs(self):
        """Return the results of all jobs that ended since the last call, as a list.

        None is lost: where a result cannot be made, since its type raises or there is no
        memory, or a signal's handler raises, the next call returns all of them. A call during
        another one, which has them, returns none.

        Raises:
            RuntimeError: the tier was inherited by fork().
        """
        cdef list results
        self._check_not_inherited()
        if self._collecting:
            return []
        self._collecting = True
        try:
            self._make_results()
            results = list(self._results.values())
            # Here, not in the caller, who would lose the list that was just returned.
            PyErr_CheckSignals()
            for job_id in self._results:
                del self._jobs[job_id]
            self._results.clear()
            return results
        finally:
            self._collecting = False

    cdef int _make_results(self) except -1:
        cdef kvreg_tier_result result
        while kvreg_tier_take_result(self._tier, &result):
            try:
                made = self._make_result(&result)
                self._results[result.job] = made
            except BaseException:
                kvreg_tier_give_back_result(self._tier, &result)
                raise
            kvreg_tier_free_result(&result)
        return 0

    cdef object _make_result(self, const kvreg_tier_result *result):
        cdef size_t i
        cdef tuple keys = self._jobs[result.job]
        served = None
        if result.load and 0 < result.blocks < result.keys:
            served = [keys[result.served[i].key] for i in range(result.blocks)]
        cdef bint success = result.failed == 0 or not (result.load or self._drops_fail)
        return self._job_result(result.job, success, served, result.ns * 1e-9, result.bytes)

    def has_pending_work(self):
        """Whether a job is in flight or a result waits to be collected.

        Raises:
            RuntimeError: the tier was inherited by fork().
        """
        self._check_not_inherited()
        return kvreg_tier_pending(self._tier) or len(self._results) > 0

    def on_request_finished(self, req_context):
        """Learn that no further call will name this request; nothing is kept for it.

        Raises:
            RuntimeError: the tier is shut down, or was inherited by fork().
        """
        self._check_usable()

    def on_schedule_end(self, context):
        """Close the step: what lookups promised in it may be evicted. `context` is not read.

        Raises:
            RuntimeError: the tier is shut down, or was inherited by fork().
        """
        self._check_usable()
        kvreg_tier_end_step(self._tier)

    def drain_jobs(self):
        """Wait, without the GIL, until every job submitted before this call has its result.

        Raises:
            RuntimeError: the tier is shut down, or was inherited by fork().
        """
        self._check_usable()
        with nogil:
            kvreg_tier_drain(self._tier)

    def reset(self):
        """Forget every block, after the jobs submitted before this call have ended.

        For an engine whose weights changed. Waits without the GIL. What another thread stores
        in the meantime may be forgotten or not.

        Raises:
            MemoryError: there is none for the events; nothing was forgotten.
            RuntimeError: the tier is shut down, or was inherited by fork().
        """
        cdef kvreg_error error
        cdef kvreg_status status
        self._check_usable()
        with nogil:
            status = kvreg_tier_reset(self._tier, &error)
        if status != KVREG_OK:
            raise_core_error(&error)

    def take_events(self):
        """Return the events since the last call, oldest first, each change of a key once.

        Neighbouring changes of one kind are one event. An empty list where events are not kept.
        None is lost: where they cannot be made, since their type raises or there is no memory,
        or a signal's handler raises, the next call returns them. A call during another one,
        which has them, returns none.

        Raises:
            RuntimeError: the tier was inherited by fork().
        """
        cdef list events
        self._check_not_inherited()
        if self._event is None or self._telling:
            return []
        self._telling = True
        try:
            if self._untold == NULL:
                self._take_untold()
            events = self._group_events(self._untold, self._untold_count)
            # As in get_finished_jobs.
            PyErr_CheckSignals()
            kvreg_os_free(self._untold)
            self._untold = NULL
            return events
        finally:
            self._telling = False

    cdef int _take_untold(self) except -1:
        cdef kvreg_error error
        cdef kvreg_status status = kvreg_tier_take_events(
            self._tier, &self._untold, &self._untold_count, &error)
        if status != KVREG_OK:
            raise_core_error(&error)
        return 0

    cdef list _group_events(self, const kvreg_event *events, size_t count):
        cdef size_t i
        cdef list keys, groups = []
        for i in range(count):
            if i == 0 or events[i].removed != events[i - 1].removed:
                keys = []
                groups.append((keys, events[i].removed != 0))
            keys.append(
                PyBytes_FromStringAndSize(<const char *>events[i].key, events[i].key_bytes)
            )
        return [self._event(keys=keys, removed=removed) for keys, removed in groups]

    def shutdown(self):
        """Finish every job, end the threads, unmap the memory, release the primary view.

        Waits without the GIL. Calling it again does nothing. Results that were not collected
        stay.
        """
        if self._tier == NULL:
            return
        self._owned.close()

    def _require_usable(self):
        """Raise RuntimeError where the tier is shut down or was inherited by fork()."""
        self._check_usable()

    def _read_stats(self):
        """Return the tier's figures as a dict with the field names of `TierStats`."""
        cdef kvreg_tier_stats stats
        self._check_not_inherited()
        kvreg_tier_read_stats(self._tier, &stats)
        return {
            "lookups_hit": stats.cache.hits,
            "lookups_miss": stats.cache.misses,
            "lookups_retry": stats.cache.retries,
            "blocks_stored": stats.stored_blocks,
            "bytes_stored": stats.stored_bytes,
            "seconds_storing": stats.store_copy_ns * 1e-9,
            "blocks_loaded": stats.loaded_blocks,
            "bytes_loaded": stats.loaded_bytes,
            "seconds_loading": stats.load_copy_ns * 1e-9,
            "evictions": stats.cache.evictions,
            "blocks_dropped_oversized": stats.cache.dropped_oversized,
            "blocks_dropped_promised": stats.cache.dropped_promised,
            "blocks_dropped_busy": stats.cache.dropped_busy,
            "blocks_declined": stats.cache.declined,
            "blocks_absent": stats.cache.absent,
            "blocks_corrupt": stats.cache.rejected,
            "stores_in_flight": stats.stores_in_flight,
            "loads_in_flight": stats.loads_in_flight,
            "results_waiting": stats.results,
            "kv_groups": (<object>stats.cache.groups).bit_count(),
            "slots_total": stats.slots,
            "slots_used": stats.cache.used,
            "slots_pinned": stats.cache.pinned,
            "slots_promised": stats.cache.promised,
            "data_bytes": stats.data_bytes,
            "metadata_bytes": stats.metadata_bytes,
            "num_threads": stats.workers,
        }
