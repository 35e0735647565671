"""Host tiers that break one promise each."""

import dataclasses
import signal

from tests.tiering.model import ModelTier


class CorruptingTier(ModelTier):
    """Flips the last bit of every loaded block."""

    def _copy_to_primary(self, block, row):
        super()._copy_to_primary(block, row)
        self._primary_bytes()[(row + 1) * self.block_bytes - 1] ^= 1


class SwappingTier(ModelTier):
    """Stores the bytes of the row beside the one it was given."""

    def _copy_from_primary(self, block, row):
        super()._copy_from_primary(block, (row + 1) % self.num_rows)


class IdleTier(ModelTier):
    """Says that it has loaded blocks, and copies nothing."""

    def _copy_to_primary(self, block, row):
        block.pins -= 1


class LosingTier(ModelTier):
    """Never tells the result of every third job."""

    def get_finished_jobs(self):
        return [result for result in super().get_finished_jobs() if result.job_id % 3 != 2]


class ForgettingTier(ModelTier):
    """Cannot serve the middle key of a load, and forgets it, as tiers do with bad blocks."""

    def submit_load(self, job_metadata):
        middle = job_metadata.keys[len(job_metadata.keys) // 2]
        if middle in self.blocks:
            self.forget(middle)
        super().submit_load(job_metadata)


class RepeatingTier(ModelTier):
    """Tells every result twice."""

    def get_finished_jobs(self):
        return [result for result in super().get_finished_jobs() for _ in range(2)]


class FailingTier(ModelTier):
    """Fails every load as a whole, without saying which keys."""

    def _complete_all(self):
        super()._complete_all()
        self.finished = [self._failed(result) for result in self.finished]

    def submit_load(self, job_metadata):
        super().submit_load(job_metadata)
        self.running[job_metadata.job_id].success = False

    def _failed(self, result):
        if result.success:
            return result
        return dataclasses.replace(result, successful_keys=None, transfer_bytes=0)


class InterruptedTier(ModelTier):
    """Sends the process the terminal's interrupt signal at the third step."""

    shutdowns = 0

    def on_schedule_end(self, context):
        super().on_schedule_end(context)
        if self.step == 3:
            signal.raise_signal(signal.SIGINT)

    def shutdown(self):
        super().shutdown()
        type(self).shutdowns += 1
