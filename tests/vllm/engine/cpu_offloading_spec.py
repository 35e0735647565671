"""vLLM's tiering on the CPU platform, for which vLLM has no offloading worker of its own.

Here are only the copies between the engine's KV cache and the primary tier's shared region; the
managers, the region and the secondary tiers are vLLM's.
"""

import time

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CpuTieringSpec(TieringOffloadingSpec):
    """Named by an engine's configuration as ``spec_name``, with this module's path."""

    def get_worker(self, kv_caches):
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=0,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = CopyingWorker(kv_caches, region)
        return self._worker


class CopyingWorker(OffloadingWorker):
    """Copies blocks at once, on the thread that asks; a chunk is a block."""

    def __init__(self, kv_caches, region):
        self.region = region
        self.pairs = [
            (cache.tensor, region.create_next_worker_view(cache.page_size_bytes))
            for cache in kv_caches.tensors
        ]
        self.finished = []

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, src_spec, dst_spec, store=True)

    def submit_load(self, job_id, src_spec, dst_spec, expedited=False):
        return self._copy(job_id, dst_spec, src_spec, store=False)

    def _copy(self, job_id, engine_spec, primary_spec, *, store):
        started = time.monotonic()
        engine_blocks, chunks = engine_spec.block_ids, primary_spec.block_ids
        copied = 0
        for cache, primary in self.pairs:
            for block, chunk in zip(engine_blocks, chunks, strict=True):
                if store:
                    primary[chunk] = cache[block]
                else:
                    cache[block] = primary[chunk]
                copied += primary.shape[1]
        self.finished.append(TransferResult(job_id, True, copied, time.monotonic() - started))
        return True

    def get_finished(self):
        finished, self.finished = self.finished, []
        return finished

    def wait(self, job_ids):
        pass

    def shutdown(self):
        self.pairs.clear()
        self.region.cleanup()
