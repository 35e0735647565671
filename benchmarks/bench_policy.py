"""What each eviction policy costs on the scheduler's thread, beside LRU.

    pytest benchmarks/bench_policy.py

Time of submitting a job or a touch, a key, as an engine pays it: through the tier's Python API,
what all policies share included. Blocks are of one byte, so that copying them costs next to
nothing. Storing means finding slots, evicting giving them up first: there so many blocks were
evicted before that the policies remember as many as they ever do.
"""

import itertools

import numpy as np
import pytest

from kvreg.tiering import (
    EVICTION_POLICIES,
    HostMemoryTier,
    ReqContext,
    ScheduleEndContext,
    TransferJob,
    make_offload_key,
)

MOST_OF_LRU = 1.5
ROUNDS = 60
LARGEST_JOB = 1000
MOST_GHOSTS = 32_768  # that a policy remembers, or as many as slots
SIZES = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
others = pytest.mark.parametrize("policy", [p for p in EVICTION_POLICIES if p != "lru"])
sizes = pytest.mark.parametrize("slots", SIZES)


def make_keys(first, count):
    return [make_offload_key(b"%032d" % i, 0) for i in range(first, first + count)]


class Engine:
    """Stores and touches keys, each time for another request."""

    def __init__(self, policy, slots):
        self.primary = np.zeros((LARGEST_JOB, 1), np.uint8)
        self.tier = HostMemoryTier(
            None,
            self.primary.data,
            "host",
            capacity=slots,
            num_threads=1,
            eviction_policy=policy,
        )
        self.numbers = itertools.count()

    def submit(self, keys):
        number = next(self.numbers)
        context = ReqContext(str(number))
        self.tier.submit_store(TransferJob(number, keys, range(len(keys)), False, context))

    def touch(self, keys):
        self.tier.touch(keys, ReqContext(str(next(self.numbers))))

    def finish(self):
        self.tier.drain_jobs()
        self.tier.get_finished_jobs()
        self.tier.on_schedule_end(ScheduleEndContext((), ()))

    def fill(self, count):
        for first in range(0, count, LARGEST_JOB):
            self.submit(make_keys(first, min(LARGEST_JOB, count - first)))
            self.finish()


class Comparison:
    """A policy and LRU, in tiers of the same size with the same content."""

    def __init__(self, policy, slots, stored):
        self.engines = [Engine(policy, slots), Engine("lru", slots)]
        self.job_keys = min(LARGEST_JOB, slots // 50)
        self.new = itertools.count(stored, self.job_keys)
        for engine in self.engines:
            engine.fill(stored)
        self.evicted_before = self.evictions()

    def next_keys(self):
        return make_keys(next(self.new), self.job_keys)

    def measure(self, side_by_side, what, call, choose_keys):
        """Time ``call(engine, keys)``, with other keys each round."""
        measured, lru = self.engines
        keys = []

        def next_round():
            for engine in self.engines:
                engine.finish()
            keys[:] = choose_keys()

        side_by_side(
            what,
            lambda: call(measured, keys),
            "lru",
            lambda: call(lru, keys),
            per=self.job_keys,
            target=1 / MOST_OF_LRU,
            rounds=ROUNDS,
            before=next_round,
        )
        for engine in self.engines:
            engine.finish()
            engine.tier.shutdown()

    def evictions(self):
        return [engine.tier.stats().evictions for engine in self.engines]


@sizes
@others
def test_use(side_by_side, policy, slots):
    comparison = Comparison(policy, slots, stored=slots)
    generator = np.random.default_rng(1)

    def some_that_are_here():
        numbers = generator.integers(slots, size=comparison.job_keys)
        return [key for number in numbers.tolist() for key in make_keys(number, 1)]

    what = f"{policy}: use, {slots:,} slots"
    comparison.measure(side_by_side, what, Engine.touch, some_that_are_here)


@sizes
@others
def test_store(side_by_side, policy, slots):
    comparison = Comparison(policy, slots, stored=slots // 2)
    what = f"{policy}: store, {slots:,} slots"
    comparison.measure(side_by_side, what, Engine.submit, comparison.next_keys)
    assert comparison.evictions() == [0, 0]


@sizes
@others
def test_evict(side_by_side, policy, slots):
    comparison = Comparison(policy, slots, stored=slots + max(slots, MOST_GHOSTS))
    what = f"{policy}: store and evict, {slots:,} slots"
    comparison.measure(side_by_side, what, Engine.submit, comparison.next_keys)
    # Every key took another's slot, whatever the policy: with the warm-up, a round more.
    evicted = (ROUNDS + 1) * comparison.job_keys
    assert comparison.evictions() == [n + evicted for n in comparison.evicted_before]
