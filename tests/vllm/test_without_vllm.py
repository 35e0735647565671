"""The plugin where vLLM is not imported, or is another one than those it knows."""

import os
import subprocess
import sys
import textwrap

import pytest


def run_python(code, folder):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
        check=False,
    )


def test_importing_it_imports_neither_vllm_nor_torch(tmp_path):
    done = run_python(
        """
        import sys
        import kvreg.vllm.plugin
        print(sorted({"vllm", "torch"} & set(sys.modules)))
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@pytest.fixture
def early_vllm(tmp_path):
    """A folder with a vLLM that has no tiers."""
    for package in ("vllm", "vllm/v1"):
        os.mkdir(tmp_path / package)
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


def test_a_vllm_without_tiers_is_left_alone_and_that_is_said_once(early_vllm):
    done = run_python(
        """
        import kvreg.vllm.plugin
        kvreg.vllm.plugin._register_tier()
        kvreg.vllm.plugin._register_tier()
        """,
        early_vllm,
    )
    assert (done.returncode, done.stdout) == (0, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith("the tier type 'kvreg' is not available: No module named 'vllm.v1.")


def test_the_tier_s_name_is_there_but_the_class_needs_vllm(early_vllm):
    done = run_python(
        """
        import kvreg.vllm
        assert kvreg.vllm.__all__ == ["HostMemoryTierManager"]
        try:
            kvreg.vllm.HostMemoryTierManager
        except ImportError as error:
            print(error)
        try:
            kvreg.vllm.Tier
        except AttributeError as error:
            print(error)
        """,
        early_vllm,
    )
    assert done.stdout.splitlines() == [
        "No module named 'vllm.v1.kv_offload'",
        "module 'kvreg.vllm' has no attribute 'Tier'",
    ]
