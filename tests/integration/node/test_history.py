"""A running node seals the history of its groups: from the first event, over starts, until it is turned off."""

from __future__ import annotations

import stat
from pathlib import Path

from eventd.log.history.trees import StoredCheckpoint, Tree, find_open_tree, read_checkpoint_of
from eventd.node.sealing import SEAL_SECONDS
from eventd.store.engine.database import Connection
from eventd.testing import ManualClock, draft, until
from eventd.witnessing.node_keys import KEY_FILE
from federation.history.notes import LOG_KEY, read_vkey
from tests.support import plain_history as plain
from tests.support.declared import group
from tests.support.sites import Site


def recording(mode: str = "record") -> dict[str, object]:
    declared = group("a")
    declared["spec"]["history"] = {"mode": mode}
    return declared


def read_state(conn: Connection, topic: int) -> tuple[Tree | None, StoredCheckpoint | None]:
    tree = find_open_tree(conn, topic)
    return tree, read_checkpoint_of(conn, tree.id) if tree else None


async def sealed(site: Site, clock: ManualClock, size: int) -> tuple[Tree, StoredCheckpoint]:
    """Wait for the checkpoint of this size."""
    found: list[tuple[Tree, StoredCheckpoint]] = []

    async def is_there() -> bool:
        clock.advance(SEAL_SECONDS)
        log = site.running.log
        tree, last = await log.database.read(read_state, await log.topic("group:edge"))
        if tree and last and last.size == size:
            found.append((tree, last))
        return bool(found)

    await until(is_there, f"a checkpoint of size {size}")
    return found[0]


async def emit(site: Site, *ids: str) -> None:
    log = site.running.log
    await log.append(await log.topic("group:edge"), [draft(id, group="edge") for id in ids])


async def test_a_node_signs_checkpoints_of_what_it_admits_and_continues_the_tree(tmp_path: Path) -> None:
    clock = ManualClock()
    site = await Site("a", tmp_path, clock=clock).start()
    try:
        await site.apply(recording())
        await emit(site, "e1", "e2")
        tree, last = await sealed(site, clock, 3)
        assert plain.open_checkpoint(last.note.encode(), tree.log_key, []) == (3, last.root, {})
        assert tree.origin.startswith("eventd/edge/a/")
        size = site.running.metrics.registry.get_sample_value("routerd_eventd_history_size", {"group": "edge"})
        assert size == 3
        key = site.file.parent / KEY_FILE
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        await site.stop()
        await site.start()
        await emit(site, "e3")
        again, _ = await sealed(site, clock, 4)
        assert again.origin == tree.origin
    finally:
        await site.stop()


async def test_a_group_without_a_history_has_no_tree_and_no_key(tmp_path: Path) -> None:
    clock = ManualClock()
    site = await Site("a", tmp_path, clock=clock).start()
    try:
        await site.apply(recording())
        await emit(site, "e1")
        await sealed(site, clock, 2)
        await site.apply(recording("off"))

        async def is_off() -> bool:
            clock.advance(SEAL_SECONDS)
            log = site.running.log
            return await log.database.read(find_open_tree, await log.topic("group:edge")) is None

        await until(is_off, "the tree to be closed")
        registry = site.running.metrics.registry

        async def is_forgotten() -> bool:
            return registry.get_sample_value("routerd_eventd_history_size", {"group": "edge"}) is None

        await until(is_forgotten, "the size of the tree to be shown no more")
    finally:
        await site.stop()


async def test_a_group_that_is_declared_after_the_key_file_was_deleted_is_signed_with_the_keys_in_use(
    tmp_path: Path,
) -> None:
    site = await Site("a", tmp_path, clock=ManualClock()).start()
    try:
        await site.apply(recording())
        (site.file.parent / KEY_FILE).unlink()
        await site.apply(group("a", name="later", history={"mode": "record"}))
        log = site.running.log
        topics = [await log.topic(f"group:{name}") for name in ("edge", "later")]
        trees = [await log.database.read(find_open_tree, topic) for topic in topics]
        ids = {read_vkey(tree.log_key, LOG_KEY).public for tree in trees if tree}
        assert (all(trees), len(ids)) == (True, 1)
        assert not (site.file.parent / KEY_FILE).exists(), "with other keys in it, the trees of all groups would end"
    finally:
        await site.stop()
