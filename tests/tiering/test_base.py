import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvreg.tiering import (
    LookupResult,
    OffloadPolicy,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    SecondaryTierManager,
    TransferJob,
    get_offload_block_hash,
    get_offload_group_idx,
    make_offload_key,
)


@given(st.binary(max_size=60), st.integers(0, 2**32 - 1))
def test_a_key_gives_back_what_it_was_made_from(block_hash, group_idx):
    key = make_offload_key(block_hash, group_idx)
    assert len(key) == len(block_hash) + 4
    assert get_offload_block_hash(key) == block_hash
    assert get_offload_group_idx(key) == group_idx


@pytest.mark.parametrize("group_idx", [-1, 2**32])
def test_a_group_index_out_of_range_is_refused(group_idx):
    with pytest.raises(OverflowError):
        make_offload_key(b"hash", group_idx)


def test_keys_are_those_of_vllm():
    assert make_offload_key(b"\x01\x02", 258) == b"\x01\x02\x00\x00\x01\x02"


def test_the_results_of_a_lookup_are_four():
    assert [result.name for result in LookupResult] == ["MISS", "HIT", "HIT_PENDING", "RETRY"]


def test_a_request_offers_the_blocks_computed_for_it_by_default():
    assert RequestOffloadingContext().policy is OffloadPolicy.CHUNK_LEVEL


def test_a_schedule_end_names_its_requests():
    new, preempted = ScheduleEndContext(new_req_ids=("a",), preempted_req_ids=())
    assert new == ("a",)
    assert preempted == ()


def test_a_job_knows_when_it_was_made():
    context = ReqContext("request")
    first = TransferJob(1, [b"k"], [0], False, context)
    second = TransferJob(2, [b"k"], [0], False, context)
    assert 0 < first.submit_time <= second.submit_time


def test_a_tier_needs_the_methods_that_move_blocks():
    with pytest.raises(TypeError, match="submit_load"):
        SecondaryTierManager(None, memoryview(b""), "name")


class LeastTier(SecondaryTierManager):
    def lookup(self, key, req_context):
        return LookupResult.MISS

    def submit_store(self, job_metadata):
        raise NotImplementedError

    def submit_load(self, job_metadata):
        raise NotImplementedError

    def get_finished_jobs(self):
        return []

    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    def drain_jobs(self):
        pass


def test_a_tier_may_leave_the_rest_to_the_base():
    view = memoryview(bytearray(8))
    tier = LeastTier("spec", view, "name")
    context = ReqContext("request")
    assert (tier.offloading_spec, tier.primary_kv_view, tier.tier_type) == ("spec", view, "name")
    assert tier.touch([b"k"], context) is None
    assert tier.on_request_finished(context) is None
    assert tier.on_schedule_end(ScheduleEndContext((), ())) is None
    assert tier.has_pending_work() is False
    assert list(tier.take_events()) == []
    assert tier.shutdown() is None
