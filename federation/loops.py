"""Where a record has been, and whether it may go on.

A path names the nodes a record has passed, first one first. A record that entered the log here has an empty one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from federation.errors import Malformed

Path = tuple[str, ...]

MAX_PATH: Final = 8192
"""Characters of an encoded path."""
UNKNOWN_NODE: Final = "?"
"""Stands in a path for a sender that gave no name: without it the record would look like our own."""


def encode_path(path: Path) -> str:
    """The path as text without tab, line feed or a bare comma: names percent-encoded, joined with a comma.

    An empty name becomes UNKNOWN_NODE.
    """
    return ",".join([quote(name or UNKNOWN_NODE, safe="-._~:@", errors="replace") for name in path])


def decode_path(text: str) -> Path:
    """The path `encode_path` wrote. Raises Malformed for any other text, and beyond MAX_PATH characters."""
    if len(text) > MAX_PATH:
        raise Malformed(f"a path has at most {MAX_PATH} characters")
    return _decode_path(text)


# Few paths come again and again. What is remembered is bounded in number and in size: it comes from other nodes.
@lru_cache(maxsize=1024)
def _decode_path(text: str) -> Path:
    if not text:
        return ()
    try:
        path = tuple([unquote(entry, errors="strict") for entry in text.split(",")])
    except UnicodeDecodeError:
        path = ()
    # Writing it again is the strictest reader: one path, one text.
    if encode_path(path) != text:
        raise Malformed(f"{text[:80]!r} is not a path")
    return path


def extend_path(text: str, node: str) -> str:
    """The encoded path of a record that has now also passed `node`."""
    return f"{text},{encode_path((node,))}" if text else encode_path((node,))


def may_send(path: Path, source: str, peer: str, *, relay: bool) -> str | None:
    """Why a record must not go to `peer`; None when it may.

    "not_own": it came from another node and this peer gets only our own. "in_path": it has been there, or the peer
    is its source.
    """
    if path and not relay:
        return "not_own"
    if source == peer or peer in path:
        return "in_path"
    return None


def check_inbound(path: Path, source: str, *, node: str, sender: str, max_hops: int) -> str | None:
    """Why `node` must not take a record from `sender`; None when it may.

    "own_source": it claims to be ours. "loop": it has been here, or passed its sender twice. "too_many_hops".
    """
    if source == node:
        return "own_source"
    if node in path or sender in path:
        return "loop"
    if len(path) + 1 > max_hops:
        return "too_many_hops"
    return None
