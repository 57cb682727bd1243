"""routerctl stream subscribe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eventd.cli.gateway.session import Session
from eventd.cli.streams.publishing import missing
from eventd.cli.streams.quic_server import QuicServerOptions, forbidden, over_quic
from eventd.cli.streams.stream_names import StreamArgument, read_stream
from eventd.cli.terminal.output import note, write_json
from eventd.errors import Forbidden, NotFound
from eventd.text.invisible import printable
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.client import Event, StreamGap, Subscription
    from eventd.streams.messages import At

Form = Literal["raw", "json"]
OFFSET_DIGITS = 18

_REASONS = {
    "cap": "evicted by the caps of its topic",
    "ttl": "expired by the TTL of its topic",
    "mixed": "evicted by caps and TTL of its topic",
    "source_trim": "evicted from the source before its router copied them",
    "skipped": "skipped, because this subscriber was too far behind",
}


@over_quic()
async def subscribe(
    session: Session,
    server: QuicServerOptions,
    name: StreamArgument,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="`latest`: only new records; `earliest`: the oldest first; or an offset."
        ),
    ] = "latest",
    count: Annotated[
        int | None, typer.Option("--count", metavar="NUMBER", min=1, help="Stop after NUMBER records.")
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "-o",
            "--output",
            metavar="FORM",
            help="raw: payloads as they are, each with a newline; json: an object per line, also for gaps.",
        ),
    ] = "raw",
) -> None:
    """Show the records of a stream as they arrive, until Ctrl-C, until --count, or until the stream is deleted."""
    from asyncio import CancelledError

    stream = read_stream(name)
    place = _read_place(start)
    client = server.client(stream.tenant)
    show = _as_json if form == "json" else _as_text if sys.stdout.isatty() else _as_bytes
    try:
        async with client:
            await client.reach()  # without retries: a node that is down at first is reported at once
            async with client.subscribe(f"{stream.namespace}/{stream.stream}", place) as subscription:
                await _show(subscription, name, count, show)
    except CancelledError:
        return  # Ctrl-C is how it ends
    except Forbidden:
        raise forbidden(f"stream.subscribe:{stream.resource}") from None
    except NotFound as error:
        raise (missing(name) if error.code == "not_found" else error) from None


def _read_place(text: str) -> Literal["latest", "earliest"] | At:
    from eventd.client import At

    if text == "latest":
        return "latest"
    if text == "earliest":
        return "earliest"
    if not (text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS):
        raise typer.BadParameter(f"--from must be latest, earliest or an offset, not {text[:80]!r}")
    return At(int(text))


async def _show(subscription: Subscription, name: str, left: int | None, show: Callable[[Event], bytes]) -> None:
    from eventd.client import StreamGap

    as_objects = show is _as_json
    while left is None or left > 0:
        found = await subscription.take(1024 if left is None else min(left, 1024))
        if not found:
            note(f"deleted: stream {name}")
            return
        lines: list[bytes] = []
        for sight in found:
            if isinstance(sight, StreamGap):
                sys.stdout.buffer.write(b"".join(lines))  # before the note, as the events were before the gap
                lines = [_gap_as_json(sight)] if as_objects else []
                _tell_gap(sight, name)
            else:
                lines.append(show(sight))
                left = None if left is None else left - 1
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()


def _as_bytes(event: Event) -> bytes:
    return event.payload + b"\n"


def _as_text(event: Event) -> bytes:
    """Return a payload so that it cannot control a terminal."""
    encoding = sys.stdout.encoding or "utf-8"
    text = printable(event.payload.decode("utf-8", "backslashreplace"))
    return text.encode(encoding, "backslashreplace") + b"\n"


def _as_json(event: Event) -> bytes:
    return _line({"offset": event.offset, **payload_members(event.payload)})


def _gap_as_json(gap: StreamGap) -> bytes:
    about = {"from": gap.first, "to": gap.last, "reason": gap.reason, "missed": gap.missed}
    return _line({"gap": about})


def payload_members(payload: bytes, name: str = "payload") -> dict[str, str]:
    """Return bytes as a member of an object: `name` for text, else `base64`."""
    try:
        return {name: payload.decode()}
    except UnicodeDecodeError:
        from eventd.streams.base64_text import write_bytes

        return {"base64": write_bytes(payload)}


def _line(row: dict[str, Any]) -> bytes:
    return write_json(row).encode() + b"\n"


def _tell_gap(gap: StreamGap, name: str) -> None:
    if gap.reason == "recreated":
        note(f"gap: stream {name} was recreated or restored; its records follow from the first one")
        return
    which = f"record {gap.first} is" if gap.first == gap.last else f"records {gap.first} to {gap.last} are"
    some = "" if gap.missed == gap.last - gap.first + 1 else f", {counted(gap.missed, 'record')} of them,"
    note(f"gap: stream {name}: {which}{some} lost ({_REASONS.get(gap.reason, gap.reason)})")
