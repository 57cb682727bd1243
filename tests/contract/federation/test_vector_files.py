"""The committed test vectors are the generated ones, and the pages of the protocols quote and name them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from federation.errors import V1_REFUSALS
from federation.peers import REFUSALS, STATUS
from tests.vectors import generate

HERE = Path(generate.__file__).parent
REFERENCE = HERE.parent.parent / "docs" / "reference"
made = cache(generate.vectors)
"""Trees of 70,000 leaves take a moment: not while tests are collected."""


def test_committed_vectors_are_the_generated_ones() -> None:
    committed = {file.name: file.read_text(encoding="utf-8") for file in HERE.glob("*.jsonl")}
    assert committed == {name: generate.text(cases) for name, cases in made().items()}


def test_each_vector_has_a_name_of_its_own() -> None:
    names = [case["name"] for cases in made().values() for case in cases if case["protocol"] != "v1"]
    assert len(set(names)) == len(names)


def test_wire_page_shows_the_example_vector() -> None:
    page = (REFERENCE / "wire-v2.md").read_text(encoding="utf-8")
    (sent,) = [case["request"] for case in made()["v2-accepted.jsonl"] if case["name"] == "accept_hmac"]
    for key, value in sent["headers"]:
        assert f"{key}: {value}\n" in page
    assert sent["body"].replace("\t", "␉") in page


def test_wire_page_names_every_code_and_reason() -> None:
    page = (REFERENCE / "wire-v2.md").read_text(encoding="utf-8")
    assert [word for word in (*STATUS, *REFUSALS) if f"`{word}`" not in page] == []


def test_page_of_v1_names_every_refusal_in_its_words() -> None:
    page = (REFERENCE / "wire-v1.md").read_text(encoding="utf-8")
    rows = [line.replace(" ", "") for line in page.splitlines() if line.startswith("| ")]
    for reason, (status, text) in V1_REFUSALS.items():
        said = [row for row in rows if row.endswith(f"|`{reason}`|")]
        assert [f"|{status}|" in row and text.replace(" ", "") in row for row in said] == [True]
