"""Who a refused request says that it is from: in our own words, or anybody could write into the books."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from eventd.errors import EventdError
from federation.keys import KeyRing
from federation.peers import FROM_HEADER
from federation.signing import Head

STRANGER: Final = "?"
_KEY_ID: Final = re.compile(r';keyid="([^"\\]{1,200})"')


class Claim(NamedTuple):
    """`peer` is a peer's node, `?` for anybody else, blank where nobody was named; `key_id` is blank unless known."""

    peer: str = ""
    key_id: str = ""


NOBODY: Final = Claim()


def claim_of(node: str, key_id: str, peers: Collection[str]) -> Claim:
    """The claim to be this node, with a key that is known; blank: with none that is."""
    return Claim(node if node in peers or not node else STRANGER, key_id)


def claim_in(head: Head, peers: Collection[str], ring: Callable[[], KeyRing]) -> Claim:
    """The claim in the head of a request, of which nothing has been proven.

    `ring` may raise an `EventdError`: then no key is known.
    """
    pairs = head.headers.items() if hasattr(head.headers, "items") else head.headers
    headers = {name.lower(): value for name, value in pairs}
    named = _KEY_ID.search(headers.get("signature-input", ""))
    try:
        key = ring().find(named.group(1) if named else "")
    except EventdError:
        key = None
    return claim_of(headers.get(FROM_HEADER.lower(), ""), "" if key is None else key.id, peers)
