"""What the registry and the maps hold, what they let go, and what they never touch again."""

import collections
import gc
import itertools
import sys
import weakref

import pytest

from kvreg import KVCacheSpecMetadata, KVCacheSpecRegistry, TypeMap

LOOKUPS = 10_000_000


def call_many_times(function, argument):
    collections.deque(map(function, itertools.repeat(argument, LOOKUPS)), maxlen=0)


@pytest.mark.parametrize("registered", [True, False], ids=["hit", "miss"])
@pytest.mark.parametrize(
    "lookup", ["registry", "uniform base", "TypeMap.lookup", "TypeMap.lookup_type"]
)
def test_ten_million_lookups_leak_no_reference(lookup, registered):
    class Spec:
        pass

    class Derived(Spec):
        pass

    class Manager:
        pass

    types = TypeMap()
    spec = Derived()
    if registered:
        types[Spec] = Manager
        KVCacheSpecRegistry.register(Spec, Manager)
    function, argument, answer = {
        "registry": (KVCacheSpecRegistry.get_manager_class, spec, Manager),
        "uniform base": (KVCacheSpecRegistry.get_uniform_type_base_spec, spec, Spec),
        "TypeMap.lookup": (types.lookup, spec, Manager),
        "TypeMap.lookup_type": (types.lookup_type, Derived, Manager),
    }[lookup]
    assert function(argument) is (answer if registered else None)
    counted = [spec, Spec, Derived, Manager, types, None]
    call_many_times(function, argument)  # whatever the interpreter itself allocates, it has now
    gc.collect()
    before = [sys.getrefcount(each) for each in counted]
    blocks = sys.getallocatedblocks()
    call_many_times(function, argument)
    gc.collect()
    after = [sys.getrefcount(each) for each in counted]
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 100
    assert sys.getallocatedblocks() - blocks < 1_000


def test_a_class_that_was_looked_up_is_collectable():
    types = TypeMap()
    types[object] = 1
    cls = type("Temporary", (), {})
    types.lookup(cls())
    types.lookup_type(cls)
    KVCacheSpecRegistry.get_manager_class(cls())
    ref = weakref.ref(cls)
    del cls
    gc.collect()
    assert ref() is None


def test_a_class_and_its_value_are_collectable_after_del_from_the_map():
    types = TypeMap()
    cls = type("Temporary", (), {})
    value = type("Value", (), {})
    types[cls] = value
    assert types.lookup(cls()) is value
    refs = [weakref.ref(cls), weakref.ref(value)]
    del cls, value
    gc.collect()
    assert None not in [ref() for ref in refs]
    del types[refs[0]()]
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_a_replaced_value_is_let_go():
    types = TypeMap()
    value = type("Value", (), {})
    types[int] = value
    assert types.lookup(1) is value
    ref = weakref.ref(value)
    types[int] = 2
    del value
    gc.collect()
    assert ref() is None


def test_a_map_within_a_reference_cycle_is_collectable():
    types = TypeMap()
    cls = type("Temporary", (), {"types": types})
    types[cls] = cls
    assert types.lookup(cls()) is cls
    ref = weakref.ref(cls)
    del cls, types
    gc.collect()
    assert ref() is None


def test_metadata_outlives_the_names_of_its_classes():
    def make():
        spec = type("Spec", (), {})
        manager = type("Manager", (), {})
        return KVCacheSpecMetadata(spec, manager, spec), weakref.ref(spec)

    metadata, ref = make()
    gc.collect()
    assert ref() is metadata.kvcache_spec_cls
    assert metadata.manager_class.__name__ == "Manager"
    del metadata
    gc.collect()
    assert ref() is None


def test_a_map_holds_a_class_whose_name_is_deleted():
    types = TypeMap()
    cls = type("Spec", (), {})
    obj = cls()
    types[cls] = "value"
    del cls
    gc.collect()
    assert types.lookup(obj) == "value"
    assert [each.__name__ for each in types] == ["Spec"]


def test_a_finalizer_that_looks_up_while_its_map_is_collected_gets_no_freed_value():
    """An object made by a finalizer is finalized when the collector has emptied the map."""
    answers = []

    class WeaklyReferenced(TypeMap):
        pass

    class Value:
        pass

    class Late:
        def __init__(self, types):
            self.types = weakref.ref(types)

        def __del__(self):
            types = self.types()  # later CPythons have cleared it by now
            answers.append("nothing" if types is None else types.lookup(1.5, "nothing"))

    class Early:
        def __init__(self, types):
            self.types = types

        def __del__(self):
            self.types[Late] = Late(self.types)
            assert isinstance(self.types.lookup(1.5), Value)

    class Holder:
        """Collected after the map's contents, as it was made after them."""

        def __init__(self, types):
            self.types = types
            self.itself = self

    for _ in range(10):
        types = WeaklyReferenced()
        types[float] = Value()
        types[Early] = Early(types)
        Holder(types)
        del types
    gc.collect()
    assert answers == ["nothing"] * 10


def test_a_value_s_finalizer_sees_the_map_without_it():
    types = TypeMap()
    seen = []

    class Value:
        def __del__(self):
            seen.append((types.lookup(1, "nothing"), int in types))

    for remove in (
        lambda: types.__delitem__(int),
        types.clear,
        lambda: types.__setitem__(int, "new"),
    ):
        types[int] = Value()
        assert isinstance(types.lookup(1), Value)
        remove()
    assert seen == [("nothing", False), ("nothing", False), ("new", True)]
