"""vLLM's tiering manager, primary tier and shared region, with the kvreg tier below them."""

import logging
import os
import random

import pytest
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    ReqContext,
    TierFilter,
    TierMatcher,
)
from vllm.v1.kv_offload.tiering.base import SecondaryTierManager

from tests.tiering.tier_memory import TierMemory
from tests.vllm.scheduler_stub import (
    CHUNK_BYTES,
    SchedulerStub,
    key_of,
    make_spec,
    region_path,
)

METRIC = "vllm:kv_offload_kvreg_"
CASCADE_FAILURES = "vllm:kv_offload_tiering_cascade_job_failures"
PROMOTION_FAILURES = "vllm:kv_offload_tiering_promotion_job_failures"

needs_detectors = pytest.mark.skipif(
    not hasattr(SecondaryTierManager, "bp_detector"),
    reason="vLLM before 0.31 has no backpressure detectors",
)
needs_positions = pytest.mark.skipif(
    not hasattr(ReqContext, "set_offload_key_position"),
    reason="vLLM before 0.31 does not record the places of a request's keys",
)
needs_config_info = pytest.mark.skipif(
    not hasattr(SecondaryTierManager, "config_info"),
    reason="vLLM before 0.33 has no configuration metric",
)


def tier_of(chunks, **parameters):
    return {"type": "kvreg", "capacity": chunks * CHUNK_BYTES, **parameters}


@pytest.fixture
def scheduler(kvreg_tier_type):
    """Make stubs of a scheduler above tiers; close them in the end."""
    made = []

    def make(*tiers, **options):
        made.append(SchedulerStub(*tiers, **options))
        return made[-1]

    yield make
    for stub in made:
        stub.close()


@pytest.fixture
def complaints():
    """What vLLM's tiering says at level warning and above."""
    said = []

    class Listener(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())

    listener = Listener(logging.WARNING)
    logger = logging.getLogger("vllm")
    logger.addHandler(listener)
    yield said
    logger.removeHandler(listener)


def native_threads():
    return len(os.listdir("/proc/self/task"))


# -- Chunks ---------------------------------------------------------------------------------


def test_what_the_primary_tier_evicted_comes_back_from_the_tier(scheduler):
    stub = scheduler(tier_of(16), primary_chunks=4)
    stub.store("abcd")
    stub.store("efgh")
    assert stub.load("abcd") == "abcd"
    assert stub.load("efgh") == "efgh"
    assert stub.tiers[0].stats().blocks_loaded == 8


def test_what_no_tier_has_is_not_found(scheduler):
    stub = scheduler(tier_of(16))
    stub.store("ab")
    assert stub.load("abcd") == "ab"


def test_a_random_run_gives_back_what_was_stored(scheduler):
    stub = scheduler(tier_of(12, num_threads=2), primary_chunks=6)
    choose = random.Random(5)
    letters = "abcdefghijklmnopqrst"
    running = []
    found = 0
    for _ in range(400):
        action = choose.random()
        if action < 0.4:
            running.append(stub.new_request())
            first = choose.randrange(len(letters) - 3)
            stub.submit_store(letters[first : first + 3], running[-1])
        elif action < 0.8:
            found += len(stub.load(choose.sample(letters, 3)))
        elif action < 0.95:
            stub.end_step()
        elif running:
            stub.finish(running.pop(choose.randrange(len(running))))
    stub.settle()
    stats = stub.tiers[0].stats()
    # How many depends on how soon the copies end.
    assert found > 50
    assert stats.blocks_loaded > 10
    assert stats.evictions > 10
    assert (stats.slots_pinned, stats.stores_in_flight, stats.loads_in_flight) == (0, 0, 0)


