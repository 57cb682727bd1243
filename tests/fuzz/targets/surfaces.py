"""Emitted events and bodies of Routemaster clients; databases that a backup or a restore is given."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from eventd.api.admin.events.emitted import drafts_from, drafts_one_by_one
from eventd.api.routemaster.answers import BadRequest
from eventd.api.routemaster.json_text import read_json, write_object
from eventd.api.routemaster.publishing import read_event
from eventd.api.routemaster.subscriptions import read_settings
from eventd.api.routemaster.urls import is_event_url, parse_url, read_callback
from eventd.errors import EventdError
from eventd.log.core.values import Drafts
from eventd.resources.group_configuration import GroupConfig, effective
from eventd.store.backup.backup import examine
from eventd.testing import NOW
from federation.event import decode_canonical
from tests.fuzz.target import FuzzTarget
from tests.unit.resources.samples import GROUP, rows


@cache
def group() -> GroupConfig:
    return effective(rows(GROUP))["edge"]


Outcome = list[tuple[str, str]] | str


def _drafts(read: Any, events: list[Any]) -> Outcome:
    numbers = count()  # of a request as a whole, only the first id without one is drawn: the others count on
    try:
        drafts = read(events, group(), now=NOW, random=lambda size: next(numbers).to_bytes(8).ljust(size))
    except EventdError as error:
        return f"{type(error).__name__}: {error.message}"
    drafts = drafts if isinstance(drafts, Drafts) else Drafts.of(drafts)
    return [*zip(drafts.paths, drafts.bodies, strict=True)]


def check_emitted(data: bytes) -> None:
    """A request as a whole is judged like one event after the other."""
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return
    events = value if isinstance(value, list) else [value]
    if not events:
        return
    together, apart = _drafts(drafts_from, events), _drafts(drafts_one_by_one, events)
    assert together == apart
    if not isinstance(together, str):
        for _, body in together:
            decode_canonical(body)


def check_routemaster_body(data: bytes) -> None:
    try:
        body = read_json(data)
    except ValueError:
        return
    if not isinstance(body, dict):
        return
    with suppress(ValueError):
        text = write_object(body, 4096)
        again = read_json(text.encode())
        assert write_object(again, 1 << 20) == text
        assert list(again) == list(body)
    with suppress(BadRequest):
        event = read_event("topic", body, 4096)
        assert is_event_url(event.url)
    with suppress(BadRequest):
        settings = read_settings(body)
        assert settings.callback.lower().startswith("https://")


def check_callback_url(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    url = parse_url(text)
    if url is None:
        return
    assert text.isascii()
    assert not set(text) & set(' "<>\\^`{|}\r\n\t')
    with suppress(BadRequest):
        assert read_callback(text) == text
        assert "?" not in text.partition("#")[0]


def check_database(data: bytes) -> None:
    """Bytes of a database file: of no node, damaged, or not a database at all."""
    with tempfile.TemporaryDirectory(prefix="fuzz-database-") as folder:
        file = Path(folder) / "copy.db"
        file.write_bytes(data)
        with suppress(EventdError, OSError):
            examine(file)
            raise AssertionError("a file of a few pages cannot be the database of a node")
        assert file.read_bytes() == data


def emitted_seeds() -> Iterable[bytes]:
    yield b'[{"type":"t.u","subject":"s","payload":{"k":"v"},"expiresAt":"2030-01-01T00:00:00Z"},{"id":"x","type":"t"}]'
    yield b'[{"type":" t","ttl":"5m","observedAt":"2026-05-30T12:13:20+02:00"},{"type":"t","sourceNode":"n","seq":1}]'


def body_seeds() -> Iterable[bytes]:
    yield b'{"type":"create","url":"https://x.example/1","timestamp":1780142400000,"data":{"a":[1.50,-0,1e400]}}'
    yield b'{"topics":["a","b"],"callback":"https://x.example/cb","uuid":"u","timeout":500,"max":100}'


def url_seeds() -> Iterable[bytes]:
    yield from (b"https://x.example:443/a%20b#f", b"https://[::1]:8443/", b"https://u:p@h/?q", b"mailto:a")


def database_seeds() -> Iterable[bytes]:
    with tempfile.TemporaryDirectory(prefix="fuzz-database-") as folder:
        file = Path(folder) / "seed.db"
        with closing(sqlite3.connect(file)) as conn:
            conn.execute("PRAGMA page_size=512")
            conn.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
            conn.execute("INSERT INTO alembic_version VALUES ('0001')")
            conn.commit()
        yield file.read_bytes()
    yield b"SQLite format 3\0"


TARGETS = (
    FuzzTarget("emitted-events", check_emitted, emitted_seeds, ('"type":"', '"ttl":"5m"', '"payload":{', '"id":"')),
    FuzzTarget("routemaster-bodies", check_routemaster_body, body_seeds, ('"type":"noop"', '"data":{', '"timestamp":')),
    FuzzTarget("routemaster-urls", check_callback_url, url_seeds, ("https://", "://", "@", "[::1]", "%41", "#", "?")),
    FuzzTarget("databases", check_database, database_seeds, ("SQLite format 3", "CREATE TABLE ", "alembic_version")),
)
