"""Checks the Routemaster surface of a running node: its TLS, its administrator's key, and the room for events. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventd.api.doctor.report import Check, CheckStatus
from eventd.log.core.topic_row import TopicRow
from eventd.settings.model import Settings
from eventd.settings.values import Endpoint

NEARLY_FULL: Final = 0.9
"""The fraction of its limit from which on the topic of the surface counts as nearly full."""
LARGEST_EVENT: Final = 16 << 10
"""If less room than this number of bytes is left, an event may be refused."""


def check_surface(settings: Settings, listen: Endpoint, topic: TopicRow | None) -> Iterator[Check]:
    """Yield a check for each finding; `topic` is the topic with the events, None before it exists."""
    yield from _tls(settings, listen)
    if not settings.routemaster_root_key.get_secret_value() and not settings.routemaster_root_key_file:
        yield _warn(
            "surface-no-root-key",
            "the surface has no administrator's key: tokens cannot be managed over it",
            "write a key of 16 characters or more to a file, name it in `routemaster_root_key_file`, and restart the"
            " node; until then: routerctl routemaster token create NAME",
        )
    if topic is not None:
        yield from _room(topic)


def _tls(settings: Settings, listen: Endpoint) -> Iterator[Check]:
    """Yield a check if the surface can be reached from other machines without TLS.

    It cannot if proxies are declared and requests that do not come through them are redirected.
    """
    is_behind_proxies = settings.routemaster_require_tls and bool(settings.routemaster_trusted_proxies)
    if settings.routemaster_tls is not None or listen.is_loopback or is_behind_proxies:
        return
    what = "and redirects all requests" if settings.routemaster_require_tls else "and accepts tokens in plain text"
    yield _warn(
        "surface-without-tls",
        f"the surface speaks no TLS on {listen}, which other machines reach, {what}",
        "set `routemaster_tls_cert` and `routemaster_tls_key`, or let it listen on 127.0.0.1 behind a proxy that speaks"
        " TLS; then: routerd-eventd check, and restart the node",
    )


def _room(topic: TopicRow) -> Iterator[Check]:
    """Yield a check if publishers are refused, or will be soon, because there is no room.

    If old events are evicted instead, they never are.
    """
    most, used = topic.config.cap_bytes, topic.bytes
    if not most or topic.config.discard != "reject" or used < NEARLY_FULL * most:
        return
    is_full = most - used < LARGEST_EVENT
    detail = f"the events of the surface take {used:,} of {most:,} bytes"
    detail += ": publishers get 503" if is_full else ": publishers get 503 once these are full"
    remedy = (
        "raise `routemaster_max_bytes` and restart the node; events are kept for 7 days, and longer for subscribers"
        " that lack them: routerctl routemaster subscribers"
    )
    status = CheckStatus.FAIL if is_full else CheckStatus.WARN
    yield Check("Routemaster surface", status, "surface-full", detail, remedy)


def _warn(code: str, detail: str, remedy: str) -> Check:
    return Check("Routemaster surface", CheckStatus.WARN, code, detail, remedy)
