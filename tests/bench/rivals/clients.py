"""Publishes as Python programs do: event by event through the usual client, with 256 in flight.

The packages are not dependencies of the project: each is imported where it is used, and nothing is measured if it is
missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.bench.rivals.contest import PATIENCE_SECONDS, WINDOW, Figures, NotMeasured, Stopwatch

SLOWEST = 1000.0
"""Events per second. A slower client is considered stuck."""


def _patience(count: int) -> asyncio.Timeout:
    return asyncio.timeout(PATIENCE_SECONDS + count / SLOWEST)


def _figures(stopwatch: Stopwatch, count: int) -> Figures:
    rate, core = stopwatch.told(count)
    return {"through_client": rate, "client_core": core}


async def through_nats_py(subject: str, port: int, bodies: Sequence[bytes]) -> Figures:
    """Publish to JetStream with `publish_async`, which is faster there than 256 tasks that await `publish`."""
    import nats
    from nats.errors import Error

    address = f"nats://127.0.0.1:{port}"
    try:
        async with _patience(len(bodies)), await nats.connect(address, allow_reconnect=False) as link:
            stream = link.jetstream(publish_async_max_pending=WINDOW)
            stopwatch = Stopwatch()
            promised = [await stream.publish_async(subject, body) for body in bodies]
            await stream.publish_async_completed()
            figures = _figures(stopwatch, len(bodies))
            refused = [error for one in promised if (error := one.exception())]
            if refused:
                raise refused[0]
            return figures
    except (Error, TimeoutError) as error:
        raise NotMeasured(f"nats-py: {error!r}") from error


async def through_pika(queue: str, port: int, bodies: Sequence[bytes]) -> Figures:
    """Publish to a queue with confirms: each confirm releases the next event. A blocking connection has one
    in flight."""
    try:
        async with _patience(len(bodies)):
            return await _Confirmed(queue, port, bodies).figures
    except TimeoutError as error:
        raise NotMeasured(f"pika: {error!r}") from error


class _Confirmed:
    """A connection of pika on the running loop, from its opening until the last event is confirmed."""

    def __init__(self, queue: str, port: int, bodies: Sequence[bytes]) -> None:
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection

        loop = asyncio.get_running_loop()
        self.figures: asyncio.Future[Figures] = loop.create_future()
        self._queue, self._bodies = queue, bodies
        self._published = 0
        self._open: set[int] = set()
        self._told: Figures | None = None
        self._durable = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent.value)
        self._connection = AsyncioConnection(
            pika.ConnectionParameters("127.0.0.1", port),
            on_open_callback=lambda link: link.channel(on_open_callback=self._opened),
            on_open_error_callback=self._failed,
            on_close_callback=self._closed,
            custom_ioloop=loop,
        )

    def _failed(self, _: object, error: object) -> None:
        if self._told is None and not self.figures.done():
            self.figures.set_exception(NotMeasured(f"pika: {error!r}"))

    def _closed(self, link: object, error: object) -> None:
        if self._told is not None:
            self.figures.set_result(self._told)
        self._failed(link, error)

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._failed)
        channel.confirm_delivery(self._confirmed, callback=self._begin)

    def _begin(self, _: object) -> None:
        self._stopwatch = Stopwatch()
        self._fill()

    def _fill(self) -> None:
        """Publish events until the window is full."""
        while len(self._open) < WINDOW and self._published < len(self._bodies):
            body = self._bodies[self._published]
            self._published += 1
            self._open.add(self._published)
            self._channel.basic_publish("", self._queue, body, self._durable)

    def _confirmed(self, frame: Any) -> None:
        told = frame.method
        if told.NAME != "Basic.Ack":
            self._failed(self._channel, told)
            return
        if told.multiple:
            self._open = {number for number in self._open if number > told.delivery_tag}
        else:
            self._open.discard(told.delivery_tag)
        self._fill()
        if not self._open:
            self._told = _figures(self._stopwatch, len(self._bodies))
            self._connection.close()
