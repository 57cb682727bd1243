"""Checks of a wheel and a source archive: every file of the product, and no other."""

from __future__ import annotations

import re
import tarfile
import zipfile
from email.parser import Parser

from deploy.release.source import ROOT, BuildFailed, project, shared_folders, tracked, version
from deploy.release.wheel import Built

_MOVED = {"migrations/": "eventd/migrations/", "eventd/audit/discovery/": "pyspark_eventd/"}
"""Folders that are in the wheel under another name; the second one under both."""


def expected_in_wheel() -> set[str]:
    """Return the names of all files that the wheel must hold, besides its metadata."""
    names = set(tracked("eventd", "federation"))
    for source, target in _MOVED.items():
        names |= {target + name.removeprefix(source) for name in tracked(source)}
    data = f"routerd_eventd-{version()}.data/data"
    for source, target in shared_folders().items():
        names |= {f"{data}/{target}{name.removeprefix(source)}" for name in tracked(source)}
    return names


def check_contents(built: Built) -> None:
    """Raises `BuildFailed` if a file is missing, or is none of the product, or if the metadata is wrong."""
    meta = f"routerd_eventd-{version()}.dist-info/"
    with zipfile.ZipFile(built.wheel) as wheel:
        held = set(wheel.namelist())
        metadata = Parser().parsestr(wheel.read(f"{meta}METADATA").decode())
        entry_points = wheel.read(f"{meta}entry_points.txt").decode()
    code = {name for name in held if not name.startswith(meta)}
    _same(built.wheel.name, code, expected_in_wheel())
    _check_metadata(metadata)
    for name, function in project()["project"]["scripts"].items():
        if f"{name} = {function}" not in entry_points:
            raise BuildFailed(f"{built.wheel.name} does not install the command {name}")
    with tarfile.open(built.sdist) as archive:
        prefix = f"routerd_eventd-{version()}/"
        files = {member.name.removeprefix(prefix) for member in archive.getmembers() if member.isfile()}
    included = [name.removeprefix("/") for name in project()["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]]
    _same(built.sdist.name, files, {*tracked(*included), "PKG-INFO", ".gitignore", "pyproject.toml"})


def _same(what: str, held: set[str], expected: set[str]) -> None:
    missing, stray = sorted(expected - held), sorted(held - expected)
    if missing:
        raise BuildFailed(f"{what} lacks {', '.join(missing[:10])}")
    if stray:
        raise BuildFailed(f"{what} holds files that are not tracked: {', '.join(stray[:10])}")


def _check_metadata(metadata: object) -> None:
    wanted = project()["project"]
    fields = {name: metadata.get_all(name, []) for name in ("Name", "Version", "Requires-Python", "Provides-Extra")}  # type: ignore[attr-defined]
    expected = {
        "Name": [wanted["name"]],
        "Version": [version()],
        "Requires-Python": [wanted["requires-python"]],
        "Provides-Extra": sorted(wanted["optional-dependencies"]),
    }
    if fields != expected:
        raise BuildFailed(f"the wheel's metadata is {fields}, and not {expected}")
    if not re.search(
        rf'^__version__ = "{re.escape(version())}"$', (ROOT / "eventd/__init__.py").read_text(), re.MULTILINE
    ):
        raise BuildFailed(f"eventd.__version__ is not {version()}, the version of pyproject.toml")
