"""Bandwidth of scattered block copies: every kernel of kvreg beside what else there is.

    python benchmarks/bench_copy.py --plot copy.png

The methods take turns within a round, so that noise meets all of them alike; figures are
medians of the rounds. Bandwidth is payload: bytes copied a second, in units of 10^9. The
destination and the source each have the size of the working set; a run copies at most 128 MiB
of it, a different part each time. ``csrc/tests/bench_copy.c`` measures the same without Python.
"""

import argparse
import ctypes
import itertools
import mmap
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kvreg import copy_blocks
from kvreg.replay.plot import check_picture

try:
    import torch
except ImportError:
    torch = None

KIB, MIB = 1 << 10, 1 << 20
RUN_BYTES = 128 * MIB
CHOICE = "kvreg"
MEMCPY = "portable"  # it is one memcpy a block
STREAM = "one memcpy"
CPU0_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Point:
    """One place of the grid."""

    set_bytes: int
    pages: str
    order: str
    threads: int
    block_bytes: int


@dataclass
class Run:
    """What a method copies: rows ``src_ids[i]`` to rows ``dst_ids[i]``."""

    dst: np.ndarray
    dst_ids: np.ndarray
    src: np.ndarray
    src_ids: np.ndarray

    def split(self, parts: int) -> Iterator["Run"]:
        for dst_ids, src_ids in zip(
            np.array_split(self.dst_ids, parts),
            np.array_split(self.src_ids, parts),
            strict=True,
        ):
            yield Run(self.dst, dst_ids, self.src, src_ids)

    def window(self) -> tuple[np.ndarray, np.ndarray]:
        """As many rows as are copied, in one piece, on each side."""
        first, n = int(self.dst_ids.min()), len(self.dst_ids)
        first = min(first, len(self.dst) - n)
        return self.dst[first : first + n], self.src[first : first + n]


@dataclass
class Result:
    point: Point
    speeds: dict[str, list[float]] = field(default_factory=dict)  # GB/s of each round
    stream_limit: float = 0.0  # GB/s of the best copy in one piece

    def median(self, method: str) -> float:
        return statistics.median(self.speeds[method])

    def ratio(self, method: str, other: str) -> list[float]:
        pairs = zip(self.speeds[method], self.speeds[other], strict=True)
        return sorted(a / b for a, b in pairs)


# -- Methods --------------------------------------------------------------------------------


def one_memcpy(run: Run) -> None:
    dst, src = run.window()
    ctypes.memmove(dst.ctypes.data, src.ctypes.data, dst.nbytes)


def numpy_take(run: Run) -> None:
    dst, _ = run.window()
    # "raise" would copy into a buffer first.
    np.take(run.src, run.src_ids, axis=0, out=dst, mode="clip")


def row_assignment(run: Run) -> None:
    for dst_id, src_id in zip(run.dst_ids.tolist(), run.src_ids.tolist(), strict=True):
        run.dst[dst_id] = run.src[src_id]


def torch_index_select(run: Run) -> None:
    dst, _ = run.window()
    ids = torch.from_numpy(run.src_ids)
    torch.index_select(torch.from_numpy(run.src), 0, ids, out=torch.from_numpy(dst))


def kernel_names() -> list[str]:
    """The kernels of this machine, as the error for an unknown one lists them."""
    row = np.zeros((1, 1), np.uint8)
    with forced_kernel("?"):
        try:
            copy_blocks(row, [], row, [])
        except ValueError as error:
            return str(error).split(": ")[1].split(", ")
    raise AssertionError("KVREG_COPY=? was not refused")


@contextmanager
def forced_kernel(name: str | None) -> Iterator[None]:
    if name is not None:
        os.environ["KVREG_COPY"] = name
    try:
        yield
    finally:
        os.environ.pop("KVREG_COPY", None)


def kvreg_method(kernel: str | None, threads: int) -> Callable[[Run], None]:
    def copy(run: Run) -> None:
        with forced_kernel(kernel):
            copy_blocks(run.dst, run.dst_ids, run.src, run.src_ids, threads=threads)

    return copy


def on_threads(method: Callable[[Run], None], pool: ThreadPoolExecutor, threads: int):
    if threads == 1:
        return method
    return lambda run: list(pool.map(method, run.split(threads)))


