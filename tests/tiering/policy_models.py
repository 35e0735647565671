"""The reference for eviction policies: which block goes, in plain Python.

A policy orders the blocks that were added. ``evict`` takes out the first in its order that may
go, and says which; None: no block may. ``observe`` learns of all keys that a request uses, and
returns the positions of those of whose blocks it wants to be told the ``use``. Of keys that are
``placing``, each without a block is then added or missed, by its position.
"""

import math
from collections import deque
from dataclasses import dataclass
from itertools import takewhile


class PolicyModel:
    """What most policies do: they take every block, and mind the uses of blocks alone."""

    def observe(self, keys, use):
        return range(len(keys))

    def admits(self, key, used, position):
        return True

    def miss(self, key, position):
        pass

    def end_step(self):
        pass


class LruModel(PolicyModel):
    def __init__(self, slots):
        self.order = {}  # least recent first

    def add(self, key, position=None):
        self.order[key] = None

    def use(self, key):
        del self.order[key]
        self.order[key] = None

    def remove(self, key):
        del self.order[key]

    def evict(self, may_go):
        victim = next(filter(may_go, self.order), None)
        if victim is not None:
            del self.order[victim]
        return victim


class S3FifoModel(PolicyModel):
    """S3-FIFO; a block that may not go waits before both queues for its turn or its use."""

    def __init__(self, slots):
        small_share = max(1, slots // 10)
        self.main_share = slots - small_share
        self.small, self.main = deque(), deque()  # the next to leave first
        self.passed_over = []  # the next to leave first
        self.ghosts = deque(maxlen=max(1, self.main_share))  # None: added again since
        self.uses = {}  # of each block, at most 3 that are not yet honoured
        self.queue_of = {}

    def add(self, key, position=None):
        self.uses[key] = 0
        if key in self.ghosts:
            self.ghosts[self.ghosts.index(key)] = None
            self._enter(self.main, key)
        else:
            self._enter(self.small, key)

    def use(self, key):
        self.uses[key] = min(3, self.uses[key] + 1)
        if key in self.passed_over:
            self.passed_over.remove(key)
            self._enter(self.queue_of[key], key)

    def remove(self, key):
        (self.passed_over if key in self.passed_over else self.queue_of[key]).remove(key)
        del self.uses[key], self.queue_of[key]

    def evict(self, may_go):
        key = self._find_victim(may_go)
        if key is not None:
            if self.queue_of[key] is self.small:
                self.ghosts.append(key)
            del self.uses[key], self.queue_of[key]
        return key

    def _find_victim(self, may_go):
        for key in filter(may_go, self.passed_over):
            self.passed_over.remove(key)
            return key
        while self.small or self.main:
            key = self._next_queue().popleft()
            if self._goes_on(key):
                continue
            if may_go(key):
                return key
            self.passed_over.append(key)
        return None

    def _next_queue(self):
        if self.small and self.main:
            return self.main if len(self.main) > self.main_share else self.small
        return self.small or self.main

    def _goes_on(self, key):
        if self.queue_of[key] is self.small:
            if self.uses[key] < 2:
                return False
            self.uses[key] = 0
        else:
            if self.uses[key] == 0:
                return False
            self.uses[key] -= 1
        self._enter(self.main, key)
        return True

    def _enter(self, queue, key):
        self.queue_of[key] = queue
        queue.append(key)


@dataclass
class Use:
    request: object  # None: not known
    tick: int
    whole: bool  # the keys are all of the request's
    placing: bool = False  # each key without a block will be added or missed


@dataclass
class Node:
    tick: int  # of the last use
    count: int  # 16 times the logarithm of the uses
    request: object  # the last one that used it
    fresh: bool = True  # used by one request only


def count_after_use(count, ticks):
    decayed = count - ticks // 600
    return 0 if decayed < -64 else min(39, round(16 * math.log2(1 + 2 ** (decayed / 16))))


# Times in ticks that part the buckets of returns.
EDGES = sorted({2**e for e in range(33)} | {3 * 2**e // 2 for e in range(1, 32)})


class KrlModel(PolicyModel):
    """KRL; blocks that may not go wait before all others until the step ends, or their use."""

    def __init__(self, slots):
        self.slots = slots
        self.ghost_room = max(30_000, slots)
        self.nodes = {}  # of resident blocks
        self.ghosts = {}  # the oldest first
        self.lists = [{} for _ in range(16)]  # keys, the one used first in front
        self.passed_over = []
        self.now = self.adapted_at = None
        self.clock_lag = 0
        self.inflation = None  # None: no block was evicted
        self.margin = 0
        self.returns = [0] * len(EDGES)
        self.request = None  # the last one
        self.found = {}  # list -> of what the request found there last, the first that entered
        self.new = {}  # of the keys observed last: position -> the node of one that had none

    def observe(self, keys, use):
        self._tell_time(use.tick)
        if use.request is None or use.request != self.request:
            self.found = {}
        self.new, self.request = {}, use.request
        known = self._known_prefix(keys, use)
        is_private = known >= 2 and self._node(keys[known - 1]).count < 36
        to_be_told = set()
        for i, key in reversed(list(enumerate(keys))):
            rank = 8 * (i - known) // (len(keys) - known) if i >= known else 0
            first_count = max(-24, (-16 if is_private else 0) - rank)
            if self._node(key) is None:
                self.new[i] = Node(self.now, first_count, use.request)
                if not use.placing:
                    self.miss(key, i)
            elif self._observe_key(key, use, first_count):
                to_be_told.add(i)
        return to_be_told

    def use(self, key):
        self._leave(key)
        self._enter_found(key)

    def admits(self, key, used, position):
        is_full = (self.slots - used) * 100 <= self.slots * 2
        if self.inflation is None or not is_full or not self.margin:
            return True
        node = self.ghosts.get(key) or self._new(position)
        return self.now + self._credit(node) - self.inflation >= self.margin

    def add(self, key, position):
        self.nodes[key] = self.ghosts.pop(key, None) or self._new(position)
        self._enter_stored(key)

    def miss(self, key, position):
        if key not in self.ghosts:
            self._add_ghost(key, self._new(position))

    def remove(self, key):
        self._leave(key)
        self._add_ghost(key, self.nodes.pop(key))

    def evict(self, may_go):
        key = self._find_victim(may_go)
        if key is not None:
            node = self.nodes.pop(key)
            self.inflation = self._worth(node)
            self._add_ghost(key, node)
        return key

    def end_step(self):
        for key in reversed(self.passed_over):
            index = self._index(self.nodes[key])
            self.lists[index] = {key: None, **self.lists[index]}
        self.passed_over = []

    def _tell_time(self, tick):
        if self.now is None:
            self.now = self.adapted_at = tick
        # A clock that was set back goes on from here.
        if self.now - (tick + self.clock_lag) > 160:
            self.clock_lag = self.now - tick
        self.now = max(self.now, tick + self.clock_lag)
        if self.now - self.adapted_at >= 160:
            self.adapted_at = self.now
            self._adapt()

    def _adapt(self):
        sums = [sum(self.returns[: i + 1]) for i in range(len(EDGES))]
        ratios = [s / (edge + 16) for s, edge in zip(sums, EDGES, strict=True)]
        enough = next(i for i, ratio in enumerate(ratios) if ratio >= 0.9 * max(ratios))
        self.margin = EDGES[enough] if sums[-1] > 200 else 0
        self.returns = [0.98 * number for number in self.returns]

    def _known_prefix(self, keys, use):
        for i, key in enumerate(keys):
            node = self._node(key)
            if node is None or (node.fresh and self._is_counted(node, use)):
                return i
        return len(keys)

    def _observe_key(self, key, use, first_count):
        """Count a use; tell whether the block's place is for the owner to change."""
        node = self._node(key)
        if self._is_counted(node, use):
            return use.whole and node.fresh and self._renew(key, node, first_count)
        ticks = self.now - node.tick
        if node.fresh:
            self.returns[next(i for i, edge in enumerate(EDGES) if ticks < edge)] += 1
        node.fresh = False
        node.request = use.request
        return self._renew(key, node, count_after_use(node.count, ticks))

    def _renew(self, key, node, count):
        is_in_list = key in self.nodes and key not in self.passed_over
        if is_in_list:
            self._leave(key)
        node.tick, node.count = self.now, count
        if is_in_list:
            self._enter_found(key)
        elif key in self.ghosts:
            self.ghosts[key] = self.ghosts.pop(key)
        return key in self.passed_over

    def _find_victim(self, may_go):
        for key in filter(may_go, self.passed_over):
            self.passed_over.remove(key)
            return key
        while fronts := [next(iter(keys)) for keys in self.lists if keys]:
            key = min(reversed(fronts), key=lambda key: self._worth(self.nodes[key]))
            self._leave(key)
            if may_go(key):
                return key
            self.passed_over.append(key)
        return None

    def _enter_found(self, key):
        index = self._index(self.nodes[key])
        self.lists[index][key] = None
        first = self.found.get(index)
        if first is None or self.nodes[first].tick != self.now:
            self.found[index] = key

    def _enter_stored(self, key):
        """Stand where the use does: before what the request found in the same tick."""
        node = self.nodes[key]
        entries, first = self._list_of(key), self.found.get(self._index(node))
        behind = []
        if first is not None and self.nodes[first].tick == node.tick:
            behind = [*takewhile(lambda other: other != first, reversed(entries)), first]
        for other in behind:
            del entries[other]
        entries |= dict.fromkeys([key, *reversed(behind)])

    def _leave(self, key):
        if key in self.passed_over:
            self.passed_over.remove(key)
            return
        index = self._index(self.nodes[key])
        del self.lists[index][key]
        if self.found.get(index) == key:
            del self.found[index]

    def _add_ghost(self, key, node):
        if len(self.ghosts) == self.ghost_room:
            del self.ghosts[next(iter(self.ghosts))]
        self.ghosts[key] = node

    def _new(self, position):
        # A key without a node here had a ghost, which others have pushed out since.
        return self.new.get(position) or Node(self.now, -24, self.request)

    def _node(self, key):
        return self.nodes.get(key) or self.ghosts.get(key)

    def _is_counted(self, node, use):
        return use.request is not None and node.request == use.request

    def _index(self, node):
        return (node.count + 24) // 4

    def _list_of(self, key):
        return self.lists[self._index(self.nodes[key])]

    def _credit(self, node):
        return 600 * self._index(node)

    def _worth(self, node):
        return node.tick + self._credit(node)


POLICY_MODELS = {"krl": KrlModel, "lru": LruModel, "s3fifo": S3FifoModel}
