"""The tier itself, as a secondary tier of vLLM."""

import dataclasses
import inspect
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.tiering import base as theirs
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from kvreg.tiering import HostMemoryTier
from kvreg.tiering import base as ours
from kvreg.vllm import HostMemoryTierManager
from tests.vllm.scheduler_stub import STEP_END, keys_of, known

CONTEXT = base.ReqContext("request")
CHUNK_BYTES = 64
SPEC = SimpleNamespace(
    kv_events_config=SimpleNamespace(enable_kv_cache_events=True),
)


def make_tier(chunks=4, **parameters):
    view = np.zeros((8, CHUNK_BYTES), np.int8)
    return HostMemoryTierManager(
        offloading_spec=SPEC,
        primary_kv_view=view.data,
        tier_type="kvreg",
        capacity=chunks * CHUNK_BYTES,
        **parameters,
    )


@pytest.fixture
def tier():
    tier = make_tier(enable_kv_events=True)
    yield tier
    tier.shutdown()


def job(number, letters, *, load=False):
    rows = np.arange(len(letters), dtype=np.int32)
    return known(
        TransferJob,
        job_id=number,
        keys=keys_of(letters),
        chunk_ids=rows,
        block_ids=rows,
        is_promotion=load,
        req_context=CONTEXT,
    )


@pytest.mark.skipif(
    not hasattr(JobResult, "deferred_release"), reason="vLLM before 0.34 has fewer fields"
)
@pytest.mark.parametrize("name", ["JobResult", "TransferJob"])
def test_our_own_jobs_have_the_fields_of_vllm_s(name):
    assert [field.name for field in dataclasses.fields(getattr(ours, name))] == [
        field.name for field in dataclasses.fields(getattr(theirs, name))
    ]


def finish(tier):
    HostMemoryTier.drain_jobs(tier)
    (result,) = tier.get_finished_jobs()
    return result


def test_it_is_one_of_vllm_s_and_one_of_ours(tier):
    assert isinstance(tier, SecondaryTierManager)
    assert isinstance(tier, HostMemoryTier)
    assert not tier.__abstractmethods__


@pytest.mark.parametrize("load", [False, True])
def test_results_are_vllm_s_own(tier, load):
    tier.submit_store(job(1, "ab"))
    result = finish(tier)
    if load:
        tier.submit_load(job(2, "ab", load=True))
        result = finish(tier)
    assert type(result) is JobResult
    assert result.success
    assert result.transfer_time > 0
    assert getattr(result, "transfer_bytes", 2 * CHUNK_BYTES) == 2 * CHUNK_BYTES


def test_lookups_answer_with_vllm_s_own_members(tier):
    tier.submit_store(job(1, "a"))
    finish(tier)
    a, b = keys_of("ab")
    assert tier.lookup(a, CONTEXT) is base.LookupResult.HIT
    assert tier.lookup(b, CONTEXT) is base.LookupResult.MISS


def test_a_request_s_context_stats_and_events_are_vllm_s_own(tier):
    context = tier.on_new_request(CONTEXT)
    assert type(context) is base.RequestOffloadingContext
    tier.submit_store(job(1, "a"))
    finish(tier)
    (event,) = tier.take_events()
    assert type(event) is base.OffloadingEvent
    assert (event.keys, event.removed, event.medium) == (keys_of("a"), False, base.Medium.CPU)
    manager = SimpleNamespace(secondary_tiers=[object(), tier])
    SPEC.get_manager = lambda: manager
    stats = tier.get_stats()
    assert type(stats) is OffloadingConnectorStats
    assert stats.data["data"]["vllm:kv_offload_kvreg_used_chunks"] == {("2:kvreg",): 1}


def test_a_store_that_drops_chunks_succeeds_and_tells_what_was_written(tier):
    tier.submit_store(job(1, "abcdef"))
    result = finish(tier)
    assert result.success
    assert result.successful_keys is None
    assert getattr(result, "transfer_bytes", 4 * CHUNK_BYTES) == 4 * CHUNK_BYTES
    assert tier.stats().blocks_dropped == 2


def test_a_load_of_what_is_not_there_fails_and_says_what_was_served(tier):
    tier.submit_store(job(1, "ab"))
    finish(tier)
    tier.submit_load(job(2, "axb", load=True))
    result = finish(tier)
    assert not result.success
    assert result.successful_keys == keys_of("ab")
    assert getattr(result, "deferred_release", None) is None
    tier.submit_load(job(3, "x", load=True))
    result = finish(tier)
    assert (result.success, result.successful_keys) == (False, None)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("lookup", (keys_of("a")[0], CONTEXT)),
        ("touch", (keys_of("ab"), CONTEXT)),
        ("has_pending_work", ()),
        ("on_schedule_end", (STEP_END,)),
        ("get_finished_jobs", ()),
    ],
)
def test_a_call_of_every_step_enters_no_python_frame(tier, method, arguments):
    call = getattr(tier, method)
    frames = []

    def profile(frame, event, argument):
        if event == "call":
            frames.append(frame.f_code.co_name)

    sys.setprofile(profile)
    call(*arguments)
    sys.setprofile(None)
    assert frames == []


def test_every_parameter_of_the_host_tier_is_taken():
    own = set(inspect.signature(HostMemoryTierManager).parameters)
    values = {
        "capacity": None,
        "num_threads": 2,
        "worker_cpus": [0],
        "eviction_policy": "s3fifo",
        "verify": "crc32c",
        "huge_pages": "off",
        "numa_node": None,
        "prefault": True,
        "clock": time.monotonic,
    }
    named = set(inspect.signature(HostMemoryTier).parameters) - own
    assert named <= set(values)
    for name in named - {"capacity"}:
        make_tier(**{name: values[name]}).shutdown()


def test_a_name_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(
        TypeError, match=r"has no parameter capactiy; it has capacity, .*verify"
    ):
        make_tier(capactiy=1)


def test_a_key_of_a_wrong_type_is_refused(tier):
    with pytest.raises(TypeError, match="a key must be bytes"):
        tier.lookup("a", CONTEXT)


def test_after_shutdown_it_still_tells_its_results_and_figures(tier):
    tier.submit_store(job(1, "a"))
    tier.shutdown()
    (result,) = tier.get_finished_jobs()
    assert result.success
    assert tier.config_info()["kvreg_num_chunks"] == 4
    with pytest.raises(RuntimeError, match="shut down"):
        tier.on_new_request(CONTEXT)
