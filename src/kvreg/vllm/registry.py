"""Native lookups for vLLM's own ``KVCacheSpecRegistry``, as vLLM 0.28 to 0.34 have it.

Importing this module imports neither vLLM nor torch.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import logging
import weakref
from collections.abc import Iterable
from types import CodeType, FunctionType, ModuleType
from typing import TypeVar

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_MODULE = "vllm.v1.kv_cache_spec_registry"
_REGISTRY = "KVCacheSpecRegistry"

# The `digest` of each function that the native lookups stand for, as far as they are known.
_KNOWN = {
    "_ensure_registered": {"4028fa30d1e9aa46"},
    "get_manager_class": {
        "4698c82369399038",  # up to 0.29, without roles
        "a68183189bc0adeb",
    },
    "get_uniform_type_base_spec": {"bb9c3d29dd9339b9"},
    "check_kv_cache_spec_registry": {"1d57bd6bf5644946"},
}

# Each lookup that can have a front, and the functions that it runs.
_LOOKUPS = {
    "get_manager_class": {"_ensure_registered", "get_manager_class"},
    "get_uniform_type_base_spec": {"_ensure_registered", "get_uniform_type_base_spec"},
    "check_kv_cache_spec_registry": set(_KNOWN),
}

# What `install` has dealt with: registry classes, and what it warned of.
_accelerated: weakref.WeakSet[type] = weakref.WeakSet()
_warnings: set[str] = set()


class UnknownRegistryError(ImportError):
    """The registry of the vLLM that is installed is not one of those known."""


def install() -> None:
    """Put native lookups into vLLM's registry; calling it again does nothing.

    ``get_manager_class``, ``get_uniform_type_base_spec`` and ``check_kv_cache_spec_registry``
    answer faster from then on, and the same as vLLM's own code would at that moment, whatever
    was registered, changed, replaced or patched before. Where that is not sure, vLLM's code
    runs.

    What an engine adds to its registry changes nothing. A lookup whose code is not known stays
    vLLM's own, and a warning says so, once.
    """
    try:
        left_out = accelerate(importlib.import_module(_MODULE))
    except ImportError as error:
        _warn_once(f"vLLM's KV-cache spec registry is not accelerated: {error}")
    except Exception as error:  # raised by the module itself: a plugin must not end the engine
        _warn_once(f"vLLM's KV-cache spec registry is not accelerated: {error!r}")
    else:
        if left_out:
            _warn_once(f"vLLM's KV-cache spec registry is accelerated in part only: {left_out}")


def _warn_once(warning: str) -> None:
    if warning not in _warnings:
        _warnings.add(warning)
        logger.warning("%s", warning)


def accelerate(module: ModuleType) -> str:
    """Put native lookups into the registry of a module like vLLM's; again does nothing.

    Returns:
        which functions are not known, so that the lookups that run them stay as they are; empty
        if there are none.

    Raises:
        UnknownRegistryError: no lookup of the module's registry is one of those known; says
            why. The module is as it was.
    """
    registry = getattr(module, _REGISTRY, None)
    if type(registry) is not type:
        raise UnknownRegistryError(f"{module.__name__} has no plain class {_REGISTRY}")
    if registry in _accelerated:
        return ""
    functions, reasons = _known_functions(module, registry)
    lookups = {name for name, needed in _LOOKUPS.items() if needed <= functions.keys()}
    if not lookups:
        raise UnknownRegistryError(reasons)
    metadata_class = getattr(module, "KVCacheSpecMetadata", None)
    if type(metadata_class) is not type:
        raise UnknownRegistryError(f"{module.__name__} has no plain class KVCacheSpecMetadata")
    # It has state of the process, and CPython refuses to load it into a second interpreter.
    from kvreg.vllm import _registry  # noqa: PLC0415

    fronted = {name: functions[name] for name in ("_ensure_registered", *lookups)}
    _registry.put_fronts(registry, metadata_class, fronted)
    _accelerated.add(registry)
    return reasons


def _known_functions(module: ModuleType, registry: type) -> tuple[dict[str, FunctionType], str]:
    """Return the functions whose source is known, and of the others why it is not."""
    functions, reasons = {}, []
    for name in _KNOWN:
        try:
            functions[name] = _known_function(module, registry, name)
        except UnknownRegistryError as error:
            reasons.append(str(error))
    return functions, "; ".join(reasons)


def _known_function(module: ModuleType, registry: type, name: str) -> FunctionType:
    """Return the function of a classmethod, if it is one whose source is known."""
    where = f"{_REGISTRY}.{name}"
    method = vars(registry).get(name)
    if type(method) is not classmethod:
        raise UnknownRegistryError(f"{where} is not a classmethod of that class")
    function = method.__func__
    if type(function) is not FunctionType or function.__globals__ is not vars(module):
        raise UnknownRegistryError(f"{where} was replaced")
    definition, code = _compiled_source(module, name)
    if digest(definition) not in _KNOWN[name]:
        raise UnknownRegistryError(f"{where} has a source that kvreg does not know")
    defaults = (None,) * len(definition.args.defaults)
    if function.__code__ != code or (function.__defaults__ or ()) != defaults:
        raise UnknownRegistryError(f"{where} is not what its source says")
    return function


def _compiled_source(module: ModuleType, name: str) -> tuple[ast.FunctionDef, CodeType]:
    """Return the source of a method of the registry, and the code that it compiles to."""
    where = f"{_REGISTRY}.{name}"
    try:
        tree = ast.parse(inspect.getsource(module))
        code = compile(tree, module.__file__ or "", "exec", dont_inherit=True)
    except (OSError, TypeError, SyntaxError) as error:
        raise UnknownRegistryError(f"the source of {where} cannot be read: {error}") from None
    defined = _only(tree.body, ast.ClassDef, "name", _REGISTRY)
    method = _only(defined.body, ast.FunctionDef, "name", name)
    class_code = _only(code.co_consts, CodeType, "co_name", _REGISTRY)
    return method, _only(class_code.co_consts, CodeType, "co_name", name)


def _only(items: Iterable[object], kind: type[_T], attribute: str, name: str) -> _T:
    """Return the one of the items that is of a kind and has a name."""
    found = [
        item for item in items if isinstance(item, kind) if getattr(item, attribute) == name
    ]
    if len(found) != 1:
        raise UnknownRegistryError(f"the source does not define {name} once")
    return found[0]


def digest(definition: ast.AST) -> str:
    """Return what identifies the source of a function, apart from docstring and annotations.

    It is the same for all versions of Python.
    """
    return hashlib.sha256(_outline(definition).encode()).hexdigest()[:16]


# Fields of AST nodes without an influence on what a function does, and `type_params`, which is
# not in all versions of Python and empty where nothing is generic.
_LEFT_OUT = {"annotation", "ctx", "kind", "returns", "type_comment", "type_params"}


def _outline(node: object) -> str:
    if isinstance(node, list):
        return f"[{' '.join(map(_outline, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
        fields["body"] = node.body[1:]
    kept = [
        f"{name}={_outline(value)}" for name, value in fields.items() if name not in _LEFT_OUT
    ]
    return f"{type(node).__name__}({' '.join(kept)})"
