"""kvreg inside vLLM: a host-memory tier and a faster spec registry, by one plugin.

Importing this package imports neither vLLM nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvreg.vllm.tier import HostMemoryTierManager

__all__ = ["HostMemoryTierManager"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from kvreg.vllm import tier  # noqa: PLC0415 - it imports vLLM

        return getattr(tier, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
