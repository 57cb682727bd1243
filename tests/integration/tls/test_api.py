"""The API over TLS: clients of every kind, certificates that stand for keys, and clients that speak something else."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from contextlib import aclosing
from pathlib import Path

import pytest

from eventd.api.keys.api_key import ANYONE
from eventd.api.keys.valid_keys import Keys
from eventd.client import ONCE, Client, ClientTlsConfig, Lost
from eventd.client.values import Batch, NewEvent, NewRecord
from eventd.errors import Forbidden, Invalid, NotFound, SettingsError, Unauthorized
from eventd.settings.loading import load
from eventd.testing import until
from eventd.tls.files import CertificateUnusable
from tests.integration.conftest import MakeSites
from tests.support.certificates import DAY, Authority
from tests.support.sites import Site

CLIENT_TLS = {f"api_tls_{name}_file": "/a" for name in ("cert", "key", "client_ca")}


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


async def serve(sites: MakeSites, ca: Authority, **flags: str) -> Site:
    """Start a node whose API speaks TLS."""
    server = ca.issue("api")
    (site,) = sites("n")
    return await site.start(api_tls_cert_file=str(server.cert), api_tls_key_file=str(server.key), **flags)


def address(site: Site, scheme: str = "https") -> str:
    assert site.running.api_address is not None
    return f"{scheme}://127.0.0.1:{site.running.api_address[1]}"


def port(site: Site) -> int:
    assert site.running.api_address is not None
    return site.running.api_address[1]


async def test_requests_and_streams(sites: MakeSites, ca: Authority) -> None:
    site = await serve(sites, ca)
    async with Client(address(site), tls=ClientTlsConfig(ca_file=str(ca.file)), retry=ONCE) as client:
        await client.topics.put("t")
        await client.topics.write("t", [NewRecord({"n": 1})])
        async with aclosing(aiter(client.watch({"t": 0}))) as sights:
            batch = await anext(sights)
        assert isinstance(batch, Batch)
        assert [record.data for record in batch.records] == [{"n": 1}]
        async with client.publisher("lab") as publisher:
            with pytest.raises(NotFound, match="EventGroup lab is not declared"):
                await publisher.emit(NewEvent("t"))
        assert publisher._channel.is_on, "the node has answered the request for a WebSocket"


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        (lambda ca: None, "tls_unknown_ca"),
        (lambda ca: ClientTlsConfig(ca_file=str(ca.file), server_name="other.example"), "tls_wrong_name"),
        (lambda ca: ClientTlsConfig(pins=frozenset([ca.issue("another").pin])), "tls_wrong_pin"),
    ],
)
@pytest.mark.parametrize("way", ["request", "stream", "websocket"])
async def test_a_node_that_is_not_the_right_one_gets_no_request(
    sites: MakeSites, ca: Authority, tls: object, reason: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await serve(sites, ca)
    declared = tls(ca)  # type: ignore[operator]
    asked: list[str] = []
    monkeypatch.setattr(Keys, "identify", lambda _keys, authorization: asked.append(authorization) or ANYONE)
    client = Client(address(site), "a key that must not leave", tls=declared, retry=ONCE)
    async with client, client.publisher("lab") as publisher:
        calls = {
            "request": client.reach,
            "stream": lambda: anext(aiter(client.watch({"t": 0}))),
            "websocket": lambda: publisher.emit(NewEvent("t")),
        }
        with pytest.raises(Lost, match=reason):
            await calls[way]()
    assert asked == []
    heard = "routerd_eventd_listener_connections"
    await until(lambda: site.running.metrics.registry.get_sample_value(heard, {"group": ""}) == 0, "no connection left")


async def test_a_pin_is_enough(sites: MakeSites, ca: Authority) -> None:
    site = await serve(sites, ca)
    pinned = ClientTlsConfig(pins=frozenset([ca.issue("api").pin]))
    await site.running.reload()  # the pair was issued again
    async with Client(address(site), tls=pinned, retry=ONCE) as client:
        await client.reach()


async def test_a_client_certificate_stands_for_a_key(sites: MakeSites, ca: Authority) -> None:
    clients = "Reader.example:read,node/writer:read+write+admin:a-,[::1]:read"
    site = await serve(sites, ca, api_tls_client_ca_file=str(ca.file), api_clients=clients)

    def client(name: str, *, node: str = "", hosts: tuple[str, ...] = ()) -> Client:
        shown = ca.issue(name, node=node, hosts=hosts)
        tls = ClientTlsConfig(ca_file=str(ca.file), cert_file=str(shown.cert), key_file=str(shown.key))
        return Client(address(site), tls=tls, retry=ONCE)

    async with client("w", node="writer") as writer:
        await writer.topics.put("a-1")
        with pytest.raises(Forbidden):
            await writer.topics.put("b-1")
    async with client("r", hosts=("reader.example",)) as reader:
        await reader.topics.get("a-1")
        with pytest.raises(Forbidden):
            await reader.topics.put("a-2")
    async with client("x", hosts=("unknown.example",)) as unknown:
        with pytest.raises(Unauthorized):
            await unknown.topics.get("a-1")
    async with Client(address(site), tls=ClientTlsConfig(ca_file=str(ca.file)), retry=ONCE) as bare:
        with pytest.raises(Lost, match="tls_client_missing"):
            await bare.reach()


async def test_plain_http_is_told_so(sites: MakeSites, ca: Authority) -> None:
    site = await serve(sites, ca)
    reader, writer = await asyncio.open_connection("127.0.0.1", port(site))
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"this port speaks TLS: write https:// in its address\n")
    writer.close()


@pytest.mark.parametrize("version", ["TLSv1_1", "TLSv1_2"])
async def test_old_versions_are_refused(sites: MakeSites, ca: Authority, version: str) -> None:
    site = await serve(sites, ca, api_tls_min_version="1.3")
    context = ssl.create_default_context(cafile=str(ca.file))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of the version that is to be refused
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        await asyncio.open_connection("127.0.0.1", port(site), ssl=context)
    labels = {"group": "", "reason": "tls_version"}
    assert site.running.metrics.registry.get_sample_value("routerd_eventd_listener_turned_away_total", labels) == 1


async def test_a_thousand_half_open_handshakes_keep_no_other_client_out(sites: MakeSites, ca: Authority) -> None:
    site = await serve(sites, ca, max_connections="64", max_sse_connections="64")
    hello = first_flight(ca)
    async with Client(address(site), tls=ClientTlsConfig(ca_file=str(ca.file)), retry=ONCE) as known:
        await known.topics.put("t")
        silent: list[socket.socket] = []
        try:
            for number in range(1000):
                each = socket.create_connection(("127.0.0.1", port(site)))
                silent.append(each)
                each.sendall(hello[: (0, 1, len(hello) // 2, len(hello))[number % 4]])
                if number % 100 == 0:
                    await known.topics.get("t")
                    async with Client(address(site), tls=ClientTlsConfig(ca_file=str(ca.file)), retry=ONCE) as new:
                        await new.reach()
            await known.topics.get("t")
        finally:
            for each in silent:
                each.close()
    displaced = {"group": "", "reason": "displaced"}
    away = site.running.metrics.registry.get_sample_value("routerd_eventd_listener_turned_away_total", displaced)
    assert away is not None
    assert away >= 700, "the silent ones displace one another, beyond `max_connections`"


def first_flight(ca: Authority) -> bytes:
    """Return the first bytes of a TLS client."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=str(ca.file)).wrap_bio(
        ssl.MemoryBIO(), sent, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


