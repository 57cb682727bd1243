"""Trees in a database without a node: open one, add events, seal them."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.log.core.eventlog import EventLog
from eventd.log.history.open_tree import TreeOwner, open_tree
from eventd.log.history.seal import hash_new, store_checkpoint
from eventd.log.history.trees import StoredCheckpoint, Tree
from eventd.testing import NOW, draft

OWNER = TreeOwner("g", "site-a", Ed25519PrivateKey.from_private_bytes(b"1" * 32))


async def start(log: EventLog, owner: TreeOwner = OWNER, name: str = "group:g") -> tuple[int, Tree]:
    topic = await log.topic(name)
    return topic, await log.database.write(open_tree, topic, owner, NOW)


async def emit(log: EventLog, topic: int, *ids: str, path: str = "") -> None:
    await log.append(topic, [draft(id, group="g", path=path) for id in ids])


async def seal_now(log: EventLog, topic: int, owner: TreeOwner = OWNER) -> StoredCheckpoint | None:
    hashed = await log.database.read(hash_new, topic)
    assert hashed is not None
    return await log.database.write(store_checkpoint, hashed, owner, NOW)


async def signed(log: EventLog, topic: int, owner: TreeOwner = OWNER) -> StoredCheckpoint:
    stored = await seal_now(log, topic, owner)
    assert stored is not None
    return stored
