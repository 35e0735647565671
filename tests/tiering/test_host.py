import contextlib
import ctypes
import enum
import gc
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest

from kvreg.tiering import (
    HostMemoryTier,
    LookupResult,
    OffloadPolicy,
    ReqContext,
    ScheduleEndContext,
    TransferJob,
)
from tests.buffer_in_python import BufferInPython
from tests.tiering.host_driver import CONTEXT, HostDriver, keys_of
from tests.tiering.tier_memory import TierMemory

HIT, MISS, RETRY = LookupResult.HIT, LookupResult.MISS, LookupResult.RETRY


@pytest.fixture
def four():
    driver = HostDriver(slots=4)
    yield driver
    driver.tier.shutdown()


def make_tier(view, capacity=1 << 20, **parameters):
    return HostMemoryTier(None, view, "host", capacity=capacity, **parameters)


def run_python(code):
    """Run a program in an interpreter of its own and return it once it has ended."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# -- Blocks ---------------------------------------------------------------------------------


def test_a_stored_block_comes_back(four):
    result = four.store("abc")
    assert (result.job_id, result.success, result.successful_keys) == (1, True, None)
    assert result.transfer_bytes == 3 * 64
    assert 0 < result.transfer_time < 60
    assert four.look("b") is HIT
    assert four.look("d") is MISS
    four.primary[:] = 0
    assert four.load("ca").success
    assert four.rows_as_letters(3) == "ca."


def test_a_block_that_is_present_is_not_written_again(four):
    four.store("ab")
    result = four.store("abc")
    assert result.success
    assert result.transfer_bytes == 64


def test_a_load_serves_what_it_can_and_names_it_in_job_order(four):
    four.store("ab")
    four.primary[:] = 0
    result = four.load("xbya")
    assert not result.success
    assert result.successful_keys == keys_of("ba")
    assert result.transfer_bytes == 2 * 64
    assert four.rows_as_letters(4) == ".b.a"


def test_a_load_of_nothing_fails_as_a_whole(four):
    result = four.load("xy")
    assert (result.success, result.successful_keys, result.transfer_bytes) == (False, None, 0)


def test_a_store_that_does_not_fit_keeps_the_head_of_the_prefix(four):
    result = four.store("abcdef")
    assert (result.success, result.successful_keys) == (False, None)
    assert result.transfer_bytes == 4 * 64
    assert [four.look(letter) for letter in "abcdef"] == [HIT] * 4 + [MISS] * 2
    assert four.tier.stats().blocks_dropped == 2


def test_an_empty_job_has_a_result(four):
    four.submit_store("")
    four.submit_load("")
    first, second = four.tier.get_finished_jobs()
    assert first.success
    assert second.success


def test_a_hit_holds_until_the_step_ends(four):
    four.store("abcd")
    assert [four.look(letter) for letter in "abc"] == [HIT] * 3
    assert not four.store("xy").success
    assert four.load("abc").success
    four.end_step()
    assert four.store("wxyz").success
    assert four.look("a") is MISS


def test_a_touched_block_outlives_others_and_a_looked_up_one_does_not(four):
    for letter in "abcd":
        four.store(letter)
    four.tier.touch(keys_of("a"), CONTEXT)
    assert four.look("b") is HIT
    four.end_step()
    assert four.store("x").success
    assert four.look("a") is HIT
    assert four.look("b") is MISS


def test_rows_may_be_any_sequence_of_ints(four):
    four.fill("abcdefgh")
    rows = [
        [1, 3],
        (1, 3),
        np.array([1, 3], np.int32),
        np.array([1, 3], np.int64),
        np.array([1, 0, 3], np.int64)[::2],
        memoryview(np.array([1, 3], np.int32)),
        range(1, 4, 2),
    ]
    for i, ids in enumerate(rows):
        letters = chr(ord("k") + 2 * i) + chr(ord("l") + 2 * i)
        four.tier.submit_store(four.job(letters, False, ids))
        assert four.finish()[0].success
        four.tier.submit_load(four.job(letters, True, [8, 9]))
        assert four.finish()[0].success
        assert four.rows_as_letters(10)[8:] == "bd"


def test_keys_may_be_any_collection(four):
    four.fill("a")
    for i, keys in enumerate([(b"k0",), {b"k1"}, {b"k2": 0}.keys(), [b"k3"]]):
        four.tier.submit_store(TransferJob(i, keys, [0], False, CONTEXT))
    assert all(result.success for result in four.finish())
    assert all(four.tier.lookup(b"k%d" % i, CONTEXT) is HIT for i in range(4))


def test_keys_of_1_to_64_bytes_are_told_apart():
    driver = HostDriver(slots=200, rows=200)
    keys = [bytes([last] * length) for length in range(1, 65) for last in (0, 255)]
    driver.tier.submit_store(TransferJob(1, keys, range(len(keys)), False, CONTEXT))
    driver.finish()
    assert all(driver.tier.lookup(key, CONTEXT) is HIT for key in keys)
    assert all(driver.tier.lookup(key[:-1] + b"\x01", CONTEXT) is MISS for key in keys)
    driver.tier.shutdown()


def test_a_request_is_asked_for_the_blocks_computed_for_it(four):
    assert four.tier.on_new_request(CONTEXT).policy is OffloadPolicy.CHUNK_LEVEL
    assert four.tier.on_request_finished(CONTEXT) is None
    assert list(four.tier.take_events()) == []


def test_pending_work_is_a_job_in_flight_or_a_result_that_waits(four):
    assert not four.tier.has_pending_work()
    four.submit_store("a")
    assert four.tier.has_pending_work()
    four.tier.drain_jobs()
    assert four.tier.has_pending_work()
    four.tier.get_finished_jobs()
    assert not four.tier.has_pending_work()


# -- Figures --------------------------------------------------------------------------------


def test_memory_is_what_was_asked_for():
    view = np.zeros((4, 4096), np.uint8)
    for capacity, slots in [("1MiB", 256), (4096 * 1000 + 4095, 1000), ("4096", 1)]:
        tier = make_tier(view, capacity)
        stats = tier.stats()
        assert stats.slots_total == slots
        assert stats.data_bytes == slots * 4096
        tier.shutdown()


def test_figures_count_what_happened(four):
    four.store("abcd")
    four.store("ef")
    four.load("xef")
    for letter in "efz":
        four.look(letter)
    stats = four.tier.stats()
    assert (stats.lookups_hit, stats.lookups_miss, stats.lookups_retry) == (2, 1, 0)
    assert (stats.blocks_stored, stats.bytes_stored) == (6, 6 * 64)
    assert (stats.blocks_loaded, stats.bytes_loaded) == (2, 2 * 64)
    assert (stats.evictions, stats.blocks_dropped, stats.blocks_absent) == (2, 0, 1)
    assert stats.slots_promised == 2
    assert (stats.slots_total, stats.slots_used, stats.slots_pinned) == (4, 4, 0)
    assert (stats.stores_in_flight, stats.loads_in_flight, stats.results_waiting) == (0, 0, 0)
    assert stats.seconds_storing > 0
    assert stats.seconds_loading > 0


def test_threads_are_as_many_as_were_asked_for():
    view = np.zeros((4, 64), np.uint8)

    def worker_names():
        tasks = f"/proc/{os.getpid()}/task"
        names = []
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/comm") as comm:
                names.append(comm.read().strip())
        return sorted(name for name in names if name.startswith("kvreg-"))

    for parameters, expected in [
        ({"num_threads": 3}, 3),
        ({"worker_cpus": [0, 0]}, 2),
        ({"num_threads": 1, "worker_cpus": (0,)}, 1),
    ]:
        tier = make_tier(view, **parameters)
        assert tier.stats().num_threads == expected
        assert worker_names() == [f"kvreg-{i}" for i in range(expected)]
        tier.shutdown()
        assert worker_names() == []


def test_drops_are_told_apart_by_what_held_the_slots(four):
    four.store("abcdef")
    assert four.tier.stats().blocks_dropped_oversized == 2
    four.look("a")
    four.store("uvwxyz")
    stats = four.tier.stats()
    assert (stats.blocks_dropped_promised, stats.blocks_dropped) == (3, 5)


# -- Events, reset, verification ------------------------------------------------------------


def events_as_text(tier):
    return " ".join(
        ("-" if event.removed else "+") + "".join(chr(key[0]) for key in event.keys)
        for event in tier.take_events()
    )


def test_events_tell_each_change_once_and_in_order():
    driver = HostDriver(slots=3, enable_kv_events=True)
    driver.store("abc")
    assert events_as_text(driver.tier) == "+abc"
    driver.store("abde")
    driver.store("a")
    assert events_as_text(driver.tier) == "-c +d"
    driver.tier.reset()
    driver.store("f")
    driver.tier.shutdown()
    events = driver.tier.take_events()
    assert sorted(events[0].keys) == sorted(keys_of("abd"))
    assert events[0].removed
    assert events[1].keys == keys_of("f")
    assert not events[1].removed
    assert driver.tier.take_events() == []


def test_no_events_are_kept_where_nobody_asked(four):
    four.store("abc")
    assert four.tier.take_events() == []


def test_a_reset_waits_for_jobs_and_forgets_every_block(four):
    four.submit_store("abc")
    four.tier.reset()
    assert [four.look(letter) for letter in "abc"] == [MISS] * 3
    assert four.tier.get_finished_jobs()[0].success
    assert four.tier.stats().slots_used == 0
    assert four.store("bcde").success
    assert four.load("edcb").success


def flip_a_bit_of_the_tier(tier, letter, first_letter):
    """Change a block where it lies in the tier's memory."""
    memory = TierMemory(tier, first_letter.encode() * 64)
    memory.flip_last_bit(letter.encode() * 64)
    memory.close()


