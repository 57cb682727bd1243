"""Sends a test message to a callback's endpoint; it is not stored, and not retried."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import msgspec

from eventd.egress.callbacks.endpoint import CallbackEndpoint, SendOutcome
from eventd.egress.callbacks.formats import RECORDS, ROUTEMASTER, STANDARD
from eventd.egress.transport.transport import Transport
from eventd.net.address_rules import AddressRules
from eventd.resources.callback_configuration import CallbackConfig
from eventd.resources.callback_secret_files import CallbackSecretFiles
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock
from federation.event import format_time

TEST = "routerd.callback.test"
"""Type of the message."""


class CallbackTestResult(NamedTuple):
    """The outcome of a test message."""

    message_id: str
    outcome: SendOutcome


class CallbackTester:
    """Sends test messages, with secrets that `files` reads anew for each."""

    def __init__(
        self, transport: Transport, rules: AddressRules, clock: Clock, chance: Chance, files: CallbackSecretFiles
    ) -> None:
        self._transport = transport
        self._rules = rules
        self._clock = clock
        self._chance = chance
        self._files = files

    async def test(self, config: CallbackConfig) -> CallbackTestResult:
        """Send a test message in the callback's format; Routemaster's receivers get an event of type `noop`."""
        secrets = partial(self._files.read, config)
        endpoint = CallbackEndpoint(config, self._transport, self._rules, secrets, self._clock)
        id = f"test_{self._chance.token(12).hex()}"
        return CallbackTestResult(id, await endpoint.send(id, _body(config, id, self._clock.now())))


def _body(config: CallbackConfig, id: str, now: int) -> bytes:
    data = {"callback": config.name}
    if config.format == ROUTEMASTER:
        change = {"topic": "test", "type": "noop", "url": "https://routerd.invalid/test", "t": now // 1000}
        return msgspec.json.encode([change])
    if config.format == RECORDS:
        return msgspec.json.encode({"topic": config.topic, "epoch": "", "records": [], "test": data})
    event = {"type": TEST, "timestamp": format_time(now), "data": data, "id": id, "subject": "", "source": ""}
    return msgspec.json.encode(event if config.format == STANDARD else [event])
