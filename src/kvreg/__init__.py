"""kvreg: a KV-cache spec registry and host-memory KV tiers for LLM inference engines."""

from kvreg._version import __version__
from kvreg.block_copy import copy_blocks
from kvreg.headers import get_include
from kvreg.specs import (
    KVCacheSpecMetadata,
    KVCacheSpecRegistry,
    RegistrationError,
    TypeMap,
    register_kv_cache_spec,
)

__all__ = [
    "KVCacheSpecMetadata",
    "KVCacheSpecRegistry",
    "RegistrationError",
    "TypeMap",
    "__version__",
    "copy_blocks",
    "get_include",
    "register_kv_cache_spec",
]
