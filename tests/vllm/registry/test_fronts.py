"""The native lookups in place of the original ones: when they answer, how they look."""

import gc
import inspect
import logging
import pickle
import re
import sys
import threading
import unittest.mock
import weakref
from types import FunctionType, MethodType

import pytest

from kvreg.vllm import registry
from tests.vllm.registry.conftest import COPY

LOOKUPS = ("get_manager_class", "get_uniform_type_base_spec", "check_kv_cache_spec_registry")


class Spec:
    pass


class Manager:
    pass


class OtherManager:
    pass


def derived(levels, base=Spec):
    for _ in range(levels):
        base = type("Derived", (base,), {})
    return base


def calls_python(run):
    """Return whether Python code runs below a call."""
    frames = []
    sys.setprofile(lambda frame, event, _: frames.append(frame) if event == "call" else None)
    try:
        run()
    finally:
        sys.setprofile(None)
    return len(frames) > 1  # the first is that of `run` itself


@pytest.fixture
def module(load):
    module = load()
    registry.accelerate(module)
    module.KVCacheSpecRegistry.register(Spec, Manager)
    return module


@pytest.fixture
def accelerated(module):
    return module.KVCacheSpecRegistry


@pytest.mark.parametrize("levels", [0, 4])
def test_the_second_lookup_of_a_type_runs_no_python_code(accelerated, levels):
    spec = derived(levels)()
    layers = {str(i): spec for i in range(3)}
    assert calls_python(lambda: accelerated.get_manager_class(spec))
    assert not calls_python(lambda: accelerated.get_manager_class(spec))
    assert not calls_python(lambda: accelerated.get_uniform_type_base_spec(spec))
    assert not calls_python(lambda: accelerated.check_kv_cache_spec_registry(layers))
    assert accelerated.get_manager_class(spec) is Manager
    assert accelerated.get_uniform_type_base_spec(spec) is Spec


def test_that_nothing_is_registered_is_remembered_too(accelerated):
    assert accelerated.get_manager_class(3) is None
    assert not calls_python(lambda: accelerated.get_manager_class(3))
    with pytest.raises(ValueError, match=r"layer a|for a"):
        accelerated.check_kv_cache_spec_registry({"a": 3})


def test_it_is_fast_again_after_a_patch_is_undone(accelerated):
    spec = Spec()
    with unittest.mock.patch.object(accelerated, "get_manager_class", return_value="mock"):
        assert accelerated.get_manager_class(spec) == "mock"
    with unittest.mock.patch.object(accelerated, "_ensure_registered") as ensure:
        assert accelerated.get_manager_class(spec) is Manager
        assert accelerated.get_manager_class(spec) is Manager
        assert ensure.call_count == 2
    assert accelerated.get_manager_class(spec) is Manager
    assert not calls_python(lambda: accelerated.get_manager_class(spec))


def test_the_dicts_stay_those_that_others_imported(load):
    module = load()
    before = {name: value for name, value in vars(module).items() if name.startswith("_REG")}
    registry.accelerate(module)
    for name, value in before.items():
        assert getattr(module, name) is value


def test_to_accelerate_again_changes_nothing(module):
    before = dict(vars(module.KVCacheSpecRegistry))
    registry.accelerate(module)
    assert dict(vars(module.KVCacheSpecRegistry)) == before


def test_a_wrapper_is_not_lost_when_it_is_accelerated_again(module):
    wrapper = classmethod(lambda cls, spec: "wrapped")
    module.KVCacheSpecRegistry.get_manager_class = wrapper
    registry.accelerate(module)
    assert vars(module.KVCacheSpecRegistry)["get_manager_class"] is wrapper