def test_two_tiers_each_have_the_chunks(scheduler):
    stub = scheduler(tier_of(16), tier_of(4), primary_chunks=4)
    stub.store("abcd")
    stub.store("efgh")
    assert [tier.stats().slots_used for tier in stub.tiers] == [8, 4]
    stub.tiers[0].reset()
    assert stub.load("abcdefgh"[4:]) == "efgh"
    assert stub.load("abcd") == ""
    assert stub.metric(METRIC + "used_chunks") == {("1:kvreg",): 0, ("2:kvreg",): 4}


def test_a_request_that_asks_for_other_media_gets_nothing_of_the_tier(scheduler):
    stub = scheduler(tier_of(16, locality="LOCAL"), primary_chunks=4)
    stub.store("abcd")
    stub.store("efgh")
    context = ReqContext("picky", load_tier_filter=TierFilter((TierMatcher(Medium.STORAGE),)))
    stub.manager.on_new_request(context)
    assert stub.look("abcd", context) == ""
    stub.finish(context)
    local = TierFilter((TierMatcher(None, Locality.LOCAL),))
    context = ReqContext("local", load_tier_filter=local)
    stub.manager.on_new_request(context)
    assert stub.look("abcd", context) == "abcd"
    stub.finish(context)


def test_a_corrupt_chunk_fails_alone_and_is_forgotten(scheduler):
    stub = scheduler(tier_of(16, verify="crc32c", num_threads=1), primary_chunks=4)
    stub.store("abcd")
    memory = TierMemory(stub.tiers[0], b"a" * CHUNK_BYTES)
    memory.flip_last_bit(b"c" * CHUNK_BYTES)
    memory.close()
    stub.store("efgh")
    assert stub.load("abcd") == "abd"
    told = stub.manager.get_stats().data["data"]
    assert told[PROMOTION_FAILURES] == {("1:kvreg",): 1}
    assert told[METRIC + "failed_chunks"] == {("1:kvreg", "corrupt"): 1}
    stub.store("c")
    stub.store("efgh")
    assert stub.load("abcd") == "abcd"


# -- Room -----------------------------------------------------------------------------------


def test_chunks_dropped_for_lack_of_room_are_no_failure(scheduler):
    stub = scheduler(tier_of(3))
    stub.store("abcde")
    told = stub.manager.get_stats().data["data"]
    assert CASCADE_FAILURES not in told
    assert told[METRIC + "dropped_chunks"] == {("1:kvreg", "oversized"): 2}
    assert told[METRIC + "stored_bytes"] == {("1:kvreg",): 3 * CHUNK_BYTES}


@needs_positions
def test_a_finished_request_leaves_its_chunks_recently_used_the_last_ones_least(scheduler):
    stub = scheduler(tier_of(4), primary_chunks=8)
    stub.store("ab")
    stub.store("cd")
    context = stub.new_request()
    for place, letter in enumerate("abx"):
        context.set_offload_key_position(key_of(letter), 16 * (place + 1))
    stub.finish(context)
    stub.store("ef")
    tier = stub.tiers[0]
    held = [c for c in "abcdef" if tier.lookup(key_of(c), context) is LookupResult.HIT]
    assert held == ["a", "b", "e", "f"]
    stub.end_step()
    stub.store("ghi")
    held = [c for c in "abefghi" if tier.lookup(key_of(c), context) is LookupResult.HIT]
    assert held == ["e", "g", "h", "i"]


@needs_positions
def test_places_are_taken_by_number_not_by_when_they_were_told(scheduler):
    stub = scheduler(tier_of(4), primary_chunks=8)
    stub.store("ab")
    stub.store("cd")
    context = stub.new_request()
    for place, letter in ((32, "d"), (16, "c"), (48, "a"), (64, "b")):
        context.set_offload_key_position(key_of(letter), place)
    stub.finish(context)
    stub.store("ef")
    tier = stub.tiers[0]
    held = [c for c in "abcdef" if tier.lookup(key_of(c), context) is LookupResult.HIT]
    assert held == ["c", "d", "e", "f"]


