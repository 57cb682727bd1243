"""The question for a node's links and its answer: what fits, and what is not taken from a peer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federation.errors import BadAnswer, Malformed
from federation.status import (
    IN,
    MOST_LINKS,
    OUT,
    STATUS_ANSWER_BYTES,
    LinkReport,
    NodeReport,
    StatusQuestion,
    encode_status_question,
    read_status_answer,
    read_status_question,
    write_status_answer,
)
from federation.wire import StatusQuery

QUERY = StatusQuery(from_node="a", to_node="b", group="edge")


def link(peer: str, direction: Any = OUT, **fields: Any) -> LinkReport:
    return LinkReport(peer=peer, direction=direction, **({"state": "running"} if direction == OUT else {}) | fields)


def answer(**changes: Any) -> bytes:
    """The answer of b with one link to c, changed."""
    told = {"group": "edge", "from": "a", "to": "b", "links": [{"peer": "c", "direction": "out", "state": "running"}]}
    return json.dumps(told | changes).encode()


def test_an_answer_is_read_as_it_was_written() -> None:
    own = NodeReport(
        node="b",
        age_seconds=1.5,
        links=(link("a", lag_events=3, lag_seconds=2.5, events_per_second=0.0), link("a", IN, last_seconds=4.0)),
    )
    other = NodeReport(node="c", age_seconds=3.0, links=(link("b", state="blocked"),))
    body = write_status_answer(QUERY, NodeReport(node="b", links=(*own.links, link("c")), age_seconds=1.5), [other])
    found = read_status_answer(body, QUERY)
    assert found.own.age_seconds == 1.5
    assert set(found.own.links) == {*own.links, link("c")}
    assert found.others == (other,)


def test_a_question_is_read_as_it_was_written() -> None:
    for hops in (0, 1):
        assert read_status_question(encode_status_question(StatusQuestion(hops))).hops == hops
    for body in (b"", b"[]", b'{"hops":-1}', b'{"hops":1e9}', b"[" * 1000, b"\xff"):
        with pytest.raises(Malformed):
            read_status_question(body)


def test_links_with_problems_come_first_and_what_does_not_fit_is_counted() -> None:
    links = [link(f"{number:0250d}") for number in range(400)]
    links += [link("sick", state="blocked"), link("heard", IN)]
    body = write_status_answer(QUERY, NodeReport(node="b", links=tuple(links)), [])
    assert len(body) <= STATUS_ANSWER_BYTES
    found = read_status_answer(body, QUERY)
    assert found.links[0].peer == "sick"
    assert len(found.links) + found.left_out == len(links)
    many = write_status_answer(QUERY, NodeReport(node="b", links=tuple(link(f"n{n}") for n in range(300))), [])
    assert len(read_status_answer(many, QUERY).links) == MOST_LINKS


def test_reports_of_others_are_passed_on_as_far_as_they_fit() -> None:
    peers = [f"p{number}" for number in range(100)]
    own = NodeReport(node="b", links=tuple(map(link, [*peers, "a"])))
    others = [NodeReport(node=peer, links=tuple(link(f"x{n}") for n in range(100))) for peer in peers]
    asker, stranger = NodeReport(node="a"), NodeReport(node="stranger")
    body = write_status_answer(QUERY, own, [asker, stranger, *others])
    found = read_status_answer(body, QUERY)
    assert len(body) <= STATUS_ANSWER_BYTES
    assert 0 < len(found.others) < 100
    assert all(len(other.links) == 100 for other in found.others)
    assert not {other.node for other in found.others} & {"a", "stranger"}


ONE = {"peer": "c", "direction": "out", "state": "running"}
LIES: dict[str, dict[str, Any]] = {
    "another group": {"group": "other"},
    "another node": {"to": "c"},
    "to another node": {"from": "z"},
    "a link to itself": {"links": [ONE | {"peer": "b"}]},
    "a link twice": {"links": [ONE, ONE]},
    "an invalid name": {"links": [ONE | {"peer": "<script>"}]},
    "an empty name": {"links": [ONE | {"peer": ""}]},
    "a long name": {"links": [ONE | {"peer": "n" * 254}]},
    "a name with a control character": {"links": [ONE | {"peer": "c\n"}]},
    "a state that is not one": {"links": [ONE | {"state": "\u202egood"}]},
    "a state of an inbound link": {"links": [ONE | {"direction": "in"}]},
    "another direction": {"links": [ONE | {"direction": "up"}]},
    "too many links": {"links": [ONE | {"peer": f"n{n}"} for n in range(MOST_LINKS + 1)]},
    "a negative lag": {"links": [ONE | {"lagSeconds": -1}]},
    "an endless rate": {"links": [ONE | {"eventsPerSecond": 1e300}]},
    "a text as a number": {"links": [ONE | {"lagEvents": "many"}]},
    "a report of a node that is not its peer": {"others": [{"node": "d"}]},
    "a report of the asking node": {
        "links": [ONE | {"peer": "a"}],
        "others": [{"node": "a", "links": [{"peer": "b", "direction": "out", "state": "running"}]}],
    },
    "a report of itself": {"others": [{"node": "b"}]},
    "two reports of one node": {"others": [{"node": "c"}, {"node": "c"}]},
    "an old report": {"others": [{"node": "c", "ageSeconds": 121}]},
    "a foreign name in a report": {"others": [{"node": "c", "links": [ONE | {"peer": "a b"}]}]},
    "many links in a report": {"others": [{"node": "c", "links": [ONE | {"peer": f"n{n}"} for n in range(257)]}]},
    "no links": {"links": None},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_about_what_is_not_its_own_is_not_taken(lie: dict[str, Any]) -> None:
    assert read_status_answer(answer(), QUERY).links == (link("c"),)
    with pytest.raises(BadAnswer):
        read_status_answer(answer(**lie), QUERY)


@pytest.mark.parametrize("body", [b"", b"{}", b"[" * 30_000, b"\xff", b"null", b" " * (STATUS_ANSWER_BYTES + 1)])
def test_what_is_no_answer_is_not_taken(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_status_answer(body, QUERY)


def test_members_that_are_not_known_are_ignored() -> None:
    assert read_status_answer(answer(more=[1], links=[ONE | {"endpoint": "http://x"}]), QUERY).links == (link("c"),)
