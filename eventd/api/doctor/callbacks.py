"""Checks callbacks: endpoints that block, disabled callbacks, backlogs and dead letters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventd.api.doctor.report import Check, CheckStatus
from eventd.groups.callbacks import CallbackStatus
from eventd.log.cursors.cursors import Cursor, LinkState
from eventd.log.cursors.holding import DISABLED_BY
from eventd.text.duration import MINUTE, format_duration
from eventd.text.plural import counted

FAR_BEHIND = 5 * MINUTE
"""Age of the oldest waiting event, in microseconds, from which a callback is far behind."""
_STUCK = {LinkState.BLOCKED: "callback-blocked", LinkState.FAILED: "callback-failed"}
_CREDENTIALS = "correct the credential or the signing secret on the side that is wrong"
_REMEDIES = {
    "address_forbidden": "add the address to `callback_allow` and restart the node, or correct `url`",
    "secret_unreadable": "correct the file that the detail names, its owner or its mode, then send SIGHUP",
    "http_401": _CREDENTIALS,
    "http_403": _CREDENTIALS,
    "unproven": "find out from the endpoint's log why it refuses every event",
    "no_topic": "create the topic, or delete the callback",
    "unreachable": "start the endpoint, correct `url`, or open its port in the firewall",
    "timeout": "let the endpoint answer before it handles the event, or raise `limits.timeout`",
    "tls_unknown_ca": "set `tls.caFile` to the CA that issued the endpoint's certificate",
    "tls_wrong_name": "write in `url` the name that the endpoint's certificate was issued for",
    "tls_expired": "renew the endpoint's certificate; if it is valid, correct the clock that is wrong",
    "tls_not_spoken": "correct `url`: nothing speaks TLS there",
    "tls_client_missing": "set `tls.clientCertFile` and `tls.clientKeyFile`: the endpoint demands a certificate",
    "tls_files": "correct the file that the detail names, then: routerctl callback resume {name}",
}
_OTHER = "correct `url` or the endpoint, whose log may say more, then: routerctl callback test {name}"


def check_callbacks(statuses: Iterable[CallbackStatus], now: int) -> Iterator[Check]:
    """Yield the checks of callbacks, at least one for each. `now` in microseconds."""
    for status in statuses:
        yield from _check(status, now)


def _check(status: CallbackStatus, now: int) -> Iterator[Check]:
    config, cursor = status.callback.config, status.cursor
    if cursor is None and status.has_topic:
        yield _of(
            status, CheckStatus.WARN, "callback-new", "no running node has read its declaration", "start the node"
        )
        return
    if cursor is None:
        detail = f"the topic {config.topic} does not exist"
        yield _of(status, CheckStatus.FAIL, "callback-no-topic", detail, _REMEDIES["no_topic"])
        return
    found = [*_delivering(status, cursor, now), *_letters(status)]
    yield from found
    if not found:
        yield _of(status, CheckStatus.PASS, "", "the endpoint accepts events", "")


def _delivering(status: CallbackStatus, cursor: Cursor, now: int) -> Iterator[Check]:
    name, waiting = status.callback.config.name, _waiting(status, now)
    remedy = _REMEDIES.get(cursor.reason, _OTHER).format(name=name)
    trouble = f"{cursor.reason}: {cursor.last_error}" if cursor.reason else "no attempt failed"
    if cursor.paused_at is not None and cursor.paused_by == DISABLED_BY:
        resume = f"correct the endpoint, then: routerctl callback resume {name}"
        yield _of(status, CheckStatus.FAIL, "callback-disabled", f"disabled by the node; {trouble}; {waiting}", resume)
    elif cursor.paused_at is not None:
        by = f" by {cursor.paused_by}" if cursor.paused_by else ""
        resume = f"when it may continue: routerctl callback resume {name}"
        yield _of(status, CheckStatus.WARN, "callback-paused", f"paused{by}; {waiting}", resume)
    elif cursor.state in _STUCK:
        yield _of(status, CheckStatus.FAIL, _STUCK[cursor.state], f"{trouble}; {waiting}", remedy)
    elif status.backlog.lag(now) >= FAR_BEHIND:
        detail = f"{waiting}; {trouble}"
        if cursor.state is not LinkState.BACKING_OFF:
            remedy = "raise `batch.maxEvents` or `limits.inFlight`, or make the endpoint faster"
        yield _of(status, CheckStatus.WARN, "callback-behind", detail, remedy)
    elif cursor.state is LinkState.BACKING_OFF:
        yield _of(status, CheckStatus.WARN, "callback-failing", f"{trouble}; {waiting}", remedy)


def _letters(status: CallbackStatus) -> Iterator[Check]:
    if status.dead_letters:
        name = status.callback.config.name
        detail = f"{counted(status.dead_letters, 'event')} given up"
        remedy = f"routerctl callback dead-letters list {name} shows why; then retry or drop them"
        yield _of(status, CheckStatus.WARN, "callback-dead-letters", detail, remedy)


def _waiting(status: CallbackStatus, now: int) -> str:
    backlog = status.backlog
    if not backlog.events:
        return "no backlog"
    more = "" if backlog.exact else "more than "
    age = format_duration(backlog.lag(now) // 1_000_000 * 1_000_000)
    return f"{more}{counted(backlog.events, 'event')} waiting, the oldest for {age}"


def _of(status: CallbackStatus, outcome: CheckStatus, code: str, detail: str, remedy: str) -> Check:
    config = status.callback.config
    return Check(
        f"callback {config.name}",
        outcome,
        code,
        detail,
        remedy,
        group=config.group,
        resource=f"EventCallback/{config.name}",
    )
