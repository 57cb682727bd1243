"""Emits many events from standard input: valid lines are stored, and invalid lines are reported without delaying the
valid ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eventd.cli.gateway.selecting import one_group
from eventd.cli.gateway.session import Session
from eventd.cli.program.stopping import EndOnSignal
from eventd.cli.program.values import Duration
from eventd.cli.terminal.input_lines import InputLines
from eventd.cli.terminal.output import ZERO_TIME, note
from eventd.errors import CheckFailed, Conflict, EventdError, Forbidden, Invalid, NotFound, TooLarge
from eventd.runtime.clock import SystemClock
from eventd.text.plural import counted

CHUNK = 1000
"""Maximum number of lines of one request."""
CHUNK_BYTES = 4 << 20
LINGER = 0.2
"""Seconds that a line waits for others before it is sent without them."""
LONGEST_LINE = 16 << 20
SHOWN = 100
"""Maximum number of invalid lines that are reported individually; all are counted."""
MOST_BAD = 10_000
"""Maximum number of invalid lines that are kept for the JSON output, so that an endless input does not fill the
memory."""

Line = tuple[int, dict[str, Any]]


class Emission:
    """Collects the events of input lines by group and stores them in chunks, each group's in order."""

    def __init__(self, session: Session, group: str = "", defaults: Mapping[str, str] | None = None) -> None:
        self.group = group
        """The group for lines that name no group; empty until such a line comes."""
        self._defaults = dict(defaults or {})
        self.counts: Counter[str] = Counter()
        self.bad: list[dict[str, Any]] = []
        """The first `MOST_BAD` refused lines."""
        self.refused = 0
        self._stored: dict[str, str] = {}
        self._repeated: dict[str, str] = {}
        self._session = session
        self._waiting: dict[str, list[Line]] = {}
        self._sizes: Counter[str] = Counter()

    async def take(self, number: int, raw: bytes) -> None:
        """Add the event of a line, with the defaults that it lacks; refuse a line that is too long or not an object."""
        import msgspec

        if len(raw) > LONGEST_LINE:
            self.refuse(number, f"is longer than {LONGEST_LINE >> 20} MiB")
            return
        try:
            event = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.refuse(number, f"is not JSON: {str(error).removeprefix('JSON is malformed: ')}")
            return
        if not isinstance(event, dict):
            self.refuse(number, "is not a JSON object")
            return
        self._fill_in(event)
        group = event.get("group") or self.group
        if not group:
            group = self.group = await one_group(self._session, "")
        await self.add(number, str(group), event, len(raw))

    def _fill_in(self, event: dict[str, Any]) -> None:
        """Add the default members that an event lacks; `ttl` only if it has no `expiresAt`."""
        for name, value in self._defaults.items():
            lacks = event.get(name) in (None, "")
            if lacks and not (name == "ttl" and event.get("expiresAt") not in (None, ZERO_TIME)):
                event[name] = value

    async def add(self, number: int, group: str, event: dict[str, Any], size: int) -> None:
        """Add a valid line, numbered from 1, of `size` bytes. Stores the group's lines once they fill a request."""
        self._waiting.setdefault(group, []).append((number, event))
        self._sizes[group] += size
        if len(self._waiting[group]) >= CHUNK or self._sizes[group] >= CHUNK_BYTES:
            await self.flush(group)

    async def flush(self, group: str) -> None:
        """Store the waiting lines of a group. Lines that the node refuses are reported, and the others sent again.

        Raises `EventdError` if no further line can be stored; unless the request as such is invalid, its hint names the
        line to repeat from.
        """
        while lines := self._waiting[group]:
            try:
                events = [event for _, event in lines]
                answer = await self._session.call("events.emit", group=group, events=events, brief=True)
            except (Invalid, TooLarge) as error:
                self._waiting[group] = self._leave_out(lines, _wrong(error, len(lines)))
            except (Conflict, Forbidden, NotFound) as error:  # an error of this group or of single events
                if isinstance(getattr(error, "detail", None), list):
                    self._waiting[group] = self._leave_out(lines, _wrong(error, len(lines)))
                    continue
                if group == self.group and not isinstance(error, Conflict):
                    raise self._interrupted(error) from None  # every other line would fail as well
                if isinstance(error, Conflict) and len(lines) == 1:
                    self.counts["conflict"] += 1  # as among several events, where it is a result
                for number, _ in lines:
                    self.refuse(number, error.message)
                self._waiting[group] = []
            except EventdError as error:
                raise self._interrupted(error) from None
            else:
                self._count(group, lines, answer["results"])
                self._waiting[group] = []
        del self._waiting[group], self._sizes[group]

    async def flush_all(self) -> None:
        """Store the waiting lines of every group. Raises as `flush` does."""
        for group in list(self._waiting):
            await self.flush(group)

    def refuse(self, number: int, message: str) -> None:
        """Count a line that is not stored, and report it with the reason unless `SHOWN` lines have been reported."""
        self.refused += 1
        if self.refused <= MOST_BAD:
            self.bad.append({"line": number, "message": message})
        if self.refused <= SHOWN:
            note(f"line {number}: {message}")

    def _leave_out(self, lines: Sequence[Line], wrong: Mapping[int, str]) -> list[Line]:
        """Count and report the lines in `wrong` (index to message) as refused; return the others."""
        for at, message in wrong.items():
            self.refuse(lines[at][0], message)
        return [line for at, line in enumerate(lines) if at not in wrong]

    def _count(self, group: str, lines: Sequence[Line], results: Sequence[dict[str, Any]]) -> None:
        for (number, _), result in zip(lines, results, strict=True):
            self.counts[result["result"]] += 1
            if result["result"] in ("new", "refreshed"):
                self._stored[group] = result["id"]
            elif result["result"] == "duplicate":
                self._repeated[group] = result["id"]
            if result["result"] == "conflict":
                self.refuse(
                    number, f"the id {result['id']} belongs to an event with other content or of another source"
                )

    @property
    def last(self) -> dict[str, str]:
        """Return by group the id of the last event that was stored, after all others; or of the last duplicate."""
        return self._repeated | self._stored

    @property
    def waits(self) -> bool:
        """Return whether an added line is not stored yet."""
        return any(self._waiting.values())

    def progress(self, ahead: int) -> str:
        """Return a text that names the line from which to repeat the input: all lines before it are stored or refused.

        `ahead` is the first line that was not added.
        """
        first = min([ahead, *(lines[0][0] for lines in self._waiting.values() if lines)])
        if first == 1:
            return "no line is done; repeat the whole input"
        return f"lines before {first} are done; repeat from there"

    def _interrupted(self, error: EventdError) -> EventdError:
        """Return the error, after adding to its hint the line from which to repeat the input."""
        hint = self.progress(max(lines[-1][0] for lines in self._waiting.values() if lines))
        error.hint = f"{error.hint}; {hint}" if error.hint else hint
        return error


