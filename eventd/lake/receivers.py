"""The names of the receivers of a node's events (peers and callbacks), as they stand in the column `peer` of the
ledgers.

A peer has its nodeName. A callback has the name `NODE/callback:NAME`: a nodeName contains no slash, so no peer has such
a name, and two nodes may each declare a callback of the same name.
"""

from __future__ import annotations

from typing import Final

_MARK: Final = "/callback:"


def receiver_of_callback(node: str, callback: str) -> str:
    """Return the name that a callback of a node has in the node's ledgers."""
    return f"{node}{_MARK}{callback}"


def is_callback(receiver: str) -> bool:
    """Return whether a receiver is a callback of a node, which keeps no ledger, and not a peer."""
    return _MARK in receiver
