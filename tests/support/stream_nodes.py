"""Nodes as processes that serve streams over QUIC, with a tenant, and sessions of the second library."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.aioquic_client import SECONDS, RawClient, RawStream, connected
from tests.support.felix_tokens import TokenMaker
from tests.support.felix_wire import ALL_FLAGS, WireEvents, message, publish_acked, read_ack, read_events, scope
from tests.support.processes import Processes
from tests.support.topic_nodes import TopicNode
from tests.support.waiting import wait_for

TENANT = "t1"
STREAMS = "(streams)"
"""The group of the listener's lines in the log."""
FAULTS = ("Traceback", "Unhandled exception", "Task exception", "never retrieved", "exception in callback")
"""What the log of a node that works never contains."""


class StreamNode(TopicNode):
    """A node with a QUIC listener and the tenant `t1`; its caches are `primary` and `default`."""

    def __init__(
        self, processes: Processes, name: str, *, database_url: str | None = None, key: str = "", **env: str
    ) -> None:
        settings = {"EVENTD_QUIC_LISTEN": "127.0.0.1:0", "EVENTD_QUIC_DRAIN": "2s", **env}
        super().__init__(processes, name, database_url=database_url, **settings)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.maker = TokenMaker(TENANT)
        self.apply(tenant(self.maker), cache(TENANT), cache(TENANT, "default"))

    def create(self, where: str, **config: Any) -> str:
        """Create a stream `NAMESPACE/STREAM`; return `TENANT/NAMESPACE/STREAM`."""
        whole = f"{TENANT}/{where}"
        self.v0("PUT", f"/topics/{topic(whole)}", {"durability": "fsync", **config})
        return whole

    @property
    def streams_port(self) -> int:
        """Return the UDP port of the latest start, as the log tells it."""
        return int(wait_for(self._listening, f"{self.name} to listen for streams")["port"])

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the lines of the log that are JSON."""
        return [json.loads(line) for line in self.process.log().splitlines() if line.startswith("{")]

    def faults(self) -> list[str]:
        """Return the lines of the log that must not be there."""
        return [line for line in self.process.log().splitlines() if any(fault in line for fault in FAULTS)]

    def memory(self) -> int:
        """Return the resident bytes of the process."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS"))

    def metric(self, name: str) -> float:
        """Return the value of a metric, which is named with its labels."""
        text = self.process.get("/metrics")[1].decode()
        return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + " "))

    def ready(self) -> bool:
        """Return whether the node says that it is ready."""
        return self.process.get("/readyz")[0] == 200

    def _listening(self) -> dict[str, Any] | None:
        found = [line for line in self.log_lines() if line.get("msg") == "listening" and line.get("group") == STREAMS]
        return found[-1] if found else None


def tenant(maker: TokenMaker, *others: TokenMaker) -> dict[str, Any]:
    """Return the resource of a tenant with these keys."""
    keys = [each.jwk for each in (maker, *others)]
    return _resource("StreamTenant", maker.tenant, {"jwks": {"keys": keys}})


def cache(tenant: str, name: str = "primary", **spec: Any) -> dict[str, Any]:
    """Return the resource of a cache in the namespace `default`."""
    return _resource("StreamCache", f"{tenant}-{name}", {"tenant": tenant, "name": name, **spec})


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "stream.routerd.net/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def topic(where: str) -> str:
    """Return the topic of `TENANT/NAMESPACE/STREAM`."""
    return "stream:" + where.replace("/", ":")


class Session:
    """A connection with a token; streams come authenticated from it."""

    def __init__(self, client: RawClient, token: str, tenant: str = TENANT) -> None:
        self.client = client
        self.token = token
        self.tenant = tenant

    def auth(self, *, flags: int | None = ALL_FLAGS, **members: Any) -> bytes:
        """Return the first frame of a stream; `members` replace its own."""
        asked = {} if flags is None else {"client_flags": flags}
        return message("auth", **{"tenant_id": self.tenant, "token": self.token, **asked, **members})

    async def stream(self, *, flags: int | None = ALL_FLAGS, **members: Any) -> RawStream:
        """Open an authenticated stream."""
        stream = self.client.open()
        answer = await stream.ask(self.auth(flags=flags, **members))
        assert answer["type"] == ("ok" if flags is None else "auth_ok"), answer
        return stream

    def uni(self, *parts: bytes, end: bool = False) -> RawStream:
        """Open a unidirectional stream that authenticates, and sends what is given."""
        stream = self.client.open(unidirectional=True)
        stream.write(self.auth(), *parts, end=end)
        return stream

    async def publish(self, where: str, *payloads: bytes) -> None:
        """Publish a batch, and wait until it is acknowledged."""
        stream = await self.stream()
        stream.write(publish_acked(1, where, *payloads), end=True)
        ack = read_ack(await stream.frame())
        assert (ack.status, ack.request_id) == (0, 1), ack

    async def subscribe(
        self, where: str, *, auth: dict[str, Any] | None = None, seconds: float = SECONDS, **members: Any
    ) -> Subscription:
        """Subscribe; `auth`: members of the first frame."""
        stream = await self.stream(**(auth or {}))
        stream.write(message("subscribe", **scope(where), **members), end=True)
        answer = await stream.message(seconds)
        assert answer["type"] == "subscribed", answer
        assert await stream.rest() == []
        events = await self.client.take_opened(seconds)
        hello = await events.message(seconds)
        wanted = {"type": "event_stream_hello", "subscription_id": answer["subscription_id"]}
        assert hello == wanted, hello
        return Subscription(events, answer)


class Subscription:
    """A stream of events. `seen` holds the offset and payload of each event so far, `gaps` the gaps."""

    def __init__(self, stream: RawStream, answer: dict[str, Any]) -> None:
        self.stream = stream
        self.answer = answer
        self.seen: list[tuple[int, bytes]] = []
        self.gaps: list[dict[str, Any]] = []
        self.frames: list[WireEvents] = []

    @property
    def payloads(self) -> list[bytes]:
        """Return what has been seen so far."""
        return [payload for _, payload in self.seen]

    @property
    def next(self) -> int:
        """Return the offset to resume from."""
        after = [self.seen[-1][0] + 1] if self.seen else [0]
        return max(after + [gap["to"] + 1 for gap in self.gaps])

    async def step(self, seconds: float = SECONDS) -> None:
        """Read one frame: events or a gap."""
        each = await self.stream.frame(seconds)
        if each.flags == 0:
            self.gaps.append(json.loads(each.payload))
            assert self.gaps[-1]["type"] == "gap", self.gaps[-1]
            return
        batch = read_events(each)
        self.frames.append(batch)
        self.seen += zip(batch.offsets, batch.payloads, strict=True)

    async def until(self, count: int, seconds: float = SECONDS) -> list[bytes]:
        """Read until `count` events have come; return the payloads of all."""
        while len(self.seen) < count:
            await self.step(seconds)
        return self.payloads

    def leave(self) -> None:
        """Stop reading, as the only way to end a subscription says."""
        self.stream.stop()


@asynccontextmanager
async def session(node: StreamNode, token: str = "", **options: Any) -> AsyncIterator[Session]:
    """Connect to a node with a token, of everything unless one is given."""
    async with connected(node.streams_port, **options) as client:
        yield Session(client, token or node.maker.token())
