"""routerctl stream keygen and token: a token that is signed here verifies with the printed key set."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from eventd.streams.permissions import StreamAction
from eventd.streams.tokens import BadToken, read_key_set, verify
from tests.integration.cli.conftest import Control

PERM = "stream.publish:stream:t1/default/*"


@pytest.fixture
def key(control: Control) -> Path:
    """A new key, whose key set lies beside it."""
    file = control.folder / "t1.pem"
    (control.folder / "t1.json").write_text(control("stream", "keygen", "--out", str(file)).out)
    return file


def sign(control: Control, key: Path, *options: str) -> str:
    return control("stream", "token", "--tenant", "t1", "--signing-key", str(key), *options).out.strip()


def test_a_signed_token_verifies_with_the_key_set(control: Control, key: Path) -> None:
    keys = read_key_set(key.with_suffix(".json").read_bytes())
    assert keys.problems == ()
    text = sign(control, key, "--perm", PERM, "--perm", "cache.read:cache:t1/*", "--ttl", "1h", "--subject", "web-1")
    found = verify(text, "t1", keys.keys, time.time())
    assert (found.subject, found.tenant, found.key_id) == ("web-1", "t1", keys.keys[0].id)
    assert 3590 <= found.expires_at - time.time() <= 3600
    assert found.permissions[0].allows(StreamAction.PUBLISH, "stream:t1/default/orders")
    assert not found.permissions[0].allows(StreamAction.PUBLISH, "stream:t1/other/orders")
    assert found.permissions[1].allows(StreamAction.READ, "cache:t1/default/primary")
    with pytest.raises(BadToken, match="another tenant"):
        verify(text, "t2", keys.keys, time.time())


def test_a_token_is_valid_for_a_quarter_of_an_hour_unless_told_otherwise(control: Control, key: Path) -> None:
    answer = json.loads(sign(control, key, "--perm", PERM, "-o", "json"))
    assert 890 <= answer["expiresAt"] - time.time() <= 900
    assert answer["perms"] == [PERM]


def test_a_key_has_the_id_that_was_asked_for(control: Control) -> None:
    file = control.folder / "named.pem"
    keys = read_key_set(control("stream", "keygen", "--out", str(file), "--key-id", "2026-11").out.encode())
    assert keys.keys[0].id == "2026-11"
    text = sign(control, file, "--perm", PERM, "--key-id", "2026-11")
    assert verify(text, "t1", keys.keys, time.time()).key_id == "2026-11"


def test_the_private_key_is_readable_by_its_owner_alone_and_never_overwritten(control: Control, key: Path) -> None:
    content = key.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    assert content.startswith(b"-----BEGIN PRIVATE KEY-----")
    refused = control("stream", "keygen", "--out", str(key), code=1)
    assert (refused.out, "exists: nothing was changed" in refused.err) == ("", True)
    assert key.read_bytes() == content
    assert "No such file or directory" in control("stream", "keygen", "--out", "missing/t1.pem", code=1).err


@pytest.mark.parametrize(
    ("perm", "words"),
    [
        ("stream.publish", "is not a permission; the actions are stream.publish, stream.subscribe"),
        ("stream.drink:stream:t1/*", "is not a permission"),
        ("tenant.manage:*", "allows nothing on a node (leave it out)"),
        ("stream.publish:stream:t2/*", "matches no stream of tenant t1"),
        ("stream.publish:cache:t1/*", "matches no stream of tenant t1"),
        ("cache.read:stream:t1/*", "matches no cache of tenant t1"),
        ("stream.publish:stream:t1", "matches no stream of tenant t1"),
        ("stream.publish:\x1b[31m", "matches no stream"),
    ],
)
def test_a_permission_that_allows_nothing_is_refused(control: Control, key: Path, perm: str, words: str) -> None:
    refused = control("stream", "token", "--tenant", "t1", "--signing-key", str(key), "--perm", perm, code=1)
    assert (refused.out, words in refused.err, "\x1b" in refused.err) == ("", True, False), refused.err


@pytest.mark.parametrize(
    "pattern", ["*", "stream:*", "stream:t1/*", "str*", "stream:t1/default/orders", "stream:t*/d/o"]
)
def test_every_pattern_that_may_match_is_signed(control: Control, key: Path, pattern: str) -> None:
    sign(control, key, "--perm", f"stream.subscribe:{pattern}")


def test_a_file_that_holds_no_signing_key_is_named_and_not_shown(control: Control) -> None:
    file = control.file("a secret that belongs elsewhere", "other.pem")
    refused = control("stream", "token", "--tenant", "t1", "--signing-key", file, "--perm", PERM, code=1)
    assert refused.err == (
        f"error: {file} does not hold an unencrypted Ed25519 private key as PEM"
        " (create one with routerctl stream keygen)\n"
    )
    for missing, words in {"missing.pem": "cannot read missing.pem: No such file", "/": "/ is not a file"}.items():
        refused = control("stream", "token", "--tenant", "t1", "--signing-key", missing, "--perm", PERM, code=1)
        assert words in refused.err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--tenant", "t/1"), 1, "--tenant: 't/1' is not a name"),
        (("--tenant", "t1", "--ttl", "0s"), 2, "must be at least 1s"),
        (("--tenant", "t1", "--ttl", "soon"), 2, "'soon' is not a duration"),
        (("--tenant", "t1", "--subject", "x" * 20_000), 1, "the token would have"),
    ],
)
def test_a_wrong_option_names_what_is_wrong(
    control: Control, key: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    refused = control("stream", "token", "--signing-key", str(key), "--perm", PERM, *options, code=code)
    assert words in refused.err
