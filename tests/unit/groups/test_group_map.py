"""The map of a group: whose report counts, and where two ends contradict each other."""

from __future__ import annotations

from typing import Any

from eventd.groups.group_map import (
    ANSWERED,
    MOST_MAP_LINKS,
    RELAYED,
    SELF,
    UNASKED,
    GroupMap,
    GroupView,
    PeerReport,
    in_order,
    make_map,
)
from federation.status import IN, OUT, LinkReport, NodeReport


def out(peer: str, **fields: Any) -> LinkReport:
    return LinkReport(peer=peer, direction=OUT, **({"state": "running"} | fields))


def inn(peer: str, **fields: Any) -> LinkReport:
    return LinkReport(peer=peer, direction=IN, **fields)


def node(name: str, *links: LinkReport, **fields: Any) -> NodeReport:
    return NodeReport(node=name, links=links, **fields)


def peer(report: NodeReport, *others: NodeReport, age: float = 1.0) -> PeerReport:
    return PeerReport(node=report.node, answer=ANSWERED, age_seconds=age, report=report, others=others)


def mapped(own: NodeReport, *peers: PeerReport) -> GroupMap:
    return make_map(GroupView(own=own, peers=peers))


def findings(own: NodeReport, *peers: PeerReport) -> list[str]:
    return [words for link in mapped(own, *peers).links.values() for words in link.findings]


def test_both_ends_of_a_link_meet() -> None:
    found = mapped(node("a", out("b", lag_events=2), inn("b", last_seconds=5)), peer(node("b", out("a"), inn("a"))))
    link = found.links["a", "b"]
    assert link.sender is not None
    assert link.receiver is not None
    assert (link.sender.link.lag_events, link.receiver.age) == (2, 1.0)
    back = found.links["b", "a"].receiver
    assert back is not None
    assert back.silent_seconds == 5
    assert {name: each.answer for name, each in found.nodes.items()} == {"a": SELF, "b": ANSWERED}


def test_a_running_link_with_nothing_received_is_a_finding() -> None:
    busy = out("b", events_per_second=3.0)
    stuck = out("b", lag_events=5, lag_seconds=660.0)
    for sender in (busy, stuck):
        [words] = findings(node("a", sender), peer(node("b", inn("a", last_seconds=660.0))))
        assert words == "running at a, and nothing received at b for 11 min"
        assert findings(node("a", sender), peer(node("b", inn("a", last_seconds=5.0)))) == []


def test_silence_before_the_link_ran_again_or_sent_again_is_no_finding() -> None:
    before = peer(node("b", inn("a", last_seconds=130.0)), age=8.0)
    returned = {"events_per_second": 0.5, "last_seconds": 1.0}
    waiting = {"lag_events": 9, "lag_seconds": 125.0}
    for figures in (returned, waiting, returned | waiting):
        assert findings(node("a", out("b", state_seconds=5.0, **figures)), before) == []
    assert findings(node("a", out("b", state_seconds=900.0, **returned)), before) == [], "a burst after a long rest"
    assert findings(node("a", out("b", state_seconds=900.0, **waiting)), before)
    assert findings(node("a", out("b", state_seconds=900.0, **returned | {"last_seconds": 9.0})), before)


def test_a_link_with_nothing_to_send_and_one_that_is_known_to_be_held_up_are_no_finding() -> None:
    silent = peer(node("b", inn("a", last_seconds=660.0)))
    assert findings(node("a", out("b", events_per_second=0.0)), silent) == []
    assert findings(node("a", out("b", state="blocked", lag_events=5, lag_seconds=660.0)), silent) == []
    assert findings(node("a", out("b", lag_events=5, lag_seconds=3.0)), silent) == []


def test_a_sender_that_is_unknown_at_the_receiver_is_a_finding_unless_links_were_left_out() -> None:
    busy = node("a", out("b", events_per_second=3.0))
    assert findings(busy, peer(node("b"))) == ["running at a, and unknown at b"]
    assert findings(busy, peer(node("b", left_out=1))) == []
    assert findings(node("a", out("b", events_per_second=0.0)), peer(node("b"))) == []


def test_events_of_a_node_without_a_link_are_a_finding_whose_words_do_not_depend_on_the_age_of_a_report() -> None:
    sent = inn("a", events_per_second=3.0, last_seconds=0.1)
    assert findings(node("a", out("b", state="paused")), peer(node("b", sent))) == []
    for age in (0.1, 14.0, 16.0, 29.0):
        words = findings(node("a"), peer(node("b", sent), age=age))
        assert words == ["b received events in the last 2 min, and a has no link to it"]


