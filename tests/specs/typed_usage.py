"""Not run, but type-checked: what the stubs promise, and what they must refuse."""

from typing import Any

from typing_extensions import assert_type

from kvreg import KVCacheSpecMetadata, KVCacheSpecRegistry, TypeMap, register_kv_cache_spec


class Spec:
    pass


class Manager:
    pass


@register_kv_cache_spec(manager_class=Manager, uniform_type_base_spec=Spec)
class WindowSpec(Spec):
    window = 3


assert_type(WindowSpec(), WindowSpec)
assert_type(WindowSpec().window, int)

managers: TypeMap[type[Manager]] = TypeMap()
managers[Spec] = Manager
assert_type(managers[Spec], type[Manager])
assert_type(managers.lookup(Spec()), type[Manager] | None)
assert_type(managers.lookup_type(Spec), type[Manager] | None)
assert_type(managers.lookup_type(Spec, Manager), type[Manager])
assert_type(managers.lookup(Spec(), default=0), type[Manager] | int)
managers[Spec] = 3  # type: ignore[assignment]
managers[Spec()] = Manager  # type: ignore[index]
managers.lookup_type(Spec())  # type: ignore[call-overload]

metadata = KVCacheSpecMetadata(Spec, Manager, Spec)
assert_type(metadata, KVCacheSpecMetadata[Spec, Manager])
assert_type(metadata.manager_class, type[Manager])
bare: KVCacheSpecMetadata = metadata
metadata.manager_class = Manager  # type: ignore[misc]

assert_type(KVCacheSpecRegistry.get_manager_class(Spec(), role=None), type[Any] | None)
found: type[Manager] | None = KVCacheSpecRegistry.get_manager_class(Spec())
KVCacheSpecRegistry.register(Spec, Manager)
KVCacheSpecRegistry.register(Spec(), Manager)  # type: ignore[arg-type]
KVCacheSpecRegistry.install_bootstrap(lambda: None)
KVCacheSpecRegistry.install_bootstrap(3)  # type: ignore[arg-type]
KVCacheSpecRegistry.check_kv_cache_spec_registry({"layer": Spec()})
KVCacheSpecRegistry.check_kv_cache_spec_registry([Spec()])  # type: ignore[arg-type]
