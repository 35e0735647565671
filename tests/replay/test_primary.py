import tracemalloc

import pytest

from kvreg.replay.primary import PrimaryTier


@pytest.fixture
def primary():
    return PrimaryTier(num_blocks=3, block_bytes=8)


def test_every_block_has_a_row_of_its_own(primary):
    primary.place([b"a", b"b", b"c"])
    assert sorted(primary.row_numbers([b"a", b"b", b"c"])) == [0, 1, 2]


def test_rows_that_were_never_used_cost_no_list_of_them():
    tracemalloc.start()
    primary = PrimaryTier(num_blocks=1 << 20, block_bytes=1)
    array = primary.blocks.nbytes
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < array + (1 << 16)


def test_a_row_is_a_window_on_the_buffer(primary):
    primary.place([b"a"])
    primary.row(b"a")[:] = 7
    assert primary.blocks[primary.row_numbers([b"a"])[0]].tolist() == [7] * 8


def test_the_tail_of_a_prefix_is_given_up_before_its_head(primary):
    primary.place([b"a", b"b", b"c"])
    primary.place([b"x", b"y"])
    assert b"a" in primary
    assert b"b" not in primary
    assert b"c" not in primary


def test_blocks_of_the_current_request_keep_their_rows(primary):
    primary.place([b"a", b"b", b"c"])
    primary.place([b"x", b"c", b"y"])
    assert all(key in primary for key in (b"x", b"c", b"y"))


def test_a_used_block_outlives_a_block_that_came_later(primary):
    for key in (b"a", b"b", b"c", b"a", b"x"):
        primary.place([key])
    assert b"a" in primary
    assert b"b" not in primary
