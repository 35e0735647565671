"""The protocol between an engine and a secondary KV-cache tier.

The names, fields and call order are those of vLLM (``vllm/v1/kv_offload/base.py`` and
``vllm/v1/kv_offload/tiering/base.py``), so that a tier written against either runs under both.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
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
    """What a tier says of one key."""

    MISS = auto()
    """The tier does not have the block."""
    HIT = auto()
    """The block is complete and can be loaded until the step ends."""
    HIT_PENDING = auto()
    """The block was found and is on its way to where the engine can read it."""
    RETRY = auto()
    """The block is being written; ask again in a later step."""


class OffloadPolicy(Enum):
    """Which of a request's blocks a tier wants to be offered."""

    CHUNK_LEVEL = "chunk_level"
    """Those computed for it; blocks found by a prefix hit are not offered again."""
    REQUEST_LEVEL = "request_level"
    """All of them, prefix hits included."""


@dataclass
class RequestOffloadingContext:
    """A tier's answer to a new request."""

    policy: OffloadPolicy = OffloadPolicy.CHUNK_LEVEL


@dataclass
class ReqContext:
    """The request on whose behalf a tier is called."""

    req_id: str
    kv_transfer_params: dict[str, Any] | None = None


class ScheduleEndContext(NamedTuple):
    """What happened in the scheduler step that ends."""

    new_req_ids: Collection[str]
    """Requests scheduled for the first time in this step."""
    preempted_req_ids: Collection[str]
    """Requests preempted in this step."""


@dataclass
class TransferJob:
    """One asynchronous copy of many blocks between the primary tier and a secondary tier."""

    job_id: JobId
    keys: Collection[OffloadKey]
    """In prefix order: the head of the prefix first."""
    chunk_ids: NDArray[np.int32] | NDArray[np.int64]
    """Row of the primary view for each key, shape ``(len(keys),)``."""
    is_promotion: bool
    """True: secondary -> primary (load); False: primary -> secondary (store)."""
    req_context: ReqContext
    submit_time: float = field(default_factory=time.monotonic)
    """Seconds on the monotonic clock."""


@dataclass
class JobResult:
    """How a job ended. Every submitted job ends with exactly one."""

    job_id: JobId
    success: bool
    """True when every key was served; False when some or none were."""
    successful_keys: Collection[OffloadKey] | None = None
    """Loads only: where some keys failed, those that did not, in job order.
    None: every key shares the fate that ``success`` tells."""
    transfer_time: float | None = None
    """Seconds from submission to the end of the last copy."""
    transfer_bytes: int | None = None
    """Bytes copied."""


@dataclass
class OffloadingEvent:
    """A change of a tier's content."""

    keys: list[OffloadKey]
    removed: bool
    """True: the blocks are gone; False: they were stored."""


class SecondaryTierManager(ABC):
    """One secondary tier, driven by an engine's scheduler.

    All methods run on the scheduler's thread and must not wait for a copy, except
    ``drain_jobs`` and ``shutdown``: ``submit_store`` and ``submit_load`` start jobs, and
    ``get_finished_jobs`` collects their results.

    Args:
        offloading_spec: The engine's offloading configuration, passed on untouched.
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
        """Say whether the tier has the block named ``key``."""

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

        Their results are then waiting in ``get_finished_jobs``.
        """

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:  # noqa: B027
        """Mark blocks as just used; ``keys`` in prefix order."""

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
