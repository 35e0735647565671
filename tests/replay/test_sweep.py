import pytest

from kvreg.replay.plot import plot_sweep
from kvreg.replay.sweep import OPTIMUM, Sweep, format_sweep
from kvreg.replay.workload import generate_workload
from tests.replay.simulation import Simulation

BLOCK_BYTES = 1000


@pytest.fixture(scope="module")
def points():
    sweep = Sweep(
        generate_workload()[:500], BLOCK_BYTES, 300, [200_000, 999_999], ["lru", "krl"]
    )
    points = list(sweep.points())
    assert len(points) == len(sweep)
    return points


def test_there_is_a_point_for_each_capacity_and_policy_and_the_optimum(points):
    assert [(p.host_capacity, p.host_blocks, p.eviction_policy) for p in points] == [
        (capacity, blocks, policy)
        for capacity, blocks in [(200_000, 200), (999_999, 999)]
        for policy in ("lru", "krl", OPTIMUM)
    ]


def test_rates_are_those_of_a_simulation(points):
    requests = generate_workload()[:500]
    blocks = sum(len(request.hash_ids) for request in requests)
    for point in points:
        if point.eviction_policy == OPTIMUM:
            continue
        simulation = Simulation(300, point.host_blocks, point.eviction_policy)
        hits = [simulation.serve(r.hash_ids, r.seconds) for r in requests]
        assert point.primary_hit_rate == sum(primary for primary, _ in hits) / blocks
        assert point.host_hit_rate == sum(host for _, host in hits) / blocks
        assert point.prefix_hit_rate == pytest.approx(
            point.primary_hit_rate + point.host_hit_rate
        )


def test_no_policy_passes_the_optimum(points):
    optimum = {p.host_blocks: p for p in points if p.eviction_policy == OPTIMUM}
    for point in points:
        assert point.prefix_hit_rate <= optimum[point.host_blocks].prefix_hit_rate


def test_an_empty_trace_has_no_hits():
    assert {p.prefix_hit_rate for p in Sweep([], 1, 1, [1], ["lru"]).points()} == {0.0}


def test_the_table_has_a_line_for_each_capacity(points):
    said, heading, *lines = format_sweep(points).splitlines()
    assert "no block was copied" in said
    assert heading.split() == ["capacity", "blocks", "lru", "krl", OPTIMUM]
    assert [line.split()[2] for line in lines] == ["200", "999"]
    assert lines[0].startswith("   195.3 KiB")


def test_the_picture_is_written(points, tmp_path):
    path = tmp_path / "sweep.png"
    plot_sweep(points, 300, path)
    assert path.read_bytes().startswith(b"\x89PNG")
