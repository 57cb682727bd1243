"""A secret that cannot be read holds its callback, and nothing else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventd.resources import callback_secret_files
from eventd.resources.callback_configuration import CallbackConfig, CallbackKeyConfig
from eventd.resources.callback_keys import LoadedSecrets, load_callback_secrets
from eventd.resources.keyring import MAX_BYTES
from eventd.testing import until
from federation.webhooks import format_secret
from tests.support.callback_receivers import Receiver
from tests.support.called_back import CalledBack, callback

SECRET = format_secret(b"-" * 24)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _huge(path: Path) -> None:
    path.write_bytes(b"x" * (MAX_BYTES + 1))


def _nothing(_: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "words"),
    [(_pipe, "is not a file"), (_folder, "is not a file"), (_huge, "is larger than"), (_nothing, "No such file")],
)
@pytest.mark.parametrize("what", ["keys", "bearer_file"])
async def test_a_file_that_is_no_secret_is_named_and_a_reload_reads_the_right_one(
    called: CalledBack, receiver: Receiver, tmp_path: Path, make: Callable[[Path], None], words: str, what: str
) -> None:
    file = tmp_path / "secret"
    make(file)
    given: dict[str, Any] = {what: (CallbackKeyConfig("k", "active", str(file)),) if what == "keys" else str(file)}
    await called.declare(callback(receiver.url, **given))
    await called.emit("e1")
    cursor = await called.failed(1)
    assert (cursor.state, cursor.reason) == ("failed", "secret_unreadable")
    assert str(file) in cursor.last_error
    assert words in cursor.last_error
    if file.is_dir():
        file.rmdir()
    else:
        file.unlink(missing_ok=True)
    file.write_text(SECRET)
    assert await called.callbacks.reload() == [cursor.name]
    called.callbacks.look_again([cursor.name])
    await called.rest(cursor)
    await until(lambda: receiver.events == ["e1"])


async def test_a_callback_with_nothing_to_send_shows_that_its_secret_cannot_be_read(
    called: CalledBack, receiver: Receiver, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    await called.declare(callback(receiver.url, keys=(CallbackKeyConfig("k", "active", str(file)),)))
    cursor = await called.failed(1)
    assert (cursor.state, cursor.reason) == ("failed", "secret_unreadable")
    file.write_text(SECRET)
    await called.rest(cursor)  # without a reload

    async def runs() -> bool:
        return (await called.cursor()).state == "running"

    await until(runs)
    cursor = await called.cursor()
    assert (cursor.reason, cursor.last_error, cursor.succeeded_at) == ("", "", None)
    assert receiver.requests == []
    called.clock.advance(2.0)
    file.write_text("not a secret")
    assert await called.callbacks.reload() == []
    assert (await called.failed(1)).reason == "secret_unreadable"


async def test_a_file_that_hangs_holds_no_other_callback_and_is_named(
    called: CalledBack, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def load(config: CallbackConfig, credentials: Path | None) -> LoadedSecrets:
        if config.name == "hangs":
            release.wait(60)
        return load_callback_secrets(config, credentials)

    monkeypatch.setattr(callback_secret_files, "load_callback_secrets", load)
    monkeypatch.setattr(called.files, "_seconds", 1.0)  # enough for files that do not hang
    file = tmp_path / "secret"
    file.write_text(SECRET)
    keys = (CallbackKeyConfig("k", "active", str(file)),)
    for name in ("hangs", "works"):
        await called.declare(callback(receiver.url, name=name, keys=keys))
    try:
        await called.emit("e1")
        await until(lambda: receiver.events == ["e1"])
        cursor = await called.failed(1, "hangs")
        assert (cursor.state, cursor.reason) == ("failed", "secret_unreadable")
        assert cursor.last_error.startswith(f"EventCallback 'hangs': not read within 1 s: {file}")
        assert await called.callbacks.reload() == ["callback:works"]
    finally:
        release.set()
    assert await called.callbacks.reload() == ["callback:hangs", "callback:works"]
    called.callbacks.look_again([cursor.name])
    await called.rest(cursor)
    await until(lambda: receiver.events == ["e1", "e1"])


async def test_a_callback_that_is_declared_with_another_file_uses_it(
    called: CalledBack, receiver: Receiver, tmp_path: Path
) -> None:
    for number in (1, 2):
        (tmp_path / f"token{number}").write_text(f"token-{number}")
        await called.declare(callback(receiver.url, bearer_file=str(tmp_path / f"token{number}")))
        await called.emit(f"e{number}")
        await called.caught_up()
    assert [request.headers["authorization"] for request in receiver.requests] == ["Bearer token-1", "Bearer token-2"]


async def test_what_was_read_before_the_files_changed_is_not_kept(
    called: CalledBack, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read, release = tmp_path / "token", threading.Event(), threading.Event()

    def load(config: CallbackConfig, credentials: Path | None) -> LoadedSecrets:
        loaded = load_callback_secrets(config, credentials)
        if not read.is_set():
            read.set()
            release.wait(60)
        return loaded

    monkeypatch.setattr(callback_secret_files, "load_callback_secrets", load)
    file.write_text("old")
    await called.declare(callback(receiver.url, bearer_file=str(file)))
    try:
        await called.emit("e1")
        await until(read.is_set)
        file.write_text("new")
        await called.callbacks.reload()
    finally:
        release.set()
    await called.caught_up()
    assert [request.headers["authorization"] for request in receiver.requests] == ["Bearer new"]
