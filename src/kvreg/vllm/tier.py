"""The host-memory tier as a secondary tier of vLLM."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from vllm.v1.kv_offload.base import (
    Locality,
    Medium,
    OffloadingEvent,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import SecondaryTierManager

from kvreg.tiering.host import HostMemoryTier
from kvreg.tiering.parameter_names import check_parameter_names
from kvreg.vllm.calls import fit, parameters_for_vllm
from kvreg.vllm.interface import read_interface, takes
from kvreg.vllm.metrics import TierMetrics, metric_definitions

if TYPE_CHECKING:
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
        OffloadingConnectorStats,
    )
    from vllm.v1.kv_offload.base import (
        OffloadingMetricMetadata,
        OffloadingSpec,
        OffloadKey,
        ReqContext,
    )

logger = logging.getLogger(__name__)

_INTERFACE = read_interface()

# Labels of vLLM's configuration metric, and the figures of TierStats that they show.
_CONFIG_INFO = {"kvreg_num_chunks": "slots_total", "kvreg_num_threads": "num_threads"}


class HostMemoryTierManager(HostMemoryTier, SecondaryTierManager):
    """A ``kvreg.tiering.HostMemoryTier`` that vLLM drives.

    A store that finds no room for some chunks has succeeded, as vLLM counts it: what is dropped
    is told by ``transfer_bytes`` and a metric.

    Args:
        offloading_spec: vLLM's offloading configuration.
        primary_kv_view: The primary tier's buffer, shape ``(num_chunks, row_bytes)``.
        tier_type: The name under which vLLM's configuration asked for the tier.
        locality: ``"LOCAL"`` or ``"REMOTE"``, for vLLM's tier filters and KV events.
        enable_kv_events: Tell vLLM what is stored and removed. It takes effect where vLLM
            publishes KV events.
        keep_on_reset: Keep the content when vLLM resets its caches, as it does when its weights
            change: what the tier then serves may have been computed with the old ones.
        parameters: Those of vLLM's own constructor go to it, as ``backpressure_detector`` does
            from 0.31 on; all others are those of ``HostMemoryTier``.

    Raises:
        TypeError: A parameter's name is unknown.
        TypeError, ValueError, MemoryError, OSError: As ``HostMemoryTier``.
    """

    medium: ClassVar[Medium] = Medium.CPU
    # Set by the constructors, also where vLLM comes to have properties of these names.
    offloading_spec: Any = None
    tier_type: str = ""
    locality: Locality | None = None

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        *,
        locality: str | None = None,
        enable_kv_events: bool = False,
        keep_on_reset: bool = False,
        **parameters: Any,
    ) -> None:
        for_vllm = {name: parameters.pop(name) for name in _FOR_VLLM & parameters.keys()}
        check_parameter_names(HostMemoryTierManager, parameters, HostMemoryTier)
        if not isinstance(keep_on_reset, bool):
            raise ValueError(f"keep_on_reset must be True or False, not {keep_on_reset!r}")
        SecondaryTierManager.__init__(
            self,
            offloading_spec=offloading_spec,
            primary_kv_view=primary_kv_view,
            tier_type=tier_type,
            **for_vllm,
        )
        self.locality = _as_locality(locality)
        # Two underscores: vLLM's class may come to have attributes of such names.
        self.__keep_on_reset = keep_on_reset
        self.__metrics = TierMetrics()
        self._engine_interface = replace(
            _INTERFACE, event=_event_factory(tier_type, self.locality)
        )
        HostMemoryTier.__init__(
            self,
            offloading_spec,
            primary_kv_view,
            tier_type,
            enable_kv_events=_published(enable_kv_events, offloading_spec, tier_type),
            **parameters,
        )

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Ask for the chunks computed for the request; prefix hits are here already."""
        self._require_usable()
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Count the request's chunks as just used, its last ones first.

        Where vLLM does not tell them, what was stored and loaded counts as used, and nothing
        else; that is warned of once.
        """
        keys = _keys_in_order(req_context)
        if keys is None:
            _warn_of_unknown_use()
        else:
            self.touch(keys, req_context)
        super().on_request_finished(req_context)

    def drain_jobs(self) -> None:
        """Wait until no job touches the primary tier, and forget all chunks unless told not to.

        vLLM calls it when it resets its caches, and at no other time, and does not tell its
        secondary tiers to forget what the old weights computed.
        """
        if self.__keep_on_reset:
            super().drain_jobs()
        else:
            HostMemoryTier.reset(self)

    @classmethod
    def build_metric_definitions(
        cls, extra_config: dict[str, Any]
    ) -> dict[str, OffloadingMetricMetadata]:
        """Return the Prometheus metrics that the tier has."""
        return metric_definitions()

    def get_stats(self) -> OffloadingConnectorStats:
        """Return the metrics' values: gauges, and counters' increases since the last call."""
        return self.__metrics.take(HostMemoryTier.stats(self), self.__tier_label)

    @classmethod
    def config_info_keys(cls, tier_config: dict[str, Any]) -> tuple[str, ...]:
        """Return the labels that the tier adds to vLLM's configuration metric, from 0.33 on."""
        return tuple(_CONFIG_INFO)

    def config_info(self) -> Mapping[str, int]:
        """Return the labels' values."""
        stats = HostMemoryTier.stats(self)
        return {label: getattr(stats, figure) for label, figure in _CONFIG_INFO.items()}

    @functools.cached_property
    def __tier_label(self) -> str:
        # As vLLM labels its own metrics of the tier, where it tells the tier's place.
        tiers = getattr(self.offloading_spec.get_manager(), "secondary_tiers", ())
        return f"{tiers.index(self) + 1}:{self.tier_type}" if self in tiers else self.tier_type


