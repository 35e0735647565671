"""A secondary tier in host memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Literal

from kvreg.tiering._host import MOST_WORKERS, NativeTier
from kvreg.tiering.base import (
    JobResult,
    LookupResult,
    OffloadingEvent,
    ReqContext,
    RequestOffloadingContext,
    SecondaryTierManager,
)
from kvreg.tiering.engine_interface import EngineInterface
from kvreg.tiering.sizes import parse_bytes
from kvreg.tiering.stats import TierStats


class HostMemoryTier(NativeTier, SecondaryTierManager):
    """Holds blocks in this process's memory; worker threads copy them without the GIL.

    A HIT holds until the step ends. A store that finds no room keeps the head of the prefix and
    drops its tail; a load that cannot serve some keys serves the others. Any thread may call.

    Args:
        offloading_spec: The engine's offloading configuration; not used.
        primary_kv_view: The primary tier's buffer, shape ``(num_blocks, row)``, whose rows are
            contiguous bytes, of items of any type but Python objects; a block is one row. From
            a read-only one blocks are stored, and loads are refused. The tier holds a view of
            its own on the buffer until ``shutdown``.
        tier_type: The name under which the engine's configuration asked for the tier.
        capacity: Memory for blocks, in bytes or as ``"4GiB"``; ``capacity // block bytes`` fit.
            Metadata comes on top: 110 bytes a block under ``"lru"``, 127 under ``"s3fifo"``,
            118 under ``"krl"`` and there 34 for each of as many keys without a block, 30,000 at
            least; and 8 KiB. See ``stats``.
        num_threads: Worker threads, 1 to 1024. Default: the CPUs that the process may use, by
            affinity and cgroup quota, less one for the scheduler, and at most 8.
        worker_cpus: A CPU number for each worker thread, to pin it there.
        eviction_policy: ``"lru"`` gives up the least recently used block. ``"s3fifo"`` (Yang et
            al., "FIFO queues are all you need for cache eviction", SOSP 2023) soon gives up
            blocks that are not used again, and so keeps others from being pushed out by them.
            ``"krl"`` weighs how often and how lately the keys were used, remembers keys whose
            blocks are gone, and stores only what is likely to be used in time; made for
            conversations, see ``docs/eviction.md``.
        verify: ``"crc32c"`` keeps a checksum of every block and checks it on load: a block
            whose bytes changed fails, and is forgotten.
        enable_kv_events: Keep the keys that are stored and removed for ``take_events``, which
            is then to be called regularly: they take memory until it is.
        huge_pages: The pages below the blocks. ``"auto"``: transparent huge pages where the
            system has them. ``"off"``: ordinary pages, also where it would take huge ones.
            ``"2MiB"``, ``"1GiB"``: pages of that size out of the free ones that the system
            holds in reserve (``hugetlbpage.rst`` of the Linux kernel); ``stats().data_bytes``
            is a multiple of them.
        numa_node: Where the blocks lie. A node's number: on that node and no other.
            ``"interleave"``: page by page in turn on all nodes that the process may use.
            ``None``: where the system puts them.
        prefault: Take all of the memory from the machine soon, in the background, not when
            a store first writes to it. The constructor does not wait for it. Of several
            processes that each find the memory free and together ask for more than there is,
            one then fails at the start and not under load.
        clock: Tells ``"krl"`` the time, in seconds. Default: the system's monotonic clock.
            Given the times of a trace, the same calls have the same results.

    Raises:
        TypeError, ValueError: A parameter has a value that is not allowed, or ``numa_node`` is
            not a node that the process may use.
        MemoryError: The machine, the node, a cgroup or the reserve of huge pages does not have
            the memory. The check comes before anything is mapped.
        OSError: A thread cannot be started, or the system refuses to place memory on nodes.

    Warns:
        RuntimeWarning: A file of the system that may limit the memory cannot be read.
    """

    # A tier for an engine with types of its own replaces it before this constructor runs.
    _engine_interface = EngineInterface(
        lookup_results=(LookupResult.MISS, LookupResult.HIT, LookupResult.RETRY),
        job_result=JobResult,
        event=OffloadingEvent,
        rows_attribute="chunk_ids",
        drops_fail=True,
    )

    def __init__(
        self,
        offloading_spec: object,
        primary_kv_view: memoryview,
        tier_type: str,
        *,
        capacity: int | str,
        num_threads: int | None = None,
        worker_cpus: Sequence[int] | None = None,
        eviction_policy: str = "lru",
        verify: Literal["crc32c"] | None = None,
        enable_kv_events: bool = False,
        huge_pages: Literal["auto", "off", "2MiB", "1GiB"] = "auto",
        numa_node: int | Literal["interleave"] | None = None,
        prefault: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        # Not by the base class's constructor: it keeps the engine's view, and after shutdown()
        # nothing here may keep the buffer mapped.
        self.offloading_spec = offloading_spec
        self.tier_type = tier_type
        if not isinstance(enable_kv_events, bool):
            raise ValueError(
                f"enable_kv_events must be True or False, not {enable_kv_events!r}"
            )
        if verify not in (None, "crc32c"):
            raise ValueError(f"verify must be None or 'crc32c', not {verify!r}")
        if clock is not None and not callable(clock):
            raise TypeError(f"clock must be callable, not {clock!r}")
        cpus = None if worker_cpus is None else [_cpu_number(cpu) for cpu in worker_cpus]
        engine = self._engine_interface
        warning = self._open(
            primary_kv_view,
            _capacity_bytes(capacity),
            _worker_count(num_threads, cpus),
            cpus,
            eviction_policy,
            verify=verify is not None,
            huge_pages=huge_pages,
            numa_node=numa_node,
            prefault=prefault,
            lookup_results=engine.lookup_results,
            job_result=engine.job_result,
            event=engine.event if enable_kv_events else None,
            clock=clock,
            rows_attribute=engine.rows_attribute,
            drops_fail=engine.drops_fail,
        )
        if warning is not None:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Ask for the blocks computed for the request; prefix hits are here already."""
        self._require_usable()
        return RequestOffloadingContext()

    def stats(self) -> TierStats:
        """Return the tier's figures, also after ``shutdown``.

        Raises:
            RuntimeError: The tier was inherited by ``fork()``.
        """
        return TierStats(**self._read_stats())


def _capacity_bytes(capacity: int | str) -> int:
    capacity_bytes = parse_bytes(capacity)
    if capacity_bytes >= 1 << 63:
        raise ValueError(f"capacity must be less than 2**63 bytes, not {capacity!r}")
    return capacity_bytes


def _worker_count(num_threads: int | None, cpus: list[int] | None) -> int:
    """Return the number of workers, 0 for the default."""
    if num_threads is None:
        return 0 if cpus is None else _worker_count(len(cpus), cpus)
    if not _is_int(num_threads) or not 1 <= num_threads <= MOST_WORKERS:
        raise ValueError(
            f"num_threads must be an int from 1 to {MOST_WORKERS}, not {num_threads!r}"
        )
    return num_threads


def _cpu_number(cpu: int) -> int:
    if not _is_int(cpu) or not 0 <= cpu < 1 << 20:
        raise ValueError(f"worker_cpus must hold CPU numbers from 0 on, as ints, not {cpu!r}")
    return cpu


def _is_int(value: object) -> bool:
    # bool is a subclass of int, and a configuration's true is no number.
    return isinstance(value, int) and not isinstance(value, bool)