async def test_a_certificate_that_cannot_be_used_keeps_the_node_from_starting(sites: MakeSites, ca: Authority) -> None:
    (site,) = sites("n")
    late = ca.issue("late", lasts=-DAY)
    with pytest.raises(CertificateUnusable, match="has expired"):
        await site.start(api_tls_cert_file=str(late.cert), api_tls_key_file=str(late.key))
    site.node = None
    good = ca.issue("good")
    good.key.chmod(0o604)
    with pytest.raises(CertificateUnusable, match="every user of this machine may read or change the private key"):
        await site.start(api_tls_cert_file=str(good.cert), api_tls_key_file=str(good.key))
    site.node = None


@pytest.mark.parametrize(
    "flags",
    [
        {"api_tls_cert_file": "/a"},
        {"api_tls_key_file": "/a"},
        {"api_tls_client_ca_file": "/a"},
        {"api_clients": "a"},
    ],
)
def test_settings_that_lack_another_one_are_refused(flags: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="as well"):
        load(flags, {})


@pytest.mark.parametrize(
    ("clients", "entry"),
    [(",,,", "entry 1 of ',,,'"), ("a:read,,b", "entry 2 of 'a:read,,b'"), ("a,", "entry 2"), (["a", ""], "entry 2")],
)
def test_an_empty_entry_of_api_clients_is_refused(clients: object, entry: str) -> None:
    with pytest.raises(SettingsError, match=f"^--api-clients: {entry}.* is empty: leave it out, with its comma$"):
        load({**CLIENT_TLS, "api_clients": clients}, {})


@pytest.mark.parametrize("clients", ["", [], "a:read", "# names\n\na:read, b:read\n", ["# names", "a"]])
def test_entries_of_api_clients(clients: object) -> None:
    assert load({**CLIENT_TLS, "api_clients": clients}, {}) is not None


async def test_a_node_that_is_not_the_right_one_is_not_tried_again(sites: MakeSites, ca: Authority) -> None:
    site = await serve(sites, ca)
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async with Client(address(site), pause=wait) as client:
        with pytest.raises(Lost, match="tls_unknown_ca"):
            await client.topics.get("t")
    async with Client(address(site, "http"), pause=wait) as client:
        with pytest.raises(Invalid, match="speaks TLS"):
            await client.topics.get("t")
    assert waits == []
    with pytest.raises(Invalid, match="not reached over TLS"):
        Client(address(site, "http"), tls=ClientTlsConfig(ca_file=str(ca.file)))
