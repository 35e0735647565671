"""What a block's bytes are: derived from its key, so that they can be checked anywhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvreg.tiering.base import OffloadKey

_WORD_BYTES = 8
_PATTERN_SEED = 20240624


class BlockContents:
    """Derives a block's bytes from its key.

    A fixed pseudo-random pattern, each 8-byte word xored with the key's first word: bytes of
    another key differ in every word, and bytes moved within the block do not fit the pattern.

    Args:
        block_bytes: Length of a block.
    """

    def __init__(self, block_bytes: int) -> None:
        words = -(-block_bytes // _WORD_BYTES)
        generator = np.random.Generator(np.random.PCG64(_PATTERN_SEED))
        self._pattern = generator.integers(2**64, size=words, dtype=np.uint64)
        self._words = np.empty_like(self._pattern)
        self._bytes = self._words.view(np.uint8)[:block_bytes]

    def fill(self, row: NDArray[np.uint8], key: OffloadKey) -> None:
        """Write the bytes of ``key`` to ``row``, shape ``(block_bytes,)``."""
        row[:] = self._derive(key)

    def fits(self, row: NDArray[np.uint8], key: OffloadKey) -> bool:
        """Whether ``row``, shape ``(block_bytes,)``, holds exactly the bytes of ``key``."""
        return np.array_equal(row, self._derive(key))

    def _derive(self, key: OffloadKey) -> NDArray[np.uint8]:
        seed = np.uint64(int.from_bytes(key[:_WORD_BYTES], "little"))
        np.bitwise_xor(self._pattern, seed, out=self._words)
        return self._bytes
