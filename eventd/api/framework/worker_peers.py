"""The worker processes of one node: each of them reports the readiness and the metrics of all.

Of several workers, each has three sockets in a folder that only the node's own user can enter. The first serves the
worker's state to the other workers. The other two serve the whole API, for requests that other workers pass on because
only this worker can answer them: one for requests that came over TCP, the other for requests that came over the node's
local socket, which need no key.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isnan
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web
from multidict import CIMultiDict
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from eventd.api.errors.faults import Handler
from eventd.api.framework.exposition import Exposition, render
from eventd.api.listener.local_connections import LocalListener
from eventd.api.listener.runner import Runner
from eventd.errors import Unavailable
from eventd.observe.metrics import Metrics
from eventd.runtime.worker_share import Share
from eventd.tracing import tracing

PATIENCE_SECONDS = 2.0
"""How long to wait for another worker's state before answering without it."""
_CHECKS = "/checks"
_FIGURES = "/figures"
_STATE, _API, _LOCAL = "state", "api", "local"
"""The names of a worker's sockets, after its number."""
_EARLIEST = ("process_start_time_seconds", "routerd_eventd_certificate_expiry_timestamp_seconds")
_HIGHEST = ("process_max_fds", "process_open_fds")
"""Metrics of which the highest value of all workers is shown, not the sum: each process has its own limit of open
files."""
_HOP_BY_HOP = frozenset(("connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"))
"""Hop-by-hop headers (RFC 9110 section 7.6.1), which are not proxied."""
_SESSION = re.compile(r"/v0/watch/wid_(\d+)\.")


