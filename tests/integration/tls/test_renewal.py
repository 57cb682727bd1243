"""Certificates that are renewed while events flow, and what doctor, metrics and the log say of their end."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import pytest

from eventd.node import certificates
from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.certificates import DAY, Authority
from tests.support.declared import callback, group, peer
from tests.support.sites import Site


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


async def join(ca: Authority, *sites: Site) -> None:
    """Connect the nodes over mutual TLS; each has the certificate of its name."""
    for site in sites:
        shown = ca.issue(site.name, node=site.name).listen
        document = group(site.name, secret=site.secret)
        tls = {**shown, "clientCaFile": str(ca.file)}
        document["spec"]["listen"] = {"address": "127.0.0.1", "port": site.port, "tls": tls}
        others = [
            peer(
                other.name,
                other.port,
                endpoint=f"https://127.0.0.1:{other.port}",
                tls={**shown, "caFile": str(ca.file)},
                limits={"batchEvents": 5},
            )
            for other in sites
            if other is not site
        ]
        await site.apply(document, *others)


async def test_renewal_of_both_ends_under_load_loses_and_doubles_nothing(sites: MakeSites, ca: Authority) -> None:
    a, b = sites("a", "b")
    for site in (a, b):
        await site.start()
    await join(ca, a, b)
    sent = {site.name: [f"{site.name}{number}" for number in range(80)] for site in (a, b)}

    async def emit(site: Site) -> None:
        for name in sent[site.name]:
            await site.emit(name)

    async def renew() -> None:
        for _ in range(4):
            for site in (a, b):
                ca.issue(site.name, node=site.name)
                await site.running.reload()
                for pool in site.running.certificates.transport._pools.values():
                    pool.close()  # also those under way: every link connects again, with the new certificate
            await asyncio.sleep(0)

    await asyncio.gather(emit(a), emit(b), renew())
    await b.holds(*sent["a"], seconds=60)
    await a.holds(*sent["b"], seconds=60)
    for here, other in ((a, "b"), (b, "a")):
        arrived = await here.ids(source=other)
        assert arrived == sent[other], "in order, each once"


async def test_a_changed_file_is_noticed_without_a_signal(
    sites: MakeSites, ca: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0.05)
    a, b = sites("a", "b")
    for site in (a, b):
        await site.start()
    await join(ca, a, b)
    tls = b.running.groups["edge"].tls
    assert tls is not None
    renewed = ca.issue("b", node="b", lasts=DAY * 60)

    def loaded() -> bool:
        shown = tls.value.certificate
        return shown is not None and shown.pin == renewed.pin

    await until(loaded, "the new certificate to be loaded")
    name = "routerd_eventd_certificate_expiry_timestamp_seconds"
    labels = {"group": "edge", "peer": ""}
    end = (datetime.datetime.now(datetime.UTC) + DAY * 60).timestamp()
    registry = b.running.metrics.registry

    def shown() -> bool:
        return abs((registry.get_sample_value(name, labels) or 0.0) - end) < 3600

    await until(shown, "the metric to have the new end")


async def test_doctor_and_log_tell_of_an_end_that_is_near(
    sites: MakeSites, ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    (site,) = sites("n")
    api = ca.issue("api", lasts=DAY * 2)
    await site.start(api_tls_cert_file=str(api.cert), api_tls_key_file=str(api.key))
    document = group("n", secret=site.secret)
    listener = ca.issue("n", lasts=DAY * 10)
    document["spec"]["listen"] = {"address": "127.0.0.1", "port": site.port, "tls": listener.listen}
    await site.apply(document)
    await site.running.certificates.refresh()
    lines = [vars(line) for line in caplog.records if line.getMessage() == "certificate expiring"]
    assert {(line["group"], line["days"]) for line in lines} == {("", 1), ("edge", 9)}
    states = site.running.certificates.read(site.running.reconciler.configs.values())
    assert [(state.name, state.trouble) for state in states] == [("API", ""), ("edge listener", "")]


async def test_the_certificate_shown_to_the_endpoint_of_a_callback_is_reported_too(
    sites: MakeSites, ca: Authority
) -> None:
    (site,) = sites("n")
    await site.start()
    shown = ca.issue("client", lasts=DAY * 10)
    document = callback(
        "billing",
        tls={"caFile": str(ca.file), "clientCertFile": str(shown.cert), "clientKeyFile": str(shown.key)},
    )
    await site.apply(group("n", secret=site.secret), document)

    def read() -> list[tuple[str, str, str]]:
        states = site.running.certificates.read([])
        return [(state.group, state.peer, state.trouble) for state in states]

    await until(lambda: read() == [("(callbacks)", "billing", "")], "the callback to be served")
    await site.running.certificates.refresh()
    labels = {"group": "(callbacks)", "peer": "billing"}
    name = "routerd_eventd_certificate_expiry_timestamp_seconds"
    assert site.running.metrics.registry.get_sample_value(name, labels)
    shown.key.unlink()
    ((_, _, trouble),) = read()
    assert f"cannot read {shown.key}" in trouble
