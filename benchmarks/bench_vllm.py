"""kvreg inside vLLM: the tier "kvreg" beside vLLM's own tier "fs" on a tmpfs.

Run by ``pytest benchmarks/bench_vllm.py`` where vLLM is installed, 0.31 to 0.34. vLLM's factory
makes both tiers, on one view of vLLM's shared region, and they do the same jobs in turn.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import tempfile
import uuid
from time import perf_counter_ns
from types import SimpleNamespace

import numpy as np
import pytest
from vllm.v1.kv_offload.base import ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
from vllm.v1.kv_offload.tiering.fs import io as fs_io

from kvreg.vllm import plugin

CONTEXT = ReqContext("request")
STEP_END = ScheduleEndContext((), ())
KIB = 1 << 10
JOBS = 8
CHUNKS_OF_A_JOB = 64

SPEC = SimpleNamespace(
    blocks_per_chunk=1,
    kv_events_config=SimpleNamespace(enable_kv_cache_events=False),
    config=SimpleNamespace(
        groups=(),
        canonical_layout=False,
        replicated_layout=False,
        model=SimpleNamespace(name="model", dtype="float16"),
        cache=SimpleNamespace(tokens_per_hash=16),
        parallel=SimpleNamespace(
            rank=0, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, is_parallelism_agnostic=True
        ),
    ),
)


class Side:
    """One of the tiers, and the jobs that both are given."""

    def __init__(self, tier):
        self.tier = tier
        self.count = 0
        chunks = JOBS * CHUNKS_OF_A_JOB
        rows = np.random.default_rng(1).permutation(chunks).astype(np.int32)
        keys = [make_offload_key(hashlib.sha256(b"%d" % i).digest(), 0) for i in range(chunks)]
        self.batches = [
            (keys[i : i + CHUNKS_OF_A_JOB], rows[i : i + CHUNKS_OF_A_JOB])
            for i in range(0, chunks, CHUNKS_OF_A_JOB)
        ]

    def make_jobs(self, *, load):
        jobs = []
        for keys, rows in self.batches:
            self.count += 1
            jobs.append(TransferJob(self.count, keys, rows, load, CONTEXT))
        return jobs

    def submit(self, jobs):
        for job in jobs:
            (self.tier.submit_load if job.is_promotion else self.tier.submit_store)(job)

    def finish(self):
        self.tier.drain_jobs()
        assert all(result.success for result in self.tier.get_finished_jobs())
        self.tier.on_schedule_end(STEP_END)


class Sides:
    """Both tiers on one view. The fs tier has its 32 threads."""

    def __init__(self, chunk_bytes, **parameters):
        plugin.register()
        chunks = JOBS * CHUNKS_OF_A_JOB
        self.region = SharedOffloadRegion(
            engine_id=f"kvreg-bench-{uuid.uuid4()}",
            num_chunks=chunks,
            rank=None,
            kv_bytes_per_chunk=chunk_bytes,
            cpu_page_size=chunk_bytes,
        )
        self.view = self.region.create_kv_memoryview()
        self.folder = tempfile.mkdtemp(dir="/dev/shm")
        self.kvreg = self.make_side(
            type="kvreg", capacity=chunks * chunk_bytes, keep_on_reset=True, **parameters
        )
        self.fs = self.make_side(type="fs", root_dir=self.folder)

    def make_side(self, **config):
        return Side(SecondaryTierFactory.create_secondary_tier(config, self.view, SPEC))

    def forget(self):
        self.kvreg.tier.reset()
        shutil.rmtree(self.fs.tier.file_mapper.base_path + "_r0", ignore_errors=True)

    def close(self):
        for side in (self.kvreg, self.fs):
            side.tier.shutdown()
        shutil.rmtree(self.folder)
        self.view.release()
        self.region.cleanup()


@pytest.fixture(params=[64 * KIB, 256 * KIB, 2048 * KIB], ids=["64KiB", "256KiB", "2MiB"])
def chunk_bytes(request):
    assert fs_io._HAS_FSIO_C, "vLLM's fs tier is here without its C extension"
    return request.param


@pytest.fixture
def make_sides(chunk_bytes):
    made = []

    def make(**parameters):
        made.append(Sides(chunk_bytes, **parameters))
        return made[-1]

    yield make
    for sides in made:
        sides.close()


@pytest.mark.parametrize("load", [False, True], ids=["store", "load"])
def test_jobs(side_by_side, make_sides, load):
    """Eight jobs of 64 chunks, from the first submission to the last result, on all CPUs."""
    sides = make_sides(num_threads=len(os.sched_getaffinity(0)))
    both = (sides.kvreg, sides.fs)
    for side in both:
        side.submit(side.make_jobs(load=False))
        side.finish()

    def run(side):
        side.submit(side.make_jobs(load=load))
        side.finish()

    side_by_side(
        f"{'load' if load else 'store'}, {sides.view.shape[1] // KIB} KiB chunks",
        lambda: run(sides.kvreg),
        "vLLM's fs tier on tmpfs",
        lambda: run(sides.fs),
        per=JOBS * CHUNKS_OF_A_JOB,
        target=2.0 if load else 4.0,
        rounds=15,
        before=(lambda: None) if load else sides.forget,
    )


@pytest.mark.parametrize("load", [False, True], ids=["store", "load"])
def test_submit(side_by_side_figures, make_sides, load):
    """The same jobs' submission, which is what the scheduler's thread pays for.

    With the threads that there are by default, which leave it a CPU.
    """
    sides = make_sides()
    both = (sides.kvreg, sides.fs)
    for side in both:
        side.submit(side.make_jobs(load=False))
        side.finish()
    ns = {side: [] for side in both}
    for _ in range(15):
        if not load:
            sides.forget()
        for side in both:
            jobs = side.make_jobs(load=load)
            started = perf_counter_ns()
            side.submit(jobs)
            ns[side].append(perf_counter_ns() - started)
            side.finish()
    chunks = JOBS * CHUNKS_OF_A_JOB
    side_by_side_figures(
        f"submit of a {'load' if load else 'store'}, {sides.view.shape[1] // KIB} KiB chunks",
        statistics.median(ns[sides.kvreg]) / chunks,
        "vLLM's fs tier",
        statistics.median(ns[sides.fs]) / chunks,
        target=2.0,
    )
