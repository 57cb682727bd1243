"""The file of a campaign: it grows as runs end, and a campaign that was interrupted continues with it."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

import eventd
import federation
from eventd.errors import Conflict, EventdError, Invalid
from eventd.simulation.campaign import CampaignResult
from eventd.simulation.faults.fault import POSTGRES, SQLITE
from eventd.simulation.faults.pairs import pairs_on
from eventd.simulation.run import SimulationResult
from eventd.store.engine.address import sqlite_version
from eventd.store.schema.migrations import migrations_folder


class CampaignOrigin(msgspec.Struct, frozen=True):
    """What the runs of one campaign have in common: results of another origin are not added to it.

    `code` identifies the program's source, also where it has no commit; `store` is what the nodes' databases were on.
    The machine is not among them: a seed has the same steps on each.
    """

    version: str
    code: str
    python: str
    sqlite: str
    store: str = SQLITE


class _Stored(msgspec.Struct):
    """The content of the file."""

    origin: CampaignOrigin
    commit: str
    machines: list[str]
    result: CampaignResult


class CampaignReport:
    """A campaign, and the file that it grows in; without a file, it begins with no runs.

    `commit` is that of the clone in which it began; empty outside of one. `machines` are those on which it ran.
    """

    def __init__(
        self,
        origin: CampaignOrigin,
        commit: str,
        machines: list[str],
        result: CampaignResult,
        file: Path | None = None,
    ) -> None:
        self.origin = origin
        self.commit = commit
        self.machines = machines
        self.result = result
        self._file = file

    @classmethod
    def open(cls, file: Path | None, postgres: str = "") -> CampaignReport:
        """Return the report in a file, or a new one if it does not exist; `postgres`: the version of the nodes' server.

        Raises `Invalid` if the file is not a report, `Conflict` if its runs are of another origin, and `EventdError` if
        it cannot be read or written.
        """
        present = present_origin()
        if postgres:
            present = msgspec.structs.replace(present, store=f"{POSTGRES} {postgres}")
        commit = _commit(Path(eventd.__file__).parent.parent)
        if file is not None and file.exists() and not file.is_file():
            raise Invalid(f"{file} is not a file: a report is read and replaced as a whole", hint="name another file")
        if file is None or not file.exists() or not file.stat().st_size:
            pairs = pairs_on(POSTGRES if postgres else SQLITE)
            report = cls(present, commit, [], CampaignResult(fault_pairs=dict.fromkeys(pairs, 0)), file)
            report._write()  # whether it can be written shows before the first run
            return report
        try:
            found = msgspec.json.decode(file.read_bytes(), type=_Stored)
        except OSError as error:
            raise EventdError(f"the report {file} cannot be read: {error.strerror}") from None
        except msgspec.DecodeError as error:
            raise Invalid(f"{file} is not the report of a campaign: {error}", hint="name another file") from None
        if found.result.runs != sum(last - first + 1 for first, last in found.result.seeds):
            raise Invalid(
                f"{file} is not as it was written: its number of runs is not that of its seeds",
                hint="name another file",
            )
        for name in CampaignOrigin.__struct_fields__:
            before, now = getattr(found.origin, name), getattr(present, name)
            if before != now:
                raise Conflict(
                    f"the runs in {file} are of another origin: {name} was {before}, and is {now}",
                    hint="begin a new campaign in another file",
                )
        return cls(found.origin, found.commit, found.machines, found.result, file)

    def add(self, result: SimulationResult) -> None:
        """Add a run of this machine, and write the file. Raises `EventdError`."""
        if (machine := present_machine()) not in self.machines:
            self.machines.append(machine)
        self.result.add(result)
        self._write()

    def to_object(self) -> dict[str, Any]:
        """Return what the file has."""
        origin: dict[str, str] = msgspec.to_builtins(self.origin)
        about = {"origin": origin, "commit": self.commit, "machines": self.machines}
        return {**about, "result": self.result.to_object()}

    def _write(self) -> None:
        """Write the file: a reader sees the old content or the new one as a whole."""
        if self._file is None:
            return
        part = self._file.with_name(f".{self._file.name}.part")
        try:
            part.write_bytes(msgspec.json.format(msgspec.json.encode(self.to_object())) + b"\n")
            part.replace(self._file)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            hint = "create its folder first" if isinstance(error, FileNotFoundError) else ""
            raise EventdError(f"the report {self._file} cannot be written: {error.strerror}", hint=hint) from None


def present_origin() -> CampaignOrigin:
    """Return the origin of the runs of this process."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    return CampaignOrigin(eventd.__version__, digest_of(code_folders()), version, sqlite_version())


def present_machine() -> str:
    """Return what is known of this machine."""
    return f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count() or 1} processors"


def code_folders() -> list[Path]:
    """Return the folders of the code that runs depend on: also the migrations, which make the nodes' tables."""
    return [*(Path(str(package.__file__)).parent for package in (eventd, federation)), migrations_folder()]


def digest_of(folders: Iterable[Path]) -> str:
    """Return a digest of the names and contents of all files with code, also SQL."""
    digest = hashlib.sha256()
    for root in folders:
        for file in sorted(file for file in root.rglob("*") if file.suffix in (".py", ".sql")):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _commit(folder: Path) -> str:
    """Return the commit of the clone in a folder; empty if it is not one."""
    git = folder / ".git"
    with suppress(OSError):
        head = (git / "HEAD").read_text().strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head
        with suppress(FileNotFoundError):
            return (git / name).read_text().strip()
        for line in (git / "packed-refs").read_text().splitlines():
            if line.endswith(f" {name}"):
                return line.split()[0]
    return ""
