"""docs/reference/lake.md is a contract: its description of each ledger table matches the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.lake.manifest import LakeHead, Manifest, NodeState
from eventd.lake.schema import COLUMNS, SCHEMA_VERSION, Column, Ledger, arrow_schema

PAGE = (Path(__file__).parents[3] / "docs/reference/lake.md").read_text(encoding="utf-8")
COMMON = 3


def row(column: Column) -> str:
    return f"| `{column.name}` | {column.type}{', null' if column.null else ''} | {column.text} |"


def section(title: str) -> str:
    start = PAGE.index(f"\n## {title}\n") if f"\n## {title}\n" in PAGE else PAGE.index(f"\n### {title}\n")
    end = PAGE.find("\n##", start + 4)
    return PAGE[start : end if end > 0 else None]


@pytest.mark.parametrize("book", Ledger)
def test_every_column_of_a_book_is_on_the_page_in_its_order(book: Ledger) -> None:
    told = [line for line in section(book).splitlines() if line.startswith("| `")]
    assert told == [row(column) for column in COLUMNS[book][COMMON:]]


def test_every_book_begins_with_the_same_columns() -> None:
    told = [line for line in section("Ledgers").splitlines() if line.startswith("| `")]
    for book in Ledger:
        assert told == [row(column) for column in COLUMNS[book][:COMMON]]


@pytest.mark.parametrize("book", Ledger)
def test_names_are_given_once_and_types_are_arrows(book: Ledger) -> None:
    names = [column.name for column in COLUMNS[book]]
    assert len(set(names)) == len(names)
    assert arrow_schema(book).names == names
    assert {str(field.type) for field in arrow_schema(book)} <= {
        *("int64", "int32", "int16", "bool", "string", "timestamp[us, tz=UTC]", "fixed_size_binary[32]"),
        "dictionary<values=string, indices=int32, ordered=0>",
    }


@pytest.mark.parametrize(("title", "kind"), [("The manifest", Manifest), ("The state of a node", NodeState)])
def test_every_field_is_on_the_page(title: str, kind: type[Manifest] | type[NodeState]) -> None:
    cells = [line.split("|")[1] for line in section(title).splitlines() if line.startswith("| `")]
    assert {name.strip(" `") for cell in cells for name in cell.split(",")} == set(kind.__struct_fields__)


def test_the_version_is_on_the_page() -> None:
    assert f"schema version {SCHEMA_VERSION}" in PAGE
    assert all(f"`{name}`" in section("Files") for name in LakeHead.__struct_fields__)