def test_a_block_whose_bytes_changed_fails_alone_and_is_forgotten():
    driver = HostDriver(slots=8, verify="crc32c", enable_kv_events=True)
    driver.store("abcd")
    driver.primary[:] = 0
    flip_a_bit_of_the_tier(driver.tier, "c", "a")
    assert driver.look("c") is HIT
    result = driver.load("abcd")
    assert not result.success
    assert result.successful_keys == keys_of("abd")
    assert result.transfer_bytes == 3 * 64
    assert driver.rows_as_letters(4) == "ab.d"
    assert driver.look("c") is MISS
    assert driver.tier.stats().blocks_corrupt == 1
    assert events_as_text(driver.tier) == "+abcd -c"
    assert driver.load("abd").success
    assert driver.store("c").success
    assert driver.load("c").success
    driver.tier.shutdown()


def test_a_block_whose_bytes_changed_is_loaded_where_nobody_verifies():
    driver = HostDriver(slots=8)
    driver.store("cd")
    driver.primary[:] = 0
    flip_a_bit_of_the_tier(driver.tier, "c", "c")
    assert driver.load("c").success
    assert driver.rows_as_letters(1) == "?"
    driver.tier.shutdown()


# -- Bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"capacity": "4 gigs"}, "4 gigs"),
        ({"capacity": -1}, "-1"),
        ({"capacity": 63}, r"63 bytes.*64 bytes"),
        ({"capacity": 1 << 63}, str(1 << 63)),
        ({"capacity": 1 << 62}, "at most"),
        ({"num_threads": 0}, "1 to 1024, not 0"),
        ({"num_threads": 1025}, "1 to 1024, not 1025"),
        ({"num_threads": "2"}, "'2'"),
        ({"num_threads": True}, "an int from 1 to 1024, not True"),
        ({"worker_cpus": [-1]}, "-1"),
        ({"worker_cpus": [False]}, "False"),
        ({"worker_cpus": []}, "not 0"),
        ({"worker_cpus": [0], "num_threads": 2}, "1 CPUs for 2 threads"),
        ({"verify": "md5"}, "'crc32c', not 'md5'"),
        ({"eviction_policy": "mru"}, r'"mru".*lru'),
        ({"eviction_policy": "lru\0"}, r"'lru\\x00'"),
        ({"eviction_policy": "\udc80"}, r'"\\udc80".*lru'),
    ],
)
def test_a_parameter_out_of_range_is_refused(parameters, message):
    view = np.zeros((4, 64), np.uint8)
    with pytest.raises(ValueError, match=message):
        make_tier(view, **{"capacity": 640, **parameters})


