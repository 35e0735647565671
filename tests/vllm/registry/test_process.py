"""The native lookups where an interpreter begins and ends."""

import subprocess
import sys
import textwrap

import pytest

from tests.vllm.registry.conftest import STAND_IN, digests_of

PRELUDE = f"""
import sys
sys.path.insert(0, {str(STAND_IN.parent)!r})
import registry_stand_in as module
from kvreg.vllm import registry
registry._KNOWN = {digests_of(STAND_IN)!r}
plain = dict(vars(module.KVCacheSpecRegistry))
"""


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_lookups_while_the_interpreter_ends_do_what_the_original_does():
    printed = run_python(
        """
        class Spec: pass
        class Manager: pass

        class Last:
            def __del__(self, lookup=module.KVCacheSpecRegistry, print=print, spec=Spec()):
                try:
                    print(lookup.get_manager_class(spec))
                except Exception as error:
                    print(type(error))

        registry.accelerate(module)
        module.KVCacheSpecRegistry.register(Spec, Manager)
        module.KVCacheSpecRegistry.get_manager_class(Spec())
        module.last = Last()
        sys.last = Last()
        Spec.last = Last()
        module._REGISTRY_KVCACHESPEC_LIST["last"] = Last()
        """
    )
    assert len(printed.splitlines()) >= 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="CPython 3.12 brought dict watchers")
def test_it_is_refused_where_all_dict_watchers_are_in_use():
    printed = run_python(
        """
        import ctypes
        callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 3)(
            lambda *event: 0
        )
        try:
            while True:
                ctypes.pythonapi.PyDict_AddWatcher(callback)
        except RuntimeError:
            pass
        try:
            registry.accelerate(module)
        except ImportError as error:
            print(error)
        assert dict(vars(module.KVCacheSpecRegistry)) == plain
        """
    )
    assert printed == "all dict watchers of this interpreter are in use\n"


def test_it_is_refused_in_a_second_interpreter():
    printed = run_python(
        """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        registry.accelerate(module)
        other = interpreters.create()
        code = '''if True:
            try:
                import kvreg.vllm._registry
                print("not refused")
            except ImportError:
                print("refused", flush=True)
        '''
        interpreters.run_string(other, code)
        interpreters.destroy(other)
        """
    )
    assert printed == "refused\n"
