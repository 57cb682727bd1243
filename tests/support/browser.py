"""A headless browser that opens a file: the machine's own Chromium, driven over its debugging port.

The protocol is JSON over a WebSocket. `.ci/run` installs Chromium where it can; elsewhere the tests are skipped without
it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--remote-debugging-port=0", "--remote-allow-origins=*"),
)
_START_SECONDS = 30.0


def chromium() -> str:
    """Return the path of Chromium. Skips the test if it is not installed."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"no browser is installed (looked for {', '.join(NAMES)})")


class Tab:
    """One page. `told` collects what the browser logs: errors, and what the content security policy blocked."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.told: list[str] = []
        self.requested: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command of the protocol and return its result."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json()
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        match message["method"]:
            case "Log.entryAdded":
                self.told.append(message["params"]["entry"]["text"])
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled":
                self.told.append(str(message["params"]))
            case "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])

    async def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a file in a window of this size and wait until it is loaded."""
        for domain in ("Log", "Runtime", "Network", "Page"):
            await self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.call("Page.navigate", url=path.as_uri())
        loaded = "new Promise(r => document.readyState === 'complete' ? r(1) : addEventListener('load', () => r(1)))"
        await self.eval(loaded)

    async def eval(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


@asynccontextmanager
async def tab(directory: Path) -> AsyncIterator[Tab]:
    """Yield the empty page of a browser that is closed at the end of the block; its files lie below `directory`."""
    command = (chromium(), *_OPTIONS, f"--user-data-dir={directory / 'browser'}", "about:blank")
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(_START_SECONDS):
            port = await _port(child)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                page = next(one for one in await answer.json() if one["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Tab(socket)
                await socket.send_json({"id": 0, "method": "Browser.close"})
    finally:
        await _end(child)


async def _port(child: asyncio.subprocess.Process) -> int:
    """Return the debugging port that the browser prints."""
    assert child.stderr is not None
    told = b""
    async for line in child.stderr:
        told += line
        if b"DevTools listening on ws://" in line:
            return int(line.split(b"://")[1].split(b"/")[0].rpartition(b":")[2])
    raise AssertionError(f"the browser did not start: {told.decode(errors='replace')}")


async def _end(child: asyncio.subprocess.Process) -> None:
    """Wait until the browser has closed; kill it if it does not."""
    try:
        async with asyncio.timeout(5):
            await child.communicate()
    except TimeoutError:
        child.kill()
        await child.communicate()
