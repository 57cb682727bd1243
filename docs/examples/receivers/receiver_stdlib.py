"""Receives callbacks with the standard library alone: `verify` shows what a verification consists of.

Usage: python receiver_stdlib.py SECRET_FILE [SECRET_FILE], two during a rotation. PORT is 9000 unless it is set.
"""

from __future__ import annotations

import hmac
import os
import re
import sys
import threading
import time
from base64 import b64decode, b64encode
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOLERANCE = 300  # seconds, in either direction
MAX_BODY = 4 << 20
REMEMBERED = 100_000
# In production a table with a unique id, written in the same transaction as what `handle` does.
seen: dict[str, None] = {}
turn = threading.Lock()


def read_key(text: str) -> bytes:
    """The key is what the base64 after `whsec_` stands for. A short one, above all an empty one, could be guessed."""
    text = text.strip()
    key = b64decode(text.removeprefix("whsec_"), validate=True) if text.startswith("whsec_") else b""
    if len(key) < 24:
        sys.exit("a secret must be whsec_ and the base64 of at least 24 bytes")
    return key


def verify(headers: Message, body: bytes, keys: list[bytes], now: float) -> str:
    """Return the id of a request that one of the keys has signed. Raises ValueError, which names what is wrong."""
    id, timestamp, signatures = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not id or "." in id:  # a dot separates the id from the timestamp
        raise ValueError("webhook-id is missing or has a dot")
    if not re.fullmatch("[0-9]{1,12}", timestamp):
        raise ValueError("webhook-timestamp is missing or not a number")
    signed = b".".join((id.encode("latin-1"), timestamp.encode(), body))
    expected = [b64encode(hmac.digest(key, signed, "sha256")) for key in keys]
    sent = [entry.removeprefix("v1,").encode("latin-1") for entry in signatures.split() if entry.startswith("v1,")]
    # compare_digest takes as long for a wrong signature as for one that is nearly right. During a rotation the sender
    # signs with both keys, and one valid signature is enough.
    if not any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in sent):
        raise ValueError("no signature is valid")
    if abs(now - int(timestamp)) > TOLERANCE:  # of this attempt: a captured request cannot be sent later
        raise ValueError(f"webhook-timestamp is more than {TOLERANCE} s from the time here")
    return id


def handle(id: str, body: bytes) -> None:
    """Do what the callback is for. After an exception there is no answer, and the sender tries again."""
    print(id, body.decode(), flush=True)


class Receiver(BaseHTTPRequestHandler):
    timeout = 20  # seconds for which a client may be silent

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != "/hooks":
            return self.answer(404)
        if not re.fullmatch("[0-9]{1,9}", length):
            return self.answer(411)
        if int(length) > MAX_BODY:
            return self.answer(413)
        body = self.rfile.read(int(length))
        try:
            id = verify(self.headers, body, KEYS, time.time())
        except ValueError as error:
            return self.answer(401, str(error))
        with turn:  # the same request may arrive twice at the same time
            if id not in seen:
                handle(id, body)
                seen[id] = None
                if len(seen) > REMEMBERED:
                    del seen[next(iter(seen))]
        return self.answer(204)

    def answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    KEYS = [read_key(Path(name).read_text()) for name in sys.argv[1:]]
    if not KEYS:
        sys.exit(__doc__)
    ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Receiver).serve_forever()
