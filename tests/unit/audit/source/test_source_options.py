"""The options of the format "eventd", and the errors for invalid ones."""

from __future__ import annotations

import pytest

from eventd.audit.source import EventdSource
from eventd.audit.source.options import OnGap, OriginKind, SourceOptions, Starting, read_options
from eventd.errors import Invalid
from eventd.lake.schema import COLUMNS, Ledger


def test_a_lake_is_enough() -> None:
    assert read_options({"lake": "/srv/lake"}) == SourceOptions(OriginKind.LAKE, ("/srv/lake",), Ledger.EVENTS)
    assert read_options({"path": "s3://bucket/lake"}).places == ("s3://bucket/lake",)


def test_every_option_is_taken_however_it_is_written() -> None:
    asked = read_options(
        {
            "URL": "http://a:8780, https://b/eventd",
            "book": "deliveries",
            "node": "site-a,site-b",
            "epoch": "0123",
            "key_file": "/run/key",
            "rowsperpartition": "5",
            "maxRowsPerBatch": "7",
            "on_gap": "skip",
            "startingOffsets": "latest",
            "payloads": "true",
        }
    )
    assert asked == SourceOptions(
        where=OriginKind.URL,
        places=("http://a:8780", "https://b/eventd"),
        book=Ledger.DELIVERIES,
        nodes=("site-a", "site-b"),
        epochs=("0123",),
        key_file="/run/key",
        rows_per_partition=5,
        rows_per_batch=7,
        on_gap=OnGap.SKIP,
        starting=Starting.LATEST,
        payloads=True,
    )


def test_commas_within_the_address_of_a_database_part_nothing() -> None:
    one = "postgresql+psycopg://h1:5432,h2:5432/eventd"
    asked = read_options({"database": f"{one},sqlite:////srv/a.db, /srv/b.db"})
    assert asked.places == (one, "sqlite:////srv/a.db", "/srv/b.db")
    assert read_options({"databaseFile": "/run/secrets/url"}).in_files


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "reads from one of lake, url, database and databaseFile, and none is given"),
        ({"lake": "/a", "url": "http://b"}, "lake and url are given"),
        ({"lake": "/a", "boook": "events"}, "has no option boook: did you mean book?"),
        ({"lake": "/a", "book": "cooks"}, "the option book is cooks, and must be one of events, deliveries"),
        (
            {"lake": "/a", "maxRowsPerBatch": "many"},
            "maxRowsPerBatch is many, and must be a whole number of at least 0",
        ),
        ({"lake": "/a", "rowsPerPartition": "0"}, "rowsPerPartition is 0, and must be a whole number of at least 1"),
        ({"lake": "/a", "onGap": "maybe"}, "onGap is maybe, and must be one of fail, skip"),
        ({"url": "node:8780"}, "url holds node:8780, which does not begin with http:// or https://"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(given: dict[str, str], told: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_options(given)
    assert told in str(refused.value)


def test_the_schema_is_that_of_the_book() -> None:
    for book in Ledger:
        schema = EventdSource({"lake": "/a", "book": book.value}).schema()
        assert schema.names == [column.name for column in COLUMNS[book]]
        assert [field.nullable for field in schema] == [column.null for column in COLUMNS[book]]


def test_what_nodes_say_of_themselves_is_read_from_a_lake_alone() -> None:
    assert read_options({"lake": "/a", "book": "states"}).states
    names = EventdSource({"lake": "/a", "book": "states"}).schema().names
    assert names == ["node", "epoch", "instance", "began_at", "as_of", "complete_until", "head", "book", "upto"]
    for place in ({"url": "http://a:8780"}, {"database": "/srv/a.db"}):
        with pytest.raises(Invalid, match="the book states can be read from a lake only"):
            read_options({**place, "book": "states"})