def test_an_eviction_policy_is_any_kind_of_str_and_nothing_else():
    class Policy(str, enum.Enum):
        LRU = "lru"

    make_tier(np.zeros((4, 64), np.uint8), eviction_policy=Policy.LRU).shutdown()
    for policy in (None, b"lru"):
        with pytest.raises(TypeError, match=f"eviction_policy must be a str, not {policy!r}"):
            make_tier(np.zeros((4, 64), np.uint8), eviction_policy=policy)


def test_an_unknown_parameter_is_refused():
    with pytest.raises(TypeError, match="'size'"):
        make_tier(np.zeros((4, 64), np.uint8), size=7)


def test_more_memory_than_there_is_is_refused_with_the_limit():
    view = np.zeros((1, 1 << 20), np.uint8)
    with pytest.raises(MemoryError, match=r"needs 1125899906842624 bytes.*leaves \d+"):
        make_tier(view, 1 << 50)


def test_a_cpu_that_is_not_there_is_an_error():
    with pytest.raises(OSError, match="CPU 1000000"):
        make_tier(np.zeros((4, 64), np.uint8), worker_cpus=[1_000_000])


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (np.zeros(64, np.uint8), "2 dimensions"),
        (np.zeros((4, 4, 4), np.uint8), "2 dimensions"),
        (np.zeros((0, 64), np.uint8), r"shape is \(0, 64\)"),
        (np.zeros((4, 0), np.uint8), r"shape is \(4, 0\)"),
        (np.zeros((4, 4), "V0"), r"shape is \(4, 4\), of items of 0 bytes"),
        (np.zeros((4, 64), np.uint8)[:, ::2], r"contiguous.*\(64, 2\)"),
        (np.zeros((64, 4), np.uint8).T, "contiguous"),
        (np.zeros((4, 64), np.uint8)[::-1], "overlap"),
        (np.broadcast_to(np.zeros(64, np.uint8), (4, 64)), "overlap"),
    ],
)
def test_a_primary_view_without_contiguous_rows_is_refused(view, message):
    with pytest.raises(ValueError, match=message):
        make_tier(view)


