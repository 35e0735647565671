"""What the tier tells Prometheus through vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
    OffloadingMetricMetadata,
)

from kvreg.tiering.stats import TierStats
from kvreg.vllm.calls import call_differences
from kvreg.vllm.interface import require

# When an engine ends, vLLM unregisters the metrics that have "vllm" in their names.
_PREFIX = "vllm:kv_offload_kvreg_"


def _differences() -> Iterator[str]:
    for of in (OffloadingCounterMetadata, OffloadingGaugeMetadata):
        yield from call_differences("a metric", of, "documentation", "labelnames")
    stats = OffloadingConnectorStats
    yield from call_differences("a tier's stats", stats)
    gauge = ("self", "gauge_name", "gauge_value", "labelvalues")
    yield from call_differences("set_gauge", stats.set_gauge, *gauge)
    counter = ("self", "counter_name", "counter_increase_value", "labelvalues")
    yield from call_differences("increase_counter", stats.increase_counter, *counter)


require(_differences())


@dataclass(frozen=True)
class _Metric:
    """One metric, and the figures of ``TierStats`` that are its series.

    Attributes:
        name: Without the prefix.
        documentation: What Prometheus shows.
        figures: Names of the figures. Several: each a series, labelled by the reason.
    """

    name: str
    documentation: str
    figures: dict[str, str]

    @property
    def labels(self) -> tuple[str, ...]:
        return ("tier",) if "" in self.figures else ("tier", "reason")


_GAUGES = (
    _Metric("capacity_chunks", "Chunks that the tier can hold.", {"": "slots_total"}),
    _Metric("used_chunks", "Chunks that the tier holds or is getting.", {"": "slots_used"}),
    _Metric("pinned_chunks", "Chunks that loads are reading.", {"": "slots_pinned"}),
    _Metric("kv_groups", "KV-cache groups that chunks were stored of.", {"": "kv_groups"}),
    _Metric("data_bytes", "Memory mapped for chunks, in bytes.", {"": "data_bytes"}),
    _Metric(
        "metadata_bytes",
        "Memory mapped for the index and the chunks' states, in bytes.",
        {"": "metadata_bytes"},
    ),
)

_COUNTERS = (
    _Metric("stored_bytes", "Bytes copied into the tier.", {"": "bytes_stored"}),
    _Metric("loaded_bytes", "Bytes copied out of the tier.", {"": "bytes_loaded"}),
    _Metric(
        "evicted_chunks",
        "Chunks that the tier gave up to make room for others.",
        {"": "evictions"},
    ),
    _Metric(
        "dropped_chunks",
        "Chunks that were not stored: the job alone fills the tier (oversized), what is there "
        "was promised to a request (promised) or was being copied (busy), or the eviction "
        "policy did not admit them (declined).",
        {
            "oversized": "blocks_dropped_oversized",
            "promised": "blocks_dropped_promised",
            "busy": "blocks_dropped_busy",
            "declined": "blocks_declined",
        },
    ),
    _Metric(
        "failed_chunks",
        "Chunks that could not be loaded: they were gone (absent), or their bytes did not fit "
        "their checksum (corrupt).",
        {"absent": "blocks_absent", "corrupt": "blocks_corrupt"},
    ),
)


def metric_definitions() -> dict[str, OffloadingMetricMetadata]:
    """Return the metrics' descriptions by full name, as vLLM's tiers declare them."""
    definitions: dict[str, OffloadingMetricMetadata] = {}
    for metric in _GAUGES:
        definitions[_PREFIX + metric.name] = OffloadingGaugeMetadata(
            documentation=metric.documentation, labelnames=metric.labels
        )
    for metric in _COUNTERS:
        definitions[_PREFIX + metric.name] = OffloadingCounterMetadata(
            documentation=metric.documentation, labelnames=metric.labels
        )
    return definitions


class TierMetrics:
    """Turns a tier's figures into what vLLM collects: gauges, and counters' increases."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def take(self, stats: TierStats, tier_label: str) -> OffloadingConnectorStats:
        """Return the gauges, and by how much each counter grew since the last call."""
        taken = OffloadingConnectorStats()
        for metric in _GAUGES:
            for figure in metric.figures.values():
                taken.set_gauge(
                    gauge_name=_PREFIX + metric.name,
                    gauge_value=getattr(stats, figure),
                    labelvalues=(tier_label,),
                )
        for metric in _COUNTERS:
            for reason, figure in metric.figures.items():
                grown = getattr(stats, figure) - self._told.get(figure, 0)
                if grown:
                    labels = (tier_label, reason) if reason else (tier_label,)
                    taken.increase_counter(
                        counter_name=_PREFIX + metric.name,
                        counter_increase_value=grown,
                        labelvalues=labels,
                    )
                    self._told[figure] = getattr(stats, figure)
        return taken
