"""The sender that a refused request names: for the log as the request claims it, for the refusal ledger reduced to
known names.

A stranger must not fill that ledger with invented names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import msgspec

from eventd.errors import EventdError
from federation.keys import KeyRing
from federation.peers import FROM_HEADER
from federation.signing import Head

UNDECLARED: Final = "?"
MOST_SHOWN: Final = 253
"""Maximum characters of a name that are logged: the limit for a node's name."""
_KEY_ID: Final = re.compile(r';keyid="([^"\\]{1,200})"')


class ClaimedSender(NamedTuple):
    """The sender that a request names, reduced to known names.

    It is not proven that the request is really from this sender. `peer` is a declared peer's node, `?` for any other
    name, empty if the request names none; `key_id` is empty unless it is the id of a known key.
    """

    peer: str = ""
    key_id: str = ""


NO_SENDER: Final = ClaimedSender()


class Sender(NamedTuple):
    """The origin of a request, for the log. Only `address` is certain; the other fields are what the request claims."""

    address: str = ""
    node: str = ""
    key_id: str = ""

    def show(self) -> dict[str, str]:
        """Return the fields that are not empty as log fields, shortened and printable."""
        shown = {"address": self.address, "claimed_node": self.node, "key_id": self.key_id}
        return {name: _plain(text) for name, text in shown.items() if text}


def sender_in(head: Head, address: str) -> Sender:
    """Return what the head of a v2 request claims about its sender."""
    headers = _headers(head)
    named = _KEY_ID.search(headers.get("signature-input", ""))
    return Sender(address, headers.get(FROM_HEADER.lower(), ""), named.group(1) if named else "")


def sender_of_v1(body: bytes | None, address: str) -> Sender:
    """Return the address with the source of the event in a v1 body: v1 names no other sender.

    An unreadable body gives the address alone.
    """
    try:
        event = msgspec.json.decode(body or b"", type=_SourceOnly)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Sender(address)
    return Sender(address, event.source)


class _SourceOnly(msgspec.Struct):
    source: str = msgspec.field(default="", name="sourceNode")


def _plain(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:MOST_SHOWN])


def claimed_sender(node: str, key_id: str, peers: Collection[str]) -> ClaimedSender:
    """Return the node, or `?` if it is not empty and not in `peers`, with the key id.

    `key_id` is taken as it is: the caller passes the id of a known key, or an empty text.
    """
    return ClaimedSender(node if node in peers or not node else UNDECLARED, key_id)


def claimed_sender_in(head: Head, peers: Collection[str], ring: Callable[[], KeyRing]) -> ClaimedSender:
    """Return the sender that the head of a v2 request names, reduced to known names; nothing of it is proven.

    `ring` may raise an `EventdError`; then no key counts as known.
    """
    headers = _headers(head)
    named = _KEY_ID.search(headers.get("signature-input", ""))
    try:
        key = ring().find(named.group(1) if named else "")
    except EventdError:
        key = None
    return claimed_sender(headers.get(FROM_HEADER.lower(), ""), "" if key is None else key.id, peers)


def _headers(head: Head) -> dict[str, str]:
    pairs = head.headers.items() if hasattr(head.headers, "items") else head.headers
    return {name.lower(): value for name, value in pairs}
