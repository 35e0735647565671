"""Reads traces of requests: JSON lines in the format of the public Mooncake traces.

One object a line, in order of arrival::

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}

Only ``hash_ids`` is required: the ids of the request's blocks in prefix order, where equal ids
name equal content, the prefix before the block included. Other fields are ignored, and blank
lines skipped. Format: Qin et al., "Mooncake", FAST 2025.
"""

from __future__ import annotations

import itertools
import json
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class TraceError(ValueError):
    """A line that is not a request; its text is ``FILE:LINE: reason``."""


@dataclass(frozen=True)
class Request:
    """One request of a trace."""

    hash_ids: tuple[int, ...]
    """Ids of its blocks, in prefix order; may be empty."""


def read_trace(path: Path, limit: int | None = None) -> list[Request]:
    """Return the requests of the trace at ``path``, at most the first ``limit``.

    Raises:
        TraceError: A line up to there is not a request.
        OSError: The file cannot be read.
    """
    return list(itertools.islice(_requests(path), limit))


def _requests(path: Path) -> Iterator[Request]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.isspace():
                continue
            try:
                request = Request(tuple(_hash_ids(_parse(line))))
            except ValueError as error:
                raise TraceError(f"{path}:{number}: {error}") from None
            yield request


def _parse(line: bytes) -> object:
    try:
        return json.loads(line.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _hash_ids(request: object) -> list[int]:
    if not isinstance(request, dict):
        raise ValueError(f"a request is a JSON object; found {reprlib.repr(request)}")
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
