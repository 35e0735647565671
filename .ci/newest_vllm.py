"""Tells in one line what of the newest vLLM on PyPI kvreg does not know.

Usage: newest_vllm.py WHEELS UNPACKED

By the Python of an environment with kvreg and what vLLM requires. WHEELS is a folder that keeps
vLLM's wheels; UNPACKED has a folder vllm-VERSION for each that is unpacked, one of them for the
last that the README names. Fails only where the newest is one that the README names, and kvreg
stays out of it; trouble with PyPI is told, and is no failure.
"""

import glob
import importlib
import inspect
import json
import logging
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from vllm_wheel import unpack

README = Path(__file__).parents[1] / "README.md"
SECONDS = 900

# What kvreg has to do with, by module.
LOOKED_AT = {
    "vllm.v1.kv_offload.base": [
        "Locality",
        "LookupResult",
        "Medium",
        "OffloadPolicy",
        "OffloadingEvent",
        "ReqContext",
        "RequestOffloadingContext",
        "ScheduleEndContext",
    ],
    "vllm.v1.kv_offload.tiering.base": ["JobResult", "SecondaryTierManager", "TransferJob"],
    "vllm.v1.kv_offload.tiering.factory": ["SecondaryTierFactory"],
    "vllm.v1.kv_cache_spec_registry": ["KVCacheSpecMetadata", "KVCacheSpecRegistry"],
}


def named_versions():
    """Return the first and the last version that the README names, as (0, 28)."""
    found = re.search(r"vLLM (\d+)\.(\d+) to (\d+)\.(\d+)", README.read_text())
    first_major, first_minor, last_major, last_minor = map(int, found.groups())
    return (first_major, first_minor), (last_major, last_minor)


def minor_of(version):
    """Return (0, 34) for "0.34.1"."""
    return tuple(int(number) for number in version.split(".")[:2])


def run_pip(*arguments):
    """Return what pip prints."""
    pip = [sys.executable, "-m", "pip", *arguments, "--retries", "1", "--timeout", "30"]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr.strip().splitlines()[-1])
    return done.stdout


def newest_version():
    """Return the version of the newest vLLM on PyPI."""
    return re.match(r"vllm \(([^)]+)\)", run_pip("index", "versions", "vllm"))[1]


def unpacked(version, wheels, folder):
    """Return where a version is unpacked; download and unpack it unless it is."""
    target = folder / f"vllm-{version}"
    if not target.exists():
        pattern = f"{wheels}/vllm-{version}-*.whl"
        if not glob.glob(pattern):
            only_wheel = ("--no-deps", "--only-binary", ":all:")
            run_pip("download", "-q", *only_wheel, "-d", str(wheels), f"vllm=={version}")
        with zipfile.ZipFile(glob.glob(pattern)[0]) as wheel:
            unpack(wheel, target)
    return target


def look_at(vllm):
    """Return what `look` returns in a Python with an unpacked vLLM."""
    environment = {**os.environ, "PYTHONPATH": str(vllm), "VLLM_CONFIGURE_LOGGING": "0"}
    done = subprocess.run(
        [sys.executable, __file__, "--look"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != 0:
        return {"complaints": [done.stderr.strip().splitlines()[-1]], "names": []}
    return json.loads(done.stdout.splitlines()[-1])


def look():
    """Return kvreg's complaints about the vLLM of this process, and the names that it has."""
    complaints = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: complaints.append(record.getMessage())
    logging.getLogger("kvreg").addHandler(listener)
    plugin = importlib.import_module("kvreg.vllm.plugin")
    plugin.register()
    try:
        importlib.import_module("kvreg.vllm.tier")
    except Exception as error:
        if not complaints:
            complaints.append(str(error))
    return {"complaints": complaints, "names": sorted(set(names()))}


def names():
    """Yield the names of what kvreg has to do with: attributes and parameters."""
    for module, classes in LOOKED_AT.items():
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        for cls in classes:
            if hasattr(found, cls):
                yield from names_of(cls, getattr(found, cls))


def names_of(what, of):
    """Yield the names of a class's attributes, and of what it and they are called with."""
    public = {f".{name}": getattr(of, name) for name in dir(of) if not name.startswith("_")}
    for name, value in {"": of, **public}.items():
        yield what + name
        try:
            parameters = inspect.signature(value).parameters
        except (TypeError, ValueError):
            continue
        for parameter in parameters:
            yield f"{what}{name}({parameter})"


def main(wheels, folder):
    """Print the line; return whether kvreg is as the README says."""
    first, last = named_versions()
    try:
        newest = newest_version()
        vllm = unpacked(newest, wheels, folder)
    except (OSError, TypeError, subprocess.TimeoutExpired) as error:
        print(f"The newest vLLM could not be looked at: {error}")
        return True
    told = look_at(vllm)
    findings = told["complaints"]
    for path in folder.glob("vllm-*.*"):
        if path != vllm and minor_of(path.name.removeprefix("vllm-")) == last:
            unknown = set(told["names"]).difference(look_at(path)["names"])
            findings = findings + [f"it does not know {name}" for name in sorted(unknown)]
    print(f"kvreg in vLLM {newest}, the newest: {'; '.join(findings) or 'nothing to tell'}")
    return not told["complaints"] or not first <= minor_of(newest) <= last


if __name__ == "__main__":
    if sys.argv[1:] == ["--look"]:
        print(json.dumps(look()))
    else:
        sys.exit(not main(*map(Path, sys.argv[1:])))
