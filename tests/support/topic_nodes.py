"""Nodes as processes whose topics are written, read, routed and followed over HTTP. Blocking, like `Running`."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from tests.support.running import Refused, Running
from tests.support.waiting import wait_for

GONE = (OSError, http.client.HTTPException, AssertionError, ValueError)
"""What asking a node comes to that is dead, or not yet up."""


class TopicNode(Running):
    """A node, asked about its topics."""

    def v0(self, method: str, path: str, body: Any = None) -> Any:
        """One request below /v0. Raises Refused; OSError or HTTPException when nobody answers."""
        return self.request(method, f"/v0{path}", body)

    def state(self, topic: str) -> dict[str, Any]:
        """How a topic stands."""
        found: dict[str, Any] = self.v0("GET", f"/topics/{topic}")
        return found

    def write(self, topic: str, *records: dict[str, Any], **members: Any) -> dict[str, Any]:
        """One batch of whole records; when this returns, it is acknowledged."""
        written: dict[str, Any] = self.v0("POST", f"/topics/{topic}", {"records": [*records], **members})
        return written

    def insist(self, topic: str, *records: dict[str, Any], key: str) -> dict[str, Any]:
        """The same batch under one idempotency key, again and again until it is acknowledged."""

        def written() -> dict[str, Any] | None:
            with contextlib.suppress(*GONE):
                return self.write(topic, *records, idempotency_key=key)
            return None

        return wait_for(written, f"{self.name} to take {key}", seconds=30, every=0.05) or {}

    def records(self, topic: str) -> list[dict[str, Any]]:
        """All records of a topic, with their tags."""
        found: list[dict[str, Any]] = []
        at = 0
        while True:
            asked = {"from_seq": at, "limit": 1000, "include_tags": True}
            page = self.v0("POST", f"/topics/{topic}/diff", asked)
            assert page["tombstone"] is None, page["tombstone"]
            found += page["records"]
            at = page["next_from_seq"]
            if page["caught_up"]:
                return found

    def route(self, source: str, dest: str, **options: Any) -> dict[str, Any]:
        """A router named after its two ends."""
        body = {"source": source, "dest": dest, **options}
        put: dict[str, Any] = self.v0("PUT", f"/routers/{quote(f'{source}->{dest}')}", body)
        return put

    def router(self, source: str, dest: str) -> dict[str, Any]:
        """How such a router stands, once it has caught up."""
        shown: dict[str, Any] = self.v0("GET", f"/routers/{quote(f'{source}->{dest}')}")
        return shown


class Follower(threading.Thread):
    """Follows a topic over SSE as one node would: what carries its own name is not for it.

    It goes on over a crash of the node, from where it was.
    """

    def __init__(self, node: TopicNode, topic: str, *, own: str) -> None:
        super().__init__(name=f"follower of {topic} at {node.name}", daemon=True)
        self.own = own
        self.seen: list[dict[str, Any]] = []
        self.at = 0
        self.streams = 0
        self.failure: BaseException | None = None
        self._node = node
        self._topic = topic
        self._end = threading.Event()
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while not self._end.is_set():
            try:
                for kind, told in self._events():
                    self._take(kind, told)
            except (*GONE, AttributeError):
                self._end.wait(0.05)  # the node is dead, or we are to end
            except Refused as refused:
                self.failure = refused
                return

    def _take(self, kind: str, told: dict[str, Any]) -> None:
        if kind == "record":
            self.seen += told["records"]
            self.at = told["to_seq"]
        elif kind != "caught-up":
            self.failure = AssertionError(f"{self.name} was told {kind}: {told}")

    def _events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What a new stream tells, until it ends."""
        asked = {"topics": {self._topic: {"from_seq": self.at}}, "node": self.own, "include_tags": True}
        session = self._node.v0("POST", "/watch", asked)
        self._connection = http.client.HTTPConnection("127.0.0.1", self._node.process.port, timeout=60)
        with contextlib.closing(self._connection) as connection:
            connection.request("GET", session["stream_url"])
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            self.streams += 1
            kind = ""
            for line in iter(answer.readline, b""):
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

    def wait_seen(self, count: int, *, seconds: float = 60.0) -> None:
        """Until it was told of so many records."""
        wait_for(
            lambda: len(self.seen) >= count or self.failure, f"{self.name} to see {count} records", seconds=seconds
        )
        assert self.failure is None, self.failure

    def finish(self) -> None:
        """End it; raises what went wrong in it."""
        self._end.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        self.join(10)
        assert not self.is_alive(), f"{self.name} does not end"
        if self.failure is not None:
            raise self.failure


def said(record: dict[str, Any]) -> str:
    """What a record says, as one text: all but its place and time."""
    return json.dumps({name: value for name, value in record.items() if name not in ("$seq", "$ts")}, sort_keys=True)


def repeated(texts: list[str]) -> list[str]:
    """Those that occur more than once."""
    return [text for text, count in Counter(texts).items() if count > 1]
