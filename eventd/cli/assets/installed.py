"""The files that are installed beside the program, below `share/`, or their sources in a checkout."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import eventd

PURPOSES = {
    "completions": "completion of the command line, for bash, zsh and fish",
    "compose": "three sites in containers on one machine",
    "freebsd": "service of FreeBSD",
    "grafana": "dashboards, and their provisioning",
    "kubernetes": "manifests, for kubectl apply -k",
    "man": "manual pages",
    "prometheus": "alerts, and an example of a scrape",
    "systemd": "units of systemd, with tmpfiles.d and sysctl.d",
}
"""Every asset, by its name."""
_SHARE = "share"


class InstalledFile(NamedTuple):
    """A file: the asset that it belongs to, its place below `share`, and where it is."""

    asset: str
    place: str
    file: Path


def installed_files() -> list[InstalledFile]:
    """Return all files, sorted by asset and place."""
    top = Path(eventd.__file__).parents[1]
    found = _of_checkout(top) if (top / "pyproject.toml").is_file() else _of_distribution(top)
    files = (InstalledFile(_asset_of(place), place, file) for place, file in found)
    return sorted(each for each in files if each.asset)


def _asset_of(place: str) -> str:
    first, _, rest = place.partition("/")
    if first == "routerd-eventd":
        return rest.partition("/")[0]
    return first if first in PURPOSES else "completions"


def _of_checkout(top: Path) -> Iterator[tuple[str, Path]]:
    project = tomllib.loads((top / "pyproject.toml").read_text())
    folders: dict[str, str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    for source, target in folders.items():
        for file in (top / source).rglob("*"):
            if file.is_file():
                yield f"{target}/{file.relative_to(top / source).as_posix()}".removeprefix(f"{_SHARE}/"), file


def _of_distribution(top: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that the installation has recorded.

    `pip install --target` records other paths than it uses, so three paths are tried for each file.
    """
    try:
        recorded = distribution("routerd-eventd").files or ()
    except PackageNotFoundError:
        recorded = ()
    for path in recorded:
        before, found, place = path.as_posix().rpartition(f"../{_SHARE}/")
        if found and not before.strip("./"):
            tried = (Path(str(path.locate())), top / _SHARE / place, Path(sys.prefix) / _SHARE / place)
            yield from ((place, file.resolve()) for file in [each for each in tried if each.is_file()][:1])
