"""The kvreg tier below vLLM's real engine."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from vllm import SamplingParams

from tests.vllm.engine.small_engine import (
    CHUNKS,
    PROMPT_TOKENS,
    PROMPTS,
    offloading_to,
    running_engine,
)

ROOT = Path(__file__).parents[3]
ALL_CACHED = [PROMPT_TOKENS] * len(PROMPTS)
ROUND = CHUNKS * len(PROMPTS)  # chunks

THREE_ROUNDS = """
    import json, sys

    # Last, so that the kvreg which is installed is taken.
    sys.path.append(sys.argv[1])
    from tests.vllm.engine.small_engine import offloading_to, running_engine

    with running_engine(sys.argv[2], offloading_to([json.loads(sys.argv[3])])) as engine:
        rounds = [engine.one_by_one() for _ in range(3)]
        (tier,) = engine.tiers
        loaded = tier.stats().blocks_loaded
        tier_class = type(tier)
    print(json.dumps({"rounds": rounds, "loaded": loaded, "class": str(tier_class)}))
"""


def three_rounds_in_a_process(model, tier, **environment):
    """Run three rounds in an interpreter of its own, and return what it tells."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(THREE_ROUNDS), ROOT, model, json.dumps(tier)],
        capture_output=True,
        text=True,
        cwd=model,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_served_by_the_tier(told, expected):
    for number, (tokens, cached) in enumerate(told["rounds"]):
        assert tokens == expected
        assert cached == (ALL_CACHED if number else [0] * len(PROMPTS))
    assert told["loaded"] == 2 * ROUND
    assert told["class"] == "<class 'kvreg.vllm.tier.HostMemoryTierManager'>"


def test_three_rounds_by_the_plugin(model, expected):
    told = three_rounds_in_a_process(model, {"type": "kvreg", "capacity": "64MiB"})
    assert_served_by_the_tier(told, expected)


def test_three_rounds_by_the_class_s_module_without_the_plugin(model, expected):
    tier = {
        "type": "HostMemoryTierManager",
        "module_path": "kvreg.vllm",
        "capacity": "64MiB",
    }
    told = three_rounds_in_a_process(model, tier, VLLM_PLUGINS="")
    assert_served_by_the_tier(told, expected)


def test_three_rounds_with_verification_on(model, expected):
    tier = {"type": "kvreg", "capacity": "64MiB", "verify": "crc32c"}
    with running_engine(model, offloading_to([tier])) as engine:
        assert engine.one_by_one() == (expected, [0] * len(PROMPTS))
        assert engine.one_by_one() == (expected, ALL_CACHED)
        assert engine.one_by_one() == (expected, ALL_CACHED)
        stats = engine.tiers[0].stats()
    assert (stats.blocks_loaded, stats.blocks_corrupt) == (2 * ROUND, 0)


@pytest.fixture(scope="module")
def engine(model):
    tier = {"type": "kvreg", "capacity": "64MiB"}
    with running_engine(model, offloading_to([tier])) as engine:
        engine.one_by_one()
        engine.settle()
        assert engine.tiers[0].stats().slots_used >= ROUND
        yield engine


def test_requests_in_one_batch_get_the_same_tokens(engine, expected):
    loaded = engine.tiers[0].stats().blocks_loaded
    tokens, _ = engine.generate(PROMPTS)
    assert tokens == expected
    assert engine.tiers[0].stats().blocks_loaded > loaded


def test_requests_aborted_midway_leave_nothing_pinned_and_nothing_wrong(engine, expected):
    for after in range(12):
        ids = [f"aborted-{after}-{i}" for i in range(3)]
        for i, name in enumerate(ids):
            prompt = PROMPTS[(3 * after + i) % len(PROMPTS)]
            engine.llm.llm_engine.add_request(
                name, {"prompt_token_ids": prompt}, SamplingParams(max_tokens=50)
            )
        for _ in range(after):
            engine.llm.llm_engine.step()
        engine.llm.llm_engine.abort_request(ids)
    while engine.llm.llm_engine.has_unfinished_requests():
        engine.llm.llm_engine.step()
    engine.settle()
    stats = engine.tiers[0].stats()
    assert (stats.slots_pinned, stats.stores_in_flight, stats.loads_in_flight) == (0, 0, 0)
    assert engine.one_by_one() == (expected, ALL_CACHED)


def test_a_reset_of_the_engine_s_own_cache_leaves_the_tier_s(engine, expected):
    assert engine.llm.reset_prefix_cache()
    assert engine.one_by_one() == (expected, ALL_CACHED)


def test_a_reset_with_the_connector_s_cache_empties_the_tier(engine, expected):
    assert engine.llm.reset_prefix_cache(reset_connector=True)
    assert engine.tiers[0].stats().slots_used == 0
    assert engine.one_by_one() == (expected, [0] * len(PROMPTS))
    assert engine.one_by_one() == (expected, ALL_CACHED)


def test_the_metrics_reach_vllm_s_own(engine):
    engine.one_by_one(PROMPTS[:1])
    told = {
        metric.name: metric.value
        for metric in engine.llm.get_metrics()
        if metric.name.startswith("vllm:kv_offload_kvreg_")
        and metric.labels["tier"] == "1:kvreg"
    }
    stats = engine.tiers[0].stats()
    assert told["vllm:kv_offload_kvreg_capacity_chunks"] == stats.slots_total
    assert told["vllm:kv_offload_kvreg_used_chunks"] == stats.slots_used
    assert told["vllm:kv_offload_kvreg_loaded_bytes"] == stats.bytes_loaded
