"""The checks of doctor over given input: each on both sides of its limit, and with each outcome."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.api.doctor.checks import check_group
from eventd.api.doctor.facts import Deliveries, GroupFacts, LinkFacts, PeerFacts, Runs, Thresholds
from eventd.api.doctor.links import check_links
from eventd.api.doctor.plan import plan_actions
from eventd.api.doctor.report import Check, report
from eventd.api.doctor.tally import DeliveryTally
from eventd.console.pages.link_problems import LinkProblems, join_problems
from eventd.log.delivery.acknowledgements import MOST_GAPS, LinkLosses
from eventd.runtime.clock import SECOND

FINE = LinkFacts()
DEFAULTS = Thresholds()
BLOCKED = LinkFacts(state="blocked", reason="unauthorized", last_error="401")


def group(*peers: PeerFacts, **facts: Any) -> GroupFacts:
    return GroupFacts("edge", **{"has_own": True, "peers": peers, **facts})


def peer(*, node: str = "cloud", endpoint: str = "http://cloud:1", link: LinkFacts = FINE, **facts: Any) -> PeerFacts:
    return PeerFacts("edge", node, endpoint, link, Deliveries(**facts))


def one(code: str, *, slo: Thresholds = DEFAULTS, link: LinkFacts = FINE, **facts: Any) -> tuple[str, str]:
    """The status and the detail of the one check with this code, of a peer with these deliveries."""
    found = [check for check in check_group(group(peer(link=link, **facts), slo=slo)) if check.code == code]
    assert len(found) == 1, found
    assert found[0].name.startswith("edge/cloud ")
    return str(found[0].status), found[0].detail


def named(checks: list[Check]) -> dict[str, str]:
    return {check.name: str(check.status) for check in checks}


def test_all_delivered_is_a_pass_of_every_check() -> None:
    found = named(list(check_group(group(peer(delivered=3, max_lag=2 * SECOND, expires_in=3600 * SECOND)))))
    assert found == {
        "edge/cloud failed deliveries": "pass",
        "edge/cloud pending deliveries": "pass",
        "edge/cloud stale TTL": "pass",
        "edge/cloud delivery lag": "pass",
        "edge/cloud event expiry": "pass",
        "edge/cloud expected delivery": "pass",
    }


def test_failed_are_dead_letters_and_what_a_refusing_link_holds() -> None:
    assert one("failed-deliveries", delivered=1)[0] == "pass"
    status, detail = one("failed-deliveries", letters=2)
    assert (status, detail) == ("fail", "2 events refused by the peer and kept as dead letters")
    status, detail = one("failed-deliveries", link=BLOCKED, refused_waiting=1)
    assert (status, detail) == ("fail", "1 event held by a blocked link (unauthorized)")
    status, detail = one("pending-deliveries", link=BLOCKED, refused_waiting=1)
    assert (status, detail) == ("pass", "no event can be sent now: 1 event held by a blocked link (unauthorized)")


def test_what_waits_is_a_warning_until_it_is_about_to_expire() -> None:
    assert one("pending-deliveries", pending=2)[0] == "warn"
    assert one("pending-deliveries", pending=2, pending_expires_in=120 * SECOND)[0] == "warn"
    status, detail = one("pending-deliveries", pending=2, pending_expires_in=30 * SECOND)
    assert (status, detail) == ("fail", "2 events waiting; the first of them expires in 30s")
    assert one("pending-deliveries", pending=2, pending_expires_in=30 * SECOND, slo=Thresholds(expires_soon=30))[0] == (
        "warn"
    )


def test_what_is_on_its_way_over_a_running_link_is_no_warning_for_ten_seconds() -> None:
    young = {"pending": 1, "waiting_for": 10 * SECOND - 1}
    assert one("pending-deliveries", **young)[0] == "pass"
    assert one("pending-deliveries", pending=1, waiting_for=10 * SECOND)[0] == "warn"
    for link in (LinkFacts(state="backing-off"), LinkFacts(state="paused"), LinkFacts(registered=False)):
        assert one("pending-deliveries", link=link, **young)[0] == "warn"
    assert one("pending-deliveries", pending_expires_in=30 * SECOND, **young)[0] == "fail"


def test_a_count_that_may_be_too_high_is_said_to_be() -> None:
    assert one("pending-deliveries", pending=9, ahead_in_full=False)[1] == "at most 9 events waiting"


def test_stale_is_a_failure_only_where_all_that_was_delivered_is() -> None:
    assert one("stale-ttl", delivered=2)[0] == "pass"
    assert one("stale-ttl", delivered=2, stale=1)[0] == "warn"
    assert one("stale-ttl", delivered=2, stale=2)[0] == "fail"
    assert one("stale-ttl", delivered=2, stale=2, in_full=False)[0] == "warn", "older ones were not looked at"


@pytest.mark.parametrize(
    ("lag", "status"), [(59.999, "pass"), (60, "warn"), (85, "warn"), (179.999, "warn"), (180, "fail")]
)
def test_lag_is_judged_at_its_two_limits(lag: float, status: str) -> None:
    assert one("delivery-lag", delivered=1, max_lag=round(lag * SECOND))[0] == status


@pytest.mark.parametrize(
    ("minutes", "waits", "is_past"), [(4, None, False), (6, None, True), (6, 90, False)], ids=["now", "past", "again"]
)
def test_a_lag_that_is_past_says_when_and_asks_for_nothing(minutes: int, waits: int | None, is_past: bool) -> None:
    facts = {"max_lag": 154 * SECOND, "late_at": 1_767_225_600 * SECOND, "late_ago": minutes * 60 * SECOND}
    waiting = None if waits is None else waits * SECOND
    checks = list(check_group(group(peer(delivered=1, waiting_for=waiting, pending=int(waits is not None), **facts))))
    (found,) = (check for check in checks if check.code == "delivery-lag")
    assert found.status == "warn", "it is judged by the same limit"
    assert found.detail.endswith("; the last late delivery ended at 2026-01-01T00:00:00Z")
    assert found.remedy.startswith("nothing to do: ") is is_past
    assert ("check-peer-connectivity" in [action.action for action in plan_actions([found])]) is not is_past
    kept = join_problems(LinkProblems({}, frozenset()), [found.show()])
    assert bool(kept) is not is_past, "the overview of the console"


@pytest.mark.parametrize(
    ("state", "minutes", "waits", "status"),
    [
        ("running", 0, None, "warn"),
        ("running", 0, 59, "warn"),
        ("running", 0, 60, "fail"),
        ("backing-off", 4, None, "fail"),
        ("backing-off", 5, None, "warn"),
        ("backing-off", 5, 60, "fail"),
    ],
    ids=["just ended", "soon sent", "late", "link down", "for five minutes", "late again"],
)
def test_a_lag_that_has_ended_is_a_warning_however_long_it_was(
    state: str, minutes: int, waits: int | None, status: str
) -> None:
    facts = {"max_lag": 900 * SECOND, "late_at": 1_767_225_600 * SECOND, "late_ago": minutes * 60 * SECOND}
    waiting = None if waits is None else waits * SECOND
    found = one("delivery-lag", link=LinkFacts(state=state), delivered=1, waiting_for=waiting, **facts)
    assert found[0] == status
    assert found[1].endswith("; the last late delivery ended at 2026-01-01T00:00:00Z")


@pytest.mark.parametrize(("ago", "is_wrong"), [(0, False), (-1, True), (-172_800, True)])
def test_a_late_delivery_that_ended_in_the_future_shows_a_wrong_clock(ago: int, is_wrong: bool) -> None:
    late_at = 1_767_225_600 * SECOND
    tally = DeliveryTally(now=late_at + ago * SECOND, late_from=0, late_at=late_at)
    facts = {"max_lag": 900 * SECOND, "late_at": late_at, "late_ago": tally.late_ago}
    detail = one("delivery-lag", delivered=1, **facts)[1]
    assert detail.endswith("this node's clock was ahead then, or is behind now") is is_wrong
    assert "; the last late delivery ended at 2026-01-01T00:00:00Z" in detail


def test_lag_is_skipped_where_nothing_was_delivered() -> None:
    assert one("delivery-lag", pending=1) == ("skip", "none of the counted live events is delivered yet")
    why = "no delivery counts as lag: each was a repair, or its refresh waits"
    assert one("delivery-lag", delivered=1) == ("skip", why)


def test_expiry_is_judged_by_the_event_that_expires_and_not_by_another_one() -> None:
    soon: Any = {"expires_in": 119 * SECOND}
    assert one("event-expiry", delivered=1) == ("skip", "no event for this peer expires")
    assert one("event-expiry", delivered=1, expires_in=120 * SECOND)[0] == "pass"
    assert one("event-expiry", delivered=1, **soon)[0] == "warn"
    assert one("event-expiry", delivered=1, pending=1, **soon) == (
        "warn",
        "the first event expires in 1m59s; it is delivered",
    )
    later: Any = {"expires_in": 60 * SECOND, "lost_in": 119 * SECOND}
    assert one("event-expiry", delivered=1, pending=1, **later) == (
        "fail",
        "the first undelivered event expires in 1m59s",
    )
    assert one("event-expiry", delivered=1, letters=1, expires_in=60 * SECOND, lost_in=120 * SECOND)[0] == "warn"


def test_what_is_missing_is_named_up_to_three() -> None:
    assert one("expected-delivery", missing=["a", "b", "c"]) == (
        "fail",
        "3 events neither delivered nor pending: a, b, c",
    )
    assert one("expected-delivery", missing=list("abcde"))[1].endswith(": a, b, c, +2 more")


def test_other_endings_are_told_apart_and_are_not_missing() -> None:
    status, detail = one("expected-delivery", delivered=1, expired=2, in_path=3, refused=4, unproven=5)
    assert status == "pass"
    assert detail == (
        "no stored event is missing: each is delivered or waits; besides, 2 expired before the peer had them, 3 came"
        " from or through the peer, 4 refused by the peer, 5 without stored evidence of their delivery"
    )


@pytest.mark.parametrize(
    ("facts", "where"),
    [
        ({"lost_before": 15}, "lost events"),
        ({"losses": LinkLosses(1, 15, 1)}, "gaps"),
        ({"lost_before": 15, "losses": LinkLosses(1, 15, 1)}, "lost events"),
    ],
    ids=["not reached", "passed", "both"],
)
def test_where_no_event_is_missing_the_detail_leads_to_those_that_retention_removed(
    facts: dict[str, Any], where: str
) -> None:
    lost = PeerFacts("edge", "cloud", "http://cloud:1", FINE, Deliveries(delivered=1), **facts)
    (found,) = (check for check in check_group(group(lost)) if check.code == "expected-delivery")
    assert found.status == "pass"
    assert found.detail == (
        "no stored event is missing: each is delivered or waits; events that retention removed before the peer had"
        f" them are not counted here: see its {where}"
    )


def test_a_peer_without_an_endpoint_fails_under_a_code_of_its_own() -> None:
    checks = list(check_group(group(peer(endpoint=""), has_own=False)))
    assert [(check.code, str(check.status)) for check in checks] == [
        ("", "skip"),
        ("expected-delivery-no-endpoint", "fail"),
    ]


def test_there_is_nothing_to_expect_without_peers_or_own_events() -> None:
    assert named(list(check_group(group(peer(), has_own=False)))) == {
        "edge/cloud delivery summary": "skip",
        "edge expected peers": "skip",
    }
    assert named(list(check_group(group()))) == {"edge expected peers": "skip"}


def test_no_more_is_claimed_of_own_events_than_was_looked_at() -> None:
    *_, check = check_group(group(peer(), has_own=False))
    assert check.detail == "this node emitted none of the newest live events"


def test_a_filter_that_leaves_everything_out_is_no_fault() -> None:
    found = named(list(check_group(group(peer()))))
    assert found == {"edge/cloud delivery summary": "skip", "edge/cloud expected delivery": "pass"}


def test_a_peer_that_cannot_be_read_fails_alone() -> None:
    checks = named(list(check_group(group(PeerFacts("edge", "bad", "http://x", trouble="no"), peer(delivered=1)))))
    assert checks["edge/bad delivery summary"] == "fail"
    assert "edge/bad expected delivery" not in checks, "nothing is known of them"
    assert checks["edge/cloud failed deliveries"] == "pass"


@pytest.mark.parametrize(
    ("runs", "slo", "status"),
    [
        (Runs("s"), Thresholds(), "skip"),
        (Runs("s", succeeded=3), Thresholds(), "pass"),
        (Runs("s", succeeded=3, failed=1), Thresholds(), "fail"),
        (Runs("s", succeeded=3, failed=1), Thresholds(max_failed_runs=1), "pass"),
        (Runs("s", pending=1), Thresholds(), "warn"),
        (Runs("s", pending=1, waiting_for=9 * SECOND), Thresholds(), "pass"),
        (Runs("s", pending=1, waiting_for=10 * SECOND), Thresholds(), "warn"),
        (Runs("s", pending=1, waiting_for=1, link=LinkFacts(state="backing-off")), Thresholds(), "warn"),
        (Runs("s", pending=5), Thresholds(max_pending_runs=5), "pass"),
        (Runs("s", pending=9, failed=1), Thresholds(), "fail"),
    ],
)
def test_runs_are_judged_by_what_is_tolerated(runs: Runs, slo: Thresholds, status: str) -> None:
    (check,) = [check for check in check_group(group(runs=[runs], slo=slo)) if check.code == "subscription-runs"]
    assert (check.name, str(check.status)) == ("EventSubscription/s subscription runs", status)


def test_the_pass_of_runs_tells_what_it_tolerates() -> None:
    tolerant = Thresholds(max_failed_runs=2)
    (check,) = [c for c in check_group(group(runs=[Runs("s", succeeded=3, failed=1)], slo=tolerant)) if c.resource]
    assert check.detail == (
        "runs of 4 events: 3 succeeded, 1 failed, 0 pending; at most 2 failed and 0 pending are tolerated"
    )
    (check,) = [c for c in check_group(group(runs=[Runs("s", succeeded=1)])) if c.resource]
    assert check.detail == "runs of 1 event: all succeeded"


def told(*groups: GroupFacts) -> dict[str, Any]:
    return report(groups, [check for each in groups for check in check_group(each)])


def test_the_report_adds_up() -> None:
    late = peer(delivered=2, stale=1, letters=1, pending=1, max_lag=90 * SECOND, expires_in=500 * SECOND)
    missing = peer(node="far", delivered=4, missing=["a"], max_lag=10 * SECOND, expires_in=400 * SECOND)
    answer = told(group(late, missing, runs=[Runs("s", 5, 1, 2)]))
    assert answer["summary"] == {"overall": "fail", "pass": 7, "warn": 3, "fail": 3, "skip": 0}
    federation = answer["federation"]
    slo = federation.pop("slo")
    assert federation.pop("severityCounts") == {k: v for k, v in answer["summary"].items() if k != "overall"}
    assert federation == {
        "failedDeliveryCount": 1,
        "staleTTLCount": 1,
        "pendingDeliveryCount": 1,
        "missingExpectedPeerCount": 1,
        "maxDeliveryLagSeconds": 90.0,
        "minExpiresInSeconds": 400.0,
        "totalEvents": 9,
        "totalDelivered": 6,
        "subscriptionRunsTotal": 8,
        "subscriptionRunsSucceeded": 5,
        "subscriptionRunsFailed": 1,
        "subscriptionRunsPending": 2,
    }
    assert slo["groups"][0]["violations"] == [
        {
            "check": "edge/cloud failed deliveries",
            "threshold": "failedDeliveryCount=0",
            "actual": "failedDeliveryCount=1",
            "severity": "fail",
        },
        {
            "check": "edge/cloud delivery lag",
            "threshold": "lagWarnSeconds=60",
            "actual": "maxDeliveryLagSeconds=90",
            "severity": "warn",
        },
        {
            "check": "EventSubscription/s subscription runs",
            "threshold": "maxFailedRuns=0",
            "actual": "failedRuns=1",
            "severity": "fail",
        },
    ]


def test_limits_of_the_group_show_with_what_breaks_them() -> None:
    strict = Thresholds(lag_warn=10, lag_fail=30, expires_soon=60)
    answer = told(group(peer(delivered=1, max_lag=15 * SECOND), slo=strict, slo_defined=True))
    (shown,) = answer["federation"]["slo"]["groups"]
    assert shown["defined"] is True
    assert shown["thresholds"] == {
        "delivery": {"lagWarnSeconds": 10, "lagFailSeconds": 30, "expiresSoonSeconds": 60},
        "subscription": {"maxPendingRuns": 0, "maxFailedRuns": 0},
    }
    assert [(each["severity"], each["threshold"]) for each in shown["violations"]] == [("warn", "lagWarnSeconds=10")]
    (shown,) = told(group(peer(delivered=1, max_lag=15 * SECOND)))["federation"]["slo"]["groups"]
    assert (shown["defined"], shown["violations"]) == (False, [])
    assert shown["thresholds"]["delivery"] == {"lagWarnSeconds": 60, "lagFailSeconds": 180, "expiresSoonSeconds": 120}


def test_an_expiry_of_what_waits_breaks_the_limit_by_its_name() -> None:
    answer = told(group(peer(pending=1, pending_expires_in=30 * SECOND, expires_in=30 * SECOND)))
    assert answer["federation"]["slo"]["groups"][0]["violations"] == [
        {
            "check": "edge/cloud pending deliveries",
            "threshold": "expiresSoonSeconds=120",
            "actual": "minExpiresInSeconds=30",
            "severity": "fail",
        }
    ]


@pytest.mark.parametrize(
    ("peers", "overall"),
    [
        ([peer(delivered=1, letters=1, pending=1)], "fail"),
        ([peer(delivered=1, pending=1)], "warn"),
        ([peer(delivered=1)], "pass"),
        ([], "skip"),
    ],
)
def test_the_worst_check_is_the_outcome(peers: list[PeerFacts], overall: str) -> None:
    assert told(group(*peers))["summary"]["overall"] == overall


def test_blank_fields_of_a_check_are_left_out() -> None:
    (check,) = told(group())["checks"]
    assert check == {
        "area": "federation",
        "name": "edge expected peers",
        "status": "skip",
        "detail": "the group has no EventPeer",
        "group": "edge",
    }


def retention(waits: dict[str, int], *peers: PeerFacts) -> list[tuple[str, str]]:
    found = [check for check in check_links(group(*peers, waits=waits)) if check.code == "retention-waits"]
    assert all(bool(check.remedy) == (str(check.status) == "warn") for check in found)
    return [(str(check.status), check.detail) for check in found]


def test_what_retention_waits_for_is_a_warning_if_it_may_take_long() -> None:
    assert retention({}) == []
    detail = "events over the limits are kept: up to 3 for peers, up to 1 until they are sealed"
    waits = {"peers": 3, "sealing": 1}
    assert retention(waits, peer(), peer(waiting_for=10 * SECOND - 1)) == [("pass", detail)]
    assert retention(waits, peer(), peer(waiting_for=10 * SECOND)) == [("warn", detail)]
    assert retention(waits, peer(link=BLOCKED)) == [("warn", detail)]
    assert retention({"sealing": 1}, peer(link=BLOCKED))[0][0] == "pass"
    ((status, detail),) = retention({"callbacks": 2})
    assert (status, detail.endswith("events over the limits are kept: up to 2 for callbacks")) == ("warn", True)


def test_a_gap_that_v1_cannot_report_is_not_promised_to_the_peer() -> None:
    for protocol, reported in (("v1", False), ("v2", True)):
        losses = LinkLosses(MOST_GAPS, 2000, 1)
        link = LinkFacts(protocol=protocol)
        behind = PeerFacts("edge", "cloud", "http://cloud:1", link, lost_before=2, losses=losses)
        found = {check.code: check for check in check_links(group(behind))}
        assert ("the next batch reports the gap" in found["events-lost"].detail) == reported
        assert ("federation gaps" in found["events-skipped"].remedy) == reported
        assert "before this peer had them: the newest 1,000 gaps, most recently" in found["events-skipped"].detail
