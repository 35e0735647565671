"""The native tier and its reference, side by side through random calls."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvreg.tiering import (
    HostMemoryTier,
    LookupResult,
    ReqContext,
    ScheduleEndContext,
    TransferJob,
)
from tests.tiering.model import ModelTier

CONTEXT = ReqContext("request")
BLOCK_BYTES = 16
ROWS_A_JOB = 8
LOADS_IN_FLIGHT = 3
ROWS = ROWS_A_JOB * LOADS_IN_FLIGHT
KEYS = [bytes([i]) * (1 + 7 * i) for i in range(10)]
# A small choice of keys, so that calls meet each other's blocks.
key_lists = st.lists(st.sampled_from(KEYS), max_size=ROWS_A_JOB)


class TierAgainstModel(RuleBasedStateMachine):
    """Both tiers get the same calls, each with a primary buffer of its own.

    Stores end before the next call, and loads may go on: when a copy ends is up to the workers,
    and only what does not depend on it is compared.
    """

    @initialize(slots=st.integers(1, 9), threads=st.integers(1, 3))
    def open(self, slots, threads):
        self.primaries = [np.zeros((ROWS, BLOCK_BYTES), np.uint8) for _ in range(2)]
        parameters = {"capacity": slots * BLOCK_BYTES, "num_threads": threads}
        self.native = HostMemoryTier(None, self.primaries[0].data, "host", **parameters)
        self.model = ModelTier(None, self.primaries[1].data, "host", **parameters)
        self.tiers = (self.native, self.model)
        self.jobs = 0
        self.version = 0

    def submit(self, keys, is_promotion):
        self.jobs += 1
        # Rows belong to one job at a time.
        first_row = len(self.model.running) * ROWS_A_JOB
        rows = np.arange(first_row, first_row + len(keys))
        for tier in self.tiers:
            job = TransferJob(self.jobs, keys, rows, is_promotion, CONTEXT)
            (tier.submit_load if is_promotion else tier.submit_store)(job)

    @rule(keys=key_lists)
    def store(self, keys):
        self.finish()
        self.version += 1
        for primary in self.primaries:
            primary[:] = self.version % 251
            primary[:, 0] = range(ROWS)
        self.submit(keys, False)
        self.finish()

    @rule(keys=key_lists)
    def load(self, keys):
        if len(self.model.running) == LOADS_IN_FLIGHT:
            self.finish()
        self.submit(keys, True)

    @rule(keys=key_lists)
    def touch(self, keys):
        for tier in self.tiers:
            tier.touch(keys, CONTEXT)

    @rule(key=st.sampled_from(KEYS))
    def look_up(self, key):
        native, model = (tier.lookup(key, CONTEXT) for tier in self.tiers)
        assert native is model

    @rule()
    def end_step(self):
        for tier in self.tiers:
            tier.on_schedule_end(ScheduleEndContext((), ()))

    @rule()
    def finish(self):
        results = []
        for tier in self.tiers:
            tier.drain_jobs()
            finished = sorted(tier.get_finished_jobs(), key=lambda result: result.job_id)
            for result in finished:
                assert result.transfer_time >= 0
                result.transfer_time = None
            results.append(finished)
        assert results[0] == results[1]
        assert (self.primaries[0] == self.primaries[1]).all()

    @precondition(lambda self: not self.model.running)
    @invariant()
    def figures_agree(self):
        native, model = self.native.stats(), self.model.stats()
        for name in (
            "evictions",
            "blocks_stored",
            "blocks_loaded",
            "blocks_dropped",
            "slots_used",
        ):
            assert getattr(native, name) == getattr(model, name), name
        assert native.slots_pinned == 0

    def teardown(self):
        if hasattr(self, "native"):
            self.finish()
            self.content_agrees()
            self.native.shutdown()

    def content_agrees(self):
        self.end_step()
        for key in KEYS:
            self.look_up(key)


TierAgainstModel.TestCase.settings = settings(
    max_examples=300, stateful_step_count=60, deadline=None
)
test_the_native_tier_follows_its_model = TierAgainstModel.TestCase


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_blocks_being_written_are_treated_as_the_model_does(slots):
    """Large blocks keep a store in flight for the calls that follow it."""
    rows, block_bytes = 8, 1 << 22
    primaries = [np.ones((rows, block_bytes), np.uint8) for _ in range(2)]
    parameters = {"capacity": slots * block_bytes, "num_threads": 1}
    native = HostMemoryTier(None, primaries[0].data, "host", **parameters)
    model = ModelTier(None, primaries[1].data, "host", **parameters)
    model.hold_jobs = True
    for tier in (native, model):
        tier.submit_store(TransferJob(1, KEYS[:7], range(7), False, CONTEXT))
        # Too soon for the copies to have ended: none of the slots can be had.
        tier.submit_store(TransferJob(2, KEYS[7:], range(3), False, CONTEXT))
        tier.drain_jobs()
    expected = [(1, slots == 7), (2, False)]
    for tier in (native, model):
        results = sorted(tier.get_finished_jobs(), key=lambda result: result.job_id)
        assert [(result.job_id, result.success) for result in results] == expected
        assert [tier.lookup(key, CONTEXT) is LookupResult.HIT for key in KEYS] == [
            i < slots for i in range(len(KEYS))
        ]
    native.shutdown()
