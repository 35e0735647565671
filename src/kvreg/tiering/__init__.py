"""Secondary KV-cache tiers: the protocol, the factory and the host-memory tier."""

from kvreg.tiering._host import EVICTION_POLICIES
from kvreg.tiering.base import (
    JobId,
    JobResult,
    LookupResult,
    OffloadingEvent,
    OffloadKey,
    OffloadPolicy,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    SecondaryTierManager,
    TransferJob,
    get_offload_block_hash,
    get_offload_group_idx,
    make_offload_key,
)
from kvreg.tiering.factory import SecondaryTierFactory
from kvreg.tiering.host import HostMemoryTier
from kvreg.tiering.stats import TierStats

__all__ = [
    "EVICTION_POLICIES",
    "HostMemoryTier",
    "JobId",
    "JobResult",
    "LookupResult",
    "OffloadKey",
    "OffloadPolicy",
    "OffloadingEvent",
    "ReqContext",
    "RequestOffloadingContext",
    "ScheduleEndContext",
    "SecondaryTierFactory",
    "SecondaryTierManager",
    "TierStats",
    "TransferJob",
    "get_offload_block_hash",
    "get_offload_group_idx",
    "make_offload_key",
]
