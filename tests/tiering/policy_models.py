"""The reference for eviction policies: which block goes, in plain Python.

A policy orders the blocks that were added. ``evict`` takes out the first in its order that may
go, and says which; None: no block may.
"""

from collections import deque


class LruModel:
    def __init__(self, slots):
        self.order = {}  # least recent first

    def add(self, key):
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


class S3FifoModel:
    """S3-FIFO; a block that may not go waits before both queues for its turn or its use."""

    def __init__(self, slots):
        small_share = max(1, slots // 10)
        self.main_share = slots - small_share
        self.small, self.main = deque(), deque()  # the next to leave first
        self.passed_over = []  # the next to leave first
        self.ghosts = deque(maxlen=max(1, self.main_share))  # None: added again since
        self.uses = {}  # of each block, at most 3 that are not yet honoured
        self.queue_of = {}

    def add(self, key):
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


POLICY_MODELS = {"lru": LruModel, "s3fifo": S3FifoModel}
