"""The reference itself, on cases small enough to be read."""

import numpy as np
import pytest

from kvreg.tiering import LookupResult, ReqContext, ScheduleEndContext, TransferJob
from tests.tiering.model import ModelTier

HIT, MISS, RETRY = LookupResult.HIT, LookupResult.MISS, LookupResult.RETRY
CONTEXT = ReqContext("request")
ROWS, BLOCK_BYTES = 8, 16


class Driver:
    """Names keys by letters and jobs by numbers."""

    def __init__(self, slots, **parameters):
        self.primary = np.arange(ROWS * BLOCK_BYTES, dtype=np.uint8).reshape(ROWS, BLOCK_BYTES)
        self.tier = ModelTier(
            None, self.primary.data, "host", capacity=slots * BLOCK_BYTES, **parameters
        )
        self.tier.hold_jobs = True
        self.jobs = 0

    def submit(self, letters, is_promotion, first_row):
        self.jobs += 1
        rows = np.arange(first_row, first_row + len(letters))
        keys = [letter.encode() for letter in letters]
        job = TransferJob(self.jobs, keys, rows, is_promotion, CONTEXT)
        (self.tier.submit_load if is_promotion else self.tier.submit_store)(job)
        return self.jobs

    def store(self, letters, first_row=0):
        return self.submit(letters, False, first_row)

    def load(self, letters, first_row=0):
        return self.submit(letters, True, first_row)

    def finish(self):
        self.tier.drain_jobs()
        return list(self.tier.get_finished_jobs())

    def end_step(self):
        self.tier.on_schedule_end(ScheduleEndContext((), ()))

    def touch(self, letters):
        self.tier.touch([letter.encode() for letter in letters], CONTEXT)

    def look_up(self, letters):
        """Look blocks up in a step of its own, so that the promises end at once."""
        found = [self.tier.lookup(letter.encode(), CONTEXT) for letter in letters]
        self.end_step()
        return found


@pytest.fixture
def three():
    return Driver(slots=3)


def test_a_block_is_a_hit_only_when_it_is_complete(three):
    job = three.store("a")
    assert three.look_up("ab") == [RETRY, MISS]
    assert list(three.tier.get_finished_jobs()) == []
    three.tier.complete(job)
    assert three.look_up("ab") == [HIT, MISS]
    (result,) = three.tier.get_finished_jobs()
    assert (result.job_id, result.success, result.transfer_bytes) == (job, True, BLOCK_BYTES)
    assert list(three.tier.get_finished_jobs()) == []


def test_bytes_come_back_to_any_row(three):
    three.store("ab", first_row=0)
    three.finish()
    three.load("ba", first_row=4)
    three.finish()
    assert (three.primary[4] == three.primary[1]).all()
    assert (three.primary[5] == three.primary[0]).all()


def test_the_tail_of_a_store_goes_first(three):
    three.store("abc")
    three.finish()
    three.store("d")
    assert three.look_up("abc") == [HIT, HIT, MISS]
    assert three.tier.stats().evictions == 1


def test_touch_saves_the_head_longest_and_lookup_saves_nothing(three):
    three.store("abc")
    three.finish()
    three.touch("bc")
    three.look_up("a")
    three.store("d")
    assert three.look_up("abc") == [MISS, HIT, HIT]
    three.store("e")
    assert three.look_up("abc") == [MISS, HIT, MISS]


def test_a_promised_block_stays_until_the_step_ends(three):
    three.store("abc")
    three.finish()
    three.tier.lookup(b"c", CONTEXT)
    three.store("d")
    assert three.look_up("abc") == [HIT, MISS, HIT]
    three.store("e")
    assert three.look_up("abc") == [HIT, MISS, MISS]


def test_blocks_being_written_or_loaded_stay(three):
    three.store("ab")
    three.finish()
    three.load("b")
    three.store("c")
    three.store("de")
    assert three.look_up("abcde") == [MISS, HIT, RETRY, RETRY, MISS]
    stored_c, stored_de = three.finish()[1:]
    assert stored_c.success
    assert (stored_de.success, stored_de.transfer_bytes) == (False, BLOCK_BYTES)


def test_a_store_keeps_its_own_blocks_and_drops_its_tail(three):
    three.store("abc")
    three.finish()
    three.store("xyaz", first_row=2)
    (result,) = three.finish()
    assert (result.success, result.transfer_bytes) == (False, 2 * BLOCK_BYTES)
    assert three.look_up("xyazbc") == [HIT, HIT, HIT, MISS, MISS, MISS]
    assert three.tier.stats().blocks_dropped == 1


