"""Tells when requests came, by timestamps whose unit the trace does not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvreg.replay.record import Record
from kvreg.replay.source import TraceError

TIMESTAMP_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""The units by name, and how many make a second."""

# From here on all timestamps are moments since 1970: as seconds they are of 2001, and no trace
# begins after 11 days, which is what they are as milliseconds.
_EARLIEST_MOMENT = 10**9
_LATEST_MOMENT_S = 10**11  # of the year 5138; as milliseconds, of 1973
# Of the mean gap between requests. Below the first, milliseconds would be over 1,000 requests a
# second; below the second, over 10; above it, seconds would be under 0.01.
_SHORT_GAP = 1
_LONG_GAP = 100
_SECONDS_APART = 1.0
_LATEST_S = 1e12  # 30,000 years: a larger number is no time


class ChosenUnit(NamedTuple):
    """The unit of a trace's timestamps."""

    name: str | None
    """One of ``TIMESTAMP_UNITS``; None where there are no timestamps."""
    reason: str
    is_certain: bool


class StepBack(NamedTuple):
    """A request that came before the one before it."""

    where: str
    """``FILE:LINE``."""
    seconds: float
    """By how much."""


def choose_unit(records: Sequence[Record], unit: str) -> ChosenUnit:
    """Return the unit of the requests' timestamps.

    Args:
        records: The requests.
        unit: One of ``TIMESTAMP_UNITS``, or ``"auto"``: see ``detect_unit``.
    """
    timestamps = [record.timestamp for record in records if record.timestamp is not None]
    if unit == "auto" or not timestamps:
        return detect_unit(timestamps)
    return ChosenUnit(unit, "as told", True)


def detect_unit(timestamps: Sequence[float]) -> ChosenUnit:
    """Return the unit that explains ``timestamps`` best.

    Where the least of them is 10^9 or more, they are moments since 1970: seconds below 10^11,
    milliseconds below 10^14, microseconds below 10^17, else nanoseconds. Other timestamps are
    milliseconds, but seconds where their mean gap is less than 1, or where some have fractions
    and it is less than 100. Of those it is not certain that any are seconds, nor that whole
    numbers with a gap of less than 100 are milliseconds.
    """
    if not timestamps:
        return ChosenUnit(None, "one request a second", True)
    earliest, latest = min(timestamps), max(timestamps)
    if earliest >= _EARLIEST_MOMENT:
        fitting = (
            u for u, per_s in TIMESTAMP_UNITS.items() if earliest < _LATEST_MOMENT_S * per_s
        )
        return ChosenUnit(next(fitting, "ns"), "moments since 1970", True)
    if earliest == latest:
        return ChosenUnit("ms", "all are equal", True)
    return _unit_of_gap(
        (latest - earliest) / (len(timestamps) - 1), any(time % 1 for time in timestamps)
    )


def _unit_of_gap(gap: float, has_fractions: bool) -> ChosenUnit:
    if gap >= _LONG_GAP:
        return ChosenUnit("ms", f"the mean gap is {gap:,.0f}", True)
    if gap < _SHORT_GAP:
        reason = f"with a mean gap of {gap:.3g}, ms would be over 1,000 requests a second"
        return ChosenUnit("s", reason, False)
    if has_fractions:
        reason = (
            f"with fractions and a mean gap of {gap:.3g}, ms would be over 10 requests a second"
        )
        return ChosenUnit("s", reason, False)
    return ChosenUnit(
        "ms", f"whole numbers with a mean gap of {gap:.3g} may be seconds, too", False
    )


def tell_seconds(records: Sequence[Record], unit: str | None) -> list[float]:
    """Return when each request came; without a timestamp, 1 second after the one before.

    Args:
        records: The requests in the trace's order.
        unit: One of ``TIMESTAMP_UNITS``; None where there are no timestamps.

    Raises:
        TraceError: A timestamp is no time in this unit.
    """
    seconds: list[float] = []
    for record in records:
        if record.timestamp is None or unit is None:
            seconds.append(seconds[-1] + _SECONDS_APART if seconds else 0.0)
        else:
            seconds.append(record.timestamp / TIMESTAMP_UNITS[unit])
        if seconds[-1] >= _LATEST_S:
            raise TraceError(
                f"{record.where}: 'timestamp' must be less than {_LATEST_S:.0e} seconds; it is "
                f"{record.timestamp} {unit}"
            )
    return seconds


def steps_back(records: Sequence[Record], seconds: Sequence[float]) -> list[StepBack]:
    """Return where time goes back from one request to the next."""
    return [
        StepBack(record.where, before - now)
        for record, before, now in zip(records[1:], seconds, seconds[1:], strict=False)
        if now < before
    ]
