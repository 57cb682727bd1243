"""`make wheel`: the source archive, the wheel built from it, and the checks of both.

Everything is built twice, in different folders and under different umasks: files that differ by a byte are an error,
because they cannot be distinguished from files that were tampered with.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from deploy.release.source import DIST, ROOT, BuildFailed, commit_time, run, run_program, tracked


class Built(NamedTuple):
    """A source archive, and the wheel that was built from it."""

    sdist: Path
    wheel: Path


def build(folder: Path, source: Path = ROOT) -> Built:
    """Build the source archive of a checkout, and the wheel from the unpacked archive alone."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_time()), "PYTHONHASHSEED": "0"}
    hatch: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--directory", folder]
    run([*hatch, "--target", "sdist"], cwd=source, env=environment)
    (sdist,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        (inside,) = Path(unpacked).iterdir()
        run([*hatch, "--target", "wheel"], cwd=inside, env=environment)
    (wheel,) = folder.glob("*.whl")
    return Built(sdist, wheel)


def build_again(folder: Path) -> Built:
    """Build from a copy of the tracked files, under another umask."""
    before = os.umask(0o077)
    try:
        return build(folder, source=_copy(folder / "checkout"))
    finally:
        os.umask(before)


def build_twice(folder: Path) -> Built:
    """Build into a folder, and again elsewhere. Raises `BuildFailed` if the results differ."""
    first = build(folder)
    with tempfile.TemporaryDirectory() as scratch:
        for one, other in zip(first, build_again(Path(scratch)), strict=True):
            if one.read_bytes() != other.read_bytes():
                raise BuildFailed(f"{one.name} differs between two builds of the same commit")
    return first


def _copy(target: Path) -> Path:
    for name in tracked():
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, file)
    return target


def main() -> None:
    """Build into `dist/`, check, and print what was built."""
    from deploy.release.contents import check_contents
    from deploy.release.trial import try_wheel

    with tempfile.TemporaryDirectory() as scratch:
        built = build_twice(Path(scratch))
        check_contents(built)
        try_wheel(built.wheel)
        DIST.mkdir(exist_ok=True)
        for file in built:
            shutil.copy(file, DIST)
            print(f"{DIST / file.name}  {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    run_program(main)
