"""A stand-in engine: serves requests from a primary tier and a real secondary tier."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from kvreg.replay.contents import BlockContents
from kvreg.replay.jobs import JobLedger
from kvreg.replay.primary import PrimaryTier
from kvreg.replay.record import BlockId
from kvreg.replay.trace import Request
from kvreg.tiering import (
    LookupResult,
    ReqContext,
    ScheduleEndContext,
    SecondaryTierFactory,
    TierStats,
    TransferJob,
    make_offload_key,
)
from kvreg.tiering.base import OffloadKey

P = ParamSpec("P")
R = TypeVar("R")


class PrefixHits(NamedTuple):
    """How many blocks of a request's prefix were found, and where."""

    primary: int
    host: int


class Engine:
    """Serves one request a step and keeps count.

    What follows the prefix found is computed and offered to the tier, whatever the tiers hold
    of it. Of each request as many blocks are kept as the primary tier has rows; those after
    them are computed and not kept. A block that a request names again is the same block.

    All jobs of a step finish before the next step begins, so that results repeat.

    Args:
        tier_config: What ``SecondaryTierFactory`` is to create. The tier's clock tells when the
            request came that is being served.
        primary_blocks: Rows of the primary tier.
        block_bytes: Length of a row.

    Raises:
        MemoryError, ValueError: The primary tier cannot be allocated.
        Exception: Whatever the factory or the tier's constructor raises.
    """

    def __init__(
        self, tier_config: Mapping[str, Any], primary_blocks: int, block_bytes: int
    ) -> None:
        self.block_bytes = block_bytes
        self.requests = 0
        self.blocks = 0
        self.primary_hits = 0
        self.host_hits = 0
        self.corrupted_blocks = 0
        self.scheduler_ns: list[int] = []
        """Time that each request's step spent in calls of the tier, waits apart."""
        self.wait_ns = 0
        """Time spent waiting for copies."""
        self.jobs = JobLedger()
        self._next_job_id = 0
        self._seconds = 0.0
        self._contents = BlockContents(block_bytes)
        self._primary = PrimaryTier(primary_blocks, block_bytes)
        self._tier = SecondaryTierFactory.create_secondary_tier(
            {**tier_config, "clock": lambda: self._seconds},
            self._primary.blocks.data,
            offloading_spec=None,
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._tier.shutdown()

    @property
    def evictions(self) -> int:
        """Blocks that the tier gave up for others."""
        # Not in the protocol of tiers: every host tier of this package has it.
        return cast(_CountingTier, self._tier).stats().evictions

    def step(self, request: Request) -> PrefixHits:
        """Serve ``request`` in a scheduler step of its own."""
        self.scheduler_ns.append(0)
        self._seconds = request.seconds
        context = ReqContext(req_id=str(self.requests))
        self._timed(self._tier.on_new_request, context)
        hits = self._serve(self._keys(request), context)
        step = ScheduleEndContext(new_req_ids=(context.req_id,), preempted_req_ids=())
        self._timed(self._tier.on_schedule_end, step)
        self._timed(self._tier.on_request_finished, context)
        self.requests += 1
        self.blocks += len(set(request.hash_ids))
        self.primary_hits += hits.primary
        self.host_hits += hits.host
        return hits

    def _keys(self, request: Request) -> list[OffloadKey]:
        distinct = list(dict.fromkeys(request.hash_ids))
        return [_block_key(hash_id) for hash_id in distinct[: self._primary.num_blocks]]

    def _serve(self, keys: list[OffloadKey], context: ReqContext) -> PrefixHits:
        found, promoted = self._look_up_prefix(keys, context)
        self._primary.place(keys)
        self._promote(promoted, context)
        self._compute(keys[found:], context)
        # After the store, which makes the computed blocks most recent: the head has to be.
        self._timed(self._tier.touch, keys, context)
        failed = self._finish_jobs(promoted)
        if failed:
            # Where a load failed the prefix breaks, for the blocks after it as well.
            self._compute(failed, context)
            self._finish_jobs([])
            found, promoted = keys.index(failed[0]), promoted[: promoted.index(failed[0])]
        return PrefixHits(primary=found - len(promoted), host=len(promoted))

    def _look_up_prefix(
        self, keys: list[OffloadKey], context: ReqContext
    ) -> tuple[int, list[OffloadKey]]:
        """Return the length of the prefix found, and its blocks that only the tier has."""
        promoted: list[OffloadKey] = []
        for found, key in enumerate(keys):
            if key in self._primary:
                continue
            if self._timed(self._tier.lookup, key, context) is not LookupResult.HIT:
                return found, promoted
            promoted.append(key)
        return len(keys), promoted

    def _promote(self, keys: list[OffloadKey], context: ReqContext) -> None:
        if keys:
            self._timed(self._tier.submit_load, self._new_job(keys, context, load=True))

    def _compute(self, keys: list[OffloadKey], context: ReqContext) -> None:
        """Fill the rows of ``keys`` and offer the blocks to the tier."""
        for key in keys:
            self._contents.fill(self._primary.row(key), key)
        if keys:
            self._timed(self._tier.submit_store, self._new_job(keys, context, load=False))

    def _new_job(
        self, keys: list[OffloadKey], context: ReqContext, *, load: bool
    ) -> TransferJob:
        job = TransferJob(
            job_id=self._next_job_id,
            keys=keys,
            chunk_ids=self._primary.row_numbers(keys),
            is_promotion=load,
            req_context=context,
        )
        self._next_job_id += 1
        self.jobs.submitted(job)
        return job

    def _finish_jobs(self, promoted: Sequence[OffloadKey]) -> list[OffloadKey]:
        """Wait for all jobs, check what they loaded, return the promoted keys that failed."""
        started = perf_counter_ns()
        self._tier.drain_jobs()
        self.wait_ns += perf_counter_ns() - started
        loaded: set[OffloadKey] = set()
        for result in self._timed(self._tier.get_finished_jobs):
            loaded.update(self.jobs.finished(result))
        failed = []
        for key in promoted:
            if key not in loaded:
                failed.append(key)
            elif not self._contents.fits(self._primary.row(key), key):
                self.corrupted_blocks += 1
        return failed

    def _timed(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the tier and add the time it takes to the step's cost."""
        started = perf_counter_ns()
        result = call(*args, **kwargs)
        self.scheduler_ns[-1] += perf_counter_ns() - started
        return result


class _CountingTier(Protocol):
    def stats(self) -> TierStats: ...


def _block_key(hash_id: BlockId) -> OffloadKey:
    # JSON's strings may have surrogates without a partner.
    text = str(hash_id).encode("utf-8", "surrogatepass")
    return make_offload_key(hashlib.sha256(text).digest(), group_idx=0)
