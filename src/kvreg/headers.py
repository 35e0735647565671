"""Where the C headers are."""

from pathlib import Path


def get_include() -> str:
    """Return the folder to give to a C compiler's ``-I``; it holds ``kvreg/*.h``."""
    package = Path(__file__).parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parents[1] / "csrc" / "include")
