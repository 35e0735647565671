"""Keeps the account of transfer jobs: what is outstanding, and how the others ended."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kvreg.tiering.base import JobId, JobResult, OffloadKey, TransferJob


@dataclass
class TransferTotals:
    """The sum over the results of all stores, or of all loads."""

    bytes: int = 0
    seconds: float = 0.0
    """From submission to the end of the last copy; jobs that overlap both count in full."""

    def add(self, result: JobResult) -> None:
        """Add what one job copied."""
        self.bytes += result.transfer_bytes or 0
        self.seconds += result.transfer_time or 0.0


class JobLedger:
    """Matches results with submitted jobs and sums them up."""

    def __init__(self) -> None:
        self.stored = TransferTotals()
        self.loaded = TransferTotals()
        self.failed_jobs = 0
        self.partial_jobs = 0
        self._outstanding: dict[JobId, TransferJob] = {}

    @property
    def outstanding(self) -> int:
        """Number of submitted jobs without a result."""
        return len(self._outstanding)

    def submitted(self, job: TransferJob) -> None:
        """Enter a job."""
        self._outstanding[job.job_id] = job

    def finished(self, result: JobResult) -> Collection[OffloadKey]:
        """Enter a job's result; return the keys that were loaded, none for a store.

        Raises:
            RuntimeError: There is no such job, or it had a result before.
        """
        job = self._outstanding.pop(result.job_id, None)
        if job is None:
            raise RuntimeError(
                f"the tier returned a result for job {result.job_id}, which is "
                f"not outstanding: {result}"
            )
        (self.loaded if job.is_promotion else self.stored).add(result)
        if not result.success:
            if result.transfer_bytes or result.successful_keys:
                self.partial_jobs += 1
            else:
                self.failed_jobs += 1
        if not job.is_promotion:
            return ()
        return job.keys if result.success else result.successful_keys or ()
