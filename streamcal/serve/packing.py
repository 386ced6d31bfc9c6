"""gzip for answers: fast, and with a head that is kept while what follows it changes.

cramjam's deflate at its fastest level takes half the time of zlib's and leaves less (measured on a scrape of 35,000
series, 5 MB: 5.6 ms and 476 kB for 11.3 ms and 507 kB); it is what kafka-python reads snappy with. Both work without
the interpreter lock.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

import cramjam

__all__ = ["PackedHead", "packed"]

_FAST: Final = 1
_RAW: Final = -15  # zlib's window bits for deflate without head and trailer
_HEAD: Final = b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"  # RFC 1952: deflate, no name, no time, fastest, system not said


@dataclass(frozen=True, slots=True)
class PackedHead:
    """Deflated text that ends on a byte and is not the last (RFC 1951, a sync flush), with its checksum and size."""

    deflated: bytes
    checksum: int
    size: int

    @classmethod
    def of(cls, text: bytes) -> PackedHead:
        """Deflate `text`."""
        packer = cramjam.deflate.Compressor(_FAST)
        packer.compress(text)
        return cls(bytes(packer.flush()), zlib.crc32(text), len(text))

    def member(self, tail: bytes) -> bytes:
        """The text and `tail` as one gzip member.

        >>> import gzip
        >>> gzip.decompress(PackedHead.of(b"kept, ").member(b"and new"))
        b'kept, and new'
        """
        packer = zlib.compressobj(_FAST, zlib.DEFLATED, _RAW)
        last = packer.compress(tail) + packer.flush()
        size = (self.size + len(tail)) % 2**32
        return b"".join((_HEAD, self.deflated, last, struct.pack("<II", zlib.crc32(tail, self.checksum), size)))


def packed(text: bytes) -> bytes:
    """`text` as one gzip member."""
    return PackedHead.of(text).member(b"")
