"""Groups and peers as they are declared: each stored spec is validated once, and a changed one again."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.api.framework.operations import Services
from eventd.groups.lookup import find_group
from eventd.log.core.eventlog import EventLog
from eventd.resources.group_configuration import GroupConfig
from federation.history.notes import LOG_KEY, NoteSigner
from tests.support import operations
from tests.support.declared import declare, group, peer


async def declared(log: EventLog, *documents: dict[str, Any]) -> GroupConfig:
    sources = [{"name": "test", "text": declare(*documents)}]
    await operations.run(Services(log), "resources.apply", sources=sources, prune=False)
    return await log.database.read(find_group, "edge")


def edge(**spec: Any) -> dict[str, Any]:
    return group("a", port=8787, secret="/etc/edge.key", name="edge", **spec)


async def test_a_declared_peer_is_validated_once(log: EventLog) -> None:
    first = await declared(log, edge(), peer("b", 8788), peer("c", 8789))
    again = await log.database.read(find_group, "edge")
    assert again == first
    assert [again.peers[name] is first.peers[name] for name in ("edge-b", "edge-c")] == [True, True]


async def test_a_changed_peer_and_a_changed_group_are_read_anew(log: EventLog) -> None:
    first = await declared(log, edge(), peer("b", 8788), peer("c", 8789))
    moved = await declared(log, peer("b", 9999))
    assert moved.peers["edge-b"].endpoint == "http://127.0.0.1:9999"
    assert moved.peers["edge-c"] == first.peers["edge-c"]
    narrowed = await declared(log, edge(protocols=["v1"]))
    assert (narrowed.protocols, narrowed.peers["edge-b"].protocol) == (frozenset({"v1"}), "v1")
    assert moved.peers["edge-b"].protocol == "auto"


async def test_the_peers_of_another_group_are_left_out(log: EventLog) -> None:
    found = await declared(
        log, edge(), group("a", secret="/etc/core.key", name="core"), peer("b", 8788), peer("x", 8790, group="core")
    )
    assert [*found.peers] == ["edge-b"]
    assert [*(await log.database.read(find_group, "core")).peers] == ["core-x"]


async def test_keys_that_are_declared_with_a_peer_count_for_its_group(log: EventLog) -> None:
    signer = NoteSigner("eventd/edge/b/" + "t" * 16, LOG_KEY, Ed25519PrivateKey.from_private_bytes(b"1" * 32))
    pinned = peer("b", 8788, history={"logKey": signer.key.text()})
    found = await declared(log, edge(), pinned, peer("c", 8789))
    assert found.history_pins == {("b", "log"): signer.key.public}
