"""What a host tier tells of itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TierStats:
    """Figures of a ``HostMemoryTier``: counters since it was made, and gauges."""

    lookups_hit: int
    lookups_miss: int
    lookups_retry: int
    blocks_stored: int
    """Blocks copied into the tier; ``bytes_stored`` are theirs."""
    bytes_stored: int
    seconds_storing: float
    """Seconds spent copying them, summed over the worker threads."""
    blocks_loaded: int
    """Blocks copied out of the tier; ``bytes_loaded`` are theirs."""
    bytes_loaded: int
    seconds_loading: float
    """Seconds spent copying them, summed over the worker threads."""
    evictions: int
    """Blocks given up to make room for others."""
    blocks_dropped_oversized: int
    """Keys of stores that found no room because their job alone fills the tier. A key that a
    job names twice counts twice, here and below."""
    blocks_dropped_promised: int
    """Keys of stores that found no room because blocks were promised until the step's end."""
    blocks_dropped_busy: int
    """Keys of stores that found no room because blocks were being copied."""
    blocks_absent: int
    """Keys of loads whose blocks were not ready."""
    blocks_corrupt: int
    """Blocks of loads whose bytes did not fit their checksum."""
    stores_in_flight: int
    """Gauge: store jobs that have not ended."""
    loads_in_flight: int
    """Gauge: load jobs that have not ended."""
    results_waiting: int
    """Gauge: results that were not collected."""
    slots_total: int
    """Blocks that the tier can hold."""
    slots_used: int
    """Gauge: slots that hold a block or are getting one."""
    slots_pinned: int
    """Gauge: slots that a load is reading."""
    slots_promised: int
    """Gauge: slots whose block a lookup promised in the running step."""
    data_bytes: int
    """Memory mapped for blocks, whole pages of the kind they lie on."""
    metadata_bytes: int
    """Memory mapped for the index, the eviction policy and the slots' states, whole pages."""
    num_threads: int
    """Worker threads."""

    @property
    def blocks_dropped(self) -> int:
        """Keys of stores that found no room."""
        return (
            self.blocks_dropped_oversized
            + self.blocks_dropped_promised
            + self.blocks_dropped_busy
        )
