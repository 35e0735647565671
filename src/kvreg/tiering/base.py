"""The protocol between an engine and a secondary KV-cache tier.

The names, fields and call order are those of vLLM (``vllm/v1/kv_offload/base.py`` and
``vllm/v1/kv_offload/tiering/base.py``), so that a tier needs only the types of its engine to
run under either. vLLM's interface has more, which a tier in host memory does not need.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, NewType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OffloadKey = NewType("OffloadKey", bytes)
"""Names a block's content: the chain hash of its token prefix, then a group index."""

JobId = int
"""Chosen by the engine; unique among the jobs whose result it has not collected yet."""

_GROUP_IDX_BYTES = 4


def make_offload_key(block_hash: bytes, group_idx: int) -> OffloadKey:
    """Append ``group_idx`` to ``block_hash`` as 4 bytes, big-endian.

    Host tiers take keys of 64 bytes at most, that is, hashes of 60. Source: vLLM's function of
    this name, as for the two that follow.

    Raises:
        OverflowError: ``group_idx`` is negative or does not fit 32 bits.
    """
    return OffloadKey(block_hash + group_idx.to_bytes(_GROUP_IDX_BYTES, "big"))


def get_offload_block_hash(key: OffloadKey) -> bytes:
    """Return the block hash that ``key`` was made from."""
    return key[:-_GROUP_IDX_BYTES]


def get_offload_group_idx(key: OffloadKey) -> int:
    """Return the group index that ``key`` was made from."""
    return int.from_bytes(key[-_GROUP_IDX_BYTES:], "big")


class LookupResult(Enum):
    """What a tier says of one key. Source: vLLM's ``LookupResult``.

    Attributes:
        MISS: The tier does not have the block.
        HIT: The block is complete, and can be loaded until the step ends.
        HIT_PENDING: The block was found and is on its way to where the engine can read it.
        RETRY: The block is being written; ask again in a later step.
    """

    MISS = auto()
    HIT = auto()
    HIT_PENDING = auto()
    RETRY = auto()


class OffloadPolicy(Enum):
    """Which of a request's blocks a tier wants to be offered. Source: vLLM's ``OffloadPolicy``.

    Attributes:
        CHUNK_LEVEL: Those computed for it; blocks found by a prefix hit are not offered again.
        REQUEST_LEVEL: All of them, prefix hits included.
    """

    CHUNK_LEVEL = "chunk_level"
    REQUEST_LEVEL = "request_level"


@dataclass
class RequestOffloadingContext:
    """A tier's answer to a new request. Source: vLLM's ``RequestOffloadingContext``.

    Attributes:
        policy: Which of the request's blocks the tier wants.
    """

    policy: OffloadPolicy = OffloadPolicy.CHUNK_LEVEL


@dataclass
class ReqContext:
    """The request on whose behalf a tier is called. Source: vLLM's ``ReqContext``.

    Attributes:
        req_id: The engine's name for it.
        kv_transfer_params: What the request's sender says of KV transfers.
    """

    req_id: str
    kv_transfer_params: dict[str, Any] | None = None


class ScheduleEndContext(NamedTuple):
    """What happened in the step that ends. Source: vLLM's ``ScheduleEndContext``.

    Attributes:
        new_req_ids: Requests scheduled for the first time in this step.
        preempted_req_ids: Requests preempted in this step.
    """

    new_req_ids: Collection[str]
    preempted_req_ids: Collection[str]


@dataclass
class TransferJob:
    """One asynchronous copy of many blocks between the primary tier and a secondary tier.

    Source: vLLM's ``TransferJob``.

    Attributes:
        job_id: Any signed 64-bit number that is not in use by a job without collected result.
        keys: Names of the blocks, in prefix order: the head of the prefix first.
        chunk_ids: The row of the primary view for each key, shape ``(len(keys),)``. Host tiers
            take any sequence of ints as well.
        is_promotion: True: secondary -> primary (load); False: primary -> secondary (store).
        req_context: The request.
        submit_time: Seconds on the monotonic clock.
    """

    job_id: JobId
    keys: Collection[OffloadKey]
    chunk_ids: NDArray[np.int32] | NDArray[np.int64] | Sequence[int]
    is_promotion: bool
    req_context: ReqContext
    submit_time: float = field(default_factory=time.monotonic)


