"""Settings, keys and bearer lines: whatever a file or a header holds, only the declared errors, without the secret."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from eventd.api.keys.configured_keys import parse_keys
from eventd.api.routemaster.callers import read_user
from eventd.errors import Invalid
from eventd.net.address_rules import parse_entries
from eventd.settings.loading import load
from eventd.settings.problems import BadSettings
from eventd.settings.values import entries_of
from federation.errors import BadKey, ClockSkew, Malformed, Unauthorized
from federation.keys import Key, KeyRing
from federation.webhooks import format_secret, format_seed, read_key, sign, verify
from tests.fuzz.target import FuzzTarget

NOW = 1780142400
WEBHOOK = read_key("k", format_secret(bytes(range(32))))


def check_settings_file(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="fuzz-settings-") as folder:
        for name in ("settings.toml", "settings.yaml"):
            file = Path(folder) / name
            file.write_bytes(data)
            try:
                settings = load(environ={}, file=file)
            except BadSettings:
                continue
            for row in settings.describe():
                assert row.name


def check_keys(data: bytes) -> None:
    """A text of keys, and each as the material of a key."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        keys = parse_keys(text)
    except ValueError:
        pass
    else:
        assert len({key.digest for key in keys}) == len(keys)
        assert all(key.scopes for key in keys)
    for allow in (True, False):
        with suppress(Invalid):
            for entry in parse_entries(entries_of(text), allow=allow):
                assert entry.network is not None or entry.host
    for make in (
        lambda: read_key("k", data),
        lambda: Key.ed25519("k", private=data, owner="n"),
        lambda: Key.ed25519("k", public=data, owner="n"),
        lambda: Key.hmac("k", data),
    ):
        with suppress(BadKey):
            key = make()
            ring = KeyRing([key])
            assert ring.find("k") is key
            if key.signs:
                assert key.verifies(key.sign(b"x"), b"x")
                assert not key.verifies(key.sign(b"x"), b"y")


def check_basic(data: bytes) -> None:
    user = read_user(data.decode("latin-1"))
    assert user is None or ":" not in user


def check_webhook(data: bytes) -> None:
    """Lines: id, timestamp, signature, body; then the same with the right signature, if the id can be sent."""
    id, _, rest = data.partition(b"\n")
    stamp, _, rest = rest.partition(b"\n")
    signature, _, body = rest.partition(b"\n")
    texts = [part.decode("latin-1") for part in (id, stamp, signature)]
    right = ""
    with suppress(ValueError):
        right = sign([WEBHOOK], texts[0], int(texts[1]), body)
    for given in (texts[2], right):
        names = ("webhook-id", "Webhook-Timestamp", "webhook-signature")
        try:
            found = verify([WEBHOOK], dict(zip(names, [*texts[:2], given], strict=True)), body, now=NOW * 1_000_000)
        except (Malformed, Unauthorized, ClockSkew):
            continue
        assert given.strip()
        assert abs(found.timestamp - NOW) <= 300


def settings_seeds() -> Iterable[bytes]:
    yield b'data_dir = "/x"\napi_listen = "127.0.0.1:8780"\nlake_interval = "5m"\napi_keys = ["a:read", "b"]\n'
    yield b"data_dir: /x\napi_listen: '[::1]:8780'\nlog_level: debug\nallow_insecure_no_auth: true\nnope: 1\n"
    yield b"api_listen: 2024-01-01\n? [a]\n: 1\n"


def key_seeds() -> Iterable[bytes]:
    yield b"secret:read+w:a|b\n# comment\nother,third::x"
    yield format_secret(bytes(range(32))).encode()
    yield format_seed(bytes(range(32))).encode()
    yield b"10.0.0.0/8,example.com:443,[::1]:80,*.example.com"
    inner = b"MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    yield b"-----BEGIN PRIVATE KEY-----\n" + inner + b"\n-----END PRIVATE KEY-----\n"


def basic_seeds() -> Iterable[bytes]:
    yield from (b"Basic dXNlcjpwYXNz", b"basic  dXNlcg", b"Bearer x")


def webhook_seeds() -> Iterable[bytes]:
    body = b'{"a":1}'
    yield b"msg_1\n1780142400\n" + sign([WEBHOOK], "msg_1", NOW, body).encode() + b"\n" + body
    yield b"m\n5\nv1,AAAA v1a,AAAA v9,x\n"


_NAMES = (
    "data_dir",
    "api_listen",
    "api_keys",
    "lake",
    "retention",
    "quic_listen",
    "console",
    "peers_allowed",
    ": ",
    " = ",
)
TARGETS = (
    FuzzTarget("settings-files", check_settings_file, settings_seeds, _NAMES),
    FuzzTarget("keys", check_keys, key_seeds, ("whsec_", "whsk_", "whpk_", "-----BEGIN ", ":read", "::", "/24", "[::")),
    FuzzTarget("basic-users", check_basic, basic_seeds, ("Basic ",)),
    FuzzTarget("webhooks", check_webhook, webhook_seeds, ("v1,", "v1a,", "1780142400")),
)
