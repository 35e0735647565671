"""kvreg: a KV-cache spec registry and host-memory KV tiers for LLM inference engines."""

from kvreg._version import __version__
from kvreg.headers import get_include

__all__ = ["__version__", "get_include"]
