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


class PlayedRows:
    """The tables of a node that has stored an event, and sent a batch of two, of which the peer has refused one."""

    def __init__(self, events: int, refused: int) -> None:
        receipt = {"batch": "x", "from": "a", "accepted": 1, "duplicates": 0, "refused": [{"position": 2}]}
        topic = {"id": 1, "name": f"group:{GROUP}", "config": "{}", "next_seq": 2, "evicted_seq": 0}
        batch = {"cursor": f"peer:{GROUP}/b", "batch_id": "x", "events": events, "status": 200, "epoch": "e"}
        self._tables: dict[str, list[dict[str, Any]]] = {
            "log_heads": [{"next_position": 2, "epoch": "e"}],
            "topics": [topic | {"evicted_position": 0, "lost_position": 0}],
            "blocks": [
                {"topic_id": 1, "position": 1, "records": 1, "seq": 1, "paths": '[""]', "text": json.dumps(EXPIRING)}
            ],
            "event_ids": [{"topic_id": 1, "event_id": "a-1", "gone_at": None, "position": 1}],
            "batches": [
                batch | {"receipt": json.dumps({"body": json.dumps(receipt)}), "exceptions": f'[[{refused},"refused"]]'}
            ],
        }

    def damage(self) -> list[str]:
        return []

    def rows(self, table: str) -> list[Any]:
        return self._tables.get(table, [])


EXPIRING = EVENT | {"expiresAt": "0001-01-01T00:00:00Z"}


@pytest.mark.parametrize(("events", "refused", "wrong"), [(1, 2, []), (2, 2, ["V9"]), (1, 1, ["V9"])])
def test_a_receipt_has_the_events_of_its_batch_and_those_that_are_refused(
    events: int, refused: int, wrong: list[str]
) -> None:
    tables = StoredTables("a", PlayedRows(events, refused), Topology("one", ["a", "b"], []), 9.0)
    assert [each.invariant for each in tables.violations()] == wrong


@pytest.mark.parametrize(
    ("evicted", "expires", "known"),
    [(0, "2027-09-21T14:00:00Z", True), (1, "2027-09-21T14:00:00Z", False), (1, "0001-01-01T00:00:00Z", True)],
)
def test_the_first_record_of_a_refreshed_event_may_be_evicted(evicted: int, expires: str, known: bool) -> None:
    rows = PlayedRows(1, 2)
    [topic], [block] = rows.rows("topics"), rows.rows("blocks")
    topic["evicted_seq"] = evicted
    block["text"] = json.dumps(EXPIRING | {"expiresAt": expires})
    tables = StoredTables("a", rows, Topology("one", ["a", "b"], []), 9.0)
    assert tables.first_positions == ({"a-1": 1} if known else {})
