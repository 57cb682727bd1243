"""The configuration of the callbacks that serve subscribers of the Routemaster surface."""

from __future__ import annotations

from base64 import b64encode
from typing import Final, NamedTuple

from eventd.log.topics.topics import ROUTEMASTER
from eventd.resources.callback_configuration import PATIENCE, CallbackConfig, CallbackKeyConfig
from eventd.runtime.backoff import Backoff
from eventd.settings.model import Settings
from eventd.store.rows.callback_cursors import SUBSCRIBER
from eventd.store.rows.routemaster import SubscriberRow
from eventd.tls.files import ClientTlsConfig
from federation.keys import KeyState
from federation.selector import Selector

MOST_EVENTS: Final = 10_000
MOST_BYTES: Final = 4 << 20
"""Limits of a batch, besides those that the subscriber has set."""
BASE_BACKOFF: Final = 0.2
ISOLATE_AFTER: Final = 5


class SubscriberLimits(NamedTuple):
    """The limits of requests to subscribers, which the settings of the node name; times in seconds."""

    timeout: float = 20.0
    connect_timeout: float = 2.0
    max_backoff: float = 60.0
    verify: bool = True


def subscriber_limits(settings: Settings) -> SubscriberLimits:
    """Return the limits that the settings name."""
    return SubscriberLimits(
        settings.routemaster_timeout,
        settings.routemaster_connect_timeout,
        settings.routemaster_max_backoff,
        settings.routemaster_ssl_verify,
    )


def subscriber_authorization(row: SubscriberRow) -> str:
    """Return the header `Authorization` of requests to a subscriber: a secret."""
    return "Basic " + b64encode(f"{row.uuid}:x".encode()).decode()


def subscriber_config(row: SubscriberRow, limits: SubscriberLimits) -> CallbackConfig:
    """Return the configuration of a subscriber's callback, without its uuid, which is a secret."""
    return CallbackConfig(
        name=SUBSCRIBER + row.identity,
        group="",
        topic=ROUTEMASTER,
        selector=Selector(),
        url=row.callback,
        format="routemaster",
        from_earliest=False,
        max_events=min(row.max_events, MOST_EVENTS),
        window=row.timeout_ms * 1000,
        max_bytes=MOST_BYTES,
        keys=tuple(CallbackKeyConfig(key.id, KeyState.ACTIVE, key.secret_file) for key in row.keys),
        username="",
        password_file="",
        bearer_file="",
        headers=(),
        timeout=limits.timeout,
        connect_timeout=limits.connect_timeout,
        per_second=None,
        in_flight=1,
        backoff=Backoff(base=BASE_BACKOFF, cap=limits.max_backoff, patience=PATIENCE),
        isolate_after=ISOLATE_AFTER,
        disable_after=None,
        hold=None,
        tls=ClientTlsConfig(unverified=not limits.verify),
    )
