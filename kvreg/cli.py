"""The command line: ``kvreg COMMAND``, also ``python -m kvreg COMMAND``."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from kvreg.replay.engine import Engine
from kvreg.replay.report import Report, format_report, summarise
from kvreg.replay.trace import Request, TraceError, read_trace
from kvreg.replay.workload import generate_workload
from kvreg.tiering._host import EVICTION_POLICIES
from kvreg.tiering.sizes import parse_bytes

EXIT_SUCCESS = 0
EXIT_UNSOUND = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

_REPLAY_SUMMARY = "replay a trace through a host tier; report hits, speed and faults"
_REPLAY_EPILOG = (
    "SIZE is a number of bytes, or digits with the suffix B, KiB, MiB, GiB or TiB. "
    "Exit codes: 0 success; 1 a block was corrupted or a job lost; 2 bad options or input; "
    "130 interrupted."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (default: the process's arguments) names.

    Returns:
        The exit code.

    Raises:
        SystemExit: The options are bad, or ask for help.
    """
    options = _parser().parse_args(argv)
    try:
        return _replay(options)
    except KeyboardInterrupt:
        print("kvreg: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvreg", description="KV-cache tiers in host memory for LLM inference engines."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_replay_options(
        commands.add_parser(
            "replay", help=_REPLAY_SUMMARY, description=_REPLAY_SUMMARY, epilog=_REPLAY_EPILOG
        )
    )
    return parser


def _add_replay_options(replay: argparse.ArgumentParser) -> None:
    replay.add_argument(
        "trace",
        metavar="TRACE",
        nargs="?",
        type=Path,
        help="JSON lines, one object with 'hash_ids' for each request "
        "(default: a built-in generated workload)",
    )
    replay.add_argument(
        "--block-bytes",
        metavar="SIZE",
        type=_size,
        default="64KiB",
        help="size of a block (default: %(default)s)",
    )
    replay.add_argument(
        "--primary-blocks",
        metavar="N",
        type=_count,
        default=1000,
        help="number of blocks in the engine's own buffer (default: %(default)s)",
    )
    replay.add_argument(
        "--host-capacity",
        metavar="SIZE",
        type=_size,
        default="256MiB",
        help="size of all blocks in the host tier (default: %(default)s)",
    )
    replay.add_argument(
        "--num-threads",
        metavar="N",
        type=_count,
        help="number of threads that copy blocks (default: the host tier's own choice)",
    )
    replay.add_argument(
        "--eviction-policy",
        choices=EVICTION_POLICIES,
        default="lru",
        help="how the host tier chooses what to evict (default: %(default)s)",
    )
    replay.add_argument(
        "--limit",
        metavar="N",
        type=_count,
        help="number of requests to replay, from the first (default: all)",
    )
    replay.add_argument("--json", action="store_true", help="report as one JSON object")


def _size(text: str) -> int:
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size == 0:
        raise argparse.ArgumentTypeError(f"must be at least 1 byte; got {text!r}")
    return size


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and text.strip("0")):
        raise argparse.ArgumentTypeError(f"must be a number, 1 or more; got {text!r}")
    return int(text)


def _replay(options: argparse.Namespace) -> int:
    try:
        requests = _requests(options.trace, options.limit)
        engine = Engine(_tier_config(options), options.primary_blocks, options.block_bytes)
    except (ImportError, MemoryError, OSError, ValueError) as error:
        print(f"kvreg replay: error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    with engine:
        report = _run(engine, requests)
    print(json.dumps(dataclasses.asdict(report)) if options.json else format_report(report))
    return EXIT_SUCCESS if report.is_sound else EXIT_UNSOUND


def _requests(trace: Path | None, limit: int | None) -> list[Request]:
    if trace is None:
        return generate_workload()[:limit]
    requests = read_trace(trace, limit)
    if not requests:
        raise TraceError(f"{trace}: no requests")
    return requests


def _tier_config(options: argparse.Namespace) -> dict[str, Any]:
    config = {
        "type": "host",
        "capacity": options.host_capacity,
        "eviction_policy": options.eviction_policy,
    }
    if options.num_threads is not None:
        config["num_threads"] = options.num_threads
    return config


def _run(engine: Engine, requests: Sequence[Request]) -> Report:
    started = perf_counter()
    for request in _with_progress(requests):
        engine.step(request)
    return summarise(engine, wall_s=perf_counter() - started)


def _with_progress(requests: Sequence[Request]) -> Iterable[Request]:
    if not sys.stderr.isatty():
        return requests
    try:
        tqdm = importlib.import_module("tqdm")
    except ImportError:
        return requests
    bar: Iterable[Request] = tqdm.tqdm(requests, unit="request")
    return bar
