"""The request of `event prune`, and its notes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eventd.cli.federation.events import ask_prune, describe_rest
from eventd.cli.gateway.session import Session
from eventd.errors import Invalid

ANSWER = {"group": "edge", "removed": 0, "evictedSeq": 0, "bounded": True}


class _EarlierNode:
    """A session with a node that does not know the parameter `waits`."""

    async def call(self, name: str, /, **params: Any) -> dict[str, Any]:
        if "waits" in params:
            raise Invalid("waits: there is no such parameter")
        return {"asked": name, **params}


async def test_a_node_of_an_earlier_release_is_asked_without_what_it_does_not_know() -> None:
    answer = await ask_prune(cast(Session, _EarlierNode()), "edge", waits=True)
    assert answer == {"asked": "events.prune", "group": "edge"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"bounded": False}, "keeps everything"),
        ({"retentionWaits": {"peers": 3}}, "events over the limits are kept: up to 3 for peers"),
        ({"retentionWaits": {}}, "no event of group edge is over the limits of its retention"),
        ({"retentionWaits": {}, "removed": 1}, ""),
        ({}, ""),
    ],
)
def test_the_notes_are_those_of_the_answer(answer: dict[str, Any], words: str) -> None:
    notes = describe_rest(ANSWER | answer)
    assert len(notes) == bool(words)
    assert words in "".join(notes)
