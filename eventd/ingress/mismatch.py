"""The comparison of a connection's certificate with the node that a request names."""

from __future__ import annotations

from collections.abc import Callable

Mismatch = Callable[[str], str]
"""A function that compares the client certificate of a connection with a node's name. It returns an empty text if the
certificate names that node, or if the group demands no certificates, and otherwise the names in the certificate."""


def any_node(_node: str) -> str:
    """Return an empty text, for a group in which the connection's certificate does not matter."""
    return ""
