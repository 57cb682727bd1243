"""Many clients at once: a node accepts as many as the limit of open files allows."""

from __future__ import annotations

import asyncio
import sys

from tests.support.processes import Processes

CLIENTS = 300
REQUEST = b"GET /v0/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def limited(soft: int, hard: int) -> list[str]:
    """A command that serves with these limits on open files."""
    limits = f"import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))"
    return [sys.executable, "-c", f"{limits}; from eventd.cli.routerd_eventd import main; main()", "serve"]


def settings(processes: Processes, name: str) -> dict[str, str]:
    return {**processes.node_environment(name, database_url=None), "EVENTD_API_LISTEN": "127.0.0.1:0"}


async def ask_at_once(port: int) -> list[bytes]:
    """Every client connects and asks at the same moment, and keeps its connection."""

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(REQUEST)
            return await reader.readuntil(b"\r\n\r\n")
        finally:
            await gate.wait()
            writer.close()

    gate = asyncio.Barrier(CLIENTS)
    async with asyncio.timeout(60):
        return list(await asyncio.gather(*[ask() for _ in range(CLIENTS)]))


async def test_hundreds_that_come_at_once_are_all_served(processes: Processes) -> None:
    node = processes.start("many", limited(256, 4096), env=settings(processes, "many")).wait_ready()
    answers, told = await ask_at_once(node.port), node.log()
    assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 200 OK"}
    assert "file limit low" in told


def test_a_limit_that_is_high_enough_is_not_spoken_of(processes: Processes) -> None:
    few = settings(processes, "few") | {"EVENTD_MAX_SSE_CONNECTIONS": "100"}
    node = processes.start("few", limited(256, 1024), env=few).wait_ready()
    assert "file limit low" not in node.log_path.read_text()
