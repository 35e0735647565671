import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreg.replay.clock import (
    TIMESTAMP_UNITS,
    choose_unit,
    detect_unit,
    steps_back,
    tell_seconds,
)
from kvreg.replay.record import Record
from kvreg.replay.source import TraceError

MARCH_2024 = 1_711_929_600


def records(*timestamps):
    return [Record(f"t:{i}", (), time, None) for i, time in enumerate(timestamps, start=1)]


def arrivals(a_second, number=1000, start=0.0):
    """Return when requests came at random, in seconds."""
    generator = random.Random(7)
    times = [start]
    while len(times) < number:
        times.append(times[-1] + generator.expovariate(a_second))
    return times


@pytest.mark.parametrize("a_second", [0.02, 0.1, 1, 5, 50, 900])
def test_seconds_with_fractions_are_found_out(a_second):
    unit = detect_unit(arrivals(a_second))
    assert (unit.name, unit.is_certain) == ("s", False)


@pytest.mark.parametrize("a_second", [1.5, 5, 50, 900])
def test_whole_seconds_are_found_out_where_more_than_one_request_comes_in_one(a_second):
    unit = detect_unit([int(time) for time in arrivals(a_second)])
    assert (unit.name, unit.is_certain) == ("s", False)


@pytest.mark.parametrize("a_second", [0.001, 0.02, 0.1, 1, 5, 9])
@pytest.mark.parametrize("number", [int, float])
def test_milliseconds_are_found_out(a_second, number):
    unit = detect_unit([number(1000 * time) for time in arrivals(a_second)])
    assert (unit.name, unit.is_certain) == ("ms", True)


@pytest.mark.parametrize("gap", [1, 5, 99])
def test_whole_numbers_with_a_gap_that_fits_both_units_are_milliseconds_with_a_doubt(gap):
    unit = detect_unit(range(0, 100 * gap, gap))
    assert (unit.name, unit.is_certain) == ("ms", False)


@pytest.mark.parametrize("unit", TIMESTAMP_UNITS)
@pytest.mark.parametrize("a_second", [0.001, 1, 5000])
@pytest.mark.parametrize("number", [int, float])
def test_moments_since_1970_tell_their_unit(unit, a_second, number):
    times = arrivals(a_second, start=MARCH_2024)
    found = detect_unit([number(TIMESTAMP_UNITS[unit] * time) for time in times])
    assert found == (unit, "moments since 1970", True)


def test_a_trace_that_only_lasts_long_is_not_taken_for_moments_since_1970():
    assert detect_unit([0, 5 * 10**9, 10**10]).name == "ms"


def test_one_moment_or_the_same_one_says_nothing_against_milliseconds():
    assert detect_unit([5]) == detect_unit([0.5, 0.5]) == ("ms", "all are equal", True)
    assert detect_unit([MARCH_2024 + 0.5]).name == "s"


def test_without_timestamps_there_is_no_unit():
    assert detect_unit([]) == (None, "one request a second", True)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30), st.randoms())
def test_the_unit_does_not_depend_on_the_order(timestamps, generator):
    shuffled = generator.sample(timestamps, len(timestamps))
    assert detect_unit(shuffled) == detect_unit(timestamps)


@pytest.mark.parametrize("unit", TIMESTAMP_UNITS)
def test_the_unit_given_is_taken(unit):
    assert choose_unit(records(0, None, 0.1), unit) == (unit, "as told", True)
    assert choose_unit(records(None), unit).name is None
    assert tell_seconds(records(3, 4.5), unit) == [
        3 / TIMESTAMP_UNITS[unit],
        4.5 / TIMESTAMP_UNITS[unit],
    ]


def test_auto_looks_at_the_timestamps_there_are():
    assert choose_unit(records(None, 0, None, 3000), "auto").name == "ms"
    assert choose_unit(records(None, 0.5, None, 3.5), "auto").name == "s"


def test_a_request_without_a_time_comes_a_second_after_the_one_before():
    assert tell_seconds(records(None, 7000, None, None), "ms") == [0, 7, 8, 9]
    assert tell_seconds(records(None, None), None) == [0, 1]


def test_a_timestamp_that_is_no_time_in_its_unit_is_refused():
    assert tell_seconds(records(0, 1e18), "ns") == [0, 1e9]
    with pytest.raises(TraceError, match=r"t:2: 'timestamp' must be less than .*1e\+18 us"):
        tell_seconds(records(0, 1e18), "us")


def test_steps_back_are_told_with_line_and_amount():
    back = steps_back(records(*range(6)), [0, 5, 3, 3, 9, 8.5])
    assert back == [("t:3", 2), ("t:6", 0.5)]
    assert steps_back([], []) == []


@given(st.lists(st.floats(0, 1e9)))
def test_only_a_sorted_trace_has_no_steps_back(seconds):
    back = steps_back(records(*seconds), seconds)
    assert (not back) == (sorted(seconds) == seconds)
