import json

import pytest

from kvreg.replay.trace import Request, TraceError, read_trace

GOOD = '{"hash_ids": [0]}'


@pytest.fixture
def trace(tmp_path):
    def write(*lines):
        path = tmp_path / "trace.jsonl"
        path.write_bytes("\n".join(lines).encode())
        return path

    return write


def sized(num_tokens, *hash_ids):
    return json.dumps({"input_length": num_tokens, "hash_ids": hash_ids})


def timed(timestamp, *hash_ids):
    return json.dumps({"timestamp": timestamp, "hash_ids": hash_ids})


def test_requests_come_in_the_order_of_lines(trace):
    path = trace(
        '{"timestamp": 0, "output_length": 5, "hash_ids": [0, 7]}',
        '{"timestamp": 1500, "hash_ids": [0, 99999999999999999999, -1, "0xab"]}',
        '{"timestamp": 2000.5, "hash_ids": []}',
    )
    read = read_trace(path)
    assert read.requests == [
        Request((0, 7), 0.0),
        Request((0, 99999999999999999999, -1, "0xab"), 1.5),
        Request((), 2.0005),
    ]
    assert not read.warnings


def test_blank_lines_are_skipped_and_counted(trace):
    path = trace("", GOOD, " \t\r", GOOD, "", "oops")
    assert read_trace(path, limit=2).requests == [Request((0,), 0.0), Request((0,), 1.0)]
    with pytest.raises(TraceError, match=r"trace\.jsonl:6: "):
        read_trace(path)


def test_only_requests_within_the_limit_are_read(trace):
    assert read_trace(trace(GOOD, "oops"), limit=1).requests == [Request((0,))]


def test_a_bad_line_is_reported_with_file_line_and_reason(trace):
    path = trace(GOOD, '{"hash_ids": 7}')
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}:2: 'hash_ids' must be a list")


def test_a_trace_without_requests_is_an_error(trace):
    path = trace("", " ")
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value) == f"{path}: no requests"


def test_the_same_moments_are_the_same_requests_in_any_unit(trace):
    seconds = [0, 0.25, 3.5, 90]
    in_s = read_trace(trace(*(timed(s, 1) for s in seconds)))
    in_ms = read_trace(trace(*(timed(1000 * s, 1) for s in seconds)))
    assert in_s.requests == in_ms.requests
    assert (in_s.reading.timestamp_unit, in_ms.reading.timestamp_unit) == ("s", "ms")


def test_a_unit_that_is_not_certain_is_a_warning_that_the_option_settles(trace):
    path = trace(timed(0, 1), timed(0.25, 1))
    (warning,) = read_trace(path).warnings
    assert warning.startswith(f"{path}: timestamps are taken as s: ")
    assert "--timestamp-unit" in warning
    told = read_trace(path, timestamp_unit="ms")
    assert not told.warnings
    assert told.reading.timestamp_unit_reason == "as told"
    assert [request.seconds for request in told.requests] == [0, 0.00025]


UNSORTED = [timed(t, i) for i, t in enumerate([9000, 9000, 0, 4000, 3000, 9000])]


def test_time_that_goes_back_is_a_warning_with_line_and_amount(trace):
    path = trace("", *UNSORTED)
    read = read_trace(path)
    assert [request.seconds for request in read.requests] == [9, 9, 0, 4, 3, 9]
    assert (read.reading.steps_back, read.reading.sorted) == (2, False)
    (warning,) = read.warnings
    assert warning.startswith(
        f"{path}:4: time goes back by 9 s, the farthest of 2 times; --sort"
    )


def test_sorted_requests_of_one_time_stay_in_their_order(trace):
    read = read_trace(trace(*UNSORTED), sort=True)
    assert [(r.seconds, *r.hash_ids) for r in read.requests] == [
        *((0, 2), (3, 4), (4, 3)),
        *((9, 0), (9, 1), (9, 5)),
    ]
    assert (read.reading.steps_back, read.reading.sorted) == (2, True)
    assert not read.warnings


def test_the_limit_of_a_sorted_trace_is_of_the_first_in_time(trace):
    read = read_trace(trace(*UNSORTED), limit=2, sort=True)
    assert [request.seconds for request in read.requests] == [0, 3]


def test_ids_of_partial_blocks_are_left_out(trace):
    path = trace(sized(513, 1, 2), sized(1024, 1, 3), sized(100, 4), GOOD)
    read = read_trace(path)
    assert [request.hash_ids for request in read.requests] == [(1,), (1, 3), (), (0,)]
    assert (read.reading.tokens_per_block, read.reading.partial_blocks) == (512, 2)
    assert not read.warnings


def test_a_trace_that_lists_whole_blocks_only_keeps_every_id(trace):
    read = read_trace(trace(sized(5000, *range(9)), sized(513, 1), sized(10)))
    assert [len(request.hash_ids) for request in read.requests] == [9, 1, 0]
    assert (read.reading.tokens_per_block, read.reading.partial_blocks) == (512, 0)


def test_partial_blocks_beyond_the_limit_do_not_count(trace):
    read = read_trace(trace(sized(513, 1, 2), sized(513, 1, 2)), limit=1, sort=True)
    assert read.reading.partial_blocks == 1


def test_the_tokens_of_a_block_can_be_given_or_not_looked_at(trace):
    path = trace(sized(384, 1, 2))
    assert read_trace(path, tokens_per_block=256).requests == [Request((1,))]
    assert read_trace(path, tokens_per_block=384 // 2).requests == [Request((1, 2))]
    off = read_trace(path, tokens_per_block="off")
    assert off.requests == [Request((1, 2))]
    assert off.reading.tokens_per_block is None


def test_an_input_length_that_fits_nothing_is_a_warning_and_every_id_counts(trace):
    path = trace(sized(513, 1, 2), sized(10, 1, 2, 3))
    read = read_trace(path)
    assert [request.hash_ids for request in read.requests] == [(1, 2), (1, 2, 3)]
    assert read.reading.tokens_per_block is None
    (warning,) = read.warnings
    assert warning.startswith(f"{path}:2: 'input_length' is 10 for 3 ids: no number")
    assert "--tokens-per-block" in warning
    assert not read_trace(path, tokens_per_block="off").warnings
