"""Lookups while other threads register and change classes."""

import itertools
import sys
import threading
import time

import pytest

from kvreg import KVCacheSpecRegistry, RegistrationError, TypeMap
from kvreg.specs import KVCacheSpecMetadata

SECONDS = 1.5


@pytest.fixture(autouse=True)
def frequent_switches():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def run_beside(readers, writer):
    """Run the readers' loops while the writer's runs for SECONDS; raise what any raised."""
    errors = []
    over = threading.Event()

    def repeat(function):
        try:
            while not over.is_set():
                function()
        except BaseException as error:
            errors.append(error)
            over.set()

    threads = [threading.Thread(target=repeat, args=(f,)) for f in (*readers, writer)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and not over.is_set():
        time.sleep(0.01)
    over.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_a_lookup_never_falls_back_behind_a_registration_it_has_seen():
    class Base:
        pass

    class Manager:
        pass

    class NearManager:
        pass

    KVCacheSpecRegistry.register(Base, Manager)
    families = []  # (a class registered at some time, a spec below it)
    lookup = KVCacheSpecRegistry.get_manager_class
    registrations = 0

    def new_family():
        near = type("Near", (Base,), {})
        families.append((near, type("Leaf", (near,), {})()))

    def register():
        nonlocal registrations
        new_family()
        KVCacheSpecRegistry.register(families[-1][0], NearManager)
        registrations += 1

    def read():
        _, spec = families[-1]
        seen = [lookup(spec) for _ in range(50)]
        assert set(seen) <= {Manager, NearManager}
        changes = [a for a, b in itertools.pairwise(seen) if a is not b]
        assert changes in ([], [Manager])
        assert lookup(3) is None

    new_family()
    run_beside([read, read, read], register)
    assert registrations > 100
    for near, spec in families[1:]:
        assert lookup(spec) is lookup(near()) is NearManager


def test_a_lookup_answers_the_old_or_the_new_while_maps_and_classes_change():
    class Left:
        pass

    class Right:
        pass

    class Leaf(Left):
        pass

    types = TypeMap()
    types[Left] = "left"
    types[Right] = "right"
    leaf = Leaf()
    changes = 0

    def change():
        nonlocal changes
        Leaf.__bases__ = (Right,)
        assert types.lookup(leaf) == "right"
        types[Leaf] = object()  # freed again at once, while readers may just have found it
        assert types.lookup(leaf) not in ("left", "right")
        del types[Leaf]
        assert types.lookup(leaf) == "right"
        Leaf.__bases__ = (Left,)
        assert types.lookup(leaf) == "left"
        changes += 1

    def read():
        found = types.lookup(leaf)
        assert found in ("left", "right") or type(found) is object

    run_beside([read, read], change)
    assert changes > 100


def test_a_thread_that_did_not_import_kvreg_gets_the_same_errors_and_texts():
    class Spec:
        pass

    class Manager:
        pass

    class OtherManager:
        pass

    def refused():
        with pytest.raises(RegistrationError) as raised:
            KVCacheSpecRegistry.register(Spec, OtherManager)
        return str(raised.value), repr(KVCacheSpecMetadata(Spec, Manager, Spec))

    KVCacheSpecRegistry.register(Spec, Manager)
    texts = []
    thread = threading.Thread(target=lambda: texts.append(refused()))
    thread.start()
    thread.join()
    assert texts == [refused()]
    _, metadata = texts[0]
    assert metadata == (
        f"KVCacheSpecMetadata(kvcache_spec_cls={Spec!r}, manager_class={Manager!r}, "
        f"uniform_type_base_spec={Spec!r})"
    )