def test_a_link_that_was_deleted_at_one_end_stays_a_finding_while_the_other_end_sends() -> None:
    long_ago = inn("a", events_per_second=0.0, last_seconds=86_400.0)
    [words] = findings(node("a", inn("b")), peer(node("b", out("a"), long_ago)))
    assert words == "a has no link to b any more, though b has one to a"
    seen_by_a_third = peer(node("b", out("a"), long_ago)), peer(node("a", inn("b")))
    assert findings(node("c"), *seen_by_a_third) == [words]
    assert findings(node("a", inn("b")), peer(node("b", long_ago))) == [], "both ends have ended it"
    assert findings(node("a", inn("b")), peer(node("b", out("a")))) == [], "b never had anything of a"


def test_a_node_that_answers_no_more_is_known_by_newer_reports_that_others_pass_on() -> None:
    """It deleted its link, and with it its peer: it refuses the questions of this node."""
    last = PeerReport(
        node="b", answer="unreachable", age_seconds=200.0, report=node("b", out("a", events_per_second=1.0), inn("a"))
    )
    own = node("a", out("b"), inn("b", events_per_second=0.0, last_seconds=190.0))
    for age in (5.0, 40.0):
        third = peer(node("c", out("b")), node("b", inn("a"), age_seconds=age))
        assert findings(own, last, third) == ["b has no link to a any more, though a has one to b"]
    assert findings(own, last, peer(node("c", out("b")), node("b", inn("a"), age_seconds=61.0))) == []


def test_old_reports_are_not_compared() -> None:
    busy = node("a", out("b", events_per_second=3.0))
    assert findings(busy, peer(node("b", inn("a", last_seconds=660.0)), age=31.0)) == []
    assert findings(busy, peer(node("b", inn("a", last_seconds=660.0), age_seconds=20.0), age=11.0)) == []


def test_an_own_answer_counts_before_one_that_was_passed_on() -> None:
    lie = node("c", out("b", state="blocked"))
    found = mapped(node("a"), peer(node("b", out("c")), lie), peer(node("c", out("b"))))
    link = found.links["c", "b"]
    assert link.sender is not None
    assert (link.sender.link.state, link.sender.via) == ("running", "")


def test_the_newest_of_several_reports_that_were_passed_on_counts() -> None:
    old, new = node("d", out("b", state="failed"), age_seconds=9.0), node("d", out("b"), age_seconds=2.0)
    found = mapped(node("a"), peer(node("b", out("d")), old), peer(node("c", out("d")), new))
    assert (found.nodes["d"].answer, found.nodes["d"].via, found.nodes["d"].age) == (RELAYED, "c", 3.0)
    link = found.links["d", "b"]
    assert link.sender is not None
    assert (link.sender.link.state, link.sender.via, link.sender.age) == ("running", "c", 3.0)


def test_nothing_that_is_passed_on_about_this_node_counts() -> None:
    found = mapped(node("a", out("b")), peer(node("b", out("c")), node("a", out("b", state="failed"))))
    link = found.links["a", "b"]
    assert link.sender is not None
    assert link.sender.link.state == "running"


def test_a_peer_that_is_down_is_shown_by_what_others_pass_on() -> None:
    down = PeerReport(node="c", answer="unreachable")
    found = mapped(node("a", out("c", state="backing-off")), peer(node("b", out("c")), node("c", inn("a"))), down)
    assert (found.nodes["c"].answer, found.nodes["c"].via) == ("unreachable", "b")
    assert found.links["a", "c"].receiver is not None


def test_a_node_that_is_only_the_end_of_a_link_is_there_without_a_report() -> None:
    found = mapped(node("a", inn("stranger")))
    assert (found.nodes["stranger"].answer, found.nodes["stranger"].age) == (UNASKED, None)


def test_a_map_is_bounded_and_counts_what_it_leaves_out() -> None:
    liars = [peer(node(f"p{n}", *(out(f"x{n}-{m}") for m in range(250)))) for n in range(20)]
    found = mapped(node("a", *(out(f"p{n}") for n in range(20)), left_out=3), *liars)
    assert len(found.links) == MOST_MAP_LINKS
    assert len(found.links) + found.left_out == 20 + 20 * 250 + 3
    assert ("a", "p19") in found.links, "the own links come first"


def test_links_with_a_finding_come_first_then_those_that_do_not_run() -> None:
    found = mapped(
        node("a", out("b"), out("c", state="blocked"), out("d", events_per_second=1.0)),
        peer(node("d", inn("a", last_seconds=200.0))),
    )
    assert [link.target for link in in_order(found.links.values())] == ["d", "c", "b"]
