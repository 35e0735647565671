"""Makes ``python -m kvreg`` the same as ``kvreg``."""

import sys

from kvreg.cli import main

if __name__ == "__main__":
    sys.exit(main())
