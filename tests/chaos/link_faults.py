"""What a network, or a proxy in it, does to one request: every kind of fault by its name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.support.flaky_peer import (
    ByteOffset,
    CorruptingForward,
    Deed,
    Direction,
    Disconnect,
    FixedResponse,
    Forward,
    Hang,
)

TIMEOUT_SECONDS = 2.0
"""How long nodes of the mesh wait for an answer; a late answer has to be later than that."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def _page(status: int, *headers: tuple[str, str]) -> Callable[[Random], Deed]:
    """Return an answer of a proxy that does not know the protocol."""
    body = f"<html><head><title>{status}</title></head><body><h1>{status}</h1><hr>nginx</body></html>\n".encode()
    return lambda _: FixedResponse(status, (("Content-Type", "text/html"), ("Server", "nginx"), *headers), body)


def _head(chance: Random) -> ByteOffset:
    return "head", chance.random()


def _body(chance: Random) -> ByteOffset:
    return "body", chance.random()


LINK_FAULTS: dict[str, Callable[[Random], Deed]] = {
    "latency": lambda chance: Forward(min(0.4, chance.expovariate(8))),
    "late answer": lambda chance: CorruptingForward(back=Direction(delay=TIMEOUT_SECONDS * (1.1 + chance.random()))),
    "request in tiny pieces": lambda chance: CorruptingForward(there=Direction(piece=chance.randint(1, 50))),
    "answer in tiny pieces": lambda chance: CorruptingForward(back=Direction(piece=chance.randint(1, 5))),
    "request cut in its head": lambda chance: CorruptingForward(there=Direction(cut=_head(chance))),
    "request cut in its body": lambda chance: CorruptingForward(there=Direction(cut=_body(chance))),
    "answer cut in its head": lambda chance: CorruptingForward(back=Direction(cut=_head(chance)), end="close"),
    "answer cut in its body": lambda chance: CorruptingForward(back=Direction(cut=_body(chance)), end="close"),
    "black hole on the way there": lambda _: Hang(),
    "black hole on the way back": lambda _: CorruptingForward(back=Direction(cut=("head", 0.0)), end="hang"),
    "answer that stops": lambda chance: CorruptingForward(back=Direction(cut=_body(chance)), end="hang"),
    "connection closed": lambda _: Disconnect(),
    "connection reset": lambda _: Disconnect(reset=True),
    "reset within the answer": lambda chance: CorruptingForward(back=Direction(cut=_body(chance)), end="reset"),
    "answer lost after the effect": lambda _: Disconnect(after=True),
    "request delivered twice": lambda chance: CorruptingForward(copies=chance.randint(2, 4)),
    "answered twice": lambda chance: CorruptingForward(answers=chance.randint(2, 3)),
    "connection closed after each answer": lambda _: CorruptingForward(end="close"),
    "half-close towards the receiver": lambda _: CorruptingForward(half_close=True),
    "half-close towards the sender": lambda chance: CorruptingForward(
        back=Direction(cut=_body(chance)), end="half-close"
    ),
    "100 Continue, flooding": lambda chance: CorruptingForward(before=_CONTINUE * chance.randint(1, 200)),
    "noise before the answer": lambda chance: CorruptingForward(before=chance.randbytes(chance.randint(1, 40))),
    "bit flipped in the head of a request": lambda chance: CorruptingForward(there=Direction(flip=_head(chance))),
    "bit flipped in the body of a request": lambda chance: CorruptingForward(there=Direction(flip=_body(chance))),
    "bit flipped in the head of an answer": lambda chance: CorruptingForward(back=Direction(flip=_head(chance))),
    "bit flipped in the body of an answer": lambda chance: CorruptingForward(back=Direction(flip=_body(chance))),
    "200 with a login page": _page(200),
    "302": _page(302, ("Location", "http://127.0.0.1:9/login")),
    "404 with HTML": _page(404),
    "413 with HTML": _page(413),
    "415 with HTML": _page(415),
    "429 with HTML": _page(429, ("Retry-After", "1")),
    "502 with HTML": _page(502),
    "503 with HTML": _page(503, ("Retry-After", "1")),
}

ANSWERS_CHANGED = frozenset(
    {"bit flipped in the head of an answer", "bit flipped in the body of an answer", "200 with a login page"}
)
"""Faults after which an answer proves nothing, though it looks like one of the peer."""
