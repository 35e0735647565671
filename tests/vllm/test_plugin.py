"""The plugin inside a real vLLM."""

import dataclasses
import logging
import subprocess
import sys
from abc import abstractmethod
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest
from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.tiering import base as tiering
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

from kvreg.vllm import HostMemoryTierManager, interface, plugin


@pytest.fixture
def unregistered(monkeypatch):
    """A process whose vLLM does not know the tier yet."""
    monkeypatch.setattr(SecondaryTierFactory, "_registry", dict(SecondaryTierFactory._registry))
    SecondaryTierFactory._registry.pop("kvreg", None)
    plugin._register_tier.cache_clear()
    yield
    plugin._register_tier.cache_clear()


def test_vllm_finds_it_by_its_entry_point():
    (found,) = (
        entry for entry in entry_points(group="vllm.general_plugins") if entry.name == "kvreg"
    )
    assert found.load() is plugin.register


def test_it_registers_the_tier_once_and_says_nothing(unregistered, caplog):
    caplog.set_level(logging.DEBUG)
    plugin._register_tier()
    plugin._register_tier()
    assert SecondaryTierFactory.get_tier_class({"type": "kvreg"}) is HostMemoryTierManager
    assert caplog.records == []


def test_registering_imports_little_of_vllm_and_does_not_touch_the_gpu(tmp_path):
    code = """if True:
        import sys
        import vllm
        from kvreg.vllm import plugin

        plugin._register_tier()
        import torch

        print(torch.cuda.is_initialized(), "vllm.config" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "False False"


def test_the_class_can_be_named_by_its_module_without_the_plugin(unregistered):
    tier = {"type": "HostMemoryTierManager", "module_path": "kvreg.vllm"}
    assert SecondaryTierFactory.get_tier_class(tier) is HostMemoryTierManager


def fields_but(of, *left_out, more=()):
    """Return a dataclass like `of` with other fields."""
    names = [f.name for f in dataclasses.fields(of) if f.name not in left_out]
    return dataclasses.make_dataclass(of.__name__, [*names, *more])


class AnotherTier(tiering.SecondaryTierManager):
    def __init__(self, offloading_spec, tier_type):
        pass


class DemandingTier(tiering.SecondaryTierManager):
    @abstractmethod
    def forget(self):
        pass


STRANGE = {
    "a tier is made of": (tiering, "SecondaryTierManager", AnotherTier),
    "a tier must define forget": (tiering, "SecondaryTierManager", DemandingTier),
    "a job has": (
        tiering,
        "TransferJob",
        fields_but(tiering.TransferJob, "chunk_ids", "block_ids", more=["rows"]),
    ),
    "a job's result has": (tiering, "JobResult", fields_but(tiering.JobResult, "success")),
    "an event has": (base, "OffloadingEvent", fields_but(base.OffloadingEvent, "medium")),
    "a lookup answers": (base, "LookupResult", base.OffloadPolicy),
    "there is no medium CPU": (base, "Medium", base.OffloadPolicy),
    "5 is not a callable object": (tiering, "TransferJob", 5),
    "a tier type is registered with": (
        interface.SecondaryTierFactory,
        "register_tier",
        lambda name, loader: None,
    ),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_vllm_with_another_interface_is_left_alone(unregistered, monkeypatch, caplog, what):
    monkeypatch.setattr(*STRANGE[what])
    before = dict(SecondaryTierFactory._registry)
    plugin._register_tier()
    plugin._register_tier()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "'kvreg' is not available: this vLLM has another tier interface" in record.message
    assert what in record.message
    assert SecondaryTierFactory._registry == before


@pytest.fixture
def installations(monkeypatch):
    """The calls that would make the registry faster."""
    calls = []
    registry = SimpleNamespace(install=lambda: calls.append("install"))
    monkeypatch.setitem(sys.modules, "kvreg.vllm.registry", registry)
    monkeypatch.delenv("KVREG_VLLM_REGISTRY", raising=False)
    plugin._accelerate_registry.cache_clear()
    yield calls
    plugin._accelerate_registry.cache_clear()


def test_it_makes_the_registry_faster_once(installations):
    plugin.register()
    plugin.register()
    assert installations == ["install"]


def test_the_registry_stays_as_it_is_where_the_variable_says_so(installations, monkeypatch):
    monkeypatch.setenv("KVREG_VLLM_REGISTRY", "0")
    plugin.register()
    assert installations == []
    assert SecondaryTierFactory.get_tier_class({"type": "kvreg"}) is HostMemoryTierManager


def test_a_type_of_that_name_that_is_there_already_stays(unregistered, caplog):
    SecondaryTierFactory.register_tier("kvreg", "elsewhere", "Tier")
    before = dict(SecondaryTierFactory._registry)
    plugin._register_tier()
    assert SecondaryTierFactory._registry == before
    assert "already registered" in caplog.text
