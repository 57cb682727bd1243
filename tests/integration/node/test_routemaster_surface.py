"""The Routemaster surface of a whole node: it starts with it, follows its settings, and shares its log and tokens."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventd.api.listener import addresses
from eventd.errors import Unavailable
from eventd.log.core.eventlog import EventLog
from eventd.log.routemaster.subscriptions import DeleteSubscriber
from eventd.runtime.clock import SystemClock
from eventd.settings.problems import BadSettings
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.store.rows.routemaster import read_subscribers
from eventd.testing import until
from eventd.tls.files import CertificateUnusable
from tests.support.certificates import Authority
from tests.support.routemaster import Heard, basic, read_response
from tests.support.sites import Site

ROOT = "r" * 16
FLAGS = {
    "routemaster_listen": "127.0.0.1:0",
    "routemaster_root_key": ROOT,
    "routemaster_require_tls": False,
    "routemaster_clients": "shop--secret",
}
EVENT = b'{"type":"create","url":"https://shop.example/1"}'


async def ask(site: Site, method: str, target: str, body: bytes = b"", *, user: str, tls: Any = None) -> Heard:
    assert site.running.routemaster is not None
    assert site.running.routemaster.address is not None
    host, port = site.running.routemaster.address
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname="localhost" if tls else None)
    head = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {basic(user)}\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    heard = await read_response(reader, method)
    writer.close()
    return heard


async def test_a_node_serves_the_surface_and_imports_its_tokens(sites: Callable[..., list[Site]]) -> None:
    (site,) = sites("a")
    for _ in range(2):  # the import is idempotent, and claims last
        await site.start(**FLAGS)
        assert (await ask(site, "POST", "/topics/orders", EVENT, user="shop--secret")).status == 200
        assert len((await ask(site, "GET", "/api_tokens", user=ROOT)).json) == 1
        await site.stop()
    await site.start(**FLAGS)
    (topic,) = (await ask(site, "GET", "/topics", user=ROOT)).json
    assert topic["events"] == 2
    assert topic["publisher"].startswith("shop--")
    assert "secret" not in topic["publisher"]


async def test_without_an_address_there_is_no_surface(site: Site) -> None:
    assert site.running.routemaster is None
    assert await site.rows("SELECT name FROM topics WHERE name = 'routemaster'") == []


async def test_a_subscription_begins_its_callback_and_a_forbidden_address_is_refused(
    sites: Callable[..., list[Site]],
) -> None:
    (site,) = sites("a")
    await site.start(**FLAGS)
    for host, status in (("app.example", 204), ("10.0.0.1", 400)):
        body = f'{{"topics":["orders"],"callback":"https://{host}/"}}'.encode()
        assert (await ask(site, "POST", "/subscription", body, user="shop--secret")).status == status
    callbacks = site.running.callbacks
    await until(lambda: len(callbacks) == 1, "the callback to begin")
    with closing(Database(site.url)) as other:  # as a command, or another process of the node
        log = await EventLog.open(other, SystemClock())
        (row,) = await other.read(read_subscribers)
        await log.submit(DeleteSubscriber(row.identity))
        await log.close()
    await until(lambda: len(callbacks) == 0, "the change of another process to be followed")


@pytest.mark.parametrize(
    ("flags", "error", "words"),
    [
        ({"routemaster_root_key": "CHANGE-ME"}, BadSettings, "CHANGE-ME is the example of the documentation"),
        ({"routemaster_root_key": "short"}, BadSettings, "the key has 5 characters: choose one of at least 16"),
        ({"routemaster_clients": "a--1,SHOP--secret"}, BadSettings, "entry 2 is not a token"),
        ({"routemaster_tls_cert": "/none.pem", "routemaster_tls_key": "/none.key"}, CertificateUnusable, "/none.pem"),
    ],
)
async def test_wrong_settings_keep_the_node_from_starting(
    sites: Callable[..., list[Site]], flags: dict[str, str], error: type[Exception], words: str
) -> None:
    (site,) = sites("a")
    with pytest.raises(error) as refused:
        await site.start(**FLAGS | flags)
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)
    with closing(Database(site.url)) as stored:
        assert await stored.read(fetch, "SELECT name FROM topics") == [], "nothing was begun"


async def test_an_address_in_use_is_named(sites: Callable[..., list[Site]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "TAKEN_SECONDS", 0.1)
    (site,) = sites("a")
    await site.start(**FLAGS)
    assert site.running.routemaster is not None
    assert site.running.routemaster.address is not None
    (other,) = sites("b")
    with pytest.raises(Unavailable, match=r"the Routemaster surface cannot listen on 127\.0\.0\.1 port"):
        await other.start(**FLAGS | {"routemaster_listen": f"127.0.0.1:{site.running.routemaster.address[1]}"})


async def test_a_reload_reads_the_root_key_and_the_certificate_again(
    sites: Callable[..., list[Site]], tmp_path: Path
) -> None:
    authority, file = Authority(tmp_path), tmp_path / "root"
    cert, key = authority.issue("server")
    file.write_text(ROOT)
    tls_flags = {"routemaster_tls_cert": str(cert), "routemaster_tls_key": str(key)}
    flags = FLAGS | tls_flags | {"routemaster_root_key": None, "routemaster_root_key_file": str(file)}
    (site,) = sites("a")
    await site.start(**flags | {"routemaster_require_tls": True})
    tls = ssl.create_default_context(cafile=str(authority.file))
    heard = await ask(site, "GET", "/topics", user=ROOT, tls=tls)
    assert (heard.status, heard.headers["strict-transport-security"]) == (200, "max-age=31536000")
    file.write_text("n" * 16)
    authority.issue("server")
    await site.running.reload()
    assert (await ask(site, "GET", "/topics", user=ROOT, tls=tls)).status == 401
    assert (await ask(site, "GET", "/topics", user="n" * 16, tls=tls)).status == 200
    file.write_text("short")
    with pytest.raises(BadSettings):
        await site.running.reload()
    assert (await ask(site, "GET", "/topics", user="n" * 16, tls=tls)).status == 200
