"""What is needed of a vLLM wheel to test kvreg inside it without a GPU.

Usage: vllm_wheel.py requirements WHEEL     print what it requires, but for what only media need
       vllm_wheel.py unpack WHEEL FOLDER    unpack it, but for its compiled part
"""

import re
import sys
import zipfile

MEDIA = ("torchaudio", "torchcodec", "torchvision")


def requirements(wheel):
    """Print what the wheel requires, a line each."""
    (metadata,) = (
        name for name in wheel.namelist() if re.fullmatch(r"[^/]*\.dist-info/METADATA", name)
    )
    for line in wheel.read(metadata).decode().splitlines():
        name, _, requirement = line.partition(": ")
        if name != "Requires-Dist" or "extra ==" in requirement:
            continue
        if not requirement.startswith(MEDIA):
            # The mark of a build without CUDA is not in every index.
            print(requirement.replace("+cpu", ""))


def unpack(wheel, folder):
    """Write the wheel's files to a folder."""
    wheel.extractall(folder, [name for name in wheel.namelist() if not name.endswith(".so")])


if __name__ == "__main__":
    command, path, *arguments = sys.argv[1:]
    with zipfile.ZipFile(path) as opened:
        {"requirements": requirements, "unpack": unpack}[command](opened, *arguments)