def _wrong(error: EventdError, of: int) -> dict[int, str]:
    """Return the node's messages on single events of a refused request of `of` events, by index.

    Raises the error itself if it does not concern single events.
    """
    detail = getattr(error, "detail", None)
    if not isinstance(detail, list):
        raise error
    found = {int(problem["index"]): str(problem["message"]) for problem in detail}
    if not found or not all(0 <= at < of for at in found):
        raise error
    return found


class SealWait(NamedTuple):
    """How many peers must have cosigned a checkpoint that covers the events, and how long the command waits for it."""

    witnesses: int
    patience: Duration


async def emit_lines(session: Session, group: str, defaults: Mapping[str, str], wait: SealWait | None = None) -> None:
    """Emit the event of each line of standard input; `defaults` has members for events that lack them.

    `wait`: after the end of the input, wait until a checkpoint covers the events.

    Ctrl-C, SIGTERM and SIGHUP end the input: the complete lines are stored and reported, and the command exits with
    128 plus the signal's number. Raises `Invalid` at the end when some lines were not stored.
    """
    lines = InputLines(longest=LONGEST_LINE)
    emission = Emission(session, group, defaults)
    try:
        with EndOnSignal(lines.stop) as signals:
            await _emit_all(lines, emission)
    except asyncio.CancelledError:  # a second Ctrl-C
        note(f"interrupted: {emission.progress(lines.finished + 1)}")
        raise
    sealed, unsealed = dict[str, dict[str, Any]](), None
    if wait is not None and not signals.number:
        try:
            sealed = await _wait_sealed(session, emission.last, wait)
        except CheckFailed as error:
            unsealed = error
    _report(session, emission, sealed)
    refused = f"not stored: {counted(emission.refused, 'line')}" if emission.refused else ""
    if signals.number:
        unfinished = f"; line {lines.finished + 1} is unfinished and was not stored" if lines.unfinished else ""
        note(f"interrupted: {emission.progress(lines.finished + 1)}{unfinished}")
        if refused:
            note(refused)
        raise SystemExit(128 + signals.number)
    if unsealed is not None:
        if refused:
            note(refused)
        raise unsealed
    if refused:
        raise Invalid(refused)


async def _wait_sealed(session: Session, last: Mapping[str, str], wait: SealWait) -> dict[str, dict[str, Any]]:
    """Wait for the last event of each group: a checkpoint that covers it covers all before it. Raises CheckFailed."""
    from eventd.cli.history.sealed import wait_sealed

    return {group: await wait_sealed(session, group, one, *wait) for group, one in last.items()}


async def _emit_all(lines: InputLines, emission: Emission) -> None:
    """Emit the lines until the input ends. No line waits longer than `LINGER` to be sent with others."""
    clock, due = SystemClock(), None
    while (found := await lines.read(None if due is None else max(0.0, due - clock.monotonic()))) is not None:
        for number, raw in found:
            await emission.take(number, raw)
        if due is not None and clock.monotonic() >= due:
            await emission.flush_all()
        if not emission.waits:
            due = None
        elif due is None:
            due = clock.monotonic() + LINGER
    await emission.flush_all()


def _report(session: Session, emission: Emission, sealed: Mapping[str, dict[str, Any]]) -> None:
    counts = {word: emission.counts[word] for word in ("new", "refreshed", "duplicate", "conflict")}
    if session.out.is_table:
        taken = {word: number for word, number in counts.items() if number and word != "conflict"}
        words = f": {', '.join(f'{number:,} {word}' for word, number in taken.items())}" if taken else ""
        session.out.line(f"{counted(sum(taken.values()), 'event')} accepted{words}")
    elif session.out.format != "name":
        shown = {"history": sealed} if sealed else {}
        session.out.value({**counts, "bad": emission.bad, "badLines": emission.refused, **shown})