def test_what_is_no_buffer_is_refused():
    with pytest.raises(TypeError, match="bytes-like"):
        make_tier([[0]])


def test_a_buffer_made_in_python_is_one_where_python_can_make_it():
    view = BufferInPython(np.zeros((4, 64), np.uint8))
    if sys.version_info < (3, 12):
        with pytest.raises(TypeError, match="bytes-like"):
            make_tier(view)
        return
    tier = make_tier(view)
    assert view.exports == 1
    tier.shutdown()
    assert view.exports == 0


@pytest.mark.parametrize("dtype", [object, [("number", "i8"), ("any", object)]])
def test_a_primary_view_of_references_to_objects_is_refused(dtype):
    with pytest.raises(TypeError, match="references to Python objects"):
        make_tier(np.zeros((4, 64), dtype))


def structure(*fields):
    """Rows of a ctypes structure with fields of these names and types."""
    return (type("Item", (ctypes.Structure,), {"_fields_": fields}) * 2 * 2)()


# The struct format of a buffer writes a field's name between colons.
@pytest.mark.parametrize(
    "names", [("a:b", "c"), ("a:b", "c:d"), ("O", "c"), ("a", ":"), ("a:", ":c")]
)
@pytest.mark.parametrize("referring", [ctypes.py_object, ctypes.py_object * 2])
def test_names_of_fields_hide_no_references(names, referring):
    view = structure((names[0], ctypes.c_uint8), (names[1], referring))
    with pytest.raises(TypeError, match="references to Python objects"):
        make_tier(view)


