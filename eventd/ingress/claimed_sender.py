"""Who a refused request says that it is from: in our own words, or anybody could write into the books."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import msgspec

from eventd.errors import EventdError
from federation.keys import KeyRing
from federation.peers import FROM_HEADER
from federation.signing import Head

STRANGER: Final = "?"
MOST_SHOWN: Final = 253
"""Characters of a name that are logged: what a node's may have."""
_KEY_ID: Final = re.compile(r';keyid="([^"\\]{1,200})"')


class Claim(NamedTuple):
    """`peer` is a peer's node, `?` for anybody else, blank where nobody was named; `key_id` is blank unless known."""

    peer: str = ""
    key_id: str = ""


NOBODY: Final = Claim()


class Sender(NamedTuple):
    """Where a request came from, and what it says of itself, for the log: nothing of it but `address` is proven."""

    address: str = ""
    node: str = ""
    key_id: str = ""

    def show(self) -> dict[str, str]:
        """What there is of it, fit for a log."""
        shown = {"address": self.address, "claimed_node": self.node, "key_id": self.key_id}
        return {name: _plain(text) for name, text in shown.items() if text}


def sender_in(head: Head, address: str) -> Sender:
    """What the head of a request says of its sender."""
    headers = _headers(head)
    named = _KEY_ID.search(headers.get("signature-input", ""))
    return Sender(address, headers.get(FROM_HEADER.lower(), ""), named.group(1) if named else "")


def sender_of_v1(body: bytes | None, address: str) -> Sender:
    """The same of v1, whose head names nobody: only the event's source is claimed."""
    try:
        event = msgspec.json.decode(body or b"", type=_Sourced)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Sender(address)
    return Sender(address, event.source)


class _Sourced(msgspec.Struct):
    source: str = msgspec.field(default="", name="sourceNode")


def _plain(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:MOST_SHOWN])


def claim_of(node: str, key_id: str, peers: Collection[str]) -> Claim:
    """The claim to be this node, with a key that is known; blank: with none that is."""
    return Claim(node if node in peers or not node else STRANGER, key_id)


def claim_in(head: Head, peers: Collection[str], ring: Callable[[], KeyRing]) -> Claim:
    """The claim in the head of a request, of which nothing has been proven.

    `ring` may raise an `EventdError`: then no key is known.
    """
    headers = _headers(head)
    named = _KEY_ID.search(headers.get("signature-input", ""))
    try:
        key = ring().find(named.group(1) if named else "")
    except EventdError:
        key = None
    return claim_of(headers.get(FROM_HEADER.lower(), ""), "" if key is None else key.id, peers)


def _headers(head: Head) -> dict[str, str]:
    pairs = head.headers.items() if hasattr(head.headers, "items") else head.headers
    return {name.lower(): value for name, value in pairs}
