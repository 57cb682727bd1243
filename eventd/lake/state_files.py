"""The files of the states of nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from eventd.lake.file_sizes import MOST_JSON, larger
from eventd.lake.layout import MANIFEST, NODES, is_state, slug, state_path
from eventd.lake.listed_files import read_listed, read_small
from eventd.lake.manifest import NodeState, Unreadable, decode
from eventd.lake.storage import Storage


class StateFile(NamedTuple):
    """The file of a node's state; the node as a slug. If the file cannot be decoded, `state` is the error.

    `sha256` is the digest of the file, in hex; empty for a file that is too large to be read.
    """

    path: str
    sha256: str
    slug: str
    epoch: str
    state: NodeState | Unreadable


def state_files(storage: Storage) -> Iterator[StateFile]:
    """Yield the state file of every node and epoch, decodable or not, sorted by path. Raises LakeUnavailable."""
    files = [entry for entry in storage.list(NODES) if is_state(entry.path)]
    for path, text in read_listed(storage, files, MOST_JSON):
        _, node, epoch = path.removesuffix(MANIFEST).split("/")
        if text is None:
            yield StateFile(path, "", node, epoch, Unreadable(larger(MOST_JSON)))
            continue
        sha256 = hashlib.sha256(text).hexdigest()
        try:
            yield StateFile(path, sha256, node, epoch, decode_state(text, node, epoch))
        except Unreadable as error:
            yield StateFile(path, sha256, node, epoch, error)


def decode_state(text: bytes, slug_: str, epoch: str) -> NodeState:
    """Decode the state of the node with this slug. Raises Unreadable, also for the state of another node or epoch."""
    state = decode(text, NodeState)
    if (slug(state.node), state.epoch) != (slug_, epoch):
        raise Unreadable("belongs to another node or epoch than its path says")
    return state


def read_state(storage: Storage, node: str, epoch: str) -> NodeState | None:
    """Read the state of a node's epoch; None if it is missing or cannot be decoded. Raises LakeUnavailable."""
    path = state_path(node, epoch)
    try:
        return decode_state(read_small(storage, [path]).get(path, b""), slug(node), epoch)
    except Unreadable:
        return None