@pytest.mark.parametrize("names", [("a:b", "c"), ("Offset", "O"), ("Größe_O", "c")])
def test_names_of_fields_are_no_references(names):
    view = structure((names[0], ctypes.c_uint8), (names[1], ctypes.c_float))
    make_tier(view, capacity=1024).shutdown()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((16, 96), np.uint8)[:, 16:80],
        np.zeros((16, 32), np.uint16),
        np.zeros((16, 24), np.float32)[:, 4:20],
        np.zeros((32, 64), np.uint8)[::2],
    ],
)
def test_rows_may_be_padded_and_of_any_item(array):
    tier = make_tier(array, 4 * 64)
    array.view(np.uint8)[:] = np.arange(16, dtype=np.uint8)[:, None]
    assert tier.stats().slots_total == 4
    tier.submit_store(TransferJob(1, keys_of("ab"), [3, 5], False, CONTEXT))
    tier.drain_jobs()
    tier.submit_load(TransferJob(2, keys_of("ba"), [10, 11], True, CONTEXT))
    tier.drain_jobs()
    expected = np.arange(16, dtype=np.uint8)
    expected[[10, 11]] = 5, 3
    assert (array.view(np.uint8) == expected[:, None]).all()
    tier.shutdown()


def test_a_single_row_may_have_any_stride():
    tier = make_tier(np.zeros((4, 64), np.uint8)[::-4], 64)
    tier.shutdown()


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("text", TypeError, "'text'"),
        (None, TypeError, "NoneType"),
        (bytearray(b"key"), TypeError, "bytearray"),
        (b"", ValueError, "1 to 64 bytes; this one has 0"),
        (b"k" * 65, ValueError, "1 to 64 bytes; this one has 65"),
    ],
)
def test_a_bad_key_is_refused_and_nothing_changes(four, key, error, message):
    four.store("a")
    before = four.tier.stats()
    with pytest.raises(error, match=message):
        four.tier.lookup(key, CONTEXT)
    with pytest.raises(error, match=message):
        four.tier.touch([*keys_of("a"), key], CONTEXT)
    for submit in (four.tier.submit_store, four.tier.submit_load):
        with pytest.raises(error, match=message):
            submit(TransferJob(9, [*keys_of("b"), key], [0, 1], False, CONTEXT))
    assert four.tier.stats() == before
    assert four.tier.get_finished_jobs() == []


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([0, 16], ValueError, r"chunk_ids\[1\] is 16; the buffer's rows are 0 to 15"),
        ([-1, 0], ValueError, r"chunk_ids\[0\] is -1"),
        (np.array([0, -5]), ValueError, r"chunk_ids\[1\] is -5"),
        ([0, 1 << 80], ValueError, str(1 << 80)),
        ([0], ValueError, "1 row numbers for 2 blocks"),
        ([0, 1, 2], ValueError, "3 row numbers for 2 blocks"),
        ([0, 1.5], TypeError, "1.5"),
        ([0, None], TypeError, "None"),
        (7, TypeError, "int"),
        (np.zeros((2, 1), np.int32), TypeError, "2 dimensions"),
        (np.zeros(2, np.float64), TypeError, "'d'"),
        (np.zeros(2, np.int16), TypeError, "'h'"),
        (np.zeros(2, ">i4"), TypeError, "'>i'"),
    ],
)
def test_bad_rows_are_refused_and_nothing_changes(four, rows, error, message):
    four.store("a")
    before = four.tier.stats()
    for submit in (four.tier.submit_store, four.tier.submit_load):
        with pytest.raises(error, match=message):
            submit(TransferJob(9, keys_of("ab"), rows, False, CONTEXT))
    assert four.tier.stats() == before
    assert four.look("b") is MISS
    assert not four.tier.has_pending_work()


