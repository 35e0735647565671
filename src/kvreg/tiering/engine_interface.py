"""What a host tier takes from its engine and gives back to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EngineInterface:
    """The engine's own names, objects and types, which the tier uses without a conversion.

    Attributes:
        lookup_results: What a lookup answers with, for miss, hit and retry.
        job_result: Makes the result of a job of (job_id, success, successful_keys, seconds,
            bytes).
        event: Makes an event of (keys, removed), given by name.
        rows_attribute: The attribute of a job that has its rows.
        drops_fail: Whether a store that drops blocks for lack of room has failed.
    """

    lookup_results: tuple[object, object, object]
    job_result: Callable[[int, bool, list[Any] | None, float, int], object]
    event: Callable[..., object]
    rows_attribute: str
    drops_fail: bool
