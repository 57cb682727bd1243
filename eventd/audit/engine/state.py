"""What an audit keeps for the next one: the cells of every segment it has read, and by what they were made.

The state belongs to one lake. A segment is read again only when its file is another, or when what its cells depend on
is: the links they were meant for, or the clocks they were corrected by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from eventd.audit.engine.plan import Clockwork
from eventd.audit.engine.small_ledgers import Facts
from eventd.audit.engine.tasks import Job, Outcome
from eventd.errors import Conflict, NotFound
from eventd.lake.manifest import Head
from eventd.lake.schema import Book
from eventd.lake.storage import Storage, Written

FOLDER: Final = "state"
INDEX: Final = f"{FOLDER}/index.msgpack"
VERSION: Final = 4
"""Of the cells and of what they are made by. Another one makes the state worthless, not wrong: it is made anew."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that was read: which file it was, in which file its cells are, and by what they were made.

    `read_at`: when its bytes were last compared with its digest (microseconds).
    """

    sha256: str
    rows: int
    file: str
    read_at: int
    links: str = ""
    skews: dict[str, dict[int, int]] = {}
    facts: Facts | None = None


class State(msgspec.Struct, kw_only=True):
    """Everything that is known already, by the names of segments. `cells`: the files with cells, as written.

    `rewritten`: segments whose digest changed after they were read, and when that was noticed (microseconds).
    """

    version: int = VERSION
    lake: str
    entries: dict[str, Entry] = {}
    cells: dict[str, Written] = {}
    rewritten: dict[str, int] = {}

    def knows(self, job: Job, clocks: Clockwork) -> bool:
        """Whether the cells of the job's segment are there, and still right."""
        entry = self.entries.get(job.name)
        return (
            entry is not None
            and entry.sha256 == job.manifest.sha256
            and entry.links == _basis(job)
            and _within_bounds(entry.skews, job.manifest.node, clocks)
        )

    def learn(self, job: Job, outcome: Outcome, now: int) -> None:
        """Take up the cells of a job that was done; one that could not be done is forgotten."""
        self.cells[outcome.file] = outcome.written
        if job.name not in outcome.rows:
            self.entries.pop(job.name, None)
            return
        self.entries[job.name] = Entry(
            sha256=job.manifest.sha256,
            rows=outcome.rows[job.name],
            file=outcome.file,
            read_at=now,
            links=_basis(job),
            skews=_used(job),
            facts=outcome.facts.get(job.name),
        )

    def written(self, file: str) -> Written:
        """What a file with cells was when it was written."""
        return self.cells.get(file, Written(-1, ""))

    def forget(self, files: Collection[str]) -> None:
        """Forget what lies in these files with cells: their segments are read again."""
        self.entries = {name: entry for name, entry in self.entries.items() if entry.file not in files}
        self.cells = {file: written for file, written in self.cells.items() if file not in files}

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget segments that the lake does not count any more."""
        kept = frozenset(names)
        self.entries = {name: entry for name, entry in self.entries.items() if name in kept}
        self.rewritten = {name: at for name, at in self.rewritten.items() if name in kept}

    def files(self) -> dict[str, list[str]]:
        """The files with cells, and the segments that count in each."""
        found: dict[str, list[str]] = {}
        for name, entry in sorted(self.entries.items()):
            found.setdefault(entry.file, []).append(name)
        return found


def open_state(out: Storage, lake: Head) -> State:
    """What is known of the lake, as far as its files are there. What is gone is made anew, from the lake.

    Raises Conflict where the place holds what is known of another lake, and LakeUnavailable.
    """
    try:
        text = out.read(INDEX)
    except NotFound:
        return State(lake=lake.id)
    try:
        found = msgspec.msgpack.decode(text, type=State)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return State(lake=lake.id)  # half written, or by another version: nothing is lost but time
    if found.lake != lake.id:
        raise Conflict(
            f"{out.url} holds an audit of another lake", hint="choose another --out, or begin anew with --full"
        )
    if found.version != VERSION:
        return State(lake=lake.id)
    sizes = {entry.path: entry.bytes for entry in out.list(FOLDER)}
    found.forget([file for file in found.files() if sizes.get(file) != found.written(file).bytes])
    return found


def forget_spoilt(out: Storage, state: State) -> bool:
    """Forget what lies in files that are gone, or have other bytes than were written; whether there are any.

    It reads all of them. Raises LakeUnavailable.
    """
    spoilt = [file for file in state.files() if not _is_whole(out, file, state.written(file))]
    state.forget(spoilt)
    return bool(spoilt)


def _is_whole(out: Storage, file: str, written: Written) -> bool:
    try:
        return hashlib.sha256(out.read(file)).hexdigest() == written.sha256
    except NotFound:
        return False


def claim(out: Storage, lake: Head, *, anew: bool) -> None:
    """Take a place for audits of the lake, so that what is wrong with it is told before any work.

    Raises Conflict as `open_state` unless all is to be read `anew`, and LakeUnavailable where nothing can be written.
    """
    try:
        out.read(INDEX)
    except NotFound:
        out.put(INDEX, msgspec.msgpack.encode(State(lake=lake.id)))
        return
    if not anew:
        open_state(out, lake)


def keep(out: Storage, state: State) -> None:
    """Write down what is known, and remove the files that nothing refers to, half written ones of killed tasks too."""
    files = state.files()
    state.cells = {file: state.cells[file] for file in files}
    out.put(INDEX, msgspec.msgpack.encode(state))
    needed = {*files, INDEX}
    out.delete([entry.path for entry in out.list(FOLDER) if entry.path not in needed])
    out.delete(out.unfinished(FOLDER))


def _basis(job: Job) -> str:
    """What the job's cells depend on beside the file, in short."""
    # By whom they were wanted is part of the cells, so the peers' names belong to it.
    terms = msgspec.msgpack.encode((job.links, job.since, job.limit))
    return hashlib.sha256(terms).hexdigest()[:16]


def _used(job: Job) -> dict[str, dict[int, int]]:
    """The skews that were used, by peer and hour."""
    if job.manifest.book is not Book.DELIVERIES:
        return {}
    return {peer: dict(zip(skew.hours, skew.values, strict=True)) for peer, skew in job.skews.items()}


def _within_bounds(used: Mapping[str, Mapping[int, int]], node: str, clocks: Clockwork) -> bool:
    """Whether each skew that was used is still one that the books allow."""
    for (sender, peer), hours in clocks.items():
        if sender != node:
            continue
        before = used.get(peer, {})
        for one in hours:
            if one.hour in before and not min(one.low, one.high) <= before[one.hour] <= max(one.low, one.high):
                return False
    return True
