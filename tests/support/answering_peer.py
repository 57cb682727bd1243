"""A peer that holds a valid key and answers questions about its events as a test says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from federation.keys import KeyRing
from federation.signing import Receiver, Request, sign_answer, verify_request
from federation.wire import BatchHeader
from tests.support.flaky_peer import FixedResponse, ReceivedRequest
from tests.support.lying_peer import LyingReceiver
from tests.support.v2_sender import SECRET

RING = KeyRing.shared(SECRET)

Replies = Callable[[dict[str, Any]], Any]
StatusOf = Callable[[dict[str, Any]], int]
Behaviour = Callable[[ReceivedRequest], FixedResponse]


def says(replies: Replies, *, ring: KeyRing = RING, status: int = 200, status_of: StatusOf | None = None) -> Behaviour:
    """Return the behaviour of a `FlakyPeer` that takes every batch, and answers questions with `replies`, signed."""
    takes = LyingReceiver(claims=lambda epoch: None)

    def behave(heard: ReceivedRequest) -> FixedResponse:
        if heard.path != "/v2/verify":
            return takes(heard)
        head = heard.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (text.partition(":") for text in head[1:])]
        now = time.time_ns() // 1000
        request = Request("POST", heard.path, headers, heard.body)
        verified = verify_request(request, Receiver("b", "edge", RING), now=now)
        assert not isinstance(verified.header, BatchHeader)
        question = json.loads(heard.body)
        body = json.dumps(replies(question)).encode()
        code = status if status_of is None else status_of(question)
        return FixedResponse(code, tuple(sign_answer(verified, code, body, ring.keys[0], now=now).items()), body)

    return behave
