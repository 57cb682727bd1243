"""`routerctl` in this process, over a database or over the API of one: the same commands, the same answers."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from eventd.api.app import build_app
from eventd.api.framework.callers import Callers
from eventd.api.framework.operations import Services
from eventd.api.keys.configured_keys import parse_keys
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.cli.gateway.local_api import with_connections
from eventd.cli.gateway.local_topics import topics_of
from eventd.cli.routerctl import main
from eventd.log.core.eventlog import EventLog
from eventd.observe.metrics import Metrics
from eventd.runtime.clock import SystemClock
from eventd.settings.loading import load
from eventd.store.engine.database import Database
from tests.support.fresh import make_current

EDGE = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: edge}
spec:
  nodeName: onprem
  auth: {secretFile: /nowhere/secret}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventPeer
metadata: {name: to-cloud}
spec: {groupRef: edge, nodeName: cloud, endpoint: "http://127.0.0.1:1"}
"""


@dataclass(frozen=True)
class Result:
    """The output of a command, and its exit status."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Control:
    """Runs `routerctl` as its entry point does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path) -> None:
        self._patch = monkeypatch
        self._capture = capfd
        self.folder = folder

    def __call__(self, *arguments: str, stdin: str | bytes = "", code: int | None = 0) -> Result:
        """Run a command and check its exit status; with `code=None` it is not checked."""
        raw = stdin if isinstance(stdin, bytes) else stdin.encode()
        self._patch.setattr(sys, "argv", ["routerctl", *arguments])
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))
        self._capture.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = self._capture.readouterr()
        found = Result(int(ended.value.code or 0), captured.out, captured.err)
        if code is not None:
            assert found.code == code, f"{arguments} exited with status {found.code}:\n{found.out}{found.err}"
        return found

    def file(self, text: str, name: str = "edge.yaml") -> str:
        """Write a file with this text; return its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def edge(self) -> None:
        """Apply the group edge of node onprem with the peer cloud."""
        self("apply", "-f", self.file(EDGE))


class Api(threading.Thread):
    """The API of a database, on a loop of its own in a thread."""

    def __init__(self, url: str, keys: str = "", *, port: int = 0) -> None:
        super().__init__(name="api under test")
        self._url = url
        self._keys = keys
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self.port = port

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        make_current(self._url, now=SystemClock().now())
        database = Database(self._url)
        try:
            log = await EventLog.open(database, SystemClock())
            keys = Keys(lambda: parse_keys(self._keys) if self._keys else ())
            metrics = Metrics()
            limiter, services = ConnectionLimiter("", 256, metrics), Services(log)
            callers = Callers(keys, limiter)
            async with topics_of(services, load({}, {})) as topics:
                v0 = with_connections(topics, callers, metrics)
                app = build_app(services, callers, v0.serving.workers, version="test", v0=v0)
                runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", self.port).start()
                self.port = runner.addresses[0][1]
                self._ready.set()
                await self._end.wait()
                v0.stopping.set_result(None)
                await runner.cleanup()
            await log.close()
        finally:
            database.close()

    def __enter__(self) -> Api:
        self.start()
        assert self._ready.wait(20), "the API has not started"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self.join(20)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without settings of the user that runs the tests."""
    import os

    for name in os.environ:
        if name.startswith("EVENTD_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))  # without contexts
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def control(clean: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Control:
    """`routerctl` without a node or database."""
    return Control(monkeypatch, capfd, tmp_path)


EVERYWHERE = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "api")
everywhere = pytest.mark.parametrize("routerctl", EVERYWHERE, indirect=True)
"""Runs a test on each database and over the API, in a folder whose `routerctl` runs on fewer."""


@pytest.fixture(params=EVERYWHERE)
def routerctl(request: pytest.FixtureRequest, control: Control, monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    """`routerctl` on a node without resources: on each database, and on an API."""
    if request.param == "api":
        with Api(request.getfixturevalue("sqlite_url")) as api:
            monkeypatch.setenv("EVENTD_SERVER", api.url)
            yield control
        return
    url = request.getfixturevalue(f"migrated_{request.param}_url")
    monkeypatch.setenv("EVENTD_DATABASE_URL", url)
    yield control


@pytest.fixture
def routerctl_url(request: pytest.FixtureRequest, routerctl: Control) -> str:
    """The database behind `routerctl`."""
    kind = request.node.callspec.params["routerctl"]
    url: str = request.getfixturevalue("migrated_postgres_url" if kind == "postgres" else "sqlite_url")
    return url