@needs_detectors
def test_a_detector_learns_of_the_stores(scheduler):
    detector = {"backpressure_cls": "EMABackpressureDetector", "warmup_completions": 1}
    stub = scheduler(tier_of(16, backpressure=detector))
    assert stub.tiers[0].bp_detector.stats["store_latency_ema"] == 0
    stub.store("ab")
    assert stub.tiers[0].bp_detector.stats["store_latency_ema"] > 0
    assert stub.tiers[0].block_size_bytes == CHUNK_BYTES


# -- Resets ---------------------------------------------------------------------------------


def reset(stub):
    stub.manager.reset_cache()
    if hasattr(stub.manager, "on_reset_flushed"):
        stub.manager.on_reset_flushed()


def test_a_reset_of_the_engine_s_caches_empties_the_tier(scheduler):
    stub = scheduler(tier_of(16), primary_chunks=4)
    stub.store("abcd")
    stub.store("efgh")
    reset(stub)
    assert stub.load("abcd") == ""
    assert stub.load("efgh") == ""
    assert stub.tiers[0].stats().slots_used == 0
    stub.store("abcd")
    assert stub.load("abcd") == "abcd"


def test_a_tier_that_is_told_so_keeps_its_content_over_a_reset(scheduler):
    stub = scheduler(tier_of(16, keep_on_reset=True), primary_chunks=4)
    stub.store("abcd")
    reset(stub)
    assert stub.load("abcd") == "abcd"


@pytest.mark.parametrize("keep_on_reset", [False, True])
def test_a_reset_during_stores_and_loads_leaves_none_in_flight(scheduler, keep_on_reset):
    stub = scheduler(tier_of(64, keep_on_reset=keep_on_reset), primary_chunks=32)
    stub.store("abcdefghijklmnopqrstuvwxyzABCDEF")
    stub.store("GHIJKLMNOPQRSTUV")
    context = stub.new_request()
    for letter in "abcdefgh":
        stub.manager.lookup(key_of(letter), context)
    stub.end_step()
    stub.submit_store("0123", context)
    reset(stub)
    assert not stub.manager.has_pending_work()
    assert stub.tiers[0].stats().slots_used == (52 if keep_on_reset else 0)
    stub.finish(context)


# -- Events ---------------------------------------------------------------------------------


def changes(events, owner):
    """Return the letters that an owner's events tell, upper-case for the removed ones."""
    letters = ""
    for event in events:
        if getattr(event, "ownership", owner) == owner and event.locality is Locality.LOCAL:
            assert event.medium is Medium.CPU
            told = "".join(chr(key[0]) for key in event.keys)
            letters += told.upper() if event.removed else told
    return letters


def test_the_engine_learns_what_is_stored_and_removed(scheduler):
    tier = tier_of(2, enable_kv_events=True, locality="LOCAL")
    stub = scheduler(tier, kv_events=True)
    stub.store("ab")
    stub.store("cd")
    assert changes(stub.manager.take_events(), "kvreg") == "abBAcd"
    assert changes(stub.manager.take_events(), "kvreg") == ""


def test_no_events_are_kept_where_the_engine_publishes_none(scheduler, caplog):
    stub = scheduler(tier_of(2, enable_kv_events=True))
    assert "'kvreg' has enable_kv_events, but vLLM does not publish" in caplog.text
    stub.store("ab")
    assert list(stub.manager.take_events()) == []


def test_no_events_are_kept_unless_asked_for(scheduler):
    stub = scheduler(tier_of(2), kv_events=True)
    stub.store("ab")
    assert list(stub.tiers[0].take_events()) == []


# -- Metrics --------------------------------------------------------------------------------


def test_every_metric_that_is_told_was_declared_with_its_labels(scheduler):
    stub = scheduler(tier_of(3, verify="crc32c"), primary_chunks=4)
    declared = type(stub.spec).build_metric_definitions(stub.spec.extra_config)
    stub.store("abcd")
    stub.store("efgh")
    stub.load("efg")
    told = stub.manager.get_stats().data["data"]
    ours = {name for name in told if name.startswith(METRIC)}
    assert len(ours) >= 8
    for name in ours:
        for labels in told[name]:
            assert len(labels) == len(declared[name].labelnames)