def test_a_job_id_is_free_again_once_its_result_was_collected(four):
    job = four.job("a", False, [0])
    four.tier.submit_store(job)
    with pytest.raises(ValueError, match="job 1 "):
        four.tier.submit_load(job)
    four.tier.drain_jobs()
    with pytest.raises(ValueError, match="job 1 "):
        four.tier.submit_load(job)
    four.tier.get_finished_jobs()
    four.tier.submit_load(job)
    assert four.finish()[0].success


@pytest.mark.parametrize(
    ("job_id", "error"),
    [("1", TypeError), (None, TypeError), (1.5, TypeError), (1 << 63, ValueError)],
)
def test_a_job_id_that_is_no_64_bit_int_is_refused(four, job_id, error):
    with pytest.raises(error, match="job's id"):
        four.tier.submit_store(TransferJob(job_id, keys_of("a"), [0], False, CONTEXT))
    assert not four.tier.has_pending_work()


def test_a_read_only_view_can_be_stored_from_and_not_loaded_into():
    view = memoryview(bytes(range(256))).cast("B", (4, 64))
    tier = make_tier(view, 256)
    tier.submit_store(TransferJob(1, keys_of("a"), [1], False, CONTEXT))
    tier.drain_jobs()
    assert tier.lookup(*keys_of("a"), CONTEXT) is HIT
    with pytest.raises(ValueError, match="read-only"):
        tier.submit_load(TransferJob(2, keys_of("a"), [1], True, CONTEXT))
    tier.shutdown()


# -- Life -----------------------------------------------------------------------------------


def test_after_shutdown_results_and_figures_still_answer_and_the_rest_says_so(four):
    four.submit_store("abc")
    four.tier.shutdown()
    four.tier.shutdown()
    assert four.tier.stats().blocks_stored == 3
    assert four.tier.has_pending_work()
    (result,) = four.tier.get_finished_jobs()
    assert result.success
    assert not four.tier.has_pending_work()
    assert list(four.tier.take_events()) == []
    job = four.job("a", False, [0])
    for call in [
        lambda: four.look("a"),
        lambda: four.tier.touch(keys_of("a"), CONTEXT),
        lambda: four.tier.submit_store(job),
        lambda: four.tier.submit_load(job),
        lambda: four.tier.on_new_request(CONTEXT),
        lambda: four.tier.on_request_finished(CONTEXT),
        lambda: four.tier.on_schedule_end(ScheduleEndContext((), ())),
        four.tier.drain_jobs,
        four.tier.reset,
    ]:
        with pytest.raises(RuntimeError, match="shut down"):
            call()


def test_the_buffer_is_held_from_construction_to_shutdown():
    region = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    view = memoryview(region).cast("B", (4, mmap.PAGESIZE))
    tier = make_tier(view)
    view.release()
    with pytest.raises(BufferError):
        region.close()
    tier.shutdown()
    region.close()


def test_a_constructor_that_fails_holds_no_buffer_while_its_traceback_lives():
    region = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    view = memoryview(region).cast("B", (4, mmap.PAGESIZE))
    errors = []
    for parameters in [{"capacity": 1}, {"eviction_policy": "x"}, {"worker_cpus": [1 << 19]}]:
        with pytest.raises((ValueError, OSError)) as error:
            make_tier(view, **parameters)
        errors.append(error)
    view.release()
    region.close()
    assert len(errors) == 3


def test_a_tier_that_is_dropped_ends_its_jobs_and_lets_go_of_the_buffer():
    driver = HostDriver(slots=16)
    alive = weakref.ref(driver.tier)
    driver.submit_store("abcdefgh")
    driver.tier.self = driver.tier
    driver.tier = None
    gc.collect()
    assert alive() is None
    primary = weakref.ref(driver.primary)
    driver.primary = None
    assert primary() is None


