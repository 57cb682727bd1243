"""What a node keeps of the trees of files that it has signed: in its own database, beside the cursor of its events.

The lake alone cannot show a node that its files were put back to an earlier hour, or that its tree was removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from eventd.egress.lake.protocol import SignedFiles, cursor_name
from eventd.lake.schema import Ledger
from eventd.log.cursors.cursors import Cursor, change_cursor_selection, read_cursors
from eventd.store.engine.database import Connection

_FILES: Final = "files"


def signed_files(nodes: Collection[str], cursors: Mapping[str, Cursor], lake: str) -> dict[str, SignedFiles]:
    """Return by node what is kept of its tree in the lake with this id."""
    kept = {node: cursors[cursor_name(node, Ledger.EVENTS)].selection for node in nodes}
    return {node: found for node, each in kept.items() if (found := _read(each, lake)) is not None}


def _read(selection: Mapping[str, Any], lake: str) -> SignedFiles | None:
    if selection.get("lake") != lake or _FILES not in selection:
        return None
    try:
        return msgspec.convert(selection[_FILES], SignedFiles)
    except msgspec.ValidationError:  # of another version
        return None


def keep_signed_files(conn: Connection, files: Sequence[SignedFiles]) -> list[SignedFiles]:
    """Store what has changed; return the trees of the same epoch that others have replaced.

    A tree only grows: a smaller size of the same one is not stored.
    """
    return [*_keep(conn, files)]


def _keep(conn: Connection, files: Sequence[SignedFiles]) -> Iterator[SignedFiles]:
    for one in files:
        found = read_cursors(conn, name=cursor_name(one.node, Ledger.EVENTS))
        if not found:  # the node has left all groups meanwhile
            continue
        cursor = found[0]
        before = _read(cursor.selection, cursor.selection.get("lake", ""))
        if before is not None and before.size > one.size and replace(before, size=one.size) == one:
            continue
        if before != one:
            change_cursor_selection(conn, cursor.name, {**cursor.selection, _FILES: msgspec.to_builtins(one)})
        if before is not None and before.epoch == one.epoch and before.tree != one.tree:
            yield before
