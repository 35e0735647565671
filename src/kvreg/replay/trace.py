"""Reads traces of requests: JSON lines in the format of the public Mooncake traces.

One object a line, in order of arrival::

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}

Only ``hash_ids`` is required: the ids of the request's blocks in prefix order, where equal ids
name equal content, the prefix before the block included. An id is an integer of any size or a
string; 7 and ``"7"`` are one id, and other strings are the same where they are written alike.

``timestamp`` is when the request came, in a unit that ``clock`` finds out; without it the
request came one second after the one before. ``input_length`` is how many tokens the request
has: ``whole_blocks`` finds by it the ids that stand for a part of a block, and they are left
out. Other fields are ignored, and blank lines skipped. Format: Qin et al., "Mooncake", FAST
2025.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kvreg.replay.clock import ChosenUnit, StepBack, choose_unit, steps_back, tell_seconds
from kvreg.replay.record import BlockId, Record, parse_record
from kvreg.replay.source import TraceError, read_lines, source_name
from kvreg.replay.whole_blocks import ChosenBlock, choose_block, whole_blocks


@dataclass(frozen=True)
class Request:
    """One request of a trace."""

    hash_ids: tuple[BlockId, ...]
    """Ids of its blocks, in prefix order; may be empty."""
    seconds: float = 0.0
    """When it came, on the trace's clock."""


@dataclass(frozen=True)
class Reading:
    """How a trace was read, where it does not say so itself."""

    timestamp_unit: str | None
    """One of ``TIMESTAMP_UNITS``; None: the trace has no timestamps."""
    timestamp_unit_reason: str
    steps_back: int
    """How many requests came before the one on the line before."""
    sorted: bool
    """Whether requests were put in order of time."""
    tokens_per_block: int | None
    """None: not known, and every id counts as a whole block."""
    tokens_per_block_reason: str
    partial_blocks: int
    """How many ids were left out, since they stand for a part of a block."""


@dataclass(frozen=True)
class Trace:
    """A trace that was read."""

    requests: Sequence[Request]
    reading: Reading
    warnings: Sequence[str]
    """What may not be as it was taken; each begins with the name of the file."""


def read_trace(
    path: str | os.PathLike[str],
    limit: int | None = None,
    *,
    timestamp_unit: str = "auto",
    sort: bool = False,
    tokens_per_block: int | Literal["auto", "off"] = "auto",
) -> Trace:
    """Return the trace at ``path``.

    Args:
        path: Of a file, or ``STDIN``; what gzip has compressed is decompressed.
        limit: How many requests to return, from the first. No line after them is read, unless
            they are to be sorted.
        timestamp_unit: One of ``TIMESTAMP_UNITS``, or ``"auto"``: see ``detect_unit``.
        sort: Whether to put requests in order of time; those of one time stay in their order.
        tokens_per_block: A number, 1 or more; ``"auto"``: see ``infer_block``; ``"off"``: every
            id counts as a whole block.

    Raises:
        TraceError: A line is not a request or does not fit the arguments, or there is none.
        OSError: The file cannot be opened.
    """
    records = list(itertools.islice(_records(path), None if sort else limit))
    if not records:
        raise TraceError(f"{source_name(path)}: no requests")
    unit = choose_unit(records, timestamp_unit)
    seconds = tell_seconds(records, unit.name)
    back = steps_back(records, seconds)
    block = choose_block(records, tokens_per_block)
    arrivals = list(zip(seconds, records, strict=True))
    if sort:
        arrivals = sorted(arrivals, key=operator.itemgetter(0))[:limit]
    requests = [
        Request(whole_blocks(record, block.tokens), second) for second, record in arrivals
    ]
    reading = Reading(
        timestamp_unit=unit.name,
        timestamp_unit_reason=unit.reason,
        steps_back=len(back),
        sorted=sort,
        tokens_per_block=block.tokens,
        tokens_per_block_reason=block.reason,
        partial_blocks=sum(
            len(record.hash_ids) - len(request.hash_ids)
            for (_, record), request in zip(arrivals, requests, strict=True)
        ),
    )
    doubts = [*_doubts_of_unit(unit, source_name(path)), *_doubts_of_block(block)]
    return Trace(requests, reading, doubts if sort else [*doubts, *_doubts_of_order(back)])


def _records(path: str | os.PathLike[str]) -> Iterator[Record]:
    for where, line in read_lines(path):
        try:
            record = parse_record(where, line)
        except ValueError as error:
            raise TraceError(f"{where}: {error}") from None
        yield record


def _doubts_of_unit(unit: ChosenUnit, name: str) -> Iterator[str]:
    if not unit.is_certain:
        yield (
            f"{name}: timestamps are taken as {unit.name}: {unit.reason}; "
            "--timestamp-unit says what they are"
        )


def _doubts_of_block(block: ChosenBlock) -> Iterator[str]:
    if block.misfit is not None:
        yield (
            f"{block.misfit.where}: 'input_length' is {block.misfit.input_length} for "
            f"{len(block.misfit.hash_ids)} ids: no number of tokens a block fits it and the "
            "requests before, and every id is taken as a whole block; --tokens-per-block says "
            "what they are"
        )


def _doubts_of_order(back: Sequence[StepBack]) -> Iterator[str]:
    if back:
        farthest = max(back, key=operator.attrgetter("seconds"))
        times = "once" if len(back) == 1 else f"the farthest of {len(back):,} times"
        yield (
            f"{farthest.where}: time goes back by {farthest.seconds:,.6g} s, {times}; "
            "--sort replays requests in order of time"
        )
