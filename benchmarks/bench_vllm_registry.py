"""vLLM's own spec registry, accelerated, beside the original.

Run by ``pytest benchmarks/bench_vllm_registry.py`` where vLLM is installed, 0.28 to 0.34. Two
copies of vLLM's module are loaded from its source, and one is accelerated.
"""

from __future__ import annotations

import importlib.util
import sys
import timeit

import pytest
import vllm.v1.kv_cache_spec_registry as vllm_registry
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, MLAAttentionSpec

from kvreg.vllm import registry

NUMBER = 2_000  # calls a round


def derived(levels):
    cls = FullAttentionSpec
    for _ in range(levels):
        cls = type("Derived", (cls,), {})
    return cls


def new_copy(name):
    module_spec = importlib.util.spec_from_file_location(name, vllm_registry.__file__)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    module_spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def copies():
    accelerated, original = new_copy("accelerated_registry"), new_copy("original_registry")
    registry.accelerate(accelerated)
    vllm_registry.KVCacheSpecRegistry._ensure_registered()
    built_in = vllm_registry._REGISTRY_KVCACHESPEC_LIST.values()
    for copy in (accelerated, original):
        for entry in built_in:
            copy.KVCacheSpecRegistry.register(
                entry.kvcache_spec_cls, entry.manager_class, entry.uniform_type_base_spec
            )
    return accelerated.KVCacheSpecRegistry, original.KVCacheSpecRegistry


@pytest.fixture
def compare(copies, side_by_side):
    """Return a function that times a statement on the two, in turn."""
    accelerated, original = copies

    def compare(what, statement, *, number=NUMBER, **names):
        def timed(copy):
            return timeit.Timer(statement, globals={"registry": copy, **names}).timeit

        run, run_baseline = timed(accelerated), timed(original)
        side_by_side(
            what,
            lambda: run(number),
            "vLLM's registry",
            lambda: run_baseline(number),
            per=number,
        )

    return compare


@pytest.mark.parametrize("levels", [0, 4])
@pytest.mark.parametrize("name", ["get_manager_class", "get_uniform_type_base_spec"])
def test_lookup(compare, name, levels):
    where = "exact type" if levels == 0 else f"{levels} classes below"
    spec = object.__new__(derived(levels))
    compare(f"{name}, {where}", f"registry.{name}(spec)", spec=spec)


def test_lookup_of_an_unregistered_type(compare):
    spec = object.__new__(KVCacheSpec)
    compare(
        "get_manager_class, unregistered type", "registry.get_manager_class(spec)", spec=spec
    )


def test_check_of_80_layers(compare):
    types = [FullAttentionSpec, MLAAttentionSpec, derived(1), derived(4)]
    layers = {f"model.layers.{i}.self_attn": object.__new__(types[i % 4]) for i in range(80)}
    compare(
        "check_kv_cache_spec_registry, 80 layers",
        "registry.check_kv_cache_spec_registry(layers)",
        number=20,
        layers=layers,
    )


def test_registration(compare):
    """The same again, as vLLM's decorators do in each process that imports them."""
    compare(
        "register",
        "registry.register(spec_class, manager, spec_class)",
        spec_class=FullAttentionSpec,
        manager=FullAttentionManager,
    )


def test_registration_between_lookups(compare):
    """Each lookup comes after a change, so nothing that is remembered can answer."""
    compare(
        "register, then get_manager_class",
        "registry.register(spec_class, manager, spec_class); registry.get_manager_class(spec)",
        spec_class=FullAttentionSpec,
        manager=FullAttentionManager,
        spec=object.__new__(FullAttentionSpec),
    )
