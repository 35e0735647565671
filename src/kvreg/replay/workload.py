"""The built-in workload: multi-turn conversations over shared system prompts."""

from __future__ import annotations

import itertools
from random import Random

from kvreg.replay.trace import Request

_SEED = 1
_REQUESTS = 2000
_SYSTEM_PROMPTS = 4
_SYSTEM_PROMPT_BLOCKS = (4, 16)  # shortest, longest
_OPEN_CONVERSATIONS = 96
_TURN_BLOCKS = (1, 8)  # shortest, longest: the user's words and the answer before them
_LAST_TURN_PROBABILITY = 0.1


def generate_workload() -> list[Request]:
    """Return the requests of the built-in workload, the same at each call.

    A fixed number of conversations is open at any time. Each request is the next turn of one of
    them: the blocks of its turns so far, and new ones. One comes a second, so that a turn
    follows the one before after a minute and a half, on average. With 1,000 blocks of primary
    tier and 4,096 of host tier, part of the prefixes is found in either, and both evict.
    """
    random = Random(_SEED)
    new_ids = itertools.count()
    system_prompts = [
        _take(new_ids, random.randint(*_SYSTEM_PROMPT_BLOCKS)) for _ in range(_SYSTEM_PROMPTS)
    ]
    conversations = [random.choice(system_prompts) for _ in range(_OPEN_CONVERSATIONS)]
    requests = []
    for second in range(_REQUESTS):
        chosen = random.randrange(_OPEN_CONVERSATIONS)
        hash_ids = conversations[chosen] + _take(new_ids, random.randint(*_TURN_BLOCKS))
        requests.append(Request(hash_ids, float(second)))
        ends = random.random() < _LAST_TURN_PROBABILITY
        conversations[chosen] = random.choice(system_prompts) if ends else hash_ids
    return requests


def _take(ids: itertools.count[int], number: int) -> tuple[int, ...]:
    return tuple(itertools.islice(ids, number))
