"""Follows declared resources until Ctrl-C, or until the reader of the output is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from eventd.cli.gateway.session import Session
from eventd.cli.resources.listing import columns_of, full_name, has_several, listed
from eventd.cli.terminal.output import note
from eventd.errors import NotFound
from eventd.runtime.clock import SystemClock

PAUSE = 0.5
"""Seconds between two reads."""

Key = tuple[str, str, str]


async def watch_resources(session: Session, kinds: Sequence[str], names: Collection[str], selector: str) -> None:
    """Show each resource, and show it again when it changes, until Ctrl-C.

    Print a note for a resource that disappears. `names`: only these; all if empty. Raises NotFound for an unknown
    kind.
    """
    clock, shows = SystemClock(), dict[str, Callable[..., None]]()
    seen: dict[Key, dict[str, Any]] = {}
    is_first = True
    try:
        while True:
            rows = {_key(row): row for row in await _read(session, kinds, selector, is_first=is_first)}
            rows = {key: row for key, row in rows.items() if not names or row["metadata"]["name"] in names}
            for key in ended(seen, rows):
                note(f"{'no longer selected' if selector and key not in rows else 'deleted'}: {full_name(seen[key])}")
            for key, row in rows.items():
                if seen.get(key) != row:
                    columns = columns_of(row["kind"], with_kind=has_several(kinds))
                    table = row["kind"] if session.out.is_table else ""
                    show = shows.setdefault(table, session.out.stream_rows(columns, name=full_name))
                    show([row])
            seen, is_first = rows, False
            await clock.sleep(PAUSE)
    except asyncio.CancelledError:
        return  # Ctrl-C is how it ends


def ended(seen: Mapping[Key, Mapping[str, Any]], rows: Mapping[Key, Mapping[str, Any]]) -> list[Key]:
    """Return the resources that have disappeared since the last read, also those that were created again meanwhile."""
    return [key for key, row in seen.items() if key not in rows or _created(rows[key]) != _created(row)]


def _created(row: Mapping[str, Any]) -> Any:
    return row["metadata"]["creationTimestamp"]


async def _read(session: Session, kinds: Sequence[str], selector: str, *, is_first: bool) -> list[dict[str, Any]]:
    try:
        return await listed(session, kinds, selector)
    except NotFound:
        if is_first:
            raise
        return []  # a kind of another program is known only while it has resources


def _key(row: dict[str, Any]) -> Key:
    return row["apiVersion"], row["kind"], row["metadata"]["name"]
