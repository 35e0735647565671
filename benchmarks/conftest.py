"""What the benchmarks share: rows timed in turn with their baselines, and a summary."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import pytest

ROUNDS = 101


@dataclass
class Row:
    """One line of the summary: what is measured, and what it is measured against."""

    what: str
    against: str
    ns: float  # an operation
    baseline_ns: float
    target: float | None = None  # times faster than the baseline, at least
    most_more_ns: float | None = None  # than the baseline, an operation

    @property
    def ratio(self):
        return self.baseline_ns / self.ns

    def verdict(self):
        if self.target is not None:
            reached = self.ratio >= self.target
            return f"target {self.target:5.2f}x: {'reached' if reached else 'MISSED'}"
        if self.most_more_ns is not None:
            more = self.ns - self.baseline_ns
            reached = more <= self.most_more_ns
            return (
                f"{more:.1f} ns more, target {self.most_more_ns:.0f} ns: "
                f"{'reached' if reached else 'MISSED'}"
            )
        return ""

    def __str__(self):
        return (
            f"{self.what:50} {self.ns:11.1f} ns   {self.against:33} "
            f"{self.baseline_ns:11.1f} ns  {self.ratio:6.2f}x faster  {self.verdict()}"
        ).rstrip()


class Summary:
    """A pytest plugin that prints the rows when all is done."""

    def __init__(self):
        self.rows = []

    def pytest_terminal_summary(self, terminalreporter):
        if not self.rows:
            return
        terminalreporter.section(f"CPython {sys.version.split()[0]}, medians")
        for row in self.rows:
            terminalreporter.write_line(str(row))


@pytest.fixture(scope="session")
def summary(request):
    plugin = Summary()
    request.config.pluginmanager.register(plugin)
    return plugin


@pytest.fixture
def side_by_side(benchmark, summary):
    """Return a function that times two callables in turn, round by round."""

    def compare(
        what: str,
        run: Callable[[], object],
        against: str,
        run_baseline: Callable[[], object],
        *,
        per: int = 1,  # operations a call
        target: float | None = None,
        most_more_ns: float | None = None,
        rounds: int = ROUNDS,
        before: Callable[[], object] = lambda: None,  # each round
        warm_up: bool = True,
    ) -> None:
        baseline_seconds = []

        def prepare():
            before()
            started = perf_counter()
            run_baseline()
            baseline_seconds.append(perf_counter() - started)

        if warm_up:
            before()
            run_baseline()
            run()
        benchmark.pedantic(run, setup=prepare, rounds=rounds)
        row = Row(
            what,
            against,
            benchmark.stats.stats.median * 1e9 / per,
            statistics.median(baseline_seconds) * 1e9 / per,
            target,
            most_more_ns,
        )
        summary.rows.append(row)
        benchmark.extra_info.update(ns=row.ns, baseline_ns=row.baseline_ns)

    return compare


@pytest.fixture
def side_by_side_figures(benchmark, summary):
    """Return a function that enters figures which were measured in turn already."""

    def enter(what, ns, against, baseline_ns, *, target=None):
        benchmark.pedantic(lambda: None)
        summary.rows.append(Row(what, against, ns, baseline_ns, target))

    return enter
