"""The prefix hits that no eviction policy can pass, since they need the future."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from kvreg.replay.record import BlockId

_NEVER = float("inf")


def optimal_prefix_hits(requests: Sequence[Sequence[BlockId]], num_blocks: int) -> int:
    """Return the prefix hits of the best choice of what to keep, summed over the requests.

    Between requests the ``num_blocks`` blocks are kept whose next use is the nearest (L. A.
    Belady, IBM Systems Journal 5, 1966); of blocks that the same request uses next, those at
    its head, as those behind a miss are of no use. Nothing has to be kept. An engine that has
    two tiers keeps no more than the blocks of both, so with their sum this is a bound for it,
    however it moves blocks between them. A bound for one tier alone would be too low, for what
    the other keeps hits, too.

    Args:
        requests: The ids of each request's blocks, in prefix order, without repetitions. An id
            names the prefix before its block, too: where one stands behind different blocks,
            the result is no bound.
        num_blocks: How many blocks can be kept.
    """
    next_uses = _next_uses(requests)
    kept: dict[
        BlockId, tuple[float, int]
    ] = {}  # block -> the request of its next use, depth there
    farthest: list[tuple[float, int, BlockId]] = []  # heap; may hold what is no longer so
    hits = 0
    for blocks, uses in zip(requests, next_uses, strict=True):
        hits += next((i for i, block in enumerate(blocks) if block not in kept), len(blocks))
        for block, (request, depth) in zip(blocks, uses, strict=True):
            if request == _NEVER:
                kept.pop(block, None)
            else:
                kept[block] = (request, depth)
                heapq.heappush(farthest, (-request, -depth, block))
        while len(kept) > num_blocks:
            request, depth, block = heapq.heappop(farthest)
            if kept.get(block) == (-request, -depth):
                del kept[block]
    return hits


def _next_uses(requests: Sequence[Sequence[BlockId]]) -> list[list[tuple[float, int]]]:
    """Return for each block of each request which request uses it next, and how deep there."""
    next_use: dict[BlockId, tuple[float, int]] = {}
    uses = []
    for number in range(len(requests) - 1, -1, -1):
        blocks = requests[number]
        uses.append([next_use.get(block, (_NEVER, 0)) for block in blocks])
        next_use.update((block, (number, depth)) for depth, block in enumerate(blocks))
    return uses[::-1]
