"""What a host tier tells of itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TierStats:
    """Figures of a ``HostMemoryTier``: counters since it was made, and gauges.

    Attributes:
        lookups_hit: Lookups that answered HIT.
        lookups_miss: Lookups that answered MISS.
        lookups_retry: Lookups that answered RETRY.
        blocks_stored: Blocks copied into the tier.
        bytes_stored: Their bytes.
        seconds_storing: Seconds spent copying them, summed over the worker threads.
        blocks_loaded: Blocks copied out of the tier.
        bytes_loaded: Their bytes.
        seconds_loading: Seconds spent copying them, summed over the worker threads.
        evictions: Blocks given up to make room for others.
        blocks_dropped_oversized: Keys of stores that found no room because their job alone
            fills the tier. A key that a job names twice counts twice, here and below.
        blocks_dropped_promised: Keys of stores that found no room because blocks were promised
            until the step's end.
        blocks_dropped_busy: Keys of stores that found no room because blocks were being copied.
        blocks_declined: Keys of stores whose blocks the eviction policy did not admit.
        blocks_absent: Keys of loads whose blocks were not ready.
        blocks_corrupt: Blocks of loads whose bytes did not fit their checksum.
        stores_in_flight: Gauge: store jobs that have not ended.
        loads_in_flight: Gauge: load jobs that have not ended.
        results_waiting: Gauge: results that were not collected.
        kv_groups: KV-cache groups that blocks were stored of, among the first 64: tokens have a
            block, which takes a slot, in each.
        slots_total: Blocks that the tier can hold.
        slots_used: Gauge: slots that hold a block or are getting one.
        slots_pinned: Gauge: slots that a load is reading.
        slots_promised: Gauge: slots whose block a lookup promised in the running step.
        data_bytes: Memory mapped for blocks, whole pages of the kind they lie on.
        metadata_bytes: Memory mapped for the index, the eviction policy and the slots' states,
            whole pages.
        num_threads: Worker threads.
    """

    lookups_hit: int
    lookups_miss: int
    lookups_retry: int
    blocks_stored: int
    bytes_stored: int
    seconds_storing: float
    blocks_loaded: int
    bytes_loaded: int
    seconds_loading: float
    evictions: int
    blocks_dropped_oversized: int
    blocks_dropped_promised: int
    blocks_dropped_busy: int
    blocks_declined: int
    blocks_absent: int
    blocks_corrupt: int
    stores_in_flight: int
    loads_in_flight: int
    results_waiting: int
    kv_groups: int
    slots_total: int
    slots_used: int
    slots_pinned: int
    slots_promised: int
    data_bytes: int
    metadata_bytes: int
    num_threads: int

    @property
    def blocks_dropped(self) -> int:
        """Keys of stores that found no room."""
        return (
            self.blocks_dropped_oversized
            + self.blocks_dropped_promised
            + self.blocks_dropped_busy
        )