class WorkerPeers:
    """The other workers of this node. They send requests to this worker over the sockets that `open` opens."""

    def __init__(self, share: Share, readiness: Callable[[], dict[str, str]], metrics: Metrics) -> None:
        self._share = share
        self._readiness = readiness
        self._metrics = metrics
        self.check_claim: Callable[[], Awaitable[str]] | None = None
        """Checks that the node holds its claim on the database: `ok`, or the problem. None if it needs no claim."""
        self._questions: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        self._runner: Runner | None = None
        self._local: LocalListener | None = None

    def answer_with(self, name: str, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Let the other workers ask this one the question `name`; to be called before `open`.

        `answer` returns the body of the answer to a body.
        """
        self._questions[name] = answer

    async def open(self, api: Runner, local: LocalListener | None = None) -> None:
        """Open the sockets for the other workers; none if this is the node's only worker."""
        if self._share.is_whole:
            return
        app = web.Application()
        app.router.add_get(_CHECKS, self._serve_checks)
        app.router.add_get(_FIGURES, self._serve_metrics)
        for name, answer in self._questions.items():
            app.router.add_post(f"/{name}", partial(_serve_question, answer))
        self._runner = Runner(app, api.chance)
        await self._runner.setup()
        places = {what: self._socket(self._share.worker, what) for what in (_STATE, _API, _LOCAL)}
        for place in places.values():
            place.unlink(missing_ok=True)  # left by a worker that was killed
        await web.UnixSite(self._runner, str(places[_STATE])).start()
        await web.UnixSite(api, str(places[_API])).start()
        if local is not None:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listening.bind(str(places[_LOCAL]))
            except BaseException:
                listening.close()
                raise
            await local.open_at(api, listening)
            self._local = local

    async def close(self) -> None:
        """Close the socket for the state; the runner of the API closes the other two."""
        if self._runner is not None:
            await self._runner.cleanup()

    # --- for all of them --------------------------------------------------------------------------------------

    async def readiness(self) -> dict[str, str]:
        """Return the readiness checks of all workers by name, each `ok` or the first problem that a worker reports.

        A worker that does not answer is a failed check of its own. `claim`, if the node needs one, is checked once.
        """
        checks = self._readiness()
        for index, text in (await self._ask_all(_CHECKS)).items():
            answer: Mapping[str, str] = {f"worker {index}": "does not answer"} if text is None else json.loads(text)
            for name, state in answer.items():
                if checks.get(name, "ok") == "ok":
                    checks[name] = state
        if self.check_claim is not None:  # last: another node may take the claim while the workers are queried
            checks["claim"] = await self.check_claim()
        return checks

    async def render(self, sees: Callable[[str], bool] | None = None, *, accepts_exemplars: bool = False) -> Exposition:
        """Return the merged metrics of this worker and of all others that answer, as text.

        With `sees`, only the samples whose label `group` (empty if missing) satisfies it. Merged metrics of several
        workers have no exemplars, because the other workers send theirs without.
        """
        merged = await self._merged()
        exemplars = accepts_exemplars and tracing.on and merged is self._metrics.registry
        return render(merged, sees, exemplars=exemplars)

    async def collect(self) -> list[Metric]:
        """Return these metrics."""
        return [*(await self._merged()).collect()]

    async def _merged(self) -> CollectorRegistry:
        texts = [text for text in (await self._ask_all(_FIGURES)).values() if text is not None]
        if not texts:
            return self._metrics.registry
        together = CollectorRegistry()
        together.register(_MergedMetrics([self._metrics.registry.collect(), *map(_parse, texts)]))
        return together

    async def ask_every(self, name: str, question: bytes) -> list[bytes | None]:
        """Return the answer of each worker to the question `name`, this one's first.

        None for a worker that does not answer in time.
        """
        answers: list[bytes | None] = [await self._questions[name](question)]
        for index in range(self._share.workers):
            if index != self._share.worker:
                answer = await self._ask(index, f"/{name}", question)
                answers.append(None if answer is None else answer.encode())
        return answers

    async def ask_worker_of(self, group: str, name: str, question: bytes, *, seconds: float) -> bytes | None:
        """Return the answer of the worker that serves a group to the question `name`; None if it does not answer."""
        index = self._share.worker_of(group)
        if index == self._share.worker:
            return await self._questions[name](question)
        answer = await self._ask(index, f"/{name}", question, seconds)
        return None if answer is None else answer.encode()

    async def _ask_all(self, path: str) -> dict[int, str | None]:
        """Return the body of each other worker's response, by index; None for one that does not answer in time."""
        others = [index for index in range(self._share.workers) if index != self._share.worker]
        return {index: await self._ask(index, path) for index in others}

    async def _ask(
        self, index: int, path: str, question: bytes | None = None, seconds: float = PATIENCE_SECONDS
    ) -> str | None:
        place, method = UnixConnector(str(self._socket(index, _STATE))), "GET" if question is None else "POST"
        try:
            async with (
                ClientSession(connector=place, timeout=ClientTimeout(seconds)) as session,
                session.request(method, f"http://worker{path}", data=question) as answer,
            ):
                return await answer.text() if answer.status == 200 else None
        except (ClientError, OSError, TimeoutError):
            return None

    async def _serve_checks(self, _request: web.Request) -> web.Response:
        return web.json_response(self._readiness())

    async def _serve_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render())

    def _socket(self, index: int, what: str) -> Path:
        return Path(self._share.folder) / f"{index}.{what}"

    # --- for one of them --------------------------------------------------------------------------------------

    @property
    def session_prefix(self) -> str:
        """Return the prefix of the ids of this worker's watch sessions, by which other workers recognise them."""
        return "wid_" if self._share.is_whole else f"wid_{self._share.worker}."

    @web.middleware
    async def proxy(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Proxy a request that names a watch session of another worker to that worker; handle others here."""
        found = _SESSION.match(request.path)
        index = int(found[1]) if found else self._share.worker
        if index == self._share.worker or index >= self._share.workers:
            return await handler(request)
        headers = _end_to_end(request.headers)
        is_local = self._local is not None and self._local.holds(request.transport)
        place = UnixConnector(str(self._socket(index, _LOCAL if is_local else _API)))
        async with ClientSession(connector=place, timeout=ClientTimeout(None), auto_decompress=False) as session:
            try:
                asked = await session.request(
                    request.method, f"http://{request.host}{request.raw_path}", headers=headers, data=request.content
                )
            except (ClientError, OSError):
                raise Unavailable(
                    "the worker that holds this watch session does not answer", hint="begin a new session"
                ) from None
            async with asked:
                response = web.StreamResponse(status=asked.status, headers=_end_to_end(asked.headers))
                await response.prepare(request)
                try:
                    async for chunk in asked.content.iter_any():
                        await response.write(chunk)
                except (ClientError, OSError):  # that worker has ended, or the client disconnected
                    if request.transport is not None:
                        request.transport.abort()  # shows the client that the response is incomplete
                return response


async def _serve_question(answer: Callable[[bytes], Awaitable[bytes]], request: web.Request) -> web.Response:
    return web.Response(body=await answer(await request.read()))


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP)


def _parse(text: str) -> list[Metric]:
    found: list[Metric] = [*text_string_to_metric_families(text)]
    return found


class _MergedMetrics(Collector):
    """The merged metrics of several workers: sums, except the earliest start or expiry, and the most open files."""

    def __init__(self, processes: Sequence[Iterable[Metric]]) -> None:
        self._processes = processes

    def describe(self) -> Iterator[Metric]:
        return iter(())  # its names need no check: they are those of the first worker

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for metric in (metric for process in self._processes for metric in process):
            metrics.setdefault(metric.name, metric)
            held = values.setdefault(metric.name, {})
            for sample in metric.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                held[key] = sample.value if key not in held else _join(sample.name, held[key], sample.value)
        for name, metric in metrics.items():
            shown = Metric(metric.name, metric.documentation, metric.type)
            shown.samples = [Sample(sample, dict(labels), value) for (sample, labels), value in values[name].items()]
            yield shown


def _join(name: str, one: float, other: float) -> float:
    if name in _EARLIEST:
        return min(one, other)
    if isnan(one) or isnan(other):  # this worker has nothing to say
        return other if isnan(one) else one
    return max(one, other) if name in _HIGHEST else one + other
