"""Drives a host tier in few words: keys are named by letters, jobs by numbers."""

import numpy as np

from kvreg.tiering import HostMemoryTier, ReqContext, ScheduleEndContext, TransferJob

CONTEXT = ReqContext("request")


def keys_of(letters):
    return [letter.encode() * 36 for letter in letters]


class HostDriver:
    """A tier of `slots` blocks below a primary buffer of `rows` rows."""

    def __init__(self, slots, rows=16, block_bytes=64, **parameters):
        self.primary = np.zeros((rows, block_bytes), np.uint8)
        self.tier = HostMemoryTier(
            None, self.primary.data, "host", capacity=slots * block_bytes, **parameters
        )
        self.jobs = 0

    def fill(self, letters, first_row=0):
        """Write blocks' bytes to the primary rows from `first_row` on."""
        for i, letter in enumerate(letters):
            self.primary[first_row + i] = ord(letter)

    def job(self, letters, is_promotion, rows):
        self.jobs += 1
        return TransferJob(self.jobs, keys_of(letters), rows, is_promotion, CONTEXT)

    def submit_store(self, letters, first_row=0):
        self.fill(letters, first_row)
        rows = np.arange(first_row, first_row + len(letters), dtype=np.int32)
        self.tier.submit_store(self.job(letters, False, rows))

    def submit_load(self, letters, first_row=0):
        rows = np.arange(first_row, first_row + len(letters))
        self.tier.submit_load(self.job(letters, True, rows))

    def finish(self):
        """Wait for every job and return the results, ordered by job."""
        self.tier.drain_jobs()
        return sorted(self.tier.get_finished_jobs(), key=lambda result: result.job_id)

    def store(self, letters):
        self.submit_store(letters)
        (result,) = self.finish()
        return result

    def load(self, letters, first_row=0):
        self.submit_load(letters, first_row)
        (result,) = self.finish()
        return result

    def end_step(self):
        self.tier.on_schedule_end(ScheduleEndContext((), ()))

    def look(self, letter):
        return self.tier.lookup(*keys_of(letter), CONTEXT)

    def rows_as_letters(self, count):
        """What the first rows hold, a letter a row; "." for zeros and "?" for a mixture."""

        def name(row):
            if row.min() != row.max():
                return "?"
            return chr(row[0]) if row[0] else "."

        return "".join(name(row) for row in self.primary[:count])
