"""`routerctl callback`: a secret is created, a body signed with it, and each wrong part of a request is named."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from federation.webhooks import read_key, verify
from tests.support.processes import CONTROL

BODY = b'[{"n":1}]\n'


def callback(*words: str | Path, body: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*CONTROL, "callback", *map(str, words)], input=body, capture_output=True, check=False)


def stored_secret(folder: Path, *options: str) -> Path:
    made = callback("secret", "new", *options)
    assert made.returncode == 0, made.stderr
    path = folder / f"secret{len(options)}"
    path.write_bytes(made.stdout)
    return path


def flags(headers: bytes) -> list[str]:
    return [word for line in headers.decode().splitlines() for word in ("-H", line)]


@pytest.mark.parametrize("options", [(), ("--ed25519",)])
def test_signed_body_verifies_and_changed_one_does_not(tmp_path: Path, options: tuple[str, ...]) -> None:
    secret = stored_secret(tmp_path, *options)
    signed = callback("sign", "--secret-file", secret, body=BODY)
    given = dict(line.split(": ") for line in signed.stdout.decode().splitlines())
    assert (
        verify([read_key("k", secret.read_text())], given, BODY, now=time.time_ns() // 1000).id == given["webhook-id"]
    )
    valid = callback("verify", "--secret-file", secret, *flags(signed.stdout), body=BODY)
    assert (valid.returncode, valid.stdout.decode().split()[:3]) == (0, [given["webhook-id"], "is", "valid,"])
    changed = callback("verify", "--secret-file", secret, *flags(signed.stdout), body=BODY.strip())
    assert changed.returncode == 4
    assert b"no signature in webhook-signature is valid" in changed.stderr


def test_public_part_is_shown_once_and_verifies(tmp_path: Path) -> None:
    made = json.loads(callback("secret", "new", "--ed25519", "-o", "json").stdout)
    private, public, body = tmp_path / "private", tmp_path / "public", tmp_path / "body"
    private.write_text(made["secret"])
    public.write_text(made["public"])
    body.write_bytes(BODY)
    signed = callback("sign", "--secret-file", private, body)
    assert callback("verify", "--secret-file", public, *flags(signed.stdout), body).returncode == 0
    refused = callback("sign", "--secret-file", public, body)
    assert refused.returncode == 1
    assert b"no private part" in refused.stderr


def test_old_request_needs_a_larger_tolerance(tmp_path: Path) -> None:
    secret, sent = stored_secret(tmp_path), int(time.time()) - 4000
    signed = callback("sign", "--secret-file", secret, "--id", "m-1", "--timestamp", str(sent), body=BODY)
    checked = ["verify", "--secret-file", secret, *flags(signed.stdout)]
    old = callback(*checked, body=BODY)
    assert old.returncode == 4
    assert b"behind this clock; 300 s are allowed (compare the clocks" in old.stderr
    assert callback(*checked, "--tolerance", "86400", body=BODY).stdout == f"m-1 is valid, sent at {sent}\n".encode()


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
def test_wrong_use_is_named(tmp_path: Path, words: list[str], message: str) -> None:
    found = callback("verify", "--secret-file", stored_secret(tmp_path), *words, body=BODY)
    assert found.returncode in (1, 4)
    assert message in found.stderr.decode()
    assert b"Traceback" not in found.stderr


def test_unusable_secret_is_not_shown(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.key"
    wrong.write_text("geheim")
    found = callback("sign", "--secret-file", wrong, body=BODY)
    assert found.returncode == 1
    assert f"{wrong}: key 'wrong.key' is neither a whsec_" in found.stderr.decode()
    assert b"geheim" not in found.stderr + found.stdout
    without_id = callback("sign", "--secret-file", stored_secret(tmp_path), "--id", "a.b", body=BODY)
    assert b"'a.b' is not a message id" in without_id.stderr
