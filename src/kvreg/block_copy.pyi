from collections.abc import Sequence
from typing import SupportsIndex

from typing_extensions import Buffer

__all__ = ["copy_blocks"]

def copy_blocks(
    dst: Buffer,
    dst_ids: Buffer | Sequence[SupportsIndex],
    src: Buffer,
    src_ids: Buffer | Sequence[SupportsIndex],
    *,
    threads: SupportsIndex = 1,
) -> None: ...
