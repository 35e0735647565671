"""What the tier needs of vLLM's interface for secondary tiers, and whether it is there.

What a vLLM adds with a default changes nothing here: fields, members, parameters, methods. What
it removes, renames or demands makes the tier unavailable, and the message says what that is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import vllm.v1.kv_offload.base as offload
import vllm.v1.kv_offload.tiering.base as tiering
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

from kvreg.tiering.engine_interface import EngineInterface
from kvreg.vllm.calls import call_differences, differences_of_calls

_MEMBERS = {
    "LookupResult": ["MISS", "HIT", "RETRY"],
    "Medium": ["CPU"],
    "Locality": ["LOCAL", "REMOTE"],
}
_RESULT = ["job_id", "success", "successful_keys", "transfer_time", "transfer_bytes"]


class UnknownInterfaceError(ImportError):
    """The vLLM that is installed lacks what the tier needs, or demands what it has not."""


def read_interface() -> EngineInterface:
    """Return what the tier has to know of the vLLM that is installed.

    Raises:
        UnknownInterfaceError: vLLM's interface is not one that the tier fits; says where.
    """
    require(_differences())
    results = offload.LookupResult
    return EngineInterface(
        lookup_results=(results.MISS, results.HIT, results.RETRY),
        job_result=_job_result(),
        event=offload.OffloadingEvent,
        rows_attribute=_rows_attribute(),
        drops_fail=False,
    )


def require(differences: Iterator[str]) -> None:
    """Raise an `UnknownInterfaceError` that tells all differences, where there are any."""
    found: list[str] = []
    try:
        found.extend(differences)
    except (AttributeError, TypeError, ValueError) as error:
        found.append(str(error))
    if found:
        raise UnknownInterfaceError(f"this vLLM has another tier interface: {'; '.join(found)}")


def takes(of: Callable[..., object], name: str) -> bool:
    """Whether a function, or a class's constructor, has a parameter of this name."""
    return name in inspect.signature(of).parameters


def _differences() -> Iterator[str]:
    yield from differences_of_calls()
    for field in ("job_id", "keys", _rows_attribute()):
        if not takes(tiering.TransferJob, field):
            yield f"a job has no {field}"
    yield from call_differences("a job's result", tiering.JobResult, *_fields_of_result())
    event = ("keys", "medium", "removed", "locality")
    yield from call_differences("an event", offload.OffloadingEvent, *event)
    yield from call_differences("a request's context", offload.RequestOffloadingContext)
    registered = ("tier_type", "module_path", "class_name")
    yield from call_differences(
        "a tier type's registration", SecondaryTierFactory.register_tier, *registered
    )
    for enum, members in _MEMBERS.items():
        for member in members:
            if member not in getattr(offload, enum).__members__:
                yield f"{enum} has no {member}"


def _rows_attribute() -> str:
    """Return where a job has its rows: in ``chunk_ids``, up to 0.29 in ``block_ids``."""
    job = tiering.TransferJob
    return "block_ids" if takes(job, "block_ids") > takes(job, "chunk_ids") else "chunk_ids"


def _fields_of_result() -> list[str]:
    # Up to 0.30 there is none for the bytes.
    return _RESULT if takes(tiering.JobResult, _RESULT[-1]) else _RESULT[:-1]


def _job_result() -> Callable[[int, bool, list[Any] | None, float, int], object]:
    result: Callable[..., object] = tiering.JobResult
    parameters = inspect.signature(result).parameters.values()
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if by_position[: len(_RESULT)] == _RESULT:
        return result
    fields = _fields_of_result()

    def by_name(*values: object) -> object:
        return result(**dict(zip(fields, values, strict=False)))

    return by_name