@dataclass
class JobResult:
    """How a job ended. Every submitted job ends with exactly one. Source: vLLM's ``JobResult``.

    Attributes:
        job_id: The job.
        success: True when every key was served; False when some or none were.
        successful_keys: Of a load in which some keys failed, those that did not, in job order.
            None: every key shares the fate that ``success`` tells; or the job was a store,
            which keeps the head of its keys and does not say how many.
        transfer_time: Seconds from submission to the end of the last copy.
        transfer_bytes: Bytes copied.
        deferred_release: Of a load that failed while something may still write to the primary
            rows of its failed keys: set when nothing can any more, at the latest before
            ``drain_jobs`` returns. The engine uses the rows for nothing else until then. Host
            tiers need none: their jobs end when nothing writes any more.
    """

    job_id: JobId
    success: bool
    successful_keys: Collection[OffloadKey] | None = None
    transfer_time: float | None = None
    transfer_bytes: int | None = None
    deferred_release: threading.Event | None = None


@dataclass
class OffloadingEvent:
    """A change of a tier's content. Source: vLLM's ``OffloadingEvent``.

    Attributes:
        keys: The blocks.
        removed: True: they are gone; False: they were stored.
    """

    keys: list[OffloadKey]
    removed: bool


class SecondaryTierManager(ABC):
    """One secondary tier, driven by an engine's scheduler. Source: vLLM's class of this name.

    All methods run on the scheduler's thread and must not wait for a copy, except
    ``drain_jobs`` and ``shutdown``: ``submit_store`` and ``submit_load`` start jobs, and
    ``get_finished_jobs`` collects their results. What a caller did wrong raises; what happens
    to a block is told by its job's result.

    A subclass defines ``lookup``, ``submit_store``, ``submit_load``, ``get_finished_jobs``,
    ``on_new_request`` and ``drain_jobs``. The other methods do nothing, or answer that there is
    nothing, until it overrides them. Further items of the engine's configuration become keyword
    arguments of its constructor, which calls this one.

    Args:
        offloading_spec: The engine's offloading configuration, passed on untouched; kept as an
            attribute, as are the other two.
        primary_kv_view: The primary tier's buffer, shape ``(num_blocks, row_bytes)``.
        tier_type: The name under which the engine's configuration asked for the tier.
    """

    def __init__(
        self, offloading_spec: object, primary_kv_view: memoryview, tier_type: str
    ) -> None:
        self.offloading_spec = offloading_spec
        self.primary_kv_view = primary_kv_view
        self.tier_type = tier_type

    @abstractmethod
    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """Say whether the tier has the block named ``key``.

        After a HIT the block can be loaded until ``on_schedule_end``.
        """

    @abstractmethod
    def submit_store(self, job_metadata: TransferJob) -> None:
        """Start a copy of primary rows into the tier.

        The engine leaves the rows as they are until the job's result is collected. Blocks that
        the tier has already are not written again.
        """

    @abstractmethod
    def submit_load(self, job_metadata: TransferJob) -> None:
        """Start a copy of blocks from the tier into primary rows.

        The engine leaves the rows to the tier until the job's result is collected.
        """

    @abstractmethod
    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Return the results of all jobs that ended since the last call."""

    @abstractmethod
    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Learn of a request; return which of its blocks the tier wants."""

    @abstractmethod
    def drain_jobs(self) -> None:
        """Wait until no job submitted before this call touches the primary view.

        Their results are then waiting in ``get_finished_jobs``, and every ``deferred_release``
        is set.
        """

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:  # noqa: B027
        """Mark blocks as just used; ``keys`` in prefix order. vLLM calls it up to 0.30."""

    def on_request_finished(self, req_context: ReqContext) -> None:  # noqa: B027
        """Learn that no further call will name this request. Its jobs may still be running."""

    def on_schedule_end(self, context: ScheduleEndContext) -> None:  # noqa: B027
        """Close the scheduler step."""

    def has_pending_work(self) -> bool:
        """Whether the engine should keep stepping although no request is scheduled."""
        return False

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Return what changed in the tier's content since the last call, in order."""
        return ()

    def shutdown(self) -> None:  # noqa: B027
        """Release threads, memory and the primary view."""
