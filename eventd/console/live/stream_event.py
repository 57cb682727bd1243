"""One server-sent event, plain and compressed: the compressed form is made once for all browsers that get it."""

from __future__ import annotations

import zlib
from functools import cached_property
from typing import Final

from aiohttp import hdrs, web

PACKED_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""The beginning of a stream in the coding gzip, before its first event."""
_LEVEL: Final = 1
"""The fastest: rows of a table are alike, so more effort makes them hardly smaller."""


class StreamEvent:
    """An event with a `name`; each line of the `data` becomes a line of its own. `number`: its id, empty without one.

    `plain`: as it is sent to a browser that takes no compression.
    """

    def __init__(self, name: str, data: bytes, number: str = "") -> None:
        lines = b"".join(b"data: " + line + b"\n" for line in data.split(b"\n"))
        self.plain = f"event: {name}\n".encode() + (f"id: {number}\n".encode() if number else b"") + lines + b"\n"

    @cached_property
    def packed(self) -> bytes:
        """Return the event in complete blocks of deflate that refer to nothing before them, so that they may follow any
        other event."""
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        return packer.compress(self.plain) + packer.flush(zlib.Z_SYNC_FLUSH)


def takes_packed(request: web.Request) -> bool:
    """Return whether the browser takes the coding gzip."""
    for one in request.headers.get(hdrs.ACCEPT_ENCODING, "").lower().split(","):
        coding, _, quality = one.replace(" ", "").partition(";")
        if coding == "gzip":
            return quality.partition("q=")[2].rstrip("0.") != "" if quality else True
    return False
