import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreg.replay.record import Record, parse_record


def ids_of(*values):
    return parse_record("t:1", json.dumps({"hash_ids": values})).hash_ids


def test_a_record_is_what_its_line_says():
    line = '{"timestamp": 1.5, "input_length": 900, "output_length": 5, "hash_ids": [0, 7]}'
    assert parse_record("t:1", line) == Record("t:1", (0, 7), 1.5, 900)
    assert parse_record("t:2", '{"hash_ids": []}') == Record("t:2", (), None, None)


@given(st.lists(st.integers()))
def test_integers_of_any_size_are_ids(values):
    assert ids_of(*values) == tuple(values)


def test_ids_of_64_bits_are_exact():
    hashes = [2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, -(2**63)]
    assert ids_of(*hashes) == tuple(hashes)
    assert len(set(ids_of(*hashes, *map(str, hashes)))) == len(hashes)


@given(st.text(min_size=1), st.text(min_size=1))
def test_strings_are_the_same_id_where_they_are_written_alike(one, other):
    assert (ids_of(one) == ids_of(other)) == (one == other)


@given(st.integers(), st.text(min_size=1))
def test_a_string_is_the_same_id_as_the_number_that_is_written_so(number, text):
    assert ids_of(number) == ids_of(str(number))
    assert (ids_of(number) == ids_of(text)) == (str(number) == text)


def test_strings_that_only_denote_a_number_are_ids_of_their_own():
    arabic_digits = "\u0661\u0667"
    names = ["0x11", "0X11", "017", "+17", " 17", "17.0", "1_7", arabic_digits, "9" * 5000]
    assert ids_of(*names) == tuple(names)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("oops", "not JSON: Expecting value at column 1"),
        ('{"hash_ids": [1, 2}', "not JSON: Expecting ',' delimiter at column 19"),
        ("[" * 100_000, "not JSON: "),
        ("9" * 5_000, "not JSON: Exceeds the limit"),
        ("[1, 2]", "a request is a JSON object; found [1, 2]"),
        ('{"timestamp": 0}', "'hash_ids' is missing"),
        ('{"hash_ids": 7}', "'hash_ids' must be a list of integers or strings; it is 7"),
        ('{"hash_ids": null}', "'hash_ids' must be a list of integers or strings; it is None"),
        ('{"hash_ids": "ab"}', "'hash_ids' must be a list of integers or strings; it is 'ab'"),
    ],
)
def test_a_line_that_is_no_request_is_refused_with_the_reason(line, reason):
    with pytest.raises(ValueError, match="^" + re.escape(reason)) as error:
        parse_record("t:1", line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("true", "True"),
        ("1.0", "1.0"),
        ("1.8446744073709552e19", "1.8446744073709552e+19"),
        ("null", "None"),
        ('""', "''"),
        ("[1]", "[1]"),
    ],
)
def test_an_id_is_an_integer_or_a_string_that_is_not_empty(value, told):
    with pytest.raises(ValueError, match="integers or strings that are not empty") as error:
        parse_record("t:1", f'{{"hash_ids": [1, {value}]}}')
    assert str(error.value).endswith(f"it contains {told}")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("-1", "-1"),
        ("-0.5", "-0.5"),
        ("1e300", "1e+300"),
        ("NaN", "nan"),
        ("Infinity", "inf"),
        ("true", "True"),
        ("null", "None"),
        ('"2024-04-01T00:00:00Z"', "'2024-04-01T00:00:00Z'"),
    ],
)
def test_a_timestamp_is_a_number_from_0_on(value, told):
    with pytest.raises(ValueError, match="'timestamp' must be a number of seconds") as error:
        parse_record("t:1", f'{{"timestamp": {value}, "hash_ids": []}}')
    assert str(error.value).endswith(f"0 or more; it is {told}")


@pytest.mark.parametrize(
    ("value", "told"), [("-1", "-1"), ("1.5", "1.5"), ("true", "True"), ('"9"', "'9'")]
)
def test_an_input_length_is_a_whole_number_from_0_on(value, told):
    with pytest.raises(ValueError, match="'input_length' must be a number of tokens") as error:
        parse_record("t:1", f'{{"input_length": {value}, "hash_ids": []}}')
    assert str(error.value).endswith(f"0 or more; it is {told}")
