"""Drives vLLM's own tiering manager as its scheduler does, without an engine.

Keys are named by letters. A chunk's bytes are all its letter's first byte.
"""

import dataclasses
import os
import uuid

import numpy as np
from vllm.v1.kv_offload.base import (
    LookupResult,
    OffloadPolicy,
    ReqContext,
    ScheduleEndContext,
    make_offload_key,
)
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

CHUNK_BYTES = 4096
STEP_END = ScheduleEndContext((), ())


def key_of(letter):
    return make_offload_key(letter.encode("utf-32-le") * 8, 0)


def keys_of(letters):
    return [key_of(letter) for letter in letters]


def known(of, **fields):
    """Make a dataclass of the fields that it has in this version of vLLM."""
    names = {field.name for field in dataclasses.fields(of)}
    return of(**{name: value for name, value in fields.items() if name in names})


def make_spec(tiers, *, primary_chunks=8, kv_events=False):
    """Return vLLM's tiering spec for a list of tier configurations."""
    config = known(
        OffloadingConfig,
        groups=(
            known(OffloadingGroupConfig, tokens_per_block=16, layer_names=("0",), group_id=0),
        ),
        worker_kv_bytes_per_block=CHUNK_BYTES,
        enable_kv_cache_events=kv_events,
        extra_config={
            "cpu_bytes_to_use": primary_chunks * CHUNK_BYTES,
            "secondary_tiers": tiers,
        },
        engine_id=f"kvreg-test-{uuid.uuid4()}",
        model=OffloadingModelConfig(name="model", dtype="float16"),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0,
            world_size=1,
            tp_size=1,
            pp_size=1,
            pcp_size=1,
            dcp_size=1,
            data_parallel_index=0,
            data_parallel_size=1,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=True,
        ),
    )
    return TieringOffloadingSpec(config)


def region_path(spec):
    """Return where vLLM keeps the primary tier's shared memory."""
    return f"/dev/shm/vllm_offload_{spec.config.engine_id}.mmap"


class SchedulerStub:
    """The scheduler's side of a tiering manager; `view` is the primary tier's buffer."""

    def __init__(self, *tiers, **options):
        self.spec = make_spec(list(tiers), **options)
        self.manager = self.spec.get_manager()
        self.tiers = self.manager.secondary_tiers
        self.view = np.asarray(self.manager.primary_tier.get_kv_memoryview()).view(np.uint8)
        self.requests = 0

    def close(self):
        del self.view
        self.manager.shutdown()
        assert not os.path.exists(region_path(self.spec))

    def new_request(self):
        self.requests += 1
        context = ReqContext(f"request-{self.requests}")
        policy = self.manager.on_new_request(context).policy
        assert policy is not OffloadPolicy.REQUEST_LEVEL
        return context

    def end_step(self):
        self.manager.on_schedule_end(STEP_END)

    def settle(self):
        """Step until nothing is in flight."""
        self.end_step()
        while self.manager.has_pending_work():
            self.end_step()

    def submit_store(self, letters, context):
        """Offload chunks to the primary tier, and so to the tiers below; do not wait.

        Returns whether the primary tier had room.
        """
        output = self.manager.prepare_store(keys_of(letters), context)
        if output is None:
            return False
        rows = output.store_spec.block_ids
        for key, row in zip(output.keys_to_store, rows, strict=True):
            self.view[row] = key[0]
        if output.keys_to_store:
            self.manager.complete_store(output.keys_to_store, context)
        return True

    def store(self, letters):
        """Offload chunks in a request of their own, and wait for the tiers below."""
        context = self.new_request()
        assert self.submit_store(letters, context)
        self.settle()
        self.finish(context)

    def finish(self, context):
        self.manager.on_request_finished(context)

    def look(self, letters, context):
        """Ask for chunks, step by step, until each is in the primary tier or nowhere.

        Returns those that are there, and still are until the step ends.
        """
        while True:
            results = {c: self.manager.lookup(key_of(c), context) for c in letters}
            if not {LookupResult.HIT_PENDING, LookupResult.RETRY} & set(results.values()):
                return "".join(c for c in letters if results[c] is LookupResult.HIT)
            self.end_step()

    def load(self, letters):
        """Return the chunks that can be had, and check the bytes of each."""
        context = self.new_request()
        found = self.look(letters, context)
        if found:
            rows = self.manager.prepare_load(keys_of(found), context).block_ids
            for letter, row in zip(found, rows, strict=True):
                assert set(self.view[row]) == {ord(letter)}
            self.manager.complete_load(keys_of(found), context)
        self.finish(context)
        return found

    def metric(self, name):
        """Return a metric's values by labels: what vLLM collects from the manager, at once."""
        stats = self.manager.get_stats()
        return {} if stats is None else stats.data["data"].get(name, {})
