"""Requests of protocol v2 built by hand: with content that the product's sender never sends, and to send one twice."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from federation.batch import encode_batch
from federation.event import encode, new_event_id
from federation.keys import Key, KeyRing
from federation.ranges import Range
from federation.signing import SignedRequest, sign_request
from federation.wire import MARK_QUERY, BatchHeader, HistoryQuery, LinkQuery, StatusQuery, VerifyQuery
from tests.support.v1_node import Reply, read_reply

SECRET = "0123456789abcdef0123456789abcdef"


def line(event_id: str, *, group: str = "edge", node: str = "x", **fields: str) -> str:
    """Return a canonical event."""
    from eventd.testing import event

    return encode(event(event_id, group=group, node=node, **fields)).decode()  # type: ignore[arg-type]


@dataclass
class V2Sender:
    """Sends as `node` to the listener on `port`. Every part of a request can be replaced."""

    port: int
    node: str = "x"
    to: str = "b"
    group: str = "edge"
    ring: KeyRing = field(default_factory=lambda: KeyRing.shared(SECRET))
    key: Key | None = None
    epoch: str = "epoch1"
    position: int = 0

    def batch(
        self,
        *bodies: str,
        paths: Sequence[str] = (),
        batch_id: str = "",
        claim: Range | None = None,
        skew: int = 0,
        to: str = "",
        raw_body: bytes | None = None,
    ) -> bytes:
        """Return a signed batch of these events at the next positions, as on the wire."""
        after, self.position = self.position, self.position + len(bodies)
        places = range(after + 1, self.position + 1)
        lines = [(at, path, body) for at, path, body in zip(places, paths or [""] * len(bodies), bodies, strict=True)]
        header = BatchHeader(
            from_node=self.node,
            to_node=to or self.to,
            group=self.group,
            batch_id=batch_id or new_event_id(time.time_ns() // 1000, os.urandom(10)),
            range=claim or Range(epoch=self.epoch, incarnation=1, after=after, upto=self.position),
        )
        return self._sign(header, encode_batch(lines) if raw_body is None else raw_body, skew)

    def query(self, body: bytes = MARK_QUERY) -> bytes:
        """Return a signed query for the position of the link."""
        return self._sign(LinkQuery(from_node=self.node, to_node=self.to, group=self.group), body, 0)

    def ask(self, question: bytes, *, to: str = "", group: str = "", skew: int = 0) -> bytes:
        """Return a signed query for the events that the node holds."""
        header = VerifyQuery(from_node=self.node, to_node=to or self.to, group=group or self.group)
        return self._sign(header, question, skew)

    def ask_links(self, body: bytes = b"{}", *, to: str = "", group: str = "", skew: int = 0) -> bytes:
        """Return a signed question for the node's links."""
        header = StatusQuery(from_node=self.node, to_node=to or self.to, group=group or self.group)
        return self._sign(header, body, skew)

    def ask_history(self, question: bytes, *, to: str = "", group: str = "", skew: int = 0) -> bytes:
        """Return a signed question about histories."""
        header = HistoryQuery(from_node=self.node, to_node=to or self.to, group=group or self.group)
        return self._sign(header, question, skew)

    def signed(self, header: LinkQuery, body: bytes, skew: int = 0) -> tuple[SignedRequest, bytes]:
        """Return a request with this header, and as on the wire."""
        now = time.time_ns() // 1000 + skew * 1_000_000
        key = self.key or self.ring.signer(self.node)
        signed = sign_request(header, body, key, now=now, nonce=os.urandom(16).hex())
        return signed, raw(header.path, signed.headers, body, self.port)

    def _sign(self, header: LinkQuery, body: bytes, skew: int) -> bytes:
        return self.signed(header, body, skew)[1]

    def send(self, request: bytes, *, port: int = 0, seconds: float = 10.0) -> Reply:
        """Send these bytes to the node, or to another one; return its answer."""
        with socket.create_connection(("127.0.0.1", port or self.port), timeout=seconds) as link:
            link.sendall(request)
            return read_reply(link)


def raw(path: str, headers: dict[str, str], body: bytes, port: int) -> bytes:
    """Return a POST, byte for byte."""
    told = {"Host": f"127.0.0.1:{port}", **headers, "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body
