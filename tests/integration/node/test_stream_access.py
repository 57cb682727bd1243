"""Streams and caches of a whole node end with what has let their clients in: a key, a tenant, a key of the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventd.client import Event, StreamClient, Subscription
from eventd.errors import Forbidden, SettingsError, Unauthorized
from eventd.quic.certificate import QuicCertificate
from eventd.runtime.clock import SECOND
from tests.support.sites import Site
from tests.support.stream_tokens import KEY, OTHER, jwk, jwks, stream_token

PERMISSIONS = ("stream.publish:stream:t1/*", "stream.subscribe:stream:t1/*", "cache.read:*", "cache.write:*")
STREAM = "default/orders"


def declared(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "stream.routerd.net/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


class StreamSite:
    """A node with a QUIC listener, and clients of it."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.folder = folder
        self.file = folder / "t1.json"

    async def start(self, **flags: Any) -> None:
        given = {"quic_listen": "127.0.0.1:0", "data_dir": str(self.folder), "quic_auto_create": True}
        await self.site.start(**given | flags)

    def client(self, token: str, tenant: str = "t1") -> StreamClient:
        streams = self.site.running.streams
        assert streams is not None
        assert streams.address is not None
        _, ca = QuicCertificate.kept_in(self.folder, "streams", self.site.clock.now())
        return StreamClient(f"127.0.0.1:{streams.address[1]}", tenant, token, ca=ca, patience=5.0)

    def token(self, **options: Any) -> str:
        return stream_token("t1", *PERMISSIONS, now=self.site.clock.now() // SECOND, **options)

    def write_keys(self, *keys: dict[str, Any]) -> None:
        new = self.file.with_suffix(".new")
        new.write_bytes(jwks(*keys))
        new.replace(self.file)


@pytest.fixture
async def node(sites: Callable[..., list[Site]], tmp_path: Path) -> StreamSite:
    (site,) = sites("a")
    return StreamSite(site, tmp_path)


async def follow(streams: StreamClient) -> Subscription:
    """A subscription that is under way: its first event has arrived."""
    subscription = streams.subscribe(STREAM, "earliest")
    assert isinstance(await anext(aiter(subscription)), Event)
    return subscription


async def test_a_subscription_ends_when_its_key_leaves_the_file(node: StreamSite) -> None:
    node.write_keys(jwk(), jwk(OTHER, "k2"))
    await node.start()
    await node.site.apply(
        declared("StreamTenant", "t1", jwksFile=str(node.file)), declared("StreamCache", "c", tenant="t1")
    )
    async with (
        node.client(node.token()) as first,
        node.client(node.token(key=OTHER, key_id="k2", subject="other")) as second,
    ):
        await second.publish(STREAM, b"one")
        await second.cache("default/default").put("k", b"v")
        ended, left = await follow(first), await follow(second)
        before = node.site.clock.monotonic()
        node.write_keys(jwk(OTHER, "k2"))
        with pytest.raises(Unauthorized):
            await anext(aiter(ended))
        assert node.site.clock.monotonic() - before < 5  # at once but for a busy machine
        await second.publish(STREAM, b"two")
        event = await anext(aiter(left))
        assert isinstance(event, Event)
        assert event.payload == b"two"
        assert await second.cache("default/default").get("k") == b"v"


async def test_a_subscription_ends_with_its_tenant(node: StreamSite) -> None:
    await node.start()
    keys = {"keys": [jwk(KEY)]}
    await node.site.apply(declared("StreamTenant", "t1", jwks=keys), declared("StreamTenant", "t2", jwks=keys))
    async with node.client(node.token()) as streams:
        await streams.publish(STREAM, b"one")
        ended = await follow(streams)
        await node.site.ask("resources.delete", kind="StreamTenant", name="t1")
        with pytest.raises(Unauthorized):
            await anext(aiter(ended))


async def test_a_key_of_the_api_is_let_in_within_its_prefix_and_ends_with_it(node: StreamSite) -> None:
    keys = node.folder / "keys"
    keys.write_text("whole\nreader:r:stream:t1:\nother:rw:stream:t2:\n")
    keys.chmod(0o600)
    await node.start(api_keys_file=str(keys))
    async with node.client("whole") as whole, node.client("reader") as reader, node.client("other") as other:
        await whole.publish(STREAM, b"one")
        ended = await follow(reader)
        with pytest.raises(Forbidden):
            await reader.publish(STREAM, b"two")
        with pytest.raises(Forbidden):
            await other.publish(STREAM, b"two")
        keys.write_text("whole\n")
        await node.site.running.reload()
        with pytest.raises(Unauthorized):
            await anext(aiter(ended))
        await whole.publish(STREAM, b"two")


async def test_everybody_is_let_in_until_there_is_a_tenant(node: StreamSite) -> None:
    await node.start()
    async with node.client("") as streams:
        await streams.publish(STREAM, b"one")
        ended = await follow(streams)
        await node.site.apply(declared("StreamTenant", "t1", jwks={"keys": [jwk(KEY)]}))
        with pytest.raises(Unauthorized):
            await anext(aiter(ended))


async def test_a_node_that_others_reach_starts_only_with_keys_or_tenants(node: StreamSite) -> None:
    with pytest.raises(SettingsError, match="neither keys nor tenants"):
        await node.start(quic_listen="0.0.0.0:0")
    await node.site.stop()
    await node.start()
    await node.site.apply(declared("StreamTenant", "t1", jwks=json.loads(jwks())))
    await node.site.stop()
    await node.start(quic_listen="0.0.0.0:0")
    async with node.client(node.token()) as streams:
        await streams.publish(STREAM, b"one")
