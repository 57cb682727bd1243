"""Key sets in files and at URLs: followed, fetched again for an unknown key, and kept while they cannot be read."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eventd.api.quic import key_sources
from eventd.api.quic.key_sets import AGAIN_SECONDS, FRESH_SECONDS, KeySets
from eventd.api.quic.key_sources import LARGEST, KeySourceReader, KeySourceUnreadable
from eventd.resources.stream_configuration import KeySourceConfig
from eventd.runtime.threads import THREADS
from eventd.streams.tokens import StreamKey, read_key_set
from eventd.testing import ManualClock, until
from tests.support.stream_tokens import KEY, OTHER, jwk, jwks

URL = KeySourceConfig(url="https://keys.example/set?secret=1")


class Site:
    """What is at a URL."""

    def __init__(self) -> None:
        self.body: bytes | str = jwks()
        self.fetched = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, _source: KeySourceConfig) -> bytes:
        self.fetched += 1
        await self.gate.wait()
        if isinstance(self.body, str):
            raise KeySourceUnreadable(self.body)
        return self.body


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
async def sets(clock: ManualClock, site: Site, tmp_path: Path) -> AsyncIterator[KeySets[StreamKey]]:
    reader = KeySourceReader(THREADS, tmp_path, site.fetch)
    yield KeySets("key set", lambda got: read_key_set(got.content), reader, clock)
    await reader.close()


def ids(keys: tuple[StreamKey, ...] | None) -> list[str]:
    return [key.id for key in keys or ()]


def replace(path: Path, content: bytes) -> None:
    """Replace a file as careful programs do, so that its mark differs."""
    other = path.with_suffix(".new")
    other.write_bytes(content)
    os.replace(other, path)


async def test_a_file_is_read_when_it_is_declared_and_when_it_changes(sets: KeySets[StreamKey], tmp_path: Path) -> None:
    file, source = tmp_path / "keys.json", KeySourceConfig(file="credential:keys.json")
    file.write_bytes(jwks())
    sets.declare([source])
    assert sets.known(source) is None
    await sets.watch()
    assert ids(sets.known(source)) == ["k1"]
    before = sets.generation
    await sets.watch()
    assert sets.generation == before
    replace(file, jwks(jwk(OTHER, "k2")))
    await sets.watch()
    assert ids(sets.known(source)) == ["k2"]
    assert sets.generation > before


async def test_a_file_that_breaks_or_goes_keeps_its_keys_and_is_named(
    sets: KeySets[StreamKey], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.json"
    source = KeySourceConfig(file=str(file))
    file.write_bytes(jwks())
    sets.declare([source])
    await sets.watch()
    for broken in (b"{", b"x" * (LARGEST + 1)):
        replace(file, broken)
        await sets.watch()
        await sets.watch()
        assert ids(sets.known(source)) == ["k1"]
    file.unlink()
    await sets.watch()
    assert ids(sets.known(source)) == ["k1"]
    (state,) = sets.states()
    assert (state.keys, state.age, state.problem) == (1, 0.0, f"{file}: cannot be read: No such file or directory")
    replace(file, jwks())
    await sets.watch()
    assert sets.states()[0].problem == ""
    told = [
        (record.message, getattr(record, "source", "")) for record in caplog.records if record.levelname == "WARNING"
    ]
    assert told == [("key set not readable", f"key set {file}")] * 3


async def test_a_file_that_could_not_be_read_is_read_again_after_a_change_of_its_mode_or_a_minute(
    sets: KeySets[StreamKey], clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(jwks())
    source = KeySourceConfig(file=str(file))
    sets.declare([source])
    for repair in (lambda: file.chmod(0o600), lambda: os.chown(file, -1, os.getgid()), lambda: clock.advance(60)):
        with monkeypatch.context() as broken:
            broken.setattr(key_sources, "read_regular", refuse)
            await sets.reload()
            await sets.watch()
            assert sets.states()[0].problem == f"{file}: cannot be read: Input/output error"
        await sets.watch()
        assert sets.states()[0].problem

        async def is_repaired(repair: Callable[[], object] = repair) -> bool:
            repair()  # again if the clock of the file system has not moved since
            await sets.watch()
            return not sets.states()[0].problem

        await until(is_repaired)


async def test_a_folder_that_hangs_does_not_hold_up_the_files_of_others(
    sets: KeySets[StreamKey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name / "keys.json" for name in ("slow", "quick")]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(jwks())
    slow, quick = [KeySourceConfig(file=str(file)) for file in files]
    sets.declare([slow, quick])
    await sets.watch()
    hangs, mark = threading.Event(), key_sources._mark

    def look(path: Path) -> tuple[int, ...]:
        if path.parent.name == "slow":
            hangs.wait()
        return mark(path)

    monkeypatch.setattr(key_sources, "_mark", look)
    for file in files:
        replace(file, jwks(jwk(OTHER, "k2")))

    async def is_followed() -> bool:
        await sets.watch()
        return ids(sets.known(quick)) == ["k2"]

    try:
        await until(is_followed)
        assert ids(sets.known(slow)) == ["k1"]
    finally:
        hangs.set()


def refuse(*_: object) -> tuple[bytes, int]:
    raise OSError(errno.EIO, "Input/output error")


async def test_a_set_without_keys_takes_them_away(sets: KeySets[StreamKey], tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    source = KeySourceConfig(file=str(file))
    file.write_bytes(jwks())
    sets.declare([source])
    await sets.watch()
    replace(file, b'{"keys":[]}')
    await sets.watch()
    assert sets.known(source) == ()


async def test_a_bad_key_costs_no_other_and_is_named(
    sets: KeySets[StreamKey], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(jwks({"kty": "RSA"}, jwk()))
    source = KeySourceConfig(file=str(file))
    sets.declare([source])
    assert ids(await sets.find(source)) == ["k1"]
    assert [getattr(record, "error", "") for record in caplog.records] == ["key 1: kty is not OKP"]


async def test_files_that_are_not_regular_or_not_named_by_a_credential_have_no_keys(
    clock: ManualClock, site: Site, tmp_path: Path
) -> None:
    reader = KeySourceReader(THREADS, None, site.fetch)
    sets = KeySets("key set", lambda got: read_key_set(got.content), reader, clock)
    os.mkfifo(tmp_path / "pipe")
    sources = [KeySourceConfig(file=str(tmp_path / "pipe")), KeySourceConfig(file="credential:keys")]
    sets.declare(sources)
    await sets.watch()
    await sets.watch()
    assert [state.problem for state in sets.states()] == [
        f"{tmp_path}/pipe: not a regular file",
        "credential:keys needs a credentials directory: set CREDENTIALS_DIRECTORY; systemd does so for LoadCredential=",
    ]
    assert [sets.known(source) for source in sources] == [(), ()]
    await reader.close()


async def test_a_url_is_fetched_once_and_again_after_an_hour(
    sets: KeySets[StreamKey], site: Site, clock: ManualClock
) -> None:
    sets.declare([URL])
    await sets.refresh()
    for _ in range(3):
        assert ids(await sets.find(URL, "k1")) == ["k1"]
        await sets.refresh()
    assert site.fetched == 1
    site.body = jwks(jwk(OTHER, "k2"))
    clock.advance(FRESH_SECONDS)
    await sets.refresh()
    assert (ids(sets.known(URL)), site.fetched) == (["k2"], 2)


async def test_an_unknown_key_is_looked_for_at_most_once_in_ten_seconds(
    sets: KeySets[StreamKey], site: Site, clock: ManualClock
) -> None:
    sets.declare([URL])
    await sets.find(URL, "k2")
    site.body = jwks(jwk(), jwk(OTHER, "k2"))
    clock.advance(AGAIN_SECONDS - 1)
    assert (ids(await sets.find(URL, "k2")), site.fetched) == (["k1"], 1)
    clock.advance(1)
    assert ids(await sets.find(URL, "")) == ["k1"]  # a token without an id looks for no key
    assert (ids(await sets.find(URL, "k2")), site.fetched) == (["k1", "k2"], 2)
    clock.advance(AGAIN_SECONDS)
    await sets.find(URL, "k2")
    assert site.fetched == 2


async def test_callers_share_one_fetch(sets: KeySets[StreamKey], site: Site) -> None:
    sets.declare([URL])
    site.gate.clear()
    callers = [asyncio.ensure_future(sets.find(URL, "k1")) for _ in range(50)]
    await until(lambda: site.fetched == 1, "the fetch")
    site.gate.set()
    assert [ids(await caller) for caller in callers] == [["k1"]] * 50
    assert site.fetched == 1


async def test_a_caller_that_gives_up_leaves_the_fetch_to_the_next(sets: KeySets[StreamKey], site: Site) -> None:
    sets.declare([URL])
    site.gate.clear()
    first = asyncio.ensure_future(sets.find(URL, "k1"))
    await until(lambda: site.fetched == 1, "the fetch")
    first.cancel()
    await asyncio.wait([first])
    site.gate.set()
    assert ids(await sets.find(URL, "k1")) == ["k1"]


async def test_a_url_that_fails_keeps_its_keys_and_shows_no_secret(
    sets: KeySets[StreamKey], site: Site, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    sets.declare([URL])
    await sets.find(URL)
    for body in ("no answer within 5 s", b"<html>"):
        site.body = body
        clock.advance(FRESH_SECONDS)
        await sets.refresh()
        assert ids(sets.known(URL)) == ["k1"]
    (state,) = sets.states()
    assert (state.age, state.problem) == (2 * FRESH_SECONDS, 'it is not a JSON object with "keys"')
    assert "https://keys.example/set" in str([vars(record) for record in caplog.records])
    assert "secret" not in str([vars(record) for record in caplog.records])


async def test_a_reload_reads_files_at_once_and_makes_urls_due(
    sets: KeySets[StreamKey], site: Site, tmp_path: Path, clock: ManualClock
) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(jwks())
    source = KeySourceConfig(file=str(file))
    sets.declare([source, URL])
    await sets.watch()
    await sets.refresh()
    file.write_bytes(jwks(jwk(KEY, "k3")))
    await sets.reload()
    assert ids(sets.known(source)) == ["k3"]
    assert ids(sets.known(URL)) == ["k1"]
    await sets.refresh()
    assert site.fetched == 2


async def test_a_source_that_is_declared_no_more_has_no_keys(sets: KeySets[StreamKey]) -> None:
    sets.declare([URL])
    await sets.find(URL)
    sets.declare([])
    assert (sets.known(URL), await sets.find(URL), sets.states()) == (None, (), [])
