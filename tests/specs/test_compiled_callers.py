"""Lookups from Cython and from C, by modules that are compiled here as their users would."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

import kvreg
from kvreg import KVCacheSpecRegistry, TypeMap

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
# The folder that holds the package: Cython looks for kvreg/specs.pxd below it.
PACKAGES = Path(kvreg.__file__).parents[1]

SETUP = f"""
    from Cython.Build import cythonize
    from setuptools import Extension, setup

    public = [{kvreg.get_include()!r}]
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    setup(
        name="callers",
        ext_modules=cythonize(
            [
                Extension("specs_from_cython", ["specs_from_cython.pyx"]),
                Extension(
                    "specs_from_c",
                    ["specs_from_c.c"],
                    include_dirs=public,
                    extra_compile_args=warnings,
                ),
                Extension(
                    "type_cache_probe",
                    ["type_cache_probe.c", "type_tag.c"],
                    include_dirs=[{str(CSRC)!r}],
                    extra_compile_args=warnings,
                ),
            ],
            include_path=[{str(PACKAGES)!r}],
        ),
    )
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Compile all three; return the folder that holds them."""
    folder = tmp_path_factory.mktemp("callers")
    for source in (HERE / "extensions").iterdir():
        shutil.copy(source, folder)
    shutil.copy(CSRC / "python" / "type_tag.c", folder)
    (folder / "setup.py").write_text(textwrap.dedent(SETUP))
    run = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def load(folder, name):
    path = folder / (name + sysconfig.get_config_var("EXT_SUFFIX"))
    module_spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def from_c(build):
    return load(build, "specs_from_c")


@pytest.fixture(scope="module")
def from_cython(build):
    return load(build, "specs_from_cython")


@pytest.fixture(scope="module")
def cache(build):
    return load(build, "type_cache_probe")


@pytest.fixture
def spec_class():
    return type("Spec", (), {})


class Manager:
    pass


def test_c_gets_the_metadata_of_the_nearest_registered_class(from_c, spec_class):
    derived = type("Derived", (spec_class,), {})
    assert from_c.lookup(derived()) is None
    KVCacheSpecRegistry.register(spec_class, Manager)
    metadata = from_c.lookup(derived())
    assert metadata.manager_class is Manager
    assert metadata.kvcache_spec_cls is metadata.uniform_type_base_spec is spec_class
    assert from_c.lookup(3) is None


def bootstrap_that_fails_at_first(spec_class):
    attempts = []

    def bootstrap():
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("not yet")
        KVCacheSpecRegistry.register(spec_class, Manager)

    return bootstrap


def test_c_gets_the_error_of_a_bootstrap(from_c, spec_class):
    KVCacheSpecRegistry.install_bootstrap(bootstrap_that_fails_at_first(spec_class))
    with pytest.raises(OSError, match="not yet"):
        from_c.lookup(spec_class())
    assert from_c.lookup(spec_class()).manager_class is Manager


def test_ten_million_lookups_from_c_leak_no_reference(from_c, spec_class):
    KVCacheSpecRegistry.register(spec_class, Manager)
    spec = spec_class()
    metadata = from_c.lookup(spec)
    counted = [spec, spec_class, metadata, Manager]
    before = [sys.getrefcount(each) for each in counted]
    from_c.lookup_ten_million_times(spec)
    assert [sys.getrefcount(each) for each in counted] == before


def test_cython_gets_the_metadata_by_a_c_call(from_cython, spec_class):
    assert from_cython.manager_class(spec_class()) is None
    KVCacheSpecRegistry.register(spec_class, Manager)
    assert from_cython.manager_class(spec_class()) is Manager


def test_cython_gets_the_error_of_a_bootstrap(from_cython, spec_class):
    KVCacheSpecRegistry.install_bootstrap(bootstrap_that_fails_at_first(spec_class))
    with pytest.raises(OSError, match="not yet"):
        from_cython.manager_class(spec_class())
    assert from_cython.manager_class(spec_class()) is Manager


def test_cython_finds_in_a_map_of_its_own(from_cython, spec_class):
    types = TypeMap()
    assert from_cython.find_type(types, spec_class) == "nothing"
    types[object] = "value"
    assert from_cython.find_type(types, spec_class) == "value"


def test_the_cache_outlives_its_last_epoch(cache, spec_class):
    before, after_the_restart, stored_anew, epoch = cache.survives_the_last_epoch(spec_class)
    assert (before, after_the_restart, stored_anew, epoch) == (True, False, True, 1)


def test_the_cache_remembers_two_classes_of_one_place_and_forgets_the_older(cache):
    by_place = {}
    kept = []
    while max(map(len, by_place.values()), default=0) < 3:
        cls = type("New", (), {})
        kept.append(cls)
        place = cache.place(cls)
        assert place is not None
        by_place.setdefault(place, []).append(cls)
    crowd = tuple(max(by_place.values(), key=len))
    first, second, third = crowd
    assert cache.remembered((first, second)) == [first, second]
    assert cache.remembered(crowd) == [second, third]


def test_the_cache_does_not_remember_a_class_without_a_tag(cache):
    """From CPython 3.13 on there are such classes; before, none can be had in a test."""
    cls = type("Worn", (), {})
    for i in range(1_100):
        cls.counter = i
        remembered = cache.remembered((cls,))
    assert remembered == ([cls] if cache.place(cls) is not None else [])
    assert (cache.place(cls) is None) == (sys.version_info >= (3, 13))
