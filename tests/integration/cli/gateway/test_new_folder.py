"""A database that a command creates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import Control

TOPIC = "apiVersion: topic.routerd.net/v1alpha1\nkind: Topic\nmetadata: {name: orders}\nspec: {}\n"


def test_a_folder_that_is_created_without_being_named_is_noted_once(
    control: Control, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("EVENTD_DATA_DIR", "EVENTD_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    file = control.file(TOPIC)
    made = tmp_path / "eventd-data"
    assert control("apply", "-f", file).err == f"note: no node runs here, so {made} is created\n"
    assert control("apply", "-f", file).err == ""
    assert control("apply", "-f", file, "--data-dir", "named").err == ""