@pytest.mark.parametrize("name", LOOKUPS)
def test_the_methods_look_like_the_original_ones(load, name):
    original, other = load(), load()
    registry.accelerate(other)
    method, expected = (getattr(each.KVCacheSpecRegistry, name) for each in (other, original))
    assert type(method) is MethodType
    assert method.__self__ is other.KVCacheSpecRegistry
    assert method == getattr(other.KVCacheSpecRegistry, name)
    assert inspect.signature(method) == inspect.signature(expected)
    assert inspect.getsource(method) == inspect.getsource(expected)
    assert method.__doc__ == expected.__doc__
    assert method.__qualname__ == expected.__qualname__
    assert isinstance(method.__func__, FunctionType)
    assert isinstance(vars(other.KVCacheSpecRegistry)[name], classmethod)
    assert vars(other.KVCacheSpecRegistry)[name].__func__ is method.__func__
    assert pickle.loads(pickle.dumps(method)) == method
    assert weakref.WeakMethod(method)() == method
    assert repr(method).split(" at ")[0] == repr(expected).split(" at ")[0]


def test_attributes_set_on_a_function_are_those_of_the_original(accelerated):
    accelerated.get_manager_class.__func__.note = "a note"
    assert accelerated.get_manager_class.note == "a note"
    with pytest.raises(AttributeError):
        accelerated.get_manager_class.__func__.absent  # noqa: B018


def test_a_function_binds_as_functions_do(accelerated):
    function = accelerated.get_manager_class.__func__
    other = type("Other", (), {"lookup": function})
    assert other.lookup is function
    assert other().lookup.__func__ is function


def test_super_in_a_subclass_gives_the_subclass(accelerated):
    seen = []

    class Sub(accelerated):
        @classmethod
        def _ensure_registered(cls, *args):
            seen.append(cls)

        @classmethod
        def get_manager_class(cls, spec):
            return super().get_manager_class(spec)

    assert [Sub.get_manager_class(Spec()) for _ in range(3)] == [Manager] * 3
    assert seen == [Sub] * 3


def test_no_class_is_kept_alive(accelerated):
    cls = derived(1)
    assert accelerated.get_manager_class(cls()) is Manager
    gone = weakref.ref(cls)
    del cls
    gc.collect()
    assert gone() is None


def test_a_registry_can_be_collected(load):
    module = load()
    registry.accelerate(module)
    module.KVCacheSpecRegistry.register(Spec, Manager)
    module.KVCacheSpecRegistry.get_manager_class(Spec())
    gone = weakref.ref(module.KVCacheSpecRegistry)
    del sys.modules[module.__name__], module
    gc.collect()
    assert gone() is None


def test_lookups_leak_nothing(accelerated):
    def count(levels):
        spec = derived(levels)()
        before = [sys.getrefcount(each) for each in (Manager, Spec, accelerated, None)]
        for _ in range(1000):
            accelerated.get_manager_class(spec)
            accelerated.get_uniform_type_base_spec(spec)
            accelerated.check_kv_cache_spec_registry({"a": spec})
            accelerated.get_manager_class(3)
        after = [sys.getrefcount(each) for each in (Manager, Spec, accelerated, None)]
        return [b - a for a, b in zip(before, after, strict=True)]

    count(1)
    assert all(abs(more) < 100 for more in count(1))


def test_threads_that_register_and_look_up_see_what_is_there(accelerated):
    classes = [derived(1) for _ in range(50)]
    done, wrong = threading.Event(), []

    def look_up():
        while not done.is_set():
            for cls in classes:
                answer = accelerated.get_manager_class(cls())
                if answer not in (Manager, OtherManager):
                    wrong.append(answer)

    threads = [threading.Thread(target=look_up) for _ in range(3)]
    for thread in threads:
        thread.start()
    for cls in classes:
        accelerated.register(cls, OtherManager)
        if accelerated.get_manager_class(cls()) is not OtherManager:
            wrong.append(cls)
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("name", [*LOOKUPS, "_ensure_registered"])
def test_the_code_that_a_method_had_is_kept_to_compare_with_and_goes_with_the_registry(
    load, name
):
    """Else another code that comes to its address would pass for it."""
    module = load()
    function = vars(module.KVCacheSpecRegistry)[name].__func__
    code = weakref.ref(function.__code__)
    registry.accelerate(module)
    function.__code__ = lookup_like.__code__
    gc.collect()
    assert code() is not None
    registry._accelerated.discard(module.KVCacheSpecRegistry)
    sys.modules.pop(module.__name__, None)
    del module, function
    gc.collect()
    assert code() is None


# --- registries that are not known ---


