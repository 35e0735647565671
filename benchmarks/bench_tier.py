"""The host tier beside plain Python, a dict and the bare copy engine.

Run by ``pytest benchmarks/bench_tier.py``. Each row times the tier and its baseline in turn,
round by round, and compares the medians. Figures of one machine say little about another: read
the ratios.
"""

from __future__ import annotations

import hashlib
import statistics
import timeit
from time import perf_counter_ns

import numpy as np
import pytest

from kvreg import copy_blocks
from kvreg.tiering import (
    HostMemoryTier,
    LookupResult,
    ReqContext,
    ScheduleEndContext,
    TransferJob,
    make_offload_key,
)

CONTEXT = ReqContext("request")
STEP_END = ScheduleEndContext((), ())
KIB, MIB = 1 << 10, 1 << 20


def make_keys(n, name=b"block"):
    return [
        make_offload_key(hashlib.sha256(b"%b %d" % (name, i)).digest(), 0) for i in range(n)
    ]


class Jobs:
    """Submits jobs to a tier and collects their results."""

    def __init__(self, tier):
        self.tier = tier
        self.count = 0

    def submit(self, keys, rows, *, load):
        self.count += 1
        job = TransferJob(self.count, keys, rows, load, CONTEXT)
        (self.tier.submit_load if load else self.tier.submit_store)(job)

    def finish(self):
        self.tier.drain_jobs()
        results = self.tier.get_finished_jobs()
        self.tier.on_schedule_end(STEP_END)
        assert all(result.success for result in results)

    def fill(self, keys):
        """Store all keys, a thousand a job."""
        for first in range(0, len(keys), 1000):
            batch = keys[first : first + 1000]
            self.submit(batch, np.arange(len(batch)), load=False)
            self.finish()


def tiny_tier(slots, **parameters):
    """A tier whose blocks are so small that copying them costs next to nothing."""
    primary = np.zeros((1000, 8), np.uint8)
    return HostMemoryTier(
        None, primary.data, "host", capacity=slots * 8, num_threads=1, **parameters
    )


class PlainTier:
    """What a tier's lookup costs in Python."""

    def __init__(self, keys):
        self._d = dict.fromkeys(keys)

    def lookup(self, key, req_context):
        return LookupResult.HIT if key in self._d else LookupResult.MISS


# -- Copies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block_bytes", [64 * KIB, 256 * KIB, MIB])
@pytest.mark.parametrize("load", [False, True], ids=["store", "load"])
def test_copies(side_by_side, block_bytes, threads, load):
    """A job of 256 MiB in random rows, beside `copy_blocks` of the same rows and threads."""
    blocks = 256 * MIB // block_bytes
    primary = np.ones((blocks, block_bytes), np.uint8)
    other = np.ones_like(primary)
    tier = HostMemoryTier(
        None, primary.data, "host", capacity=primary.nbytes, num_threads=threads
    )
    jobs = Jobs(tier)
    rows = np.random.default_rng(1).permutation(blocks).astype(np.int32)
    slots = np.arange(blocks, dtype=np.int32)
    keys = make_keys(blocks)
    jobs.submit(keys, rows, load=False)
    jobs.finish()

    def forget():
        if not load:
            tier.reset()

    def through_the_tier():
        jobs.submit(keys, rows, load=load)
        jobs.finish()

    def bare():
        if load:
            copy_blocks(primary, rows, other, slots, threads=threads)
        else:
            copy_blocks(other, slots, primary, rows, threads=threads)

    side_by_side(
        f"{'load' if load else 'store'}, {block_bytes // KIB} KiB, {threads} threads",
        through_the_tier,
        "copy_blocks",
        bare,
        per=blocks,
        target=0.9,
        rounds=15,
        before=forget,
    )
    tier.shutdown()


@pytest.mark.parametrize("load", [False, True], ids=["store", "load"])
def test_verification(side_by_side, load):
    """What checksums cost: the same jobs without them are the baseline."""
    block_bytes, blocks = 256 * KIB, 512
    primary = np.ones((blocks, block_bytes), np.uint8)
    rows, keys = np.arange(blocks, dtype=np.int32), make_keys(blocks)
    sides = []
    for verify in ("crc32c", None):
        tier = HostMemoryTier(
            None, primary.data, "host", capacity=primary.nbytes, num_threads=1, verify=verify
        )
        jobs = Jobs(tier)
        jobs.submit(keys, rows, load=False)
        jobs.finish()

        def run(jobs=jobs):
            jobs.submit(keys, rows, load=load)
            jobs.finish()

        sides.append((jobs, run))

    def forget():
        if not load:
            for jobs, _ in sides:
                jobs.tier.reset()

    side_by_side(
        f"{'load' if load else 'store'} with crc32c, 256 KiB",
        sides[0][1],
        "without",
        sides[1][1],
        per=blocks,
        rounds=15,
        before=forget,
    )
    for jobs, _ in sides:
        jobs.tier.shutdown()


# -- The scheduler's thread -------------------------------------------------------------------


