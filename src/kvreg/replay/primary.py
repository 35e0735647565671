"""The stand-in engine's primary tier: rows of one buffer, given up in LRU order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvreg.tiering.base import OffloadKey


class PrimaryTier:
    """A buffer of rows, and which block each row holds.

    Args:
        num_blocks: Number of rows.
        block_bytes: Length of a row.

    Raises:
        MemoryError, ValueError: numpy cannot allocate an array of that size.
    """

    def __init__(self, num_blocks: int, block_bytes: int) -> None:
        self.blocks: NDArray[np.uint8] = np.zeros((num_blocks, block_bytes), np.uint8)
        # Least recent first. Rows are used from the first on, and never freed.
        self._rows: OrderedDict[OffloadKey, int] = OrderedDict()

    @property
    def num_blocks(self) -> int:
        """Number of rows."""
        return len(self.blocks)

    def __contains__(self, key: OffloadKey) -> bool:
        return key in self._rows

    def row(self, key: OffloadKey) -> NDArray[np.uint8]:
        """Return the row that belongs to ``key``, shape ``(block_bytes,)``."""
        row: NDArray[np.uint8] = self.blocks[self._rows[key]]
        return row

    def row_numbers(self, keys: Sequence[OffloadKey]) -> NDArray[np.int64]:
        """Return the numbers of the rows that belong to ``keys``, in their order."""
        return np.array([self._rows[key] for key in keys], np.int64)

    def place(self, keys: Sequence[OffloadKey]) -> None:
        """Give each block of one request a row; the head of the prefix becomes most recent.

        Blocks of other requests give up their rows, the least recent first. ``keys`` are
        distinct, at most ``num_blocks``.
        """
        # Most recent first of all, or the new blocks would push out the old ones beside them.
        for key in keys:
            if key in self._rows:
                self._rows.move_to_end(key)
        for key in keys:
            if key not in self._rows:
                self._rows[key] = self._take_row()
        for key in reversed(keys):
            self._rows.move_to_end(key)

    def _take_row(self) -> int:
        if len(self._rows) < self.num_blocks:
            return len(self._rows)
        _, row = self._rows.popitem(last=False)
        return row
