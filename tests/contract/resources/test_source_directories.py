"""A directory as a source of resources."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from eventd.resources.reading.documents import read_sources
from tests.unit.resources.samples import GROUP


def test_a_directory_gives_its_files_sorted_and_not_those_below(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json", "d.txt", "e.YAML"):
        text = json.dumps(yaml.safe_load(GROUP)) if name.endswith("json") else GROUP
        (tmp_path / name).write_text(text.replace("edge", name[0]))
    (tmp_path / "below.yaml").mkdir()
    loaded = read_sources([str(tmp_path)])
    assert not loaded.problems
    assert [draft.label for draft in loaded.drafts] == ["EventGroup/a", "EventGroup/b", "EventGroup/c", "EventGroup/e"]


def test_a_directory_without_resources_is_a_problem(tmp_path: Path) -> None:
    assert [str(problem) for problem in read_sources([str(tmp_path)]).problems] == [
        f"{tmp_path}: the directory contains no *.yaml, *.yml or *.json file"
    ]