def test_lookup(side_by_side):
    keys = make_keys(1000)
    tier, plain = tiny_tier(1000), PlainTier(keys)
    Jobs(tier).fill(keys)
    statement = "tier.lookup(key, context)"
    number = 2000
    loops = [
        timeit.Timer(statement, globals={"tier": t, "key": keys[7], "context": CONTEXT})
        for t in (tier, plain)
    ]
    side_by_side(
        "lookup(key, ctx)",
        lambda: loops[0].timeit(number),
        "the same in Python, on a dict",
        lambda: loops[1].timeit(number),
        per=number,
        target=2.0,
    )
    tier.shutdown()


@pytest.mark.parametrize("what", ["new", "present", "evicting"])
def test_submit(side_by_side, what):
    """A store of 1,000 keys among 100,000 residents, beside iterating over the keys."""
    resident, others = make_keys(100_000), make_keys(100_000, b"other")
    tier = tiny_tier(201_000 if what == "new" else 100_000)
    jobs = Jobs(tier)
    jobs.fill(resident)
    pool = resident if what == "present" else others
    order = np.random.default_rng(2).permutation(len(pool) // 1000)
    batches = [pool[i * 1000 : (i + 1) * 1000] for i in order]
    rows = np.arange(1000, dtype=np.int32)
    turn = iter(batches)
    batch = None

    def next_batch():
        nonlocal batch
        jobs.finish()
        batch = next(turn)

    def iterate():
        for _ in batch:
            pass

    side_by_side(
        f"submit of 1,000 keys, {what}",
        lambda: jobs.submit(batch, rows, load=False),
        "iterating over the keys",
        iterate,
        per=1000,
        most_more_ns=80.0,
        rounds=len(batches),
        before=next_batch,
        warm_up=False,
    )
    tier.shutdown()


@pytest.mark.parametrize("resident", [1_000, 10_000, 100_000, 1_000_000, 10_000_000])
def test_lookup_among_many(side_by_side, resident):
    """1,000 lookups of random keys; membership in a dict of the same keys is the baseline."""
    if resident <= 1_000_000:
        keys = make_keys(resident)
    else:
        # As good as hashes, and quicker to make: the same bytes serve the tier and the dict.
        material = np.random.default_rng(3).bytes(36 * resident)
        keys = [material[i : i + 36] for i in range(0, len(material), 36)]
        del material
    tier, in_python = tiny_tier(resident), dict.fromkeys(keys)
    Jobs(tier).fill(keys)
    wanted = np.random.default_rng(4).integers(0, resident, (101, 1000))
    turn = iter(wanted)
    batch = []

    def next_batch():
        # Fresh objects, as a request's keys are: a dict has to hash them.
        batch[:] = [bytes(bytearray(keys[i])) for i in next(turn)]

    lookup = tier.lookup

    def through_the_tier():
        for key in batch:
            lookup(key, CONTEXT)

    contains = in_python.__contains__

    def through_the_dict():
        for key in batch:
            contains(key)

    side_by_side(
        f"lookup among {resident:,} keys",
        through_the_tier,
        "dict.__contains__",
        through_the_dict,
        per=1000,
        target=1.0 if resident == 10_000_000 else None,
        rounds=100,
        before=next_batch,
        warm_up=False,
    )
    tier.shutdown()


def call_times(tier, jobs, keys, seconds):
    """Nanoseconds of each call that a scheduler makes, for so many seconds."""
    times = []
    end = perf_counter_ns() + int(seconds * 1e9)
    rows = np.arange(8, dtype=np.int32)
    while perf_counter_ns() < end:
        calls = [lambda key=key: tier.lookup(key, CONTEXT) for key in keys[:32]]
        calls.append(lambda: tier.touch(keys, CONTEXT))
        calls.append(lambda: jobs.submit(keys[:8], rows, load=False))
        calls.append(tier.get_finished_jobs)
        calls.append(lambda: tier.on_schedule_end(STEP_END))
        for call in calls:
            started = perf_counter_ns()
            call()
            times.append(perf_counter_ns() - started)
    return times


def test_calls_beside_large_copies(side_by_side_figures):
    """The 99th percentile of a scheduler's calls, with 4 GiB of copies and without."""
    block_bytes, blocks = MIB, 1024
    primary = np.ones((blocks, block_bytes), np.uint8)
    tier = HostMemoryTier(None, primary.data, "host", capacity=primary.nbytes)
    jobs = Jobs(tier)
    keys, small = make_keys(blocks), make_keys(64, b"small")
    rows = np.arange(blocks, dtype=np.int32)
    jobs.submit(keys[:-64], rows[:-64], load=False)
    jobs.submit(small, rows[-64:], load=False)
    jobs.finish()
    idle, busy = [], []
    for _ in range(5):
        idle.append(np.percentile(call_times(tier, jobs, small, 0.5), 99))
        jobs.finish()
        for _ in range(4):
            jobs.submit(keys[:-64], rows[:-64], load=True)
        busy.append(np.percentile(call_times(tier, jobs, small, 0.5), 99))
        jobs.finish()
    side_by_side_figures(
        "99th percentile of calls beside copies",
        statistics.median(busy),
        "of calls while nothing is copied",
        statistics.median(idle),
        target=0.5,  # that is, at most twice as long
    )
    tier.shutdown()
