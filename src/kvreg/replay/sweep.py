"""Prefix hits against the host tier's capacity, for several eviction policies at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvreg.replay.engine import Engine
from kvreg.replay.optimum import optimal_prefix_hits
from kvreg.replay.trace import Request

OPTIMUM = "optimum"
"""Names, among the policies, what none can pass."""

# A real tier with a real policy, whose blocks are one byte each: what the policies decide does
# not depend on the bytes.
_STAND_IN_BYTES = 1
_UNIT_STEP = 1024


@dataclass(frozen=True)
class SweepPoint:
    """What one policy makes of one capacity.

    Attributes:
        eviction_policy: Its name, or ``OPTIMUM``: the best that any policy could do that knows
            the future and may keep any blocks in both tiers together.
        host_capacity: Size of the host tier's blocks, in bytes.
        host_blocks: How many they are.
        prefix_hit_rate: Blocks found while all before them were found too, in either tier, of
            all blocks.
        primary_hit_rate: Those found in the primary tier, of all; None for the optimum.
        host_hit_rate: Those found in the host tier, of all; None for the optimum.
    """

    eviction_policy: str
    host_capacity: int
    host_blocks: int
    prefix_hit_rate: float
    primary_hit_rate: float | None
    host_hit_rate: float | None


@dataclass(frozen=True)
class Sweep:
    """What is to be swept.

    Attributes:
        requests: The trace.
        block_bytes: Size of a block.
        primary_blocks: Blocks of the primary tier.
        capacities: Those of the host tier, in bytes, each at least a block.
        eviction_policies: Names of policies.
    """

    requests: Sequence[Request]
    block_bytes: int
    primary_blocks: int
    capacities: Sequence[int]
    eviction_policies: Sequence[str]

    def __len__(self) -> int:
        return len(self.capacities) * (len(self.eviction_policies) + 1)

    def points(self) -> Iterator[SweepPoint]:
        """Yield the points, capacity by capacity: those of the policies, then the optimum."""
        # With a slot for every block of the trace nothing is ever evicted, and more slots would
        # only take memory.
        most_slots = len({block for r in self.requests for block in r.hash_ids}) or 1
        for capacity in self.capacities:
            for policy in self.eviction_policies:
                yield self._point(capacity, policy, most_slots)
            yield self._optimum(capacity)

    def _point(self, capacity: int, policy: str, most_slots: int) -> SweepPoint:
        host_blocks = capacity // self.block_bytes
        config = {
            "type": "host",
            "capacity": min(host_blocks, most_slots) * _STAND_IN_BYTES,
            "eviction_policy": policy,
            "num_threads": 1,
        }
        with Engine(config, self.primary_blocks, _STAND_IN_BYTES) as engine:
            for request in self.requests:
                engine.step(request)
            blocks = engine.blocks or 1
            return SweepPoint(
                policy,
                capacity,
                host_blocks,
                (engine.primary_hits + engine.host_hits) / blocks,
                engine.primary_hits / blocks,
                engine.host_hits / blocks,
            )

    def _optimum(self, capacity: int) -> SweepPoint:
        host_blocks = capacity // self.block_bytes
        distinct = [list(dict.fromkeys(request.hash_ids)) for request in self.requests]
        # As the engine does: of a request no more blocks are kept than the primary tier has.
        kept = [blocks[: self.primary_blocks] for blocks in distinct]
        hits = optimal_prefix_hits(kept, self.primary_blocks + host_blocks)
        rate = hits / (sum(map(len, distinct)) or 1)
        return SweepPoint(OPTIMUM, capacity, host_blocks, rate, None, None)


def format_sweep(points: Sequence[SweepPoint]) -> str:
    """Return a table for people: a line for each capacity, a column for each policy."""
    policies = list(dict.fromkeys(point.eviction_policy for point in points))
    rates = {
        (point.host_capacity, point.eviction_policy): point.prefix_hit_rate for point in points
    }
    heading = "".join(f"{policy:>10}" for policy in policies)
    lines = [
        "prefix hit rate of both tiers; no block was copied",
        f"{'capacity':>12}{'blocks':>12}{heading}",
    ]
    for capacity, blocks in dict.fromkeys((p.host_capacity, p.host_blocks) for p in points):
        cells = "".join(f"{rates[capacity, policy]:10.4f}" for policy in policies)
        lines.append(f"{format_size(capacity):>12}{blocks:12,}{cells}")
    return "\n".join(lines)


def format_size(size: float) -> str:
    """Return a number of bytes in the largest unit of which it is one or more."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _UNIT_STEP:
            return f"{size:.4g} {unit}"
        size /= _UNIT_STEP
    return f"{size:.4g} TiB"
