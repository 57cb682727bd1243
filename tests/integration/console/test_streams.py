"""Streams in the console: the topics behind them by tenant, and the tenants and caches that are declared."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import EDGE, READ
from tests.integration.console.test_topics import create, signed_in
from tests.support.sites import Site

JWK = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}


def declared(kind: str, name: str, /, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "stream.routerd.net/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def test_streams_are_listed_by_tenant_and_other_topics_are_not(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    assert "No stream yet." in (await one.get("/console/streams")).text
    for topic in ("stream:t1:default:orders", "stream:t1x:default:orders", "orders"):
        await create(one, topic)
    every = (await one.get("/console/streams")).text
    assert re.findall('<tr id="t-([^"]*)"', every) == ["stream:t1:default:orders", "stream:t1x:default:orders"]
    assert 'href="/console/topics/stream%3At1%3Adefault%3Aorders">t1/default/orders</a>' in every
    of_one = (await one.get("/console/streams?tenant=t1")).text
    assert re.findall('<tr id="t-([^"]*)"', of_one) == ["stream:t1:default:orders"]
    assert "The tenant zz has no stream." in (await one.get("/console/streams?tenant=zz")).text


async def test_a_new_stream_has_the_beginning_of_its_name_in_the_form(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    query = urlencode({"topic": "stream:t1:default:NAME"})
    assert f"/console/do/topics.create?back=%2Fconsole%2Fstreams&amp;{query}" in (
        (await one.get("/console/streams?tenant=t1")).text
    )
    assert 'value="stream:t1:default:NAME"' in (await one.get(f"/console/do/topics.create?{query}")).text


async def test_tenants_and_caches_are_shown_with_what_doctor_says(site: Site, browser: MakeBrowser) -> None:
    await site.apply(
        declared("StreamTenant", "t1", jwks={"keys": [JWK]}),
        declared("StreamTenant", "t2", jwksFile=str(site.directory / "missing.json")),
        declared("StreamCache", "sessions", tenant="t1", maxEntries=5000),
        declared("StreamCache", "lost", tenant="t9", name="lost"),
    )
    text = (await (await signed_in(site, browser)).get("/console/streams")).text
    rows = dict(re.findall(r'<tr id="((?:tenant|cache)-[^"]*)">(.*?)</tr>', text, re.S))
    assert ("1 key" in rows["tenant-t1"], "missing.json" in rows["tenant-t2"]) == (True, True)
    assert "5,000" in rows["cache-sessions"]
    assert "t1/default/default" in rows["cache-sessions"]
    assert "the tenant t9 is not declared" in rows["cache-lost"]
    assert "nothing listens for clients" in text


async def test_a_key_of_some_names_sees_its_streams_and_no_tenants(site: Site, browser: MakeBrowser) -> None:
    await site.apply(declared("StreamTenant", "t1", jwks={"keys": [JWK]}))
    reader = (await (await signed_in(site, browser, READ)).get("/console/streams")).text
    assert 'id="tenant-t1"' in reader
    limited = await (await signed_in(site, browser, EDGE)).get("/console/streams")
    assert (limited.status, "not limited to some names" in limited.text) == (200, True)
    assert "tenant-t1" not in limited.text
