"""A node with the Routemaster surface, and the process that plays all of its subscribers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import io
import json
import re
import socket
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from eventd.bench.children import free_ports
from eventd.bench.wire import now
from tests.bench.topics_site import cpu_seconds, resident_mib
from tests.bench.wire import HttpConnection, LoadResult, client_of, load, read_answer
from tests.support.certificates import Authority
from tests.support.processes import Processes

ROOT = "root-key-of-sixteen"
TOPIC = "bench"
PATIENCE_SECONDS = 180.0
_ATTEMPTS = re.compile(r"^routerd_eventd_callback_attempts_total\{[^}]*\} (\S+)$", re.MULTILINE)


class PublishResult(NamedTuple):
    """When publishing began, in monotonic seconds, and how long the answers took."""

    begun: float
    load: LoadResult

    @property
    def rate(self) -> float:
        return self.load.rate

    @property
    def p50_ms(self) -> float:
        return self.load.percentile(50)


class CallbackSite:
    """One node over a new SQLite file, a receiver for all subscribers, and endpoints that are dead.

    Each subscriber has a loopback address of its own, as receivers are on machines of their own. `published` is the
    number of the last event.
    """

    def __init__(self, processes: Processes, directory: Path, ports: int) -> None:
        (self._port, self._refusing) = free_ports(2)
        files = Authority(directory / "tls").issue("receiver")
        self.node = processes.serve(
            "node",
            env={
                "EVENTD_ROUTEMASTER_LISTEN": f"127.0.0.1:{self._port}",
                "EVENTD_ROUTEMASTER_ROOT_KEY": ROOT,
                "EVENTD_ROUTEMASTER_REQUIRE_TLS": "false",
                "EVENTD_ROUTEMASTER_SSL_VERIFY": "false",
                "EVENTD_CALLBACK_ALLOW": "127.0.0.0/8",
                "EVENTD_LOG_LEVEL": "error",
            },
        )
        command = [sys.executable, "-m", "tests.bench.callback_receiver", str(files.cert), str(files.key), str(ports)]
        self.receiver = processes.start("receiver", command).wait_ready()
        self.ports: list[int] = json.loads(self.receiver.get("/readyz")[1])["ports"]
        self._silent = socket.create_server(("0.0.0.0", 0), backlog=4096)  # connections are made, and never answered
        self._publisher = self._token("publisher")
        self._tokens: list[str] = []
        self.published = 0

    def close(self) -> None:
        self._silent.close()

    # --- the surface ------------------------------------------------------------------------------------------

    def _ask(
        self, line: http.client.HTTPConnection, path: str, body: Any, token: str, *, method: str = "POST"
    ) -> bytes:
        line.request(method, path, json.dumps(body), {"Authorization": _basic(token)})
        answer = line.getresponse()
        text = answer.read()
        assert answer.status in (200, 201, 204), (path, answer.status, text)
        return text

    @contextmanager
    def _line(self) -> Iterator[http.client.HTTPConnection]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as line:
            yield line

    def _token(self, name: str) -> str:
        with self._line() as line:
            return str(json.loads(self._ask(line, "/api_tokens", {"name": name}, ROOT))["token"])

    def add(self, count: int, *, at: int = 0, **settings: int) -> list[int]:
        """Subscribe so many new subscribers, called at the port number `at`; return their ids."""
        ids = [*range(len(self._tokens), len(self._tokens) + count)]
        with self._line() as line:
            for id in ids:
                made = json.loads(self._ask(line, "/api_tokens", {"name": f"s{id}"}, ROOT))
                self._tokens.append(str(made["token"]))
        self.tell("expect", ids=ids, after=self.published)
        self.subscribe(ids, self.ports[at], settings=settings)
        return ids

    def subscribe(self, ids: Collection[int], port: int, *, settings: Mapping[str, int] | None = None) -> None:
        """Subscribe subscribers again, called at this port; `settings` are `timeout` and `max`, if they change."""
        with self._line() as line:
            for id in ids:
                callback = f"https://127.{1 + id // 62500}.{id // 250 % 250}.{1 + id % 250}:{port}/{id}"
                body = {"topics": [TOPIC], "callback": callback, "uuid": f"u{id}", **(settings or {})}
                self._ask(line, "/subscription", body, self._tokens[id])

    def kill(self, ids: Sequence[int]) -> None:
        """Let every other one of these refuse connections, and the rest accept them without a word."""
        self.subscribe(ids[::2], self._refusing)
        self.subscribe(ids[1::2], self._silent.getsockname()[1])

    def unsubscribe(self, ids: Collection[int]) -> None:
        """End the subscriptions of these, with all that waits for them."""
        with self._line() as line:
            for id in ids:
                self._ask(line, "/subscriber", {}, self._tokens[id], method="DELETE")

    async def publish(self, count: int) -> PublishResult:
        """Publish so many events, each when the one before is answered."""
        numbers = range(self.published + 1, self.published + count + 1)
        self.published += count
        begun = now()
        done = await load(self._port, [[self.request_of(number) for number in numbers]])
        return PublishResult(begun, done)

    async def publish_singly(self, count: int, every: float) -> list[float]:
        """Publish events at this interval; return when the request of each was sent, in monotonic seconds."""
        line, sent = await client_of(self._port).open(HttpConnection), list[float]()
        due = now()
        for _ in range(count):
            await asyncio.sleep(max(0.0, due - now()))
            due += every
            self.published += 1
            sent.append(now())
            assert read_answer(await line.ask(self.request_of(self.published))).status == 200
        line.close()
        return sent

    def request_of(self, number: int) -> bytes:
        """Return the request that publishes the event of a number."""
        body = json.dumps({"type": "update", "url": f"https://shop.example/orders/{number}"}).encode()
        head = f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: bus\r\nAuthorization: {_basic(self._publisher)}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    # --- the receiver -----------------------------------------------------------------------------------------

    def tell(self, what: str, **values: Any) -> Any:
        """Ask the receiver's process; see `callback_receiver`."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.receiver.port, timeout=300)) as line:
            line.request("POST", f"/{what}", json.dumps(values), {"Content-Type": "application/json"})
            answer = line.getresponse()
            text = answer.read()
            assert answer.status == 200, (what, answer.status, text)
            return json.loads(text)

    async def all_there(self, ids: Collection[int]) -> list[dict[str, Any]]:
        """Wait until these subscribers have everything published; return their states.

        Raises `RuntimeError` if an event is missing, came twice, or not in order.
        """
        asked = {"ids": [*ids], "upto": self.published, "seconds": PATIENCE_SECONDS}
        told = await client_of(self.receiver.port).call("POST", "/wait", asked)
        states: list[dict[str, Any]] = told["states"]
        missing = sum(state["last"] != self.published for state in states)
        problems = [*told["problems"], *([f"{missing} subscribers lack events"] if missing else [])]
        if problems:
            raise RuntimeError(f"not what was published: {'; '.join(problems)}")
        return states

    # --- the node ---------------------------------------------------------------------------------------------

    def attempts(self) -> int:
        """Return how many requests the node has sent to endpoints."""
        return sum(int(float(value)) for value in _ATTEMPTS.findall(self.node.get("/metrics")[1].decode()))

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.node)

    def resident_mib(self) -> float:
        return resident_mib(self.node)


@contextmanager
def callback_site(directory: Path, *, ports: int = 1) -> Iterator[CallbackSite]:
    """Yield a site whose processes are killed at the end; their logs are shown only after a failure."""
    processes = Processes(directory)
    try:
        site = CallbackSite(processes, directory, ports)
        with contextlib.closing(site):
            yield site
    except BaseException:
        processes.close()
        raise
    with redirect_stdout(io.StringIO()):
        processes.close()


def _basic(token: str) -> str:
    return "Basic " + base64.b64encode(f"{token}:x".encode()).decode()
