"""What must be in order before a release: the changelog, the upgrade notes, the locks, the versions.

Each check returns problems as text, so that all of them are shown at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from deploy.release.database import file_of
from deploy.release.source import ROOT, project, version

UNRELEASED = "Unreleased"
LOCKED = {
    "requirements.lock": ("postgres", "quic", "dev"),
    "requirements-runtime.lock": ("postgres", "quic"),
    "requirements-lake.lock": ("postgres", "quic", "lake"),
    "requirements-audit.lock": ("postgres", "quic", "lake", "audit", "delta", "connect"),
}
"""The extras and groups of each lock."""
_HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\S+))?$", re.MULTILINE)
_VERSIONED = {
    "eventd/__init__.py": '__version__ = "{}"',
    "deploy/container/Containerfile": "ARG VERSION={}",
    "deploy/kubernetes/base/kustomization.yaml": "newTag: {}",
    "deploy/compose/compose.yaml": "${{EVENTD_VERSION:-{}}}",
}
"""Files that repeat the version, and how."""


def check_all(number: str | None = None, *, unreleased: bool = False) -> list[str]:
    """Return all problems of a release of this version; `unreleased`: of a trial before its section has a name."""
    number = number or version()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    problems = [*check_version(number), *check_changelog(changelog, number, unreleased=unreleased), *check_locks()]
    if not unreleased and not file_of(number).exists():
        problems.append(f"tests have no database of {number}: run make release-database, and commit it")
    return problems


def check_version(number: str) -> Iterator[str]:
    """Yield the files that repeat another version; a version is three numbers."""
    try:
        parsed = Version(number)
    except InvalidVersion:
        yield f"{number} is not a version"
        return
    if len(parsed.release) != 3 or str(parsed) != number:
        yield f"the version {number} is not MAJOR.MINOR.PATCH"
    for name, form in _VERSIONED.items():
        if form.format(number) not in (ROOT / name).read_text():
            yield f"{name} has another version: it should contain {form.format(number)}"


def check_changelog(text: str, number: str, *, unreleased: bool = False) -> Iterator[str]:
    """Yield what the changelog lacks: the section of the version with its date, and what to do before an upgrade."""
    found = list(_HEADING.finditer(text))
    names = [heading[1] for heading in found]
    if names[:1] != [UNRELEASED]:
        yield "CHANGELOG.md does not begin with [Unreleased]"
    wanted = UNRELEASED if unreleased else number
    if wanted not in names:
        yield f"CHANGELOG.md has no section [{wanted}]: rename [Unreleased], and begin a new one above it"
        return
    at = names.index(wanted)
    section = text[found[at].end() : found[at + 1].start() if at + 1 < len(found) else len(text)]
    if not unreleased and not _is_date(found[at][2]):
        yield f"the section [{number}] of CHANGELOG.md has no date: write ## [{number}] - 2026-11-30"
    if not re.search(r"^### Before an upgrade\n\n\S", section, re.MULTILINE):
        yield f"the section [{wanted}] of CHANGELOG.md does not say what to do before an upgrade"
    if not re.search(r"^- ", section, re.MULTILINE):
        yield f"the section [{wanted}] of CHANGELOG.md has no entry"
    if not unreleased and re.search(r"^- ", text[found[0].end() : found[1].start()], re.MULTILINE):
        yield f"[Unreleased] of CHANGELOG.md has entries, which belong to [{number}]"


def _is_date(text: str | None) -> bool:
    try:
        return bool(text) and bool(date.fromisoformat(text or ""))
    except ValueError:
        return False


def check_locks() -> Iterator[str]:
    """Yield what a lock does not have in a version that the project allows."""
    for name, extras in LOCKED.items():
        pinned = _pins((ROOT / name).read_text())
        for requirement in _requirements(*extras):
            found = pinned.get(canonicalize_name(requirement.name))
            if found is None or not requirement.specifier.contains(found):
                yield f"{name} has {requirement.name} {found or 'not at all'}, wanted is {requirement}: run make lock"


def _requirements(*names: str) -> Iterator[Requirement]:
    about = project()
    extras, groups = about["project"]["optional-dependencies"], about["dependency-groups"]
    chosen = [about["project"]["dependencies"], *(extras.get(name) or groups[name] for name in names)]
    yield from (Requirement(each) for declared in chosen for each in declared)


def _pins(text: str) -> dict[str, str]:
    """Return the first version of each package; another one may be for another Python."""
    pinned: dict[str, str] = {}
    for name, number in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE):
        pinned.setdefault(canonicalize_name(name), number)
    return pinned
