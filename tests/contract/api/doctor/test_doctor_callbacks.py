"""What doctor says about callbacks: each state has its code, its cause in the detail, and one step that mends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventd.api.doctor.callbacks import check_callbacks
from eventd.api.doctor.report import CheckStatus
from eventd.egress.callbacks.selection import CallbackSelection
from eventd.groups.callback_history import LossCount
from eventd.groups.callbacks import CallbackStatus, KnownCallback
from eventd.log.cursors.cursors import Cursor, LinkState
from eventd.log.cursors.holding import DISABLED_BY
from eventd.log.delivery.backlog import Backlog
from eventd.resources.subscriber_configuration import SubscriberLimits, subscriber_config
from eventd.runtime.clock import SECOND
from eventd.store.rows.routemaster import SubscriberRow
from federation.selector import Selector

NOW = 1_795_000_000 * SECOND
CONFIG = replace(
    subscriber_config(SubscriberRow("x", "https://hooks.example/", "", 0, 1), SubscriberLimits()), name="billing"
)
CURSOR = Cursor("callback:billing", "callback", 1, 5, attempted_at=NOW, succeeded_at=NOW)
WAITING = Backlog(9, events=3, oldest=NOW - 6 * 60 * SECOND)


def status(cursor: Cursor | None = CURSOR, **more: Any) -> CallbackStatus:
    known = KnownCallback(CONFIG, CallbackSelection(Selector()), "declared")
    found = CallbackStatus(known, cursor, 5, 9, Backlog(9), 0, ())
    return replace(found, **more)


def row(**changed: Any) -> Cursor:
    return replace(CURSOR, **changed)


TROUBLE = {"reason": "http_503", "last_error": "answered 503"}
CASES: dict[str, tuple[CallbackStatus, CheckStatus, str, str]] = {
    "callback-new": (status(None), CheckStatus.WARN, "no running node", "start the node"),
    "callback-no-topic": (
        status(None, has_topic=False),
        CheckStatus.FAIL,
        "the topic routemaster does not exist",
        "create the topic",
    ),
    "callback-disabled": (
        status(row(paused_at=NOW, paused_by=DISABLED_BY, **TROUBLE)),
        CheckStatus.FAIL,
        "disabled by the node; http_503: answered 503; no backlog",
        "routerctl callback resume billing",
    ),
    "callback-paused": (
        status(row(paused_at=NOW, paused_by="ann")),
        CheckStatus.WARN,
        "paused by ann; no backlog",
        "routerctl callback resume billing",
    ),
    "callback-blocked": (
        status(row(state=LinkState.BLOCKED, reason="http_401", last_error="answered 401")),
        CheckStatus.FAIL,
        "http_401: answered 401; no backlog",
        "correct the credential or the signing secret",
    ),
    "callback-failed": (
        status(row(state=LinkState.FAILED, reason="secret_unreadable", last_error="/k: no such file")),
        CheckStatus.FAIL,
        "secret_unreadable: /k: no such file; no backlog",
        "then send SIGHUP",
    ),
    "callback-behind": (
        status(backlog=WAITING),
        CheckStatus.WARN,
        "3 events waiting, the oldest for 6m0s; no attempt failed",
        "raise `batch.maxEvents`",
    ),
    "callback-failing": (
        status(row(state=LinkState.BACKING_OFF, **TROUBLE)),
        CheckStatus.WARN,
        "http_503: answered 503; no backlog",
        "routerctl callback test billing",
    ),
    "callback-untried": (
        status(row(attempted_at=None, succeeded_at=None)),
        CheckStatus.SKIP,
        "nothing was sent yet",
        "routerctl callback test billing",
    ),
    "callback-resend-failing": (
        status(resends=[row(name="resend:billing#1"), row(state=LinkState.BACKING_OFF, **TROUBLE)]),
        CheckStatus.WARN,
        "1 resend failing: http_503: answered 503",
        "routerctl callback test billing",
    ),
    "callback-dead-letters": (
        status(dead_letters=2),
        CheckStatus.WARN,
        "2 events given up",
        "routerctl callback dead-letters list billing",
    ),
}


@pytest.mark.parametrize("code", CASES)
def test_a_state_has_its_code_its_cause_and_its_step(code: str) -> None:
    given, outcome, detail, remedy = CASES[code]
    (check,) = check_callbacks([given], {}, NOW)
    assert (check.code, check.status, check.resource) == (code, outcome, "EventCallback/billing")
    assert detail in check.detail
    assert remedy in check.remedy


def test_a_callback_that_delivers_passes() -> None:
    (check,) = check_callbacks([status(backlog=replace(WAITING, oldest=NOW - 4 * 60 * SECOND))], {}, NOW)
    assert (check.status, check.code, check.remedy) == (CheckStatus.PASS, "", "")


def test_a_backlog_that_is_not_counted_to_its_end_says_so() -> None:
    (check,) = check_callbacks([status(backlog=replace(WAITING, exact=False))], {}, NOW)
    assert check.detail.startswith("more than 3 events waiting")


def test_a_resend_that_fails_like_its_callback_or_is_paused_is_not_reported_again() -> None:
    failing = row(state=LinkState.BACKING_OFF, **TROUBLE)
    (check,) = check_callbacks([status(failing, resends=[failing])], {}, NOW)
    assert check.code == "callback-failing"
    (check,) = check_callbacks([status(resends=[replace(failing, paused_at=NOW)])], {}, NOW)
    assert check.status is CheckStatus.PASS


def test_losses_are_reported_with_their_number_and_time() -> None:
    (check,) = check_callbacks([status()], {"billing": LossCount(3, NOW), "other": LossCount(1, NOW)}, NOW)
    assert (check.status, check.code) == (CheckStatus.WARN, "callback-lost")
    assert check.detail.startswith("retention removed 3 events before delivery in the last 7 days, most recently at 20")
    assert "routerctl callback describe billing" in check.remedy


@pytest.mark.parametrize("reason", ["unreachable", "http_404", "timeout", "http_401"])
def test_the_step_for_a_subscriber_is_one_that_its_operator_can_take(reason: str) -> None:
    known = KnownCallback(replace(CONFIG, name="rm/app--1"), CallbackSelection(Selector()), "routemaster")
    failing = row(state=LinkState.BACKING_OFF, reason=reason, last_error="no")
    (check,) = check_callbacks([status(failing, callback=known)], {}, NOW)
    assert check.remedy
    for word in ("`url`", "`tls.", "`limits.", "`batch."):  # a subscriber has no declaration
        assert word not in check.remedy
    assert "routerctl callback test rm/app--1" in check.remedy or reason in ("timeout", "http_401")


def test_an_endpoint_that_is_unreachable_has_a_step_that_shows_whether_it_helped() -> None:
    failing = row(state=LinkState.BACKING_OFF, reason="unreachable", last_error="no")
    (check,) = check_callbacks([status(failing)], {}, NOW)
    assert "routerctl callback test billing" in check.remedy


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("http_429", "none: the endpoint asks for time"),
        ("address_forbidden", "correct the setting that the detail names and restart the node"),
    ],
)
def test_a_remedy_fits_the_reason(reason: str, remedy: str) -> None:
    (check,) = check_callbacks([status(row(state=LinkState.BACKING_OFF, reason=reason, last_error="x"))], {}, NOW)
    assert check.remedy.startswith(remedy)
