"""KVCacheSpecRegistry: registration, roles, lookups, and errors that -O does not remove."""

import abc
import dataclasses
import inspect
import pickle
import subprocess
import sys
import textwrap

import pytest

import kvreg
from kvreg import (
    KVCacheSpecMetadata,
    KVCacheSpecRegistry,
    RegistrationError,
    register_kv_cache_spec,
)


class Manager:
    pass


class OtherManager:
    pass


@pytest.fixture
def specs():
    """Return three classes nobody else has registered, each derived from the one before."""
    base = type("BaseSpec", (), {})
    middle = type("MiddleSpec", (base,), {})
    return base, middle, type("LeafSpec", (middle,), {})


def test_the_nearest_registered_class_of_the_mro_answers(specs):
    base, middle, leaf = specs
    KVCacheSpecRegistry.register(base, Manager)
    assert KVCacheSpecRegistry.get_manager_class(leaf()) is Manager
    assert KVCacheSpecRegistry.get_uniform_type_base_spec(leaf()) is base
    KVCacheSpecRegistry.register(middle, OtherManager, base)
    assert KVCacheSpecRegistry.get_manager_class(leaf()) is OtherManager
    assert KVCacheSpecRegistry.get_uniform_type_base_spec(leaf()) is base
    assert KVCacheSpecRegistry.get_manager_class(base()) is Manager


def test_an_unregistered_spec_has_neither_manager_nor_base(specs):
    assert KVCacheSpecRegistry.get_manager_class(specs[0]()) is None
    assert KVCacheSpecRegistry.get_manager_class(None) is None
    assert KVCacheSpecRegistry.get_uniform_type_base_spec(specs[0]()) is None


def test_arguments_may_be_named_as_upstream_names_them(specs):
    KVCacheSpecRegistry.register(
        kvcache_spec_cls=specs[0], manager_class=Manager, uniform_type_base_spec=specs[0]
    )
    KVCacheSpecRegistry.register_role_manager(role="named", manager_class=OtherManager)
    spec = specs[1]()
    lookup = KVCacheSpecRegistry.get_manager_class
    assert lookup(kvcache_spec=spec) is Manager
    assert lookup(spec, role=None) is lookup(kvcache_spec=spec, role="unknown") is Manager
    assert lookup(kvcache_spec=spec, role="named") is lookup(spec, "named") is OtherManager
    assert KVCacheSpecRegistry.get_uniform_type_base_spec(kvcache_spec=spec) is specs[0]
    KVCacheSpecRegistry.check_kv_cache_spec_registry(kv_cache_spec={"layer": spec})


@pytest.mark.parametrize("call", [(), (1, 2, 3)], ids=["none", "three"])
def test_a_lookup_with_a_wrong_number_of_arguments_is_a_type_error(call):
    with pytest.raises(TypeError, match="get_manager_class"):
        KVCacheSpecRegistry.get_manager_class(*call)
    with pytest.raises(TypeError, match="get_manager_class"):
        KVCacheSpecRegistry.get_manager_class(1, roll="typo")


def test_the_same_registration_again_does_nothing(specs):
    base, middle, _ = specs
    KVCacheSpecRegistry.register(middle, Manager, base)
    KVCacheSpecRegistry.register(middle, Manager, base)
    assert KVCacheSpecRegistry.get_manager_class(middle()) is Manager


def test_another_registration_of_a_class_is_refused_and_changes_nothing(specs):
    base, middle, _ = specs
    KVCacheSpecRegistry.register(middle, Manager, base)
    for manager, uniform in ((OtherManager, base), (Manager, middle), (Manager, None)):
        with pytest.raises(RegistrationError, match="conflicting") as error:
            KVCacheSpecRegistry.register(middle, manager, uniform)
        for cls in (middle, manager, base):
            assert cls.__name__ in str(error.value)
    assert KVCacheSpecRegistry.get_manager_class(middle()) is Manager
    assert KVCacheSpecRegistry.get_uniform_type_base_spec(middle()) is base


