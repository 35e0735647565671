from itertools import islice

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvreg.replay.engine import Engine, PrefixHits
from kvreg.replay.trace import Request, read_trace
from kvreg.replay.workload import generate_workload
from tests.conftest import tier_class_of_host
from tests.replay.simulation import Simulation
from tests.tiering.policy_models import POLICY_MODELS

every_policy = pytest.mark.parametrize("policy", POLICY_MODELS)
BLOCK_BYTES = 64


def engine(primary_blocks, host_blocks, **parameters):
    config = {"type": "host", "capacity": host_blocks * BLOCK_BYTES, **parameters}
    return Engine(config, primary_blocks, BLOCK_BYTES)


def faulty_engine(class_name, primary_blocks=4, host_blocks=16):
    with tier_class_of_host("tests.replay.faulty_tiers", class_name):
        return engine(primary_blocks, host_blocks)


def assert_agrees_with_simulation(requests, primary_blocks, host_blocks, policy):
    """Serve the requests with both; return the simulation for what else a test wants to see."""
    simulation = Simulation(primary_blocks, host_blocks, policy)
    with engine(primary_blocks, host_blocks, eviction_policy=policy) as served:
        for request in requests:
            assert served.step(request) == simulation.serve(request.hash_ids, request.seconds)
        assert served.evictions == simulation.host.evictions
        assert served.jobs.stored.bytes == simulation.stored * BLOCK_BYTES
        assert served.jobs.loaded.bytes == simulation.loaded * BLOCK_BYTES
        assert served.jobs.failed_jobs + served.jobs.partial_jobs == simulation.short_stores
        assert served.jobs.outstanding == 0
        assert served.corrupted_blocks == 0
    return simulation


# The fixture chooses a class; it holds nothing that one example could leave to the next.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("host_tier")
@every_policy
@given(
    requests=st.lists(
        st.builds(
            Request,
            st.lists(st.integers(0, 9), max_size=8).map(tuple),
            st.sampled_from([0.0, 0.5, 40.0, 4000.0]),
        ),
        max_size=30,
    ),
    primary_blocks=st.integers(1, 6),
    host_blocks=st.integers(1, 8),
)
def test_prefix_hits_agree_with_the_simulation(requests, primary_blocks, host_blocks, policy):
    assert_agrees_with_simulation(requests, primary_blocks, host_blocks, policy)


@pytest.mark.usefixtures("host_tier")
@every_policy
def test_prefix_hits_of_the_built_in_workload_agree_with_the_simulation(policy):
    simulation = assert_agrees_with_simulation(generate_workload(), 1000, 4096, policy)
    assert simulation.loaded > 1000
    assert simulation.host.evictions > 1000


@pytest.mark.usefixtures("host_tier")
@every_policy
def test_prefix_hits_of_a_production_trace_agree_with_the_simulation(production_trace, policy):
    requests = read_trace(production_trace, limit=1000).requests
    simulation = assert_agrees_with_simulation(requests, 200, 3000, policy)
    assert simulation.loaded > 0
    assert simulation.host.evictions > 0


@pytest.mark.usefixtures("host_tier")
def test_blocks_beyond_the_primary_tiers_rows_are_computed_and_not_kept():
    with engine(primary_blocks=2, host_blocks=8) as served:
        for _ in range(3):
            hits = served.step(Request((1, 2, 3, 4)))
        assert hits == PrefixHits(primary=2, host=0)
        assert served.blocks == 12
        assert served.jobs.stored.bytes == 2 * BLOCK_BYTES


@pytest.mark.usefixtures("host_tier")
def test_an_id_that_a_request_repeats_is_one_block():
    with engine(primary_blocks=8, host_blocks=8) as served:
        assert served.step(Request((1, 2, 1))) == PrefixHits(primary=0, host=0)
        assert served.step(Request((1, 1, 2))) == PrefixHits(primary=2, host=0)
        assert served.blocks == 4


@pytest.mark.usefixtures("host_tier")
def test_ids_may_be_strings_and_of_any_size():
    ids = ("0xab", "0xAB", 2**64 - 1, 2**63, -1, "\ud800", 7)
    with engine(primary_blocks=8, host_blocks=8) as served:
        assert served.step(Request(ids)) == PrefixHits(primary=0, host=0)
        assert served.step(Request(ids)) == PrefixHits(primary=7, host=0)
        assert served.blocks == 14


@pytest.mark.usefixtures("host_tier")
def test_every_step_has_a_cost_on_the_schedulers_thread():
    with engine(primary_blocks=8, host_blocks=8) as served:
        for request in islice(generate_workload(), 5):
            served.step(request)
        assert len(served.scheduler_ns) == 5
        assert all(ns > 0 for ns in served.scheduler_ns)


def promotions(served):
    """Serve requests of which the last promotes 4 blocks, if all goes well; return its hits."""
    served.step(Request((1, 2, 3, 4)))
    served.step(Request((5, 6, 7, 8)))
    return served.step(Request((1, 2, 3, 4)))


@pytest.mark.parametrize("class_name", ["CorruptingTier", "SwappingTier", "IdleTier"])
def test_wrong_bytes_in_promoted_blocks_are_counted(class_name):
    with faulty_engine(class_name) as served:
        promotions(served)
        assert served.corrupted_blocks == 4


def test_a_job_without_a_result_stays_outstanding_and_its_blocks_are_computed():
    with faulty_engine("LosingTier") as served:
        assert promotions(served) == PrefixHits(primary=0, host=0)
        assert served.jobs.outstanding == 1
        assert served.step(Request((1, 2, 3, 4))) == PrefixHits(primary=4, host=0)


def test_the_prefix_ends_where_a_load_failed_and_the_block_is_computed_and_stored():
    with faulty_engine("ForgettingTier") as served:
        assert promotions(served) == PrefixHits(primary=0, host=2)
        assert served.jobs.partial_jobs == 1
        assert served.jobs.failed_jobs == 0
        assert served.jobs.stored.bytes == 9 * BLOCK_BYTES
        assert served.step(Request((1, 2, 3, 4))) == PrefixHits(primary=4, host=0)
        assert served.corrupted_blocks == 0


def test_a_load_that_fails_as_a_whole_is_a_failed_job_without_hits():
    with faulty_engine("FailingTier") as served:
        assert promotions(served) == PrefixHits(primary=0, host=0)
        assert served.jobs.failed_jobs == 1
        assert served.jobs.partial_jobs == 0
        assert served.step(Request((1, 2, 3, 4))) == PrefixHits(primary=4, host=0)


def test_a_second_result_of_a_job_is_an_error():
    with (
        faulty_engine("RepeatingTier") as served,
        pytest.raises(RuntimeError, match="job 0, which is not outstanding"),
    ):
        served.step(Request((1,)))
