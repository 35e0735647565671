"""The registry acceleration in a real vLLM."""

import logging
import os
import subprocess
import sys
import textwrap

from kvreg.vllm import registry


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=os.environ | {"VLLM_CONFIGURE_LOGGING": "0"},  # it would log to stdout
        cwd=os.sep,  # not beside this folder's parent, which is imported as vllm from there
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_managers_and_bases_of_all_of_vllm_s_specs_are_as_without_it():
    """The first lookup bootstraps the registry, after it is accelerated as without."""
    script = """
        import kvreg.vllm.registry
        import vllm.v1.kv_cache_interface as interface
        from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry as registry
        from vllm.v1.kv_cache_spec_registry import _REGISTRY_KVCACHESPEC_LIST as registered

        if {accelerate}:
            kvreg.vllm.registry.install()
            kvreg.vllm.registry.install()
        fronted = type(vars(registry)["get_manager_class"]) is not classmethod
        assert fronted == {accelerate}
        assert not registered
        classes = [
            value
            for value in vars(interface).values()
            if isinstance(value, type) and issubclass(value, interface.KVCacheSpec)
        ]
        for cls in sorted(classes, key=lambda cls: cls.__name__):
            spec = object.__new__(cls)
            for _ in range(2):
                print(cls, registry.get_manager_class(spec))
                print(cls, registry.get_uniform_type_base_spec(spec))
        print(list(registered.items()))
    """
    accelerated = run_python(script.format(accelerate=True))
    assert "FullAttentionManager" in accelerated
    assert accelerated == run_python(script.format(accelerate=False))


def test_importing_it_imports_neither_vllm_nor_torch():
    code = (
        "import sys, kvreg.vllm.registry; print(sorted({'vllm', 'torch'} & set(sys.modules)))"
    )
    assert run_python(code) == "[]\n"


def test_a_vllm_with_another_registry_is_left_alone_and_that_is_said_once(
    new_process, monkeypatch, caplog
):
    from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

    monkeypatch.setattr(registry, "_KNOWN", registry._KNOWN | {"get_manager_class": {"other"}})
    monkeypatch.setattr(
        KVCacheSpecRegistry, "_ensure_registered", classmethod(lambda cls, config=None: None)
    )
    before = dict(vars(KVCacheSpecRegistry))
    registry.install()
    registry.install()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        "registry is not accelerated: KVCacheSpecRegistry._ensure_registered" in record.message
    )
    assert dict(vars(KVCacheSpecRegistry)) == before


def test_a_vllm_without_the_module_is_left_alone(new_process, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "vllm.v1.kv_cache_spec_registry", None)
    registry.install()
    (record,) = caplog.records
    assert "is not accelerated: " in record.message
