"""What the README shows works as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvreg.replay.trace import read_trace

README = Path(__file__).parent.parent / "README.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.M | re.S)


@pytest.mark.parametrize("code", blocks("python"))
def test_an_example_runs(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_there_are_examples_of_both_halves():
    examples = "\n".join(blocks("python"))
    assert "KVCacheSpecRegistry" in examples
    assert "SecondaryTierFactory" in examples


@pytest.mark.parametrize("command", [b for b in blocks("sh") if "replay TRACE" in b])
def test_a_trace_command_runs(command, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"hash_ids": [0, 1, 2]}\n{"hash_ids": [0, 1, 3]}\n')
    arguments = command.replace("TRACE", str(trace)).split()
    assert arguments.pop(0) == ".venv/bin/kvreg"
    done = subprocess.run(
        [sys.executable, "-m", "kvreg", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"lost_jobs": 0' in done.stdout or "optimum" in done.stdout


def test_there_are_trace_commands_of_both_kinds():
    commands = [block for block in blocks("sh") if "replay TRACE" in block]
    assert ["--sweep-capacity" in command for command in commands] == [False, True]


def test_the_line_of_a_trace_is_one(tmp_path):
    trace = tmp_path / "trace.jsonl"
    (line,) = blocks("jsonl")
    trace.write_text(line)
    (request,) = read_trace(trace, tokens_per_block=512).requests
    assert request.seconds == 27.482
    assert len(request.hash_ids) == 2
