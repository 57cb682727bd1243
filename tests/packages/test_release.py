"""The checks of a release find what is missing, and the sums are those of the files."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest

from deploy.release.notes import check_all, check_changelog, check_locks, check_version
from deploy.release.release import BILLED_EXTRAS, write_sums
from deploy.release.source import ROOT, version
from deploy.release.trial import link_distributions

GOOD = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Before an upgrade

Nothing has to be done.

### Added

- A new thing.

## [0.1.0] - 2026-11-01
"""


def test_what_is_to_be_released_next_has_no_other_problem_than_its_name() -> None:
    assert check_all(unreleased=True) == []


def test_a_changelog_that_is_ready_has_no_problem() -> None:
    assert list(check_changelog(GOOD, "0.2.0")) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("## [0.2.0] - 2026-12-01\n\n", "", "no section"),
        (" - 2026-12-01", "", "no date"),
        (" - 2026-12-01", " - soon", "no date"),
        ("### Before an upgrade\n\nNothing has to be done.\n\n", "", "before an upgrade"),
        ("Nothing has to be done.", "", "before an upgrade"),
        ("- A new thing.", "", "no entry"),
        ("## [Unreleased]\n", "## [Unreleased]\n\n- Not yet named.\n", "has entries"),
        ("## [Unreleased]\n\n", "", "does not begin"),
    ],
)
def test_what_the_changelog_lacks_is_named(old: str, new: str, told: str) -> None:
    assert old in GOOD
    assert any(told in problem for problem in check_changelog(GOOD.replace(old, new), "0.2.0"))


@pytest.mark.parametrize(
    ("number", "told"), [("0.2", "MAJOR.MINOR.PATCH"), ("soon", "not a version"), ("9.9.9", "another")]
)
def test_a_version_is_three_numbers_and_the_same_everywhere(number: str, told: str) -> None:
    assert list(check_version(version())) == []
    assert told in "\n".join(check_version(number))


def test_a_lock_that_is_behind_the_project_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(check_locks()) == []
    from deploy.release import notes

    about = notes.project()
    about["project"]["dependencies"] = ["aiohttp>=99", "not-in-any-lock"]
    monkeypatch.setattr(notes, "project", lambda: about)
    found = "\n".join(check_locks())
    assert "requirements-runtime.lock has aiohttp 3." in found
    assert "not-in-any-lock not at all" in found


def test_the_sums_can_be_checked(tmp_path: Path) -> None:
    files = [tmp_path / "b", tmp_path / "a"]
    for file in files:
        file.write_text(file.name)
    assert write_sums(tmp_path, files).read_text().splitlines()[0].endswith("  a")
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)
    files[0].write_text("changed")
    check = ["sha256sum", "--check", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


def test_the_bill_of_materials_has_the_extras_that_packages_are_built_with() -> None:
    (lock,) = re.findall(r"^LOCK = (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert sorted(re.findall(r"--extra (\S+)", lock)) == sorted(BILLED_EXTRAS)


def test_an_environment_has_packages_of_several_distributions_that_share_a_folder(tmp_path: Path) -> None:
    link_distributions([distribution(name) for name in ("opentelemetry-api", "opentelemetry-sdk")], tmp_path)
    assert (tmp_path / "opentelemetry" / "trace" / "__init__.py").is_file()
    assert (tmp_path / "opentelemetry" / "sdk" / "trace" / "__init__.py").is_file()
