"""A node without a network that keeps a tree in each of its groups, sealed when a test says so."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.log.core.eventlog import EventLog
from eventd.log.history.open_tree import TreeOwner, open_tree
from eventd.log.history.seal import hash_new, store_checkpoint
from eventd.store.engine.database import Database
from eventd.testing import ManualClock, draft
from tests.support.lakes import NOON
from tests.support.ledger_store import LedgerStore

KEY = Ed25519PrivateKey.from_private_bytes(b"1" * 32)
_MOST_LEAVES = 1_000


class SealedNode(LedgerStore):
    """A node that signs its trees with `key`."""

    def __init__(self, log: EventLog, key: Ed25519PrivateKey = KEY) -> None:
        super().__init__(log)
        self.key = key

    async def grow(self, group: str, *ids: str, node: str = "a") -> None:
        """Open the tree of a group where that is due, and publish events."""
        topic = await self.log.topic(f"group:{group}")
        await self.log.database.write(open_tree, topic, TreeOwner(group, node, self.key), NOON)
        await self.publish(*(draft(id, group=group, node=node) for id in ids), group=group)

    async def seal(self, group: str, node: str = "a") -> bool:
        """Sign a checkpoint of all that is there; return False if the tree ends instead, because it is damaged."""
        topic = await self.log.topic(f"group:{group}")
        hashed = await self.log.database.read(hash_new, topic, _MOST_LEAVES)
        assert hashed is not None
        owner = TreeOwner(group, node, self.key)
        return await self.log.database.write(store_checkpoint, hashed, owner, NOON) is not None

    async def close(self) -> None:
        """Stop the node."""
        await self.log.close()
        self.log.database.close()


async def open_sealed_node(url: str, key: Ed25519PrivateKey = KEY) -> SealedNode:
    """Return the node that has this database."""
    return SealedNode(await EventLog.open(Database(url), ManualClock(NOON)), key)
