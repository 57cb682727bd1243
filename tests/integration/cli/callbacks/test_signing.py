"""`routerctl callback`: a secret is created, a body signed with it, and each wrong part of a request is named."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from federation.webhooks import read_key, verify
from tests.integration.cli.conftest import Control, Result

BODY = b'[{"n":1}]\n'


class Callback:
    """The commands of a receiver, which need no node."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def __call__(self, *words: str | Path, body: bytes = b"", code: int | None = 0) -> Result:
        return self._control("callback", *map(str, words), stdin=body, code=code)

    def stored_secret(self, *options: str) -> Path:
        path = self._control.folder / f"secret{len(options)}"
        path.write_text(self("secret", "new", *options).out)
        return path


@pytest.fixture
def callback(control: Control) -> Callback:
    return Callback(control)


def flags(headers: str) -> list[str]:
    return [word for line in headers.splitlines() for word in ("-H", line)]


@pytest.mark.parametrize("options", [(), ("--ed25519",)])
def test_signed_body_verifies_and_changed_one_does_not(callback: Callback, options: tuple[str, ...]) -> None:
    secret = callback.stored_secret(*options)
    signed = callback("sign", "--secret-file", secret, body=BODY)
    given = dict(line.split(": ") for line in signed.lines)
    assert (
        verify([read_key("k", secret.read_text())], given, BODY, now=time.time_ns() // 1000).id == given["webhook-id"]
    )
    valid = callback("verify", "--secret-file", secret, *flags(signed.out), body=BODY)
    assert valid.out.split()[:3] == [given["webhook-id"], "is", "valid,"]
    changed = callback("verify", "--secret-file", secret, *flags(signed.out), body=BODY.strip(), code=4)
    assert "no signature in webhook-signature is valid" in changed.err


def test_public_part_is_shown_once_and_verifies(callback: Callback, tmp_path: Path) -> None:
    made = callback("secret", "new", "--ed25519", "-o", "json").json
    private, public, body = tmp_path / "private", tmp_path / "public", tmp_path / "body"
    private.write_text(made["secret"])
    public.write_text(made["public"])
    body.write_bytes(BODY)
    signed = callback("sign", "--secret-file", private, body)
    callback("verify", "--secret-file", public, *flags(signed.out), body)
    refused = callback("sign", "--secret-file", public, body, code=1)
    assert "no private part" in refused.err


def test_old_request_needs_a_larger_tolerance(callback: Callback) -> None:
    secret, sent = callback.stored_secret(), int(time.time()) - 4000
    signed = callback("sign", "--secret-file", secret, "--id", "m-1", "--timestamp", str(sent), body=BODY)
    checked = ["verify", "--secret-file", secret, *flags(signed.out)]
    old = callback(*checked, body=BODY, code=4)
    assert "behind this clock; 300 s are allowed (compare the clocks" in old.err
    assert callback(*checked, "--tolerance", "86400", body=BODY).out == f"m-1 is valid, sent at {sent}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-H", "nonsense"], "'nonsense' is not a header (write NAME: VALUE"),
        (["-H", "webhook-id: m-1"], "the header webhook-timestamp is missing (pass webhook-id"),
        (["-H", "a: b", "missing.json"], "cannot read missing.json: No such file or directory"),
        (["-H", "a: b", "--secret-file", "missing.key"], "cannot read missing.key: No such file"),
        (["-H", "a: b", "--secret-file", "/"], "/ is not a file (name the file of the secret)"),
    ],
)
def test_wrong_use_is_named(callback: Callback, words: list[str], message: str) -> None:
    found = callback("verify", "--secret-file", callback.stored_secret(), *words, body=BODY, code=None)
    assert found.code in (1, 4)
    assert message in found.err


def test_unusable_secret_is_not_shown(callback: Callback, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.key"
    wrong.write_text("geheim")
    found = callback("sign", "--secret-file", wrong, body=BODY, code=1)
    assert f"{wrong}: key 'wrong.key' is neither a whsec_" in found.err
    assert "geheim" not in found.err + found.out
    without_id = callback("sign", "--secret-file", callback.stored_secret(), "--id", "a.b", body=BODY, code=None)
    assert "'a.b' is not a message id" in without_id.err
