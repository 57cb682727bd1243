"""Batches of v2: lines and runs mean the same, however they are cut and in whatever chunks they are decoded."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from unittest.mock import patch

from federation import batch as batches
from federation.batch import Batch, decode_batch, encode_batch
from federation.errors import Malformed, TooLarge
from federation.event import Event, decode_canonical, encode
from federation.peers import BATCH_TYPE, RUNS_TYPE, Limits
from federation.ranges import Range
from federation.runs import Run, read_runs, split_runs
from tests.fuzz.target import FuzzTarget

COVERED = Range(epoch="e", after=10, upto=10**6)
OBSERVED = datetime(2026, 5, 30, tzinfo=UTC)
LIMITS = Limits(batch_bytes=1 << 20, batch_events=50, event_bytes=1000)

Outcome = tuple[list[tuple[int, str, str]], list[tuple[int, str, str]]] | str


def outcome(body: bytes, form: str = BATCH_TYPE) -> Outcome:
    """Return the accepted and the refused lines; for a body that is refused as a whole, the name of the error."""
    try:
        found: Batch = decode_batch(body, COVERED, LIMITS, form=form)
    except (Malformed, TooLarge) as error:
        return type(error).__name__
    lines = found.lines
    assert len(lines.positions) == len(lines.paths) == len(lines.ids) == len(lines.bodies)
    return (
        [*zip(lines.positions, lines.paths, lines.bodies, strict=True)],
        [(one.position, one.id, one.reason) for one in found.refused],
    )


def check_lines(data: bytes) -> None:
    whole = outcome(data)
    with patch.object(batches, "_SPAN", 64):
        assert outcome(data) == whole
    if isinstance(whole, str):
        return
    accepted, _ = whole
    for _, _, body in accepted:
        assert encode(decode_canonical(body)).decode() == body
    assert outcome(encode_batch(accepted)) == (accepted, [])


def check_runs(data: bytes) -> None:
    whole = outcome(data, RUNS_TYPE)
    with patch.object(batches, "_SPAN", 64):
        assert outcome(data, RUNS_TYPE) == whole
    if isinstance(whole, str):
        return
    runs = [*read_runs(data)]
    if not data.isascii():  # a path that is not text is refused line by line, and never written
        return
    assert b"".join(run.encode() for run in runs) == data
    # Its lines, and each run cut in two, mean the same.
    assert outcome(encode_batch(split_runs(data))) == whole
    assert outcome(b"".join(piece.encode() for run in runs for piece in _cut(run)), RUNS_TYPE) == whole


def _cut(run: Run) -> Iterable[Run]:
    events = run.events.split(b"\n")[:-1]
    for part, first in ((events[: len(events) // 2], 0), (events[len(events) // 2 :], len(events) // 2)):
        if part:
            yield Run(run.position + first, len(part), run.path, b"\n".join([*part, b""]))


def event(number: int, **fields: str) -> str:
    texts = {"id": f"evt-{number}", "group": "g", "type": "a.b", "subject": "s", "dedupe_key": "k", "source_node": "n"}
    return encode(Event(**{**texts, **fields}, observed_at=OBSERVED)).decode()  # type: ignore[arg-type]


def line_seeds() -> Iterable[bytes]:
    yield encode_batch([(11, "", event(1)), (12, "a,b", event(2)), (15, "", event(3, subject="é"))])
    yield encode_batch([(11, "", "{}"), (12, "a b", event(2))])


def run_seeds() -> Iterable[bytes]:
    first = f"{event(1)}\n{event(2)}\n".encode()
    yield Run(11, 2, "a,b", first).encode() + Run(20, 1, "", f"{event(3)}\n".encode()).encode()
    yield Run(11, 2, "", b"{}\n{}\n").encode()


_WORDS = ('"id":"', '"group":"', '"payload":{', "\t", "\n", "11\t\t{", "\\u0000", '"expiresAt":"2025-05-30T10:13:20Z"')
TARGETS = (
    FuzzTarget("batch-lines", check_lines, line_seeds, _WORDS),
    FuzzTarget("batch-runs", check_runs, run_seeds, _WORDS),
)
