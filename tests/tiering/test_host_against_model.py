"""The native tier and its reference, side by side through random calls."""

from functools import partial

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvreg.tiering import (
    HostMemoryTier,
    ReqContext,
    ScheduleEndContext,
    TransferJob,
)
from tests.tiering.model import ModelTier
from tests.tiering.policy_models import POLICY_MODELS

CONTEXT = ReqContext("request")
BLOCK_BYTES = 16
ROWS_A_JOB = 8
LOADS_IN_FLIGHT = 3
ROWS = ROWS_A_JOB * LOADS_IN_FLIGHT
# A small choice of keys, so that calls meet each other's blocks, yet more than there are slots.
KEYS = [bytes([i + 1]) * (1 + 3 * i) for i in range(22)]
key_lists = st.lists(st.sampled_from(KEYS), max_size=ROWS_A_JOB)


class TierAgainstModel(RuleBasedStateMachine):
    """Both tiers get the same calls, each with a primary buffer of its own.

    Stores end before the next call, and loads may go on: when a copy ends is up to the workers,
    and only what does not depend on it is compared.
    """

    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    @initialize(slots=st.integers(1, 20), threads=st.integers(1, 3))
    def open(self, slots, threads):
        self.primaries = [np.zeros((ROWS, BLOCK_BYTES), np.uint8) for _ in range(2)]
        parameters = {
            "capacity": slots * BLOCK_BYTES,
            "num_threads": threads,
            "eviction_policy": self.policy,
        }
        self.native = HostMemoryTier(None, self.primaries[0].data, "host", **parameters)
        self.model = ModelTier(None, self.primaries[1].data, "host", **parameters)
        self.tiers = (self.native, self.model)
        self.jobs = 0
        self.version = 0
        self.resets = 0

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

    @rule(keys=key_lists)
    def look_up(self, keys):
        for key in keys:
            native, model = (tier.lookup(key, CONTEXT) for tier in self.tiers)
            assert native is model

    # Seldom, or most tiers would never be full.
    @precondition(lambda self: self.model.evictions > 15 * (self.resets + 1))
    @rule()
    def reset(self):
        self.resets += 1
        for tier in self.tiers:
            tier.reset()

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
        self.look_up(KEYS)


@pytest.mark.parametrize("policy", POLICY_MODELS)
def test_the_native_tier_follows_its_model(policy):
    run_state_machine_as_test(
        partial(TierAgainstModel, policy),
        settings=settings(max_examples=300, stateful_step_count=120, deadline=None),
    )
