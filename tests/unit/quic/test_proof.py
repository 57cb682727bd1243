"""Tokens that prove an address, and packets that say that a connection is not known."""

from __future__ import annotations

from eventd.quic.certificate import QuicCertificate
from eventd.quic.proof import RESET_BYTES, TOKEN_SECONDS, AddressProof

HERE, THERE = ("192.0.2.1", 4433), ("192.0.2.1", 4434)
PROOF = AddressProof(QuicCertificate(b"", b"a key"))


def test_a_token_says_the_ids_of_the_connection() -> None:
    token, source = PROOF.token(HERE, b"original", 100.0)
    proved = PROOF.check(token, HERE, source, 101.0)
    assert proved is not None
    assert (proved.original, proved.retry_source) == (b"original", source)


def test_a_token_is_for_one_address_and_one_id() -> None:
    token, source = PROOF.token(HERE, b"original", 100.0)
    assert PROOF.check(token, THERE, source, 101.0) is None
    assert PROOF.check(token, HERE, b"12345678", 101.0) is None


def test_a_token_expires() -> None:
    token, source = PROOF.token(HERE, b"original", 100.0)
    assert PROOF.check(token, HERE, source, 100.0 + TOKEN_SECONDS - 0.1) is not None
    assert PROOF.check(token, HERE, source, 100.0 + TOKEN_SECONDS + 0.1) is None


def test_a_changed_token_and_noise_prove_nothing() -> None:
    token, source = PROOF.token(HERE, b"original", 100.0)
    for place in range(len(token)):
        changed = token[:place] + bytes([token[place] ^ 1]) + token[place + 1 :]
        assert PROOF.check(changed, HERE, source, 101.0) is None
    for noise in (b"", b"r", b"x" * 16, token[:20], token + b"x"):
        assert PROOF.check(noise, HERE, source, 101.0) is None


def test_the_token_of_another_key_proves_nothing() -> None:
    token, source = AddressProof(QuicCertificate(b"", b"another key")).token(HERE, b"original", 100.0)
    assert PROOF.check(token, HERE, source, 101.0) is None


def test_a_reset_is_smaller_than_what_it_answers_and_ends_with_the_token_of_the_id() -> None:
    for size in (22, 30, 43, 1200):
        packet = PROOF.reset_packet(b"@" + b"x" * (size - 1), b"12345678")
        assert packet is not None
        assert len(packet) == min(RESET_BYTES, size - 1)
        assert packet[0] & 0xC0 == 0x40
        assert packet.endswith(PROOF.reset_token(b"12345678"))
    assert PROOF.reset_packet(b"@" * 21, b"12345678") is None


def test_a_restart_keeps_the_token_of_an_id() -> None:
    again = AddressProof(QuicCertificate(b"another chain", b"a key"))
    assert again.reset_token(b"12345678") == PROOF.reset_token(b"12345678")
    assert again.reset_token(b"87654321") != PROOF.reset_token(b"12345678")
