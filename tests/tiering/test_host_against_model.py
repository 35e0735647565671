"""The native tier and its reference, side by side through random calls."""

from dataclasses import fields
from functools import partial
from itertools import count

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
from tests.tiering.tier_memory import TierMemory

CONTEXT = ReqContext("request")
BLOCK_BYTES = 16
ROWS_A_JOB = 8
LOADS_IN_FLIGHT = 3
ROWS = ROWS_A_JOB * LOADS_IN_FLIGHT
# A small choice of keys, so that calls meet each other's blocks, yet more than there are slots.
KEYS = [bytes([i + 1]) * (1 + 3 * i) for i in range(22)]
key_lists = st.lists(st.sampled_from(KEYS), max_size=ROWS_A_JOB)


# In no two stores of this process are two blocks alike.
STORES = count(1)
# Arguments of a job that no tier takes.
BAD_JOBS = {
    "a key that is no bytes": (["key"], [0]),
    "a key of no byte": ([KEYS[0], b""], [0, 1]),
    "a key of 65 bytes": ([b"k" * 65], [0]),
    "fewer rows than keys": (KEYS[:2], [0]),
    "more rows than keys": (KEYS[:2], [0, 1, 2]),
    "a row below the first": (KEYS[:1], [-1]),
    "a row above the last": (KEYS[:2], [0, ROWS]),
}


