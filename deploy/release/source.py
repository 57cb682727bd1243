"""The checkout that a release is built from: its commit, its version, its tracked files."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.source import ROOT, tracked_files

__all__ = [
    "DIST",
    "ROOT",
    "BuildFailed",
    "commit_time",
    "project",
    "run",
    "run_program",
    "shared_folders",
    "tracked",
    "version",
]

DIST = ROOT / "dist"


class BuildFailed(Exception):
    """A build, or a check of what was built, failed; the text says why and what to do."""


def run(command: Sequence[str | Path], **options: Any) -> str:
    """Return the output of a command. Raises `BuildFailed` with its error output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-4000:]
        raise BuildFailed(f"{' '.join(map(str, command))} failed with status {done.returncode}:\n{said}")
    return str(done.stdout)


def commit_time() -> int:
    """Return the time of the commit in seconds, for all files that are built from it.

    An unpacked archive has no commit: there it is the time of `pyproject.toml`.
    """
    try:
        return int(run(["git", "-c", f"safe.directory={ROOT}", "log", "-1", "--format=%ct"], cwd=ROOT))
    except (BuildFailed, OSError):
        return int((ROOT / "pyproject.toml").stat().st_mtime)


def project() -> dict[str, Any]:
    """Return `pyproject.toml`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def version() -> str:
    """Return the version, of which `pyproject.toml` holds the only copy that a build reads."""
    return str(project()["project"]["version"])


def tracked(*places: str) -> list[str]:
    """Return the tracked files at or below these places, with slashes; all of them without a place."""
    below = tuple(f"{place.rstrip('/')}/" for place in places)
    return [name for name in tracked_files() if not places or name in places or name.startswith(below)]


def shared_folders() -> dict[str, str]:
    """Return the folders of files besides the code, each with its place in an installation, `share/…`."""
    folders: dict[str, str] = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    return folders


def run_program(main: Callable[[], None]) -> None:
    """Run a program of this room; one that fails says so in a line on stderr, and exits with status 1."""
    try:
        main()
    except BuildFailed as error:
        sys.exit(f"error: {error}")
