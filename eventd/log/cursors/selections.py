"""The selections of links, subscriptions and callbacks: each is stored under a version, and never changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from eventd.errors import NotFound
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, insert_row, update_rows


def declare_selection(conn: Connection, cursor: str, version: int, selection: Mapping[str, Any], now: int) -> None:
    """Store a selection under `version`, which must be new for this cursor; from now on, the cursor selects by it."""
    text = json.dumps(selection, separators=(",", ":"))
    insert_row(conn, "selectors", {"cursor": cursor, "version": version, "selection": text, "declared_at": now})
    update_rows(conn, "cursors", {"selector_version": version}, {"name": cursor})


def read_selection(conn: Connection, cursor: str, version: int | None = None) -> tuple[int, dict[str, Any]]:
    """Return (version, selection) of a cursor from `selectors`: the newest, or `version`. Raises `NotFound`."""
    only, params = ("", (cursor,)) if version is None else (" AND version = ?", (cursor, version))
    sql = f"SELECT version, selection FROM selectors WHERE cursor = ?{only} ORDER BY version DESC LIMIT 1"
    rows = fetch(conn, sql, params)
    if not rows:
        raise NotFound(f"no selection of the cursor {cursor!r} is known")
    found, text = rows[0]
    return found, json.loads(text)


def read_selections(conn: Connection, *kinds: str) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return the (version, selection) that each cursor of these kinds uses now, by name."""
    marks = ", ".join("?" * len(kinds))
    sql = (
        "SELECT selectors.cursor, selectors.version, selectors.selection FROM selectors JOIN cursors"
        " ON cursors.name = selectors.cursor AND cursors.selector_version = selectors.version"
        f" WHERE cursors.kind IN ({marks})"
    )
    return {cursor: (version, json.loads(selection)) for cursor, version, selection in fetch(conn, sql, kinds)}
