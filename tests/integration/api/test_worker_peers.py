"""A request that belongs to another process of the node is proxied to it; that process may die half-way."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from eventd.api.errors.codes import API_FORM, ErrorForm
from eventd.api.errors.faults import answering
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.errors import Unavailable
from eventd.observe.metrics import Metrics
from eventd.runtime.chance import SYSTEM
from eventd.runtime.worker_share import Share

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"


def api_form(_path: str) -> ErrorForm:
    return API_FORM


@asynccontextmanager
async def proxying(folder: Path) -> AsyncIterator[TestServer]:
    """Worker 0 of two."""
    workers = WorkerPeers(Share(0, 2, folder=str(folder)), dict, Metrics())
    app = web.Application(middlewares=[answering(api_form, SYSTEM), workers.proxy])
    server = TestServer(app)
    await server.start_server(access_log=None)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def killed_after(folder: Path, said: bytes) -> AsyncIterator[None]:
    """Worker 1, which ends when it has said so much of its answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, folder / "1.api")
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


async def heard(server: TestServer) -> bytes:
    """All that a client gets, until the connection ends."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(b"GET /v0/watch/wid_1.x/stream HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    try:
        got = b""
        while chunk := await asyncio.wait_for(reader.read(1 << 16), 10):
            got += chunk
        return got
    except ConnectionResetError:
        return got
    finally:
        writer.close()


async def test_a_stream_whose_process_is_killed_is_cut(tmp_path: Path) -> None:
    async with killed_after(tmp_path, STREAM + b"9\r\ndata: 1\n\n\r\n"), proxying(tmp_path) as server:
        got = await heard(server)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body == b"9\r\ndata: 1\n\n\r\n"  # and no end of it


@asynccontextmanager
async def measured(folder: Path, text: str) -> AsyncIterator[None]:
    """Worker 1, which answers with these metrics."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text)

    app = web.Application()
    app.router.add_get("/figures", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(folder / "1.state")).start()
        yield
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("shipping", [0, 1])
async def test_metrics_of_two_processes_are_summed_where_a_sum_means_something(tmp_path: Path, shipping: int) -> None:
    """Only one process ships to the lake, and each has a limit of open files of its own."""
    both = Metrics(), Metrics()
    both[shipping].lake.rested(5_000_000)
    for number, metrics in enumerate(both):
        metrics.head(number)
    theirs = re.sub(r"(?m)^process_open_fds .*$", "process_open_fds 100000.0", both[1].render().decode())
    async with measured(tmp_path, theirs):
        workers = WorkerPeers(Share(0, 2, folder=str(tmp_path)), dict, both[0])
        lines = (await workers.render()).text.decode().splitlines()
    assert "routerd_eventd_lake_complete_until_seconds 5.0" in lines
    assert "process_open_fds 100000.0" in lines
    assert "routerd_eventd_log_head_position 1.0" in lines


async def test_an_answer_whose_process_is_killed_is_cut(tmp_path: Path) -> None:
    async with killed_after(tmp_path, WHOLE + b'{"half": '), proxying(tmp_path) as server:
        got = await heard(server)
    assert got.partition(b"\r\n\r\n")[2] == b'{"half": '


async def test_a_process_that_ends_before_it_answers_is_told(tmp_path: Path) -> None:
    async with killed_after(tmp_path, b""), proxying(tmp_path) as server:
        got = await heard(server)
    assert got.startswith(b"HTTP/1.1 503 ")
    assert b"the worker that holds this watch session does not answer" in got


@pytest.mark.parametrize("error", [Unavailable("the database is away"), RuntimeError("a fault"), MemoryError()])
async def test_no_error_is_told_inside_an_answer_that_has_begun(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"half")
        raise error

    app = web.Application(middlewares=[answering(api_form, SYSTEM)])
    app.router.add_get("/v0/watch/{wid}/stream", stream)
    server = TestServer(app)
    await server.start_server(access_log=None)
    got = await heard(server)
    await server.close()
    assert got.partition(b"\r\n\r\n")[2] in (b"", b"4\r\nhalf\r\n")  # a cut overtakes what was written before it
    assert got.startswith(b"HTTP/1.1 200 OK") or not got
    assert "response aborted" in caplog.messages
