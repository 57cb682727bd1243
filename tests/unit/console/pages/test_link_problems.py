"""Links that need attention now, joined with what doctor found a while ago."""

from __future__ import annotations

from typing import Any

from eventd.api.doctor.checks import _failed
from eventd.api.doctor.facts import Deliveries, LinkFacts, PeerFacts
from eventd.api.doctor.report import Check
from eventd.console.pages.link_problems import LinkProblems, join_problems, list_findings, rank_problem, without_links


def failed_deliveries(letters: int) -> Check:
    """Return doctor's check of a blocked link that holds back 3 events."""
    deliveries = Deliveries(refused_waiting=3, letters=letters)
    return _failed(PeerFacts("edge", "b", "http://b", LinkFacts(state="blocked"), deliveries))


def now(**states: str) -> LinkProblems:
    links = {("edge", peer): {"group": "edge", "peer": peer, "state": state} for peer, state in states.items()}
    return LinkProblems(links, frozenset({"edge"}))


def check(code: str, peer: str = "b", group: str = "edge", **fields: str) -> dict[str, Any]:
    return {"name": f"{group}/{peer} link", "code": code, "group": group, "peer": peer, "status": "warn"} | fields


def test_a_link_that_broke_after_doctor_looked_is_a_problem() -> None:
    [found] = join_problems(now(b="backing-off"), [])
    assert (found["name"], found["status"], found["link"]["state"]) == ("edge/b link", "warn", "backing-off")
    assert [one["status"] for one in join_problems(now(b="blocked", c="failed"), [])] == ["fail", "fail"]


def test_a_check_of_the_present_state_adds_its_remedy_to_the_figures_of_the_link() -> None:
    [found] = join_problems(now(b="backing-off"), [check("link-down", remedy="start it")])
    assert (found["link"]["state"], found["remedy"], found["status"]) == ("backing-off", "start it", "warn")


def test_what_waits_for_a_link_that_does_not_run_is_no_problem_of_its_own() -> None:
    waiting = [check("pending-deliveries"), check("waiting-lag", status="fail"), check("link-down")]
    [found] = join_problems(now(b="backing-off"), waiting)
    assert (found["link"]["peer"], found["status"]) == ("b", "fail")
    for other in ("event-expiry", "failed-deliveries"):
        assert check(other) in join_problems(now(b="backing-off"), [check(other)])
    held = check("failed-deliveries", remedy=failed_deliveries(letters=0).remedy, status="fail")
    assert len(join_problems(now(b="blocked"), [held])) == 1, "all of them wait for the link"
    both = check("failed-deliveries", remedy=failed_deliveries(letters=2).remedy, status="fail")
    assert both in join_problems(now(b="blocked"), [both]), "dead letters stay when the link is fixed"
    assert join_problems(now(c="paused"), waiting[:1])[1:] == waiting[:1], "of a link that runs"


def test_a_check_of_a_state_that_the_link_has_left_is_not_shown() -> None:
    assert join_problems(now(), [check("link-down")]) == []
    [found] = join_problems(now(b="paused"), [check("link-blocked")])
    assert found["link"]["state"] == "paused"


def test_checks_of_other_things_and_of_groups_whose_links_are_not_known_stay() -> None:
    others = [check("waiting-lag"), check("link-down", group="core"), {"name": "node readiness", "status": "fail"}]
    assert join_problems(now(), others) == others


def test_findings_of_the_map_are_problems_that_lead_to_the_own_link() -> None:
    def link(source: str, target: str, *findings: str) -> dict[str, Any]:
        sender = None if source == "c" else {"state": "running"}
        return {"from": source, "to": target, "findings": list(findings), "sender": sender}

    links = [link("a", "b", "x"), link("c", "a", "y"), link("b", "c", "z"), link("a", "c")]
    found = list_findings({"node": "a", "group": "edge", "links": links, "nodes": []})
    assert [(one["detail"], one["peer"]) for one in found] == [("x", "b"), ("y", "c"), ("z", "")]
    remedies = [one["remedy"] for one in found]
    assert remedies[0] == "at a, compare what b has: routerctl verify --group edge --peer b"
    assert remedies[1].startswith("if c should send to a, apply an EventPeer for a at c;")


def test_a_peer_that_does_not_answer_is_a_problem_also_while_its_link_has_nothing_to_send() -> None:
    nodes = [{"node": name, "answer": answer} for name, answer in (("b", "unreachable"), ("c", "answered"))]
    shown = {"node": "a", "group": "edge", "links": [], "nodes": nodes}
    assert [one["peer"] for one in list_findings(shown)] == ["b"]
    assert list_findings(shown, {("edge", "b")}) == [], "its link tells it"


def test_a_subscription_that_does_not_run_is_one_problem_with_the_figures_of_its_runs() -> None:
    held = {"name": "s", "code": "subscription-held", "group": "edge", "resource": "EventSubscription/s"}
    held |= {"status": "warn", "detail": "its plugin fails"}
    runs = held | {"code": "subscription-runs", "status": "fail", "detail": "3 runs: 0 succeeded"}
    other = runs | {"resource": "EventSubscription/other"}
    [one, rest] = join_problems(now(), [runs, held, other])
    assert (one["detail"], one["status"]) == ("its plugin fails; 3 runs: 0 succeeded", "fail")
    assert rest == other
    assert len(without_links([runs, held, other])) == 2, "as many as the overview lists"


def test_a_peer_that_does_not_answer_comes_before_a_run_that_failed_once() -> None:
    failed = {"name": "s", "code": "subscription-runs", "status": "fail"}
    nodes = [{"node": "c", "answer": "unreachable"}]
    gone = list_findings({"node": "a", "group": "edge", "links": [], "nodes": nodes})
    found = [*join_problems(now(b="backing-off", d="paused"), [failed]), *gone]
    found.sort(key=rank_problem)
    assert [one["name"] for one in found] == ["edge/b link", "edge/c", "s", "edge/d link"]
