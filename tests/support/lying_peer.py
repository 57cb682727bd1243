"""A receiver of v2 that holds a valid key and lies about what it has."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from federation.batch import decode_batch
from federation.event import from_micros
from federation.keys import KeyRing
from federation.peers import Limits
from federation.ranges import Mark, RangeAhead
from federation.signing import Receiver, Request, VerifiedRequest, sign_answer, verify_request
from federation.wire import BatchHeader, LinkAnswer, Receipt, answer_to, encode_json
from tests.support.flaky_peer import FixedResponse, ReceivedRequest
from tests.support.v2_sender import SECRET

RING = KeyRing.shared(SECRET)


@dataclass
class LyingReceiver:
    """The answers of a `FlakyPeer` in the name of `node`, all of them signed; it records the epochs of the requests.

    `claims(epoch)` is the mark that it reports; `takes` says whether it accepts a batch or reports that it is ahead.
    """

    claims: Callable[[str], Mark | None]
    takes: Callable[[BatchHeader], bool] = lambda header: True
    node: str = "b"
    group: str = "edge"
    epochs: list[str] = field(default_factory=lambda: [""])
    batches: int = 0
    receipt_upto: int | None = None
    """The mark in its receipts, instead of the end of the batch."""

    def __call__(self, heard: ReceivedRequest) -> FixedResponse:
        head = heard.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (text.partition(":") for text in head[1:])]
        request = Request("POST", heard.path, headers, heard.body)
        now = time.time_ns() // 1000
        verified = verify_request(request, Receiver(self.node, self.group, RING), now=now)
        status, body = self._answer(verified, heard.body, now)
        signed = sign_answer(verified, status, body, RING.keys[0], now=now)
        return FixedResponse(status, tuple(signed.items()), body)

    def _answer(self, verified: VerifiedRequest, body: bytes, now: int) -> tuple[int, bytes]:
        header = verified.header
        mark = self.claims(self.epochs[-1])
        if not isinstance(header, BatchHeader):
            link = LinkAnswer(group=self.group, from_node=header.from_node, to_node=self.node, mark=mark)
            return 200, encode_json(link)
        self.batches += 1
        if header.range.epoch not in self.epochs:
            self.epochs.append(header.range.epoch)
        if mark is not None and not self.takes(header):
            return 409, encode_json(answer_to(RangeAhead(mark, header.range.after)))
        return 200, encode_json(
            Receipt(
                group=self.group,
                from_node=header.from_node,
                to_node=self.node,
                batch=header.batch_id,
                digest=verified.digest,
                epoch=header.range.epoch,
                incarnation=header.range.incarnation,
                upto=header.range.upto if self.receipt_upto is None else self.receipt_upto,
                accepted=len(decode_batch(body, header.range, Limits()).lines),
                duplicates=0,
                recorded_at=from_micros(now),
            )
        )
