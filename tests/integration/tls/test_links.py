"""Links over TLS: each mistake has its own reason, at the node that connects and at the one that listens."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.certificates import DAY, Authority, Files
from tests.support.declared import group, peer
from tests.support.sites import Site


class Pair:
    """Two nodes: `a` sends to `b` over TLS."""

    def __init__(self, a: Site, b: Site, folder: Path) -> None:
        self.a, self.b = a, b
        self.ca = Authority(folder)
        self.other = Authority(folder / "other", "other")
        self.server = self.ca.issue("b", node="b")
        self.client = self.ca.issue("a", node="a")

    async def start(self, *, server: Files | None = None, mutual: bool = False, **tls: Any) -> None:
        """Start both; `tls` is the sender's `spec.tls`."""
        listen = (server or self.server).listen | ({"clientCaFile": str(self.ca.file)} if mutual else {})
        for site in (self.a, self.b):
            await site.start()
        on = group("b", secret=self.b.secret)
        on["spec"]["listen"] = {"address": "127.0.0.1", "port": self.b.port, "tls": listen}
        await self.b.apply(on, peer("a", self.a.port))
        await self.a.apply(
            group("a", port=self.a.port, secret=self.a.secret),
            peer("b", self.b.port, endpoint=f"https://127.0.0.1:{self.b.port}", tls=tls),
        )
        await self.a.emit("e1")

    async def blocked(self, reason: str) -> str:
        """Wait until the link is blocked for this reason, then return its last error."""
        cursor = await self.a.in_state("b", "blocked", reason)
        assert await self.b.ids() == []
        return cursor.last_error

    def refused(self, reason: str) -> float:
        """Return how many connections the listener of `b` has refused for this reason."""
        labels = {"group": "edge", "reason": reason}
        registry = self.b.running.metrics.registry
        return registry.get_sample_value("routerd_eventd_listener_turned_away_total", labels) or 0.0


@pytest.fixture
def pair(sites: MakeSites, tmp_path: Path) -> Pair:
    a, b = sites("a", "b")
    return Pair(a, b, tmp_path / "tls")


# --- what works ---------------------------------------------------------------------------------------------------


async def test_a_certificate_of_ones_own_ca(pair: Pair) -> None:
    await pair.start(caFile=str(pair.ca.file))
    await pair.b.holds("e1")


async def test_a_server_name_other_than_the_host(pair: Pair) -> None:
    server = pair.ca.issue("named", hosts=("b.example",))
    await pair.start(server=server, caFile=str(pair.ca.file), serverName="b.example")
    await pair.b.holds("e1")


async def test_a_pin_alone_is_enough_for_a_certificate_without_a_ca(pair: Pair) -> None:
    await pair.start(pins=[pair.server.pin])
    await pair.b.holds("e1")


async def test_both_show_certificates(pair: Pair) -> None:
    await pair.start(mutual=True, caFile=str(pair.ca.file), **pair.client.listen)
    await pair.b.holds("e1")


async def test_v1_over_tls(pair: Pair) -> None:
    await pair.start(mutual=True, caFile=str(pair.ca.file), **pair.client.listen)
    old = peer(
        "b",
        pair.b.port,
        endpoint=f"https://127.0.0.1:{pair.b.port}",
        protocol="v1",
        tls={"caFile": str(pair.ca.file), **pair.client.listen},
    )
    await pair.a.apply(old)
    await pair.a.emit("e2")
    await pair.b.holds("e1", "e2")


# --- the certificate of the node that listens ---------------------------------------------------------------------


async def test_a_certificate_of_another_ca_is_not_trusted(pair: Pair) -> None:
    await pair.start(caFile=str(pair.other.file))
    assert "issuer" in await pair.blocked("tls_unknown_ca")


async def test_the_systems_cas_do_not_trust_ones_own(pair: Pair) -> None:
    await pair.start()
    await pair.blocked("tls_unknown_ca")


