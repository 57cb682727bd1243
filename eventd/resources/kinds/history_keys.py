"""Declared keys of the histories of other nodes."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from eventd.resources.kinds.fields import NodeName
from eventd.resources.kinds.spec import Finding, Spec
from federation.errors import MalformedHistory
from federation.history.notes import LOG_KEY, WITNESS_KEY, read_vkey


class HistoryKeys(Spec):
    """The keys with which another node signs its history and cosigns the histories of others."""

    node: NodeName = Field(description="The node's name in the group.")
    log_key: str = Field(
        default="",
        description="The verifier key of one of its trees, as its `routerctl log keys` prints it; it counts for all"
        " trees of the node that are signed with the same key.",
    )
    witness_key: str = Field(default="", description="The verifier key with which it cosigns.")

    def findings(self) -> Iterator[Finding]:
        """Require at least one key, and that each is a verifier key of its type and of this node."""
        if not self.log_key and not self.witness_key:
            yield Finding(("logKey",), "is required, or else witnessKey")
        for name, text, kind in (("logKey", self.log_key, LOG_KEY), ("witnessKey", self.witness_key, WITNESS_KEY)):
            if not text:
                continue
            try:
                named = read_vkey(text, kind).name.split("/")
            except MalformedHistory as error:
                yield Finding((name,), error.message)
                continue
            if len(named) != 4 or named[2] != self.node:
                yield Finding((name,), f"is not a key of {self.node}: its name is {'/'.join(named)}")


def public_key(text: str) -> bytes:
    """Return the public half of a verifier key that was declared."""
    kind = LOG_KEY if not text.partition("+")[0].endswith("/witness") else WITNESS_KEY
    return read_vkey(text, kind).public
