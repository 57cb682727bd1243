"""routerctl callback test rm/IDENTITY: a test message to a subscriber of the Routemaster surface."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventd.client.webhooks import verify
from eventd.log.core.eventlog import EventLog
from eventd.log.routemaster.subscriptions import PutSubscriber, SubscriptionSettings
from eventd.log.routemaster.surface_topic import surface_topic_config
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from federation.webhooks import format_secret
from tests.integration.cli.conftest import Control
from tests.support.callback_program import ReceiverThread
from tests.support.certificates import server_context


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceiverThread]:
    context = server_context(tmp_path / "tls")
    made = ReceiverThread(context).start()
    yield made
    made.stop()


async def subscribe(url: str, identity: str, callback: str) -> None:
    database = Database(url)
    try:
        log = await EventLog.open(database, SystemClock())
        wanted = SubscriptionSettings(("orders",), callback, "uuid-of-app")
        await log.submit(PutSubscriber(identity, wanted, config=surface_topic_config(), random=b"1" * 16))
        await log.close()
    finally:
        database.close()


@pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)
def test_a_subscriber_gets_a_test_message_with_its_uuid_and_signed_by_its_keys(
    routerctl: Control, routerctl_url: str, receiver: ReceiverThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTD_CALLBACK_ALLOW", "127.0.0.1")
    monkeypatch.setenv("EVENTD_ROUTEMASTER_SSL_VERIFY", "false")
    handle = routerctl("routemaster", "token", "create", "app", "-o", "json").json["handle"]
    asyncio.run(subscribe(routerctl_url, handle, receiver.url.replace("//", "//bob:hidden@")))
    told = routerctl("callback", "test", f"rm/{handle}")
    (call,) = receiver.calls
    assert call.headers["authorization"] == "Basic " + base64.b64encode(b"uuid-of-app:x").decode()
    assert [(one["topic"], one["type"]) for one in json.loads(call.body)] == [("test", "noop")]
    assert "webhook-signature" not in call.headers
    secret = format_secret(b"s" * 32)
    file = routerctl.folder / "app.key"
    file.write_text(secret)
    file.chmod(0o600)
    routerctl("routemaster", "sign", "app", "--signing-key", f"k1={file}")
    shown = routerctl("callback", "test", f"rm/{handle}", "-o", "json")
    verify(receiver.calls[1].headers, receiver.calls[1].body, [secret])
    assert (shown.json["delivered"], shown.json["status"], shown.json["keys"]) == (True, 204, ["k1"])
    receiver.answer = lambda _: 401
    refused = routerctl("callback", "test", f"rm/{handle}", code=4)
    assert ": 401 from 127.0.0.1 after " in refused.out
    for result in (told, shown, refused):
        assert not any(word in result.out + result.err for word in ("uuid-of-app", "hidden", secret))
