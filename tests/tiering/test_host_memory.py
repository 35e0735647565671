"""Which memory a host tier takes: its pages, its NUMA nodes, and when."""

import contextlib
import fcntl
import gc
import mmap
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from kvreg.tiering import HostMemoryTier, LookupResult
from tests.tiering.host_driver import HostDriver

MIB = 1 << 20
POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
EVERY_OPTION = [
    {},
    {"huge_pages": "off"},
    {"huge_pages": "auto", "prefault": True},
    {"numa_node": "interleave", "prefault": True},
    {"numa_node": 0, "huge_pages": "off", "prefault": True},
]


def make_tier(capacity=MIB, row_bytes=4096, **parameters):
    view = np.zeros((4, row_bytes), np.uint8)
    return HostMemoryTier(None, view, "host", capacity=capacity, **parameters)


def mapped_bytes():
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def pool_figure(name):
    return int((POOL / name).read_text())


def pages_left():
    """The free huge pages of 2 MiB that no mapping was promised."""
    return pool_figure("free_hugepages") - pool_figure("resv_hugepages")


def nodes():
    """The NUMA nodes with memory that this process may use."""
    status = Path("/proc/self/status").read_text()
    found = []
    for item in re.search(r"Mems_allowed_list:\s*(\S+)", status)[1].split(","):
        first, _, last = item.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


@pytest.fixture
def four_huge_pages():
    """Add four huge pages to the system's reserve, which only root may."""
    with contextlib.ExitStack() as stack:
        try:
            pool = stack.enter_context(open(POOL / "nr_hugepages", "r+"))
        except OSError as error:
            pytest.skip(f"the reserve of huge pages cannot be changed: {error}")
        # Other tests may be changing it.
        fcntl.flock(pool, fcntl.LOCK_EX)
        before = pool_figure("nr_hugepages")
        (POOL / "nr_hugepages").write_text(f"{before + 4}\n")
        stack.callback((POOL / "nr_hugepages").write_text, f"{before}\n")
        if pool_figure("nr_hugepages") < before + 4:
            pytest.skip("the machine has no four huge pages to reserve")
        yield


# -- Options --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", EVERY_OPTION)
def test_a_stored_block_comes_back_from_any_memory(options):
    driver = HostDriver(slots=40, block_bytes=MIB // 4, **options)
    for letters in ("abcdefgh", "ijklmnop", "qrstuvwx"):
        assert driver.store(letters).success
    assert driver.load("qbx").success
    assert driver.rows_as_letters(3) == "qbx"
    assert driver.tier.stats().data_bytes == 10 * MIB
    driver.tier.shutdown()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"huge_pages": "4KiB"}, '"auto", "off", "2MiB", "1GiB", not \'4KiB\''),
        ({"huge_pages": None}, "huge_pages.*None"),
        ({"huge_pages": ["off"]}, r"huge_pages.*\['off'\]"),
        ({"numa_node": -1}, "numa_node.*0 or more, not -1"),
        ({"numa_node": "all"}, "numa_node.*\"interleave\".*'all'"),
        ({"numa_node": True}, "numa_node.*True"),
        ({"numa_node": 0.0}, r"numa_node.*0\.0"),
        ({"numa_node": 1 << 80}, f"numa_node.*{1 << 80}"),
        ({"prefault": 1}, "prefault must be True or False, not 1"),
        ({"prefault": "no"}, "prefault.*'no'"),
    ],
)
def test_an_option_that_does_not_exist_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        make_tier(**parameters)


def test_a_node_that_does_not_exist_is_refused_with_those_that_do():
    absent = max(nodes()) + 1
    with pytest.raises(ValueError, match=rf"node {absent} .*: {nodes()[0]}"):
        make_tier(numa_node=absent)


# -- Huge pages -----------------------------------------------------------------------------


@pytest.mark.skipif(not POOL.exists(), reason="the kernel has no huge pages of 2 MiB")
@pytest.mark.parametrize("options", [{}, {"numa_node": nodes()[0]}])
def test_more_huge_pages_than_are_free_are_refused_with_the_limit(options):
    free = pages_left()
    mapped = mapped_bytes()
    with pytest.raises(MemoryError, match=rf"needs {free + 1} huge pages.*leaves \d+"):
        make_tier(free * 2 * MIB + 4096, huge_pages="2MiB", **options)
    assert pages_left() == free
    assert mapped_bytes() - mapped < MIB


