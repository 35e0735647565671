import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreg.replay.optimum import optimal_prefix_hits
from kvreg.replay.trace import read_trace
from tests.replay.simulation import Simulation
from tests.tiering.policy_models import POLICY_MODELS


def prefix_hits(blocks, kept):
    return next((i for i, block in enumerate(blocks) if block not in kept), len(blocks))


def best_of_all_choices(requests, num_blocks):
    """Try everything that could be kept after each request."""

    def best(rest, kept):
        if not rest:
            return 0
        blocks, *rest = rest
        here = kept | set(blocks)
        choices = itertools.combinations(sorted(here), min(num_blocks, len(here)))
        return prefix_hits(blocks, kept) + max(best(rest, set(choice)) for choice in choices)

    return best(requests, set())


prefix_trees = st.lists(
    st.lists(st.integers(0, 1), max_size=3).map(
        # An id names its prefix, too.
        lambda path: [
            2 ** (i + 1) + sum(2**k * b for k, b in enumerate(path[: i + 1]))
            for i in range(len(path))
        ]
    ),
    max_size=4,
)


@given(prefix_trees, st.integers(0, 4))
def test_no_choice_of_what_to_keep_has_more_hits(requests, num_blocks):
    hits = optimal_prefix_hits(requests, num_blocks)
    assert hits == best_of_all_choices(requests, num_blocks)


@pytest.mark.parametrize("policy", POLICY_MODELS)
@given(
    requests=st.lists(st.lists(st.integers(0, 9), max_size=8, unique=True), max_size=30),
    primary_blocks=st.integers(8, 10),
    host_blocks=st.integers(1, 8),
)
def test_no_policy_in_two_tiers_passes_it(policy, requests, primary_blocks, host_blocks):
    # Blocks that hit behind a miss of another request's prefix do not come in these.
    chains = [[tuple(ids[: i + 1]) for i in range(len(ids))] for ids in requests]
    simulation = Simulation(primary_blocks, host_blocks, policy)
    hits = sum(sum(simulation.serve(chain)) for chain in chains)
    assert hits <= optimal_prefix_hits(chains, primary_blocks + host_blocks)


def test_blocks_may_be_named_by_numbers_and_strings():
    assert optimal_prefix_hits([[1, "a", 2], [3, "b"], [1, "a", 2], [3, "b"]], 4) == 4


def test_nothing_is_kept_without_room():
    assert optimal_prefix_hits([[1, 2], [1, 2]], 0) == 0
    assert optimal_prefix_hits([], 5) == 0


def test_the_head_is_kept_where_there_is_no_room_for_all():
    assert optimal_prefix_hits([[1, 2, 3], [1, 2, 3]], 2) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_blocks", "rate"),
    [
        (500, 0.1426),
        (1000, 0.1988),
        (3000, 0.3070),
        (10000, 0.3819),
        (30000, 0.3819),
        (60000, 0.3819),
    ],
)
def test_the_optimum_of_a_production_trace(production_trace, num_blocks, rate, long):
    if not long:
        pytest.skip("takes the whole trace: --long")
    requests = [list(dict.fromkeys(r.hash_ids)) for r in read_trace(production_trace).requests]
    hits = optimal_prefix_hits(requests, num_blocks)
    assert hits / sum(map(len, requests)) == pytest.approx(rate, abs=5e-5)
