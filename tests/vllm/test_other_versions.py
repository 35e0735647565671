"""Versions of vLLM that there are not: what they add changes nothing, what they lack is told.

Each is the vLLM that is installed with something put in another's place, before any of kvreg
that knows vLLM is imported.
"""

import dataclasses
import enum
import logging
import sys
from abc import abstractmethod
from types import SimpleNamespace

import numpy as np
import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.offloading import metrics
from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.tiering import base as tiering
from vllm.v1.kv_offload.tiering import manager
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

import kvreg.vllm
from kvreg.tiering import HostMemoryTier
from kvreg.vllm import plugin
from tests.vllm import scheduler_stub
from tests.vllm.scheduler_stub import CHUNK_BYTES, SchedulerStub, key_of, keys_of, known

CONTEXT = base.ReqContext("request")
ROWS = "chunk_ids" if hasattr(base.OffloadPolicy, "CHUNK_LEVEL") else "block_ids"
VllmTier = tiering.SecondaryTierManager


@pytest.fixture
def patch(unregistered, monkeypatch):
    """Put something in another's place; nothing of kvreg that knows vLLM is imported yet."""
    for name in ("calls", "interface", "metrics", "tier"):
        monkeypatch.delitem(sys.modules, f"kvreg.vllm.{name}", raising=False)
        monkeypatch.delattr(kvreg.vllm, name, raising=False)
    return monkeypatch.setattr


@pytest.fixture
def scheduler():
    """Make a stub of a scheduler above the tier "kvreg"; close it in the end."""
    made = []

    def make(**parameters):
        plugin._register_tier()
        tier = {"type": "kvreg", "capacity": 16 * CHUNK_BYTES, **parameters}
        made.append(SchedulerStub(tier, primary_chunks=4, kv_events=True))
        return made[-1]

    yield make
    for stub in made:
        stub.close()


def held(stub, letters):
    """Return those of the chunks that the tier has."""
    hit = base.LookupResult.HIT
    return "".join(c for c in letters if stub.tiers[0].lookup(key_of(c), CONTEXT) is hit)


def load_what_is_not_there(tier):
    """Return the result of a load of "a", which the tier has, and "x", which it has not."""
    rows = np.array([0, 1], np.int32)
    job = {"job_id": 12345, "keys": keys_of("ax"), "is_promotion": True, "req_context": CONTEXT}
    tier.submit_load(known(tiering.TransferJob, **job, chunk_ids=rows, block_ids=rows))
    HostMemoryTier.drain_jobs(tier)
    (result,) = tier.get_finished_jobs()
    return result


def assert_works(stub):
    """Run chunks through the tier, and have what vLLM asks of it."""
    (tier,) = stub.tiers
    stub.store("abcd")
    stub.store("efgh")
    assert stub.load("abcd") == "abcd"
    assert not stub.manager.has_pending_work()
    told = stub.metric("vllm:kv_offload_kvreg_used_chunks")
    assert list(told.values()) == [8]
    result = load_what_is_not_there(tier)
    assert (result.job_id, result.success) == (12345, False)
    assert result.successful_keys == keys_of("a")
    assert result.transfer_time > 0
    assert getattr(result, "transfer_bytes", CHUNK_BYTES) == CHUNK_BYTES
    stub.manager.reset_cache()
    assert HostMemoryTier.stats(tier).slots_used == 0


# -- What is added --------------------------------------------------------------------------


def with_fields(of, *, first=(), last=(), but=(), **options):
    """Return a dataclass like `of` with other fields, all of which may be left out."""
    fields = {name: dataclasses.field(default=None) for name in first}
    for field in dataclasses.fields(of):
        if field.init and field.name not in but:
            own = field.default_factory
            factory = (lambda: None) if own is dataclasses.MISSING else own
            fields[field.name] = dataclasses.field(default_factory=factory)
    fields.update({name: dataclasses.field(default=None) for name in last})
    fields = [(name, object, field) for name, field in fields.items()]
    return dataclasses.make_dataclass(of.__name__, fields, **options)