class TierWithFinalizer(HostMemoryTier):
    def __del__(self):
        pass


@pytest.mark.parametrize("tier_class", [HostMemoryTier, TierWithFinalizer])
def test_in_a_cycle_the_worker_threads_end_before_the_buffer_goes(tier_class):
    def threads():
        return len(os.listdir("/proc/self/task"))

    gc.collect()
    before = threads()
    rows = np.ones((4, 64), np.uint8)
    at_release = []
    weakref.finalize(rows, lambda: at_release.append(threads()))
    tier = tier_class(None, rows.data, "host", capacity=256, num_threads=2)
    tier.self = tier
    del rows, tier
    gc.collect()
    assert at_release == [before]


def test_in_a_cycle_a_finalizer_may_call_the_tier():
    def use(tier):
        tier.shutdown()
        with pytest.raises(RuntimeError, match="shut down"):
            tier.lookup(b"key", CONTEXT)
        answers.append((tier.get_finished_jobs(), tier.stats().slots_used))

    class Finalized:
        def __del__(self):
            use(self.tier)

    answers = []
    user = Finalized()
    user.tier = make_tier(np.ones((4, 64), np.uint8).data)
    user.tier.user = user
    del user
    gc.collect()
    assert answers == [([], 0)]


def test_a_tier_that_was_never_opened_answers_with_an_error():
    tier = HostMemoryTier.__new__(HostMemoryTier)
    with pytest.raises(RuntimeError, match="never opened"):
        tier.lookup(b"key", CONTEXT)
    assert tier.shutdown() is None


def test_a_tier_is_opened_once(four):
    with pytest.raises(RuntimeError, match="open already"):
        four.tier.__init__(None, four.primary.data, "host", capacity=64)
    assert four.look("a") is MISS


