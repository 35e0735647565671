"""The bootstrap of the registry: once, before the first lookup, for every thread."""

import os
import signal
import sys
import threading
import time

import pytest

from kvreg import KVCacheSpecRegistry, RegistrationError


class Manager:
    pass


class OtherManager:
    pass


@pytest.fixture
def spec_class():
    return type("Spec", (), {})


LOOKUPS = {
    "get_manager_class": KVCacheSpecRegistry.get_manager_class,
    "with a role": lambda spec: KVCacheSpecRegistry.get_manager_class(spec, "no such role"),
    "get_uniform_type_base_spec": KVCacheSpecRegistry.get_uniform_type_base_spec,
    "check": lambda spec: KVCacheSpecRegistry.check_kv_cache_spec_registry({"layer": spec}),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_runs_once_before_the_first_lookup(spec_class, name):
    calls = []

    def bootstrap():
        calls.append(name)
        KVCacheSpecRegistry.register(spec_class, Manager)

    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    assert calls == []
    LOOKUPS[name](spec_class())
    LOOKUPS[name](spec_class())
    assert calls == [name]
    assert KVCacheSpecRegistry.get_manager_class(spec_class()) is Manager


def test_runs_whatever_is_registered_and_cached_by_then(spec_class):
    derived = type("Derived", (spec_class,), {})
    KVCacheSpecRegistry.register(spec_class, Manager)
    assert KVCacheSpecRegistry.get_manager_class(derived()) is Manager
    KVCacheSpecRegistry.install_bootstrap(
        lambda: KVCacheSpecRegistry.register(derived, OtherManager)
    )
    assert KVCacheSpecRegistry.get_manager_class(derived()) is OtherManager


def test_may_register_and_look_up_itself(spec_class):
    seen = []

    def bootstrap():
        seen.append(KVCacheSpecRegistry.get_manager_class(spec_class()))
        KVCacheSpecRegistry.register(spec_class, Manager)
        KVCacheSpecRegistry.register_role_manager("from a bootstrap", OtherManager)
        seen.append(KVCacheSpecRegistry.get_manager_class(spec_class()))

    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    assert KVCacheSpecRegistry.get_manager_class(spec_class()) is Manager
    assert KVCacheSpecRegistry.get_manager_class(1, "from a bootstrap") is OtherManager
    assert seen == [None, Manager]


def test_serves_roles_too():
    KVCacheSpecRegistry.install_bootstrap(
        lambda: KVCacheSpecRegistry.register_role_manager("bootstrapped", Manager)
    )
    assert KVCacheSpecRegistry.get_manager_class(object(), "bootstrapped") is Manager


def test_an_error_reaches_the_caller_and_the_next_lookup_tries_again(spec_class):
    calls = []

    def bootstrap():
        calls.append(1)
        KVCacheSpecRegistry.register(spec_class, Manager)
        if len(calls) < 3:
            raise OSError("not yet")

    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    for _ in range(2):
        with pytest.raises(OSError, match="not yet"):
            KVCacheSpecRegistry.get_manager_class(spec_class())
    assert KVCacheSpecRegistry.get_manager_class(spec_class()) is Manager
    assert len(calls) == 3


def test_installing_the_same_again_does_nothing(spec_class):
    calls = []

    def bootstrap():
        calls.append(1)

    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    KVCacheSpecRegistry.get_manager_class(spec_class())
    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    KVCacheSpecRegistry.get_manager_class(spec_class())
    assert calls == [1]


def test_another_is_refused_while_one_waits_and_welcome_after_it_ran(spec_class):
    calls = []

    def first():
        calls.append("first")
        with pytest.raises(RegistrationError, match=r"first.*second"):
            KVCacheSpecRegistry.install_bootstrap(second)

    def second():
        calls.append("second")

    KVCacheSpecRegistry.install_bootstrap(first)
    with pytest.raises(RegistrationError, match=r"first.*second"):
        KVCacheSpecRegistry.install_bootstrap(second)
    KVCacheSpecRegistry.get_manager_class(spec_class())
    KVCacheSpecRegistry.install_bootstrap(second)
    KVCacheSpecRegistry.get_manager_class(spec_class())
    assert calls == ["first", "second"]


def test_must_be_callable():
    with pytest.raises(TypeError, match="must be callable, not 'vllm'"):
        KVCacheSpecRegistry.install_bootstrap("vllm")


def test_threads_that_look_up_at_once_see_it_run_once_and_complete(spec_class):
    calls = []
    answers = []
    together = threading.Barrier(8)

    def bootstrap():
        calls.append(threading.get_ident())
        time.sleep(0.05)  # lets the other threads come
        KVCacheSpecRegistry.register(spec_class, Manager)

    def look_up():
        together.wait()
        answers.append(KVCacheSpecRegistry.get_manager_class(spec_class()))

    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    threads = [threading.Thread(target=look_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert answers == [Manager] * 8


def test_a_registration_does_not_wait_for_it(spec_class):
    registered = threading.Event()

    def register():
        KVCacheSpecRegistry.register(spec_class, Manager)
        registered.set()

    def bootstrap():
        threading.Thread(target=register).start()
        assert registered.wait(10)

    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    assert KVCacheSpecRegistry.get_manager_class(spec_class()) is Manager


def test_an_import_that_it_waits_for_may_look_up(spec_class, tmp_path, monkeypatch):
    """One thread imports a module that looks up; another's bootstrap imports the same."""
    module = "module_that_looks_up"
    (tmp_path / f"{module}.py").write_text("import __main__; __main__.while_imported()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules["__main__"], "while_imported", None, raising=False)
    importing, running = threading.Event(), threading.Event()
    answers = []

    def look_up():
        answers.append(KVCacheSpecRegistry.get_manager_class(spec_class()))

    def while_imported():
        importing.set()
        assert running.wait(10)
        look_up()

    def bootstrap():
        running.set()
        __import__(module)
        KVCacheSpecRegistry.register(spec_class, Manager)

    monkeypatch.setattr(sys.modules["__main__"], "while_imported", while_imported)
    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    importer = threading.Thread(target=__import__, args=(module,), daemon=True)
    importer.start()
    assert importing.wait(10)
    other = threading.Thread(target=look_up, daemon=True)
    other.start()
    for thread in (importer, other):
        thread.join(10)
        assert not thread.is_alive()
    sys.modules.pop(module)
    assert answers == [Manager] * 2


def exit_code_in_child(call):
    """Fork, and return what the call returns there; an alarm ends a child that hangs."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        try:
            os._exit(call())
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# From 3.12 on CPython warns of a fork() in a process with threads.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_by_another_thread_while_it_runs_has_an_error(spec_class):
    running, go_on = threading.Event(), threading.Event()

    def bootstrap():
        running.set()
        assert go_on.wait(10)
        KVCacheSpecRegistry.register(spec_class, Manager)

    def look_up_in_child():
        with pytest.raises(RuntimeError, match="install it again"):
            KVCacheSpecRegistry.get_manager_class(spec_class())
        go_on.set()
        KVCacheSpecRegistry.install_bootstrap(bootstrap)
        return KVCacheSpecRegistry.get_manager_class(spec_class()) is Manager

    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    thread = threading.Thread(
        target=KVCacheSpecRegistry.get_manager_class, args=(spec_class(),)
    )
    thread.start()
    assert running.wait(10)
    code = exit_code_in_child(look_up_in_child)
    go_on.set()
    thread.join()
    assert code == 1
    assert KVCacheSpecRegistry.get_manager_class(spec_class()) is Manager


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_may_fork_itself(spec_class):
    codes = []

    def look_up_in_child():
        return KVCacheSpecRegistry.get_manager_class(spec_class()) is None

    def bootstrap():
        codes.append(exit_code_in_child(look_up_in_child))
        KVCacheSpecRegistry.register(spec_class, Manager)

    KVCacheSpecRegistry.install_bootstrap(bootstrap)
    assert KVCacheSpecRegistry.get_manager_class(spec_class()) is Manager
    assert codes == [1]
