from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Generic, overload

from typing_extensions import TypeVar, disjoint_base

_V = TypeVar("_V")
_D = TypeVar("_D")
_Spec = TypeVar("_Spec", default=Any)
_Manager = TypeVar("_Manager", default=Any)

__all__ = [
    "KVCacheSpecMetadata",
    "KVCacheSpecRegistry",
    "RegistrationError",
    "TypeMap",
    "register_kv_cache_spec",
]

@disjoint_base
class TypeMap(Generic[_V]):
    def __init__(self) -> None: ...
    def __class_getitem__(cls, value_type: Any, /) -> GenericAlias: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[type]: ...
    def __contains__(self, cls: object, /) -> bool: ...
    def __getitem__(self, cls: type, /) -> _V: ...
    def __setitem__(self, cls: type, value: _V, /) -> None: ...
    def __delitem__(self, cls: type, /) -> None: ...
    def clear(self) -> None: ...
    @overload
    def lookup(self, obj: object, default: None = None) -> _V | None: ...
    @overload
    def lookup(self, obj: object, default: _D) -> _V | _D: ...
    @overload
    def lookup_type(self, cls: type, default: None = None) -> _V | None: ...
    @overload
    def lookup_type(self, cls: type, default: _D) -> _V | _D: ...

class RegistrationError(ValueError, AssertionError): ...

@disjoint_base
@dataclass(frozen=True)
class KVCacheSpecMetadata(Generic[_Spec, _Manager]):
    kvcache_spec_cls: type[_Spec]
    manager_class: type[_Manager]
    uniform_type_base_spec: type[Any]
    def __class_getitem__(cls, types: Any, /) -> GenericAlias: ...

class KVCacheSpecRegistry:
    @staticmethod
    def register(
        kvcache_spec_cls: type,
        manager_class: type | None = None,
        uniform_type_base_spec: type | None = None,
    ) -> None: ...
    @staticmethod
    def register_role_manager(role: str, manager_class: type) -> None: ...
    @staticmethod
    def install_bootstrap(register_builtins: Callable[[], object]) -> None: ...
    @staticmethod
    def get_manager_class(
        kvcache_spec: object, role: str | None = None
    ) -> type[Any] | None: ...
    @staticmethod
    def get_uniform_type_base_spec(kvcache_spec: object) -> type[Any] | None: ...
    @staticmethod
    def check_kv_cache_spec_registry(kv_cache_spec: Mapping[str, object]) -> None: ...

def register_kv_cache_spec(
    manager_class: type | None = None,
    uniform_type_base_spec: type | None = None,
) -> Callable[[type[_Spec]], type[_Spec]]: ...