RESULTS = {
    "more fields": with_fields(tiering.JobResult, last=["retries", "checksum"]),
    "more fields before those known": with_fields(tiering.JobResult, first=["tier"]),
    "fields in another order": with_fields(
        tiering.JobResult, but=["job_id", "success"], last=["success", "job_id"]
    ),
    "fields given by name alone": with_fields(tiering.JobResult, kw_only=True),
    # vLLM's manager reads it from 0.31 on, so the class has it.
    "no field for the bytes": with_fields(
        tiering.JobResult, but=["transfer_bytes"], namespace={"transfer_bytes": CHUNK_BYTES}
    ),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_results_are_right_whatever_fields_they_have(patch, scheduler, kind):
    patch(tiering, "JobResult", RESULTS[kind])
    stub = scheduler()
    assert_works(stub)
    stub.store("a")
    assert type(load_what_is_not_there(stub.tiers[0])) is RESULTS[kind]


@pytest.mark.parametrize(
    "more", [["priority"], ["priority", "block_ids" if ROWS == "chunk_ids" else "row_ids"]]
)
def test_a_job_may_have_more_fields(patch, scheduler, more):
    job = with_fields(tiering.TransferJob, last=more)
    patch(tiering, "TransferJob", job)
    patch(manager, "TransferJob", job)
    assert_works(scheduler())


@pytest.mark.parametrize("place", ["first", "last"])
def test_an_event_may_have_more_fields(patch, scheduler, place):
    patch(base, "OffloadingEvent", with_fields(base.OffloadingEvent, **{place: ["step"]}))
    stub = scheduler(enable_kv_events=True, locality="REMOTE")
    stub.store("a")
    (event,) = stub.tiers[0].take_events()
    assert (event.keys, event.removed, event.step) == (keys_of("a"), False, None)
    assert (event.medium, event.locality) == (base.Medium.CPU, base.Locality.REMOTE)


def test_a_lookup_may_have_more_answers(patch, scheduler):
    names = ["HIT_ON_ANOTHER_NODE", *base.LookupResult.__members__, "NEVER"]
    patch(base, "LookupResult", enum.Enum("LookupResult", names))
    stub = scheduler()
    stub.submit_store("a", stub.new_request())
    HostMemoryTier.drain_jobs(stub.tiers[0])
    answers = [stub.tiers[0].lookup(key_of(letter), CONTEXT) for letter in "ax"]
    assert answers == [base.LookupResult.HIT, base.LookupResult.MISS]


class TierWithMore(VllmTier):
    """Of its names some are kvreg's for other things."""

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None):
        super().__init__(offloading_spec, primary_kv_view, tier_type)
        self._metrics = self._tier_label = self._keep_on_reset = "vLLM's"

    def stats(self, since=None):
        return "vLLM's stats"

    def reset(self):
        return "vLLM's reset"

    def prefetch(self, keys):
        return "vLLM's prefetch"

    @property
    def offloading_spec(self):
        return self._offloading_spec

    @property
    def locality(self):
        return base.Locality.REMOTE


def test_a_tier_may_have_more_methods_and_attributes(patch, scheduler):
    patch(tiering, "SecondaryTierManager", TierWithMore)
    stub = scheduler()
    (tier,) = stub.tiers
    assert_works(stub)
    assert (tier.offloading_spec, tier.locality) == (stub.spec, None)
    assert (tier.stats(), tier.reset()) == ("vLLM's stats", "vLLM's reset")
    assert tier.prefetch(()) == "vLLM's prefetch"
    assert {tier._metrics, tier._tier_label, tier._keep_on_reset} == {"vLLM's"}


class TierThatTakesMore(VllmTier):
    def __init__(
        self,
        offloading_spec,
        region=None,
        primary_kv_view=None,
        tier_type=None,
        backpressure_detector=None,
    ):
        super().__init__(offloading_spec, primary_kv_view, tier_type)
        self.region = region

    def lookup(self, key, req_context, deadline=None, *, hint="none"):
        pass

    def submit_load(self, job_metadata, *, expedited=False):
        pass

    def on_schedule_end(self, context, step=0):
        pass

    @classmethod
    def build_metric_definitions(cls, extra_config, prefix=""):
        return {}


def test_vllm_may_pass_more_to_a_tier_and_its_methods(patch, scheduler):
    patch(tiering, "SecondaryTierManager", TierThatTakesMore)
    stub = scheduler(region="the region")
    (tier,) = stub.tiers
    assert_works(stub)
    assert tier.region == "the region"
    stub.store("a")
    a = key_of("a")
    hit = base.LookupResult.HIT
    assert tier.lookup(a, CONTEXT, 1.5) is hit
    assert tier.lookup(a, req_context=CONTEXT, hint="soon") is hit
    tier.on_schedule_end(scheduler_stub.STEP_END, 3)
    assert type(tier).build_metric_definitions({}, prefix="a")
    job = {"job_id": 1, "keys": [a], "is_promotion": True, "req_context": CONTEXT}
    tier.submit_load(known(tiering.TransferJob, **job, **{ROWS: [0]}), expedited=True)
    HostMemoryTier.drain_jobs(tier)
    (result,) = tier.get_finished_jobs()
    assert result.success


class TierWithTouch(VllmTier):
    def touch(self, keys, req_context):
        pass


def test_the_use_of_chunks_may_be_told_by_touch(patch, scheduler):
    patch(tiering, "SecondaryTierManager", TierWithTouch)
    stub = scheduler(capacity=3 * CHUNK_BYTES)
    stub.store("ab")
    stub.store("c")
    stub.tiers[0].touch(keys_of("ab"), CONTEXT)
    stub.store("d")
    assert held(stub, "abcd") == "abd"