fit(HostMemoryTierManager)

_FOR_VLLM = parameters_for_vllm(
    {
        *inspect.signature(HostMemoryTierManager).parameters,
        *inspect.signature(HostMemoryTier).parameters,
    }
)


def _keys_in_order(req_context: ReqContext) -> list[OffloadKey] | None:
    """Return all keys of a request, in prefix order; None where this vLLM does not tell them.

    It does from 0.31 on, under a private name. What is public, up to 0.34, tells the place of a
    key in the request, and not which keys there are.
    """
    end_tokens = getattr(req_context, "_offload_key_positions", None)
    # One key tells the type of all: a look at each would take as long as the sorting.
    if not isinstance(end_tokens, dict) or not isinstance(next(iter(end_tokens), b""), bytes):
        return None
    try:
        return sorted(end_tokens, key=end_tokens.__getitem__)
    except TypeError:
        return None


@functools.cache
def _warn_of_unknown_use() -> None:
    # Up to 0.30 vLLM tells the use by calls of touch.
    if not hasattr(SecondaryTierManager, "touch"):
        logger.warning(
            "this vLLM does not tell its tiers what a finished request used: the tier 'kvreg' "
            "gives up chunks by when they were stored and loaded"
        )


def _as_locality(name: str | None) -> Locality | None:
    if name is None:
        return None
    if not isinstance(name, str) or name not in Locality.__members__:
        allowed = ", ".join(repr(member) for member in Locality.__members__)
        raise ValueError(f"locality must be None or one of {allowed}, not {name!r}")
    return Locality[name]


def _event_factory(tier_type: str, locality: Locality | None) -> Callable[..., object]:
    # Without an owner vLLM takes the chunk for one of its primary tier, of the same medium.
    more = {"ownership": tier_type, "removal_expected": True}
    known = {name: value for name, value in more.items() if takes(OffloadingEvent, name)}
    return functools.partial(OffloadingEvent, medium=Medium.CPU, locality=locality, **known)


def _published(enable_kv_events: bool, offloading_spec: OffloadingSpec, tier_type: str) -> bool:
    """Return whether to keep events: not where vLLM never takes them."""
    config = getattr(offloading_spec, "kv_events_config", None)
    if enable_kv_events is not True or getattr(config, "enable_kv_cache_events", False):
        return enable_kv_events
    logger.warning(
        "tier %r has enable_kv_events, but vLLM does not publish KV events: it keeps none",
        tier_type,
    )
    return False
