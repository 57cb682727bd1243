"""Tests whether the time of a refusal reveals which key ids a group knows: `python -m tests.bench.key_ids`.

Requests with an invalid signature are sent to a real node over one connection, a known and an unknown key id
alternating in random order. Both get the same answer; the medians of their times are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from federation.keys import Algorithm, Key
from federation.signing import sign_request
from federation.wire import LinkQuery
from tests.bench.nodes import GROUP, BenchNode
from tests.support.v2_sender import raw

LIMIT_US = 5.0
VARIANTS = 500
"""Requests of each kind: the time of Ed25519 depends on the signature and the signed text, by some µs."""


def main() -> None:
    """Print the medians of every kind of key, and exit with status 1 if two differ by more than the limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.key_ids")
    parser.add_argument("--pairs", type=int, default=10_000)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
        figures = measure(Path(directory), pairs)
    print(json.dumps({"pairs": pairs, **figures}, indent=2))
    if any(each["difference_us"] > LIMIT_US for each in figures.values()):
        raise SystemExit(1)


def measure(directory: Path, pairs: int) -> dict[str, dict[str, float]]:
    """Return medians in microseconds, by the kind of the known key."""
    node = BenchNode("b", directory, None)
    (directory / "key").write_text("bench-secret")
    (directory / "key").chmod(0o600)
    node.declare(directory / "key", [], _keys(directory))
    node.start()
    try:
        with socket.create_connection(("127.0.0.1", node.port), timeout=30) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return {
                "hmac": _compare(link, node.port, pairs, "shared", Algorithm.HMAC_SHA256),
                "ed25519": _compare(link, node.port, pairs, "known-x", Algorithm.ED25519),
                "ed25519, named as hmac": _compare(link, node.port, pairs, "known-x", Algorithm.HMAC_SHA256),
                "hmac, named as ed25519": _compare(link, node.port, pairs, "shared", Algorithm.ED25519),
                "revoked": _compare(link, node.port, pairs, "revoked", Algorithm.HMAC_SHA256),
            }
    finally:
        node.stop()


def _keys(directory: Path) -> list[dict[str, str]]:
    public = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (directory / "x.pub").write_bytes(public)
    return [
        {"id": "known-x", "owner": "x", "algorithm": "ed25519", "publicKeyFile": str(directory / "x.pub")},
        {"id": "revoked", "owner": "x", "secretFile": str(directory / "key"), "state": "revoked"},
    ]


def _compare(link: socket.socket, port: int, pairs: int, known: str, algorithm: Algorithm) -> dict[str, float]:
    unknown = "z" * len(known)
    requests = [[_request(port, key_id, algorithm) for _ in range(VARIANTS)] for key_id in (known, unknown)]
    times: list[list[float]] = [[], []]
    chance = random.Random(7)
    for number in range(pairs + 200):
        order = chance.choice([(0, 1), (1, 0)])
        for which in order:
            took = _ask(link, requests[which][number % VARIANTS])
            if number >= 200:  # the first requests warm up the node
                times[which].append(took)
    return _figures(times)


def _figures(times: Sequence[Sequence[float]]) -> dict[str, float]:
    known, unknown = (median(each) * 1e6 for each in times)
    return {
        "known_us": round(known, 1),
        "unknown_us": round(unknown, 1),
        "difference_us": round(abs(known - unknown), 1),
    }


def _request(port: int, key_id: str, algorithm: Algorithm) -> bytes:
    """Return a link query with an invalid signature, which the node checks before the timestamp: it never expires."""
    header = LinkQuery(from_node="x", to_node="b", group=GROUP)
    if algorithm is Algorithm.HMAC_SHA256:
        key = Key.hmac(key_id, "another secret")
    else:
        pair = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        key = Key.ed25519(key_id, private=pair, owner="x")
    signed = sign_request(header, b"{}", key, now=time.time_ns() // 1000, nonce=os.urandom(16).hex())
    return raw(header.path, signed.headers, b"{}", port)


def _ask(link: socket.socket, request: bytes) -> float:
    begun = time.perf_counter()
    link.sendall(request)
    first = link.recv(65536)
    took = time.perf_counter() - begun
    if not first.startswith(b"HTTP/1.1 401 ") or not first.endswith(b"}}"):
        raise RuntimeError(f"not the answer that was expected: {first[:200]!r}")
    return took


if __name__ == "__main__":
    main()
