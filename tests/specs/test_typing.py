"""What a type checker makes of the stubs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_stubs_promise_and_refuse_what_typed_usage_says():
    """Strict mode also reports an expected error that does not come."""
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "tests/specs/typed_usage.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
