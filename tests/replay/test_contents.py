import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreg.replay.contents import BlockContents

KEYS = st.binary(min_size=8, max_size=36)


def filled(block_bytes, key):
    row = np.zeros(block_bytes, np.uint8)
    BlockContents(block_bytes).fill(row, key)
    return row


@given(block_bytes=st.integers(1, 300), key=KEYS)
def test_a_filled_row_fits_its_key(block_bytes, key):
    assert BlockContents(block_bytes).fits(filled(block_bytes, key), key)


@given(data=st.data(), block_bytes=st.integers(1, 300), key=KEYS)
def test_one_changed_bit_does_not_fit(data, block_bytes, key):
    row = filled(block_bytes, key)
    row[data.draw(st.integers(0, block_bytes - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert not BlockContents(block_bytes).fits(row, key)


@given(block_bytes=st.integers(8, 300), key=KEYS, other=KEYS)
def test_another_key_differs_in_every_whole_word(block_bytes, key, other):
    words = block_bytes // 8
    mine, its = (filled(block_bytes, k)[: words * 8].view(np.uint64) for k in (key, other))
    assert (mine != its).all() == (key[:8] != other[:8])


@pytest.mark.parametrize("shift", [1, 8, 64, 4096])
def test_shifted_bytes_do_not_fit(shift):
    key = b"k" * 36
    assert not BlockContents(8192).fits(np.roll(filled(8192, key), shift), key)
