"""The registry beside plain Python, builtins and dicts.

Run by ``pytest benchmarks/bench_registry.py``. Each row times a lookup and its baseline in
turn, round by round; the ratio is that of the medians. The summary at the end shows the ratios
and their targets.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import timeit
from collections.abc import Callable
from pathlib import Path

import pytest

import kvreg
from kvreg import KVCacheSpecMetadata, KVCacheSpecRegistry, TypeMap

NUMBER = 2_000  # lookups a round


class Spec:
    pass


class Manager:
    pass


def derived(levels):
    cls = Spec
    for _ in range(levels):
        cls = type("Derived", (cls,), {})
    return cls


class PlainRegistry:
    """What an engine has without kvreg: a classmethod, an emptiness check, a walk, a dict."""

    by_class: dict[type, KVCacheSpecMetadata] = {}  # noqa: RUF012
    by_role: dict[str, type] = {}  # noqa: RUF012

    @classmethod
    def ensure_registered(cls):
        if cls.by_class:
            return
        cls.by_class[Spec] = KVCacheSpecMetadata(Spec, Manager, Spec)

    @classmethod
    def get_manager_class(cls, spec, role=None):
        cls.ensure_registered()
        if role is not None and (manager := cls.by_role.get(role)):
            return manager
        for base in type(spec).__mro__:
            if base in cls.by_class:
                return cls.by_class[base].manager_class
        return None

    @classmethod
    def get_uniform_type_base_spec(cls, spec):
        cls.ensure_registered()
        for base in type(spec).__mro__:
            if base in cls.by_class:
                return cls.by_class[base].uniform_type_base_spec
        return None

    @classmethod
    def check_kv_cache_spec_registry(cls, specs):
        cls.ensure_registered()
        for layer, spec in specs.items():
            if cls.get_uniform_type_base_spec(spec) is None:
                raise ValueError(f"layer {layer}: no base for {type(spec)}")
            if cls.get_manager_class(spec) is None:
                raise ValueError(f"layer {layer}: no manager for {type(spec)}")


@pytest.fixture(scope="module", autouse=True)
def registered():
    KVCacheSpecRegistry.register(Spec, Manager)


@pytest.fixture
def compare(side_by_side):
    """Return a function that times two loops, each a function of the number of calls."""

    def compare(what, loop, against, baseline_loop, *, target=None, number=NUMBER):
        side_by_side(
            what,
            lambda: loop(number),
            against,
            lambda: baseline_loop(number),
            per=number,
            target=target,
        )

    return compare


def calls(statement: str, **names) -> Callable[[int], float]:
    return timeit.Timer(statement, globals=names).timeit


@pytest.mark.parametrize(("levels", "target"), [(0, 6.0), (4, 8.5)])
def test_get_manager_class(compare, levels, target):
    spec = derived(levels)()
    what = "of the exact type" if levels == 0 else f"{levels} classes below the registered one"
    statement = "registry.get_manager_class(spec)"
    compare(
        f"get_manager_class, {what}",
        calls(statement, registry=KVCacheSpecRegistry, spec=spec),
        "plain-Python MRO walk",
        calls(statement, registry=PlainRegistry, spec=spec),
        target=target,
    )


def test_get_manager_class_of_an_unregistered_type(compare):
    statement = "registry.get_manager_class(spec)"
    compare(
        "get_manager_class, of an unregistered type",
        calls(statement, registry=KVCacheSpecRegistry, spec=compare),
        "plain-Python MRO walk",
        calls(statement, registry=PlainRegistry, spec=compare),
    )


def test_bound_get_manager_class(compare):
    spec = Spec()
    compare(
        "bound get_manager_class, one argument",
        calls("get(spec)", get=KVCacheSpecRegistry.get_manager_class, spec=spec),
        "id(spec)",
        calls("get(spec)", get=id, spec=spec),
        target=1 / 1.2,  # that is, at most 1.2 times as long
    )


def test_check_of_80_layers(compare):
    types = [derived(levels) for levels in range(5)]
    layers = {f"model.layers.{i}.self_attn": types[i % 5]() for i in range(80)}
    statement = "registry.check_kv_cache_spec_registry(layers)"
    compare(
        "check_kv_cache_spec_registry, 80 layers",
        calls(statement, registry=KVCacheSpecRegistry, layers=layers),
        "plain Python",
        calls(statement, registry=PlainRegistry, layers=layers),
        target=25.0,
        number=20,
    )


def test_lookup_type(compare):
    cls = derived(4)
    types = TypeMap()
    types[Spec] = Manager
    dispatch = functools.singledispatch(lambda spec: None)
    dispatch.register(Spec)(lambda spec: Manager)
    compare(
        "TypeMap.lookup_type, 4 classes below",
        calls("lookup_type(cls)", lookup_type=types.lookup_type, cls=cls),
        "functools.singledispatch.dispatch",
        calls("dispatch(cls)", dispatch=dispatch.dispatch, cls=cls),
    )


@pytest.fixture(scope="module")
def from_c(tmp_path_factory):
    """Compile registry_from_c.c and return the module."""
    name = "registry_from_c"
    folder = tmp_path_factory.mktemp(name)
    shutil.copy(Path(__file__).parent / f"{name}.c", folder)
    (folder / "setup.py").write_text(
        "from setuptools import Extension, setup\n"
        f"setup(name={name!r}, ext_modules=[Extension({name!r}, [{name + '.c'!r}], "
        f"include_dirs=[{kvreg.get_include()!r}], extra_compile_args=['-O3'])])\n"
    )
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    path = folder / (name + sysconfig.get_config_var("EXT_SUFFIX"))
    module_spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("levels", [0, 4])
def test_lookup_from_c(compare, from_c, levels):
    cls = derived(levels)
    spec = cls()
    by_type = {derived(i): Manager for i in range(1, 20)} | {cls: Manager}
    where = "exact type" if levels == 0 else f"{levels} classes below"
    compare(
        f"kvreg_specs_lookup from C, {where}",
        lambda number: from_c.registry(spec, number),
        "PyDict_GetItem, keyed by the type",
        lambda number: from_c.dict(by_type, spec, number),
        target=1.0,
        number=100 * NUMBER,
    )
