"""routerctl assets: list, write."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from eventd.cli.assets.installed import PURPOSES, InstalledFile, installed_files
from eventd.cli.gateway.options import SHOW
from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.output import Column, text
from eventd.errors import EventdError, NotFound
from eventd.text.plural import counted
from eventd.text.quoting import quoted

ASSETS = (
    Column("ASSET", text("name")),
    Column("FILES", lambda row: str(len(row["files"]))),
    Column("PURPOSE", text("purpose")),
)


@offline(*SHOW)
def list_assets(session: Session) -> None:
    """List the assets: sets of files that come with the program, such as units, manifests and manual pages."""
    rows = [
        {"name": name, "purpose": PURPOSES.get(name, ""), "files": [each.place for each in files]}
        for name, files in _by_asset().items()
    ]
    session.out.rows(ASSETS, rows, name=lambda row: str(row["name"]))


@offline("output")
def write(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to; created if it is missing.")],
    assets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ASSET...]", help="Assets, as `routerctl assets list` names them (default: all)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that differ.")] = False,
) -> None:
    """Write files that are installed with the program to a folder. If a file there differs, nothing is written without
    --force.
    """
    files = _chosen(assets or [])
    changed = [folder / each.place for each in files if _differs(each, folder)]
    if changed and not force:
        raise EventdError(f"{changed[0]} exists and differs", hint="write to another folder, or give --force")
    for each in files:
        _write_file(each, folder / each.place)
    session.out.outcome(
        [{"file": str(folder / each.place)} for each in files],
        f"wrote {counted(len(files), 'file')} to {folder}",
        name=lambda row: str(row["file"]),
    )


def _write_file(each: InstalledFile, target: Path) -> None:
    """Write a file in one step: a full disk leaves the present one. Raises `EventdError`, which names the target."""
    content, mode = each.file.read_bytes(), 0o755 if each.file.stat().st_mode & 0o100 else 0o644
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        part.write_bytes(content)
        part.chmod(mode)
        part.replace(target)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        hint = (
            "free some space, or write to another folder" if error.errno == errno.ENOSPC else "write to another folder"
        )
        raise EventdError(f"cannot write {target}: {error.strerror or error}", hint=hint) from None


def _differs(each: InstalledFile, folder: Path) -> bool:
    target = folder / each.place
    return target.exists() and (not target.is_file() or target.read_bytes() != each.file.read_bytes())


def _chosen(names: list[str]) -> list[InstalledFile]:
    """Return the files of the assets with these names; without names, of all assets. Raises `NotFound`."""
    found = _by_asset()
    for name in names:
        if name not in found:
            raise NotFound(f"no asset is called {quoted(name)}", hint=f"one of {', '.join(found)}")
    return [each for name, files in found.items() if not names or name in names for each in files]


def _by_asset() -> dict[str, list[InstalledFile]]:
    """Return all files by asset. Raises `NotFound` if there are none."""
    found: dict[str, list[InstalledFile]] = {}
    for each in installed_files():
        found.setdefault(each.asset, []).append(each)
    if not found:
        raise NotFound("no files are installed with this program", hint="install the wheel with pip")
    return found
