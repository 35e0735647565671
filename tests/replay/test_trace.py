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


def test_requests_come_in_the_order_of_lines(trace):
    path = trace(
        '{"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [0, 7]}',
        '{"timestamp": 1500, "hash_ids": [0, 99999999999999999999, -1]}',
        '{"timestamp": 2000.5, "hash_ids": []}',
    )
    assert read_trace(path) == [
        Request((0, 7), 0.0),
        Request((0, 99999999999999999999, -1), 1.5),
        Request((), 2.0005),
    ]


def test_a_request_without_a_time_comes_a_second_after_the_one_before(trace):
    path = trace(GOOD, '{"timestamp": 7000, "hash_ids": [0]}', GOOD, GOOD)
    assert [request.seconds for request in read_trace(path)] == [0, 7, 8, 9]


def test_blank_lines_are_skipped_and_counted(trace):
    path = trace("", GOOD, " \t\r", GOOD, "", "oops")
    assert read_trace(path, limit=2) == [Request((0,), 0.0), Request((0,), 1.0)]
    with pytest.raises(TraceError, match=r"trace\.jsonl:6: "):
        read_trace(path)


def test_only_requests_within_the_limit_are_read(trace):
    assert read_trace(trace(GOOD, "oops"), limit=1) == [Request((0,))]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("oops", "not JSON: Expecting value at column 1"),
        ('{"hash_ids": [1, 2}', "not JSON: Expecting ',' delimiter at column 19"),
        ("[" * 100_000, "not JSON: "),
        ("9" * 5_000, "not JSON: Exceeds the limit"),
        ("[1, 2]", "a request is a JSON object; found [1, 2]"),
        ('{"timestamp": 0}', "'hash_ids' is missing"),
        (
            '{"timestamp": -1, "hash_ids": []}',
            "'timestamp' must be milliseconds, 0 or more; it is -1",
        ),
        (
            '{"timestamp": 1e300, "hash_ids": []}',
            "'timestamp' must be milliseconds, 0 or more; it is 1e+300",
        ),
        (
            '{"timestamp": NaN, "hash_ids": []}',
            "'timestamp' must be milliseconds, 0 or more; it is nan",
        ),
        (
            '{"timestamp": true, "hash_ids": []}',
            "'timestamp' must be milliseconds, 0 or more; it is True",
        ),
        (
            '{"timestamp": "1", "hash_ids": []}',
            "'timestamp' must be milliseconds, 0 or more; it is '1'",
        ),
        ('{"hash_ids": 7}', "'hash_ids' must be a list of integers; it is 7"),
        ('{"hash_ids": null}', "'hash_ids' must be a list of integers; it is None"),
        ('{"hash_ids": [1, true]}', "'hash_ids' must be a list of integers; it contains True"),
        ('{"hash_ids": [1.0]}', "'hash_ids' must be a list of integers; it contains 1.0"),
        ('{"hash_ids": ["1"]}', "'hash_ids' must be a list of integers; it contains '1'"),
        ('{"hash_ids": [[1]]}', "'hash_ids' must be a list of integers; it contains [1]"),
    ],
)
def test_a_bad_line_is_reported_with_file_line_and_reason(trace, line, reason):
    path = trace(GOOD, line)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}:2: {reason}")
    assert "\n" not in str(error.value)


def test_bytes_that_are_not_utf8_are_a_bad_line(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b'{"hash_ids": [0]}\n\xff\n')
    with pytest.raises(TraceError, match=r"trace\.jsonl:2: not JSON: .*utf-8"):
        read_trace(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "absent.jsonl")
