"""A test message has the form of the callback's format, and the headers of every message."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.egress.callbacks.tester import CallbackTester
from eventd.resources.subscriber_configuration import SubscriberLimits
from eventd.runtime.chance import SYSTEM
from tests.support.callback_receivers import Receiver
from tests.support.called_back import LOOPBACK, CalledBack, callback

EVENT = {"type": "routerd.callback.test", "timestamp": "2026-11-20T12:00:00Z", "data": {"callback": "hook"}}
EVENT |= {"subject": "", "source": ""}
CHANGE = {"topic": "test", "type": "noop", "url": "https://routerd.invalid/test", "t": 1_795_176_000_000}
RECORDS = {"topic": "orders", "epoch": "", "records": [], "test": {"callback": "hook"}}


@pytest.mark.parametrize(
    ("format", "topic", "sent"),
    [
        ("standard", "group:g", EVENT),
        ("batch", "group:g", [EVENT]),
        ("records", "orders", RECORDS),
        ("routemaster", "orders", [CHANGE]),
    ],
)
async def test_each_format_has_its_test_message(
    called: CalledBack, receiver: Receiver, format: str, topic: str, sent: Any
) -> None:
    tester = CallbackTester(called.transport, LOOPBACK, called.clock, SYSTEM, called.files, SubscriberLimits())
    result = await tester.test(callback(receiver.url, format=format, topic=topic))
    (request,) = receiver.requests
    assert (result.outcome.status, result.message_id) == (204, request.id)
    body = request.json
    for event in [body] if isinstance(body, dict) else body:
        assert event.pop("id", request.id) == request.id
    assert body == sent
    assert request.headers["webhook-timestamp"] == str(called.clock.now() // 10**6)
