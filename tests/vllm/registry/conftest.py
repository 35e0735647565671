"""Copies of a registry's module: vLLM's, where there is one, and that of the stand-in.

What such a module imports of vLLM are fakes here, so the file alone is needed, not vLLM.
"""

import ast
import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvreg.vllm import registry

COPY = "copy_of_registry"
STAND_IN = Path(__file__).with_name("registry_stand_in.py")


def source_files():
    found = importlib.util.find_spec("vllm")
    if found is not None:
        folder = Path(found.submodule_search_locations[0])
        yield folder / "v1" / "kv_cache_spec_registry.py"
    yield STAND_IN


def digests_of(file):
    (defined,) = (
        node
        for node in ast.parse(file.read_text()).body
        if getattr(node, "name", None) == "KVCacheSpecRegistry"
    )
    methods = {node.name: node for node in defined.body if isinstance(node, ast.FunctionDef)}
    return {name: {registry.digest(methods[name])} for name in registry._KNOWN}


@pytest.fixture
def builtin_specs(monkeypatch):
    """Return the fake of the module that has ``register_all_kvcache_specs``."""
    fakes = {}
    for name in (
        "vllm",
        "vllm.config",
        "vllm.logger",
        "vllm.v1",
        "vllm.v1.core",
        "vllm.v1.core.single_type_kv_cache_manager",
    ):
        fakes[name] = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, fakes[name])
        package, _, last = name.rpartition(".")
        if package:
            setattr(fakes[package], last, fakes[name])
    fakes["vllm.logger"].init_logger = logging.getLogger
    fakes["vllm.config"].get_current_vllm_config_or_none = lambda: "the configuration"
    module = fakes["vllm.v1.core.single_type_kv_cache_manager"]
    module.register_all_kvcache_specs = lambda config: None
    return module


@pytest.fixture(params=source_files(), ids=lambda file: file.stem)
def load(request, monkeypatch, builtin_specs, tmp_path):
    """Return a function that loads a new copy of the registry's module, its source edited."""
    original = request.param
    if original == STAND_IN:
        monkeypatch.setattr(registry, "_KNOWN", digests_of(original))

    def load(edit=None):
        file = original
        if edit is not None:
            file = tmp_path / original.name
            text = edit(original.read_text())
            assert text != original.read_text()
            file.write_text(text)
        # They have the same name, as it is in messages.
        spec = importlib.util.spec_from_file_location(COPY, file)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, COPY, module)
        spec.loader.exec_module(module)
        return module

    return load
