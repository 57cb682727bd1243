"""A self-signed pair: what it contains, and what stands in its way."""

from __future__ import annotations

import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509

from eventd.errors import Conflict, EventdError, Invalid
from eventd.tls.certificate import Certificate
from eventd.tls.files import read_pem
from eventd.tls.making import make_pair

NOW = datetime.datetime(2026, 11, 25, tzinfo=datetime.UTC)


def test_the_pair_names_the_node_and_its_hosts_and_only_its_owner_reads_the_key(tmp_path: Path) -> None:
    pair = make_pair(tmp_path / "new", "edge:1", ["Edge.example", "10.0.0.1", "::1"], 30, NOW)
    (read,) = Certificate.of_pem(pair.cert_file.read_bytes())
    assert read == pair.certificate
    assert read.nodes == {"edge:1"}
    assert read.hosts == {"edge.example", "10.0.0.1", "::1"}
    assert read.expires - read.begins == (30 * 86400 + 3600) * 1_000_000
    assert stat.S_IMODE(pair.key_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("taken", ["tls.crt", "tls.key"])
def test_nothing_is_replaced_and_nothing_is_left(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(Conflict, match=taken):
        make_pair(tmp_path, "edge", [], 30, NOW)
    assert [file.name for file in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text() == "mine"


def test_a_link_in_the_place_of_the_key_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "tls.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EventdError):
        make_pair(tmp_path, "edge", [], 30, NOW)
    assert not (tmp_path / "elsewhere").exists()


def test_a_name_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="ü"):
        make_pair(tmp_path, "edge", ["ü.example"], 30, NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_named_pipe_and_a_huge_file_are_not_read(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EventdError, match="is not a file"):
        read_pem(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2 << 20)
    with pytest.raises(EventdError, match="larger than 1 MiB"):
        read_pem(tmp_path / "huge")


@pytest.mark.parametrize(
    ("node", "speaks"), [("edge:1", True), ("edge.example", False), ("EDGE:1", False)], ids=["uri", "host", "case"]
)
def test_a_uri_decides_alone_for_which_node_a_certificate_speaks(tmp_path: Path, node: str, speaks: bool) -> None:
    pair = make_pair(tmp_path, "edge:1", ["edge.example"], 30, NOW)
    assert pair.certificate.speaks_for(node) is speaks


def test_without_a_uri_a_host_name_names_the_node() -> None:
    plain = Certificate("", frozenset({"edge.example"}), frozenset(), 0, 1)
    assert plain.speaks_for("Edge.example")
    assert not plain.speaks_for("other")


def test_a_certificate_for_others_than_peers_holds_host_names_only(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, "streams", ["localhost", "::1"], 30, NOW, for_peers=False)
    made = x509.load_pem_x509_certificate(pair.cert_file.read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["localhost", "::1"]
