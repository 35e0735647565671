"""Draws the curves of a sweep."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from kvreg.replay.sweep import OPTIMUM, SweepPoint, format_size


class NoMatplotlibError(ImportError):
    """The package that draws is not installed."""


def require_matplotlib() -> None:
    """Raise where nothing can be drawn.

    Raises:
        NoMatplotlibError: matplotlib is not installed; says how to get it.
    """
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise NoMatplotlibError("--plot needs matplotlib: pip install 'kvreg[cli]'") from error


def plot_sweep(points: Sequence[SweepPoint], primary_blocks: int, path: Path) -> None:
    """Draw the prefix hit rate against capacity, a line for each policy, to a picture file.

    Raises:
        OSError, ValueError: The file cannot be written, or its ending names no kind of picture.
    """
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(8, 5))
    axes = figure.subplots()
    for policy in dict.fromkeys(point.eviction_policy for point in points):
        line = sorted(
            (point.host_capacity, 100 * point.prefix_hit_rate)
            for point in points
            if point.eviction_policy == policy
        )
        style = {"color": "grey", "linestyle": "--"} if policy == OPTIMUM else {}
        axes.plot(*zip(*line, strict=True), label=policy, marker="o", **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda size, _: format_size(size))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("capacity of the host tier")
    axes.set_ylabel("prefix hits of both tiers (% of blocks)")
    axes.set_title(f"Prefix hits by host capacity, behind {primary_blocks:,} primary blocks")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
