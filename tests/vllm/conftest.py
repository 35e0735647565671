"""Tests of kvreg inside vLLM: only where there is a vLLM.

`test_without_vllm.py` needs none.
"""

import importlib.util
import os

import pytest

from kvreg.vllm import plugin, registry

# Before torch is imported. OpenMP's threads spin while they wait for one another, which
# takes long where one of them gets no CPU.
os.environ.update(OMP_NUM_THREADS="1", VLLM_CPU_OMP_THREADS_BIND="nobind")

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["engine", "test_[!w]*.py"]


@pytest.fixture(scope="session")
def kvreg_tier_type():
    """Let vLLM know the tier type "kvreg", as the plugin does."""
    plugin._register_tier()


@pytest.fixture
def unregistered(monkeypatch):
    """A process whose vLLM does not know the tier yet."""
    from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

    monkeypatch.setattr(SecondaryTierFactory, "_registry", dict(SecondaryTierFactory._registry))
    SecondaryTierFactory._registry.pop("kvreg", None)
    plugin._register_tier.cache_clear()
    yield
    plugin._register_tier.cache_clear()


@pytest.fixture
def new_process(monkeypatch):
    """What `registry.install` remembers, as in a process in which it has not run."""
    monkeypatch.setattr(registry, "_accelerated", type(registry._accelerated)())
    monkeypatch.setattr(registry, "_warnings", set())
