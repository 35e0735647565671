import dataclasses
import json

import pytest

from kvreg.replay.engine import Engine
from kvreg.replay.report import format_reading, format_report, summarise
from kvreg.replay.trace import Reading, Request
from tests.conftest import tier_class_of_host

READING = Reading(
    timestamp_unit="ms",
    timestamp_unit_reason="the mean gap is 294",
    steps_back=38,
    sorted=True,
    tokens_per_block=512,
    tokens_per_block_reason="fits every input_length",
    partial_blocks=12_009,
)


@pytest.fixture
def engine():
    with (
        tier_class_of_host("tests.tiering.model", "ModelTier"),
        Engine({"type": "host", "capacity": 64}, primary_blocks=2, block_bytes=8) as engine,
    ):
        yield engine


def test_it_sums_up_what_the_engine_counted(engine):
    for ids in ((1, 2), (3, 4), (1, 2), (2, 1)):
        engine.step(Request(ids))
    engine.jobs.stored.seconds = 1e-9
    engine.jobs.loaded.seconds = 2e-9
    engine.scheduler_ns = [1000, 3000, 2000, 4000]
    engine.wait_ns = 500_000_000
    assert dataclasses.asdict(summarise(engine, wall_s=2.0)) == {
        "requests": 4,
        "blocks": 8,
        "prefix_hits": {"primary": 2, "host": 2},
        "prefix_hit_rate": 0.5,
        "stored": {"blocks": 4, "bytes": 32, "gb_per_s": pytest.approx(32.0)},
        "loaded": {"blocks": 2, "bytes": 16, "gb_per_s": pytest.approx(8.0)},
        "evictions": 0,
        "failed_jobs": 0,
        "partial_jobs": 0,
        "lost_jobs": 0,
        "corrupted_blocks": 0,
        "scheduler_us_per_request": {"p50": 2.0, "p99": 4.0, "max": 4.0},
        "wait_s": 0.5,
        "wall_s": 2.0,
        "trace": None,
    }


def test_nothing_copied_has_no_speed_and_no_blocks_no_hits(engine):
    engine.step(Request(()))
    report = summarise(engine, wall_s=0.0)
    assert report.prefix_hit_rate == 0.0
    assert report.stored.gb_per_s is None
    assert json.loads(json.dumps(dataclasses.asdict(report)))["loaded"]["gb_per_s"] is None


@pytest.mark.parametrize(
    ("field", "sound"), [("corrupted_blocks", False), ("lost_jobs", False), ("evictions", True)]
)
def test_corrupted_blocks_and_lost_jobs_make_it_unsound(engine, field, sound):
    engine.step(Request((1,)))
    report = summarise(engine, wall_s=0.0)
    assert report.is_sound
    assert dataclasses.replace(report, **{field: 1}).is_sound == sound


@pytest.mark.parametrize(("percent", "position"), [("p50", 100), ("p99", 198), ("max", 200)])
def test_percentiles_are_nearest_ranks(engine, percent, position):
    engine.step(Request((1,)))
    engine.scheduler_ns = [1000 * n for n in range(1, 201)]
    cost = summarise(engine, wall_s=0.0).scheduler_us_per_request
    assert getattr(cost, percent) == position


def test_the_page_for_people_says_all_that_the_object_says(engine):
    engine.step(Request((1, 2)))
    report = dataclasses.replace(
        summarise(engine, wall_s=87.25, trace=READING),
        requests=1234,
        evictions=31,
        failed_jobs=32,
        partial_jobs=33,
        lost_jobs=34,
        corrupted_blocks=35,
        prefix_hits={"primary": 36, "host": 37},
    )
    page = format_report(report)
    for text in (
        *("1,234", "31", "32 failed", "33 partial", "34 lost", "35", "36 primary", "37 host"),
        *("2 blocks, 16 bytes", "87.25 s", *format_reading(READING)),
    ):
        assert text in page


def test_how_the_trace_was_read_is_told_to_people():
    assert format_reading(READING) == [
        "timestamps         ms (the mean gap is 294)",
        "order              sorted; time goes back 38 x",
        "tokens a block     512 (fits every input_length); 12,009 partial blocks left out",
    ]
    assert format_reading(None) == []


def test_what_is_not_known_of_the_trace_is_told_to_people():
    reading = dataclasses.replace(
        READING, timestamp_unit=None, steps_back=0, tokens_per_block=None, partial_blocks=0
    )
    assert format_reading(reading) == [
        "timestamps         none (the mean gap is 294)",
        "tokens a block     not known (fits every input_length); every id counts as a block",
    ]
