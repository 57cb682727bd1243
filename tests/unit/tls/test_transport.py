"""The server's end of a TLS connection, against OpenSSL's client in memory: bytes arrive in any pieces."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventd.tls.contexts import ServerTls
from eventd.tls.files import ServerTlsConfig
from eventd.tls.reasons import HandshakeFailed, Reason
from eventd.tls.transport import TlsTransport
from tests.support.certificates import Authority, Files


class Raw(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.ended = ""

    def write(self, data: Any) -> None:
        assert not self.ended
        self.sent += bytes(data)

    def take(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Application:
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.text = b""
        self.calls = 0
        self.eof = False

    def data_received(self, data: bytes) -> None:
        assert data
        self.text += data
        self.calls += 1

    def eof_received(self) -> bool | None:
        self.eof = True
        return None


class Pair:
    """Both ends of a connection; `established` once the handshake is done."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self.raw, self.application = Raw(), Application()
        self.server = TlsTransport(self.raw, server, lambda: time.time_ns() // 1000)
        self._arrived, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self._arrived, self._sent, server_hostname="localhost")

    def shake_hands(self, piece: int = 1 << 20) -> None:
        while not self.server.established:
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            sent = self._sent.read()
            for at in range(0, len(sent), piece):
                self.server.shake_hands(sent[at : at + piece])
            self._arrived.write(self.raw.take())
        self.client.do_handshake()
        self.server.receive(self._sent.read(), self.application)

    def send(self, text: bytes) -> bytes:
        """Return the encrypted bytes of a text of the client."""
        self.client.write(text)
        return self._sent.read()

    def read(self) -> bytes:
        """Return what the client can read of what the server has sent."""
        self._arrived.write(self.raw.take())
        found = b""
        try:
            while text := self.client.read(1 << 16):
                found += text
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return found


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def files(ca: Authority) -> Files:
    return ca.issue("server")


def server_context(files: Files, ca: Path | None = None) -> ssl.SSLContext:
    declared = ServerTlsConfig(str(files.cert), str(files.key), str(ca or ""))
    return ServerTls(declared, None, lambda: time.time_ns() // 1000).value.context


@pytest.fixture(scope="module")
def contexts(ca: Authority, files: Files) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return server_context(files), ssl.create_default_context(cafile=str(ca.file))


@given(
    piece=st.integers(1, 700),
    texts=st.lists(st.integers(1, 40_000), min_size=1, max_size=4),
    answer=st.integers(0, 600_000),
)
@settings(max_examples=25, deadline=None)
def test_any_pieces_give_the_same_texts(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], piece: int, texts: list[int], answer: int
) -> None:
    pair = Pair(*contexts)
    pair.shake_hands(piece)
    sent = b"".join(bytes([number % 256]) * size for number, size in enumerate(texts))
    encrypted = pair.send(sent)
    for at in range(0, len(encrypted), piece * 37):
        pair.server.receive(encrypted[at : at + piece * 37], pair.application)
    assert pair.application.text == sent
    pair.server.writelines([b"a" * answer, b"b"])
    assert pair.read() == b"a" * answer + b"b"


def test_a_piece_with_several_records_is_one_call(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    pair = Pair(*contexts)
    pair.shake_hands()
    pair.server.receive(pair.send(b"x" * 100_000), pair.application)
    assert (len(pair.application.text), pair.application.calls) == (100_000, 1)


def test_bytes_that_are_no_tls_end_an_open_connection(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    pair = Pair(*contexts)
    pair.shake_hands()
    pair.server.receive(b"GET / HTTP/1.1\r\n\r\n", pair.application)
    assert pair.raw.ended == "aborted"
    pair.server.write(b"more")
    assert pair.server.is_closing()


def test_a_changed_byte_ends_the_connection(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    pair = Pair(*contexts)
    pair.shake_hands()
    encrypted = bytearray(pair.send(b"x" * 100))
    encrypted[-1] ^= 1
    pair.server.receive(bytes(encrypted), pair.application)
    assert (pair.application.text, pair.raw.ended) == (b"", "aborted")


def test_the_client_learns_of_the_end(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    pair = Pair(*contexts)
    pair.shake_hands()
    pair.server.write(b"the last")
    pair.server.close()
    pair.server.close()
    pair.server.write(b"too late")
    assert pair.raw.ended == "closed"
    assert pair.read() == b"the last"


def test_the_end_of_the_client_is_passed_on(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    pair = Pair(*contexts)
    pair.shake_hands()
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.server.receive(pair._sent.read(), pair.application)
    assert pair.application.eof
    assert pair.raw.ended == "closed"


def test_a_client_without_a_certificate_gets_the_alert(ca: Authority, files: Files) -> None:
    pair = Pair(server_context(files, ca.file), ssl.create_default_context(cafile=str(ca.file)))
    with pytest.raises(HandshakeFailed) as failed:
        pair.shake_hands()
    assert failed.value.reason is Reason.CLIENT_MISSING
    pair._arrived.write(pair.raw.take())
    with pytest.raises(ssl.SSLError, match="certificate required"):
        pair.client.read(1)


def test_no_ticket_is_given(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = contexts
    first = Pair(server, client)
    first.shake_hands()
    assert first.read() == b""
    session = first.client.session
    assert session is None or not session.has_ticket


def test_a_key_with_a_password_is_refused_and_none_is_asked_for(ca: Authority) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    made = ca.issue("locked")
    secret = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    made.key.write_bytes(secret)
    from eventd.errors import EventdError

    with pytest.raises(EventdError, match="is encrypted"):
        server_context(made)
