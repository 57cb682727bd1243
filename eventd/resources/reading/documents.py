"""Parses files to drafts: one draft per resource, with its source and the line of each field.

The resources are not validated here. A source contains single resources in YAML documents, a Router document with
`spec.resources[]`, a List with `items[]`, or the same in JSON. Problems are collected, so one bad file does not hide
the problems of another.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from eventd.resources.reading.json_text import read_json
from eventd.resources.reading.nodes import (
    MAX_VALUES,
    Flaw,
    Flaws,
    Mapping,
    Node,
    ParseError,
    Scalar,
    Sequence,
    line_of,
    plain,
)
from eventd.resources.reading.problems import MOST_FOUND, FieldPath, Problem, render_path, shorten

MAX_BYTES = 16 * 1024 * 1024
"""Maximum bytes of one source."""
MAX_TOTAL_BYTES = 4 * MAX_BYTES
"""Maximum bytes of all sources of one command together."""
PIPE_SECONDS = 60
"""Seconds that a command waits for a silent writer of a pipe."""

ROUTER = ("routerd.net/v1alpha1", "Router")
_SUFFIXES = (".yaml", ".yml", ".json")
_READABLE = "name a file, or a directory of files, that this user can read"


class Identity(NamedTuple):
    """The apiVersion, kind and name that together identify a resource; shown as `Kind/name`."""

    api_version: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Draft:
    """A resource as written, known to be a mapping and not validated otherwise."""

    source: str
    node: Mapping

    @property
    def data(self) -> dict[str, Any]:
        """Return the resource as plain values."""
        return {key: plain(entry.node) for key, entry in self.node.entries.items()}

    @property
    def name(self) -> str | None:
        """Return `metadata.name`; None if it is missing or not a string."""
        metadata = self.node.get("metadata")
        return metadata.text("name") if isinstance(metadata, Mapping) else None

    @property
    def identity(self) -> Identity | None:
        """Return the identity of the resource; None if apiVersion, kind or name is missing, empty or not a string."""
        version, kind = self.node.text("apiVersion"), self.node.text("kind")
        return Identity(version, kind, self.name) if version and kind and self.name else None

    @property
    def label(self) -> str:
        """Return `Kind/name`, or only one of the two if the other is missing; empty if both are."""
        return "/".join(part for part in (self.node.text("kind"), self.name) if part)

    def line_of(self, path: FieldPath) -> int:
        """Return the line of the field at `path`; if that is absent, of the nearest enclosing field that exists."""
        return line_of(self.node, path)

    def problem(self, path: FieldPath, message: str, hint: str = "") -> Problem:
        """Return a problem at the field `path`."""
        line, label = self.line_of(path), shorten(self.label)
        return Problem(self.source, line, 0, render_path(path), shorten(message, 400), shorten(hint, 400), label)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The drafts of some sources, and the problems of reading; with problems, drafts may be missing."""

    drafts: tuple[Draft, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __add__(self, other: ReadResult) -> ReadResult:
        return ReadResult(self.drafts + other.drafts, self.problems + other.problems)


def read_file(path: Path) -> bytes:
    """Return up to `MAX_BYTES` + 1 bytes of a file, from its beginning: enough to notice that it is too large.

    The writer of a pipe, as `<(…)` of a shell is one, must not be silent for `PIPE_SECONDS`. Raises OSError.
    """
    if path.is_fifo():
        return _read_pipe(path)
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _read_pipe(path: Path) -> bytes:
    """Read a pipe without waiting for its writer for ever: a pipe may have no writer, or a writer that never ends."""
    found = bytearray()
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        while len(found) <= MAX_BYTES:
            if not poll.poll(PIPE_SECONDS * 1000):
                raise OSError(errno.ETIMEDOUT, f"its writer was silent for {PIPE_SECONDS} s")
            part = file.read(MAX_BYTES + 1 - len(found))
            if part == b"":
                break
            found += part or b""  # None: another reader was faster
    return bytes(found)


def read_sources(
    paths: Iterable[str],
    *,
    read: Callable[[Path], bytes] = read_file,
    read_stdin: Callable[[], bytes] | None = None,
) -> ReadResult:
    """Read files, folders (their *.yaml, *.yml and *.json, sorted, not recursively) and `-`, standard input.

    Does not raise: a missing, unreadable or malformed file becomes a problem of the result.
    """
    budget = _Budget(read)
    try:
        return _read_all(paths, budget, read_stdin)
    except _BudgetExceeded as error:
        most = MAX_TOTAL_BYTES // 1024 // 1024
        message = f"are larger than {most} MiB together: name fewer files at once"
        return _unreadable(f"{error.source} and what was read before", message)


class _BudgetExceeded(Exception):
    """The sources exceed `MAX_TOTAL_BYTES` together; `source` is the one whose bytes exceeded it."""

    def __init__(self, source: str) -> None:
        self.source = source


class _Budget:
    """Reads files and counts the bytes of all sources. Raises `_BudgetExceeded` beyond `MAX_TOTAL_BYTES`."""

    def __init__(self, read: Callable[[Path], bytes]) -> None:
        self._read = read
        self._left = MAX_TOTAL_BYTES

    def read(self, path: Path) -> bytes:
        """Return the bytes of a file, up to `MAX_BYTES` + 1, and count them."""
        return self.spend(self._read(path), str(path))

    def spend(self, content: bytes, source: str) -> bytes:
        """Count the bytes of a source, and return them."""
        self._left -= len(content)
        if self._left < 0:
            raise _BudgetExceeded(source)
        return content


def _read_all(paths: Iterable[str], budget: _Budget, read_stdin: Callable[[], bytes] | None) -> ReadResult:
    loaded = ReadResult()
    stdin = read_stdin
    for path in paths:
        if path == "-":
            loaded += _load_stdin(budget, stdin)
            stdin = None  # a stream can be read only once
        elif not path:  # Danger: an unset variable of a script would mean the current folder
            loaded += _unreadable(path, "no file given: name one, a directory, or - for the standard input")
        else:
            for file in _expand(Path(path)):
                loaded += file if isinstance(file, ReadResult) else _load_file(file, budget)
    return loaded


def _load_stdin(budget: _Budget, read_stdin: Callable[[], bytes] | None) -> ReadResult:
    if read_stdin is None:
        return _unreadable("-", "standard input was read already, or is not read by this command: name a file")
    return load_bytes("<stdin>", budget.spend(read_stdin(), "<stdin>"))


def _expand(path: Path) -> Iterator[Path | ReadResult]:
    try:
        if not path.is_dir():
            yield path
            return
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES and file.is_file())
    except (OSError, ValueError) as error:
        yield _unreadable(str(path), f"cannot be read: {_reason(error)}", _READABLE)
        return
    if not files:
        yield _unreadable(str(path), "the directory contains no *.yaml, *.yml or *.json file")
    yield from files


