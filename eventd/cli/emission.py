"""Emitting many events from the standard input: good lines are stored, bad ones are named, nothing is held back."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from eventd.cli.output import count, note
from eventd.cli.selecting import one_group
from eventd.cli.session import Session
from eventd.errors import Conflict, EventdError, Forbidden, Invalid, NotFound, TooLarge

CHUNK = 1000
"""Lines of one request."""
CHUNK_BYTES = 4 << 20
LONGEST_LINE = 16 << 20
SHOWN = 100
"""Bad lines that are named one by one; all are counted."""

Line = tuple[int, dict[str, Any]]


class Emission:
    """Collects lines by group and stores them in chunks, each group's in their order."""

    def __init__(self, session: Session, group: str = "") -> None:
        self.group = group
        """Where lines belong that name no group; blank while nobody has asked."""
        self.counts: Counter[str] = Counter()
        self.bad: list[dict[str, Any]] = []
        self._session = session
        self._waiting: dict[str, list[Line]] = {}
        self._sizes: Counter[str] = Counter()

    async def add(self, number: int, group: str, event: dict[str, Any], size: int) -> None:
        """One good line, numbered from 1."""
        self._waiting.setdefault(group, []).append((number, event))
        self._sizes[group] += size
        if len(self._waiting[group]) >= CHUNK or self._sizes[group] >= CHUNK_BYTES:
            await self.flush(group)

    async def flush(self, group: str) -> None:
        """Store what waits for a group. Lines that are refused are left out, and the others go on."""
        lines = self._waiting.pop(group, [])
        del self._sizes[group]
        while lines:
            try:
                events = [event for _, event in lines]
                answer = await self._session.call("events.emit", group=group, events=events, brief=True)
            except (Invalid, TooLarge) as error:
                lines = self._leave_out(lines, _wrong(error, len(lines)))
            except (Conflict, Forbidden, NotFound) as error:  # about this group, or about single events
                if isinstance(getattr(error, "detail", None), list):
                    lines = self._leave_out(lines, _wrong(error, len(lines)))
                    continue
                if group == self.group and not isinstance(error, Conflict):
                    raise self._interrupted(error, lines[0][0]) from None  # so it would go with every other line
                for number, _ in lines:
                    self.refuse(number, error.message)
                lines = []
            except EventdError as error:
                raise self._interrupted(error, lines[0][0]) from None
            else:
                self._count(lines, answer["results"])
                lines = []

    async def flush_all(self) -> None:
        """Store all that waits."""
        for group in list(self._waiting):
            await self.flush(group)

    def refuse(self, number: int, message: str) -> None:
        """A line that is not stored, and why."""
        self.bad.append({"line": number, "message": message})
        if len(self.bad) <= SHOWN:
            note(f"line {number}: {message}")

    def _leave_out(self, lines: Sequence[Line], wrong: Mapping[int, str]) -> list[Line]:
        """What is left when the lines are refused that are wrong, by index."""
        for at, message in wrong.items():
            self.refuse(lines[at][0], message)
        return [line for at, line in enumerate(lines) if at not in wrong]

    def _count(self, lines: Sequence[Line], results: Sequence[dict[str, Any]]) -> None:
        for (number, _), result in zip(lines, results, strict=True):
            self.counts[result["result"]] += 1
            if result["result"] == "conflict":
                self.refuse(number, f"the id {result['id']} is taken by another content or another source")

    def _interrupted(self, error: EventdError, number: int) -> EventdError:
        """What stopped us, with the first line that is not known to be stored."""
        first = min([number, *(lines[0][0] for lines in self._waiting.values())])
        hint = f"lines before {first} are dealt with, repeat from there"
        error.hint = f"{error.hint}; {hint}" if error.hint else hint
        return error


def _wrong(error: EventdError, of: int) -> dict[int, str]:
    """The messages by index. Raises the error itself where it is not about single events."""
    detail = getattr(error, "detail", None)
    if not isinstance(detail, list):
        raise error
    found = {int(problem["index"]): str(problem["message"]) for problem in detail}
    if not found or not all(0 <= at < of for at in found):
        raise error
    return found


async def emit_lines(session: Session, group: str) -> None:
    """Emit every line of the standard input. Raises `Invalid` at the end when some were not stored."""
    import msgspec

    emission = Emission(session, group)
    for number, raw in _lines(sys.stdin.buffer):
        if len(raw) > LONGEST_LINE:
            emission.refuse(number, f"is longer than {LONGEST_LINE >> 20} MiB")
            continue
        try:
            event = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            emission.refuse(number, f"is not JSON: {str(error).removeprefix('JSON is malformed: ')}")
            continue
        if not isinstance(event, dict):
            emission.refuse(number, "is not a JSON object")
            continue
        named = event.get("group") or emission.group
        if not named:
            named = emission.group = await one_group(session, "")
        await emission.add(number, str(named), event, len(raw))
    await emission.flush_all()
    _report(session, emission)


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1; of a line that is too long, its beginning."""
    number = 0
    while raw := stream.readline(LONGEST_LINE + 1):
        number += 1
        if raw.strip():
            yield number, raw
        if len(raw) > LONGEST_LINE:
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(LONGEST_LINE)


def _report(session: Session, emission: Emission) -> None:
    counts = {word: emission.counts[word] for word in ("new", "refreshed", "duplicate", "conflict")}
    if session.out.is_table:
        taken = {word: number for word, number in counts.items() if number and word != "conflict"}
        words = f": {', '.join(f'{number} {word}' for word, number in taken.items())}" if taken else ""
        session.out.line(f"{count(sum(taken.values()), 'event')} taken{words}")
    elif session.out.format != "name":
        session.out.value({**counts, "bad": emission.bad})
    if emission.bad:
        raise Invalid(f"not stored: {count(len(emission.bad), 'line')}")
