"""What a replay found: one object for programs, one page for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvreg.replay.engine import Engine, PrefixHits
from kvreg.replay.jobs import TransferTotals
from kvreg.replay.trace import Reading

_NS_PER_US = 1e3
_NS_PER_S = 1e9
_BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class Transfers:
    """The copies of one direction."""

    blocks: int
    bytes: int
    gb_per_s: float | None
    """10^9 bytes a second while jobs were under way; None when nothing was copied."""


@dataclass(frozen=True)
class Distribution:
    """Percentiles (nearest rank) and maximum."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True)
class Report:
    """The result of a replay; ``dataclasses.asdict`` gives the object of ``--json``."""

    requests: int
    blocks: int
    """Blocks of all requests."""
    prefix_hits: dict[str, int]
    """``primary`` and ``host``: blocks found there while all before them were found too."""
    prefix_hit_rate: float
    """Prefix hits of both tiers / blocks."""
    stored: Transfers
    loaded: Transfers
    evictions: int
    """Blocks that the host tier gave up for others."""
    failed_jobs: int
    """Jobs of which no block was served."""
    partial_jobs: int
    """Jobs of which some blocks were served and some not."""
    lost_jobs: int
    """Jobs that never had a result."""
    corrupted_blocks: int
    """Promoted blocks whose bytes were not those of their key."""
    scheduler_us_per_request: Distribution
    """Microseconds in calls of the tier, waits for copies apart."""
    wait_s: float
    """Seconds of waiting for copies."""
    wall_s: float
    """Seconds from the first request to the last."""
    trace: Reading | None
    """How the trace was read; None for the built-in workload."""

    @property
    def is_sound(self) -> bool:
        """Whether no block was corrupted and no job lost."""
        return self.corrupted_blocks == 0 and self.lost_jobs == 0


def summarise(engine: Engine, wall_s: float, trace: Reading | None = None) -> Report:
    """Sum up what ``engine`` counted in ``wall_s`` seconds; it served at least one request."""
    hits = engine.primary_hits + engine.host_hits
    return Report(
        requests=engine.requests,
        blocks=engine.blocks,
        prefix_hits=PrefixHits(engine.primary_hits, engine.host_hits)._asdict(),
        prefix_hit_rate=hits / engine.blocks if engine.blocks else 0.0,
        stored=_transfers(engine.jobs.stored, engine.block_bytes),
        loaded=_transfers(engine.jobs.loaded, engine.block_bytes),
        evictions=engine.evictions,
        failed_jobs=engine.jobs.failed_jobs,
        partial_jobs=engine.jobs.partial_jobs,
        lost_jobs=engine.jobs.outstanding,
        corrupted_blocks=engine.corrupted_blocks,
        scheduler_us_per_request=_distribution([ns / _NS_PER_US for ns in engine.scheduler_ns]),
        wait_s=engine.wait_ns / _NS_PER_S,
        wall_s=wall_s,
        trace=trace,
    )


def format_report(report: Report) -> str:
    """Return the report as lines of text for people."""
    cost = report.scheduler_us_per_request
    return "\n".join(
        [
            *format_reading(report.trace),
            f"requests           {report.requests:,}",
            f"blocks             {report.blocks:,}",
            f"prefix hits        {report.prefix_hits['primary']:,} primary, "
            f"{report.prefix_hits['host']:,} host ({report.prefix_hit_rate:.1%} of blocks)",
            f"stored             {_format_transfers(report.stored)}",
            f"loaded             {_format_transfers(report.loaded)}",
            f"evictions          {report.evictions:,}",
            f"jobs               {report.failed_jobs:,} failed, "
            f"{report.partial_jobs:,} partial, {report.lost_jobs:,} lost",
            f"corrupted blocks   {report.corrupted_blocks:,}",
            f"scheduler          {cost.p50:.1f} us a request (median), {cost.p99:.1f} (p99), "
            f"{cost.max:.1f} (max)",
            f"wait               {report.wait_s:.2f} s",
            f"wall               {report.wall_s:.2f} s",
        ]
    )


def format_reading(reading: Reading | None) -> list[str]:
    """Return how a trace was read as lines of text for people; none for no trace."""
    if reading is None:
        return []
    unit = reading.timestamp_unit or "none"
    lines = [f"timestamps         {unit} ({reading.timestamp_unit_reason})"]
    if reading.steps_back:
        order = "sorted" if reading.sorted else "not sorted"
        lines.append(f"order              {order}; time goes back {reading.steps_back:,} x")
    if reading.tokens_per_block is None:
        tokens, counted = "not known", "every id counts as a block"
    else:
        tokens = f"{reading.tokens_per_block:,}"
        counted = f"{reading.partial_blocks:,} partial blocks left out"
    lines.append(f"tokens a block     {tokens} ({reading.tokens_per_block_reason}); {counted}")
    return lines


def _transfers(totals: TransferTotals, block_bytes: int) -> Transfers:
    busy = totals.bytes > 0 and totals.seconds > 0
    return Transfers(
        blocks=totals.bytes // block_bytes,
        bytes=totals.bytes,
        gb_per_s=totals.bytes / totals.seconds / _BYTES_PER_GB if busy else None,
    )


def _distribution(values: Sequence[float]) -> Distribution:
    ordered = sorted(values)
    return Distribution(
        p50=_nearest_rank(ordered, 50), p99=_nearest_rank(ordered, 99), max=ordered[-1]
    )


def _nearest_rank(ordered: Sequence[float], percent: int) -> float:
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def _format_transfers(transfers: Transfers) -> str:
    text = f"{transfers.blocks:,} blocks, {transfers.bytes:,} bytes"
    return text if transfers.gb_per_s is None else f"{text}, {transfers.gb_per_s:.2f} GB/s"
