"""A host tier whose caller's own code fails, calls back or ends the tier in the middle of a
call, and one for which memory runs out at any allocation.
"""

import contextlib
import functools
import gc
import signal
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest

from kvreg.tiering import HostMemoryTier, JobResult, LookupResult, TransferJob
from kvreg.tiering._host import NativeTier
from kvreg.tiering.base import OffloadingEvent
from tests.buffer_in_python import BufferInPython
from tests.tiering.host_driver import CONTEXT, HostDriver, keys_of

HIT, MISS = LookupResult.HIT, LookupResult.MISS
ROWS, BLOCK_BYTES, SLOTS = 16, 64, 4


def make_tier(view, capacity=SLOTS * BLOCK_BYTES, **parameters):
    return HostMemoryTier(None, view, "host", capacity=capacity, **parameters)


def worker_threads():
    """How many threads of tiers this process has."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("kvreg-") for name in names)


class Interrupt(Exception):
    pass


def interrupt():
    raise Interrupt


@pytest.fixture
def four():
    driver = HostDriver(SLOTS, ROWS, BLOCK_BYTES, enable_kv_events=True)
    yield driver
    driver.tier.shutdown()


# -- The caller's code runs while arguments are converted -------------------------------------


class Iterable:
    """Gives its items, and runs `action` before the one at `place`."""

    def __init__(self, items, place, action):
        self.items, self.place, self.action = items, place, action

    def __iter__(self):
        for i, item in enumerate(self.items):
            if i == self.place:
                self.action()
            yield item


class Sized(Iterable):
    def __len__(self):
        self.action()
        return len(self.items)


class Index:
    def __init__(self, number, action):
        self.number, self.action = number, action

    def __index__(self):
        self.action()
        return self.number


class Key(bytes):
    """Runs `action` when it is iterated over, compared or shown, none of which is due."""

    action = staticmethod(interrupt)

    def __iter__(self):
        return self.action()

    def __eq__(self, other):
        return self.action()

    def __hash__(self):
        return self.action()


class JobWith:
    """A job that runs `action` when one of its attributes is read."""

    def __init__(self, job, name, action):
        self._job, self._name, self._action = job, name, action

    def __getattr__(self, name):
        if name == self._name:
            self._action()
        return getattr(self._job, name)


KEYS, JOB_ID = keys_of("xy"), 77


def jobs_that_run(action):
    """Jobs of two blocks, each of which runs `action` at another point of its conversion."""

    def job(job_id=JOB_ID, keys=KEYS, rows=(0, 1)):
        return TransferJob(job_id, keys, rows, False, CONTEXT)

    def mutate_and_run(rows):
        rows.clear()
        action()

    shrinking = [0, 1]
    shrinking[0] = Index(0, lambda: mutate_and_run(shrinking))
    return {
        "job_id": job(job_id=Index(JOB_ID, action)),
        "first key": job(keys=Iterable(KEYS, 0, action)),
        "last key": job(keys=Iterable(KEYS, 1, action)),
        "number of keys": job(keys=Sized(KEYS, None, action)),
        "first row": job(rows=Iterable((0, 1), 0, action)),
        "last row": job(rows=Iterable((0, 1), 1, action)),
        "number of rows": job(rows=Sized((0, 1), None, action)),
        "a row's __index__": job(rows=[0, Index(1, action)]),
        "a list that shrinks": job(rows=shrinking),
        "reading job_id": JobWith(job(), "job_id", action),
        "reading keys": JobWith(job(), "keys", action),
        "reading chunk_ids": JobWith(job(), "chunk_ids", action),
    }


def is_asked_for_its_length():
    """Whether tuple() reads the length of what it gets, as it did up to CPython 3.13."""
    asked = []
    tuple(Sized((), None, lambda: asked.append(True)))
    return bool(asked)


POINTS = [
    point
    for point in jobs_that_run(lambda: None)
    if not point.startswith("number of") or is_asked_for_its_length()
]
points = pytest.mark.parametrize("point", POINTS)
# Loads find the two blocks there, stores do not.
submits = pytest.mark.parametrize("kind", ["submit_store", "submit_load"])


def submit_with(driver, kind, point, action):
    if kind == "submit_load":
        driver.store("xy")
    getattr(driver.tier, kind)(jobs_that_run(action)[point])


@submits
@points
def test_a_job_whose_conversion_runs_code_is_a_job_like_any_other(four, kind, point):
    calls = []
    submit_with(four, kind, point, lambda: calls.append(four.look("q")))
    (result,) = four.finish()
    assert calls
    assert (result.job_id, result.success, result.transfer_bytes) == (77, True, 2 * 64)


@submits
@points
def test_a_conversion_that_raises_leaves_everything_as_it_was(four, kind, point):
    if kind == "submit_load":
        four.store("xy")
    before = four.tier.stats()
    with pytest.raises(Interrupt):
        getattr(four.tier, kind)(jobs_that_run(interrupt)[point])
    assert four.tier.stats() == before
    assert not four.tier.has_pending_work()
    four.tier.submit_store(TransferJob(JOB_ID, keys_of("z"), [0], False, CONTEXT))
    assert four.finish()[0].success


@submits
@points
def test_a_conversion_that_ends_the_tier_is_told_so(four, kind, point):
    with pytest.raises(RuntimeError, match="shut down"):
        submit_with(four, kind, point, four.tier.shutdown)
    assert four.tier.get_finished_jobs() == []
    four.primary.resize((1, 1), refcheck=False)


@submits
@points
def test_a_conversion_that_submits_the_same_job_leaves_one_of_them(four, kind, point):
    inner = TransferJob(JOB_ID, keys_of("a"), [5], False, CONTEXT)
    submitted = []

    def submit_once():
        if not submitted:
            submitted.append(True)
            four.tier.submit_store(inner)

    with pytest.raises(ValueError, match="job 77 is in use"):
        submit_with(four, kind, point, submit_once)
    (result,) = four.finish()
    assert (result.job_id, result.transfer_bytes) == (JOB_ID, 64)
    assert four.look("a") is HIT


@pytest.mark.parametrize("place", [0, 1])
def test_touched_keys_may_raise_or_end_the_tier(four, place):
    with pytest.raises(Interrupt):
        four.tier.touch(Iterable(KEYS, place, interrupt), CONTEXT)
    with pytest.raises(RuntimeError, match="shut down"):
        four.tier.touch(Iterable(KEYS, place, four.tier.shutdown), CONTEXT)


def test_a_key_of_a_subclass_of_bytes_is_its_bytes(four):
    key = Key(b"key")
    four.tier.submit_store(TransferJob(1, [key], [0], False, CONTEXT))
    four.finish()
    assert four.tier.lookup(b"key", CONTEXT) is HIT
    assert four.tier.lookup(key, CONTEXT) is HIT
    four.tier.touch([key], CONTEXT)


@pytest.mark.parametrize("job_id", [np.int64(5), Index(5, lambda: None), True])
def test_a_job_id_is_the_number_that_it_stands_for(four, job_id):
    four.tier.submit_store(TransferJob(job_id, keys_of("a"), [0], False, CONTEXT))
    with pytest.raises(ValueError, match="in use"):
        four.tier.submit_store(TransferJob(int(np.int64(job_id)), [], [], False, CONTEXT))
    (result,) = four.finish()
    assert (result.job_id, type(result.job_id)) == (job_id.__index__(), int)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no buffers are made in Python there")
def test_a_view_that_opens_the_tier_itself_is_refused():
    array = np.zeros((ROWS, BLOCK_BYTES), np.uint8)
    tier = TierWith.__new__(TierWith)
    view = BufferInPython(array, at_export=lambda: open_with(tier, array.data))
    with pytest.raises(RuntimeError, match="open already"):
        open_with(tier, view)
    assert view.exports == 0
    assert tier.lookup(b"a", CONTEXT) is MISS
    tier.shutdown()


def test_a_reset_and_a_shutdown_at_once_do_not_disturb_each_other():
    for _ in range(30):
        driver = HostDriver(64, 64, 1 << 12)
        driver.submit_store("abcdef")

        def reset(tier=driver.tier):
            with contextlib.suppress(RuntimeError):
                for _ in range(10):
                    tier.reset()

        threads = [threading.Thread(target=reset) for _ in range(3)]
        for thread in threads:
            thread.start()
        driver.tier.shutdown()
        for thread in threads:
            thread.join()
        assert len(driver.tier.get_finished_jobs()) == 1


ACTIONS = {
    "shutdown": lambda tier: tier.shutdown(),
    "store": lambda tier: tier.submit_store(
        TransferJob(JOB_ID + 1, keys_of("z"), [0], False, CONTEXT)
    ),
    "reset": lambda tier: tier.reset(),
    "garbage collection": lambda tier: gc.collect(),
    "exception": lambda tier: interrupt(),
}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no buffers are made in Python there")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("point", ["at_export", "at_release"])
def test_rows_in_a_buffer_made_in_python_may_call_the_tier(four, point, action):
    rows = BufferInPython(np.arange(2), **{point: lambda: action(four.tier)})
    with contextlib.suppress(Interrupt, RuntimeError):
        four.tier.submit_store(TransferJob(JOB_ID, KEYS, rows, False, CONTEXT))
    assert rows.exports == 0
    four.tier.shutdown()
    assert not four.tier.stats().stores_in_flight
    jobs = [result.job_id for result in four.tier.get_finished_jobs()]
    assert len(jobs) == len(set(jobs))
    assert set(jobs) <= {JOB_ID, JOB_ID + 1}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no buffers are made in Python there")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_a_primary_buffer_made_in_python_may_call_the_tier_when_released(action):
    view = BufferInPython(np.zeros((ROWS, BLOCK_BYTES), np.uint8))
    tier = make_tier(view)
    tier.submit_store(TransferJob(JOB_ID, KEYS, [0, 1], False, CONTEXT))
    view.at_release = lambda: action(tier)
    with contextlib.suppress(Interrupt, RuntimeError):
        tier.shutdown()
    tier.shutdown()
    assert view.exports == 0
    (result,) = tier.get_finished_jobs()
    assert result.job_id == JOB_ID


# -- The caller's types make results and events -----------------------------------------------


class TierWith(NativeTier):
    """A tier that makes results and events by functions given to it."""

    def __init__(self, job_result=JobResult, event=OffloadingEvent):
        self.primary = np.zeros((ROWS, BLOCK_BYTES), np.uint8)
        open_with(self, self.primary.data, job_result, event)

    def store(self, job_id, letter):
        self.submit_store(TransferJob(job_id, keys_of(letter), [0], False, CONTEXT))
        self.drain_jobs()


def open_with(tier, view, job_result=JobResult, event=OffloadingEvent):
    tier._open(
        view,
        SLOTS * BLOCK_BYTES,
        1,
        None,
        "lru",
        verify=False,
        huge_pages="auto",
        numa_node=None,
        prefault=False,
        lookup_results=(LookupResult.MISS, LookupResult.HIT, LookupResult.RETRY),
        job_result=job_result,
        event=event,
        clock=None,
        rows_attribute="chunk_ids",
        drops_fail=True,
    )


class Faulty:
    """Makes things by `make`, and runs `action` at the calls whose numbers are in `at`."""

    def __init__(self, make, at, action=interrupt):
        self.make, self.at, self.action, self.calls = make, at, action, 0

    def __call__(self, *arguments, **named):
        self.calls += 1
        if self.calls in self.at:
            self.action()
        return self.make(*arguments, **named)


@pytest.mark.parametrize("failing", range(1, 5))
def test_a_result_type_that_raises_loses_no_result(failing):
    tier = TierWith(job_result=Faulty(JobResult, {failing, failing + 1}))
    for job_id, letter in enumerate("abcd", 1):
        tier.store(job_id, letter)
    failures = 0
    while True:
        try:
            results = tier.get_finished_jobs()
            break
        except Interrupt:
            failures += 1
            assert tier.has_pending_work() or failing == 5
            # Neither the job that failed nor one whose result waits can be used again.
            with pytest.raises(ValueError, match="in use"):
                tier.submit_store(TransferJob(1, [], [], False, CONTEXT))
    assert failures == 2
    assert [result.job_id for result in results] == [1, 2, 3, 4]
    assert tier.get_finished_jobs() == []
    tier.store(1, "a")
    assert [result.job_id for result in tier.get_finished_jobs()] == [1]
    tier.shutdown()


@pytest.mark.parametrize("place", range(1, 5))
def test_a_result_type_that_collects_results_gets_none(place):
    inner = []
    tier = TierWith(
        job_result=Faulty(JobResult, {place}, lambda: inner.extend(tier.get_finished_jobs()))
    )
    for job_id, letter in enumerate("abcd", 1):
        tier.store(job_id, letter)
    outer = tier.get_finished_jobs()
    assert inner == []
    assert [result.job_id for result in outer] == [1, 2, 3, 4]
    tier.shutdown()


class Garbage:
    """A cycle whose finalizer, run by the garbage collector, runs `action`."""

    def __init__(self, action):
        self.cycle, self.action = self, action

    def __del__(self):
        self.action()


@pytest.fixture
def collector():
    """The garbage collector, off, and set back afterwards."""
    was_enabled, thresholds = gc.isenabled(), gc.get_threshold()
    gc.disable()
    yield gc
    gc.set_threshold(*thresholds)
    if was_enabled:
        gc.enable()


def test_a_finalizer_that_collects_results_gets_each_once(collector):
    # Where any allocation may collect garbage, up to CPython 3.11: at another one each time.
    tier = TierWith(job_result=JobResult)
    collected = []
    for trial in range(200):
        for letter in "abcd":
            tier.store(len(collected) * 4 + ord(letter), letter)
        results = []
        Garbage(lambda results=results: results.extend(tier.get_finished_jobs()))
        collector.set_threshold(1 + trial % 40, 1, 1)
        collector.enable()
        returned = tier.get_finished_jobs()
        collector.disable()
        collector.collect()
        collected.append([*results, *returned])
    for trial, results in enumerate(collected):
        expected = [trial * 4 + ord(letter) for letter in "abcd"]
        assert sorted(result.job_id for result in results) == expected
    tier.shutdown()


@contextlib.contextmanager
def interrupted_soon():
    """A signal arrives in a millisecond, and its handler raises Interrupt."""
    previous = signal.signal(signal.SIGALRM, lambda number, frame: interrupt())
    try:
        with contextlib.suppress(Interrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            yield
            threading.Event().wait(1)
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_a_signal_handler_that_raises_loses_no_result(collector):
    # A result type without Python code of its own, in which the handler would run.
    tier = TierWith(job_result=functools.partial(functools.partial, tuple))
    for job_id in range(20_000):
        tier.submit_store(TransferJob(job_id, [], [], False, CONTEXT))
    results = []
    with interrupted_soon():
        results = tier.get_finished_jobs()
    results += tier.get_finished_jobs()
    assert [result.args[0] for result in results] == list(range(20_000))
    tier.shutdown()


def test_a_result_type_may_end_the_tier():
    result_type = Faulty(JobResult, {2})
    tier = TierWith(job_result=result_type)
    result_type.action = tier.shutdown
    for job_id, letter in enumerate("abc", 1):
        tier.store(job_id, letter)
    assert [result.job_id for result in tier.get_finished_jobs()] == [1, 2, 3]
    with pytest.raises(RuntimeError, match="shut down"):
        tier.drain_jobs()


def test_threads_that_collect_results_get_each_once():
    # A result type in Python lets other threads run while a result is made.
    def slow(*arguments):
        threading.Event().wait(0.0005)
        return JobResult(*arguments)

    tier = TierWith(job_result=slow)
    collected = []

    def collect():
        while len(collected) < 100:
            collected.extend(tier.get_finished_jobs())

    threads = [threading.Thread(target=collect) for _ in range(3)]
    for thread in threads:
        thread.start()
    for job_id in range(100):
        tier.submit_store(TransferJob(job_id, [b"%d" % job_id], [0], False, CONTEXT))
    for thread in threads:
        thread.join()
    assert sorted(result.job_id for result in collected) == list(range(100))
    tier.shutdown()


def changes(events):
    return [(key, event.removed) for event in events for key in event.keys]


@pytest.mark.parametrize("failing", range(1, 6))
def test_an_event_type_that_raises_loses_no_event(failing):
    tier = TierWith(event=Faulty(OffloadingEvent, {failing}))
    for job_id, letter in enumerate("abcdef"):
        tier.store(job_id, letter)
    with pytest.raises(Interrupt):
        tier.take_events()
    tier.store(6, "g")
    told = changes(tier.take_events()) + changes(tier.take_events())
    expected = zip("++++-+-+-+", keys_of("abcdaebfcg"), strict=True)
    assert told == [(key, sign == "-") for sign, key in expected]
    tier.shutdown()


def test_an_event_type_that_takes_events_gets_none():
    inner = []
    tier = TierWith(
        event=Faulty(OffloadingEvent, {1}, lambda: inner.extend(tier.take_events()))
    )
    tier.store(1, "a")
    assert changes(tier.take_events()) == [(keys_of("a")[0], False)]
    assert inner == []
    tier.shutdown()


def test_an_event_type_may_end_the_tier():
    event_type = Faulty(OffloadingEvent, {1})
    tier = TierWith(event=event_type)
    event_type.action = tier.shutdown
    tier.store(1, "a")
    assert changes(tier.take_events()) == [(keys_of("a")[0], False)]
    assert tier.take_events() == []


def test_a_signal_handler_that_raises_loses_no_event(collector):
    tier = TierWith(event=types.SimpleNamespace)
    for job_id in range(5_000):
        tier.submit_store(TransferJob(job_id, [b"%d" % job_id], [0], False, CONTEXT))
        tier.drain_jobs()
    stored = []
    with interrupted_soon():
        stored = changes(tier.take_events())
    stored += changes(tier.take_events())
    assert [key for key, removed in stored if not removed] == [b"%d" % i for i in range(5_000)]
    tier.shutdown()


def test_events_that_could_not_be_told_go_with_the_tier():
    tier = TierWith(event=Faulty(OffloadingEvent, range(100)))
    tier.store(1, "a")
    with pytest.raises(Interrupt):
        tier.take_events()
    tier.shutdown()
    del tier


# -- No memory --------------------------------------------------------------------------------


def outcomes_without_memory(call, most_failures):
    """Call until it succeeds, with one more of the interpreter's allocations granted each time.

    After those it grants, `most_failures` are refused, 0 for all that follow. Yields
    MemoryError for each call that raises it, and at last the result of the one that does not.
    """
    _testcapi = pytest.importorskip("_testcapi")
    for granted in range(1000):
        _testcapi.set_nomemory(granted, granted + most_failures if most_failures else 0)
        try:
            outcome = call()
        except MemoryError:
            outcome = MemoryError
        finally:
            _testcapi.remove_mem_hooks()
        yield outcome
        if outcome is not MemoryError:
            return
    raise AssertionError("the call never succeeded")


without_memory = pytest.mark.parametrize("most_failures", [1, 2, 0])


@without_memory
@submits
def test_a_submission_without_memory_leaves_everything_as_it_was(four, kind, most_failures):
    four.store("xy")
    job = TransferJob(JOB_ID, keys_of("wxyz"), [0, 1, 2, 3], False, CONTEXT)
    submit = getattr(four.tier, kind)
    before = four.tier.stats()
    failures = 0
    for outcome in outcomes_without_memory(lambda: submit(job), most_failures):
        if outcome is MemoryError:
            failures += 1
            assert four.tier.stats() == before
    assert failures >= 2  # the keys' memory and the rows'
    (result,) = four.finish()
    assert result.job_id == JOB_ID
    assert result.transfer_bytes == 2 * 64


@without_memory
def test_results_without_memory_are_not_lost(four, most_failures):
    four.store("ac")
    collected, failures, submitted = [], 0, 0
    for number in range(1, 40):
        # A load that serves some keys has the most to make.
        four.tier.submit_load(TransferJob(number, keys_of("abc"), [0, 1, 2], True, CONTEXT))
        submitted += 1
        four.tier.drain_jobs()
        for outcome in outcomes_without_memory(four.tier.get_finished_jobs, most_failures):
            if outcome is MemoryError:
                failures += 1
            else:
                collected += outcome
    assert failures > submitted
    assert [result.job_id for result in collected] == list(range(1, submitted + 1))
    assert all(result.successful_keys == keys_of("ac") for result in collected)


@without_memory
def test_events_without_memory_are_not_lost(four, most_failures):
    four.store("abcd")
    four.store("wxyz")
    failures = 0
    for outcome in outcomes_without_memory(four.tier.take_events, most_failures):
        if outcome is MemoryError:
            failures += 1
    assert failures >= 4
    assert len(changes(outcome)) == 12
    assert four.tier.take_events() == []


@without_memory
def test_a_constructor_without_memory_holds_nothing(most_failures):
    array = np.zeros((ROWS, BLOCK_BYTES), np.uint8)
    view = array.data
    failures = 0
    for tier in outcomes_without_memory(lambda: make_tier(view), most_failures):
        if tier is MemoryError:
            failures += 1
            assert worker_threads() == 0
    assert failures > 5
    tier.shutdown()
    view.release()
    array.resize((1, 1))
