"""An hour of a server's traffic, in simulated time, through one host tier."""

import ctypes
import gc
import mmap
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
import pytest

from kvreg.tiering import (
    HostMemoryTier,
    LookupResult,
    ReqContext,
    ScheduleEndContext,
    TransferJob,
)
from tests.tiering.policy_models import POLICY_MODELS

STEPS_A_SECOND = 10  # of simulated time, with one new request each on average
# Blocks so small that an hour of them is copied in half a minute, and so large that copies are
# in flight while the next steps run.
BLOCK_BYTES = 32 << 10
ROWS, SLOTS = 512, 1000
CONVERSATIONS, MOST_BLOCKS, MOST_NEW_BLOCKS = 300, 20, 4


class Traffic:
    """Requests that are drawn independently of one another, so that no hour is like the last.

    Each continues a conversation, of which some are in demand more often than others, and
    whose blocks are too many for the tier; after them come blocks that never come again.
    """

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.lengths = self.random.integers(4, MOST_BLOCKS, CONVERSATIONS)
        demand = 1 / np.arange(1, CONVERSATIONS + 1) ** 0.8
        self.up_to = np.cumsum(demand / demand.sum())
        self.new_blocks = CONVERSATIONS * MOST_BLOCKS

    def arrivals(self):
        return [self._request() for _ in range(self.random.poisson(1))]

    def _request(self):
        """The numbers of a request's blocks, in prefix order."""
        conversation = int(np.searchsorted(self.up_to[:-1], self.random.random()))
        first = conversation * MOST_BLOCKS
        known = range(first, first + int(self.lengths[conversation]))
        first = self.new_blocks
        self.new_blocks += int(self.random.integers(0, MOST_NEW_BLOCKS))
        return [*known, *range(first, self.new_blocks)]


@dataclass
class Running:
    """A request whose jobs are not all finished."""

    rows: list
    loaded: list  # numbers of the blocks that a load brings, to the first of the rows
    jobs: int = 0


@dataclass
class Tally:
    """What came of the requests that were started in a tenth of the time."""

    requests: int = 0
    hit_share: float = 0.0  # the prefix hits of each, as a share of its blocks, summed

    def hit_rate(self):
        return self.hit_share / self.requests


@dataclass
class Server:
    """A scheduler: starts requests, lets their copies run, collects results when they come."""

    tier: HostMemoryTier
    primary: np.ndarray
    free_rows: list = field(default_factory=lambda: list(range(ROWS)))
    waiting: list = field(default_factory=list)
    running: dict = field(default_factory=dict)  # job id -> Running
    present: set = field(default_factory=set)  # keys, as the tier's events tell
    jobs: int = 0
    collected: int = 0

    def step(self, arrivals, tally):
        self.collect()
        self.waiting += arrivals
        self.waiting = [blocks for blocks in self.waiting if not self.start(blocks, tally)]
        self.tier.on_schedule_end(ScheduleEndContext((), ()))
        self.follow_events()

    def start(self, blocks, tally):
        """Start a request; False: it has to wait, for rows or for blocks being written."""
        if len(blocks) > len(self.free_rows):
            return False
        context = ReqContext("")
        keys = [key_of(block) for block in blocks]
        found = 0
        for key in keys:
            result = self.tier.lookup(key, context)
            if result is LookupResult.RETRY:
                return False
            if result is not LookupResult.HIT:
                break
            found += 1
        rows = [self.free_rows.pop() for _ in blocks]
        request = Running(rows, blocks[:found])
        self.submit(request, keys[:found], rows[:found], True, context)
        for block, row in zip(blocks[found:], rows[found:], strict=True):
            self.primary[row] = block
        self.submit(request, keys[found:], rows[found:], False, context)
        self.tier.touch(keys, context)
        tally.requests += 1
        tally.hit_share += found / len(blocks)
        return True

    def submit(self, request, keys, rows, is_promotion, context):
        job = TransferJob(self.jobs, keys, rows, is_promotion, context)
        (self.tier.submit_load if is_promotion else self.tier.submit_store)(job)
        self.running[self.jobs] = request
        self.jobs += 1
        request.jobs += 1

    def collect(self):
        for result in self.tier.get_finished_jobs():
            self.collected += 1
            request = self.running.pop(result.job_id)
            request.jobs -= 1
            if request.jobs == 0:
                self.end(request)

    def end(self, request):
        for block, row in zip(request.loaded, request.rows, strict=False):
            # What was a hit in a step is loaded in that step, each time and rightly.
            assert (self.primary[row] == block).all()
        for row in request.rows:
            self.primary[row] = -1
        self.free_rows += request.rows

    def follow_events(self):
        for event in self.tier.take_events():
            for key in event.keys:
                assert (key in self.present) == event.removed
                (self.present.remove if event.removed else self.present.add)(key)


def key_of(block):
    return b"%036d" % block


def resident_bytes():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICY_MODELS)
def test_an_hour_of_traffic_wears_nothing_out(policy, long):
    seconds = 3600 if long else 180
    primary = np.full((ROWS, BLOCK_BYTES // 8), -1)  # so that its pages are resident
    tier = HostMemoryTier(
        None,
        primary.data,
        "host",
        capacity=SLOTS * BLOCK_BYTES,
        num_threads=2,
        eviction_policy=policy,
        verify="crc32c",
        enable_kv_events=True,
    )
    server, traffic = Server(tier, primary), Traffic(seed=7)
    tenths = [Tally() for _ in range(10)]
    resident = []
    for tally in tenths:
        for _ in range(seconds * STEPS_A_SECOND // 10):
            server.step(traffic.arrivals(), tally)
        resident.append(resident_bytes())
    while server.waiting or server.running:
        tier.drain_jobs()
        server.step([], Tally())

    # No result is lost or comes twice, and no row.
    assert server.collected == server.jobs
    assert sorted(server.free_rows) == list(range(ROWS))
    stats = tier.stats()
    assert (stats.slots_pinned, stats.slots_promised, stats.results_waiting) == (0, 0, 0)
    assert (stats.stores_in_flight, stats.loads_in_flight, stats.blocks_corrupt) == (0, 0, 0)
    assert stats.blocks_absent == 0
    assert stats.slots_used == len(server.present)

    # A request's share of hits is between 0 and 1, so its deviation is at most 1/2, and that of
    # the mean of n independent ones at most 1/2 sqrt(n). Four deviations of the difference of
    # two such means: that a sound tier exceeds them has a chance of less than 1 in 10,000.
    second, last = tenths[1], tenths[9]
    noise = 4 * sqrt(1 / (4 * second.requests) + 1 / (4 * last.requests))
    assert 0.2 < second.hit_rate() < 0.9
    assert abs(last.hit_rate() - second.hit_rate()) < noise
    # In the second tenth the tier is full and every page touched. The interpreter's own memory
    # comes and goes by the MiB; in an hour a leak of 64 bytes a job would be more.
    # The metadata is mapped from the start and becomes resident where it is first written.
    assert resident[9] - resident[1] < (2 << 20) + stats.metadata_bytes

    # Every slot is free or can be had: one job gets them all.
    keys = [b"last %d" % i for i in range(SLOTS)]
    tier.submit_store(TransferJob(-1, keys, [0] * SLOTS, False, ReqContext("")))
    tier.drain_jobs()
    (result,) = tier.get_finished_jobs()
    assert result.success
    assert result.transfer_bytes == SLOTS * BLOCK_BYTES
    assert tier.stats().slots_used == tier.stats().slots_total == SLOTS
    tier.shutdown()