def all_methods(pool: ThreadPoolExecutor, threads: int) -> dict[str, Callable[[Run], None]]:
    methods = {name: kvreg_method(name, threads) for name in kernel_names()}
    methods[CHOICE] = kvreg_method(None, threads)
    others = {
        STREAM: one_memcpy,
        "numpy.take": numpy_take,
        "row assignment": row_assignment,
    }
    if torch is not None:
        torch.set_num_threads(1)
        others["torch.index_select"] = torch_index_select
    return methods | {name: on_threads(m, pool, threads) for name, m in others.items()}


# -- Measuring ------------------------------------------------------------------------------


def make_ids(n: int, order: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n) if order == "shuffled" else np.arange(n)


def map_buffer(set_bytes: int, pages: str) -> np.ndarray:
    memory = mmap.mmap(-1, set_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if pages == "huge" else mmap.MADV_NOHUGEPAGE)
    buffer = np.frombuffer(memory, np.uint8)
    buffer[:] = 1
    return buffer


def runs_of(point: Point, dst: np.ndarray, src: np.ndarray) -> Iterator[Run]:
    """Runs over one part of the buffers after another, for ever."""
    dst, src = (buffer.reshape(-1, point.block_bytes) for buffer in (dst, src))
    n = min(len(dst), RUN_BYTES // point.block_bytes)
    dst_ids, src_ids = (make_ids(len(dst), point.order, seed) for seed in (1, 2))
    for start in itertools.cycle(range(0, len(dst) - n + 1, n)):
        part = slice(start, start + n)
        yield Run(dst, dst_ids[part], src, src_ids[part])


def speed_of(method: Callable[[Run], None], run: Run) -> float:
    """Time one method; GB/s."""
    passes = max(1, RUN_BYTES // run.dst.nbytes)
    if len(run.dst_ids) == len(run.dst):
        # The buffers may fit a cache: the method before must not decide what is in it.
        method(run)
    start = time.perf_counter()
    for _ in range(passes):
        method(run)
    seconds = time.perf_counter() - start
    return len(run.dst_ids) * run.dst.shape[1] * passes / seconds / 1e9


def measure(point: Point, dst: np.ndarray, src: np.ndarray, rounds: int) -> Result:
    result = Result(point)
    runs = runs_of(point, dst, src)
    with ThreadPoolExecutor(point.threads) as pool:
        methods = all_methods(pool, point.threads)
        for name, method in methods.items():
            speed_of(method, next(runs))
            result.speeds[name] = []
        for _ in range(rounds):
            for name, method in methods.items():
                result.speeds[name].append(speed_of(method, next(runs)))
    result.stream_limit = stream_limit(point, dst, src, rounds)
    return result


def stream_limit(point: Point, dst: np.ndarray, src: np.ndarray, rounds: int) -> float:
    """GB/s of the best kernel when it copies in order, a thread's share in one piece."""
    share = min(len(dst), RUN_BYTES) // point.threads
    whole = Point(point.set_bytes, point.pages, "sequential", point.threads, share)
    runs = runs_of(whole, dst[: len(dst) // share * share], src[: len(src) // share * share])
    kernels = {name: kvreg_method(name, point.threads) for name in kernel_names()}
    speeds = {name: [] for name in kernels}
    for _ in range(rounds):
        for name, kernel in kernels.items():
            speeds[name].append(speed_of(kernel, next(runs)))
    return max(statistics.median(values) for values in speeds.values())


# -- Output ---------------------------------------------------------------------------------


def print_result(result: Result) -> None:
    point = result.point
    best = max(kernel_names(), key=result.median)
    of_best = result.ratio(CHOICE, best)
    upper = of_best[3 * (len(of_best) - 1) // 4]
    middle = statistics.median(of_best)
    cells = [f"{result.median(name):9.2f}" for name in result.speeds]
    print(
        f"{point.set_bytes / MIB:7.1f} {point.pages:>5} {point.order:>10} {point.threads:2} "
        f"{point.block_bytes // KIB:6} " + " ".join(cells),
        f"{statistics.median(result.ratio(CHOICE, MEMCPY)):6.2f} {middle:6.2f}",
        "yes" if middle >= 0.9 or upper >= 1 else "NO",
        flush=True,
    )


def print_heading(methods: list[str]) -> None:
    short = [name.replace("torch.", "").replace(" assignment", "=")[:9] for name in methods]
    print("GB/s; set and block in MiB and KiB; then kvreg to memcpy a block, kvreg to the best")
    print("kernel, and whether that is within 10 % or within the spread (quartiles)")
    print(
        f"{'set':>7} {'pages':>5} {'order':>10} {'th':>2} {'block':>6} "
        + " ".join(f"{name:>9}" for name in short)
        + f" {'/mcpy':>6} {'/best':>6}"
    )


def plot(results: list[Result], path: str) -> None:
    """Bandwidth against block size: a panel for each working set and number of threads."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    first = results[0].point
    shown = [r for r in results if (r.point.pages, r.point.order) == (first.pages, first.order)]
    sets = sorted({r.point.set_bytes for r in shown})
    threads = sorted({r.point.threads for r in shown})
    figure, axes = pyplot.subplots(
        len(sets),
        len(threads),
        figsize=(6.5 * len(threads), 4 * len(sets)),
        squeeze=False,
        sharex=True,
    )
    for axis, (set_bytes, count) in zip(
        axes.flat, itertools.product(sets, threads), strict=True
    ):
        panel = [r for r in shown if (r.point.set_bytes, r.point.threads) == (set_bytes, count)]
        plot_panel(axis, panel)
        axis.set_title(f"buffers of {set_bytes / MIB:g} MiB, threads: {count}")
    for axis in axes[-1]:
        axis.set_xlabel("block size (KiB)")
    for axis in axes[:, 0]:
        axis.set_ylabel("GB/s copied")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right")
    figure.suptitle(f"Block copies, {first.order} ids, {first.pages} pages")
    figure.tight_layout(rect=(0, 0, 1 - 2.4 / (6.5 * len(threads)), 0.99))
    figure.savefig(path, dpi=110)


def plot_panel(axis, panel: list[Result]) -> None:
    blocks = [r.point.block_bytes / KIB for r in panel]
    kernels = kernel_names()
    for number, name in enumerate(panel[0].speeds):
        style = {
            "color": f"C{number % 10}",
            "marker": "o" if name in kernels else "s",
            "linestyle": "-" if name in kernels else ":",
            "markersize": 4,
        }
        if name == CHOICE:
            style = {"color": "black", "linewidth": 3, "alpha": 0.5}
        label = "memcpy a block (portable)" if name == MEMCPY else name
        axis.plot(blocks, [r.median(name) for r in panel], label=label, **style)
    limit = statistics.median(r.stream_limit for r in panel)
    axis.axhline(limit, linestyle="--", color="grey", label="streaming limit")
    axis.set_xscale("log", base=4)
    axis.set_xticks(blocks, [f"{block:g}" for block in blocks])
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)


# -- The command ----------------------------------------------------------------------------


def cache_bytes(level: int) -> int:
    for cache in sorted(CPU0_CACHES.glob("index*")):
        if int((cache / "level").read_text()) == level:
            return int((cache / "size").read_text().strip().removesuffix("K")) * KIB
    return 0


def default_sets() -> list[float]:
    """L2-resident, beyond L2, within the last-level cache, and 8 times that; MiB."""
    l2 = cache_bytes(2) or MIB
    llc = cache_bytes(3) or 16 * l2
    return [size / MIB for size in (l2 // 4, 4 * l2, llc // 4, 8 * llc)]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--blocks", nargs="+", type=int, default=[4, 16, 64, 256, 1024, 4096], help="KiB")
    add("--sets", nargs="+", type=float, default=default_sets(), help="MiB of each buffer")
    add("--threads", nargs="+", type=int, default=[1, 2])
    add("--orders", nargs="+", choices=["shuffled", "sequential"])
    add("--pages", nargs="+", choices=["huge", "plain"])
    add("--rounds", type=int, default=9)
    add("--plot", metavar="FILE.png", help="draw the first of --orders and of --pages")
    arguments = parser.parse_args()
    arguments.orders = arguments.orders or ["shuffled", "sequential"]
    arguments.pages = arguments.pages or ["huge", "plain"]
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.plot:
        check_picture(arguments.plot)
    results = []
    for set_mib, pages in itertools.product(arguments.sets, arguments.pages):
        set_bytes = int(set_mib * MIB) // (4 * MIB) * 4 * MIB or int(set_mib * MIB)
        dst, src = map_buffer(set_bytes, pages), map_buffer(set_bytes, pages)
        for order, threads, block in itertools.product(
            arguments.orders, arguments.threads, arguments.blocks
        ):
            if set_bytes % (block * KIB) != 0 or set_bytes // (block * KIB) < 2 * threads:
                continue
            point = Point(set_bytes, pages, order, threads, block * KIB)
            results.append(measure(point, dst, src, arguments.rounds))
            if len(results) == 1:
                print_heading(list(results[0].speeds))
            print_result(results[-1])
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
