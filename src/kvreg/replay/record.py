"""Parses one line of a trace."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass

BlockId = int | str

_LATEST = 1e21  # 30,000 years in the finest unit, nanoseconds: a larger number is no time


@dataclass(frozen=True)
class Record:
    """What a line says of its request."""

    where: str
    """``FILE:LINE``."""
    hash_ids: tuple[BlockId, ...]
    timestamp: float | None
    """In the trace's unit."""
    input_length: int | None
    """In tokens."""


def parse_record(where: str, line: str) -> Record:
    """Return what ``line`` says, which stands at ``where``.

    Raises:
        ValueError: It is not a request.
    """
    fields = _parse_json(line)
    if not isinstance(fields, dict):
        raise ValueError(f"a request is a JSON object; found {reprlib.repr(fields)}")
    return Record(where, _hash_ids(fields), _timestamp(fields), _input_length(fields))


def _parse_json(line: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _hash_ids(fields: dict[str, object]) -> tuple[BlockId, ...]:
    if "hash_ids" not in fields:
        raise ValueError("'hash_ids' is missing")
    hash_ids = fields["hash_ids"]
    if not isinstance(hash_ids, list):
        raise ValueError(
            f"'hash_ids' must be a list of integers or strings; it is {reprlib.repr(hash_ids)}"
        )
    return tuple(map(_block_id, hash_ids))


def _block_id(value: object) -> BlockId:
    # bool is a subclass of int, and JSON's true is no id. Nor is "", which a log without a hash
    # has for every block alike.
    if type(value) is int:
        return value
    if not isinstance(value, str) or not value:
        raise ValueError(
            "'hash_ids' must be a list of integers or strings that are not empty; "
            f"it contains {reprlib.repr(value)}"
        )
    # 7 and "7" are one id.
    try:
        number = int(value)
    except ValueError:
        return value
    return number if str(number) == value else value


def _timestamp(fields: dict[str, object]) -> float | None:
    if "timestamp" not in fields:
        return None
    timestamp = fields["timestamp"]
    # bool is a subclass of int, and JSON's true is no time.
    if (
        not isinstance(timestamp, (int, float))
        or isinstance(timestamp, bool)
        or not 0 <= timestamp < _LATEST
    ):
        raise ValueError(
            "'timestamp' must be a number of seconds or of a part of them, 0 or more; "
            f"it is {reprlib.repr(timestamp)}"
        )
    return timestamp


def _input_length(fields: dict[str, object]) -> int | None:
    if "input_length" not in fields:
        return None
    tokens = fields["input_length"]
    if type(tokens) is not int or tokens < 0:
        raise ValueError(
            "'input_length' must be a number of tokens, 0 or more; "
            f"it is {reprlib.repr(tokens)}"
        )
    return tokens
