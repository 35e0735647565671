"""What the two tiers hold, simulated on block ids alone: no bytes, no jobs, no engine.

It says for each request how many blocks of its prefix the primary and the host tier have.
"""

import dataclasses
import math

from tests.tiering.policy_models import POLICY_MODELS, Use


class BoundedSet:
    """A bounded set of block ids, of which the policy says what is to be given up."""

    def __init__(self, size, policy="lru"):
        self.size = size
        self.ids = set()
        self.policy = POLICY_MODELS[policy](size)
        self.evictions = 0

    def __contains__(self, block):
        return block in self.ids

    def use(self, blocks, use=None):
        """Note a request's use of blocks, the head last."""
        told = self.policy.observe(blocks, use)
        for i, block in reversed(list(enumerate(blocks))):
            if i in told and block in self.ids:
                self.policy.use(block)

    def store(self, blocks, spared, use):
        """Add what is not here and what the policy admits.

        Return how many blocks came, and whether there was room for all.
        """
        present = self.ids & set(blocks)
        told = self.policy.observe(blocks, use)
        admitted = {
            block
            for i, block in enumerate(blocks)
            if self.policy.admits(block, len(self.ids), i)
        }
        new = set()
        for block in blocks:
            if block in present or block not in admitted:
                continue
            if not self.make_room(spared):
                break
            self.ids.add(block)
            new.add(block)
        for i, block in reversed(list(enumerate(blocks))):
            if block in new:
                self.policy.add(block, i)
            elif block not in present:
                self.policy.miss(block, i)
            elif i in told:
                self.policy.use(block)
        return len(new), admitted <= self.ids

    def make_room(self, spared):
        """Say whether one more fits, if need be in place of one that is not spared."""
        if len(self.ids) < self.size:
            return True
        victim = self.policy.evict(lambda block: block not in spared)
        if victim is None:
            return False
        self.ids.remove(victim)
        self.evictions += 1
        return True

    def add(self, block):
        self.ids.add(block)
        self.policy.add(block)


class Simulation:
    """Both tiers, one request after another.

    ``touch`` says when the engine touches a request's blocks in the host tier: "before" it
    stores the computed ones, "after" it, or at the "end" of the request, ``seconds`` later.
    """

    def __init__(self, primary_blocks, host_blocks, policy="lru", touch="after", seconds=0):
        self.primary = BoundedSet(primary_blocks)
        self.host = BoundedSet(host_blocks, policy)
        self.touch = touch
        self.seconds = seconds
        self.running = []  # (second in which it ends, its number, its blocks)
        self.requests = 0
        self.stored = 0
        self.loaded = 0
        self.short_stores = 0

    def serve(self, request_ids, seconds=0.0):
        """Return the prefix hits of a request that comes at a time: (in primary, in host)."""
        self._end_requests(seconds)
        self.requests += 1
        part = Use(self.requests, math.floor(seconds * 16), whole=False)
        whole = dataclasses.replace(part, whole=True)
        placing = dataclasses.replace(part, placing=True)
        blocks = list(dict.fromkeys(request_ids))[: self.primary.size]
        in_primary, promised = self._prefix(blocks)
        computed = blocks[in_primary + len(promised) :]
        self._keep_in_primary(blocks)
        if promised:
            self.host.use(promised, part)
        self.loaded += len(promised)
        if self.touch == "before":
            self.host.use(blocks, whole)
        if computed:
            self._store(computed, promised, placing)
        if self.touch == "after":
            self.host.use(blocks, whole)
        if self.touch == "end":
            self.running.append((seconds + self.seconds, self.requests, blocks))
        self.host.policy.end_step()
        return in_primary, len(promised)

    def _end_requests(self, seconds):
        while self.running and self.running[0][0] <= seconds:
            end, request, blocks = self.running.pop(0)
            self.host.use(blocks, Use(request, math.floor(end * 16), whole=True))

    def _prefix(self, blocks):
        in_primary, promised = 0, []
        for block in blocks:
            if block in self.primary:
                in_primary += 1
            elif block in self.host:
                promised.append(block)
            else:
                break
        return in_primary, promised

    def _keep_in_primary(self, blocks):
        for block in blocks:
            if block not in self.primary:
                assert self.primary.make_room(spared=set(blocks))
                self.primary.add(block)
        self.primary.use(blocks)

    def _store(self, computed, promised, use):
        stored, had_room = self.host.store(computed, {*computed, *promised}, use)
        self.stored += stored
        self.short_stores += not had_room
