"""The names that a tier's configuration may use."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

# What an engine gives, and a configuration cannot.
_GIVEN_BY_THE_ENGINE = frozenset(
    {"offloading_spec", "primary_kv_view", "tier_type", "backpressure_detector"}
)


def check_parameter_names(
    tier_class: type, names: Iterable[str], passes_on_to: type | None = None
) -> None:
    """Refuse names that are no parameter of the tier's constructor.

    Args:
        tier_class: The tier. One whose constructor takes any name is not checked, unless it is
            known where they go.
        names: Those that the configuration has.
        passes_on_to: The class whose constructor gets what ``tier_class``'s does not name.

    Raises:
        TypeError: Some name is unknown; the message has those that are not.
    """
    taken = list(inspect.signature(tier_class).parameters.values())
    if passes_on_to is not None:
        taken += inspect.signature(passes_on_to).parameters.values()
    elif any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
        return
    allowed = {
        parameter.name for parameter in taken if parameter.kind is not parameter.VAR_KEYWORD
    } - _GIVEN_BY_THE_ENGINE
    unknown = sorted(set(names) - allowed)
    if unknown:
        raise TypeError(
            f"{tier_class.__name__} has no parameter {', '.join(unknown)}; it has "
            f"{', '.join(sorted(allowed))}"
        )
