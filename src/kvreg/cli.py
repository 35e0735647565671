"""The command line: ``kvreg COMMAND``, also ``python -m kvreg COMMAND``."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, TypeVar

from kvreg._version import __version__
from kvreg.replay.clock import TIMESTAMP_UNITS
from kvreg.replay.engine import Engine
from kvreg.replay.plot import check_picture, plot_sweep
from kvreg.replay.report import Report, format_reading, format_report, summarise
from kvreg.replay.sweep import Sweep, SweepPoint, format_sweep
from kvreg.replay.trace import Reading, Request, read_trace
from kvreg.replay.workload import generate_workload
from kvreg.tiering import EVICTION_POLICIES
from kvreg.tiering.sizes import parse_bytes

Item = TypeVar("Item")

EXIT_SUCCESS = 0
EXIT_UNSOUND = 1
EXIT_BAD_INPUT = 2
EXIT_NO_OUTPUT = 3
EXIT_INTERRUPTED = 130

_REPLAY_SUMMARY = "replay a trace through a host tier; report hits, speed and faults"
_REPLAY_EPILOG = (
    "SIZE is a number of bytes, or digits with the suffix B, KiB, MiB, GiB or TiB. "
    "The report: first, how the trace was read, and why so. Prefix hits are blocks found while "
    "all before them were found too; the primary ones are had without a host tier, the host "
    "ones are what it adds. A request's blocks beyond the primary tier's rows are computed and "
    "not kept, and an id that a request repeats counts once. Bandwidths are 10^9 bytes a "
    "second from a job's submission to its end. Scheduler is the time in calls of the tier; "
    "wait, the time spent waiting for copies. A partial job served some of its blocks; a lost "
    "one never had a result. "
    "A sweep (--sweep-capacity) replays the trace once for each capacity and eviction policy, "
    "copies no block, and reports the prefix hit rate of both tiers, beside the optimum: what "
    "the best policy could reach that knows the future. --host-capacity and --num-threads have "
    "no part in it. "
    "Exit codes: 0 success; 1 a block was corrupted or a job lost; 2 bad options or input; "
    "3 the report or the picture could not be written; 130 interrupted."
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
        _complain("kvreg: interrupted")
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvreg", description="KV-cache tiers in host memory for LLM inference engines."
    )
    parser.add_argument("--version", action="version", version=f"kvreg {__version__}")
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
        help="JSON lines, one object with 'hash_ids' for each request, in order of time; also "
        "compressed by gzip; - is standard input (default: a built-in generated workload)",
    )
    _add_trace_options(replay)
    replay.add_argument(
        "--block-bytes",
        metavar="SIZE",
        type=_size,
        default="64KiB",
        help="bytes of a block's KV, which one of the trace's ids stands for: tokens a block "
        "x bytes of KV a token (default: %(default)s)",
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
        metavar="NAME[,NAME...]",
        type=_policies,
        default="lru",
        help="how the host tier chooses what to evict: "
        f"{', '.join(EVICTION_POLICIES)} (default: %(default)s); several for a sweep",
    )
    replay.add_argument(
        "--sweep-capacity",
        metavar="SIZE[,SIZE...]",
        type=_sizes,
        help="report prefix hits against these capacities of the host tier, and copy no block",
    )
    replay.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the sweep to this picture, whose ending says of what kind, such as .png",
    )
    replay.add_argument(
        "--json",
        action="store_true",
        help="report as one JSON object, a sweep as a list of them",
    )


def _add_trace_options(replay: argparse.ArgumentParser) -> None:
    replay.add_argument(
        "--limit",
        metavar="N",
        type=_count,
        help="number of requests to replay, from the first (default: all)",
    )
    replay.add_argument(
        "--timestamp-unit",
        choices=("auto", *TIMESTAMP_UNITS),
        default="auto",
        help="unit of the trace's timestamps; krl lives by time. auto: 10^9 and more is a "
        "moment since 1970, in s below 10^11, ms below 10^14, us below 10^17, else ns; less is "
        "ms, but s where the mean gap between requests is less than 1, or less than 100 with "
        "fractions (default: %(default)s)",
    )
    replay.add_argument(
        "--sort",
        action="store_true",
        help="replay requests in order of time, those of one time in the trace's order, "
        "and let --limit count them so (default: all in the trace's order)",
    )
    replay.add_argument(
        "--tokens-per-block",
        metavar="N",
        type=_tokens,
        default="auto",
        help="tokens that an id stands for. Engines keep whole blocks only: where a request's "
        "'input_length' does not fill its last block, the id of this partial block is left "
        "out. auto: the one number that fits all requests, or off where there is none; off: "
        "every id counts (default: %(default)s)",
    )


def _size(text: str) -> int:
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size == 0:
        raise argparse.ArgumentTypeError(f"must be at least 1 byte; got {text!r}")
    return size


def _sizes(text: str) -> list[int]:
    return sorted({_size(size) for size in text.split(",")})


def _policies(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in EVICTION_POLICIES:
            raise argparse.ArgumentTypeError(
                f"unknown eviction policy {name!r}; known are {', '.join(EVICTION_POLICIES)}"
            )
    return names


def _tokens(text: str) -> int | str:
    if text in ("auto", "off"):
        return text
    try:
        return _count(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; or auto or off") from None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and text.strip("0")):
        raise argparse.ArgumentTypeError(f"must be a number, 1 or more; got {text!r}")
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"has too many digits: {len(text)}") from None


def _replay(options: argparse.Namespace) -> int:
    if sys.stdout is None:
        _complain("kvreg replay: error: cannot write the report: standard output is closed")
        return EXIT_NO_OUTPUT
    try:
        _check_together(options)
        requests, reading = _requests(options)
        if options.sweep_capacity is not None:
            return _report_sweep(options, requests, reading)
        engine = Engine(_tier_config(options), options.primary_blocks, options.block_bytes)
    except (ImportError, MemoryError, OSError, ValueError) as error:
        # The interpreter's own MemoryError has no text.
        _complain(f"kvreg replay: error: {str(error) or 'out of memory'}")
        return EXIT_BAD_INPUT
    with engine:
        report = _run(engine, requests, reading)
    text = json.dumps(dataclasses.asdict(report)) if options.json else format_report(report)
    if not _report(text):
        return EXIT_NO_OUTPUT
    return EXIT_SUCCESS if report.is_sound else EXIT_UNSOUND


def _check_together(options: argparse.Namespace) -> None:
    """Refuse options that do not go together.

    Raises:
        ValueError, ImportError: They do not, or what they need is not there.
    """
    sweeps = options.sweep_capacity is not None
    if not sweeps and len(options.eviction_policy) > 1:
        raise ValueError(
            f"{len(options.eviction_policy)} eviction policies, "
            f"{', '.join(options.eviction_policy)}: more than one needs --sweep-capacity"
        )
    if options.plot is not None and not sweeps:
        raise ValueError(f"--plot {options.plot} draws a sweep: it needs --sweep-capacity")
    if options.trace is None and options.sort:
        raise ValueError("--sort is for a trace: it needs TRACE")
    if options.trace is None and options.timestamp_unit != "auto":
        raise ValueError("--timestamp-unit is for a trace: it needs TRACE")
    if options.trace is None and options.tokens_per_block != "auto":
        raise ValueError("--tokens-per-block is for a trace: it needs TRACE")
    if sweeps and options.sweep_capacity[0] < options.block_bytes:
        raise ValueError(
            f"a capacity of {options.sweep_capacity[0]} bytes is less than one block of "
            f"{options.block_bytes} bytes"
        )
    if options.plot is not None:
        _check_picture(options.plot)


def _check_picture(path: str) -> None:
    try:
        check_picture(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"cannot draw {path!r}: {error}") from None


def _report_sweep(
    options: argparse.Namespace, requests: Sequence[Request], reading: Reading | None
) -> int:
    """Sweep, draw and report; return the exit code."""
    sweep = Sweep(
        requests,
        options.block_bytes,
        options.primary_blocks,
        options.sweep_capacity,
        options.eviction_policy,
    )
    points: list[SweepPoint] = list(_with_progress(sweep.points(), "point", len(sweep)))
    if options.json:
        trace = None if reading is None else dataclasses.asdict(reading)
        text = json.dumps([{**dataclasses.asdict(point), "trace": trace} for point in points])
    else:
        text = "\n".join([*format_reading(reading), format_sweep(points)])
    # Each of them even if the other cannot be written: the points took long.
    written = _report(text)
    drawn = options.plot is None or _draw(points, options)
    return EXIT_SUCCESS if written and drawn else EXIT_NO_OUTPUT


def _draw(points: Sequence[SweepPoint], options: argparse.Namespace) -> bool:
    """Draw a sweep; complain and return False where that fails."""
    try:
        plot_sweep(points, options.primary_blocks, options.plot)
    except (OSError, RuntimeError, ValueError) as error:
        _complain(f"kvreg replay: error: cannot draw {options.plot!r}: {error}")
        return False
    return True


def _report(text: str) -> bool:
    """Write a report; complain and return False where that fails."""
    try:
        _write(text)
    except OSError as error:
        _complain(f"kvreg replay: error: cannot write the report: {error}")
        return False
    return True


def _complain(text: str) -> None:
    # Where nobody can be told, the exit code still tells. Without a standard error print()
    # would use standard output.
    if sys.stderr is not None:
        try:
            print(text, file=sys.stderr)
        except OSError:
            # Else what it still holds makes an exit code of its own, from CPython 3.14 on.
            sys.stderr = None


def _write(text: str) -> None:
    """Write ``text`` to standard output; a reader that closes it early has had enough.

    Raises:
        OSError: It could not be written.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        # What is left in the buffer must not fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise


