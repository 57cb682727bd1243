"""routerctl assets lists and writes the files beside the program, here those of the checkout."""

from __future__ import annotations

import resource
import stat
from pathlib import Path

import pytest

from eventd.cli.assets.installed import PURPOSES, installed_files
from tests.integration.cli.conftest import Control
from tests.support.source import ROOT

UNIT = "routerd-eventd/systemd/routerd-eventd.service"


def test_every_asset_is_listed_with_its_purpose_and_its_files(control: Control) -> None:
    rows = control("assets", "list", "-o", "json").json
    assert {row["name"]: row["purpose"] for row in rows} == {row["name"]: PURPOSES[row["name"]] for row in rows}
    assert UNIT in next(row["files"] for row in rows if row["name"] == "systemd")
    assert sum(len(row["files"]) for row in rows) == len(installed_files())


def test_the_files_of_the_named_assets_are_written_and_no_others(control: Control, tmp_path: Path) -> None:
    assert control("assets", "write", str(tmp_path / "out"), "systemd").code == 0
    written = {
        file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*") if file.is_file()
    }
    assert written == {each.place for each in installed_files() if each.asset == "systemd"}
    unit = tmp_path / "out" / UNIT
    assert unit.read_text() == (ROOT / "deploy/systemd/routerd-eventd.service").read_text()
    assert stat.S_IMODE(unit.stat().st_mode) == 0o644


def test_a_file_that_differs_is_kept_and_none_is_written_unless_forced(control: Control, tmp_path: Path) -> None:
    (tmp_path / UNIT).parent.mkdir(parents=True)
    (tmp_path / UNIT).write_text("edited")
    refused = control("assets", "write", str(tmp_path), code=1)
    assert (refused.code, "exists and differs" in refused.err) == (1, True)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [tmp_path / UNIT]
    assert (tmp_path / UNIT).read_text() == "edited"
    assert control("assets", "write", str(tmp_path), "--force").code == 0
    assert (tmp_path / UNIT).read_text() != "edited"
    assert control("assets", "write", str(tmp_path)).code == 0  # a second time nothing differs


def test_an_unknown_asset_is_refused_with_the_names_of_all(control: Control, tmp_path: Path) -> None:
    refused = control("assets", "write", str(tmp_path), "sysvinit", code=3)
    assert (refused.code, "systemd" in refused.err) == (3, True)


def test_a_full_disk_is_reported_with_the_file_that_was_not_written(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, (soft, hard) = Path.write_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)

    def write_without_room(path: Path, content: bytes) -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))  # only here: pytest writes files, too
        try:
            return write(path, content)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    (tmp_path / UNIT).parent.mkdir(parents=True)
    (tmp_path / UNIT).write_text("edited")
    monkeypatch.setattr(Path, "write_bytes", write_without_room)
    refused = control("assets", "write", str(tmp_path), "systemd", "--force", code=1)
    assert refused.err.startswith(f"error: cannot write {tmp_path}/routerd-eventd/systemd/")
    assert "File too large" in refused.err
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [tmp_path / UNIT]
    assert (tmp_path / UNIT).read_text() == "edited"