# -- What is gone, renamed, or demanded ------------------------------------------------------


def without(*names):
    """Return vLLM's class of tiers without some of its methods."""
    kept = {name: value for name, value in vars(VllmTier).items() if name not in names}
    for name in ("__dict__", "__weakref__", "_abc_impl"):
        kept.pop(name, None)
    return type(VllmTier)("SecondaryTierManager", VllmTier.__bases__, kept)


class TierThatForgets(VllmTier):
    @abstractmethod
    def forget(self, keys):
        pass


class TierThatResets(VllmTier):
    @abstractmethod
    def reset(self):
        pass


class TierOfARegion(VllmTier):
    def __init__(self, offloading_spec, primary_kv_view, tier_type, region):
        pass


class TierOfAView(VllmTier):
    def __init__(self, offloading_spec, kv_view, tier_type):
        pass


class TierWithADeadline(VllmTier):
    def lookup(self, key, req_context, *, deadline):
        pass


class TierTheOtherWayRound(VllmTier):
    def lookup(self, req_context, key):
        pass


class TierWithMoreBetween(VllmTier):
    def lookup(self, key, group=None, req_context=None):
        pass


class TierOfBatches(VllmTier):
    def submit_store(self, jobs):
        pass


class TierWithAnotherTouch(VllmTier):
    def touch(self, key):
        pass


class TierWithAProperty(VllmTier):
    has_pending_work = property(lambda self: False)


class ResultWithACause:
    def __init__(self, cause, job_id, success, successful_keys, **times_and_bytes):
        pass


def tier_is(of):
    return (tiering, "SecondaryTierManager", of)


def members(of, *names):
    return enum.Enum(of.__name__, names)


LACKING = {
    "a tier must define forget": tier_is(TierThatForgets),
    "a tier must define reset": tier_is(TierThatResets),
    "a tier: missing a required argument: 'region'": tier_is(TierOfARegion),
    "a tier: missing a required argument: 'kv_view'": tier_is(TierOfAView),
    "a tier's drain_jobs is not called": tier_is(without("drain_jobs")),
    "a tier's on_schedule_end is not called": tier_is(without("on_schedule_end")),
    "a tier's lookup is called with key, req_context, deadline": tier_is(TierWithADeadline),
    "a tier's lookup is called with req_context, key": tier_is(TierTheOtherWayRound),
    "a tier's lookup is called with key, group, req_context": tier_is(TierWithMoreBetween),
    "a tier's submit_store is called with jobs": tier_is(TierOfBatches),
    "a tier's touch is called with key": tier_is(TierWithAnotherTouch),
    "a tier's has_pending_work is a property": tier_is(TierWithAProperty),
    "a job has no keys": (
        tiering,
        "TransferJob",
        with_fields(tiering.TransferJob, but=["keys"], last=["names"]),
    ),
    "a job has no chunk_ids": (
        tiering,
        "TransferJob",
        with_fields(tiering.TransferJob, but=["chunk_ids", "block_ids"], last=["rows"]),
    ),
    "a job's result: got an unexpected keyword argument 'success'": (
        tiering,
        "JobResult",
        with_fields(tiering.JobResult, but=["success"], last=["status"]),
    ),
    "a job's result: missing a required argument: 'cause'": (
        tiering,
        "JobResult",
        ResultWithACause,
    ),
    "an event: got an unexpected keyword argument 'medium'": (
        base,
        "OffloadingEvent",
        with_fields(base.OffloadingEvent, but=["medium"]),
    ),
    "a request's context: missing a required argument: 'policy'": (
        base,
        "RequestOffloadingContext",
        dataclasses.make_dataclass("RequestOffloadingContext", ["policy"]),
    ),
    "LookupResult has no RETRY": (
        base,
        "LookupResult",
        members(base.LookupResult, "MISS", "HIT", "LATER"),
    ),
    "Medium has no CPU": (base, "Medium", members(base.Medium, "HOST", "STORAGE")),
    "5 is not a callable object": (tiering, "TransferJob", 5),
    "a tier type's registration: missing a required argument: 'loader'": (
        SecondaryTierFactory,
        "register_tier",
        lambda tier_type, loader: None,
    ),
}


@pytest.mark.parametrize("what", LACKING)
def test_a_vllm_that_the_tier_does_not_fit_goes_on_without_it(patch, caplog, what):
    patch(*LACKING[what])
    before = dict(SecondaryTierFactory._registry)
    plugin._register_tier()
    plugin._register_tier()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    said = "the tier type 'kvreg' is not available: this vLLM has another tier interface: "
    assert record.message.startswith(said)
    assert what in record.message
    assert "\n" not in record.message
    assert SecondaryTierFactory._registry == before


