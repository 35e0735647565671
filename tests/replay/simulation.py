"""What the two tiers hold, simulated on block ids alone: no bytes, no jobs, no engine.

It says for each request how many blocks of its prefix the primary and the host tier have.
"""

from collections import OrderedDict


class Lru:
    """A bounded set of block ids; the first to be given up comes first."""

    def __init__(self, size):
        self.size = size
        self.ids = OrderedDict()
        self.evictions = 0

    def __contains__(self, block):
        return block in self.ids

    def use(self, blocks):
        """Make blocks that are here the last to be given up, their head last of all."""
        for block in reversed(blocks):
            if block in self.ids:
                self.ids.move_to_end(block)

    def add(self, block, spared):
        """Add a block, if need be in place of one that is not spared; tell whether it fits."""
        if len(self.ids) == self.size:
            victim = next((other for other in self.ids if other not in spared), None)
            if victim is None:
                return False
            del self.ids[victim]
            self.evictions += 1
        self.ids[block] = None
        return True


class Simulation:
    """Both tiers, one request after another.

    ``touches`` says when the engine touches a request's blocks in the host tier: "before" and
    "after" it stores the computed ones.
    """

    def __init__(self, primary_blocks, host_blocks, touches=("after",)):
        self.primary = Lru(primary_blocks)
        self.host = Lru(host_blocks)
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
                assert self.primary.add(block, spared=set(blocks))
        self.primary.use(blocks)

    def _store(self, computed, promised):
        spared = {*computed, *promised}
        for block in computed:
            if block in self.host:
                continue
            if not self.host.add(block, spared):
                self.short_stores += 1
                break
            self.stored += 1
        self.host.use(computed)