def _load_file(path: Path, budget: _Budget) -> ReadResult:
    try:
        content = budget.read(path)
    except (OSError, ValueError) as error:
        return _unreadable(str(path), f"cannot be read: {_reason(error)}", _READABLE)
    return load_bytes(str(path), content)


def _reason(error: OSError | ValueError) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or "the path is not valid").lower()


def _unreadable(source: str, message: str, hint: str = "") -> ReadResult:
    return ReadResult(problems=(Problem(source, 0, 0, "", message, hint),))


def load_bytes(source: str, content: bytes) -> ReadResult:
    """Return the drafts in the bytes of a source; bytes that are not UTF-8, or over `MAX_BYTES`, are a problem."""
    if len(content) > MAX_BYTES:
        return _unreadable(source, f"is larger than {MAX_BYTES // 1024 // 1024} MiB, the most that is read: split it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return ReadResult(problems=(Problem(source, line, 0, "", "is not UTF-8 text"),))
    return load_text(source, text)


def load_text(source: str, text: str, most: int = MAX_VALUES) -> ReadResult:
    """Return the drafts in the text of a source; more than `most` values are a problem.

    A source whose name ends in `.json` is read as JSON. Another one that begins like JSON is tried as JSON,
    then as YAML.
    """
    if text.lstrip()[:1] in ("{", "[") and not source.lower().endswith(".json"):
        as_json = _load(source, text, _json_documents, most)
        if as_json.drafts and not as_json.problems:
            return as_json
    from eventd.resources.reading.yaml_text import read_yaml  # slow to load: only files are written in YAML

    documents = _json_documents if source.lower().endswith(".json") else read_yaml
    return _load(source, text, documents, most)


def _json_documents(text: str, flaws: list[Flaw], most: int) -> Iterator[Node]:
    if text.strip():
        yield read_json(text, flaws, most)


def _load(source: str, text: str, documents: Callable[[str, list[Flaw], int], Iterator[Node]], most: int) -> ReadResult:
    flaws, last = Flaws(), list[Flaw]()
    unfolded = _Unpacker(source)
    try:
        for document in documents(text, flaws, most):
            if not (isinstance(document, Scalar) and document.value is None):
                unfolded.add(document)
    except ParseError as error:
        last = [Flaw(error.line, error.column, error.message)]
    problems = [Problem(source, flaw.line, flaw.column, "", flaw.message) for flaw in (*flaws, *last)]
    return ReadResult(tuple(unfolded.drafts), tuple(problems + unfolded.problems))


class _Unpacker:
    """Splits documents into single resources."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.drafts: list[Draft] = []
        self.problems: list[Problem] = []

    def _note(self, problem: Problem) -> None:
        if len(self.problems) < MOST_FOUND:
            self.problems.append(problem)

    def add(self, node: Node) -> None:
        """Add the resources of a document, or of a member of it."""
        if isinstance(node, Sequence):
            for item in node.items:
                self.add(item)
        elif isinstance(node, Scalar):
            message = "a resource is a mapping with apiVersion, kind, metadata and spec"
            self._note(Problem(self.source, node.line, 0, "", message))
        elif node.text("kind") == "Router":
            self._add_router(node)
        elif node.text("kind") == "List" and "items" in node.entries:
            self._add_members(node, ("items",))
        else:
            self.drafts.append(Draft(self.source, node))

    def _add_router(self, node: Mapping) -> None:
        draft = Draft(self.source, node)
        metadata, spec = node.get("metadata"), node.get("spec")
        if node.text("apiVersion") != ROUTER[0]:
            self._note(draft.problem(("apiVersion",), f"must be {ROUTER[0]} for a Router"))
        if not isinstance(metadata, Mapping) or not metadata.text("name"):
            self._note(draft.problem(("metadata", "name"), "is required"))
        self._refuse_others(draft, node, (), ("apiVersion", "kind", "metadata", "spec", "status"))
        if isinstance(spec, Mapping):
            self._refuse_others(draft, spec, ("spec",), ("resources",))
        self._add_members(node, ("spec", "resources"))

    def _refuse_others(self, draft: Draft, node: Mapping, path: FieldPath, known: tuple[str, ...]) -> None:
        for key in node.entries:
            if key not in known:
                self._note(draft.problem((*path, key), f"unknown field; known here: {', '.join(known)}"))

    def _add_members(self, node: Mapping, path: tuple[str, ...]) -> None:
        members: Node | None = node
        for step in path:
            members = members.get(step) if isinstance(members, Mapping) else None
        if isinstance(members, Sequence):
            self.add(members)
        elif members is None or not (isinstance(members, Scalar) and members.value is None):
            draft = Draft(self.source, node)
            self._note(draft.problem(path, "must be a list of resources"))
