"""Opens a trace, however it comes: a file or standard input, as it is or compressed by gzip."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import sys
import zlib
from collections.abc import Iterator
from typing import cast

STDIN = "-"
"""The path that stands for standard input."""

_GZIP_MAGIC = b"\x1f\x8b"
_LONGEST_LINE = 1 << 28


class TraceError(ValueError):
    """A trace that cannot be used; its text is ``FILE: reason`` or ``FILE:LINE: reason``."""


def source_name(path: str | os.PathLike[str]) -> str:
    """Return what messages call the trace at ``path``."""
    name = os.fspath(path)
    return "<stdin>" if name == STDIN else name


def read_lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines that are not blank, each behind its ``FILE:LINE``.

    Args:
        path: Of a file, or ``STDIN``. Text in UTF-8, compressed where it begins as gzip does.

    Raises:
        TraceError: A line is not text in UTF-8, or cannot be read or decompressed.
        OSError: The file cannot be opened.
    """
    with _open(path) as file:
        lines = _lines(file)
        for number in itertools.count(1):
            where = f"{source_name(path)}:{number}"
            try:
                line = next(lines, None)
            except ValueError as error:
                raise TraceError(f"{where}: {error}") from None
            if line is None:
                return
            if line and not line.isspace():
                yield where, line


@contextlib.contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    if os.fspath(path) != STDIN:
        with open(path, "rb") as file:
            yield file
    elif sys.stdin is None:
        raise TraceError(f"{source_name(path)}: standard input is closed")
    else:
        yield cast(io.BufferedReader, sys.stdin.buffer)


def _lines(file: io.BufferedReader) -> Iterator[str]:
    try:
        compressed = file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
        stream = gzip.GzipFile(fileobj=file) if compressed else file
        while line := stream.readline(_LONGEST_LINE + 1):
            yield _decode(line)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"cannot be read: {error}") from None


def _decode(line: bytes) -> str:
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"the line is longer than {_LONGEST_LINE} bytes")
    # UTF-8 may have them, but JSON may not.
    if b"\0" in line:
        raise ValueError("not UTF-8 text: it has NUL bytes, as UTF-16 and binary files do")
    try:
        # Where files are joined, a byte order mark may begin any line.
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"not UTF-8 text: byte 0x{line[error.start]:02x} at column {error.start + 1}"
        ) from None
