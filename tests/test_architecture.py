"""The rules of the house over every shipped file, and over files that break them: a rule that cannot fail is a wish."""

from __future__ import annotations

import pytest

from tests.support import architecture
from tests.support.architecture import ALLOWED, RULES, Rule, forbidden_words, stray_top_level
from tests.support.loops import BOUNDED, restless
from tests.support.source import ROOT, Source, read_sources, tracked_files

SOURCES = read_sources()
NAMED = {rule.name: rule for rule in RULES}

BROKEN = [
    ("imports point left", "eventd/store/rows.py", "from eventd.log import eventlog"),
    ("imports point left", "eventd/store/rows.py", "from eventd import api"),
    ("imports point left", "eventd/store/rows.py", "import eventd.log.head as head"),
    ("imports point left", "eventd/store/rows.py", "from ..log import head"),
    ("imports point left", "eventd/store/deep/rows.py", "from ...log.head import Head"),
    ("imports point left", "eventd/store/rows.py", "import importlib\nimportlib.import_module('eventd.node')"),
    ("imports point left", "eventd/store/rows.py", "def late():\n    from eventd.node import Node"),
    ("imports point left", "eventd/store/rows.py", "from eventd.observe import logger"),
    ("imports point left", "eventd/errors.py", "from eventd.settings import Settings"),
    ("imports point left", "eventd/api/app.py", "from eventd.node import Node"),
    ("imports point left", "eventd/node.py", "from eventd.cli import daemon"),
    ("imports point left", "eventd/node.py", "from eventd.audit import lake"),
    ("imports point left", "eventd/cli/control.py", "from eventd.testing import ManualClock"),
    ("imports point left", "eventd/cli/control.py", "from tests.support import ports"),
    ("imports point left", "eventd/observe.py", "from eventd.settings import Settings"),
    ("imports point left", "eventd/client.py", "from eventd.settings import Settings"),
    ("imports point left", "eventd/audit/source.py", "from eventd.egress import consumer"),
    ("imports point left", "eventd/cli/daemon.py", "def late():\n    from eventd.audit import run"),
    ("imports point left", "eventd/__init__.py", "from eventd.node import Node"),
    ("imports point left", "eventd/newcomer.py", "x = 1"),
    ("imports point left", "federation/event.py", "from eventd.errors import EventdError"),
    ("ingress and egress are apart", "eventd/ingress/peers.py", "from eventd.egress.peer import PeerSink"),
    ("ingress and egress are apart", "eventd/egress/peer.py", "from ..ingress import admission"),
    ("federation stands alone", "federation/wire.py", "import aiohttp"),
    ("federation stands alone", "federation/wire.py", "from sqlalchemy import text"),
    ("federation stands alone", "federation/wire.py", "import socket"),
    ("federation stands alone", "federation/wire.py", "from http import client"),
    ("SQL in store and log", "eventd/egress/peer.py", "from sqlalchemy import text"),
    ("SQL in store and log", "eventd/cli/migrate.py", "import alembic.command"),
    ("SQL in store and log", "eventd/api/app.py", "import sqlite3"),
    ("SQL in store and log", "eventd/api/app.py", "def f(c):\n    c.exec_driver_sql('SELECT * FROM records')"),
    ("SQL in store and log", "eventd/api/app.py", "def f(c, t):\n    c.exec_driver_sql(f'DELETE FROM {t}')"),
    ("one file knows the dialect", "eventd/store/registry.py", "def f(c):\n    return c.engine.dialect.name"),
    ("one file knows the dialect", "eventd/log/head.py", "from sqlalchemy.dialects.postgresql import insert"),
    ("one file knows the dialect", "migrations/versions/0001_start.py", "def f(op):\n    return op.get_bind().dialect"),
    ("Spark in audit", "eventd/egress/segments.py", "from pyspark.sql import SparkSession"),
    ("the environment in settings", "eventd/cli/daemon.py", "import os\nhome = os.environ.get('HOME')"),
    ("the environment in settings", "eventd/cli/daemon.py", "from os import environ as e"),
    ("the environment in settings", "eventd/cli/daemon.py", "import os as system\nhome = system.getenv('HOME')"),
    ("time through the clock", "eventd/log/head.py", "import time\nnow = time.time()"),
    ("time through the clock", "eventd/log/head.py", "import time as t\nclock = t.monotonic_ns"),
    ("time through the clock", "eventd/log/head.py", "from time import perf_counter"),
    ("time through the clock", "eventd/log/head.py", "from datetime import datetime as d, UTC\nnow = d.now(UTC)"),
    ("time through the clock", "eventd/log/head.py", "import datetime\nnow = datetime.datetime.utcnow()"),
    ("time through the clock", "eventd/egress/peer.py", "import asyncio\nasync def f():\n    await asyncio.sleep(1)"),
    ("time through the clock", "federation/event.py", "import time\nnow = time.time_ns()"),
    ("waits are monotonic", "eventd/egress/consumer.py", "def f(clock, due):\n    return (due - clock.now()) / SECOND"),
    ("waits are monotonic", "eventd/egress/consumer.py", "def f(log):\n    at = log.clock.now()\n    return at / 1e6"),
    ("waits are monotonic", "eventd/schedules.py", "def f(due, now):\n    return max(0, due - now) / clock.SECOND"),
    ("tasks in the node", "eventd/egress/peer.py", "import asyncio\ndef f(c):\n    asyncio.create_task(c)"),
    ("tasks in the node", "eventd/egress/peer.py", "def f(loop, c):\n    loop.create_task(c)"),
    ("tasks in the node", "eventd/egress/peer.py", "from asyncio import ensure_future"),
    ("tasks in the node", "eventd/egress/peer.py", "import asyncio\ngroup = asyncio.TaskGroup()"),
    (
        "tasks in the node",
        "eventd/api/app.py",
        "import asyncio\nasync def f(a):\n    await asyncio.gather(a(), a())",
    ),
    ("tasks in the node", "eventd/api/app.py", "from asyncio import gather\nwait = gather(*(a() for a in b))"),
    ("signals in the commands", "eventd/node.py", "import signal"),
    ("signals in the commands", "eventd/node.py", "def f(loop, s):\n    loop.add_signal_handler(s, f)"),
    ("status codes in one place", "eventd/api/events.py", "def f(answer):\n    return answer(status=404)"),
    ("status codes in one place", "eventd/api/events.py", "from aiohttp import web\nproblem = web.HTTPNotFound"),
    ("files of 400 lines", "eventd/log/head.py", "x = 1\n" * 401),
    ("functions of 60 lines", "eventd/log/head.py", "def f():\n" + "    x = 1\n" * 60),
    ("functions of 60 lines", "federation/wire.py", "async def f():\n" + "    x = 1\n" * 60),
    ("loops give way", "eventd/log/a.py", "async def f(q):\n    while True:\n        await q.get()"),
    ("loops give way", "eventd/log/a.py", "async def f(q):\n    async for x in q:\n        g(x)"),
    (
        "loops give way",
        "eventd/log/a.py",
        "async def f(c):\n    while g():\n        if h:\n            await c.sleep(1)",
    ),
    (
        "loops give way",
        "eventd/log/a.py",
        "async def f(c):\n    while g():\n        if h():\n            continue\n        await c.sleep(1)",
    ),
    (
        "loops give way",
        "eventd/log/a.py",
        "async def f(c):\n    while g():\n        try:\n            await c.sleep(1)\n        except E:\n"
        "            pass",
    ),
    ("loops give way", "eventd/log/a.py", "async def f(c):\n    while True:\n        g() and await c.sleep(1)"),
    ("names that say what", "eventd/store/utils.py", "x = 1"),
    ("names that say what", "eventd/common/time.py", "x = 1"),
    ("names that say what", "federation/helpers.py", "x = 1"),
    ("migrations are history", "migrations/versions/0001_start.py", "from eventd.store.schema import metadata"),
]

