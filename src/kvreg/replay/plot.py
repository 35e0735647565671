"""Draws the curves of a sweep."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Sequence

from kvreg.replay.sweep import OPTIMUM, SweepPoint, format_size


class NoMatplotlibError(ImportError):
    """The package that draws is not installed."""


def check_picture(path: str) -> None:
    """Raise where ``plot_sweep`` could not draw to ``path``; leave what is there as it is.

    Raises:
        NoMatplotlibError: matplotlib is not installed; says how to get it.
        OSError, RuntimeError, ValueError: The file cannot be written, or its ending names no
            kind of picture, or one that cannot be made here.
    """
    try:
        figure = importlib.import_module("matplotlib.figure").Figure()
    except ImportError as error:
        raise NoMatplotlibError("--plot needs matplotlib: pip install 'kvreg[cli]'") from error
    known = figure.canvas.get_supported_filetypes()
    ending = os.path.splitext(path)[1].removeprefix(".").lower()
    # Without an ending, matplotlib would choose one and write to another file.
    if ending not in known:
        raise ValueError(
            f"the name's ending must be one of {', '.join(f'.{e}' for e in known)}"
        )
    # Some kinds need programs or packages that matplotlib does not bring.
    figure.text(0, 0, "text")
    figure.savefig(io.BytesIO(), format=ending)
    _check_writable(path)


def _check_writable(path: str) -> None:
    is_new = not os.path.lexists(path)
    with open(path, "ab"):
        pass
    if is_new:
        os.unlink(path)


def plot_sweep(points: Sequence[SweepPoint], primary_blocks: int, path: str) -> None:
    """Draw the prefix hit rate against capacity, a line for each policy, to a picture file.

    Raises:
        OSError, RuntimeError, ValueError: As ``check_picture``.
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
