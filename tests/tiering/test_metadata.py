"""The memory that a host tier takes beside its blocks, and what the documents say of it."""

import re
from pathlib import Path

import numpy as np
import pytest

from kvreg.tiering import EVICTION_POLICIES, HostMemoryTier

DOCS = Path(__file__).parents[2] / "docs"
SLOT_BYTES = {"lru": 110, "s3fifo": 127, "krl": 118}
GHOST_BYTES, LEAST_GHOSTS, FIXED_BYTES = 34, 30_000, 8 << 10


def documented_bytes(policy, slots):
    ghosts = max(LEAST_GHOSTS, slots) if policy == "krl" else 0
    return SLOT_BYTES[policy] * slots + GHOST_BYTES * ghosts + FIXED_BYTES


@pytest.mark.parametrize("slots", [1, 2, 10, 100, 1000, 5000, 29_999, 30_001, 200_000])
@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_metadata_takes_what_is_documented(policy, slots):
    primary = np.zeros((1, 8), np.uint8)
    tier = HostMemoryTier(None, primary, "host", capacity=8 * slots, eviction_policy=policy)
    assert tier.stats().metadata_bytes <= documented_bytes(policy, slots)
    tier.shutdown()


@pytest.mark.parametrize("page", [HostMemoryTier.__doc__, "vllm.md", "eviction.md"])
def test_every_page_has_the_same_figures(page):
    text = page if "\n" in page else (DOCS / page).read_text()
    numbers = set(re.findall(r"\d+(?:,\d+)*", text))
    figures = {SLOT_BYTES["krl"], SLOT_BYTES["lru"], GHOST_BYTES, LEAST_GHOSTS}
    assert {f"{figure:,}" for figure in figures} <= numbers
