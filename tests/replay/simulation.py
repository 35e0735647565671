"""What the two tiers hold, simulated on block ids alone: no bytes, no jobs, no engine.

It says for each request how many blocks of its prefix the primary and the host tier have.
"""

from tests.tiering.policy_models import POLICY_MODELS


class BoundedSet:
    """A bounded set of block ids, of which the policy says what is to be given up."""

    def __init__(self, size, policy="lru"):
        self.size = size
        self.ids = set()
        self.policy = POLICY_MODELS[policy](size)
        self.evictions = 0

    def __contains__(self, block):
        return block in self.ids

    def use(self, blocks):
        """Note a use of those blocks that are here, the head last."""
        for block in reversed(blocks):
            if block in self.ids:
                self.policy.use(block)

    def make_room(self, count, spared):
        """Say whether ``count`` more fit, if need be in place of one that is not spared."""
        if len(self.ids) + count <= self.size:
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

    ``touches`` says when the engine touches a request's blocks in the host tier: "before" and
    "after" it stores the computed ones.
    """

    def __init__(self, primary_blocks, host_blocks, policy="lru", touches=("after",)):
        self.primary = BoundedSet(primary_blocks)
        self.host = BoundedSet(host_blocks, policy)
        self.touches = touches
        self.stored = 0
        self.loaded = 0
        self.short_stores = 0

    def serve(self, request_ids):
        """Return the request's prefix hits: (in primary, in host)."""
        blocks = list(dict.fromkeys(request_ids))[: self.primary.size]
        in_primary, promised = self._prefix(blocks)
        computed = blocks[in_primary + len(promised) :]
        self._keep_in_primary(blocks)
        self.host.use(promised)
        self.loaded += len(promised)
        if "before" in self.touches:
            self.host.use(blocks)
        self._store(computed, promised)
        if "after" in self.touches:
            self.host.use(blocks)
        return in_primary, len(promised)

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
                assert self.primary.make_room(1, spared=set(blocks))
                self.primary.add(block)
        self.primary.use(blocks)

    def _store(self, computed, promised):
        spared = {*computed, *promised}
        new = set()
        for block in computed:
            if block in self.host:
                continue
            if not self.host.make_room(len(new) + 1, spared):
                self.short_stores += 1
                break
            new.add(block)
        self.stored += len(new)
        for block in reversed(computed):
            if block in new:
                self.host.add(block)
            else:
                self.host.use([block])
