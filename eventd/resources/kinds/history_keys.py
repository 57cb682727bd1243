"""Declared keys of the histories of other nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from eventd.resources.kinds.fields import NodeName
from eventd.resources.kinds.spec import Finding, Spec
from federation.errors import MalformedHistory
from federation.history.notes import LOG_KEY, WITNESS_KEY, read_vkey

_OF_LOG: Final = (
    "The verifier key of one of its trees, as its `routerctl log keys` prints it; it counts for all trees of the node"
    " that are signed with the same key."
)
_OF_WITNESS: Final = "The verifier key with which it cosigns."


class PeerHistoryKeys(Spec):
    """The keys with which a peer signs its history and cosigns the histories of others."""

    log_key: str = Field(default="", description=_OF_LOG)
    witness_key: str = Field(default="", description=_OF_WITNESS)

    def faults(self, node: str) -> Iterator[Finding]:
        """Require that each is a verifier key of its type and of this node."""
        return _faults(node, self.log_key, self.witness_key)


class HistoryKeys(Spec):
    """The keys with which another node signs its history and cosigns the histories of others."""

    node: NodeName = Field(description="The node's name in the group.")
    log_key: str = Field(default="", description=_OF_LOG)
    witness_key: str = Field(default="", description=_OF_WITNESS)

    def findings(self) -> Iterator[Finding]:
        """Require at least one key, and that each is a verifier key of its type and of this node."""
        if not self.log_key and not self.witness_key:
            yield Finding(("logKey",), "is required, or else witnessKey")
        yield from _faults(self.node, self.log_key, self.witness_key)


def _faults(node: str, log_key: str, witness_key: str) -> Iterator[Finding]:
    for name, text, kind in (("logKey", log_key, LOG_KEY), ("witnessKey", witness_key, WITNESS_KEY)):
        if not text:
            continue
        try:
            named = read_vkey(text, kind).name.split("/")
        except MalformedHistory as error:
            yield Finding((name,), error.message)
            continue
        if len(named) != 4 or named[2] != node:
            yield Finding((name,), f"is not a key of {node}: its name is {'/'.join(named)}")


def public_key(text: str) -> bytes:
    """Return the public half of a verifier key that was declared."""
    kind = LOG_KEY if not text.partition("+")[0].endswith("/witness") else WITNESS_KEY
    return read_vkey(text, kind).public