class TierAgainstModel(RuleBasedStateMachine):
    """Both tiers get the same calls, each with a primary buffer of its own.

    Stores end before the next call, and so do loads that will find a block damaged. Other loads
    may go on: when a copy ends is up to the workers, and only what does not depend on it is
    compared.
    """

    def __init__(self, policy, steps):
        super().__init__()
        self.policy = policy
        self.all_steps = steps  # a list with the steps of each run
        self.steps = -1  # the invariants hold before the first step, too

    @initialize(
        slots=st.integers(1, 20),
        threads=st.integers(1, 3),
        verify=st.sampled_from([None, "crc32c"]),
        events=st.booleans(),
    )
    def open(self, slots, threads, verify, events):
        self.seconds = 0.0
        self.request = ReqContext("request")
        self.primaries = [np.zeros((ROWS, BLOCK_BYTES), np.uint8) for _ in range(2)]
        parameters = {
            "capacity": slots * BLOCK_BYTES,
            "num_threads": threads,
            "eviction_policy": self.policy,
            "verify": verify,
            "enable_kv_events": events,
            "clock": lambda: self.seconds,
        }
        self.native = HostMemoryTier(None, self.primaries[0].data, "host", **parameters)
        self.model = ModelTier(None, self.primaries[1].data, "host", **parameters)
        self.tiers = (self.native, self.model)
        self.jobs = 0
        self.resets = 0
        self.store(KEYS[:1])
        self.memory = TierMemory(self.native, self.model.blocks[KEYS[0]].data)

    def submit(self, keys, is_promotion):
        self.jobs += 1
        # Rows belong to one job at a time.
        first_row = len(self.model.running) * ROWS_A_JOB
        rows = np.arange(first_row, first_row + len(keys))
        for tier in self.tiers:
            job = TransferJob(self.jobs, keys, rows, is_promotion, self.request)
            (tier.submit_load if is_promotion else tier.submit_store)(job)

    @rule(keys=key_lists)
    def store(self, keys):
        self.finish()
        store = next(STORES)
        for primary in self.primaries:
            words = primary.view(np.uint64)
            words[:, 0] = store
            words[:, 1] = range(0, 2 * ROWS, 2)
        self.submit(keys, False)
        self.finish()

    @rule(keys=key_lists)
    def load(self, keys):
        blocks = self.model.blocks
        finds_damage = any(key in blocks and blocks[key].damaged for key in keys)
        if finds_damage or len(self.model.running) == LOADS_IN_FLIGHT:
            self.finish()
        self.submit(keys, True)
        if finds_damage:
            self.finish()

    @rule(keys=key_lists)
    def touch(self, keys):
        for tier in self.tiers:
            tier.touch(keys, self.request)

    @rule(keys=key_lists)
    def look_up(self, keys):
        for key in keys:
            native, model = (tier.lookup(key, CONTEXT) for tier in self.tiers)
            assert native is model

    # Back, too: a clock that a user gives may do anything.
    @rule(seconds=st.sampled_from([0.0, 0.1, 20.0, 300.0, 5000.0, -60.0]))
    def let_time_pass(self, seconds):
        self.seconds += seconds

    @rule(name=st.sampled_from(["a", "b", "c", "d"]))
    def serve_request(self, name):
        self.request = ReqContext(name)

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def damage(self, keys):
        self.finish()
        for key in keys & self.model.blocks.keys():
            self.memory.flip_last_bit(self.model.blocks[key].data)
            self.model.damage(key)

    # Seldom, or most tiers would never be full.
    @precondition(lambda self: self.model.evictions > 15 * (self.resets + 1))
    @rule()
    def reset(self):
        self.finish()
        self.resets += 1
        for tier in self.tiers:
            tier.reset()
        native, model = (tier.take_events() for tier in self.tiers)
        # In which order a reset forgets is nobody's business.
        for event in [*native, *model]:
            event.keys.sort()
        assert native == model

    @rule()
    def end_step(self):
        for tier in self.tiers:
            tier.on_schedule_end(ScheduleEndContext((), ()))

    @rule(bad=st.sampled_from(sorted(BAD_JOBS)), is_promotion=st.booleans())
    def submit_bad_job(self, bad, is_promotion):
        keys, rows = BAD_JOBS[bad]
        self.is_refused(self.jobs + 1, keys, rows, is_promotion)

    @precondition(lambda self: self.model.running)
    @rule(keys=key_lists, is_promotion=st.booleans())
    def submit_job_in_use(self, keys, is_promotion):
        self.is_refused(self.jobs, keys, range(len(keys)), is_promotion)

    def is_refused(self, job_id, keys, rows, is_promotion):
        errors = []
        for tier in self.tiers:
            job = TransferJob(job_id, keys, rows, is_promotion, CONTEXT)
            with pytest.raises((TypeError, ValueError)) as error:
                (tier.submit_load if is_promotion else tier.submit_store)(job)
            errors.append(error.type)
        assert errors[0] is errors[1]

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
        assert results[0] == results[1], (results, self.model.blocks.keys())
        assert (self.primaries[0] == self.primaries[1]).all()
        assert self.native.take_events() == self.model.take_events()

    @invariant()
    def step_is_counted(self):
        self.steps += 1

    @invariant()
    def pending_work_agrees(self):
        assert self.native.has_pending_work() == self.model.has_pending_work()

    @precondition(lambda self: not self.model.running)
    @invariant()
    def figures_agree(self):
        native, model = self.native.stats(), self.model.stats()
        for field in fields(model):
            assert getattr(native, field.name) == getattr(model, field.name), field.name
        assert native.slots_pinned == 0

    def teardown(self):
        if hasattr(self, "memory"):
            self.all_steps.append(self.steps)
            self.finish()
            self.content_agrees()
            self.native.shutdown()
            self.memory.close()

    def content_agrees(self):
        self.end_step()
        self.look_up(KEYS)


# Enough for the tiers to be full most of the time.
STEPS_A_RUN = 120


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICY_MODELS)
def test_the_native_tier_follows_its_model(policy, long):
    wanted = 70_000 if long else 4_000
    steps = []
    for _ in range(10):
        # Some runs end early: what they leave is made up for.
        runs = (wanted - sum(steps)) // STEPS_A_RUN + 1
        run_state_machine_as_test(
            partial(TierAgainstModel, policy, steps),
            settings=settings(max_examples=runs, stateful_step_count=STEPS_A_RUN),
        )
        if sum(steps) >= wanted:
            break
    assert sum(steps) >= wanted
