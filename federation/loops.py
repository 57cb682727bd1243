"""The path of a record, and whether the record may be forwarded.

A path names the nodes a record has passed, the first one first. It is empty for a record that no other node delivered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from federation.errors import Malformed

Path = tuple[str, ...]

MAX_PATH: Final = 8192
"""Maximum length of an encoded path, in characters."""
UNKNOWN_NODE: Final = "?"
"""Stands in a path for a sender without a name: without it the record would count as this node's own."""


def encode_path(path: Path) -> str:
    """Return a path as text that has no tab or line feed: its names percent-encoded, joined with commas.

    An empty name becomes UNKNOWN_NODE.
    """
    return ",".join([quote(name or UNKNOWN_NODE, safe="-._~:@", errors="replace") for name in path])


def decode_path(text: str) -> Path:
    """Decode a path from `encode_path`. Raises Malformed for any other text, and beyond MAX_PATH characters."""
    if len(text) > MAX_PATH:
        raise Malformed(f"a path has at most {MAX_PATH} characters")
    return _decode_path(text)


# The same few paths recur. The cache is bounded in number and size, because paths come from other nodes.
@lru_cache(maxsize=1024)
def _decode_path(text: str) -> Path:
    if not text:
        return ()
    try:
        path = tuple([unquote(entry, errors="strict") for entry in text.split(",")])
    except UnicodeDecodeError:
        path = ()
    # Encoding it again is the strictest check: each path has one text.
    if encode_path(path) != text:
        raise Malformed(f"{text[:80]!r} is not a path")
    return path


def extend_path(text: str, node: str) -> str:
    """Return the encoded path of a record that has now also passed `node`."""
    return f"{text},{encode_path((node,))}" if text else encode_path((node,))


def may_send(path: Path, source: str, peer: str, *, relay: bool) -> str | None:
    """Return why a record must not be sent to `peer`; None if it may.

    "not_own": it came from another node, and without `relay` a peer gets only own records. "in_path": it has passed the
    peer, or the peer is its source.
    """
    if path and not relay:
        return "not_own"
    if source == peer or peer in path:
        return "in_path"
    return None


def check_inbound(path: Path, source: str, *, node: str, sender: str, max_hops: int) -> str | None:
    """Return why `node` must not accept a record from `sender`; None if it may.

    "own_source": it claims to come from `node` itself. "loop": it has passed `node`, or its sender twice.
    "too_many_hops": with this hop from `sender`, it has passed more than `max_hops` nodes.
    """
    if source == node:
        return "own_source"
    if node in path or sender in path:
        return "loop"
    if len(path) + 1 > max_hops:
        return "too_many_hops"
    return None
