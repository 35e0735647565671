"""Importing kvreg where it cannot be shared."""

import subprocess
import sys
import textwrap

SCRIPT = """
    import sys
    import kvreg

    if sys.version_info >= (3, 13):
        import _interpreters as interpreters
        create = lambda: interpreters.create("legacy" if LEGACY else "isolated")
    else:
        import _xxsubinterpreters as interpreters
        create = lambda: interpreters.create(isolated=not LEGACY)

    class Spec: pass
    class Manager: pass
    kvreg.KVCacheSpecRegistry.register(Spec, Manager)

    interpreter = create()
    failed = interpreters.run_string(interpreter, f'''if True:
        import sys
        sys.path[:] = {sys.path}
        try:
            import kvreg.specs
        except ImportError as error:
            print("refused:", type(error).__name__, error)
        else:
            types = kvreg.specs.TypeMap()
            types[int] = 1
            assert types.lookup(True) == 1
            print("works")
    ''')
    assert not failed, failed
    interpreters.destroy(interpreter)
    assert kvreg.KVCacheSpecRegistry.get_manager_class(Spec()) is Manager
    print("main goes on")
"""


def run_in_subinterpreter(legacy):
    script = textwrap.dedent(SCRIPT).replace("LEGACY", str(legacy))
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    first, *_, last = run.stdout.splitlines()
    assert first == "works" or first.startswith("refused: ImportError")
    assert last == "main goes on"


def test_a_subinterpreter_can_import_or_is_refused_cleanly():
    run_in_subinterpreter(legacy=False)


def test_a_subinterpreter_that_shares_the_gil_can_import_or_is_refused_cleanly():
    run_in_subinterpreter(legacy=True)