def lookup_like(cls, kvcache_spec):
    return None


def left_alone(module, message):
    before = dict(vars(module.KVCacheSpecRegistry))
    with pytest.raises(registry.UnknownRegistryError, match=message):
        registry.accelerate(module)
    assert dict(vars(module.KVCacheSpecRegistry)) == before


def fronted(module):
    methods = vars(module.KVCacheSpecRegistry)
    return {
        name for name in LOOKUPS if type(methods.get(name)) not in (classmethod, type(None))
    }


# The lookups that get no front where a function is not known: those that run it.
RUN_BY = {
    "_ensure_registered": set(LOOKUPS),
    "get_manager_class": {"get_manager_class", "check_kv_cache_spec_registry"},
    "get_uniform_type_base_spec": {
        "get_uniform_type_base_spec",
        "check_kv_cache_spec_registry",
    },
    "check_kv_cache_spec_registry": {"check_kv_cache_spec_registry"},
}
each_function = pytest.mark.parametrize("name", RUN_BY)


def accelerated_where_it_is_known(module, name, message):
    """Only the lookups that run the function are left alone."""
    if name == "_ensure_registered":
        left_alone(module, message)
    else:
        assert re.search(message, registry.accelerate(module))
    assert fronted(module) == set(LOOKUPS) - RUN_BY[name]
    for lookup in {"get_manager_class", "get_uniform_type_base_spec"} & fronted(module):
        method = getattr(module.KVCacheSpecRegistry, lookup)
        module.KVCacheSpecRegistry.register(Spec, Manager)
        assert method(Spec()) is (Manager if lookup == "get_manager_class" else Spec)
        assert not calls_python(lambda method=method: method(Spec()))


@each_function
def test_a_function_of_another_source_is_left_alone(load, monkeypatch, name):
    module = load()
    monkeypatch.setattr(registry, "_KNOWN", registry._KNOWN | {name: {"another digest"}})
    message = f"{name} has a source that kvreg does not know$"
    accelerated_where_it_is_known(module, name, message)


@each_function
def test_a_function_that_was_replaced_is_left_alone(load, name):
    module = load()
    setattr(module.KVCacheSpecRegistry, name, classmethod(lookup_like))
    accelerated_where_it_is_known(module, name, f"{name} was replaced$")


@each_function
def test_a_function_that_is_not_there_is_left_alone(load, name):
    module = load()
    delattr(module.KVCacheSpecRegistry, name)
    accelerated_where_it_is_known(module, name, f"{name} is not a classmethod of that class$")


@each_function
def test_a_function_whose_code_was_replaced_is_left_alone(load, name):
    module = load()
    getattr(module.KVCacheSpecRegistry, name).__func__.__code__ = lookup_like.__code__
    accelerated_where_it_is_known(module, name, f"{name} is not what its source says$")


def test_a_function_with_other_defaults_is_left_alone(load):
    module, name = load(), "get_uniform_type_base_spec"
    getattr(module.KVCacheSpecRegistry, name).__func__.__defaults__ = (3,)
    accelerated_where_it_is_known(module, name, f"{name} is not what its source says$")


def test_a_registry_without_its_source_is_left_alone(load, tmp_path):
    module = load()
    module.__file__ = str(tmp_path / "absent.py")
    module.__loader__ = module.__spec__ = None
    left_alone(module, "the source of .* cannot be read")


@pytest.mark.parametrize("name", ["KVCacheSpecRegistry", "KVCacheSpecMetadata"])
def test_a_module_without_a_plain_class_is_left_alone(load, name):
    module = load()
    meta = type("Meta", (type,), {})
    setattr(module, name, meta(name, (), {}))
    left_alone(module, f"no plain class {name}")


def test_the_docstring_and_annotations_of_a_method_do_not_matter():
    def parsed(text):
        return registry.ast.parse(text).body[0]

    bare = parsed("def f(x):\n return x")
    assert registry.digest(parsed("def f(x: int) -> int:\n '''Text.'''\n return x")) == (
        registry.digest(bare)
    )
    assert registry.digest(parsed("def f(x):\n return -x")) != registry.digest(bare)


# --- versions to come ---


