"""The files of others that the console serves are what their authors published, and their licences are shipped."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.support import vendored
from tests.support.source import ROOT
from tests.support.vendored import FOLDER, LIST, find_changed, read_list


def test_each_file_has_the_sum_of_the_list_and_the_list_has_each_file() -> None:
    assert find_changed() == []


@pytest.mark.parametrize(
    ("stored", "content", "changed"),
    [
        ("idiomorph.LICENSE", b"", ["idiomorph.LICENSE"]),
        ("idiomorph.mjs", (FOLDER / "idiomorph.mjs").read_bytes() + b"alert(1)\n", ["idiomorph.mjs"]),
        ("idiomorph.mjs", b"alert(1)\n" + (FOLDER / "idiomorph.mjs").read_bytes(), ["idiomorph.mjs"]),
        ("htmx.js", b"", ["htmx.js"]),
    ],
)
def test_a_changed_or_unlisted_file_is_found(tmp_path: Path, stored: str, content: bytes, changed: list[str]) -> None:
    copy = Path(shutil.copytree(FOLDER, tmp_path / "vendor"))
    (copy / stored).write_bytes(content)
    assert find_changed(copy) == changed


def test_each_package_names_its_origin_and_comes_with_its_licence() -> None:
    packages = tomllib.loads((FOLDER / LIST).read_text())["package"]
    for package in packages:
        assert package.keys() == {"name", "version", "licence", "origin", "file"}
        assert f"{package['name']}.LICENSE" in {one["stored"] for one in package["file"]}
    assert {package["licence"] for package in packages} <= {"0BSD"}
    licences = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license-files"]
    assert f"{FOLDER.relative_to(ROOT)}/*.LICENSE" in licences


def test_renewing_writes_files_with_what_is_appended_and_new_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(FOLDER, tmp_path / "vendor"))
    monkeypatch.setattr(vendored, "_fetch", lambda name, version, files, folder: dict.fromkeys(files, b"a new version"))
    vendored.renew(copy)
    assert find_changed(copy) == []
    assert (copy / "idiomorph.mjs").read_bytes() == b"a new version\nexport { Idiomorph };\n"
    assert len({one.sha256 for one in read_list(copy)}) == 1
    comments = [line for line in (FOLDER / LIST).read_text().splitlines() if not line.startswith("sha256")]
    assert comments == [line for line in (copy / LIST).read_text().splitlines() if not line.startswith("sha256")]
