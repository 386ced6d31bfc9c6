"""Lines of a file, plain or gzip, with clear errors for what cannot be read."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from streamcal.errors import InputFileError

__all__ = ["count_lines", "file_sha256", "read_line_blocks"]

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20


def read_line_blocks(path: Path, size: int) -> Iterator[list[bytes]]:
    """Lines of `path` without their ends, in blocks of at most `size`.

    Raises
    ------
    InputFileError
        The file cannot be opened, or ends before its gzip stream does.
    """
    block: list[bytes] = []
    with _clear_errors(path), _open(path) as stream:
        for line in stream:
            block.append(line.rstrip(b"\r\n"))
            if len(block) == size:
                yield block
                block = []
    if block:
        yield block


def count_lines(path: Path) -> int:
    """Lines of `path`; reads it to its end, so a damaged one is found before any work is done.

    Raises
    ------
    InputFileError
        As `read_line_blocks`.
    """
    lines, last = 0, b"\n"
    with _clear_errors(path), _open(path) as stream:
        while chunk := stream.read(_CHUNK):
            lines += chunk.count(b"\n")
            last = chunk
    return lines + (not last.endswith(b"\n"))


def file_sha256(path: Path) -> str:
    """Hash of the file as it lies on disk.

    Raises
    ------
    InputFileError
        The file cannot be read.
    """
    with _clear_errors(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        what = f"the gzip data is cut off or damaged ({error})"
        raise InputFileError(what, where=str(path), hint="copy the file again; nothing was written") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputFileError(reason, where=str(path), hint="check the path and its permissions") from error


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as probe:
        zipped = probe.read(2) == _GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path, "rb")) if zipped else path.open("rb")
