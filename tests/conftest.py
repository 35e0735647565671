"""Fixtures that several folders of tests share."""

from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from kvreg.tiering import SecondaryTierFactory

# How long a test takes says nothing on a machine that does other things as well.
settings.register_profile("kvreg", deadline=None)
settings.load_profile("kvreg")


def pytest_addoption(parser):
    parser.addoption(
        "--long", action="store_true", help="run the tests that are marked long at full length"
    )


@pytest.fixture
def long(request):
    """Whether to take minutes where a few seconds would do."""
    return request.config.getoption("--long")


@pytest.fixture(scope="session")
def production_trace():
    """The public trace of a conversation service, where it lies beside the checkout."""
    path = Path(__file__).parents[2] / "shared" / "traces" / "conversation_trace.jsonl"
    if not path.exists():
        pytest.skip(f"needs the trace {path}")
    return path


@contextmanager
def tier_class_of_host(module_path, class_name):
    """Let the factory's tier type "host" stand for another class."""
    registered = SecondaryTierFactory._registry.pop("host")
    SecondaryTierFactory.register_tier("host", module_path, class_name)
    try:
        yield
    finally:
        SecondaryTierFactory._registry["host"] = registered


@pytest.fixture(params=["ModelTier", "HostMemoryTier"])
def host_tier(request):
    """The tier type "host" is the plain-Python model in one run, the native tier in another."""
    if request.param == "HostMemoryTier":
        yield
    else:
        with tier_class_of_host("tests.tiering.model", "ModelTier"):
            yield
