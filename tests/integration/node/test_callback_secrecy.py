"""No token, uuid, user info, secret or event gets into logs, tables or answers, also if an endpoint echoes it."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.observe.log_lines import JsonLines
from eventd.testing import until
from federation.webhooks import format_secret
from tests.integration.node.test_routemaster_surface import FLAGS, ask
from tests.support import operations
from tests.support.certificates import server_context
from tests.support.declared import callback, declare
from tests.support.sites import Site

UUID, TOKEN = "uuid-geheim-0815", "shop--secret"
BEARER, PASSWORD = "bearer-geheim-4711", "passwort-geheim-42"
USER_INFO = "bob:hidden-pass-99"
RAW = b"signing-secret-of-thirty-2-bytes"
EVENT = {"type": "create", "url": "https://shop.example/customers/of/interest/1", "data": {"name": "payload-geheim"}}
TABLES = ("callback_attempts", "batches", "cursors", "dead_letters")


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SECRETS = (
    *(UUID, coded(f"{UUID}:x"), TOKEN, BEARER, PASSWORD, coded(f"shop:{PASSWORD}"), USER_INFO, "hidden-pass-99"),
    *(format_secret(RAW), coded(RAW.decode()), RAW.decode(), RAW.hex()),
)
EVENTS = ("payload-geheim", "customers/of/interest")


class Echo:
    """An endpoint that answers with all that it was sent and knows: in the body, in headers, and in bad bytes."""

    def __init__(self) -> None:
        self.status = 400
        self.requests: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
        body = await reader.readexactly(int(fields["Content-Length"]))
        self.requests.append(head.decode() + body.decode())
        sent = fields.get("Authorization", "none")
        plain = base64.b64decode(sent.split()[1]).decode() if sent.startswith("Basic") else ""
        info = USER_INFO if plain.startswith(UUID) else "no user"
        page = f"{sent} {plain} {format_secret(RAW)} {info} ".encode() + body + json.dumps(body.decode()).encode()
        headers = b"".join(
            name + b": " + value + b"\r\n"
            for name, value in (
                (b"Content-Length", str(len(page)).encode()),
                (b"X-Sent", sent.encode()),
                (b"X-Known", f"{plain} {format_secret(RAW)} {info}".encode()),
                (b"X-Event", body[:4000]),
                (b"X-Bad", b"\xff\xfe caf\xe9 " + sent.encode()),
                (b"Location", f"https://{info}@127.0.0.1/next".encode()),
                (b"Connection", b"close"),
            )
        )
        writer.write(b"HTTP/1.1 %d Whatever\r\n%s\r\n" % (self.status, headers) + page)
        writer.close()


@pytest.fixture
async def echo(tmp_path: Path) -> AsyncIterator[tuple[Echo, int, int]]:
    """An endpoint, and its ports with and without TLS."""
    context = server_context(tmp_path / "tls")
    made = Echo()
    servers = [await asyncio.start_server(made.serve, "127.0.0.1", ssl=each) for each in (context, None)]
    yield made, *(server.sockets[0].getsockname()[1] for server in servers)
    for server in servers:
        server.close()
        await server.wait_closed()


def written(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_text(text)
    file.chmod(0o600)
    return str(file)


async def run(site: Site, operation: str, **params: Any) -> Any:
    node = site.running
    services = Services(node.log, test_callback=node._tester.test, callback_rules=node.settings.callback_rules)
    return json.loads(json.dumps(await operations.run(services, operation, **params)))


async def set_up(site: Site, tmp_path: Path, secure: int, plain: int) -> list[str]:
    """Declare a subscriber and two callbacks, all signed; return the names of the three."""
    key = written(tmp_path, "signing.key", format_secret(RAW))
    url = f"https://{USER_INFO}@127.0.0.1:{secure}/hooks"
    wanted = json.dumps({"topics": ["orders"], "callback": url, "uuid": UUID, "timeout": 0}).encode()
    assert (await ask(site, "POST", "/subscription", wanted, user=TOKEN)).status == 204
    signed = await run(site, "routemaster.sign", client="shop", keys=[f"k1={key}"])
    site.running.reconciler.subscriptions_changed()
    common = {
        "url": f"http://127.0.0.1:{plain}/hooks",
        "allowPlain": True,
        "signing": {"keys": [{"id": "k1", "state": "active", "secretFile": key}]},
        "retry": {"baseBackoff": "50ms", "maxBackoff": "100ms"},
    }
    bearer = {"bearerFile": written(tmp_path, "bearer", BEARER)}
    basic = {"username": "shop", "passwordFile": written(tmp_path, "password", PASSWORD)}
    text = declare(
        callback("bearer", topic="routemaster", format="routemaster", auth=bearer, **common),
        callback("basic", topic="routemaster", format="standard", auth=basic, **common),
    )
    await run(site, "resources.apply", sources=[{"name": "test", "text": text}], prune=False)
    await site.settled()
    return [f"rm/{signed['subscriber']}", "bearer", "basic"]


async def test_what_an_endpoint_echoes_is_kept_nowhere(
    sites: Callable[..., list[Site]], tmp_path: Path, echo: tuple[Echo, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint, secure, plain = echo
    (site,) = sites("a")
    more = {"callback_allow": "127.0.0.1", "routemaster_ssl_verify": False, "routemaster_max_backoff": "100ms"}
    await site.start(**FLAGS | more | {"routemaster_metrics_interval": "1s"})
    names = await set_up(site, tmp_path, secure, plain)
    await until(lambda: len(site.running.callbacks) == 3, "the callbacks to begin")
    assert (await ask(site, "POST", "/topics/orders", json.dumps(EVENT).encode(), user=TOKEN)).status == 200

    seen = []
    for status in (400, 302, 503, 200):
        endpoint.status = status

        async def shown(status: int = status) -> bool:
            found = [(await run(site, "callbacks.attempts", callback=name))["attempts"] for name in names]
            return all(any(one["status"] == status for one in attempts) for attempts in found)

        if status == 302:  # blocked: only an operator makes it try again
            for name in names:
                await run(site, "callbacks.resume", callback=name)
        await until(shown, f"attempts that were answered with {status}")
        for name in names:
            await run(site, "callbacks.resume", callback=name)
            tested = await run(site, "callbacks.test", callback=name)
            assert (tested["status"], tested["keys"]) == (status, ["k1"])
            assert "caf�" in tested["headers"]["x-bad"]
            seen += [tested, await run(site, "callbacks.describe", callback=name)]
            seen.append(await run(site, "callbacks.attempts", callback=name))
    for operation in ("callbacks.list", "routemaster.subscribers", "doctor.examine"):
        seen.append(await run(site, operation))
    assert len({request.split("uthorization: ")[1].split("\r\n")[0] for request in endpoint.requests}) == 3  # all sent

    logs = [JsonLines().format(line) for line in caplog.records]
    tables = [str(await site.rows(f"SELECT * FROM {table}")) for table in TABLES]
    assert any("events not delivered" in line for line in logs)
    assert any(f"delivered 1 events to '{names[0].removeprefix('rm/')}'" in line for line in logs)
    for kind, text in (("logs", "\n".join(logs)), ("tables", "\n".join(tables)), ("answers", json.dumps(seen))):
        assert "***" in text, kind
        assert [secret for secret in (*SECRETS, *EVENTS) if secret in text] == [], kind
