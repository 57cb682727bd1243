"""Each column of a ledger, and each field of a state or a manifest, names the check that finds a change of it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import msgspec
import pytest

from eventd.audit.report.findings import Kind
from eventd.lake import manifest
from eventd.lake.schema import COLUMNS, Ledger
from tests.support.campaign.column_checks import LEDGERS
from tests.support.campaign.damages import DAMAGES
from tests.support.campaign.field_checks import EDIT, FieldCheck
from tests.support.campaign.file_checks import FILES
from tests.support.campaign.page import fields, unchecked_fields
from tests.support.source import ROOT

REFERENCE = ROOT / "docs" / "reference"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CHECKS = [check for table in (*LEDGERS.values(), *FILES.values()) for check in table.checks.values()]


def shipped_structs() -> set[type]:
    """Return the structs of the JSON files of a lake: those that another module may name."""
    found = inspect.getmembers(manifest, inspect.isclass)
    return {
        kind
        for name, kind in found
        if issubclass(kind, msgspec.Struct) and kind.__module__ == manifest.__name__ and not name.startswith("_")
    }


@pytest.mark.parametrize("book", Ledger)
def test_each_column_has_its_check_in_its_order(book: Ledger) -> None:
    assert [*LEDGERS[book].checks] == [column.name for column in COLUMNS[book]]


def test_each_file_of_the_lake_has_its_checks() -> None:
    assert {*FILES} == shipped_structs()


@pytest.mark.parametrize("kind", FILES)
def test_each_field_of_a_file_has_its_check(kind: type[msgspec.Struct]) -> None:
    assert {*FILES[kind].checks} == set(kind.__struct_fields__)


@pytest.mark.parametrize("check", dict.fromkeys(check for check in CHECKS if check.proof != EDIT))
def test_a_check_is_proven_by_a_damage_or_a_test(check: FieldCheck) -> None:
    damages = {damage.name: [*damage.kinds] or ["unproven"] for damage in DAMAGES}
    if check.proof in damages:
        assert check.verdict in damages[check.proof]
    else:
        file, name = check.proof.split("::")
        parsed = ast.parse((Path(ROOT) / "tests" / file).read_text())
        (test,) = (node for node in parsed.body if isinstance(node, FUNCTIONS) and node.name == name)
        assert any(map(is_check, ast.walk(test))), "the test checks nothing"


def is_check(node: ast.AST) -> bool:
    """Return whether a part of a test is an assertion, or expects an error with a message."""
    raises = isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises"
    return isinstance(node, ast.Assert) or (raises and any(each.arg == "match" for each in node.keywords))


@pytest.mark.parametrize("check", dict.fromkeys(CHECKS))
def test_a_check_has_a_verdict_of_the_report_and_says_what_finds_the_change(check: FieldCheck) -> None:
    assert check.verdict in {"", "unproven", "refused", *(kind.value for kind in Kind)}
    assert check.by.strip(), "the page has no explanation"
    assert check.verdict or check.proof == EDIT, "a change that nothing finds is made by the test of edits"


def test_the_page_has_the_checks() -> None:
    assert (REFERENCE / "audit-fields.md").read_text().endswith(f"\n\n{fields()}\n")


def test_what_is_not_found_has_the_fields_without_a_check() -> None:
    page = (REFERENCE / "audit-damage.md").read_text()
    assert f"\n\n{unchecked_fields()}\n\n" in page[page.index("\n## What is not found\n") :]
