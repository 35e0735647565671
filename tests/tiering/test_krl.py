"""KRL on real traffic: the plain-Python policy, and the native tier that must equal it."""

import hashlib

import numpy as np
import pytest

from kvreg.replay.trace import read_trace
from kvreg.tiering import (
    HostMemoryTier,
    LookupResult,
    ReqContext,
    ScheduleEndContext,
    TransferJob,
)
from tests.replay.simulation import BoundedSet, Simulation
from tests.tiering.policy_models import Use


class PlainTier:
    """One tier of `slots` blocks, by a policy's model."""

    def __init__(self, slots, policy="krl"):
        self.blocks = BoundedSet(slots, policy)

    def serve(self, name, ids, seconds):
        """Use the request's blocks, then store those behind its prefix; return its hits."""
        hits = next((i for i, block in enumerate(ids) if block not in self.blocks), len(ids))
        tick = int(seconds * 16)
        self.blocks.use(ids, Use(name, tick, whole=True))
        self.blocks.store(ids[hits:], set(ids), Use(name, tick, whole=False, placing=True))
        self.blocks.policy.end_step()
        return hits

    @property
    def residents(self):
        return self.blocks.ids

    def touch(self, name, ids, seconds):
        self.blocks.use(ids, Use(name, int(seconds * 16), whole=True))


class NativeTier:
    """The same by the native tier, over blocks of one byte."""

    def __init__(self, slots, rows):
        self.seconds = 0.0
        self.ids_of_keys = {}
        self.residents = set()
        self.jobs = 0
        self.tier = HostMemoryTier(
            None,
            np.zeros((rows, 1), np.uint8).data,
            "host",
            capacity=slots,
            num_threads=1,
            eviction_policy="krl",
            clock=lambda: self.seconds,
            enable_kv_events=True,
        )

    def key(self, block):
        key = hashlib.sha256(str(block).encode()).digest()
        self.ids_of_keys[key] = block
        return key

    def serve(self, name, ids, seconds):
        self.seconds = seconds
        context, keys = ReqContext(name), [self.key(block) for block in ids]
        hits = next((i for i, key in enumerate(keys) if not self.has(key)), len(keys))
        self.tier.touch(keys, context)
        self.jobs += 1
        rows = range(len(keys) - hits)
        self.tier.submit_store(TransferJob(self.jobs, keys[hits:], rows, False, context))
        self.tier.drain_jobs()
        self.tier.get_finished_jobs()
        self.end_step()
        for event in self.tier.take_events():
            ids = {self.ids_of_keys[key] for key in event.keys}
            if event.removed:
                self.residents -= ids
            else:
                self.residents |= ids
        return hits

    def touch(self, name, ids, seconds):
        self.seconds = seconds
        self.tier.touch([self.key(block) for block in ids], ReqContext(name))

    def has(self, key):
        return self.tier.lookup(key, ReqContext("")) is LookupResult.HIT

    def end_step(self):
        self.tier.on_schedule_end(ScheduleEndContext((), ()))


@pytest.fixture(scope="module")
def requests(production_trace):
    return [
        (str(i), list(dict.fromkeys(request.hash_ids)), request.seconds)
        for i, request in enumerate(read_trace(production_trace).requests)
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("slots", "rate"),
    [
        (500, 0.0734),
        (1000, 0.0920),
        (3000, 0.1471),
        (10000, 0.2487),
        (30000, 0.3498),
        (60000, 0.3746),
    ],
)
def test_both_serve_a_production_trace_alike(requests, slots, rate, long):
    if not long:
        requests = requests[:1000]
    plain, native = PlainTier(slots), NativeTier(slots, max(len(ids) for _, ids, _ in requests))
    hits = 0
    for request in requests:
        found = plain.serve(*request)
        assert native.serve(*request) == found
        assert native.residents == plain.residents
        hits += found
    # What the events told is what lookups find.
    assert {
        block for key, block in native.ids_of_keys.items() if native.has(key)
    } == plain.residents
    if long:
        assert hits / sum(len(ids) for _, ids, _ in requests) == pytest.approx(rate, abs=5e-5)


def test_a_ghost_that_its_own_request_pushes_out_counts_as_new_to_both():
    plain, native = PlainTier(4), NativeTier(4, rows=4)
    for tier in (plain, native):
        tier.serve("first", [1], 0)
        tier.serve("second", [2], 0)
        tier.touch("third", [3], 0)
        tier.touch("fourth", range(1000, 1000 + 29_999), 0)
        tier.serve("fifth", [2, 3, 4], 0)
        tier.serve("sixth", [5], 0)
        tier.serve("seventh", [6], 0)
    assert native.residents == plain.residents == {1, 2, 5, 6}


@pytest.mark.long
@pytest.mark.parametrize("slots", [1000, 10000])
def test_to_learn_of_a_request_after_its_blocks_were_stored_costs_little(requests, slots, long):
    if not long:
        requests = requests[:1000]
    blocks = sum(len(ids) for _, ids, _ in requests)

    def rate(**order):
        both = Simulation(500, slots, "krl", **order)
        return sum(sum(both.serve(ids, seconds)) for _, ids, seconds in requests) / blocks

    assert rate(touch="before") - rate(touch="end", seconds=10) <= 0.005


@pytest.mark.long
@pytest.mark.parametrize(
    ("slots", "rate"),
    [
        (500, 0.0440),
        (1000, 0.0470),
        (3000, 0.0702),
        (10000, 0.2242),
        (30000, 0.3448),
        (60000, 0.3744),
    ],
)
def test_what_lru_finds_of_it(requests, slots, rate, long):
    if not long:
        pytest.skip("takes the whole trace: --long")
    plain = PlainTier(slots, "lru")
    hits = sum(plain.serve(*request) for request in requests)
    assert hits / sum(len(ids) for _, ids, _ in requests) == pytest.approx(rate, abs=5e-5)