async def test_a_certificate_of_another_name(pair: Pair) -> None:
    await pair.start(caFile=str(pair.ca.file), serverName="c.example")
    assert "not valid for 'c.example'" in await pair.blocked("tls_wrong_name")


@pytest.mark.parametrize("pinned", [False, True])
async def test_an_expired_certificate(pair: Pair, pinned: bool) -> None:
    await pair.start(caFile=str(pair.ca.file))
    await pair.b.holds("e1")
    await pair.b.stop()
    late = pair.ca.issue("late", node="b", lasts=-DAY)
    async with other_program(pair.b.port, late):  # a node refuses to load such a certificate
        tls = {"pins": [late.pin]} if pinned else {"caFile": str(pair.ca.file)}
        await pair.a.apply(peer("b", pair.b.port, endpoint=f"https://127.0.0.1:{pair.b.port}", tls=tls))
        await pair.a.emit("e2")
        assert "expired" in (await pair.a.in_state("b", "blocked", "tls_expired")).last_error


async def test_another_key_than_the_pinned_one(pair: Pair) -> None:
    await pair.start(caFile=str(pair.ca.file), pins=[pair.client.pin])
    assert pair.server.pin in await pair.blocked("tls_wrong_pin")


async def test_the_certificate_of_another_node(pair: Pair) -> None:
    await pair.start(server=pair.ca.issue("c", node="c"), caFile=str(pair.ca.file))
    assert "that of c" in await pair.blocked("tls_wrong_node")


async def test_a_missing_file_is_named_and_read_as_soon_as_it_is_there(pair: Pair, tmp_path: Path) -> None:
    await pair.start(caFile=str(tmp_path / "later.crt"))
    cursor = await pair.a.in_state("b", "failed", "tls_files")
    assert str(tmp_path / "later.crt") in cursor.last_error
    (tmp_path / "later.crt").write_bytes(pair.ca.file.read_bytes())
    await pair.b.holds("e1")


async def test_a_listener_without_its_certificate_stays_closed_until_it_is_there(pair: Pair) -> None:
    kept = pair.server.key.read_bytes()
    pair.server.key.unlink()
    await pair.start(caFile=str(pair.ca.file))
    assert str(pair.server.key) in pair.b.running.readiness()["group edge"]
    pair.server.key.touch(0o600)
    pair.server.key.write_bytes(kept)
    await pair.b.holds("e1")
    assert pair.b.running.readiness()["group edge"] == "ok"


async def test_a_certificate_that_a_server_may_not_use(pair: Pair) -> None:
    await pair.start(
        server=pair.ca.issue("b", node="b", usage=ExtendedKeyUsageOID.CLIENT_AUTH), caFile=str(pair.ca.file)
    )
    assert "purpose" in await pair.blocked("tls_unverified")


async def test_the_listener_reports_that_the_other_end_hangs_up(pair: Pair) -> None:
    await pair.start(caFile=str(pair.other.file))
    await pair.blocked("tls_unknown_ca")
    await until(lambda: pair.refused("tls_unfinished") + pair.refused("tls_server_refused") > 0, "it to be counted")


async def test_an_applied_certificate_that_cannot_be_read_closes_no_listener(pair: Pair) -> None:
    await pair.start(caFile=str(pair.ca.file))
    await pair.b.holds("e1")
    document = group("b", secret=pair.b.secret)
    tls = pair.server.listen | {"certFile": "/nowhere/b.crt"}
    document["spec"]["listen"] = {"address": "127.0.0.1", "port": pair.b.port, "tls": tls}
    await pair.b.apply(document)
    assert "/nowhere/b.crt" in pair.b.running.readiness()["group edge"]
    await pair.a.emit("e2")
    await pair.b.holds("e2")
    document["spec"]["listen"]["tls"] = pair.ca.issue("new", node="b").listen
    await pair.b.apply(document)
    await pair.a.emit("e3")
    await pair.b.holds("e3")
    assert pair.b.running.readiness()["group edge"] == "ok"


