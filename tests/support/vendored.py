"""The files of others that the console serves, and their list, VENDOR.toml. `make vendor` runs this as a program.

A sum is that of the published file: what the list appends does not count.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.support.source import ROOT

FOLDER = ROOT / "eventd" / "console" / "static" / "vendor"
LIST = "VENDOR.toml"


class VendoredFile(NamedTuple):
    """One file: its name here, its package, its path in that, what is appended to it, and its sum."""

    stored: str
    package: str
    version: str
    path: str
    append: bytes
    sha256: str


def read_list(folder: Path = FOLDER) -> list[VendoredFile]:
    """Return all files of the list."""
    listed = tomllib.loads((folder / LIST).read_text())
    return [
        VendoredFile(
            one["stored"],
            package["name"],
            package["version"],
            one["path"],
            one.get("append", "").encode(),
            one["sha256"],
        )
        for package in listed["package"]
        for one in package["file"]
    ]


def find_changed(folder: Path = FOLDER) -> list[str]:
    """Return the files that are not as they were published, and those that the list lacks."""
    listed = read_list(folder)
    changed = [one.stored for one in listed if _published_sum(folder / one.stored, one.append) != one.sha256]
    return changed + sorted({path.name for path in folder.iterdir()} - {one.stored for one in listed} - {LIST})


def _published_sum(path: Path, append: bytes) -> str:
    content = path.read_bytes() if path.exists() else b""
    return _sum(content.removesuffix(append)) if content.endswith(append) else ""


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def renew(folder: Path = FOLDER) -> None:
    """Fetch the published packages of the list with `npm pack`; write their files and sums."""
    text = (folder / LIST).read_text()
    listed = read_list(folder)
    with tempfile.TemporaryDirectory() as made:
        for name, version in sorted({(one.package, one.version) for one in listed}):
            files = {one for one in listed if one.package == name}
            for one, content in _fetch(name, version, files, Path(made)).items():
                (folder / one.stored).write_bytes(content + one.append)
                text = _with_sum(text, one.stored, _sum(content))
    (folder / LIST).write_text(text)


def _fetch(name: str, version: str, files: set[VendoredFile], folder: Path) -> dict[VendoredFile, bytes]:
    command = ["npm", "pack", "--silent", "--ignore-scripts", f"{name}@{version}"]
    packed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.split()[-1]
    found = {}
    with tarfile.open(folder / packed) as archive:
        for one in files:
            member = archive.extractfile(f"package/{one.path}")
            assert member is not None, f"{name} {version} has no file {one.path}"
            found[one] = member.read()
    return found


def _with_sum(text: str, stored: str, digest: str) -> str:
    """Return the list with another sum for this file, and everything else as it was written."""
    before, entry, after = text.partition(f'stored = "{stored}"\n')
    assert entry, stored
    head, found, rest = after.partition('sha256 = "')
    assert found, f"{stored} has no line sha256"
    return before + entry + head + found + digest + rest[rest.index('"') :]


if __name__ == "__main__":
    renew()
    sys.exit("\n".join(find_changed()) or None)