METRICS_LACKING = {
    "set_gauge: got an unexpected keyword argument 'gauge_value'": (
        metrics.OffloadingConnectorStats,
        "set_gauge",
        lambda self, gauge_name, labelvalues=(): None,
    ),
    "increase_counter: missing a required argument: 'unit'": (
        metrics.OffloadingConnectorStats,
        "increase_counter",
        lambda self, unit, counter_name, counter_increase_value, labelvalues: None,
    ),
    "a metric: missing a required argument: 'unit'": (
        base,
        "OffloadingGaugeMetadata",
        dataclasses.make_dataclass("OffloadingGaugeMetadata", ["unit"]),
    ),
}


@pytest.mark.parametrize("what", METRICS_LACKING)
def test_where_metrics_are_others_the_engine_is_told_when_it_asks_for_the_tier(patch, what):
    patch(*METRICS_LACKING[what])
    plugin._register_tier()
    with pytest.raises(ImportError, match=f"another tier interface: {what}"):
        SecondaryTierFactory.get_tier_class({"type": "kvreg"})


def test_an_import_that_fails_with_any_error_leaves_vllm_alone(patch, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("no such device")

    patch(SecondaryTierFactory, "register_tier", broken)
    monkeypatch.setattr("inspect.signature", broken)
    plugin._register_tier()
    (record,) = caplog.records
    assert record.message == "the tier type 'kvreg' is not available: no such device"


# -- What is told by a name that is not public, or may be missing ----------------------------


class ContextWithoutKeys(base.ReqContext):
    """Knows the place of each key that it is asked for, and does not list them."""

    def __init__(self, req_id):
        super().__init__(req_id)
        self._places = {}
        vars(self).pop("_offload_key_positions", None)

    def set_offload_key_position(self, key, end_token):
        self._places[key] = end_token

    def get_offload_key_position(self, key):
        return self._places.get(key)


def said_by_kvreg(caplog):
    return [record for record in caplog.records if record.name.startswith("kvreg")]


@pytest.fixture
def without_touch(monkeypatch):
    """A vLLM that does not tell the use of chunks by calls of `touch`."""
    monkeypatch.delattr(VllmTier, "touch", raising=False)


def test_where_a_request_s_keys_are_not_told_recency_is_by_stores_and_loads(
    without_touch, patch, scheduler, caplog
):
    patch(scheduler_stub, "ReqContext", ContextWithoutKeys)
    stub = scheduler(capacity=5 * CHUNK_BYTES)
    for letter in "abcde":
        stub.store(letter)
    assert stub.load("a") == "a"
    stub.store("f")
    assert held(stub, "abcdef") == "acdef"
    (record,) = said_by_kvreg(caplog)
    assert record.levelno == logging.WARNING
    assert "does not tell its tiers what a finished request used" in record.message


@pytest.mark.parametrize(
    "told",
    [None, keys_of("ab"), {"a": 1, "b": 2}, dict.fromkeys(keys_of("ab")), {1: 1}],
    ids=["nothing", "a list", "names", "no places", "numbers"],
)
def test_keys_told_in_another_way_are_not_taken_for_those_known(
    without_touch, patch, scheduler, caplog, told
):
    stub = scheduler(capacity=3 * CHUNK_BYTES)
    for letter in "abc":
        stub.store(letter)
    for _ in range(2):
        context = SimpleNamespace(req_id="r", _offload_key_positions=told)
        stub.tiers[0].on_request_finished(context)
    stub.store("d")
    assert held(stub, "abcd") == "bcd"
    assert caplog.text.count("does not tell its tiers") == 1


def test_where_uses_are_told_by_touch_nothing_is_warned_of(patch, scheduler, caplog):
    patch(tiering, "SecondaryTierManager", TierWithTouch)
    stub = scheduler()
    stub.tiers[0].on_request_finished(SimpleNamespace(req_id="r"))
    assert said_by_kvreg(caplog) == []


def test_where_the_place_of_a_tier_is_not_told_its_metrics_go_by_its_type(patch, scheduler):
    stub = scheduler()
    patch(stub.spec, "get_manager", lambda: SimpleNamespace(tiers=stub.tiers))
    told = stub.tiers[0].get_stats().data["data"]
    assert told["vllm:kv_offload_kvreg_capacity_chunks"] == {("kvreg",): 16}


def test_where_it_is_not_told_whether_events_are_published_none_are_kept(
    patch, scheduler, caplog
):
    stub = scheduler()
    spec = SimpleNamespace(get_manager=stub.spec.get_manager)
    view = np.zeros((2, 4), np.uint8).data
    tier = type(stub.tiers[0])(spec, view, "kvreg", capacity=8, enable_kv_events=True)
    assert "has enable_kv_events, but vLLM does not publish KV events" in caplog.text
    tier.shutdown()
