"""Reading the secrets of a callback: which keys sign, what the header Authorization is, and what is refused."""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from eventd.errors import SecretUnreadable
from eventd.resources.callback_configuration import CallbackConfig, CallbackKeyConfig
from eventd.resources.callback_keys import load_callback_secrets
from eventd.runtime.backoff import Backoff
from federation.keys import Algorithm, KeyState
from federation.selector import Selector
from federation.webhooks import sign

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
SEED = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PUBLIC = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
PAIR = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PEM = PAIR.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
PUBLIC_PEM = PAIR.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def config(**changed: Any) -> CallbackConfig:
    fields: dict[str, Any] = {
        "name": "billing",
        "group": "edge",
        "topic": "group:edge",
        "selector": Selector(),
        "url": "https://billing.example/hooks",
        "format": "standard",
        "from_earliest": False,
        "max_events": 1,
        "window": 0,
        "max_bytes": 1 << 20,
        "keys": (),
        "username": "",
        "password_file": "",
        "bearer_file": "",
        "headers": (),
        "timeout": 20.0,
        "connect_timeout": 5.0,
        "per_second": None,
        "in_flight": 1,
        "backoff": Backoff(),
        "isolate_after": 5,
        "disable_after": None,
        "hold": None,
    }
    return CallbackConfig(**fields | changed)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], str]:
    """Writes a file that only its owner may read, and returns its path."""

    def make(content: str | bytes) -> str:
        path = tmp_path / f"file{len(list(tmp_path.iterdir()))}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o600)
        return str(path)

    return make


Write = Callable[[str | bytes], str]


def refusal(changed: CallbackConfig, credentials: Path | None = None) -> str:
    with pytest.raises(SecretUnreadable) as refused:
        load_callback_secrets(changed, credentials)
    assert refused.value.code == "secret_unreadable"
    return str(refused.value)


# --- keys -----------------------------------------------------------------------------------------------------------


def test_without_files_there_is_nothing_to_sign_with() -> None:
    found = load_callback_secrets(config(), None)
    assert (found.keys, found.authorization) == ((), None)


def test_active_keys_sign_first_and_pending_and_revoked_ones_not_at_all(write: Write) -> None:
    states = ("pending", "retiring", "active", "revoked", "retiring", "active")
    declared = [CallbackKeyConfig(f"k{at}", state, write(SECRET)) for at, state in enumerate(states)]
    found = load_callback_secrets(config(keys=tuple(declared)), None)
    assert [(key.id, key.state) for key in found.keys] == [
        ("k2", KeyState.ACTIVE),
        ("k5", KeyState.ACTIVE),
        ("k1", KeyState.RETIRING),
        ("k4", KeyState.RETIRING),
    ]


@pytest.mark.parametrize(
    ("content", "algorithm"),
    [
        (SECRET, Algorithm.HMAC_SHA256),
        (f"\n {SECRET}\r\n", Algorithm.HMAC_SHA256),
        (SEED, Algorithm.ED25519),
        (PEM, Algorithm.ED25519),
    ],
)
def test_every_form_of_a_secret_is_read(write: Write, content: str, algorithm: Algorithm) -> None:
    [key] = load_callback_secrets(config(keys=(CallbackKeyConfig("k", "active", write(content)),)), None).keys
    assert key.algorithm is algorithm
    assert key.sign(b"x")


def test_what_is_signed_is_what_receivers_expect(write: Write) -> None:
    declared = (CallbackKeyConfig("new", "active", write(SEED)), CallbackKeyConfig("old", "retiring", write(SECRET)))
    found = load_callback_secrets(config(keys=declared), None)
    body = b'[{"topic":"orders","type":"create","url":"https://shop.example/orders/1","t":1795173885369}]'
    assert sign(found.keys, "orders-1", 1795173886, body) == (
        "v1a,uaSukB7XiRlLffcBvsS1/aToN3OR0RW4TVAFPZ3lkJU5JuN58LJOQZE0z8eEZwxKJA83LOxwT6dutljRGYm0AQ=="
        " v1,LLg6FbD4duDjKH6squHNcCuDKUQj/k/743Ac2VasH3k="
    )


@pytest.mark.parametrize("state", ["active", "retiring", "pending", "revoked"])
@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        ("", "key 'k' is neither a whsec_, whsk_ or whpk_ text nor an Ed25519 key as PEM"),
        ("hunter2", "key 'k' is neither a whsec_, whsk_ or whpk_ text nor an Ed25519 key as PEM"),
        (b"\xffhunter2", "key 'k' is not text"),
        ("whsec_hunter2", "key 'k' is not valid base64 after its prefix"),
        ("whsec_" + b64encode(b"hunter2").decode(), "the secret of key 'k' has 7 bytes, and must have 24 to 64"),
    ],
)
def test_an_unusable_key_is_refused_in_every_state(
    write: Write, state: str, content: str | bytes, trouble: str
) -> None:
    file = write(content)
    told = refusal(config(keys=(CallbackKeyConfig("k", state, file),)))
    assert told == f"EventCallback 'billing': {file}: {trouble} (create a secret: routerctl callback secret new)"
    assert "hunter2" not in told


