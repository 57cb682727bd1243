"""Runs the architecture rules over every shipped file, and each rule over a file that breaks it, to prove that it can
fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

import pytest

from eventd.api.routes import ROUTES
from eventd.cli.program.command_line import Branch, Leaf
from eventd.cli.routerctl_commands import COMMANDS
from tests.support import architecture
from tests.support.architecture import (
    IMPORTED_LATE,
    NEVER,
    OPEN_TO_ALL,
    ROOMS,
    RULES,
    Room,
    Rule,
    circles,
    forbidden_words,
    import_cycles,
    read_room,
    stray_top_level,
    used_rooms,
)
from tests.support.loops import BOUNDED, find_busy_loops
from tests.support.sets import PROGRAMS, VALUE_TYPES
from tests.support.source import ROOT, Source, read_sources, tracked_files

SOURCES = read_sources()
NAMED = {rule.name: rule for rule in RULES}

BROKEN = [
    ("imports go down", "eventd/store/rows/keys.py", "from eventd.log.core import eventlog"),
    ("imports go down", "eventd/store/rows/keys.py", "from eventd import api"),
    ("imports go down", "eventd/store/rows/keys.py", "import eventd.log.core.head as head"),
    ("imports go down", "eventd/store/rows/keys.py", "from ...log.core import head"),
    ("imports go down", "eventd/api/routes.py", "route = get('/status', 'listener.runner:run')"),
    ("imports go down", "eventd/api/routes.py", "def f(verb):\n    return f'peers.listener:{verb}'"),
    (
        "imports go down",
        "eventd/store/rows/keys.py",
        "import importlib\nimportlib.import_module('eventd.node.node')",
    ),
    ("imports go down", "eventd/store/rows/keys.py", "def late():\n    from eventd.node.node import Node"),
    ("imports go down", "eventd/store/engine/database.py", "from eventd.store.rows import keys"),
    ("imports go down", "eventd/errors.py", "from eventd.settings.model import Settings"),
    ("imports go down", "eventd/api/app.py", "from eventd.node.node import Node"),
    ("imports go down", "eventd/node/node.py", "from eventd.cli import routerctl"),
    ("imports go down", "eventd/node/node.py", "from eventd.audit.engine import run"),
    ("imports go down", "eventd/cli/routerctl.py", "from eventd.testing import ManualClock"),
    ("imports go down", "eventd/cli/routerctl.py", "from tests.support import ports"),
    ("imports go down", "eventd/client/client.py", "from eventd.settings.model import Settings"),
    ("imports go down", "eventd/audit/source/nodes.py", "from eventd.egress.loop import consumer"),
    ("imports go down", "eventd/cli/routerd_eventd.py", "def late():\n    from eventd.audit.engine import run"),
    ("imports go down", "eventd/__init__.py", "from eventd.node.node import Node"),
    ("imports go down", "eventd/newcomer.py", "x = 1"),
    ("imports go down", "eventd/newroom/newcomer.py", "from eventd.store.engine import database"),
    ("imports go down", "federation/event.py", "from eventd.errors import EventdError"),
    ("imports go down", "eventd/ingress/peers.py", "from eventd.egress.peers.peer import PeerSink"),
    ("imports go down", "eventd/egress/peers/peer.py", "from ...ingress import admission"),
    ("optional code is imported late", "eventd/cli/audit/run.py", "from eventd.audit.engine import run"),
    ("modules are named", "eventd/node/node.py", "import importlib\nimportlib.import_module(f'eventd.{name}')"),
    ("modules are named", "eventd/node/node.py", "from importlib import import_module\nimport_module(name)"),
    ("engines come from one file", "eventd/store/backup/backup.py", "import sqlalchemy as sa\nsa.create_engine('x')"),
    ("federation stands alone", "federation/wire.py", "import aiohttp"),
    ("federation stands alone", "federation/wire.py", "from sqlalchemy import text"),
    ("federation stands alone", "federation/wire.py", "import socket"),
    ("federation stands alone", "federation/wire.py", "from http import client"),
    ("SQL in store and log", "eventd/egress/peers/peer.py", "from sqlalchemy import text"),
    ("SQL in store and log", "eventd/cli/migrate.py", "import alembic.command"),
    ("SQL in store and log", "eventd/api/app.py", "import sqlite3"),
    ("SQL in store and log", "eventd/api/app.py", "def f(c):\n    c.exec_driver_sql('SELECT * FROM records')"),
    ("SQL in store and log", "eventd/api/app.py", "def f(c, t):\n    c.exec_driver_sql(f'DELETE FROM {t}')"),
    ("one file knows the dialect", "eventd/store/rows/registry.py", "def f(c):\n    return c.engine.dialect.name"),
    ("one file knows the dialect", "eventd/log/core/head.py", "from sqlalchemy.dialects.postgresql import insert"),
    ("one file knows the dialect", "migrations/versions/0001_start.py", "def f(op):\n    return op.get_bind().dialect"),
    ("Spark in audit", "eventd/egress/lake.py", "from pyspark.sql import SparkSession"),
    ("the environment in settings", "eventd/cli/routerd_eventd.py", "import os\nhome = os.environ.get('HOME')"),
    ("the environment in settings", "eventd/cli/routerd_eventd.py", "from os import environ as e"),
    (
        "the environment in settings",
        "eventd/cli/routerd_eventd.py",
        "import os as system\nhome = system.getenv('HOME')",
    ),
    ("time through the clock", "eventd/log/core/head.py", "import time\nnow = time.time()"),
    ("time through the clock", "eventd/log/core/head.py", "import time as t\nclock = t.monotonic_ns"),
    ("time through the clock", "eventd/log/core/head.py", "from time import perf_counter"),
    ("time through the clock", "eventd/log/core/head.py", "from datetime import datetime as d, UTC\nnow = d.now(UTC)"),
    ("time through the clock", "eventd/log/core/head.py", "import datetime\nnow = datetime.datetime.utcnow()"),
    (
        "time through the clock",
        "eventd/egress/peers/peer.py",
        "import asyncio\nasync def f():\n    await asyncio.sleep(1)",
    ),
    ("time through the clock", "federation/event.py", "import time\nnow = time.time_ns()"),
    ("chance is handed in", "eventd/egress/peers/peer.py", "import random"),
    ("chance is handed in", "eventd/egress/peers/peer.py", "from secrets import token_hex"),
    ("chance is handed in", "federation/event.py", "import os\nnoise = os.urandom(8)"),
    ("chance is handed in", "eventd/api/admin/keys.py", "import uuid\nname = uuid.uuid4()"),
    ("chance is handed in", "migrations/versions/0012_more.py", "import secrets"),
    ("programs make the clock", "eventd/node/node.py", "from eventd.runtime.clock import SystemClock"),
    ("programs make the clock", "eventd/egress/peers/peer.py", "from eventd.runtime import clock\nclock.SystemClock()"),
    ("programs make the chance", "eventd/node/node.py", "from eventd.runtime.chance import SYSTEM"),
    ("programs make the chance", "eventd/node/node.py", "from eventd.runtime import chance\nchance.SYSTEM"),
    ("programs make the chance", "eventd/node/node.py", "import eventd.runtime.chance as c\nc.SystemChance()"),
    ("threads come from their owners", "eventd/node/node.py", "import threading\nthreading.Thread(target=f).start()"),
    (
        "threads come from their owners",
        "eventd/api/app.py",
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)",
    ),
    ("threads come from their owners", "eventd/store/engine/engines.py", "from threading import Timer\nTimer(1, f)"),
    ("threads come from their owners", "eventd/api/app.py", "from concurrent.futures.thread import ThreadPoolExecutor"),
    (
        "threads come from their owners",
        "eventd/api/app.py",
        "from concurrent import futures as f\nf.ProcessPoolExecutor()",
    ),
    (
        "threads come from their owners",
        "eventd/api/app.py",
        "import concurrent.futures.process\nconcurrent.futures.process.ProcessPoolExecutor(2)",
    ),
    ("threads come from their owners", "eventd/api/app.py", "from multiprocessing.pool import ThreadPool"),
    ("threads come from their owners", "eventd/api/app.py", "import _thread\n_thread.start_new_thread(f, ())"),
    (
        "programs choose the threads",
        "eventd/node/membership.py",
        "from eventd.runtime.threads import THREADS\nTHREADS(2, 'x')",
    ),
    ("programs choose the threads", "eventd/api/app.py", "from eventd.runtime import threads as t\nt.THREADS(2, 'x')"),
    ("child processes from one room", "eventd/node/node.py", "import subprocess\nsubprocess.Popen(['sleep', '1'])"),
    ("child processes from one room", "eventd/plugins/run/executable.py", "from subprocess import run"),
    ("child processes from one room", "eventd/node/node.py", "import os\nif os.fork() == 0:\n    f()"),
    ("child processes from one room", "eventd/node/node.py", "from asyncio import create_subprocess_exec"),
    (
        "the boot is handed in",
        "eventd/node/node.py",
        "from pathlib import Path\nPath('/proc/sys/kernel/random/boot_id').read_text()",
    ),
    ("the boot is handed in", "eventd/log/core/head.py", "from eventd.store.engine.boot import read_boot_id"),
    ("the boot is handed in", "eventd/lake/writer.py", "open('/etc/machine-id')"),
    ("a node without its API", "eventd/node/retention.py", "from eventd.api.keys.valid_keys import Keys"),
    ("a node without its API", "eventd/node/new_chore.py", "from eventd.api.keys.valid_keys import Keys"),
    (
        "no loop over a set",
        "eventd/log/core/wakeups.py",
        "def f(a):\n    a.all: set[Watch] = set()\n    for watch in a.all:\n        g(watch)",
    ),
    ("no loop over a set", "eventd/node/node.py", "def f(a, b):\n    return [g(one) for one in {*a, *b}]"),
    ("no loop over a set", "eventd/node/node.py", "def f(a, b):\n    for one in a.keys() - b.keys():\n        g(one)"),
    ("no loop over a set", "eventd/node/node.py", "def f(a, b):\n    return [g(one) for one in a & b.keys()]"),
    ("no loop over a set", "eventd/node/node.py", "def f(a):\n    all = set(a)\n    for one in all:\n        g(one)"),
    (
        "waits are monotonic",
        "eventd/egress/loop/consumer.py",
        "def f(clock, due):\n    return (due - clock.now()) / SECOND",
    ),
    (
        "waits are monotonic",
        "eventd/egress/loop/consumer.py",
        "def f(log):\n    at = log.clock.now()\n    return at / 1e6",
    ),
    (
        "waits are monotonic",
        "eventd/node/schedules.py",
        "def f(due, now):\n    return max(0, due - now) / clock.SECOND",
    ),
    ("tasks in the node", "eventd/egress/peers/peer.py", "import asyncio\ndef f(c):\n    asyncio.create_task(c)"),
    ("tasks in the node", "eventd/egress/peers/peer.py", "def f(loop, c):\n    loop.create_task(c)"),
    ("tasks in the node", "eventd/egress/peers/peer.py", "from asyncio import ensure_future"),
    ("tasks in the node", "eventd/egress/peers/peer.py", "import asyncio\ngroup = asyncio.TaskGroup()"),
    (
        "tasks in the node",
        "eventd/api/app.py",
        "import asyncio\nasync def f(a):\n    await asyncio.gather(a(), a())",
    ),
    ("tasks in the node", "eventd/api/app.py", "from asyncio import gather\nwait = gather(*(a() for a in b))"),
    ("signals in the commands", "eventd/node/node.py", "import signal"),
    ("signals in the commands", "eventd/node/node.py", "def f(loop, s):\n    loop.add_signal_handler(s, f)"),
    ("status codes in one place", "eventd/api/admin/keys.py", "def f(answer):\n    return answer(status=404)"),
    (
        "status codes in one place",
        "eventd/api/admin/events/events.py",
        "from aiohttp import web\nproblem = web.HTTPNotFound",
    ),
    ("files of 500 lines", "eventd/log/core/head.py", "x = 1\n" * 501),
    ("functions of 60 lines", "eventd/log/core/head.py", "def f():\n" + "    x = 1\n" * 60),
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
    ("commands are quoted", "eventd/api/app.py", "def f(id):\n    return f'see `routerctl prove {id}`'"),
    ("commands are quoted", "eventd/api/app.py", "def f(one):\n    return f'routerctl prove --group g {one.event_id}'"),
    ("names that say what", "eventd/store/utils.py", "x = 1"),
    ("names that say what", "eventd/common/time.py", "x = 1"),
    ("names that say what", "federation/helpers.py", "x = 1"),
    ("migrations are history", "migrations/versions/0001_start.py", "from eventd.store.schema.tables import metadata"),
]

KEPT = [
    ("commands are quoted", "eventd/api/app.py", "def f(id):\n    return f'see `routerctl job list` for {id}'"),
    ("commands are quoted", "eventd/api/app.py", "def f(id):\n    return f'routerctl prove {as_argument(id)}'"),
    ("imports go down", "eventd/cli/audit/run.py", "def late():\n    from eventd.audit.engine import run"),
    (
        "optional code is imported late",
        "eventd/cli/audit/run.py",
        "if TYPE_CHECKING:\n    from eventd.audit import engine\ndef late():\n    from eventd.audit.engine import run",
    ),
    (
        "imports go down",
        "eventd/log/core/head.py",
        "from eventd import __version__\nfrom eventd.store.engine import database",
    ),
    ("imports go down", "eventd/log/core/head.py", "from . import values\nfrom eventd.log.cursors import cursors"),
    ("imports go down", "eventd/testing.py", "from eventd.node.node import Node\nfrom eventd.cli import routerctl"),
    (
        "imports go down",
        "eventd/audit/source/lakes.py",
        "from federation import event\nfrom eventd.lake import layout",
    ),
    ("imports go down", "migrations/env.py", "from eventd.store.schema.tables import metadata"),
    (
        "federation stands alone",
        "federation/wire.py",
        "import msgspec\nfrom urllib.parse import quote\nfrom . import event",
    ),
    ("SQL in store and log", "eventd/log/core/head.py", "from sqlalchemy import text\nq = text('SELECT a FROM b')"),
    ("SQL in store and log", "eventd/api/app.py", "def f():\n    '''SELECT a FROM b'''\nhint = 'select a peer'"),
    ("one file knows the dialect", "eventd/store/engine/statements.py", "def f(c):\n    return c.dialect.name"),
    ("the environment in settings", "eventd/settings/loading.py", "import os\nhome = os.environ['HOME']"),
    ("time through the clock", "eventd/runtime/clock.py", "import time\nnow = time.time()"),
    (
        "time through the clock",
        "eventd/egress/peers/peer.py",
        "import asyncio\nt = asyncio.timeout\nw = asyncio.wait_for",
    ),
    (
        "time through the clock",
        "eventd/egress/peers/peer.py",
        "def f(loop, clock):\n    loop.call_later(1, clock.sleep)",
    ),
    ("programs make the clock", "eventd/cli/routerctl.py", "from eventd.runtime.clock import SystemClock"),
    ("programs choose the threads", "eventd/cli/routerctl.py", "from eventd.runtime.threads import THREADS"),
    ("programs choose the threads", "eventd/api/app.py", "from eventd.runtime.threads import ThreadFactory"),
    ("threads come from their owners", "eventd/api/app.py", "from concurrent.futures import Executor"),
    ("child processes from one room", "eventd/node/node.py", "from subprocess import TimeoutExpired"),
    ("a node without its API", "eventd/node/membership.py", "from eventd.api.peers.listener import build_listener"),
    ("SQL in store and log", "eventd/lake/extract/ledgers.py", "from sqlalchemy import text"),
    ("waits are monotonic", "eventd/egress/loop/consumer.py", "def f(cursor):\n    return cursor.length / SECOND"),
    (
        "waits are monotonic",
        "eventd/api/topics/dispatch.py",
        "def f(clock, at):\n    return (at - clock.steady()) / SECOND",
    ),
    (
        "waits are monotonic",
        "eventd/api/keys/valid_keys.py",
        "def f(clock, at):\n    return (at - clock.now()) / SECOND",
    ),
    ("tasks in the node", "eventd/runtime/supervisor.py", "import asyncio\ngroup = asyncio.TaskGroup()"),
    (
        "tasks in the node",
        "eventd/egress/peers/peer.py",
        "import asyncio\ndef f(tasks):\n    return asyncio.gather(*tasks)",
    ),
    ("signals in the commands", "eventd/cli/routerd_eventd.py", "import signal"),
    ("status codes in one place", "eventd/api/errors/codes.py", "X = {'invalid_request': 400}"),
    ("status codes in one place", "eventd/api/errors/problems.py", "def f(answer):\n    return answer(status=404)"),
    (
        "status codes in one place",
        "eventd/api/admin/events/events.py",
        "def f(page):\n    return page(limit=500, status=201)",
    ),
    ("loops give way", "eventd/log/a.py", "async def f(d):\n    while await d.database.read(g):\n        pass"),
    (
        "loops give way",
        "eventd/log/a.py",
        "async def f(c):\n    while g():\n        if h():\n            break\n        try:\n            g()\n"
        "        finally:\n            await c.sleep(1)",
    ),
    ("loops give way", "eventd/log/a.py", "def f(q):\n    while q:\n        q.pop()"),
    ("loops give way", "eventd/cli/a.py", "async def f(q):\n    while True:\n        await q.get()"),
    ("files of 500 lines", "eventd/log/core/head.py", "x = 1\n" * 500),
    ("functions of 60 lines", "eventd/log/core/head.py", "def f():\n" + "    x = 1\n" * 59),
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
    assert BOUNDED.keys() == {name for source in SOURCES for _, name in find_busy_loops(source)}


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.excused], ids=lambda rule: rule.name)
def test_every_excused_file_would_break_the_rule(rule: Rule) -> None:
    breaking = (source.path for source in SOURCES if any(True for _ in rule.find(source)))
    assert {place for path in breaking for place in rule.excuses(path)} == rule.excused.keys()


def test_every_value_type_is_the_element_of_a_set_in_a_node() -> None:
    annotated = {
        ast.unparse(node.annotation)
        for source in SOURCES
        if source.part not in PROGRAMS
        for node in source.nodes(ast.AnnAssign)
    }
    assert {name for name in VALUE_TYPES if annotated & {f"set[{name}]", f"frozenset[{name}]"}} == VALUE_TYPES.keys()


def test_every_command_that_imports_late_still_imports_optional_code() -> None:
    imports = {source.path: [dotted for _, dotted in source.imports] for source in SOURCES}
    needed = {
        folder: room
        for folder, room in IMPORTED_LATE.items()
        if any(name.startswith(room) for path, names in imports.items() if path.startswith(folder) for name in names)
    }
    assert needed == IMPORTED_LATE


def test_what_tables_load_by_name_counts_as_imported() -> None:
    imported = {dotted.rpartition(".")[0] for source in SOURCES for _, dotted in source.imports}
    handlers = {f"eventd.api.{str(route.handler).partition(':')[0]}" for route in ROUTES}
    commands = {f"eventd.cli.{leaf.where.rpartition('.')[0]}" for leaf in leaves(COMMANDS)}
    assert handlers | commands <= imported


def leaves(commands: Mapping[str, Leaf | Branch]) -> Iterator[Leaf]:
    for one in commands.values():
        yield from [one] if isinstance(one, Leaf) else leaves(one.commands)


def test_every_rule_has_been_seen_to_fail() -> None:
    assert {name for name, _, _ in BROKEN} == set(NAMED)


def test_there_is_something_to_look_at() -> None:
    assert {source.path.split("/")[0] for source in SOURCES} == {"eventd", "federation", "migrations"}


def test_nothing_imports_the_test_support_or_the_audit() -> None:
    others = {name: room for name, room in ROOMS.items() if name.split(".")[0] != "audit" and name != "cli.audit"}
    seen = {to.split(".")[0] for room in others.values() for to in room.may_import}
    assert seen.isdisjoint({"testing", "audit"})


def test_nothing_else_lies_at_the_top() -> None:
    stray = stray_top_level(tracked_files())
    assert not stray, f"the top of the project is for its parts alone; move or remove: {', '.join(sorted(stray))}"


def test_a_stray_file_at_the_top_is_found() -> None:
    known = ["eventd/node/node.py", ".ci/run", "requirements.lock", "docs/README.md", "LICENSE"]
    assert stray_top_level([*known, "notes.txt", "scripts/run"]) == {"notes.txt", "scripts"}


def test_no_file_holds_a_forbidden_word() -> None:
    found = [hit for path in tracked_files() for hit in forbidden_words(path, (ROOT / path).read_bytes())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("word", architecture.FORBIDDEN_WORDS)
def test_a_forbidden_word_is_found(word: str) -> None:
    (told,) = forbidden_words("docs/a.md", b"fine\nsee " + word.encode() + b" there\n")
    assert told.startswith(f"docs/a.md:2: {word} is ")


def classes_of(*sources: Source) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for source in sources:
        for node in source.nodes(ast.ClassDef):
            files.setdefault(node.name, []).append(source.path)
    return files


def test_a_class_name_means_one_thing_or_two() -> None:
    """Three classes of one name are three ideas under one word: name them by what they are for."""
    assert {name: found for name, found in classes_of(*SOURCES).items() if len(found) > 2} == {}


APART = ("federation/", "eventd/client/", "eventd/audit/", "eventd/bench/", "eventd/cli/", "eventd/plugins/author/")
"""Parts that are read alone: the wire, what other programs import, and the programs around a node."""
TWICE = {
    **dict.fromkeys(("Pause", "ListRuns", "Diff"), "an operation of the API, named like its command"),
    **dict.fromkeys(
        ("Ack", "Publish"), "named like a message of a protocol, and what a consumer or the log makes of one"
    ),
    **dict.fromkeys(("Tombstone", "Selection"), "the same thing in the log, and as it is sent or stored"),
    **dict.fromkeys(("Retention", "Trigger", "Allowance"), "a field of a kind, and what acts by it"),
    **dict.fromkeys(("Answer", "Directive"), "a form that plugins write, and what a node makes of one"),
    "Call": "that of /v0 extends the framework's",
    "Problem": "the form of a refused request, and one problem of a resource",
    "Span": "numbers of a lake's segments, after the first; numbers in a database, the first included",
    "TopicPage": "a page of the list of topics, and one of a topic's records",
    "Action": "of a plan of doctor, and of a plan of resources",
    "Change": "of the effective configuration, and of one declared resource",
    "Draft": "an event before it has a position, and a resource before it is validated",
    "Endpoint": "a handler of a route, and an address to listen at",
    "Entry": "a resource of a configuration, and a key of a document",
    "Failure": "of a shipping process, and of a task",
    "Outcome": "of a draft, and of a run",
    "Scope": "what verify compares, and what an extract reads",
}
"""Public class names that two rooms of a node use, with what they mean. The list may only become shorter."""


def test_a_public_class_name_means_one_thing_within_a_part() -> None:
    """Name a class by what it is for; where both rooms have the better claim to the word, add it with both meanings."""
    parts = {part: [source for source in SOURCES if source.path.startswith(part)] for part in APART}
    node = [source for source in SOURCES if not source.path.startswith(APART)]
    twice = [name for some in (node, *parts.values()) for name, found in classes_of(*some).items() if len(found) > 1]
    assert sorted(name for name in twice if not name.startswith("_")) == sorted(TWICE)


def test_tests_lie_in_folders_that_are_called_like_rooms() -> None:
    """The tests of a room have its name in each layer, so that a change finds them."""
    layers = ("tests/unit/", "tests/contract/", "tests/integration/")
    files = [PurePosixPath(path) for path in tracked_files() if path.startswith(layers) and "/test_" in path]
    folders = {".".join(path.parent.parts[2:]) for path in files}
    assert folders - {"", "federation", "mutation"} <= ROOMS.keys()


def test_a_room_may_import_what_it_imports_and_no_more() -> None:
    used = used_rooms(SOURCES)
    assert {name: room.may_import for name, room in ROOMS.items()} == {
        name: frozenset(found) - OPEN_TO_ALL for name, found in used.items()
    }


def test_rooms_form_no_circle() -> None:
    assert circles({name: room.may_import for name, room in ROOMS.items()}) == []


def test_files_form_no_circle_also_for_types_alone() -> None:
    assert import_cycles(SOURCES) == []


def test_a_circle_is_found() -> None:
    sources = [
        Source("eventd/a/b.py", "if TYPE_CHECKING:\n    from eventd.c import d"),
        Source("eventd/c/d.py", "def late():\n    from eventd.a.b import name"),
        Source("eventd/c/e.py", "from eventd.c import d"),
    ]
    assert [sorted(circle) for circle in import_cycles(sources)] == [["eventd.a.b", "eventd.c.d"]]


@pytest.mark.parametrize("edge", NEVER, ids=" to ".join)
def test_no_room_may_open_a_forbidden_edge(edge: tuple[str, str]) -> None:
    first, second = edge
    open_to = {to for name, room in ROOMS.items() if name.split(".")[0] == first for to in room.may_import}
    assert second not in {to.split(".")[0] for to in open_to}, NEVER[edge]


@pytest.mark.parametrize(
    "text", ["", "A room.", "May import: log.", "A room.\n\nMay import: ", "A room\n\nMay import: log.core."]
)
def test_a_room_without_a_purpose_or_its_edges_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="what it is for"):
        read_room(text)


def test_the_edges_of_a_room_are_read_over_several_lines() -> None:
    assert read_room("A room.\n\nMore of it.\n\nMay import: log.core,\n    net.") == Room(
        "A room.", {"log.core", "net"}
    )
