"""kvreg.copy_blocks, beside a byte-wise reference."""

import ctypes
import mmap
import os
import subprocess
import sys
import threading
from array import array
from contextlib import suppress
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreg import copy_blocks
from tests.buffer_in_python import BufferInPython


def copy_bytewise(dst, dst_ids, src, src_ids):
    """What copy_blocks must do; ``dst`` and ``src`` are 2-D arrays of bytes."""
    for dst_id, src_id in zip(dst_ids, src_ids, strict=True):
        for column in range(src.shape[1]):
            dst[dst_id, column] = src[src_id, column]


@pytest.fixture
def pair():
    """Destination and source of (4, 8) and (6, 8) bytes."""
    return np.zeros((4, 8), np.uint8), np.arange(48, dtype=np.uint8).reshape(6, 8)


def kernel_names():
    """Every kernel that this machine has, as the error for an unknown one lists them."""
    byte = bytearray(1)
    view = memoryview(byte).cast("B", (1, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVREG_COPY", "?")
        with pytest.raises(ValueError, match="KVREG_COPY") as caught:
            copy_blocks(view, [], view, [])
    return str(caught.value).split(": ")[1].split(", ")


@st.composite
def rows_in_a_larger_array(draw, row_bytes, contents):
    """An array whose rows are apart, at any alignment, with guard bytes around and between."""
    rows = draw(st.integers(1, 8))
    gap = draw(st.integers(0, 70))
    head = draw(st.integers(0, 70))
    whole = np.full(head + rows * (row_bytes + gap) + 70, 0xA5, np.uint8)
    spread = whole[head : head + rows * (row_bytes + gap)].reshape(rows, row_bytes + gap)
    view = spread[:, :row_bytes]
    if contents:
        view[:] = np.frombuffer(
            draw(st.binary(min_size=view.size, max_size=view.size)), np.uint8
        ).reshape(view.shape)
    return whole, view


@st.composite
def copies(draw):
    row_bytes = draw(st.integers(1, 300) | st.sampled_from([4096, 8192 + 64, 20001]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    dst_whole, dst = draw(rows_in_a_larger_array(row_bytes, contents=False))
    _, src = draw(rows_in_a_larger_array(row_bytes, contents=False))
    src[:] = random.integers(0, 256, src.shape)
    n = draw(st.integers(0, 12))
    dst_ids = draw(st.lists(st.integers(0, len(dst) - 1), min_size=n, max_size=n))
    src_ids = draw(st.lists(st.integers(0, len(src) - 1), min_size=n, max_size=n))
    return dst_whole, dst, dst_ids, src, src_ids


ID_KINDS = {
    "list": list,
    "tuple": tuple,
    "int32 array": lambda ids: np.array(ids, np.int32),
    "int64 array": lambda ids: np.array(ids, np.int64),
    "strided int64 array": lambda ids: np.repeat(np.array(ids, np.int64), 3)[::3],
    "reversed int32 array": lambda ids: np.array(ids[::-1], np.int32)[::-1],
    "array of int": lambda ids: array("i", ids),
    "array of long long": lambda ids: array("q", ids),
    "memoryview": lambda ids: memoryview(array("l", ids)),
    "list of numpy integers": lambda ids: [np.int16(i) for i in ids],
}


@pytest.mark.parametrize("kernel", [None, *kernel_names()])
@given(
    copy=copies(), kind=st.sampled_from(sorted(ID_KINDS)), threads=st.sampled_from([1, 2, 3])
)
def test_copies_like_the_bytewise_reference(kernel, copy, kind, threads):
    dst_whole, dst, dst_ids, src, src_ids = copy
    before = src.copy()
    expected_whole = dst_whole.copy()
    head = dst.ctypes.data - dst_whole.ctypes.data
    expected = np.lib.stride_tricks.as_strided(expected_whole[head:], dst.shape, dst.strides)
    copy_bytewise(expected, dst_ids, src, src_ids)
    convert = ID_KINDS[kind]
    with pytest.MonkeyPatch.context() as patch:
        if kernel is None:
            patch.delenv("KVREG_COPY", raising=False)
        else:
            patch.setenv("KVREG_COPY", kernel)
        copy_blocks(dst, convert(dst_ids), src, convert(src_ids), threads=threads)
    assert (dst_whole == expected_whole).all()
    assert (src == before).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_large_blocks_arrive_whole(threads):
    random = np.random.default_rng(1)
    src = random.integers(0, 256, (64, 300_001), np.uint8)
    dst = np.zeros_like(src)
    order = random.permutation(64)
    copy_blocks(dst, order, src, np.arange(64), threads=threads)
    assert (dst[order] == src).all()


def test_element_types_may_differ(pair):
    _, src = pair
    dst = np.zeros((4, 2), np.float32)
    copy_blocks(dst, [3], src, [5])
    assert dst[3].tobytes() == src[5].tobytes()


def test_buffers_do_whose_exporter_leaves_strides_out():
    dst = ((ctypes.c_ubyte * 8) * 4)()
    src = ((ctypes.c_ubyte * 8) * 2)((), tuple(range(8)))
    copy_blocks(dst, (ctypes.c_int32 * 1)(3), src, (ctypes.c_int64 * 1)(1))
    assert bytes(dst) == bytes(24) + bytes(range(8))


def test_row_numbers_and_threads_are_whatever_python_takes_for_an_index(pair):
    class Index:
        def __index__(self):
            return 1

    dst, src = pair
    copy_blocks(dst, [Index()], src, [np.uint8(1)], threads=Index())
    assert dst[1].tobytes() == src[1].tobytes()


def test_plain_memoryviews_do(pair):
    memory = bytearray(32)
    copy_blocks(
        memoryview(memory).cast("B", (4, 8)),
        [1],
        memoryview(bytes(range(16))).cast("B", (2, 8)),
        [1],
    )
    assert memory == bytes(8) + bytes(range(8, 16)) + bytes(16)


def test_rows_of_one_buffer_can_be_moved():
    buffer = np.arange(32, dtype=np.uint8).reshape(4, 8)
    copy_blocks(buffer, [0, 3], buffer, [1, 2])
    assert buffer[:, 0].tolist() == [8, 8, 16, 16]


def test_the_last_copy_to_a_row_stays():
    src = np.repeat(np.arange(200, dtype=np.uint8), 40960).reshape(200, 40960)
    for threads in (1, 4):
        dst = np.zeros((2, 40960), np.uint8)
        copy_blocks(dst, [0, 1] * 100, src, range(200), threads=threads)
        assert (dst[0] == 198).all()
        assert (dst[1] == 199).all()


def test_no_blocks_are_a_copy_too(pair):
    dst, src = pair
    copy_blocks(dst, [], src, [])
    copy_blocks(np.empty((0, 8), np.uint8), [], src, np.empty(0, np.int64), threads=4)
    assert not dst.any()


def test_a_single_row_may_have_any_stride():
    src = np.arange(48, dtype=np.uint8).reshape(6, 8)[::-1][:1]
    dst = np.lib.stride_tricks.as_strided(np.zeros(8, np.uint8), (1, 8), (0, 1))
    copy_blocks(dst, [0], src, [0])
    assert (dst == src).all()


def test_offsets_beyond_4_gib_are_exact(tmp_path):
    stride, row_bytes = (3 << 29) + 4096, 100
    with (tmp_path / "sparse").open("w+b") as file:
        file.truncate(4 * stride)
        memory = mmap.mmap(file.fileno(), 4 * stride)
    far = np.frombuffer(memory, np.uint8).reshape(4, stride)[:, :row_bytes]
    src = np.arange(200, dtype=np.uint8).reshape(2, row_bytes)
    copy_blocks(far, [3, 0], src, [1, 0])
    back = np.zeros((1, row_bytes), np.uint8)
    copy_blocks(back, [0], far, [3])
    assert (back[0] == src[1]).all()
    assert memory[3 * stride : 3 * stride + row_bytes] == src[1].tobytes()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dst": [[0]]}, TypeError, "dst must be a buffer, not list"),
        ({"src": None}, TypeError, "src must be a buffer, not NoneType"),
        ({"dst": b"\0" * 32}, ValueError, "dst must have 2 dimensions .*, not 1"),
        ({"src": np.zeros((2, 2, 8), np.uint8)}, ValueError, "src must have 2 dimensions"),
        ({"dst": memoryview(b"\0" * 32).cast("B", (4, 8))}, ValueError, "dst is read-only"),
        ({"dst": np.zeros((4, 0), np.uint8)}, ValueError, "dst has rows of 0 bytes"),
        ({"dst": np.zeros((4, 9), np.uint8)}, ValueError, "dst has rows of 9 bytes, src of 8"),
        (
            {"src": np.zeros((6, 8), np.uint16)},
            ValueError,
            "dst has rows of 8 bytes, src of 16",
        ),
        ({"dst": np.zeros((4, 16), np.uint8)[:, ::2]}, ValueError, "dst .* 2 bytes apart"),
        ({"src": np.zeros((6, 8), np.uint8)[::-1]}, ValueError, "src .* only -8 bytes apart"),
        (
            {"dst": np.lib.stride_tricks.as_strided(np.zeros(8, np.uint8), (4, 8), (0, 1))},
            ValueError,
            "dst .* only 0 bytes apart",
        ),
        ({"dst": np.full((4, 1), None)}, TypeError, "dst may hold references to Python"),
        (
            {"dst": np.zeros((4, 1), "datetime64[s]")},
            ValueError,
            "dst does not give access to its bytes: .*dtype",
        ),
        ({"dst_ids": [0, 4]}, ValueError, r"dst_ids\[1\] is 4"),
        ({"dst_ids": [-1, 0]}, ValueError, r"dst_ids\[0\] is -1"),
        ({"src_ids": [0, 2**32]}, ValueError, r"src_ids\[1\] is 4294967296"),
        ({"src_ids": [0, 2**70]}, ValueError, r"src_ids\[1\] is 1180591620717411303424"),
        ({"src_ids": np.array([0, -7])}, ValueError, r"src_ids\[1\] is -7"),
        ({"src_ids": np.array([6, 0], np.int32)}, ValueError, r"src_ids\[0\] is 6"),
        ({"dst_ids": np.array([1 << 32, 0])}, ValueError, r"dst_ids\[0\] is 4294967296"),
        ({"src_ids": [0]}, ValueError, "dst_ids has 2 .*, src_ids 1"),
        ({"dst_ids": np.arange(3)}, ValueError, "dst_ids has 3 .*, src_ids 2"),
        ({"dst_ids": [0, 1.0]}, TypeError, r"dst_ids\[1\] must be an int; it is 1.0"),
        ({"dst_ids": np.array([0.0, 1.0])}, TypeError, "dst_ids must hold int32 or int64"),
        (
            {"src_ids": np.array([0, 1], np.int16)},
            TypeError,
            "src_ids must hold int32 or int64",
        ),
        ({"src_ids": np.array([0, 1], ">i4")}, TypeError, "src_ids must hold int32 or int64"),
        ({"src_ids": np.array([[0], [1]])}, TypeError, "src_ids .* has 2 dimensions"),
        ({"src_ids": b"\0\1"}, TypeError, "src_ids must hold int32 or int64"),
        ({"dst_ids": "01"}, TypeError, r"dst_ids\[0\] must be an int; it is '0'"),
        ({"dst_ids": 0}, TypeError, "dst_ids must be a sequence of ints .*, not int"),
        ({"dst_ids": iter([0, 1])}, TypeError, "dst_ids must be a sequence"),
        ({"threads": 0}, ValueError, "threads must be 1 to 1024, not 0"),
        ({"threads": -(2**70)}, ValueError, "threads must be 1 to 1024, not -11805916"),
        ({"threads": 1025}, ValueError, "threads must be 1 to 1024, not 1025"),
        ({"threads": 1.5}, TypeError, "threads must be an int, not float"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_copied(pair, change, error, message):
    dst, src = pair
    arguments = {"dst": dst, "dst_ids": [0, 1], "src": src, "src_ids": [5, 4], "threads": 1}
    arguments |= change
    threads = arguments.pop("threads")
    with pytest.raises(error, match=message):
        copy_blocks(*arguments.values(), threads=threads)
    assert not dst.any()


@pytest.mark.parametrize("threads", [1, 2])
def test_overlap_of_written_and_read_rows_is_refused(threads):
    memory = np.arange(64, dtype=np.uint8)
    before = memory.copy()
    dst, src = memory[:32].reshape(4, 8), memory[4:36].reshape(4, 8)
    with pytest.raises(ValueError, match=r"src row 0 \(src_ids\[1\]\) overlaps dst row 0"):
        copy_blocks(dst, [3, 0], src, [1, 0], threads=threads)
    assert (memory == before).all()
    copy_blocks(dst, [3, 2], src, [0, 0], threads=threads)
    assert memory[16:32].tolist() == 2 * list(range(4, 12))


def test_an_unknown_kernel_lists_those_there_are(pair, monkeypatch):
    dst, src = pair
    monkeypatch.setenv("KVREG_COPY", "fastest")
    with pytest.raises(ValueError, match=r"KVREG_COPY is 'fastest'.*: portable"):
        copy_blocks(dst, [0], src, [5])
    assert not dst.any()
    monkeypatch.setenv("KVREG_COPY", "portable")
    copy_blocks(dst, [0], src, [5])
    assert (dst[0] == src[5]).all()


def test_the_kernel_can_be_forced_from_outside():
    code = (
        "import numpy, kvreg; kvreg.copy_blocks(numpy.ones((1, 1)), [], numpy.ones((1, 1)), [])"
    )
    environment = {**os.environ, "KVREG_COPY": "nonsense"}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "ValueError: KVREG_COPY is 'nonsense'" in run.stderr


def test_other_python_threads_run_during_a_copy():
    src = np.ones((8, 1 << 20), np.uint8)
    dst = np.zeros_like(src)
    requests, answers, served = SimpleQueue(), [], 0
    other = threading.Thread(target=lambda: answers.extend(iter(requests.get, None)))
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # now the GIL moves only where it is released
    try:
        for _ in range(1000):
            before = len(answers)
            requests.put("request")
            copy_blocks(dst, range(8), src, range(8))
            served += len(answers) > before
            if served > 1:  # the first may have had the GIL promised earlier
                break
    finally:
        sys.setswitchinterval(interval)
        requests.put(None)
        other.join()
    assert served > 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no buffers are made in Python there")
def test_buffers_made_in_python_are_copied_and_released():
    target = np.zeros((4, 8), np.uint8)
    buffers = [BufferInPython(array) for array in (target, np.arange(2), np.arange(2)[::-1])]
    dst, dst_ids, src_ids = buffers
    copy_blocks(dst, dst_ids, np.arange(16, dtype=np.uint8).reshape(2, 8), src_ids)
    assert target[:2].tolist() == [list(range(8, 16)), list(range(8))]
    assert [buffer.exports for buffer in buffers] == [0, 0, 0]


def test_no_buffer_stays_exported_and_no_object_is_kept():
    memory = bytearray(64)
    ids = array("i", [0])
    view = memoryview(memory).cast("B", (8, 8))
    counts = sys.getrefcount(ids), sys.getrefcount(view)
    for row in (0, 7, 9):
        with suppress(ValueError):
            copy_blocks(view, ids, view, [row])
    assert (sys.getrefcount(ids), sys.getrefcount(view)) == counts
    ids.append(1)  # BufferError while it is exported
    view.release()
    memory.append(0)
