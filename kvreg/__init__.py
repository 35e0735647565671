"""kvreg: a KV-cache spec registry and host-memory KV tiers for LLM inference engines."""

from kvreg._version import __version__
from kvreg.block_copy import copy_blocks
from kvreg.headers import get_include

__all__ = ["__version__", "copy_blocks", "get_include"]
