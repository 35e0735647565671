"""The reference for host tiers: their rules in plain Python, without threads.

A submitted job takes effect on the tier's state at once; its copies are made when the job is
completed. Jobs complete in ``drain_jobs``, ``shutdown``, ``get_finished_jobs`` (unless
``hold_jobs`` is set) or, one at a time and in any order, in ``complete``.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass
from itertools import groupby

from kvreg.tiering import (
    JobResult,
    LookupResult,
    RequestOffloadingContext,
    SecondaryTierManager,
)
from kvreg.tiering.base import OffloadingEvent
from kvreg.tiering.sizes import parse_bytes
from tests.tiering.policy_models import POLICY_MODELS, Use

MAX_KEY_BYTES = 64


@dataclass
class Block:
    data: bytes | None = None  # None: being written
    pins: int = 0  # loads that still have to copy it
    promised_in: int | None = None  # the last step in which a lookup said HIT
    damaged: bool = False  # the data is not what was stored


@dataclass
class Job:
    metadata: object
    copies: list  # (key, row, block), in job order
    success: bool
    submitted: float


@dataclass(frozen=True)
class ModelStats:
    evictions: int
    blocks_stored: int
    bytes_stored: int
    blocks_loaded: int
    bytes_loaded: int
    blocks_dropped: int
    blocks_dropped_oversized: int
    blocks_dropped_promised: int
    blocks_dropped_busy: int
    blocks_declined: int
    blocks_absent: int
    blocks_corrupt: int
    lookups_hit: int
    lookups_miss: int
    lookups_retry: int
    slots_total: int
    slots_used: int
    slots_promised: int


class ModelTier(SecondaryTierManager):
    def __init__(
        self,
        offloading_spec,
        primary_kv_view,
        tier_type,
        *,
        capacity,
        num_threads=1,
        eviction_policy="lru",
        verify=None,
        enable_kv_events=False,
        clock=time.monotonic,
    ):
        super().__init__(offloading_spec, primary_kv_view, tier_type)
        if eviction_policy not in POLICY_MODELS:
            raise ValueError(f"unknown eviction policy {eviction_policy!r}")
        self.num_rows, self.block_bytes = primary_kv_view.shape
        self.slots = parse_bytes(capacity) // self.block_bytes
        if self.slots == 0:
            raise ValueError(f"capacity {capacity!r} is less than one block")
        self.verify = verify is not None
        self.watched = enable_kv_events
        self.clock = clock
        self.hold_jobs = False
        self.closed = False
        self.step = 0
        self.blocks = {}  # key -> Block
        self.policy = POLICY_MODELS[eviction_policy](self.slots)
        self.running = {}  # job id -> Job
        self.finished = []
        self.events = []  # (key, removed), oldest first
        self.evictions = self.stored = self.loaded = self.absent = self.corrupt = 0
        self.declined = 0
        self.dropped = Counter()  # by what held the slots
        self.lookups = dict.fromkeys(LookupResult, 0)

    def lookup(self, key, req_context):
        self._check_open()
        self._check_keys([key])
        result = self._find(key)
        self.lookups[result] += 1
        return result

    def touch(self, keys, req_context):
        self._check_open()
        self._check_keys(keys)
        used = self._observe(keys, req_context, whole=True)
        for i, key in reversed(list(enumerate(keys))):
            if i in used and key in self.blocks:
                self.policy.use(key)

    def submit_store(self, job_metadata):
        self._check_job(job_metadata)
        job_keys = list(job_metadata.keys)
        present = set(job_keys) & set(self.blocks)
        used = self._observe(job_keys, job_metadata.req_context, placing=True)
        placed, declined = self._place(job_keys, present, used)
        self.declined += len(declined)
        dropped = sum(
            key not in self.blocks for i, key in enumerate(job_keys) if i not in declined
        )
        if dropped:
            self.dropped[self._holder_of_slots(set(job_keys))] += dropped
        rows = [int(row) for row in job_metadata.chunk_ids]
        copies = [(key, rows[i], self.blocks[key]) for i, key in sorted(placed.items())]
        self._start(job_metadata, copies, success=not dropped)

    def submit_load(self, job_metadata):
        self._check_job(job_metadata)
        job_keys, rows = list(job_metadata.keys), job_metadata.chunk_ids
        ready = [i for i, key in enumerate(job_keys) if self._is_ready(key)]
        copies = [(job_keys[i], int(rows[i]), self.blocks[job_keys[i]]) for i in ready]
        for _, _, block in copies:
            block.pins += 1
        self.absent += len(job_keys) - len(copies)
        used = self._observe(job_keys, job_metadata.req_context)
        for i, key in reversed(list(enumerate(job_keys))):
            if i in used and key in self.blocks:
                self.policy.use(key)
        self._start(job_metadata, copies, success=len(copies) == len(job_keys))

    def get_finished_jobs(self):
        if not self.hold_jobs:
            self._complete_all()
        results, self.finished = self.finished, []
        return results

    def on_new_request(self, req_context):
        self._check_open()
        return RequestOffloadingContext()

    def on_request_finished(self, req_context):
        self._check_open()

    def on_schedule_end(self, context):
        self._check_open()
        self.step += 1
        self.policy.end_step()

    def has_pending_work(self):
        self._check_open()
        return bool(self.running or self.finished)

    def drain_jobs(self):
        self._check_open()
        self._complete_all()

    def reset(self):
        self.drain_jobs()
        for key in list(self.blocks):
            self.forget(key)

    def take_events(self):
        events, self.events = self.events, []
        return [
            OffloadingEvent([key for key, _ in group], removed)
            for removed, group in groupby(events, key=lambda event: event[1])
        ]

    def shutdown(self):
        self._complete_all()
        self.closed = True
        self.primary_kv_view = None

    def stats(self):
        return ModelStats(
            evictions=self.evictions,
            blocks_stored=self.stored,
            bytes_stored=self.stored * self.block_bytes,
            blocks_loaded=self.loaded,
            bytes_loaded=self.loaded * self.block_bytes,
            blocks_dropped=self.dropped.total(),
            blocks_dropped_oversized=self.dropped["job"],
            blocks_dropped_promised=self.dropped["promises"],
            blocks_dropped_busy=self.dropped["copies"],
            blocks_declined=self.declined,
            blocks_absent=self.absent,
            blocks_corrupt=self.corrupt,
            lookups_hit=self.lookups[LookupResult.HIT],
            lookups_miss=self.lookups[LookupResult.MISS],
            lookups_retry=self.lookups[LookupResult.RETRY],
            slots_total=self.slots,
            slots_used=len(self.blocks),
            slots_promised=self._promised(),
        )

    def complete(self, job_id):
        """Make the copies of one running job, and its result."""
        job = self.running.pop(job_id)
        copy = self._load_block if job.metadata.is_promotion else self._store_block
        served = [key for key, row, block in job.copies if copy(key, row, block)]
        success = job.success and len(served) == len(job.copies)
        partly_loaded = job.metadata.is_promotion and served and not success
        self.finished.append(
            JobResult(
                job_id=job_id,
                success=success,
                successful_keys=served if partly_loaded else None,
                transfer_time=time.monotonic() - job.submitted,
                transfer_bytes=len(served) * self.block_bytes,
            )
        )

    def forget(self, key):
        del self.blocks[key]
        self.policy.remove(key)
        self._tell(key, removed=True)

    def damage(self, key):
        """Flip a bit of a block where it lies; a second time, back."""
        block = self.blocks[key]
        block.data = block.data[:-1] + bytes([block.data[-1] ^ 1])
        block.damaged = not block.damaged

    def _complete_all(self):
        for job_id in list(self.running):
            self.complete(job_id)

    def _store_block(self, key, row, block):
        self._copy_from_primary(block, row)
        self._tell(key, removed=False)
        return True

    def _load_block(self, key, row, block):
        block.pins -= 1
        if not (self.verify and block.damaged):
            self._copy_to_primary(block, row)
            return True
        self.corrupt += 1
        if self.blocks.get(key) is block:
            self.forget(key)
        return False

    def _copy_from_primary(self, block, row):
        start = row * self.block_bytes
        block.data = bytes(self._primary_bytes()[start : start + self.block_bytes])
        self.stored += 1

    def _copy_to_primary(self, block, row):
        start = row * self.block_bytes
        self._primary_bytes()[start : start + self.block_bytes] = block.data
        self.loaded += 1

    def _primary_bytes(self):
        return self.primary_kv_view.cast("B")

    def _find(self, key):
        if key not in self.blocks:
            return LookupResult.MISS
        if not self._is_ready(key):
            return LookupResult.RETRY
        self.blocks[key].promised_in = self.step
        return LookupResult.HIT

    def _is_ready(self, key):
        return key in self.blocks and self.blocks[key].data is not None

    def _observe(self, keys, req_context, whole=False, placing=False):
        request = None if req_context is None else req_context.req_id
        tick = math.floor(self.clock() * 16)
        return self.policy.observe(list(keys), Use(request, tick, whole, placing))

    def _place(self, job_keys, present, used):
        """Make the absent keys' blocks, head first; then use all, tail first.

        The head of a prefix must outlive its tail. Return the first position of each key that
        got a block, and the positions declined.
        """
        declined = {
            i
            for i, key in enumerate(job_keys)
            if key not in present and not self.policy.admits(key, len(self.blocks), i)
        }
        placed = {}
        for i, key in enumerate(job_keys):
            if key in self.blocks or i in declined:
                continue
            if not self._make_room(set(job_keys)):
                break
            self.blocks[key] = Block()
            placed[i] = key
        # Those that were declined where they came again share the block.
        declined = {i for i in declined if job_keys[i] not in self.blocks}
        added = set()
        for i, key in reversed(list(enumerate(job_keys))):
            if i in declined or key not in self.blocks:
                self.policy.miss(key, i)
            elif key in present:
                if i in used:
                    self.policy.use(key)
            elif key in added:
                self.policy.use(key)
            else:
                self.policy.add(key, i)
                added.add(key)
        return placed, declined

    def _make_room(self, own_keys):
        """Evict a block if no slot is free; tell whether one is free now."""
        if len(self.blocks) < self.slots:
            return True

        def may_go(key):
            block = self.blocks[key]
            busy = block.data is None or block.pins > 0
            return not busy and block.promised_in != self.step and key not in own_keys

        victim = self.policy.evict(may_go)
        if victim is None:
            return False
        del self.blocks[victim]
        self.evictions += 1
        self._tell(victim, removed=True)
        return True

    def _holder_of_slots(self, own_keys):
        """What keeps a store from getting one more slot."""
        if sum(key in self.blocks for key in own_keys) == self.slots:
            return "job"
        return "promises" if self._promised() else "copies"

    def _promised(self):
        return sum(block.promised_in == self.step for block in self.blocks.values())

    def _tell(self, key, removed):
        if self.watched:
            self.events.append((key, removed))

    def _start(self, job_metadata, copies, success):
        self.running[job_metadata.job_id] = Job(
            job_metadata, copies, success, submitted=time.monotonic()
        )

    def _check_open(self):
        if self.closed:
            raise RuntimeError("the tier is shut down")

    def _check_keys(self, keys):
        for key in keys:
            if not isinstance(key, bytes):
                raise TypeError(f"a key is bytes; got {key!r}")
            if not 1 <= len(key) <= MAX_KEY_BYTES:
                raise ValueError(f"a key is 1 to {MAX_KEY_BYTES} bytes; got {key!r}")

    def _check_job(self, job):
        self._check_open()
        self._check_keys(job.keys)
        if job.job_id in self.running or any(job.job_id == r.job_id for r in self.finished):
            raise ValueError(f"the result of job {job.job_id} was not collected yet")
        if len(job.keys) != len(job.chunk_ids):
            raise ValueError(f"{len(job.keys)} keys but {len(job.chunk_ids)} chunk ids")
        if any(not 0 <= row < self.num_rows for row in job.chunk_ids):
            raise ValueError(f"a chunk id is not in 0..{self.num_rows - 1}: {job.chunk_ids}")