def test_blocks_that_are_there_are_not_written_again_and_repeats_are_one(three):
    three.store("a", first_row=0)
    three.store("aabb", first_row=1)
    first, second = three.finish()
    assert (first.transfer_bytes, second.transfer_bytes) == (BLOCK_BYTES, BLOCK_BYTES)
    three.load("ab", first_row=6)
    three.finish()
    assert (three.primary[6] == three.primary[0]).all()
    assert (three.primary[7] == three.primary[3]).all()


def test_a_load_serves_what_is_complete_and_says_so(three):
    three.store("ac")
    three.finish()
    three.store("b")
    three.load("abcd", first_row=4)
    _, result = three.finish()
    assert (result.success, result.successful_keys) == (False, [b"a", b"c"])
    assert result.transfer_bytes == 2 * BLOCK_BYTES


def test_a_load_of_nothing_that_is_there_fails(three):
    three.load("ab")
    (result,) = three.finish()
    assert (result.success, result.successful_keys, result.transfer_bytes) == (False, None, 0)


def test_shutdown_ends_running_jobs_and_later_calls_are_errors(three):
    job = three.store("a")
    three.tier.shutdown()
    three.tier.shutdown()
    assert [result.job_id for result in three.tier.get_finished_jobs()] == [job]
    assert three.tier.stats().slots_used == 1
    with pytest.raises(RuntimeError, match="shut down"):
        three.tier.lookup(b"a", CONTEXT)


@pytest.mark.parametrize(
    ("key", "error"), [(b"", ValueError), (b"k" * 65, ValueError), ("k", TypeError)]
)
def test_a_key_is_1_to_64_bytes(three, key, error):
    with pytest.raises(error, match="a key is"):
        three.tier.lookup(key, CONTEXT)


def test_a_job_id_is_in_use_until_its_result_is_collected(three):
    three.store("a")
    for end in (lambda: None, three.tier.drain_jobs):
        end()
        three.jobs = 0
        with pytest.raises(ValueError, match="job 1 was not collected"):
            three.store("b")
    assert len(three.finish()) == 1
    three.jobs = 0
    three.store("b")


def test_drops_are_told_apart_by_what_held_the_slots(three):
    three.store("abcde")
    three.finish()
    three.tier.lookup(b"a", CONTEXT)
    three.store("xyz", first_row=5)
    three.end_step()
    three.store("w", first_row=5)
    stats = three.tier.stats()
    assert stats.blocks_dropped_oversized == 2
    assert (stats.blocks_dropped_promised, stats.slots_promised) == (1, 0)
    three.store("uvt", first_row=5)
    assert three.tier.stats().blocks_dropped_busy == 3


@pytest.mark.parametrize("verify", [None, "crc32c"])
def test_a_damaged_block_fails_alone_where_blocks_are_verified(verify):
    driver = Driver(slots=3, verify=verify, enable_kv_events=True)
    driver.store("ab")
    driver.finish()
    driver.tier.damage(b"b")
    driver.load("ab", first_row=4)
    (result,) = driver.finish()
    assert (driver.primary[4] == driver.primary[0]).all()
    if verify:
        assert (result.success, result.successful_keys) == (False, [b"a"])
        assert driver.look_up("ab") == [HIT, MISS]
        assert driver.tier.stats().blocks_corrupt == 1
    else:
        assert result.success
        assert (driver.primary[5] != driver.primary[1]).sum() == 1
    events = [(event.keys, event.removed) for event in driver.tier.take_events()]
    assert events == [([b"a", b"b"], False), ([b"b"], True)][: 2 if verify else 1]


def test_events_tell_each_change_once_and_in_order():
    driver = Driver(slots=2, enable_kv_events=True)
    driver.store("ab")
    driver.finish()
    driver.store("c")
    driver.finish()
    driver.tier.reset()
    changes = [
        (key, event.removed) for event in driver.tier.take_events() for key in event.keys
    ]
    assert changes[:4] == [(b"a", False), (b"b", False), (b"b", True), (b"c", False)]
    assert sorted(changes[4:]) == [(b"a", True), (b"c", True)]
    assert driver.tier.take_events() == []
