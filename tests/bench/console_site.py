"""A node with a console over a filled log, and visitors that sign in: pages, streams, and what they cost the node."""

from __future__ import annotations

import asyncio
import gzip
import io
import sqlite3
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import aiohttp

from eventd.bench.machine import cpu_of
from eventd.bench.wire import NodeClient
from eventd.egress.cursors import link_name
from eventd.net.address import Address
from eventd.runtime.clock import SystemClock
from tests.bench.growth_logs import GROUP, Shape, fill_own
from tests.bench.growth_sites import declare_down
from tests.support.console_pages import Browser
from tests.support.declared import group, peer
from tests.support.processes import Process, Processes

KEY = "key-of-the-console-bench"
NODE = "growth-a"
REASONS = ("schema", "too_large", "http_400", "rejected")
STREAM_SECONDS = 30.0
FLUSHED = b"\x00\x00\xff\xff"
"""The end of each compressed event."""
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Visit:
    """One answer: the seconds until its last byte, and the bytes of its body, plain and compressed."""

    seconds: float
    bytes: int
    compressed: int
    text: str


class ConsoleSite:
    """The running node, its API and its database file."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.client = NodeClient(Address(False, "127.0.0.1", process.port, ""), KEY)

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the node since its start."""
        return cpu_of(self.process.pid) or 0.0

    @property
    def resident_mib(self) -> float:
        """Return the resident memory of the node."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@contextmanager
def console_site(home: Path, events: int, links: int, letters: int, **env: str) -> Iterator[ConsoleSite]:
    """Yield a node with so many events of its own, links to peers that are not there, and dead letters of these."""
    database = home / "eventd.db"
    url = f"sqlite:///{database}"
    fill_own(url, events, Shape())
    _declare(url, home / "secret", links)
    _add_letters(database, events, links, letters)
    processes = Processes(home)
    try:
        settings = {"EVENTD_API_KEYS": KEY, "EVENTD_MAX_CONSOLE_STREAMS": "1000", "EVENTD_LOG_LEVEL": "error", **env}
        site = ConsoleSite(processes.serve("node", database_url=url, env=settings))
        yield site
    except BaseException:
        processes.close()
        raise
    with redirect_stdout(io.StringIO()):
        processes.close()


def _declare(url: str, secret: Path, links: int) -> None:
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    # They rest after each attempt as long as links do whose peers have been away for a while.
    rests = {"retry": {"baseBackoff": "30s", "maxBackoff": "30s"}}
    peers = [peer(f"peer-{number:03d}", 9, group=GROUP, **rests) for number in range(links)]
    declare_down(url, group(NODE, secret=secret, name=GROUP), *peers)


def _add_letters(database: Path, events: int, links: int, letters: int) -> None:
    """Write dead letters of links as if peers had refused these events: the oldest first, some for each link."""
    now = SystemClock().now()
    with closing(sqlite3.connect(database, timeout=60.0)) as file, file:
        (topic,) = file.execute("SELECT id FROM topics WHERE name = ?", (f"group:{GROUP}",)).fetchone()
        file.executemany(
            "INSERT INTO dead_letters (cursor, position, topic_id, event_id, reason, detail, attempts, parked_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    link_name(GROUP, f"peer-{number % links:03d}"),
                    number // links + 1,
                    topic,
                    Shape().id_of(number // links % events),
                    REASONS[number % len(REASONS)],
                    "the peer does not take it",
                    5,
                    now - letters + number,
                )
                for number in range(letters if links else 0)
            ),
        )
        file.execute("DELETE FROM dead_letter_counts")
        file.execute(
            "INSERT INTO dead_letter_counts"
            " SELECT topic_id, cursor, count(*) FROM dead_letters GROUP BY topic_id, cursor"
        )


class Viewer:
    """A signed-in visitor."""

    def __init__(self, streams: aiohttp.ClientSession, browser: Browser) -> None:
        self._streams = streams
        self._browser = browser
        self.fragments = 0

    async def visit(self, path: str) -> Visit:
        """Open a page. Raises RuntimeError unless it is one."""
        begun = time.perf_counter()
        answer = await self._browser.get(f"/console{path}")
        seconds = time.perf_counter() - begun
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}: {answer.text[:500]}")
        body = answer.text.encode()
        return Visit(seconds, len(body), len(gzip.compress(body, 6)), answer.text)

    @asynccontextmanager
    async def stream(self, view: str) -> AsyncIterator[None]:
        """Follow a view, and count its fragments; entered once the first has arrived."""
        cookies = "; ".join(f"{name}={value}" for name, value in self._browser.cookies.items())
        url = f"http://{self._browser.host}/console/stream?{urlencode({'view': f'/console{view}'})}"
        timeout = aiohttp.ClientTimeout(total=None, sock_read=STREAM_SECONDS)
        async with self._streams.get(
            url, headers={"Cookie": cookies, "Accept-Encoding": "gzip"}, timeout=timeout
        ) as got:
            if got.status != 200:
                raise RuntimeError(f"the stream of {view}: {got.status}: {await got.text()}")
            first = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._count(got, first))
            try:
                await asyncio.wait({first, task}, timeout=STREAM_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not first.done():
                    raise RuntimeError(f"the stream of {view} sent nothing")
                yield
            finally:
                task.cancel()

    async def _count(self, answer: aiohttp.ClientResponse, first: asyncio.Future[None]) -> None:
        """Count the compressed events, and unpack only the first: browsers do this on other machines than the node."""
        unpacker, tail = zlib.decompressobj(zlib.MAX_WBITS + 16), b""
        async for chunk in answer.content.iter_any():
            if not first.done() and b"event: view" in unpacker.decompress(chunk):
                first.set_result(None)
            self.fragments += (tail + chunk).count(FLUSHED)
            tail = chunk[-len(FLUSHED) + 1 :]


@asynccontextmanager
async def signed_in(site: ConsoleSite) -> AsyncIterator[Viewer]:
    """Yield a visitor with its session."""
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        aiohttp.ClientSession(connector=connector, connector_owner=False, auto_decompress=False) as streams,
    ):
        browser = Browser(session, site.process.port)
        answer = await browser.sign_in(KEY)
        if answer.status != 200 or not browser.cookies:
            raise RuntimeError(f"the sign-in gave {answer.status}: {answer.text[-2000:]}")
        yield Viewer(streams, browser)


@asynccontextmanager
async def watching(viewer: Viewer, views: list[str]) -> AsyncIterator[None]:
    """Follow all these views at the same time, each by a stream of its own."""
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(viewer.stream(view)) for view in views))
        yield
