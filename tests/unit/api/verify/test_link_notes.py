"""What a comparison with a peer says about the link itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eventd.api.verify.links import show_link
from federation.compare import Mark, ReportedGap, State
from federation.event import from_micros
from federation.selector import Selector

GAP = ReportedGap(epoch="e", after=1, upto=2, reason="lost", recorded_at=from_micros(0))


@pytest.mark.parametrize(
    ("gaps", "told"),
    [
        (1, "hub has 1 gap in this epoch of the log: there, routerctl federation gaps shows it"),
        (2, "hub has 2 gaps in this epoch of the log: there, routerctl federation gaps shows them"),
    ],
)
def test_gaps_of_this_epoch_are_noted(gaps: int, told: str) -> None:
    mark = Mark(epoch="e", incarnation=1, base=0, upto=2)
    scope: Any = SimpleNamespace(
        cursor=SimpleNamespace(position=2, sent_upto=2, sent_epoch="e"),
        head=SimpleNamespace(epoch="e", last=2),
        peer=SimpleNamespace(node_name="hub", selector=Selector()),
        removed_by_peer=0,
        state=State(history="h", upto=2, mark=mark, gaps=(GAP,) * gaps),
    )
    assert show_link(scope)["notes"] == [told]