def with_parameter(name):
    """Give a method one more parameter, with a default."""
    return lambda text: re.sub(
        rf"(def {name}\(\s*cls\b[^)]*?),?(\s*\))", r"\1, tenant=None\2", text
    )


ADDITIONS = {
    "classmethod": lambda text: text.replace(
        "    @classmethod\n    def register(",
        "    @classmethod\n    def all_specs(cls):\n        return 3\n\n"
        "    @classmethod\n    def register(",
    ),
    "field of the metadata": lambda text: re.sub(
        r"(?m)^(    uniform_type_base_spec: type.*\n)(?=\n\n_REG)",
        r"\1    tenant: str = 'default'\n",
        text,
    ),
    "parameter of register": with_parameter("register"),
    "module global": lambda text: text + "\n_REGISTRY_TENANTS = {}\n",
}


@pytest.mark.parametrize("what", ADDITIONS)
def test_what_a_version_adds_beside_the_lookups_disables_none(load, what):
    module = load(ADDITIONS[what])
    assert registry.accelerate(module) == ""
    assert fronted(module) == set(LOOKUPS)
    spec = Spec()
    module.KVCacheSpecRegistry.register(Spec, Manager)
    assert [module.KVCacheSpecRegistry.get_manager_class(spec) for _ in range(2)] == [
        Manager
    ] * 2
    assert not calls_python(lambda: module.KVCacheSpecRegistry.get_manager_class(spec))


@each_function
def test_a_version_with_one_more_parameter_of_a_function_runs_its_own(load, name):
    module = load(with_parameter(name))
    message = f"{name} has a source that kvreg does not know$"
    accelerated_where_it_is_known(module, name, message)
    if name != "_ensure_registered":
        assert (
            "tenant" in inspect.signature(getattr(module.KVCacheSpecRegistry, name)).parameters
        )


RENAMED = {
    "_REGISTRY_KVCACHESPEC_LIST": "_ensure_registered has a source that kvreg does not know",
    "KVCacheSpecMetadata": "has no plain class KVCacheSpecMetadata",
}


@pytest.mark.parametrize("name", RENAMED)
def test_a_version_with_another_name_is_left_alone_and_answers(load, name):
    module = load(lambda text: text.replace(name, "Renamed"))
    left_alone(module, RENAMED[name])
    module.KVCacheSpecRegistry.register(Spec, Manager)
    assert module.KVCacheSpecRegistry.get_manager_class(Spec()) is Manager


def test_a_version_without_the_class_is_left_alone(load):
    module = load(lambda text: text.replace("KVCacheSpecRegistry", "Renamed"))
    with pytest.raises(registry.UnknownRegistryError, match="no plain class KVCacheSpecReg"):
        registry.accelerate(module)


@pytest.mark.parametrize("what", ["known", "known in part", "not known"])
def test_installing_it_says_once_what_is_not_known(
    load, monkeypatch, new_process, caplog, what
):
    caplog.set_level(logging.DEBUG)
    edit = {
        "known": None,
        "known in part": with_parameter("get_manager_class"),
        "not known": with_parameter("_ensure_registered"),
    }[what]
    module = load(edit)
    monkeypatch.setattr(registry, "_MODULE", COPY)
    registry.install()
    registry.install()
    said = [(record.levelno, record.message) for record in caplog.records]
    text = f"vLLM's KV-cache spec registry is {{}}: {module.KVCacheSpecRegistry.__name__}."
    text += "{} has a source that kvreg does not know"
    assert (
        said
        == {
            "known": [],
            "known in part": [
                (logging.WARNING, text.format("accelerated in part only", "get_manager_class"))
            ],
            "not known": [
                (logging.WARNING, text.format("not accelerated", "_ensure_registered"))
            ],
        }[what]
    )


def test_a_module_that_fails_at_import_is_left_to_the_engine(
    tmp_path, monkeypatch, new_process, caplog
):
    (tmp_path / "failing_registry.py").write_text("raise RuntimeError('has moved')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_MODULE", "failing_registry")
    registry.install()
    registry.install()
    (record,) = caplog.records
    assert record.message.endswith("is not accelerated: RuntimeError('has moved')")