KEPT = [
    ("imports point left", "eventd/cli/audit.py", "def late():\n    from eventd.audit import run"),
    ("imports point left", "eventd/log/head.py", "from eventd import __version__\nfrom eventd.store import database"),
    ("imports point left", "eventd/log/head.py", "from . import cursors\nfrom eventd.observe import logger"),
    ("imports point left", "eventd/cli/control.py", "from eventd.client import Client\nfrom eventd.node import Node"),
    ("imports point left", "eventd/testing.py", "from eventd.node import Node\nfrom eventd.cli import control"),
    ("imports point left", "eventd/audit/lake.py", "from federation import event\nfrom eventd.store import database"),
    ("imports point left", "migrations/env.py", "from eventd.store.schema import metadata"),
    (
        "federation stands alone",
        "federation/wire.py",
        "import msgspec\nfrom urllib.parse import quote\nfrom . import event",
    ),
    ("SQL in store and log", "eventd/log/head.py", "from sqlalchemy import text\nq = text('SELECT a FROM b')"),
    ("SQL in store and log", "eventd/api/app.py", "def f():\n    '''SELECT a FROM b'''\nhint = 'select a peer'"),
    ("one file knows the dialect", "eventd/store/database.py", "def f(c):\n    return c.dialect.name"),
    ("the environment in settings", "eventd/settings.py", "import os\nhome = os.environ['HOME']"),
    ("time through the clock", "eventd/clock.py", "import time\nnow = time.time()"),
    (
        "time through the clock",
        "eventd/egress/peer.py",
        "import asyncio\nt = asyncio.timeout\nw = asyncio.wait_for",
    ),
    ("time through the clock", "eventd/egress/peer.py", "def f(loop, clock):\n    loop.call_later(1, clock.sleep)"),
    ("waits are monotonic", "eventd/egress/consumer.py", "def f(cursor):\n    return cursor.length / SECOND"),
    ("waits are monotonic", "eventd/api/v0/work.py", "def f(clock, at):\n    return (at - clock.steady()) / SECOND"),
    ("waits are monotonic", "eventd/api/auth.py", "def f(clock, at):\n    return (at - clock.now()) / SECOND"),
    ("tasks in the node", "eventd/supervisor.py", "import asyncio\ngroup = asyncio.TaskGroup()"),
    ("tasks in the node", "eventd/egress/peer.py", "import asyncio\ndef f(tasks):\n    return asyncio.gather(*tasks)"),
    ("signals in the commands", "eventd/cli/daemon.py", "import signal"),
    ("status codes in one place", "eventd/api/codes.py", "X = {'invalid_request': 400}"),
    ("status codes in one place", "eventd/api/problems.py", "def f(answer):\n    return answer(status=404)"),
    ("status codes in one place", "eventd/api/events.py", "def f(page):\n    return page(limit=500, status=201)"),
    ("loops give way", "eventd/log/a.py", "async def f(d):\n    while await d.database.read(g):\n        pass"),
    (
        "loops give way",
        "eventd/log/a.py",
        "async def f(c):\n    while g():\n        if h():\n            break\n        try:\n            g()\n"
        "        finally:\n            await c.sleep(1)",
    ),
    ("loops give way", "eventd/log/a.py", "def f(q):\n    while q:\n        q.pop()"),
    ("loops give way", "eventd/cli/a.py", "async def f(q):\n    while True:\n        await q.get()"),
    ("files of 400 lines", "eventd/log/head.py", "x = 1\n" * 400),
    ("functions of 60 lines", "eventd/log/head.py", "def f():\n" + "    x = 1\n" * 59),
]


