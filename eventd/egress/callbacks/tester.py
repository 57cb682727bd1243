"""Sends a test message to a callback's endpoint; it is not stored, and not retried."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import msgspec

from eventd.egress.callbacks.endpoint import CallbackEndpoint, CallbackSecrets, SendOutcome
from eventd.egress.callbacks.formats import RECORDS, ROUTEMASTER, STANDARD
from eventd.egress.callbacks.rate import RateLimiter
from eventd.egress.transport.transport import Transport
from eventd.net.address_rules import AddressRules
from eventd.resources.callback_configuration import CallbackConfig
from eventd.resources.callback_secret_files import CallbackSecretFiles
from eventd.resources.subscriber_configuration import SubscriberLimits, subscriber_authorization, subscriber_config
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock
from eventd.store.rows.routemaster import SubscriberRow
from federation.event import format_time

TEST = "routerd.callback.test"
"""Type of the message."""


class CallbackTestResult(NamedTuple):
    """The outcome of a test message."""

    message_id: str
    outcome: SendOutcome


class CallbackTester:
    """Sends test messages; `files` reads the secrets again for each of them. `limits` are those of subscribers."""

    def __init__(
        self,
        transport: Transport,
        rules: AddressRules,
        clock: Clock,
        chance: Chance,
        files: CallbackSecretFiles,
        limits: SubscriberLimits,
    ) -> None:
        self._transport = transport
        self._rules = rules
        self._clock = clock
        self._chance = chance
        self._files = files
        self._limits = limits

    async def test(self, target: CallbackConfig | SubscriberRow) -> CallbackTestResult:
        """Send a test message in the format of a callback.

        Subscribers of the Routemaster surface, and other receivers of their format, get an event of the type `noop`.
        """
        if isinstance(target, CallbackConfig):
            config, authorization = target, None
        else:
            config, authorization = subscriber_config(target, self._limits), subscriber_authorization(target)
        secrets = partial(self._read_secrets, config, authorization)
        endpoint = CallbackEndpoint(
            config, self._transport, self._rules, secrets, self._clock, RateLimiter(None, self._clock)
        )
        id = f"test_{self._chance.token(12).hex()}"
        body = _body(config, id, self._clock.now())
        return CallbackTestResult(id, await endpoint.send(id, body, keep_headers=True))

    async def _read_secrets(self, config: CallbackConfig, authorization: str | None) -> CallbackSecrets:
        """Return the secrets in the files of a callback; `authorization` is that of a subscriber."""
        loaded = await self._files.read(config)
        return loaded if authorization is None else replace(loaded, authorization=authorization)


def _body(config: CallbackConfig, id: str, now: int) -> bytes:
    data = {"callback": config.name}
    if config.format == ROUTEMASTER:
        change = {"topic": "test", "type": "noop", "url": "https://routerd.invalid/test", "t": now // 1000}
        return msgspec.json.encode([change])
    if config.format == RECORDS:
        return msgspec.json.encode({"topic": config.topic, "epoch": "", "records": [], "test": data})
    event = {"type": TEST, "timestamp": format_time(now), "data": data, "id": id, "subject": "", "source": ""}
    return msgspec.json.encode(event if config.format == STANDARD else [event])
