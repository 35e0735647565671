"""Finds how many tokens a block has, and so the ids that stand for a part of a block.

Engines keep whole blocks only. In the Mooncake traces a request's last id is for the rest of
its tokens, whether they fill a block or not; other traces have ids of whole blocks only. The
number of tokens, ``input_length``, tells which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from kvreg.replay.record import BlockId, Record
from kvreg.replay.source import TraceError

_MOST_TOKENS = 1 << 62


class ChosenBlock(NamedTuple):
    """How many tokens a block has."""

    tokens: int | None
    """None: not known."""
    reason: str
    misfit: Record | None = None
    """The first request that does not go with those before it."""


def choose_block(
    records: Sequence[Record], tokens_per_block: int | Literal["auto", "off"]
) -> ChosenBlock:
    """Return how many tokens a block has: as given, or as the requests tell.

    Args:
        records: The requests.
        tokens_per_block: A number, 1 or more; ``"auto"``: the requests tell; ``"off"``: it is
            not to be known.

    Raises:
        TraceError: A request does not fit the number given, or none has an ``input_length``.
    """
    if tokens_per_block == "off":
        return ChosenBlock(None, "as told")
    if all(record.input_length is None for record in records):
        if tokens_per_block != "auto":
            raise TraceError(
                f"{records[0].where}: 'input_length' is missing, as in all requests: "
                f"{tokens_per_block} tokens a block have no use"
            )
        return ChosenBlock(None, "there is no input_length")
    if tokens_per_block == "auto":
        return infer_block(records)
    for record in records:
        _check_fit(record, tokens_per_block)
    return ChosenBlock(tokens_per_block, "as told")


def infer_block(records: Iterable[Record]) -> ChosenBlock:
    """Return how many tokens of a block explain how many ids each request has.

    It is the only number that fits all requests, or of several the only power of two. A few
    short requests may fit both with a rest and without; then the former is taken.
    """
    with_rest = whole = range(1, _MOST_TOKENS)
    for record in records:
        if record.input_length is None:
            continue
        num_ids = len(record.hash_ids)
        with_rest = _common(with_rest, _fitting_with_rest(record.input_length, num_ids))
        whole = _common(whole, _fitting_whole(record.input_length, num_ids))
        if not with_rest and not whole:
            return ChosenBlock(None, "no number fits every input_length", record)
    tokens = (
        _power_of_two(with_rest) or _power_of_two(whole) or _only(with_rest) or _only(whole)
    )
    if tokens is None:
        return ChosenBlock(None, "several numbers fit every input_length")
    return ChosenBlock(tokens, "fits every input_length")


def whole_blocks(record: Record, tokens_per_block: int | None) -> tuple[BlockId, ...]:
    """Return the ids of the blocks that the request fills; all where that is not known."""
    if record.input_length is None or tokens_per_block is None:
        return record.hash_ids
    return record.hash_ids[: record.input_length // tokens_per_block]


def _check_fit(record: Record, tokens_per_block: int) -> None:
    if record.input_length is None:
        return
    whole, rest = divmod(record.input_length, tokens_per_block)
    if len(record.hash_ids) not in (whole, whole + bool(rest)):
        raise TraceError(
            f"{record.where}: an 'input_length' of {record.input_length} does not fit "
            f"{len(record.hash_ids)} blocks of {tokens_per_block} tokens"
        )


def _fitting_with_rest(num_tokens: int, num_ids: int) -> range:
    """Return the tokens that a block may have where the last id may be for a part of one."""
    # (num_ids - 1) * block < num_tokens <= num_ids * block
    if num_tokens == 0 or num_ids == 0:
        return range(1, _MOST_TOKENS if num_tokens == num_ids else 1)
    longest = (num_tokens - 1) // (num_ids - 1) if num_ids > 1 else _MOST_TOKENS
    return range(-(-num_tokens // num_ids), longest + 1)


def _fitting_whole(num_tokens: int, num_ids: int) -> range:
    """Return the tokens that a block may have where every id is for a whole one."""
    # num_ids * block <= num_tokens < (num_ids + 1) * block
    longest = num_tokens // num_ids if num_ids else _MOST_TOKENS
    return range(num_tokens // (num_ids + 1) + 1, longest + 1)


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _power_of_two(numbers: range) -> int | None:
    """Return the only power of two among ``numbers``."""
    power: int = 1 << (numbers.start - 1).bit_length()
    return power if power in numbers and 2 * power not in numbers else None


def _only(numbers: range) -> int | None:
    return numbers.start if len(numbers) == 1 else None
