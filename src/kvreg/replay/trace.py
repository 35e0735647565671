"""Reads traces of requests: JSON lines in the format of the public Mooncake traces.

One object a line, in order of arrival::

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}

Only ``hash_ids`` is required: the ids of the request's blocks in prefix order, where equal ids
name equal content, the prefix before the block included. ``timestamp`` is when the request
came, in milliseconds; without it the request came one second after the one before. Other fields
are ignored, and blank lines skipped. Format: Qin et al., "Mooncake", FAST 2025.
"""

from __future__ import annotations

import itertools
import json
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SECONDS_APART = 1.0
_LATEST_MS = 1e15  # 30,000 years: a larger number is no time


class TraceError(ValueError):
    """A line that is not a request; its text is ``FILE:LINE: reason``."""


@dataclass(frozen=True)
class Request:
    """One request of a trace."""

    hash_ids: tuple[int, ...]
    """Ids of its blocks, in prefix order; may be empty."""
    seconds: float = 0.0
    """When it came, on the trace's clock."""


def read_trace(path: Path, limit: int | None = None) -> list[Request]:
    """Return the requests of the trace at ``path``, at most the first ``limit``.

    Raises:
        TraceError: A line up to there is not a request.
        OSError: The file cannot be read.
    """
    return list(itertools.islice(_requests(path), limit))


def _requests(path: Path) -> Iterator[Request]:
    seconds = -_SECONDS_APART
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.isspace():
                continue
            try:
                fields = _parse(line)
                request = Request(tuple(_hash_ids(fields)), _seconds(fields, seconds))
            except ValueError as error:
                raise TraceError(f"{path}:{number}: {error}") from None
            seconds = request.seconds
            yield request


def _parse(line: bytes) -> dict[str, object]:
    request = _parse_json(line)
    if not isinstance(request, dict):
        raise ValueError(f"a request is a JSON object; found {reprlib.repr(request)}")
    return request


def _parse_json(line: bytes) -> object:
    try:
        return json.loads(line.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _seconds(request: dict[str, object], before: float) -> float:
    if "timestamp" not in request:
        return before + _SECONDS_APART
    timestamp = request["timestamp"]
    # bool is a subclass of int, and JSON's true is no time.
    if (
        not isinstance(timestamp, (int, float))
        or isinstance(timestamp, bool)
        or not 0 <= timestamp < _LATEST_MS
    ):
        found = reprlib.repr(timestamp)
        raise ValueError(f"'timestamp' must be milliseconds, 0 or more; it is {found}")
    return timestamp / 1000


def _hash_ids(request: dict[str, object]) -> list[int]:
    if "hash_ids" not in request:
        raise ValueError("'hash_ids' is missing")
    hash_ids = request["hash_ids"]
    if not isinstance(hash_ids, list):
        found = reprlib.repr(hash_ids)
        raise ValueError(f"'hash_ids' must be a list of integers; it is {found}")
    for hash_id in hash_ids:
        # bool is a subclass of int, and JSON's true is no id.
        if type(hash_id) is not int:
            found = reprlib.repr(hash_id)
            raise ValueError(f"'hash_ids' must be a list of integers; it contains {found}")
    return hash_ids
