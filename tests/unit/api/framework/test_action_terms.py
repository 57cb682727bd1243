"""What the record of actions shows of a request."""

from __future__ import annotations

import json

import pytest

from eventd.api.admin.deliveries.dead_letters import ChooseDeadLetters
from eventd.api.admin.deliveries.links import Pause
from eventd.api.admin.keys import CreateKey
from eventd.api.admin.resources.resources import Apply, Source
from eventd.api.admin.routemaster import SignRequests
from eventd.api.framework.action_terms import MOST_ARGUMENTS, arguments_of, object_of
from eventd.api.routes import OPERATIONS


@pytest.mark.parametrize(
    ("operation", "path", "named"),
    [
        ("links.pause", {"group": "core", "peer": "site-b"}, "peer core/site-b"),
        ("dead_letters.drop", {"group": "core"}, "group core"),
        ("keys.revoke", {"name": "ci"}, "key ci"),
        ("resources.delete", {"kind": "EventPeer", "name": "b"}, "EventPeer b"),
        ("callback_letters.retry", {"callback": "shop"}, "callback shop"),
        ("routemaster.claim", {"name": "orders"}, "routemaster topic orders"),
        ("history.reset", {"group": "edge", "node": "a"}, "witness edge/a"),
        ("doctor.fix", {}, ""),
    ],
)
def test_an_object_is_the_noun_and_the_name_of_the_path(operation: str, path: dict[str, str], named: str) -> None:
    assert object_of(OPERATIONS[operation], path) == named


def test_an_object_that_the_path_does_not_name_is_that_of_the_body() -> None:
    assert object_of(OPERATIONS["keys.create"], {}, CreateKey(name="ci")) == "key ci"


def test_files_are_named_and_their_text_is_left_out() -> None:
    text = arguments_of(
        OPERATIONS["resources.apply"], Apply(sources=[Source(name="a.yaml", text="secret")], prune=True)
    )
    assert json.loads(text) == {"sources": ["a.yaml"], "prune": True}


def test_a_field_that_may_hold_a_secret_is_left_out() -> None:
    route = OPERATIONS["routemaster.sign"]
    assert arguments_of(route, SignRequests(client="c", keys=["k1=/etc/secret"])) == "{}"


def test_long_values_and_lists_are_shortened() -> None:
    drop = ChooseDeadLetters(group="core", ids=list(range(10_000)))
    shown = json.loads(arguments_of(OPERATIONS["dead_letters.drop"], drop))
    assert shown == {"ids": [*range(8), "… 10,000 in all"]}
    pause = Pause(group="core", peer="site-b", by="p" * 200)
    assert len(json.loads(arguments_of(OPERATIONS["links.pause"], pause))["by"]) == 100
    key = CreateKey(name="n" * 90, scopes=["read" * 30] * 8, prefixes=["é" * 99] * 8)
    assert len(arguments_of(OPERATIONS["keys.create"], key)) <= MOST_ARGUMENTS
