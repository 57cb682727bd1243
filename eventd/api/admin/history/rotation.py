"""Rotation of the key that signs a node's trees."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pydantic import Field

from eventd.api.admin.history.key_folder import key_folder
from eventd.api.framework.operations import Params, Services
from eventd.errors import Conflict, SettingsError
from eventd.groups.lookup import read_group_topic
from eventd.log.history.trees import find_open_tree
from eventd.resources.group_configuration import effective
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from eventd.witnessing.node_keys import rotate_log_key
from federation.errors import HistoryError
from federation.history.notes import LOG_KEY, key_part, read_vkey


class RotateKey(Params):
    """Whether the old key signs the change."""

    lost: bool = Field(
        default=False,
        description="The old key is lost, or others have it: it does not sign the change, and each peer must confirm"
        " the new one.",
    )


async def rotate(services: Services, params: RotateKey) -> dict[str, Any]:
    """Replace the key of this node's trees by a new one: each group with a history opens a tree that is signed with
    it."""
    folder = key_folder(services)
    if folder is None:
        raise Conflict("the key file is in the data directory of the node, which does not run", hint="start it")
    topics = await services.database.read(_read_topics)
    signing = await services.database.read(_read_keys, topics.values())
    try:
        keys = await asyncio.to_thread(rotate_log_key, folder, services.log.chance, signing, lost=params.lost)
    except SettingsError as error:
        raise Conflict(error.message, hint=error.hint) from None
    for topic_id in topics.values():
        services.log.wakeups.touch(topic_id)  # its tree is opened at once
    public = keys.log.public_key().public_bytes_raw()
    return {"key": key_part(LOG_KEY, public), "lost": params.lost, "groups": sorted(topics)}


def _read_topics(conn: Connection) -> dict[str, int]:
    """Return the topics of the groups that keep a history, by group."""
    kept = [name for name, group in effective(read_resources(conn)).items() if group.keeps_history]
    return {name: read_group_topic(conn, name).id for name in kept}


def _read_keys(conn: Connection, topics: Iterable[int]) -> set[bytes]:
    """Return the public keys of the trees that are open, but for what was damaged in the database."""
    found: set[bytes] = set()
    for tree in (find_open_tree(conn, topic_id) for topic_id in topics):
        with suppress(HistoryError):
            found |= {read_vkey(tree.log_key, LOG_KEY).public} if tree is not None else set()
    return found
