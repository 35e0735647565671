import gzip
import io
import os
import sys
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreg.replay import source
from kvreg.replay.source import STDIN, TraceError, read_lines

LINES = b'{"hash_ids": [1, 2]}\n\n{"hash_ids": [3]}\n'
READ = ['{"hash_ids": [1, 2]}\n', '{"hash_ids": [3]}\n']
UTF8_BOM = b"\xef\xbb\xbf"


@pytest.fixture
def write(tmp_path):
    def write(data, name="trace.jsonl"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.fixture
def standard_input(monkeypatch):
    def give(data):
        stdin = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data)))
        monkeypatch.setattr(sys, "stdin", stdin)

    return give


def texts(path):
    return [line for _, line in read_lines(path)]


def test_lines_come_with_the_files_name_and_their_number(write):
    path = write(LINES)
    assert list(read_lines(path)) == [(f"{path}:1", READ[0]), (f"{path}:3", READ[1])]


@pytest.mark.parametrize("name", ["trace.jsonl.gz", "trace.jsonl"])
def test_gzip_is_known_by_its_bytes_whatever_the_name(write, name):
    path = write(gzip.compress(LINES), name)
    assert list(read_lines(path)) == [(f"{path}:1", READ[0]), (f"{path}:3", READ[1])]


def test_gzip_of_several_members_is_read_to_the_end(write):
    assert texts(write(gzip.compress(LINES) + gzip.compress(LINES))) == READ * 2


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_standard_input_is_a_trace_like_any_other(standard_input, compress):
    standard_input(compress(LINES))
    assert list(read_lines(STDIN)) == [("<stdin>:1", READ[0]), ("<stdin>:3", READ[1])]


def test_a_pipe_can_be_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[gzip.compress(LINES)])
    writer.start()
    assert texts(path) == READ
    writer.join()


def test_a_file_of_the_name_of_standard_input_can_be_read(write, monkeypatch):
    path = write(LINES, STDIN)
    monkeypatch.chdir(path.parent)
    assert texts(f"./{STDIN}") == READ


def test_closed_standard_input_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(TraceError, match="<stdin>: standard input is closed"):
        texts(STDIN)


def test_a_byte_order_mark_is_no_part_of_a_line(write):
    data = UTF8_BOM + LINES
    assert texts(write(data)) == READ
    assert texts(write(data + data)) == READ * 2
    assert texts(write(gzip.compress(data))) == READ
    assert texts(write(UTF8_BOM)) == []


@pytest.mark.parametrize("data", [b"", b"\n \t\r\n", gzip.compress(b"")])
def test_nothing_has_no_lines(write, data):
    assert texts(write(data)) == []


@given(lines=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)))
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_every_line_that_is_not_blank_is_read(tmp_path_factory, compress, lines):
    path = tmp_path_factory.mktemp("source") / "trace"
    path.write_bytes(compress("\n".join(lines).encode()))
    numbered = [(i, line) for i, line in enumerate(lines, start=1) if line.strip("\ufeff")]
    kept = [(f"{path}:{i}", line.removeprefix("\ufeff")) for i, line in numbered]
    read = [(where, line.removesuffix("\n")) for where, line in read_lines(path)]
    assert read == [(where, line) for where, line in kept if not line.isspace()]


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (LINES.decode().encode("utf-16"), 1, "not UTF-8 text: it has NUL bytes, as UTF-16"),
        (LINES.decode().encode("utf-16-be"), 1, "not UTF-8 text: it has NUL bytes, as UTF-16"),
        (LINES.decode().encode("utf-32"), 1, "not UTF-8 text: it has NUL bytes"),
        (b"\x7fELF\x02\x01\x01\x00\x00", 1, "not UTF-8 text: it has NUL bytes"),
        (b"\x28\xb5\x2f\xfd\x04", 1, "not UTF-8 text: byte 0xb5 at column 2"),
        (LINES + b"abc\xff\n", 4, "not UTF-8 text: byte 0xff at column 4"),
        (gzip.compress(gzip.compress(LINES)), 1, "not UTF-8 text: "),
        (gzip.compress(LINES)[:-9], 4, "cannot be read: Compressed file ended before"),
        (gzip.compress(LINES)[:5], 1, "cannot be read: Compressed file ended before"),
        (gzip.compress(LINES)[:-8] + bytes(8), 4, "cannot be read: CRC check failed"),
        (gzip.compress(LINES) + b"more", 4, "cannot be read: Not a gzipped file"),
        (gzip.compress(LINES)[:10] + b"\xff" * 20, 1, "cannot be read: Error -3"),
    ],
)
def test_what_cannot_be_read_is_told_with_file_line_and_reason(write, data, line, reason):
    path = write(data)
    with pytest.raises(TraceError) as error:
        texts(path)
    assert str(error.value).startswith(f"{path}:{line}: {reason}")
    assert "\n" not in str(error.value)


def test_a_file_without_an_end_of_line_does_not_take_all_memory(write, monkeypatch):
    monkeypatch.setattr(source, "_LONGEST_LINE", len(LINES))
    path = write(LINES + b" " * len(LINES) + b"\n")
    with pytest.raises(TraceError, match=r"trace\.jsonl:4: the line is longer than \d+ bytes"):
        texts(path)


def test_a_file_that_cannot_be_opened_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        texts(tmp_path / "absent.jsonl")
    with pytest.raises(IsADirectoryError):
        texts(tmp_path)
