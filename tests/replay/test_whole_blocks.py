import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreg.replay.record import Record
from kvreg.replay.source import TraceError
from kvreg.replay.whole_blocks import choose_block, infer_block, whole_blocks


def record(num_tokens, num_ids, line=1):
    return Record(f"t:{line}", tuple(range(num_ids)), None, num_tokens)


def with_rest(num_tokens, tokens_per_block):
    return record(num_tokens, -(-num_tokens // tokens_per_block))


def whole(num_tokens, tokens_per_block):
    return record(num_tokens, num_tokens // tokens_per_block)


lengths = st.lists(st.integers(0, 10_000), min_size=1, max_size=20)


@given(lengths, st.integers(0, 11), st.sampled_from([with_rest, whole]))
def test_a_power_of_two_that_requests_leave_no_doubt_of_is_found(tokens, exponent, make):
    tokens_per_block = 2**exponent
    # Of so many blocks no other number fits, whether the last is whole or not.
    long = 4 * tokens_per_block**2 + 1
    requests = [make(n, tokens_per_block) for n in [*tokens, long, long - 1]]
    assert infer_block(requests).tokens == tokens_per_block


@given(lengths, st.integers(1, 800), st.sampled_from([with_rest, whole]))
def test_no_trace_of_either_kind_is_a_misfit(tokens, tokens_per_block, make):
    assert infer_block([make(n, tokens_per_block) for n in tokens]).misfit is None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), min_size=1, max_size=6))
def test_it_fits_all_requests_in_the_same_way(sizes):
    block = infer_block([record(*size) for size in sizes])
    fit_with_rest, fit_whole = (
        {n for n in range(1, 200) if all(make(size[0], n) == record(*size) for size in sizes)}
        for make in (with_rest, whole)
    )
    assert (block.misfit is not None) == (not fit_with_rest and not fit_whole)
    if block.tokens is not None:
        assert block.tokens in fit_with_rest | fit_whole


def test_a_number_that_is_no_power_of_two_is_found_where_no_other_fits():
    assert infer_block([with_rest(n, 784) for n in (784 * 9, 784 * 9 + 1)]).tokens == 784
    assert infer_block([whole(n, 784) for n in (784 * 9, 784 * 9 - 1)]).tokens == 784


def test_with_a_rest_is_taken_where_short_requests_fit_both():
    assert infer_block([record(513, 2)]).tokens == 512


def test_requests_that_leave_it_open_give_no_number():
    assert infer_block([record(700, 1), record(100, 1)]).tokens is None
    assert infer_block([record(0, 0)]).tokens is None
    assert infer_block([record(1500, 4), record(1400, 4)]).tokens is None


def test_the_first_request_that_fits_nothing_is_told():
    requests = [record(6758, 14), record(None, 3), record(7322, 15), record(10, 9, line=4)]
    block = infer_block([*requests, record(11, 9, line=5)])
    assert (block.tokens, block.misfit.where) == (None, "t:4")


def test_without_an_input_length_nothing_is_known():
    assert choose_block([record(None, 3)], "auto") == (None, "there is no input_length", None)


def test_it_is_not_looked_at_when_it_is_off():
    assert choose_block([record(513, 2)], "off") == (None, "as told", None)


def test_a_number_given_is_taken_where_requests_fit_it_with_a_rest_or_without():
    requests = [record(1100, 3), record(1100, 2), record(1024, 2), record(None, 7)]
    assert choose_block(requests, 512) == (512, "as told", None)


@pytest.mark.parametrize(("num_tokens", "num_ids"), [(1100, 4), (1100, 1), (1024, 3), (0, 1)])
def test_a_number_given_that_a_request_does_not_fit_is_refused(num_tokens, num_ids):
    requests = [record(513, 2), record(num_tokens, num_ids, line=2)]
    with pytest.raises(TraceError) as error:
        choose_block(requests, 512)
    assert str(error.value) == (
        f"t:2: an 'input_length' of {num_tokens} does not fit {num_ids} blocks of 512 tokens"
    )


def test_a_number_given_for_requests_without_an_input_length_is_refused():
    with pytest.raises(TraceError, match="t:1: 'input_length' is missing, as in all requests"):
        choose_block([record(None, 3)], 512)


@given(st.integers(0, 5000), st.integers(1, 700), st.sampled_from([with_rest, whole]))
def test_exactly_the_blocks_that_the_tokens_fill_are_whole(num_tokens, tokens_per_block, make):
    kept = whole_blocks(make(num_tokens, tokens_per_block), tokens_per_block)
    assert kept == tuple(range(num_tokens // tokens_per_block))


def test_without_the_tokens_every_id_counts():
    assert whole_blocks(record(None, 3), 512) == (0, 1, 2)
    assert whole_blocks(record(513, 2), None) == (0, 1)
