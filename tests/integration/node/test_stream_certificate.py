"""A QUIC listener keeps its certificate while the files that are configured cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from eventd.client import StreamClient
from eventd.errors import NotFound
from eventd.testing import until
from tests.support.certificates import Authority
from tests.support.sites import Site


def write_unknown_to_quic(cert: Path, key: Path) -> None:
    """Write a pair that OpenSSL reads, and the QUIC library does not."""
    pair, now = Ed448PrivateKey.generate(), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(pair.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=9))
    cert.write_bytes(made.sign(pair, None).public_bytes(Encoding.PEM))
    key.write_bytes(pair.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


async def test_a_pair_that_quic_cannot_use_changes_nothing(
    sites: Callable[..., list[Site]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (site,) = sites("a")
    authority = Authority(tmp_path)
    files = authority.issue("quic")
    await site.start(quic_listen="127.0.0.1:0", quic_cert_file=str(files.cert), quic_key_file=str(files.key))
    write_unknown_to_quic(Path(files.cert), Path(files.key))
    await site.running.reload()
    await until(lambda: "certificate unusable" in caplog.messages)
    assert "task failed" not in caplog.messages
    streams = site.running.streams
    assert streams is not None
    assert streams.address is not None
    async with StreamClient(f"127.0.0.1:{streams.address[1]}", "t1", "", ca=authority.file) as client:
        with pytest.raises(NotFound):  # the client is connected, and there is no such cache
            await client.cache("default/none").get("k")
