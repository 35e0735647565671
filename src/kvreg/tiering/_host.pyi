from collections.abc import Callable, Collection
from typing import Any, final

from typing_extensions import disjoint_base

from kvreg.tiering.base import (
    JobResult,
    LookupResult,
    OffloadKey,
    ReqContext,
    ScheduleEndContext,
    TransferJob,
)

EVICTION_POLICIES: tuple[str, ...]
MOST_WORKERS: int

@final
class OwnedTier:
    def __del__(self) -> None: ...

@disjoint_base
class NativeTier:
    def _open(
        self,
        view: memoryview,
        capacity_bytes: int,
        workers: int,
        worker_cpus: list[int] | None,
        policy: str,
        *,
        verify: bool,
        huge_pages: str,
        numa_node: int | str | None,
        prefault: bool,
        lookup_results: tuple[object, object, object],
        job_result: Callable[[int, bool, list[Any] | None, float, int], object],
        event: Callable[..., object] | None,
        clock: Callable[[], float] | None,
        rows_attribute: str,
        drops_fail: bool,
    ) -> str | None: ...
    def _require_usable(self) -> None: ...
    def _read_stats(self) -> dict[str, Any]: ...
    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult: ...
    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None: ...
    def submit_store(self, job_metadata: TransferJob) -> None: ...
    def submit_load(self, job_metadata: TransferJob) -> None: ...
    def get_finished_jobs(self) -> list[JobResult]: ...
    def has_pending_work(self) -> bool: ...
    def on_request_finished(self, req_context: ReqContext) -> None: ...
    def on_schedule_end(self, context: ScheduleEndContext) -> None: ...
    def drain_jobs(self) -> None: ...
    def reset(self) -> None: ...
    def take_events(self) -> list[Any]: ...
    def shutdown(self) -> None: ...