def test_gauges_are_what_they_are_and_counters_what_was_added(scheduler):
    stub = scheduler(tier_of(4))
    stub.store("ab")
    told = stub.manager.get_stats().data["data"]
    assert told[METRIC + "capacity_chunks"] == {("1:kvreg",): 4}
    assert told[METRIC + "used_chunks"] == {("1:kvreg",): 2}
    assert told[METRIC + "stored_bytes"] == {("1:kvreg",): 2 * CHUNK_BYTES}
    stub.store("cde")
    told = stub.manager.get_stats().data["data"]
    assert told[METRIC + "used_chunks"] == {("1:kvreg",): 4}
    assert told[METRIC + "stored_bytes"] == {("1:kvreg",): 3 * CHUNK_BYTES}
    assert told[METRIC + "evicted_chunks"] == {("1:kvreg",): 1}
    assert METRIC + "stored_bytes" not in stub.manager.get_stats().data["data"]


@needs_config_info
def test_the_configuration_metric_has_the_tier_s_size(scheduler):
    stub = scheduler(tier_of(4, num_threads=3))
    _, tier = stub.manager.config_info()
    assert tier == {"kvreg_num_chunks": 4, "kvreg_num_threads": 3, "tier": "1:kvreg"}
    assert set(tier) <= set(type(stub.spec).config_info_keys(stub.spec.extra_config))


# -- The end --------------------------------------------------------------------------------


def test_after_shutdown_the_region_is_unmapped_and_no_thread_runs(kvreg_tier_type, complaints):
    threads = native_threads()
    stub = SchedulerStub(tier_of(16, num_threads=3))
    region = stub.spec._scheduler_mmap
    mapping = region.mmap_obj
    assert native_threads() == threads + 3
    stub.store("abcd")
    stub.close()
    assert mapping.closed
    assert native_threads() == threads
    assert complaints == []


def test_shutdown_with_jobs_in_flight_and_results_uncollected_unmaps_the_region(
    kvreg_tier_type, complaints
):
    stub = SchedulerStub(tier_of(512, num_threads=1), primary_chunks=512)
    mapping = stub.spec._scheduler_mmap.mmap_obj
    context = stub.new_request()
    for first in range(0x100, 0x100 + 512, 64):
        stub.submit_store([chr(c) for c in range(first, first + 64)], context)
    stub.close()
    assert mapping.closed
    assert complaints == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"capacity": 100}, "100"),
        ({"capacity": "4 potatoes"}, "4 potatoes"),
        ({"capacity": "8192TiB"}, str(8192 << 40)),
        ({"capactiy": 4096}, "capactiy; it has capacity, .* keep_on_reset, locality"),
        ({"eviction_policy": "mru"}, "mru"),
        ({"verify": "md5"}, "md5"),
        ({"num_threads": 0}, "num_threads .* 0"),
        ({"locality": "NEARBY"}, "locality .* 'LOCAL', 'REMOTE', not 'NEARBY'"),
        ({"locality": ["LOCAL"]}, "locality .* not ..LOCAL"),
        ({"keep_on_reset": "no"}, "keep_on_reset .* 'no'"),
        ({"enable_kv_events": "yes"}, "enable_kv_events .* 'yes'"),
        ({"worker_cpus": [1 << 19]}, str(1 << 19)),
    ],
)
def test_a_tier_that_cannot_be_made_leaves_nothing_behind(
    kvreg_tier_type, complaints, wrong, named
):
    threads = native_threads()
    spec = make_spec([tier_of(4), {**tier_of(4), **wrong}])
    with pytest.raises((TypeError, ValueError, MemoryError, OSError), match=named):
        spec.get_manager()
    assert not os.path.exists(region_path(spec))
    assert native_threads() == threads
    assert complaints == []
