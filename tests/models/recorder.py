"""Records the trace of a link between two nodes of this process, for `traces.check_link_trace`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from eventd.egress.loop import consumer
from eventd.egress.peers import peer as peers
from eventd.ingress.batch import StoreBatch
from eventd.ingress.peers import PeerIngress
from eventd.log.core import units
from tests.models.explorer import Label
from tests.models.traces import write_trace


class LinkRecorder:
    """Notes what the nodes `sender` and `receiver` do for one link, in the order in which they do it.

    Emits, starts, backups and restores are noted by the test, with `note`.
    """

    def __init__(self, patch: pytest.MonkeyPatch, sender: str, receiver: str, group: str = "edge") -> None:
        self.labels: list[Label] = []
        self._sender = sender
        self._under_way = Counter[tuple[int, int]]()
        self._cursor = f"peer:{group}/{receiver}"
        self._wrap_sender(patch, receiver)
        self._wrap_receiver(patch)

    def note(self, name: str, *arguments: int) -> None:
        """Add a step."""
        self.labels.append((name, *arguments))

    @property
    def text(self) -> str:
        """Return the trace."""
        return write_trace(self.labels)

    def _wrap_sender(self, patch: pytest.MonkeyPatch, receiver: str) -> None:
        def compared(inner: Callable[..., Any], node: str, *rest: Any) -> Any:
            found = inner(node, *rest)
            if node == receiver:
                self.note("open")
            return found

        def delivers(inner: Callable[..., Any], sink: Any, outbound: Any) -> Any:
            if outbound.goes and sink._peer.node_name == receiver:
                self.note("send", outbound.after, outbound.upto)
                self._under_way[outbound.after, outbound.upto] += 1
            return inner(sink, outbound)

        def rewinds(inner: Callable[..., Any], conn: Any, name: str, **about: Any) -> Any:
            found = inner(conn, name, **about)
            if name == self._cursor:
                self.note("rewind", about["to"])
            return found

        def settles(inner: Callable[..., Any], conn: Any, step: Any) -> Any:
            found = inner(conn, step)
            if step.name == self._cursor and step.upto > step.position:
                self.note("settle" if step.batches else "pass", step.upto)
            return found

        replace_function(patch, peers, "compare_mark", compared)
        replace_function(patch, peers.PeerSink, "deliver", delivers)
        replace_function(patch, consumer, "rewind", rewinds)
        replace_function(patch, units, "apply_step", settles)

    def _wrap_receiver(self, patch: pytest.MonkeyPatch) -> None:
        async def links(inner: Callable[..., Any], ingress: Any, header: Any, *rest: Any) -> Any:
            found = await inner(ingress, header, *rest)
            if header.from_node == self._sender:
                self.note("ask")
            return found

        def finishes(inner: Callable[..., Any], unit: Any, tx: Any, appended: Any) -> Any:
            found = inner(unit, tx, appended)
            header = unit._batch.header
            covers = header.range.after, header.range.upto
            # A batch that was stored before arrives again where it was sent again, or where one request arrives twice.
            if header.from_node == self._sender and (not found.repeated or self._under_way[covers] > 0):
                self.note("store", *covers)
                self._under_way[covers] -= 1
            return found

        replace_function(patch, PeerIngress, "_link", links)
        replace_function(patch, StoreBatch, "finish", finishes)


def replace_function(patch: pytest.MonkeyPatch, owner: Any, name: str, outer: Callable[..., Any]) -> None:
    """Replace a function by `outer`, which gets the function itself before the arguments."""
    inner = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kwargs: outer(inner, *args, **kwargs))