def broken_by(rule: Rule, *sources: Source) -> list[str]:
    return [f"{source.path}:{line}: {what}" for source in sources for line, what in rule.check(source)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_house_keeps_the_rule(rule: Rule) -> None:
    broken = broken_by(rule, *SOURCES)
    assert not broken, "\n".join([f"{rule.name}: {rule.reason}", *broken])


@pytest.mark.parametrize(("name", "path", "text"), BROKEN)
def test_a_broken_rule_is_found(name: str, path: str, text: str) -> None:
    assert broken_by(NAMED[name], Source(path, text))


@pytest.mark.parametrize(("name", "path", "text"), KEPT)
def test_a_kept_rule_is_left_alone(name: str, path: str, text: str) -> None:
    assert not broken_by(NAMED[name], Source(path, text))


def test_every_loop_that_is_said_to_end_is_still_there() -> None:
    assert BOUNDED.keys() == {name for source in SOURCES for _, name in restless(source)}


def test_every_rule_has_been_seen_to_fail() -> None:
    assert {name for name, _, _ in BROKEN} == set(NAMED)


def test_there_is_something_to_look_at() -> None:
    assert {source.path.split("/")[0] for source in SOURCES} == {"eventd", "federation", "migrations"}


def test_nothing_imports_the_test_support_or_the_audit() -> None:
    assert not [part for part, allowed in ALLOWED.items() if part != "testing" and allowed & {"testing", "audit"}]


def test_nothing_else_lies_at_the_top() -> None:
    stray = stray_top_level(tracked_files())
    assert not stray, f"the top of the project is for its parts alone; move or remove: {', '.join(sorted(stray))}"


def test_a_stray_file_at_the_top_is_found() -> None:
    known = ["eventd/node.py", ".ci/run", "requirements.lock", "docs/README.md", "LICENSE"]
    assert stray_top_level([*known, "notes.txt", "scripts/run"]) == {"notes.txt", "scripts"}


def test_no_file_holds_a_forbidden_word() -> None:
    found = [hit for path in tracked_files() for hit in forbidden_words(path, (ROOT / path).read_bytes())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("word", architecture.FORBIDDEN_WORDS)
def test_a_forbidden_word_is_found(word: str) -> None:
    (told,) = forbidden_words("docs/a.md", b"fine\nsee " + word.encode() + b" there\n")
    assert told.startswith(f"docs/a.md:2: {word} is ")
