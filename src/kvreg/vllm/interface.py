"""vLLM's interface for secondary tiers, as vLLM 0.28 to 0.33 have it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import vllm.v1.kv_offload.base as offload
import vllm.v1.kv_offload.tiering.base as tiering
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

from kvreg.tiering.engine_interface import EngineInterface

_METHODS_OF_THE_TIER = frozenset(
    {
        "drain_jobs",
        "get_finished_jobs",
        "lookup",
        "on_new_request",
        "submit_load",
        "submit_store",
    }
)


class UnknownInterfaceError(ImportError):
    """The vLLM that is installed has another tier interface than those known."""


def read_interface() -> EngineInterface:
    """Return what the tier has to know of the vLLM that is installed.

    Raises:
        UnknownInterfaceError: vLLM's interface is not one of those known; says where.
    """
    try:
        strange = [what for what, is_known in _facts() if not is_known]
    except (AttributeError, TypeError, ValueError) as error:
        strange = [str(error)]
    if strange:
        raise UnknownInterfaceError(f"this vLLM has another tier interface: {strange[0]}")
    results = offload.LookupResult
    return EngineInterface(
        lookup_results=(results.MISS, results.HIT, results.RETRY),
        job_result=_job_result(),
        event=offload.OffloadingEvent,
        rows_attribute=_rows_attribute(),
        drops_fail=False,
    )


def takes(of: Callable[..., object], name: str) -> bool:
    """Whether a function, or a class's constructor, has a parameter of this name."""
    return name in _parameters(of)


def _facts() -> list[tuple[str, bool]]:
    tier = tiering.SecondaryTierManager
    constructor = _parameters(tier)
    job = _parameters(tiering.TransferJob)
    result = _parameters(tiering.JobResult)
    event = _parameters(offload.OffloadingEvent)
    register = _parameters(SecondaryTierFactory.register_tier)
    unknown = sorted(tier.__abstractmethods__ - _METHODS_OF_THE_TIER)
    return [
        (f"a tier must define {', '.join(unknown)}", not unknown),
        (
            f"a tier is made of {', '.join(constructor)}",
            constructor[:3] == ["offloading_spec", "primary_kv_view", "tier_type"]
            and constructor[3:] in ([], ["backpressure_detector"]),
        ),
        (
            f"a job has {', '.join(job)}",
            {"job_id", "keys"} <= set(job) and bool(_rows_attribute()),
        ),
        (
            f"a job's result has {', '.join(result)}",
            result[:4] == ["job_id", "success", "successful_keys", "transfer_time"]
            and result[4:] in ([], ["transfer_bytes"]),
        ),
        (f"an event has {', '.join(event)}", {"keys", "medium", "removed"} <= set(event)),
        (
            f"a tier type is registered with {', '.join(register)}",
            register == ["tier_type", "module_path", "class_name"],
        ),
        (
            "a lookup answers other than MISS, HIT and RETRY",
            {"MISS", "HIT", "RETRY"} <= set(offload.LookupResult.__members__),
        ),
        ("there is no medium CPU", "CPU" in offload.Medium.__members__),
        ("its metrics have no counters", hasattr(offload, "OffloadingCounterMetadata")),
        ("its metrics have no gauges", hasattr(offload, "OffloadingGaugeMetadata")),
    ]


def _parameters(of: Callable[..., object]) -> list[str]:
    return list(inspect.signature(of).parameters)


def _rows_attribute() -> str:
    """Return where a job has its rows: ``chunk_ids``, up to 0.29 ``block_ids``; or nothing."""
    names = {"chunk_ids", "block_ids"} & set(_parameters(tiering.TransferJob))
    return names.pop() if len(names) == 1 else ""


def _job_result() -> Callable[[int, bool, list[Any] | None, float, int], object]:
    result: Callable[..., object] = tiering.JobResult
    if takes(result, "transfer_bytes"):
        return result

    def without_bytes(
        job_id: int, success: bool, keys: list[Any] | None, seconds: float, _bytes: int
    ) -> object:
        return result(job_id, success, keys, seconds)

    return without_bytes
