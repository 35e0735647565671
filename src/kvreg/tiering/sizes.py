"""Sizes in bytes, as configurations and command lines write them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# More digits than any size has, and fewer than int() refuses.
_SIZE = re.compile(r"([0-9]{1,1000})(B|KiB|MiB|GiB|TiB)?")


def parse_bytes(value: int | str) -> int:
    """Return the number of bytes that ``value`` stands for.

    Args:
        value: A number of bytes, or decimal digits with an optional suffix ``B``, ``KiB``,
            ``MiB``, ``GiB`` or ``TiB`` (powers of 1024), with nothing between or around them.

    Raises:
        ValueError: ``value`` is negative or of another form.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"a size is a number of bytes, 0 or more, or digits with an optional suffix B, "
            f"KiB, MiB, GiB or TiB, such as '4GiB'; got {value!r}"
        )
    digits, unit = match.groups(default="")
    return int(digits) * _UNITS[unit]
