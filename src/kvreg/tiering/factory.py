"""Creates secondary tiers from an engine's configuration."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from kvreg.tiering.base import SecondaryTierManager
from kvreg.tiering.parameter_names import check_parameter_names

logger = logging.getLogger(__name__)


class _ClassLocation(NamedTuple):
    module_path: str
    class_name: str


class SecondaryTierFactory:
    """Creates tiers by registered name, or by module path for out-of-tree tiers.

    Source: vLLM's ``SecondaryTierFactory`` (``vllm/v1/kv_offload/tiering/factory.py``).
    """

    _registry: ClassVar[dict[str, _ClassLocation]] = {}
    _warned_out_of_tree: ClassVar[bool] = False

    @classmethod
    def register_tier(cls, tier_type: str, module_path: str, class_name: str) -> None:
        """Make ``tier_type`` stand for a class that is imported when it is first asked for.

        Raises:
            ValueError: ``tier_type`` is registered already.
        """
        if tier_type in cls._registry:
            registered = ".".join(cls._registry[tier_type])
            raise ValueError(f"tier type {tier_type!r} is already registered, for {registered}")
        cls._registry[tier_type] = _ClassLocation(module_path, class_name)

    @classmethod
    def get_tier_class(cls, tier_config: Mapping[str, Any]) -> type[SecondaryTierManager]:
        """Return the class that ``tier_config`` names.

        Args:
            tier_config: ``"type"`` is a registered name, or, together with ``"module_path"``,
                the name of a class in that module.

        Raises:
            ValueError: ``"type"`` is missing, or unknown while there is no ``"module_path"``,
                or the module has no such attribute.
            TypeError: what was found is not a ``SecondaryTierManager`` class.
            ImportError: the module cannot be imported.
        """
        tier_type = tier_config.get("type")
        if not tier_type or not isinstance(tier_type, str):
            raise ValueError(
                f"a tier's configuration needs 'type', one of {sorted(cls._registry)} or, with "
                f"'module_path', a class name; it has {dict(tier_config)!r}"
            )
        location = cls._registry.get(tier_type)
        if location is not None:
            return _import_tier_class(location)
        module_path = tier_config.get("module_path")
        if module_path is not None and not isinstance(module_path, str):
            raise ValueError(
                f"'module_path' of tier {tier_type!r} must be the dotted name of a module, not "
                f"{module_path!r}"
            )
        if not module_path:
            raise ValueError(
                f"unknown tier type {tier_type!r}: known are {sorted(cls._registry)}; "
                f"for an out-of-tree tier give 'module_path' as well"
            )
        cls._announce_out_of_tree(tier_type, module_path)
        return _import_tier_class(_ClassLocation(module_path, tier_type))

    @classmethod
    def create_secondary_tier(
        cls,
        tier_config: Mapping[str, Any],
        primary_kv_view: memoryview,
        offloading_spec: object,
    ) -> SecondaryTierManager:
        """Create the tier that ``tier_config`` describes.

        Args:
            tier_config: As for ``get_tier_class``; every other item becomes a keyword argument
                of the tier's constructor. It is not changed.
            primary_kv_view: The primary tier's buffer, shape ``(num_blocks, row_bytes)``.
            offloading_spec: Passed on to the tier.

        Raises:
            ValueError, TypeError, ImportError: As ``get_tier_class``, and whatever the
                constructor raises.
            TypeError: ``tier_config`` has an item that the constructor does not take.
        """
        tier_class = cls.get_tier_class(tier_config)
        parameters = {k: v for k, v in tier_config.items() if k not in ("type", "module_path")}
        check_parameter_names(tier_class, parameters)
        return tier_class(
            offloading_spec=offloading_spec,
            primary_kv_view=primary_kv_view,
            tier_type=tier_config["type"],
            **parameters,
        )

    @classmethod
    def _announce_out_of_tree(cls, tier_type: str, module_path: str) -> None:
        if not cls._warned_out_of_tree:
            cls._warned_out_of_tree = True
            logger.warning(
                "loading out-of-tree tier %s from %s: the interface for these may still change",
                tier_type,
                module_path,
            )
        logger.info("loading out-of-tree tier %s from %s", tier_type, module_path)


def _import_tier_class(location: _ClassLocation) -> type[SecondaryTierManager]:
    module = importlib.import_module(location.module_path)
    try:
        tier_class = getattr(module, location.class_name)
    except AttributeError:
        raise ValueError(
            f"module {location.module_path!r} has no class {location.class_name!r}"
        ) from None
    if not (isinstance(tier_class, type) and issubclass(tier_class, SecondaryTierManager)):
        raise TypeError(
            f"{location.module_path}.{location.class_name} must be a subclass of "
            f"SecondaryTierManager; it is {tier_class!r}"
        )
    return tier_class


SecondaryTierFactory.register_tier("host", "kvreg.tiering.host", "HostMemoryTier")
