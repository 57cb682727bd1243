"""The checks of tables name a stored event that does not say what was emitted."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.stored_rows import open_file
from eventd.simulation.checks.tables import StoredTables
from eventd.simulation.world.journal import Asked, Journal
from eventd.simulation.world.topology import GROUP, PlannedLink, Topology

EVENT = {"id": "a-1", "type": "door.open", "payload": {"text": "x"}}
EMPTY = (
    *("log_heads", "topic_losses", "gone_ids", "event_ids", "id_chunks", "id_ranges", "id_runs"),
    *("cursors", "batches", "inbound_links", "inbound_batches", "inbound_gaps"),
)


def stored(file: Path, event: dict[str, Any]) -> StoredTables:
    """Return the tables of a node that has stored an event of its own."""
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "CREATE TABLE topics (id, name, config, next_seq, evicted_seq, evicted_position, lost_position)"
        )
        database.execute("INSERT INTO topics VALUES (1, ?, '{}', 2, 0, 0, 0)", (f"group:{GROUP}",))
        database.execute("CREATE TABLE blocks (topic_id, position, records, seq, paths, text)")
        database.execute("INSERT INTO blocks VALUES (1, 1, 1, 1, '[\"\"]', ?)", (json.dumps(event),))
        for name in (*EMPTY, "dead_letters"):
            database.execute(f"CREATE TABLE {name} (id, cursor, topic_id)")
    with open_file(file) as rows:
        return StoredTables("a", rows, Topology("pair", ["a", "b"], [PlannedLink("a", "b", relay=False)]), 9.0)


@pytest.mark.parametrize(
    ("change", "violations"), [({}, []), ({"payload": {"text": "y"}}, ["V7"]), ({"id": "a-2"}, ["V7"])]
)
def test_a_stored_event_says_what_was_emitted(change: dict[str, Any], violations: list[str], tmp_path: Path) -> None:
    contents = EmittedContents(Journal([Asked("emit", "a", 1.0, 1.1, 200, {"events": [EVENT]}, {"results": []})]))
    tables = stored(tmp_path / "eventd.db", EVENT | change)
    assert [each.invariant for each in tables.changed(contents)] == violations
