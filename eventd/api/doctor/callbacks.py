"""Checks callbacks: endpoints that block, disabled callbacks, backlogs, losses, resends and dead letters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eventd.api.doctor.report import Check, CheckStatus
from eventd.api.framework.moments import show_time
from eventd.groups.callback_history import LossCount
from eventd.groups.callbacks import CallbackStatus
from eventd.log.cursors.cursors import Cursor, LinkState
from eventd.log.cursors.holding import DISABLED_BY
from eventd.text.duration import DAY, MINUTE, format_duration
from eventd.text.plural import counted

FAR_BEHIND = 5 * MINUTE
"""Age of the oldest waiting event, in microseconds, from which a callback is far behind."""
LOSS_DAYS = 7
LOSSES_SINCE = LOSS_DAYS * DAY
"""Microseconds for which a loss is reported. It ends by time, because nothing undoes a loss."""
_STUCK = {LinkState.BLOCKED: "callback-blocked", LinkState.FAILED: "callback-failed"}
_CREDENTIALS = "correct the credential or the signing secret on the side that is wrong"
_PAUSE = "none: the endpoint asks for time, and the node tries again; if it asks often, "
_LATER = dict.fromkeys(
    ("http_408", "http_425", "http_429"), f"{_PAUSE}set `limits.perSecond`, or collect events in `batch`"
)
_REMEDIES = {
    **_LATER,
    "address_forbidden": "correct the setting that the detail names and restart the node, or correct `url`",
    "secret_unreadable": "correct the file that the detail names, its owner or its mode, then send SIGHUP",
    "http_401": _CREDENTIALS,
    "http_403": _CREDENTIALS,
    "unproven": "find out from the endpoint's log why it refuses every event",
    "no_topic": "create the topic, or delete the callback",
    "unreachable": "start the endpoint, correct `url`, or open its port in the firewall; the node retries by itself,"
    " and this shows at once whether it helped: routerctl callback test {name}",
    "timeout": "let the endpoint answer before it handles the event, or raise `limits.timeout`",
    "tls_unknown_ca": "set `tls.caFile` to the CA that issued the endpoint's certificate",
    "tls_wrong_name": "write in `url` the name that the endpoint's certificate was issued for",
    "tls_expired": "renew the endpoint's certificate; if it is valid, correct the clock that is wrong",
    "tls_not_spoken": "correct `url`: nothing speaks TLS there",
    "tls_client_missing": "set `tls.clientCertFile` and `tls.clientKeyFile`: the endpoint demands a certificate",
    "tls_files": "correct the file that the detail names, then: routerctl callback resume {name}",
}
_OTHER = "correct `url` or the endpoint, whose log may say more, then: routerctl callback test {name}"
_FASTER = "raise `batch.maxEvents` or `limits.inFlight`, or make the endpoint faster"
_UUID = "let the subscriber subscribe again, with the `uuid` that its receiver accepts"
_REMEDIES_OF_SUBSCRIBERS = {
    **dict.fromkeys(_LATER, f"{_PAUSE}let it subscribe with a higher `max` or `timeout`"),
    "address_forbidden": "correct the setting that the detail names and restart the node, or let it subscribe with"
    " another callback",
    "secret_unreadable": _REMEDIES["secret_unreadable"],
    "http_401": _UUID,
    "http_403": _UUID,
    "unproven": "find out from the receiver's log why it refuses every event",
    "unreachable": "start the receiver, or open its port in the firewall; the node retries by itself, and this shows at"
    " once whether it helped: routerctl callback test {name}",
    "timeout": "let the receiver answer before it handles the events, or raise `routemaster_timeout`",
    "tls_unknown_ca": "install a certificate of a CA that this machine trusts, or set `routemaster_ssl_verify=false`",
    "tls_wrong_name": "let it subscribe with the name that its certificate was issued for",
    "tls_expired": "renew the receiver's certificate; if it is valid, correct the clock that is wrong",
}
_OTHER_OF_SUBSCRIBERS = (
    "correct the receiver, whose log may say more, or let it subscribe with another callback, then: routerctl callback"
    " test {name}"
)
_FASTER_SUBSCRIBER = "make the receiver faster, or let it subscribe with a higher `max`"


def check_callbacks(statuses: Iterable[CallbackStatus], losses: Mapping[str, LossCount], now: int) -> Iterator[Check]:
    """Yield the checks of callbacks, at least one for each.

    `losses` are those since `LOSSES_SINCE`, by the name of the callback. `now` in microseconds.
    """
    for status in statuses:
        yield from _check(status, losses.get(status.callback.config.name), now)


def _check(status: CallbackStatus, lost: LossCount | None, now: int) -> Iterator[Check]:
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
    found = [*_delivering(status, cursor, now), *_resends(status), *_losses(status, lost), *_letters(status)]
    yield from found
    if found:
        return
    if cursor.succeeded_at is None and cursor.attempted_at is None:
        remedy = f"find out whether the endpoint answers: routerctl callback test {config.name}"
        yield _of(status, CheckStatus.SKIP, "callback-untried", "nothing was sent yet", remedy)
    else:
        yield _of(status, CheckStatus.PASS, "", "the endpoint accepts events", "")


def _delivering(status: CallbackStatus, cursor: Cursor, now: int) -> Iterator[Check]:
    name, waiting = status.callback.config.name, _waiting(status, now)
    remedy = _remedy(status, cursor)
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
            remedy = _FASTER_SUBSCRIBER if _is_subscriber(status) else _FASTER
        yield _of(status, CheckStatus.WARN, "callback-behind", detail, remedy)
    elif cursor.state is LinkState.BACKING_OFF:
        yield _of(status, CheckStatus.WARN, "callback-failing", f"{trouble}; {waiting}", remedy)


def _is_subscriber(status: CallbackStatus) -> bool:
    return status.callback.origin != "declared"


def _remedy(status: CallbackStatus, cursor: Cursor) -> str:
    """Return the remedy for the reason of a cursor."""
    known, other = _REMEDIES, _OTHER
    if _is_subscriber(status):
        known, other = _REMEDIES_OF_SUBSCRIBERS, _OTHER_OF_SUBSCRIBERS
    return known.get(cursor.reason, other).format(name=status.callback.config.name)


def _resends(status: CallbackStatus) -> Iterator[Check]:
    """Yield a check about failing resends, with the reason of the first one, unless the callback itself fails for the
    same reason."""
    own = status.cursor.reason if status.cursor is not None else ""
    failing = [one for one in status.resends if one.paused_at is None and one.reason not in ("", own)]
    if failing:
        first = failing[0]
        detail = f"{counted(len(failing), 'resend')} failing: {first.reason}: {first.last_error}"
        yield _of(status, CheckStatus.WARN, "callback-resend-failing", detail, _remedy(status, first))


def _losses(status: CallbackStatus, lost: LossCount | None) -> Iterator[Check]:
    if lost is None:
        return
    name = status.callback.config.name
    events = counted(lost.records, "event")
    detail = f"retention removed {events} before delivery in the last {LOSS_DAYS} days, most recently at {_at(lost)}"
    remedy = f"find the gaps: routerctl callback describe {name}; {_KEEP[_is_subscriber(status)]}"
    yield _of(status, CheckStatus.WARN, "callback-lost", detail, remedy)


_KEEP = {
    False: "to keep events longer, raise the retention of the source, or `hold`",
    True: "to keep events longer, raise `routemaster_max_bytes`, or set `routemaster_discard=reject`",
}


def _at(lost: LossCount) -> str:
    return (show_time(lost.last_at) or "")[:19] + "Z"


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
