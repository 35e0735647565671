import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreg.tiering.sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("65536", 65536),
        ("007", 7),
        ("5B", 5),
        ("3KiB", 3 * 1024),
        ("3MiB", 3 * 1024**2),
        ("4GiB", 4 * 1024**3),
        ("2TiB", 2 * 1024**4),
    ],
)
def test_digits_are_multiplied_by_their_unit(text, size):
    assert parse_bytes(text) == size


@given(st.integers(min_value=0))
def test_an_integer_is_a_number_of_bytes(size):
    assert parse_bytes(size) == size


@pytest.mark.parametrize(
    "value",
    [
        *(-1, True, False, 1.0, None, b"1"),
        *("", "GiB", "-1", "+1", "1.5GiB", "1 GiB", " 1", "1\n"),
        *("1GB", "1gib", "1K", "1_000", "0x10", "\u0661", "1GiBGiB", "9" * 5000),
    ],
)
def test_anything_else_is_an_error_that_names_the_value_and_the_form(value):
    with pytest.raises(ValueError, match="KiB, MiB, GiB or TiB") as error:
        parse_bytes(value)
    assert repr(value) in str(error.value)