def test_blocks_lie_on_huge_pages_and_give_them_back(four_huge_pages):
    free = pages_left()
    driver = HostDriver(slots=13, block_bytes=MIB // 2, huge_pages="2MiB")
    assert driver.tier.stats().data_bytes == 8 * MIB
    assert driver.tier.stats().slots_total == 13
    assert pages_left() == free - 4
    assert driver.store("abcdefghijklm").success
    assert driver.load("mfa").success
    assert driver.rows_as_letters(3) == "mfa"
    driver.tier.shutdown()
    assert pages_left() == free


def test_a_constructor_that_fails_gives_the_huge_pages_back(four_huge_pages):
    free = pages_left()
    # The threads come last.
    with pytest.raises(OSError, match="CPU 1000000") as error:
        make_tier(8 * MIB, huge_pages="2MiB", prefault=True, worker_cpus=[1_000_000])
    assert pages_left() == free
    assert error.value.args


# -- Prefault -------------------------------------------------------------------------------


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def thread_names():
    for comm in Path("/proc/self/task").glob("*/comm"):
        # The thread may end meanwhile.
        with contextlib.suppress(OSError):
            yield comm.read_text().strip()


def wait_until_no_thread_prefaults():
    """Return soon where it was joined: the system lists a thread a little longer."""
    wait_until(lambda: "kvreg-prefault" not in thread_names())


def test_limits_that_cannot_be_read_are_told_and_only_free_memory_counts():
    code = """
        import os, resource, warnings
        import numpy as np
        from kvreg.tiering import HostMemoryTier
        view = np.zeros((4, 4096), np.uint8)
        HostMemoryTier(None, view, "host", capacity=1 << 20).shutdown()
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        with warnings.catch_warnings(record=True) as told:
            for _ in range(2):
                HostMemoryTier(None, view, "host", capacity=1 << 20).shutdown()
        try:
            HostMemoryTier(None, view, "host", capacity=1 << 42)
        except MemoryError as error:
            print(error)
        for each in told:
            print(each.category.__name__, each.message)
    """
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    refused, warning, *more = done.stdout.splitlines()
    assert "the machine's free memory leaves" in refused
    assert warning.startswith("RuntimeWarning limits of memory may be passed over")
    assert "/proc/meminfo: Too many open files" in warning
    assert more == []


def test_a_child_made_by_fork_does_not_get_the_memory():
    capacity = 256 * MIB
    tier = make_tier(capacity, row_bytes=MIB)
    mapped = mapped_bytes()
    child = os.fork()
    if child == 0:
        lacks_it = mapped - mapped_bytes() >= capacity
        # What comes to the addresses in the child is not unmapped with the tier.
        own = [mmap.mmap(-1, 16 * MIB) for _ in range(32)]
        tier.shutdown()
        del tier
        gc.collect()
        for each in own:
            each[:] = b"\1" * len(each)
        os._exit(0 if lacks_it else 1)
    assert os.waitpid(child, 0)[1] == 0
    tier.shutdown()


@pytest.mark.parametrize("huge_pages", ["auto", "off"])
def test_prefault_takes_the_memory_before_anything_is_stored(huge_pages):
    capacity = 128 * MIB
    before = resident_bytes()
    tier = make_tier(capacity, row_bytes=MIB, huge_pages=huge_pages)
    assert resident_bytes() - before < capacity // 2
    tier.shutdown()
    tier = make_tier(capacity, row_bytes=MIB, huge_pages=huge_pages, prefault=True)
    # Less than all of it: the kernel counts in steps.
    wait_until(lambda: resident_bytes() - before >= capacity * 7 // 8)
    wait_until_no_thread_prefaults()
    tier.shutdown()
    assert resident_bytes() - before < capacity // 2


def test_shutdown_stops_a_prefault():
    before = resident_bytes()
    for _ in range(20):
        make_tier(512 * MIB, huge_pages="off", prefault=True).shutdown()
        wait_until_no_thread_prefaults()
    assert resident_bytes() - before < 16 * MIB


def test_a_prefaulting_tier_may_be_dropped():
    make_tier(512 * MIB, huge_pages="off", prefault=True)
    gc.collect()
    wait_until_no_thread_prefaults()


def test_a_failing_constructor_leaves_no_prefault_behind():
    mapped = mapped_bytes()
    with pytest.raises(OSError, match="CPU 1000000"):
        make_tier(512 * MIB, huge_pages="off", prefault=True, worker_cpus=[1_000_000])
    wait_until_no_thread_prefaults()
    assert mapped_bytes() - mapped < 256 * MIB


def test_a_fork_during_a_prefault_leaves_it_to_the_parent():
    driver = HostDriver(slots=1024, block_bytes=MIB // 2, huge_pages="off", prefault=True)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            driver.tier.shutdown()
            driver.tier = None
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert driver.store("abc").success
    assert driver.look("c") is LookupResult.HIT
    driver.tier.shutdown()
