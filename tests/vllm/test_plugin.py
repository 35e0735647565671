"""The plugin inside a real vLLM."""

import logging
import subprocess
import sys
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

from kvreg.vllm import HostMemoryTierManager, plugin


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