def _requests(options: argparse.Namespace) -> tuple[Sequence[Request], Reading | None]:
    if options.trace is None:
        return generate_workload()[: options.limit], None
    trace = read_trace(
        options.trace,
        options.limit,
        timestamp_unit=options.timestamp_unit,
        sort=options.sort,
        tokens_per_block=options.tokens_per_block,
    )
    for warning in trace.warnings:
        _complain(f"kvreg replay: warning: {warning}")
    return trace.requests, trace.reading


def _tier_config(options: argparse.Namespace) -> dict[str, Any]:
    config = {
        "type": "host",
        "capacity": options.host_capacity,
        "eviction_policy": options.eviction_policy[0],
    }
    if options.num_threads is not None:
        config["num_threads"] = options.num_threads
    return config


def _run(engine: Engine, requests: Sequence[Request], reading: Reading | None) -> Report:
    started = perf_counter()
    for request in _with_progress(requests, "request", len(requests)):
        engine.step(request)
    return summarise(engine, wall_s=perf_counter() - started, trace=reading)


def _with_progress(items: Iterable[Item], unit: str, total: int) -> Iterable[Item]:
    if sys.stderr is None or not sys.stderr.isatty():
        return items
    try:
        tqdm = importlib.import_module("tqdm")
    except ImportError:
        return items
    bar: Iterable[Item] = tqdm.tqdm(items, unit=unit, total=total)
    return bar