# --- the certificate of the node that connects --------------------------------------------------------------------


async def test_no_certificate_where_one_is_demanded(pair: Pair) -> None:
    await pair.start(mutual=True, caFile=str(pair.ca.file))
    await pair.blocked("tls_client_missing")
    assert pair.refused("tls_client_missing") > 0


async def test_a_certificate_that_the_listener_does_not_trust(pair: Pair) -> None:
    await pair.start(mutual=True, caFile=str(pair.ca.file), **pair.other.issue("a", node="a").listen)
    await pair.blocked("tls_client_unknown_ca")
    assert pair.refused("tls_client_unknown_ca") > 0


async def test_a_valid_certificate_of_another_node(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    await pair.start(mutual=True, caFile=str(pair.ca.file), **pair.ca.issue("c", node="c").listen)
    assert "does not name a, but c" in await pair.blocked("wrong_certificate")
    refused = [line for line in caplog.records if line.getMessage() == "peer request refused"]
    assert {vars(line)["reason"] for line in refused} == {"wrong_certificate"}


# --- TLS or not ---------------------------------------------------------------------------------------------------


async def test_plain_http_where_tls_is_spoken(pair: Pair) -> None:
    await pair.start(caFile=str(pair.ca.file))
    await pair.b.holds("e1")
    await pair.a.apply(peer("b", pair.b.port))
    await pair.a.emit("e2")
    assert "speaks TLS" in (await pair.a.in_state("b", "blocked", "tls_required")).last_error
    assert pair.refused("tls_required") > 0


async def test_tls_where_plain_http_is_spoken(pair: Pair) -> None:
    for site in (pair.a, pair.b):
        await site.start()
    await pair.b.join(pair.a)
    endpoint = f"https://127.0.0.1:{pair.b.port}"
    await pair.a.apply(
        group("a", secret=pair.a.secret), peer("b", pair.b.port, endpoint=endpoint, tls={"caFile": str(pair.ca.file)})
    )
    await pair.a.emit("e1")
    await pair.blocked("tls_not_spoken")
    assert pair.refused("tls_not_spoken") > 0


# --- renewal ------------------------------------------------------------------------------------------------------


async def test_a_renewed_certificate_is_used_without_a_restart(pair: Pair) -> None:
    await pair.start(caFile=str(pair.ca.file))
    await pair.b.holds("e1")
    before = await shown_pin(pair)
    renewed = pair.ca.issue("b", node="b")
    await pair.b.running.reload()
    assert await shown_pin(pair) == renewed.pin != before


async def test_a_pair_that_does_not_match_leaves_the_old_one(pair: Pair) -> None:
    await pair.start(caFile=str(pair.ca.file))
    before = pair.server.pin
    pair.server.key.write_bytes(pair.client.key.read_bytes())
    await pair.b.running.reload()
    assert await shown_pin(pair) == before
    membership = pair.b.running.groups["edge"]
    assert membership.tls is not None
    assert "does not belong" in membership.tls.trouble


@contextlib.asynccontextmanager
async def other_program(port: int, files: Files) -> AsyncIterator[None]:
    """Let another program listen at the port, with this certificate; it hangs up after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", port, ssl=context):
        yield


async def shown_pin(pair: Pair) -> str:
    """Return the pin of the certificate that the listener of `b` shows to a new connection."""
    from eventd.tls.certificate import Certificate

    context = ssl.create_default_context(cafile=str(pair.ca.file))
    found: list[str] = []

    async def connects() -> bool:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", pair.b.port, ssl=context)
            found.append(Certificate.of_der(writer.get_extra_info("ssl_object").getpeercert(True)).pin)
            writer.transport.abort()
        return bool(found)

    await until(connects, "b to accept a connection")
    return found[-1]
