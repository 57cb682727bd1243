"""The socket at which a running `routerctl console` gives new links to commands of the same user.

It lies in a folder of this user alone, because a link lets a browser act with the keys of all contexts.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

from eventd.errors import NotFound, Unavailable
from eventd.settings.environment import consoles_folder

_SECONDS: Final = 5.0
_MOST_BYTES: Final = 4096
_QUESTION: Final = b"?"


@contextmanager
def _short_path(folder: Path) -> Iterator[Path]:
    """Within the block, give a path of the folder that is short enough for a socket, where the system has such ones."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield short if (short := Path(f"/proc/self/fd/{number}")).exists() else folder
    finally:
        os.close(number)


@asynccontextmanager
async def offering_links(port: int, make: Callable[[], str]) -> AsyncIterator[bool]:
    """Within the block, answer each question with a link that `make` returns; false if there can be no socket."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if await reader.read(1):
                writer.write(make().encode())
                await writer.drain()
        writer.close()

    folder = consoles_folder()
    path = Path(folder) / f"console-{port}.sock" if folder else None
    server = None
    try:
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = path.parent.stat()
            if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
                path.unlink(missing_ok=True)  # a console of this port was killed, or this one could not listen
                with _short_path(path.parent) as short:
                    server = await asyncio.start_unix_server(answer, short / path.name)
    except OSError:
        pass
    try:
        yield server is not None
    finally:
        if server is not None and path is not None:
            server.close()
            path.unlink(missing_ok=True)


def ask_link(port: int) -> str:
    """Return a new link of the console at this port; 0: of the only one. Raises `NotFound`, `Unavailable`."""
    folder = consoles_folder()
    paths = sorted(Path(folder).glob(f"console-{port or '*'}.sock")) if folder else []
    running = [path for path in paths if _ask(path, b"") is not None]  # a new link ends the one before
    if len(running) > 1:
        ports = ", ".join(path.stem.removeprefix("console-") for path in running)
        raise Unavailable(f"several consoles run, at the ports {ports}", hint="choose one with --port")
    link = _ask(running[0], _QUESTION) if running else None
    if not link:
        raise NotFound("no routerctl console of this user runs here", hint="start one: routerctl console")
    return link


def _ask(path: Path, question: bytes) -> str | None:
    """Return what the console at a socket answers, nothing without a question; None if none listens there."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client, _short_path(path.parent) as short:
        client.settimeout(_SECONDS)
        client.connect(str(short / path.name))
        client.sendall(question)
        client.shutdown(socket.SHUT_WR)
        return client.recv(_MOST_BYTES).decode()
    return None