def test_managers_are_compared_by_identity(specs):
    class EqualMeta(type):
        def __eq__(cls, other):
            return True

        __hash__ = type.__hash__

    first, second = EqualMeta("First", (), {}), EqualMeta("Second", (), {})
    KVCacheSpecRegistry.register(specs[0], first)
    with pytest.raises(RegistrationError, match=r"First.*Second"):
        KVCacheSpecRegistry.register(specs[0], second)


def test_classes_may_have_any_metaclass():
    class Spec(abc.ABC):  # noqa: B024 - what matters is its metaclass
        pass

    class AbstractManager(abc.ABC):
        @abc.abstractmethod
        def manage(self): ...

    KVCacheSpecRegistry.register(Spec, AbstractManager, Spec)
    assert KVCacheSpecRegistry.get_manager_class(Spec()) is AbstractManager


def test_a_registration_needs_a_manager(specs):
    with pytest.raises(RegistrationError, match=r"BaseSpec.*manager_class"):
        KVCacheSpecRegistry.register(specs[0])
    assert KVCacheSpecRegistry.get_manager_class(specs[0]()) is None


def test_the_uniform_base_must_be_a_base(specs):
    class Interface:
        pass

    for wrong in (Interface, specs[2]):
        with pytest.raises(RegistrationError, match=f"MiddleSpec.*{wrong.__name__}"):
            KVCacheSpecRegistry.register(specs[1], Manager, wrong)
    assert KVCacheSpecRegistry.get_manager_class(specs[1]()) is None


@pytest.mark.parametrize("position", [0, 1, 2])
def test_what_is_not_a_class_is_refused_by_name(specs, position):
    arguments = [specs[0], Manager, specs[0]]
    arguments[position] = "not a class"
    with pytest.raises(TypeError, match="must be a class, not 'not a class'"):
        KVCacheSpecRegistry.register(*arguments)
    assert KVCacheSpecRegistry.get_manager_class(specs[0]()) is None


def test_the_decorator_registers_and_returns_the_class():
    @register_kv_cache_spec(manager_class=Manager)
    class BaseSpec:
        pass

    @register_kv_cache_spec(OtherManager, uniform_type_base_spec=BaseSpec)
    class DerivedSpec(BaseSpec):
        pass

    assert KVCacheSpecRegistry.get_manager_class(BaseSpec()) is Manager
    assert KVCacheSpecRegistry.get_manager_class(DerivedSpec()) is OtherManager
    assert KVCacheSpecRegistry.get_uniform_type_base_spec(DerivedSpec()) is BaseSpec
    with pytest.raises(RegistrationError, match="manager_class"):
        register_kv_cache_spec()(type("UnmanagedSpec", (), {}))


# --- roles


def test_a_manager_registered_for_the_role_takes_precedence(specs):
    KVCacheSpecRegistry.register(specs[0], Manager)
    KVCacheSpecRegistry.register_role_manager("precedence", OtherManager)
    spec = specs[1]()
    assert KVCacheSpecRegistry.get_manager_class(spec, "precedence") is OtherManager
    assert KVCacheSpecRegistry.get_manager_class(object(), "precedence") is OtherManager
    assert KVCacheSpecRegistry.get_manager_class(spec, "unknown role") is Manager
    assert KVCacheSpecRegistry.get_manager_class(spec) is Manager
    assert KVCacheSpecRegistry.get_uniform_type_base_spec(spec) is specs[0]


def test_another_manager_for_a_role_is_refused_and_changes_nothing():
    KVCacheSpecRegistry.register_role_manager("contested", Manager)
    KVCacheSpecRegistry.register_role_manager("contested", Manager)
    with pytest.raises(RegistrationError, match=r"contested.*\bManager.*OtherManager"):
        KVCacheSpecRegistry.register_role_manager("contested", OtherManager)
    assert KVCacheSpecRegistry.get_manager_class(object(), "contested") is Manager


