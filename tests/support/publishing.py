"""Clients of the WebSocket that publishes to a group, which tests speak frame by frame."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientWebSocketResponse

from tests.support.v0 import Client

PATIENCE = 10.0
GROUP = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: %s}
spec: {nodeName: a, auth: {secretFile: /nowhere/secret}, limits: {maxEventBytes: %s}}
"""


async def apply_group(client: Client, name: str = "lab", most: str = "4KiB") -> None:
    """Declare a group."""
    apply = {"sources": [{"name": name, "text": GROUP % (name, most)}]}
    where = f"{client.url}/api/v1/resources/apply"
    async with client.session.post(where, json=apply, headers=client.headers) as answer:
        assert answer.status == 200, await answer.text()


async def delete_group(client: Client, name: str = "lab") -> None:
    """Delete a group."""
    where = f"{client.url}/api/v1/resources/EventGroup/{name}"
    async with client.session.delete(where, headers=client.headers) as answer:
        assert answer.status == 200, await answer.text()


async def stored_subjects(client: Client, group: str = "lab") -> list[str]:
    """Return the subjects of the first 1,000 events of a group, in its order."""
    where = f"{client.url}/api/v1/groups/{group}/events?limit=1000"
    async with client.session.get(where, headers=client.headers) as answer:
        return [event["subject"] for event in (await answer.json())["events"]]


def event(subject: str, **members: Any) -> dict[str, Any]:
    """Return an event of a message."""
    return {"type": "t", "subject": subject, **members}


class PublishSocket:
    """The client's end of one connection."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket
        self._answers: list[Any] = []

    async def send(self, seq: Any, *events: Any, **members: Any) -> None:
        """Send one message."""
        await self.socket.send_bytes(json.dumps({"seq": seq, "events": list(events), **members}).encode())

    async def answer(self) -> Any:
        """Return the next answer."""
        while not self._answers:
            told = await self.heard()
            assert told is not None, f"the connection ended with {self.socket.close_code}"
            assert "answers" in told, told
            self._answers += told["answers"]
        return self._answers.pop(0)

    async def heard(self) -> Any:
        """Return the next message of the node; None at the end of the connection."""
        message = await self.socket.receive(PATIENCE)
        return json.loads(message.data) if message.type == 1 else None


@asynccontextmanager
async def connect_publisher(client: Client, group: str = "lab", **options: Any) -> AsyncIterator[PublishSocket]:
    """Yield an open connection."""
    where = f"{client.url}/api/v1/groups/{group}/publish"
    async with client.session.ws_connect(where, headers=client.headers, max_msg_size=0, **options) as socket:
        yield PublishSocket(socket)
