"""A module with the names and the behaviour of vLLM's registry, for where there is no vLLM."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KVCacheSpecMetadata:
    kvcache_spec_cls: type
    manager_class: type
    uniform_type_base_spec: type


_REGISTRY_KVCACHESPEC_LIST = {}
_REGISTRY_ROLE_MANAGERS = {}


class KVCacheSpecRegistry:
    @classmethod
    def _ensure_registered(cls):
        if not _REGISTRY_KVCACHESPEC_LIST:
            from vllm.v1.core import single_type_kv_cache_manager as builtin_specs

            builtin_specs.register_all_kvcache_specs("no configuration")

    @classmethod
    def register(cls, kvcache_spec_cls, manager_class=None, uniform_type_base_spec=None):
        new = KVCacheSpecMetadata(
            kvcache_spec_cls, manager_class, uniform_type_base_spec or kvcache_spec_cls
        )
        assert manager_class is not None
        assert _REGISTRY_KVCACHESPEC_LIST.get(kvcache_spec_cls, new) == new
        _REGISTRY_KVCACHESPEC_LIST[kvcache_spec_cls] = new

    @classmethod
    def register_role_manager(cls, role, manager_class):
        assert _REGISTRY_ROLE_MANAGERS.setdefault(role, manager_class) is manager_class

    @classmethod
    def get_manager_class(cls, kvcache_spec, role=None):
        cls._ensure_registered()
        by_role = None if role is None else _REGISTRY_ROLE_MANAGERS.get(role)
        if by_role:
            return by_role
        for ancestor in type(kvcache_spec).__mro__:
            if ancestor in _REGISTRY_KVCACHESPEC_LIST:
                return _REGISTRY_KVCACHESPEC_LIST[ancestor].manager_class
        return None

    @classmethod
    def get_uniform_type_base_spec(cls, kvcache_spec):
        cls._ensure_registered()
        for ancestor in type(kvcache_spec).__mro__:
            if ancestor in _REGISTRY_KVCACHESPEC_LIST:
                return _REGISTRY_KVCACHESPEC_LIST[ancestor].uniform_type_base_spec
        return None

    @classmethod
    def check_kv_cache_spec_registry(cls, kv_cache_spec):
        cls._ensure_registered()
        for layer, spec in kv_cache_spec.items():
            if cls.get_uniform_type_base_spec(spec) is None:
                raise ValueError(f"no base for {layer}: {type(spec)}")
            if cls.get_manager_class(spec) is None:
                raise ValueError(f"no manager for {layer}: {type(spec)}")
