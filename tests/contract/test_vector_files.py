"""The committed vectors are the generated ones, and the wire pages show and name what they hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from federation.errors import V1_REFUSALS
from federation.peers import REFUSALS, STATUS
from tests.vectors import generate

HERE = Path(generate.__file__).parent
REFERENCE = HERE.parent.parent / "docs" / "reference"
MADE = dict(generate.vectors())


def test_committed_vectors_are_the_generated_ones() -> None:
    committed = {str(file.relative_to(HERE)): file.read_text(encoding="utf-8") for file in HERE.glob("v*/*.json")}
    assert committed == {path: generate.text(case) for path, case in MADE.items()}


def test_writing_again_changes_nothing_and_removes_what_is_no_longer_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "HERE", tmp_path)
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "gone.json").write_text("{}")
    generate.write()
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.glob("*/*")} == MADE.keys()


def test_wire_page_shows_the_example_vector() -> None:
    page = (REFERENCE / "wire-v2.md").read_text(encoding="utf-8")
    sent = json.loads((HERE / "v2" / "accept_hmac.json").read_text(encoding="utf-8"))["request"]
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