@pytest.mark.parametrize("content", [PUBLIC, PUBLIC_PEM])
def test_a_public_part_cannot_sign(write: Write, content: str) -> None:
    file = write(content)
    told = refusal(config(keys=(CallbackKeyConfig("k", "active", file),)))
    assert told == f"EventCallback 'billing': {file}: key 'k' has only its public part (name the secret)"


# --- the header Authorization ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "password"),
    [("p:ä w\n", "p:ä w"), ("p\r\n", "p"), (" p ", " p ")],
)
def test_basic_authentication(write: Write, content: str, password: str) -> None:
    found = load_callback_secrets(config(username="eventd", password_file=write(content)), None)
    assert found.authorization is not None
    scheme, _, text = found.authorization.partition(" ")
    assert (scheme, b64decode(text).decode()) == ("Basic", f"eventd:{password}")
    assert text not in repr(found)


def test_a_user_without_a_password(write: Write) -> None:
    assert load_callback_secrets(config(username="eventd"), None).authorization == "Basic ZXZlbnRkOg=="


def test_a_bearer_token(write: Write) -> None:
    assert (
        load_callback_secrets(config(bearer_file=write("abc.DEF-_~+/=\n")), None).authorization
        == "Bearer abc.DEF-_~+/="
    )


@pytest.mark.parametrize("what", ["password", "token"])
@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("hunter2\nX-Other: a", "contains a character that it cannot have"),
        ("hunter2\x00", "contains a character that it cannot have"),
        (b"hunter2\xff", "is not UTF-8 text"),
    ],
)
def test_a_credential_is_one_line(write: Write, what: str, content: str | bytes, trouble: str) -> None:
    file = write(content)
    told = refusal(config(username="a", password_file=file) if what == "password" else config(bearer_file=file))
    assert told == f"EventCallback 'billing': {file}: the {what} {trouble} (write the {what} on one line)"


@pytest.mark.parametrize("content", ["hunter2 hunter2", "hünter2"])
def test_a_token_has_neither_blanks_nor_characters_outside_ascii(write: Write, content: str) -> None:
    told = refusal(config(bearer_file=write(content)))
    assert "the token contains a character that it cannot have" in told


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "missing"
    for changed in (
        config(keys=(CallbackKeyConfig("k", "pending", str(file)),)),
        config(username="a", password_file=str(file)),
        config(bearer_file=str(file)),
    ):
        assert refusal(changed) == (
            f"EventCallback 'billing': cannot read {file}: No such file or directory"
            " (check the path and that the node's user may read it, then send SIGHUP)"
        )


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (lambda file: config(keys=(CallbackKeyConfig("k", "active", file),)), "key"),
        (lambda file: config(username="a", password_file=file), "password"),
        (lambda file: config(bearer_file=file), "token"),
    ],
)
def test_what_is_no_small_file_is_refused(
    tmp_path: Path, write: Write, changed: Callable[[str], CallbackConfig], what: str
) -> None:
    assert refusal(changed(str(tmp_path))) == (
        f"EventCallback 'billing': {tmp_path} is not a file (name the file of the {what})"
    )
    large = write("a" * 65537)
    assert refusal(changed(large)) == (
        f"EventCallback 'billing': {large} is larger than 65536 bytes, so it cannot be a {what}"
    )


def test_a_credential_is_found_in_the_directory_of_the_service_manager(tmp_path: Path) -> None:
    (tmp_path / "billing.key").write_text(SECRET)
    declared = config(keys=(CallbackKeyConfig("k", "active", "credential:billing.key"),))
    assert [key.id for key in load_callback_secrets(declared, tmp_path).keys] == ["k"]
    assert refusal(declared).startswith(
        "EventCallback 'billing': credential:billing.key needs a credentials directory (set CREDENTIALS_DIRECTORY;"
    )


def test_a_file_that_others_may_read_is_warned_about_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "open.key"
    file.write_text(SECRET)
    file.chmod(0o644)
    declared = config(keys=(CallbackKeyConfig("k", "active", str(file)),))
    with caplog.at_level(logging.WARNING, "eventd.resources"):
        load_callback_secrets(declared, None)
        load_callback_secrets(declared, None)
    [line] = caplog.records
    assert line.getMessage() == "key file exposed"
    assert {name: getattr(line, name) for name in ("callback", "file", "mode", "others")} == {
        "callback": "billing",
        "file": str(file),
        "mode": "0644",
        "others": "read",
    }
