"""The rare branches that a simulation counts: each is one that nodes have."""

from __future__ import annotations

from collections import Counter

import pytest

from eventd.observe.metrics import Metrics
from eventd.simulation.checks.branches import RARE, count_branches
from eventd.simulation.checks.calls import CALLS
from eventd.simulation.load.follows import FOLLOW
from eventd.simulation.load.sockets import SOCKET
from eventd.simulation.load.watches import WATCH
from eventd.simulation.world.event_stream import SentEvent
from eventd.simulation.world.journal import Asked, Journal
from eventd.simulation.world.web_socket import SocketMessage
from tests.support.source import ROOT


@pytest.mark.parametrize("branch", RARE)
def test_what_is_counted_for_a_branch_exists(branch: str) -> None:
    """A metric or an operation that was renamed would count nothing any more."""
    families = {family.name.removeprefix("routerd_eventd_") for family in Metrics().registry.collect()}
    for counted in RARE[branch]:
        what, _, name = counted.partition(" ")
        if what == "call":
            assert callable(getattr(CALLS[name].owner, CALLS[name].name))
        elif what in ("journal", "disk", "session"):
            continue  # of the simulation itself
        elif what == "operation":
            source = (file.read_text() for file in (ROOT / "eventd" / "log").rglob("*.py"))
            assert any(f"def {name}(" in text for text in source)
        else:
            assert what in families


def test_the_page_explains_each_branch() -> None:
    page = (ROOT / "docs/operations/simulation.md").read_text()
    assert [branch for branch in RARE if f"`{branch}`" not in page] == []


def test_what_clients_were_answered_shows_branches() -> None:
    tombstone = {"reason": "recreated"}
    sent = [SentEvent(1.0, "tombstone", "", tombstone), SentEvent(1.0, "tombstone", "", {"reason": "cap"})]
    asked = [
        Asked("write", "a", 1.0, 1.1, 200, None, {"deduped": True}),
        Asked("write", "a", 1.0, 1.1, 200, None, {"deduped": False}),
        Asked("write", "a", 1.0, 1.1, 0, None, None),
        Asked("claim", "a", 1.0, 1.1, 200, None, {"claimed": [{"deliveries": 1}, {"deliveries": 2}]}),
        Asked(FOLLOW, "a", 1.0, 1.1, 200, None, {"tombstone": tombstone}),
        Asked(FOLLOW, "a", 1.0, 1.1, 200, None, {"tombstone": None}),
        Asked(SOCKET, "a", 1.0, 1.1, 200, None, [SocketMessage(1.0, {"op": "tombstone"} | tombstone)]),
        Asked(WATCH, "a", 1.0, 1.1, 200, None, ("", sent)),
        Asked(WATCH, "a", 1.0, 1.1, 404, None, ("", [])),
    ]
    found = count_branches([], Journal(asked), Counter())
    taken = {"key repeated": 1, "lease taken over": 1, "session unknown": 1, "reader of another epoch": 3}
    assert {name: count for name, count in found.items() if count} == taken
