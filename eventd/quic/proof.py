"""Proofs for which a server keeps no state: that a client owns its address, and that the server does not know a
connection.

They are keyed by the server's private key, so that they are the same after a restart.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from eventd.quic.certificate import QuicCertificate

TOKEN_SECONDS: Final = 20.0
"""Seconds within which a client must return its token."""
MAC_BYTES: Final = 16
RESET_BYTES: Final = 42
"""Size of a stateless reset, the packet that says that a connection is not known. It looks like any other packet."""
SMALLEST_RESET: Final = 21
_KIND: Final = b"r"


class ProvedAddress(NamedTuple):
    """The content of a token: the connection id that the client chose first, and the id that the server chose then."""

    original: bytes
    retry_source: bytes


class AddressProof:
    """Makes and checks the tokens of Retry packets, and the tokens of stateless resets."""

    def __init__(self, certificate: QuicCertificate) -> None:
        self._key = hashlib.sha256(b"eventd quic" + certificate.key).digest()

    def token(self, address: tuple[str, int], original: bytes, now: float) -> tuple[bytes, bytes]:
        """Return a token for a client that is to prove its address, and the connection id that goes with it.

        `now` in seconds, of a clock that never goes back.
        """
        until = int((now + TOKEN_SECONDS) * 1000).to_bytes(8, "big")
        source = self._mac(b"id", until, original, show_bytes(address))[:8]
        said = _KIND + until + bytes([len(original)]) + original
        return said + self._mac(b"retry", said, source, show_bytes(address)), source

    def check(self, token: bytes, address: tuple[str, int], source: bytes, now: float) -> ProvedAddress | None:
        """Return the content of a token; None if it is invalid, was made for another address, or has expired."""
        said, mac = token[:-MAC_BYTES], token[-MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(b"retry", said, source, show_bytes(address))):
            return None
        if int.from_bytes(said[1:9], "big") < now * 1000:
            return None
        return ProvedAddress(said[10:], source)

    def reset_token(self, number: bytes) -> bytes:
        """Return the token by which a client knows that its connection, with this id, is not known any more."""
        return self._mac(b"reset", number)

    def reset_packet(self, datagram: bytes, number: bytes) -> bytes | None:
        """Return the answer to a packet of an unknown connection; None if the packet is too small to be answered.

        It is smaller than the packet, so that two ends that do not know each other's connections fall silent.
        """
        size = min(RESET_BYTES, len(datagram) - 1)
        if size < SMALLEST_RESET:
            return None
        noise = hmac.digest(self._key, b"noise" + datagram, "sha256")
        return bytes([0x40 | noise[0] & 0x3F]) + noise[1 : size - MAC_BYTES] + self.reset_token(number)

    def _mac(self, kind: bytes, *parts: bytes) -> bytes:
        text = kind + b"".join(len(part).to_bytes(2, "big") + part for part in parts)
        return hmac.digest(self._key, text, "sha256")[:MAC_BYTES]


def show_bytes(address: tuple[str, int]) -> bytes:
    """Return an address as bytes."""
    return f"{address[0]} {address[1]}".encode()
