"""The calls that vLLM makes of a secondary tier, and a tier's fit to those that it knows.

What vLLM adds to a call with a default is left out, and a method with a default is inherited.
A call that is gone, needs more, or is made with other arguments or in another order is a
difference.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from typing import Any

from vllm.v1.kv_offload.tiering.base import SecondaryTierManager

# What vLLM passes to each method, by position or by name.
_OF_ALL_VERSIONS = {
    "build_metric_definitions": ["extra_config"],
    "drain_jobs": [],
    "get_finished_jobs": [],
    "get_stats": [],
    "has_pending_work": [],
    "lookup": ["key", "req_context"],
    "on_new_request": ["req_context"],
    "on_request_finished": ["req_context"],
    "on_schedule_end": ["context"],
    "shutdown": [],
    "submit_load": ["job_metadata"],
    "submit_store": ["job_metadata"],
    "take_events": [],
}
_OF_SOME_VERSIONS = {
    "config_info": [],
    "config_info_keys": ["tier_config"],
    "touch": ["keys", "req_context"],
}
_CALLS: dict[str, list[str]] = {**_OF_ALL_VERSIONS, **_OF_SOME_VERSIONS}
_OF_THE_CLASS = {"build_metric_definitions", "config_info_keys"}
_CONSTRUCTOR = ["offloading_spec", "primary_kv_view", "tier_type"]


def differences_of_calls() -> Iterator[str]:
    """Tell how the calls of the vLLM that is installed differ from those that are known."""
    for name in sorted(SecondaryTierManager.__abstractmethods__ - _CALLS.keys()):
        yield f"a tier must define {name}"
    yield from call_differences("a tier", SecondaryTierManager, *_CONSTRUCTOR)
    for name in _CALLS:
        method = _of_vllm(name)
        if method is None and name in _OF_ALL_VERSIONS:
            yield f"a tier's {name} is not called"
        elif method is not None:
            yield from _differences_of_method(name, method)


def call_differences(what: str, of: Any, *names: str) -> Iterator[str]:
    """Tell why a function, or a class's constructor, cannot be called with these, by name."""
    try:
        inspect.signature(of).bind(**dict.fromkeys(names))
    except TypeError as error:
        yield f"{what}: {error}"


def parameters_for_vllm(taken: Collection[str]) -> set[str]:
    """Return the parameters of vLLM's own constructor that a tier has to pass on to it.

    Args:
        taken: Names of the parameters that are the tier's own.
    """
    parameters = inspect.signature(SecondaryTierManager).parameters
    return set(parameters).difference(_CONSTRUCTOR, taken)


def fit(tier_class: type) -> None:
    """Fit a tier's class to the vLLM that is installed.

    Where vLLM may pass more to a method than is known, the tier leaves that out. Where vLLM has
    come to use a name that was the tier's alone, it finds there what it has itself.
    """
    for name in dir(SecondaryTierManager):
        if name in _CALLS:
            if len(_passed(_of_vllm(name))) > len(_CALLS[name]):
                setattr(tier_class, name, _without_more(tier_class, name))
        elif not name.startswith("_") and name not in vars(tier_class):
            setattr(tier_class, name, _of_vllm(name))


def _differences_of_method(name: str, method: Any) -> Iterator[str]:
    if isinstance(method, classmethod) != (name in _OF_THE_CLASS) or not callable(
        _function(method)
    ):
        yield f"a tier's {name} is a {type(method).__name__}"
        return
    known, passed = _CALLS[name], _passed(method)
    demanded = [p for p in passed[len(known) :] if p.default is p.empty]
    if [p.name for p in passed[: len(known)]] != known or demanded:
        names = ", ".join(p.name for p in passed) or "nothing"
        yield f"a tier's {name} is called with {names}"


def _of_vllm(name: str) -> Any:
    """Return what vLLM's class of tiers has by a name, as it stands in the class; or None."""
    return inspect.getattr_static(SecondaryTierManager, name, None)


def _function(method: Any) -> Any:
    return getattr(method, "__func__", method)


def _passed(method: Any) -> list[inspect.Parameter]:
    """Return what a method takes beside the tier, or the class, that it is called of."""
    _, *parameters = inspect.signature(_function(method)).parameters.values()
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _without_more(tier_class: type, name: str) -> Any:
    """Return a tier's method, made to leave out what it is given beyond what is known."""
    method = inspect.getattr_static(tier_class, name)
    function, known = _function(method), _CALLS[name]

    def call(of: Any, /, *values: Any, **named: Any) -> Any:
        kept = {key: value for key, value in named.items() if key in known}
        return function(of, *values[: len(known)], **kept)

    return classmethod(call) if isinstance(method, classmethod) else call
