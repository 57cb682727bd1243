"""routerctl stream publish."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from eventd.cli.gateway.session import Session
from eventd.cli.streams.quic_server import QuicServerOptions, forbidden, over_quic, read_payload
from eventd.cli.streams.stream_names import StreamArgument, read_stream
from eventd.cli.terminal.output import note
from eventd.errors import EventdError, Forbidden, Invalid, NotFound
from eventd.streams.limits import MAX_RECORD, MAX_RECORDS
from eventd.text.plural import counted

if TYPE_CHECKING:
    import asyncio

    from eventd.client import Published, StreamClient

Ack = Literal["none", "message", "batch"]

IN_FLIGHT: Final = 64
"""Maximum number of batches that wait for their answers."""


@over_quic("output")
async def publish(
    session: Session,
    server: QuicServerOptions,
    name: StreamArgument,
    payloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAYLOAD]...",
            help="Payload of each record, as text; - is standard input, as one payload (default: -).",
        ),
    ] = None,
    ack: Annotated[
        Ack,
        typer.Option(
            "--ack",
            metavar="MODE",
            help="message: an answer for each record; batch: one for each batch, which is written as a whole or not;"
            " none: no answer, and losses are not reported.",
        ),
    ] = "batch",
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="NUMBER",
            min=1,
            max=MAX_RECORDS,
            help="Maximum records of a batch; standard input is then read as lines, one payload each.",
        ),
    ] = None,
) -> None:
    """Publish payloads to a stream. Automatic retries do not write a record twice."""
    from asyncio import CancelledError

    stream = read_stream(name)
    words = payloads or ["-"]
    if "-" in words and len(words) > 1:
        raise typer.BadParameter("- must be the only payload")
    size = 1 if ack == "message" else batch or MAX_RECORDS
    if words == ["-"] and batch is not None:
        batches = _read_batches(size)
    else:
        batches = _split([read_payload(word, f"payload {at}", MAX_RECORD) for at, word in enumerate(words, 1)], size)
    client = server.client(stream.tenant)
    run = PublishRun(client, f"{stream.namespace}/{stream.stream}")
    try:
        async with client:
            await client.reach()  # without retries: a node that is down at first is reported at once
            await (run.send(batches) if ack == "none" else run.publish(batches))
    except NotFound:
        raise missing(name) from None
    except Forbidden:  # without answers, known at the end
        raise forbidden(f"stream.publish:{stream.resource}") from None
    except (EventdError, CancelledError):  # also by Ctrl-C
        if run.answers:
            note(f"note: {_summary(run.answers)}")
        raise
    _show(session, name, run, answered=ack != "none")


def _show(session: Session, name: str, run: PublishRun, *, answered: bool) -> None:
    if not answered:
        sent = f"stream/{name}: {counted(run.sent, 'record')} sent, without an answer"
        session.out.outcome({"stream": name, "sent": run.sent}, sent, name=lambda row: str(row["stream"]))
        return
    rows = [
        {"offset": one.offset, "count": one.count, "durability": one.durability, "epoch": one.epoch}
        for one in run.answers
    ]
    session.out.outcome(rows, f"stream/{name}: {_summary(run.answers)}", name=lambda row: str(row["offset"]))


def missing(name: str) -> NotFound:
    """Return the error for a stream that the node does not have."""
    return NotFound(f"stream {name} does not exist", hint=f"create it with routerctl stream create {name}")


class PublishRun:
    """Publishes batches in their order, many at a time.

    `answers` are the answers of confirmed batches; `sent` counts records that were sent without asking for an answer.
    """

    def __init__(self, client: StreamClient, name: str) -> None:
        self.answers: list[Published] = []
        self.sent = 0
        self._client = client
        self._name = name

    async def send(self, batches: AsyncIterator[Sequence[bytes]]) -> None:
        """Publish without answers."""
        async for payloads in batches:
            await self._client.publish_batch(self._name, payloads, ack=False)
            self.sent += len(payloads)

    async def publish(self, batches: AsyncIterator[Sequence[bytes]]) -> None:
        """Publish, and wait for the answers. Raises the first refusal; batches after it may have been written."""
        from eventd.runtime.clock import SystemClock
        from eventd.runtime.supervisor import Supervisor

        supervisor = Supervisor(SystemClock())
        under_way: deque[asyncio.Task[Published]] = deque()
        try:
            async for payloads in batches:
                work = self._client.publish_batch(self._name, payloads)
                under_way.append(supervisor.spawn(work, "publish", expects=EventdError))
                while len(under_way) >= IN_FLIGHT or (under_way and under_way[0].done()):
                    self.answers.append(await under_way[0])
                    under_way.popleft()
            while under_way:
                self.answers.append(await under_way[0])
                under_way.popleft()
        finally:
            await supervisor.stop()


async def _split(payloads: Sequence[bytes], size: int) -> AsyncIterator[Sequence[bytes]]:
    for start in range(0, len(payloads), size):
        yield payloads[start : start + size]


async def _read_batches(size: int) -> AsyncIterator[Sequence[bytes]]:
    """Yield the lines of standard input in batches as they arrive."""
    from eventd.cli.terminal.input_lines import InputLines  # loads asyncio, which help does not need

    source = InputLines(longest=MAX_RECORD)
    while (lines := await source.read()) is not None:
        for line in lines:
            if len(line.text) > MAX_RECORD:
                raise Invalid(f"{line.place} is longer than {MAX_RECORD >> 20} MiB", hint="write shorter lines")
        for start in range(0, len(lines), size):
            yield [line.text for line in lines[start : start + size]]


def _summary(answers: Sequence[Published]) -> str:
    if not answers:
        return "nothing to publish"
    count = sum(answer.count for answer in answers)
    first, last = answers[0].offset, answers[-1].offset
    if first is None or last is None:
        return f"{counted(count, 'record')} published"
    last += answers[-1].count - 1
    return f"{counted(count, 'record')} published at {first}{'' if first == last else f' to {last}'}"