def test_a_role_is_a_string_and_its_manager_a_class():
    with pytest.raises(TypeError, match="role must be a string, not 3"):
        KVCacheSpecRegistry.register_role_manager(3, Manager)
    with pytest.raises(TypeError, match="manager_class must be a class, not None"):
        KVCacheSpecRegistry.register_role_manager("unmanaged", None)
    assert KVCacheSpecRegistry.get_manager_class(object(), "unmanaged") is None


# --- the check of a model's layers


def test_the_check_names_the_layer_the_type_and_the_decorator(specs):
    KVCacheSpecRegistry.register(specs[0], Manager)
    layers = {f"layer.{i}": specs[i % 3]() for i in range(80)}
    assert KVCacheSpecRegistry.check_kv_cache_spec_registry(layers) is None
    layers["layer.40"] = 1.5
    with pytest.raises(ValueError, match=r"'layer\.40'.*float.*@register_kv_cache_spec"):
        KVCacheSpecRegistry.check_kv_cache_spec_registry(layers)
    KVCacheSpecRegistry.check_kv_cache_spec_registry({})


# --- the classes themselves


def test_metadata_is_a_frozen_dataclass(specs):
    metadata = KVCacheSpecMetadata(specs[1], Manager, uniform_type_base_spec=specs[0])
    names = [field.name for field in dataclasses.fields(metadata)]
    assert names == ["kvcache_spec_cls", "manager_class", "uniform_type_base_spec"]
    assert [getattr(metadata, name) for name in names] == [specs[1], Manager, specs[0]]
    same = KVCacheSpecMetadata(specs[1], Manager, specs[0])
    assert metadata == same
    assert hash(metadata) == hash(same)
    assert metadata != dataclasses.replace(metadata, manager_class=OtherManager)
    assert "OtherManager" not in repr(metadata)
    assert "Manager" in repr(metadata)
    for name in names:
        with pytest.raises(AttributeError):
            setattr(metadata, name, Manager)
    picklable = KVCacheSpecMetadata(int, Manager, int)
    assert pickle.loads(pickle.dumps(picklable)) == picklable


def test_the_error_is_caught_by_code_written_against_either_kind():
    assert issubclass(RegistrationError, ValueError)
    assert issubclass(RegistrationError, AssertionError)


def test_the_registry_is_a_plain_class_of_plain_functions():
    assert type(KVCacheSpecRegistry) is type
    for name, attribute in vars(KVCacheSpecRegistry).items():
        if not name.startswith("_"):
            assert getattr(KVCacheSpecRegistry, name) is attribute
            assert attribute.__name__ == name
            assert attribute.__doc__
    assert str(inspect.signature(KVCacheSpecRegistry.get_manager_class)) == (
        "(kvcache_spec, role=None)"
    )


def test_errors_do_not_depend_on_assert_statements():
    script = """
        from kvreg import KVCacheSpecRegistry, RegistrationError
        assert False, "this is not python -O"
        class Spec: pass
        class Manager: pass
        register = KVCacheSpecRegistry.register
        register(Spec, Manager)
        KVCacheSpecRegistry.register_role_manager("role", Manager)
        for wrong in (
            lambda: register(Spec, Spec),
            lambda: register(Manager),
            lambda: register(Spec, Manager, int),
            lambda: KVCacheSpecRegistry.register_role_manager("role", Spec),
        ):
            try:
                wrong()
            except RegistrationError as error:
                print(error)
            else:
                raise SystemExit("no error")
    """
    run = subprocess.run(
        [sys.executable, "-O", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(run.stdout.splitlines()) == 4


def test_everything_public_is_exported_at_the_top():
    for name in kvreg.specs.__all__:
        assert getattr(kvreg, name) is getattr(kvreg.specs, name)
        assert name in kvreg.__all__