def test_an_interpreter_ends_with_jobs_in_flight():
    done = run_python(
        """
        import numpy as np
        from kvreg.tiering import HostMemoryTier, ReqContext, TransferJob
        primary = np.ones((64, 1 << 20), np.uint8)
        tier = HostMemoryTier(None, primary.data, "host", capacity="64MiB")
        keys = [b"%d" % i for i in range(64)]
        tier.submit_store(TransferJob(1, keys, range(64), False, ReqContext("r")))
        print("submitted")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "submitted\n", "")


def test_a_child_made_by_fork_has_errors_and_the_parent_goes_on(four):
    four.submit_store("abc")
    job = four.job("a", False, [0])
    calls = [
        lambda: four.look("a"),
        lambda: four.tier.touch(keys_of("a"), CONTEXT),
        lambda: four.tier.submit_store(job),
        lambda: four.tier.submit_load(job),
        four.tier.get_finished_jobs,
        four.tier.has_pending_work,
        four.end_step,
        four.tier.drain_jobs,
        four.tier.reset,
        four.tier.take_events,
        four.tier.stats,
    ]
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            refused = 0
            for call in calls:
                try:
                    call()
                except RuntimeError as error:
                    refused += "fork" in str(error)
            four.tier.shutdown()
            four.tier = None
            gc.collect()
            status = 0 if refused == len(calls) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert four.finish()[0].success
    assert four.look("c") is HIT


def test_workers_block_signals():
    tier = make_tier(np.zeros((4, 64), np.uint8), num_threads=2)
    masks = []
    for task in os.listdir(f"/proc/{os.getpid()}/task"):
        with open(f"/proc/{os.getpid()}/task/{task}/status") as status:
            fields = dict(line.split(":\t", 1) for line in status)
        if fields["Name"].startswith("kvreg-"):
            masks.append(int(fields["SigBlk"], 16))
    assert len(masks) == 2
    assert all(mask >> (signal.SIGINT - 1) & 1 for mask in masks)
    assert all(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)
    tier.shutdown()


# -- Threads --------------------------------------------------------------------------------


def run_threads(count, target):
    """Run `target(number)` in threads; raise what any of them raised."""
    errors = []

    def guarded(number):
        try:
            target(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_several_threads_may_call():
    driver = HostDriver(slots=40, rows=64, block_bytes=4096, num_threads=2)
    tier, primary = driver.tier, driver.primary
    collected = []

    def work(number):
        rows = range(16 * number, 16 * number + 16)
        context = ReqContext(str(number))
        for step in range(150):
            keys = [b"%d" % ((step * 5 + i) % 50) for i in range(16)]
            for row, key in zip(rows, keys, strict=True):
                primary[row] = int(key)
            tier.submit_store(TransferJob(1000 * number + 2 * step, keys, rows, False, context))
            tier.drain_jobs()
            tier.touch(keys[:4], context)
            primary[rows.start : rows.stop] = 255
            load_id = 1000 * number + 2 * step + 1
            tier.submit_load(TransferJob(load_id, keys, rows, True, context))
            tier.drain_jobs()
            for row, key in zip(rows, keys, strict=True):
                assert (primary[row] == primary[row, 0]).all()
                assert primary[row, 0] in (int(key), 255)
            tier.on_schedule_end(ScheduleEndContext((), ()))
            if step % 16 == number:
                tier.reset()
            collected.extend(tier.get_finished_jobs())

    run_threads(4, work)
    collected.extend(tier.get_finished_jobs())
    assert len(collected) == len({result.job_id for result in collected}) == 4 * 150 * 2
    assert tier.stats().slots_pinned == 0
    tier.shutdown()


def test_shutdown_while_threads_drain_waits_for_them():
    for _ in range(20):
        driver = HostDriver(slots=64, rows=64, block_bytes=1 << 16)
        tier = driver.tier
        driver.submit_store("a")
        driver.submit_store("bcdefghij")

        def work(number, tier=tier):
            if number == 0:
                tier.shutdown()
                return
            # A thread that comes too late is told so.
            with contextlib.suppress(RuntimeError):
                tier.drain_jobs()

        run_threads(4, work)
        assert len(tier.get_finished_jobs()) == 2


def test_draining_lets_other_threads_run():
    driver = HostDriver(slots=64, rows=64, block_bytes=1 << 22)
    for row in range(64):
        driver.primary[row] = row
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(None)
            stop.wait(0.0001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    keys = [b"%d" % i for i in range(64)]
    driver.tier.submit_store(TransferJob(1, keys, range(64), False, CONTEXT))
    before = len(ticks)
    driver.tier.drain_jobs()
    during = len(ticks) - before
    stop.set()
    ticker.join()
    assert during > 1
    driver.tier.shutdown()


def test_no_reference_is_leaked(four):
    key, job_keys = keys_of("a")[0], keys_of("ab")
    rows = np.arange(2, dtype=np.int32)

    def count():
        return [sys.getrefcount(thing) for thing in (key, *job_keys, rows, CONTEXT, HIT, MISS)]

    def use():
        four.tier.lookup(key, CONTEXT)
        four.tier.touch(job_keys, CONTEXT)
        four.jobs += 1
        four.tier.submit_store(TransferJob(four.jobs, job_keys, rows, False, CONTEXT))
        four.jobs += 1
        four.tier.submit_load(TransferJob(four.jobs, job_keys, rows, True, CONTEXT))
        four.finish()
        with pytest.raises(ValueError, match="chunk_ids"):
            four.tier.submit_load(TransferJob(0, job_keys, [99, 99], True, CONTEXT))

    use()
    gc.collect()
    before = count()
    for _ in range(50):
        use()
    gc.collect()
    assert count() == before


def test_memory_does_not_grow_with_use(four):
    libc = ctypes.CDLL(None)

    def resident():
        libc.malloc_trim(0)
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * mmap.PAGESIZE

    def use(times):
        for _ in range(times):
            four.submit_store("abcdefgh")
            four.submit_load("hgfedcba")
            four.finish()
            four.end_step()

    use(500)
    before = resident()
    use(20_000)
    assert resident() - before < 1 << 20
