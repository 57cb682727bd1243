"""The keys of an audit: EventGroup documents as nodes have them; no private half and no secret comes out."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from eventd.audit.engine.request import AuditRequest
from eventd.audit.receipts.receipt_keys import read_receipt_keys
from eventd.audit.receipts.receipt_terms import ReceiptTerms
from eventd.errors import EventdError, Invalid, SecretUnreadable
from eventd.lake.schema import Ledger
from federation.keys import Key
from tests.support.declared import declare, group, peer

SALT = b"the key of a state"
SECRET = "a secret of nobody else"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the halves of the key of `a`, a secret, and a file that holds no key."""
    key = Ed25519PrivateKey.generate()
    (tmp_path / "a.key").write_bytes(b64encode(key.private_bytes_raw()))
    (tmp_path / "a.pub").write_bytes(b64encode(key.public_key().public_bytes_raw()))
    (tmp_path / "other.pub").write_bytes(b64encode(Ed25519PrivateKey.generate().public_key().public_bytes_raw()))
    (tmp_path / "shared").write_text(SECRET)
    (tmp_path / "nothing").write_text("no key")
    return tmp_path


def _of_a(folder: Path, file: str = "a.pub", **more: Any) -> dict[str, Any]:
    half = "secretFile" if file.endswith(".key") else "publicKeyFile"
    return {"id": "a-1", "owner": "a", "algorithm": "ed25519", half: str(folder / file), **more}


def _write(folder: Path, name: str, node: str, *keys: dict[str, Any], **spec: Any) -> str:
    (folder / name).write_text(declare(group(node, auth={"keys": list(keys)}, **spec), peer("c", 1)))
    return str(folder / name)


def test_a_node_and_an_auditor_have_the_same_keys_and_the_private_half_stays_where_it_is(folder: Path) -> None:
    of_node = _write(folder, "node.yaml", "a", _of_a(folder, "a.key"))
    of_auditor = _write(folder, "auditor.yaml", "auditor", _of_a(folder))
    (key,) = read_receipt_keys([of_node])
    assert (key,) == read_receipt_keys([of_auditor]) == read_receipt_keys([of_node, of_auditor])
    assert (key.group, key.id, key.owner, key.algorithm) == ("edge", "a-1", "a", "ed25519")
    assert not key.key.signs, "only the public half was read"


def test_the_shared_secret_of_a_group_verifies_and_is_shown_nowhere(folder: Path) -> None:
    (folder / "group.yaml").write_text(declare(group("auditor", secret=folder / "shared")))
    keys = read_receipt_keys([str(folder / "group.yaml")])
    terms = ReceiptTerms(keys=keys)
    ring = terms.rings["edge"]
    assert ring.keys[0].verifies(Key.hmac("shared", SECRET).sign(b"text"), b"text")
    for shown in (repr(keys), repr(terms), repr(AuditRequest("lake", "out", keys=keys)), repr(ring)):
        assert SECRET not in shown


def test_keys_that_no_longer_sign_verify_unless_they_are_revoked(folder: Path) -> None:
    retiring = _write(folder, "retiring.yaml", "auditor", _of_a(folder, state="retiring"))
    revoked = _of_a(folder, state="revoked"), _of_a(folder, "other.pub", id="a-2")
    assert [key.id for key in read_receipt_keys([retiring])] == ["a-1"]
    assert [key.id for key in read_receipt_keys([_write(folder, "revoked.yaml", "auditor", *revoked)])] == ["a-2"]


@pytest.mark.parametrize(
    ("write", "kind", "told"),
    [
        (lambda folder: _write(folder, "f.yaml", "auditor"), Invalid, "no EventGroup with a key"),
        (
            lambda folder: _write(folder, "f.yaml", "auditor", _of_a(folder, "nothing")),
            SecretUnreadable,
            "the public part of key 'a-1' is not an Ed25519 key",
        ),
        (
            lambda folder: _write(folder, "f.yaml", "auditor", _of_a(folder, "missing")),
            SecretUnreadable,
            "cannot read",
        ),
        (
            lambda folder: _write(folder, "f.yaml", "auditor", {"id": "a-1"}),
            Invalid,
            "spec.auth.keys[0].owner",
        ),
        (lambda folder: str(folder / "none.yaml"), Invalid, "none.yaml"),
    ],
    ids=["no key", "no such key", "no file", "no owner", "no document"],
)
def test_what_holds_no_key_is_refused_with_its_place(
    folder: Path, write: Callable[[Path], str], kind: type[EventdError], told: str
) -> None:
    with pytest.raises(kind) as error:
        read_receipt_keys([write(folder)])
    assert told in error.value.message


def test_two_keys_under_one_id_are_refused(folder: Path) -> None:
    one = _write(folder, "one.yaml", "auditor", _of_a(folder))
    other = _write(folder, "other.yaml", "auditor", _of_a(folder, "other.pub"))
    with pytest.raises(Invalid, match="EventGroup edge has another key 'a-1' than a file before it"):
        read_receipt_keys([one, other])


def test_results_are_of_their_keys_and_copies_of_none(folder: Path) -> None:
    (key,) = read_receipt_keys([_write(folder, "f.yaml", "auditor", _of_a(folder))])
    with_key, without = ReceiptTerms(keys=(key,)), ReceiptTerms()
    assert with_key.digest(Ledger.RECEIPTS, SALT) != without.digest(Ledger.RECEIPTS, SALT)
    assert with_key.digest(Ledger.INBOUND, SALT) == without.digest(Ledger.INBOUND, SALT)
    assert ReceiptTerms(percent=50).digest(Ledger.INBOUND, SALT) != without.digest(Ledger.INBOUND, SALT)
    assert {with_key.digest(book, SALT) for book in (Ledger.EVENTS, Ledger.DELIVERIES, Ledger.GAPS)} == {""}


def test_what_identifies_a_secret_in_a_state_is_another_in_each_and_takes_long_to_guess(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "group.yaml").write_text(declare(group("auditor", secret=folder / "shared")))
    keys = read_receipt_keys([str(folder / "group.yaml")])
    terms, other = ReceiptTerms(keys=keys), ReceiptTerms(keys=(replace(keys[0], material=b"another secret"),))
    assert terms.digest(Ledger.RECEIPTS, SALT) == terms.digest(Ledger.RECEIPTS, SALT)
    assert terms.digest(Ledger.RECEIPTS, SALT) != terms.digest(Ledger.RECEIPTS, b"another state")
    assert terms.digest(Ledger.RECEIPTS, SALT) != other.digest(Ledger.RECEIPTS, SALT)
    monkeypatch.setattr("hashlib.scrypt", lambda secret, **options: b"the same for all secrets")
    assert terms.digest(Ledger.RECEIPTS, SALT) == other.digest(Ledger.RECEIPTS, SALT)
