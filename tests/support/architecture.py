"""The rules of the house, each with its reason: the reason is what a developer reads when a rule stops them.

A rule looks at one file and yields (line, what it found). `tests/test_architecture.py` runs all of them over the
project, and each over a file that breaks it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.support.loops import BOUNDED, restless
from tests.support.source import Source

Found = Iterator[tuple[int, str]]

# Imports point to the left only. Names in one group are neighbours: none of them imports another.
ORDER: tuple[tuple[str, ...], ...] = (
    ("federation",),
    ("errors", "quoting", "unseen"),
    ("backoff", "clock"),
    ("lake",),
    ("address", "exchange", "supervisor"),
    ("setting_values",),
    ("settings", "share"),
    ("store",),
    ("log",),
    ("resources",),
    ("dynamic",),
    ("plugins",),
    ("ingress", "egress"),
    ("api",),
    ("consumers",),  # those that are at work
    # what the node is composed of
    ("membership", "subscribers", "schedules", "shipping", "housekeeping", "garbage", "topic_changes"),
    ("reconciler",),
    ("node",),
    ("bench",),
    ("cli",),
)
_FROM_LOG_UP = frozenset(name for group in ORDER[8:] for name in group)
_ROOT = "__init__"
_OUTSIDE_WORLD = (
    *("asyncio", "http.client", "http.server", "selectors", "socket", "socketserver", "sqlite3", "ssl"),
    *("subprocess", "threading", "urllib.request"),
)
_DATABASES = ("sqlalchemy", "alembic", "sqlite3", "aiosqlite", "psycopg", "psycopg_pool", "psycopg2", "asyncpg")
_STATEMENT = re.compile(
    r"\s*(SELECT\s.*\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|(CREATE|ALTER|DROP)\s+(TABLE|INDEX)"
    r"|PRAGMA\s|BEGIN\s+IMMEDIATE|LISTEN\s+\w+$|NOTIFY\s+\w+)\s*",
    re.DOTALL,
)


def _allowed_imports() -> dict[str, frozenset[str]]:
    """For each part, what else of the project it may import."""
    allowed, left = {}, {_ROOT}
    for group in ORDER:
        for name in group:
            allowed[name] = frozenset(left | ({"observe", "client"} if name in _FROM_LOG_UP else set()))
        left |= set(group)
    beside = {
        "observe": frozenset({"federation", "errors", "clock", "lake", "unseen", _ROOT}),
        "client": frozenset({"federation", "errors", "clock", "address", "exchange", "supervisor", _ROOT}),
        "audit": frozenset(
            {
                "federation",
                "errors",
                "unseen",
                "clock",
                "address",
                "backoff",
                "setting_values",
                "settings",
                "store",
                "lake",
                "log",
                "resources",
                "client",
                _ROOT,
            }
        ),
        "testing": frozenset(left | {"observe", "client", "audit"}),
        "migrations": frozenset({"store"}),
        _ROOT: frozenset(),
    }
    return {**allowed, "federation": frozenset(), **beside}


ALLOWED = _allowed_imports()
DOORS = {"eventd/cli/audit.py": "audit"}
"""The one command that calls what everything else does without, and loads it only when it is called."""


WALL_TO_SECONDS = {
    "eventd/api/auth.py": "the expiry of a key is a wall time; it is looked at again every minute",
    "eventd/dynamic/effective.py": "the end of a part is a wall time; it is looked at again every minute",
    "eventd/egress/transport.py": "Retry-After may be a date",
    "eventd/egress/push_v2.py": "the skew of a peer's clock is a difference of wall times",
    "eventd/egress/peer.py": "a figure: the age of a record",
    "eventd/audit/assemble.py": "a figure: the age of a record",
}
"""Where a difference from the wall time becomes seconds, and why that is right."""


@dataclass(frozen=True)
class Rule:
    """`check` yields what breaks the rule; `reason` says why there is one and what to do instead."""

    name: str
    reason: str
    check: Callable[[Source], Found]


def _target(dotted: str) -> str | None:
    """The part of the project an imported name belongs to, None for the world outside."""
    top, _, rest = dotted.partition(".")
    if top != "eventd":
        return top if top in ("federation", "migrations", "tests") else None
    name = rest.split(".")[0]
    return _ROOT if not name or name.startswith("__") else name


def import_direction(source: Source) -> Found:
    if source.part not in ALLOWED:
        yield 1, f"{source.part} has no place in the order of imports"
        return
    for line, dotted in source.imports:
        target = _target(dotted)
        if target is not None and target not in (source.part, *ALLOWED[source.part], DOORS.get(source.path)):
            yield line, f"{source.part} imports {dotted}"


def ways_in_and_out_apart(source: Source) -> Found:
    other = {"ingress": "egress", "egress": "ingress"}.get(source.part)
    if other is not None:
        yield from ((line, f"{source.part} imports {name}") for line, name in source.imports if _target(name) == other)


def federation_alone(source: Source) -> Found:
    if source.part != "federation":
        return
    known = {*sys.stdlib_module_names, "federation", "msgspec", "pydantic", "cryptography"}
    for line, name in source.imports:
        if name.split(".")[0] not in known:
            yield line, f"federation imports {name}"
        if _within(name, _OUTSIDE_WORLD):
            yield line, f"federation imports {name}: it has no clock, no network and no database"


def sql_in_store_and_log(source: Source) -> Found:
    if source.part in ("store", "log", "migrations"):
        return
    yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, _DATABASES))
    yield from ((line, f"holds SQL: {text.strip()[:40]}") for line, text in source.strings if _STATEMENT.match(text))


def dialect_in_one_place(source: Source) -> Found:
    if source.path == "eventd/store/database.py":
        return
    yield from ((line, f"asks for {name}") for line, name in source.uses if name.rsplit(".", 1)[-1] == "dialect")
    yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, ("sqlalchemy.dialects",)))


def spark_in_audit(source: Source) -> Found:
    if source.part != "audit":
        yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, ("pyspark", "py4j")))


def environment_in_settings(source: Source) -> Found:
    names = {"os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"}
    if source.path != "eventd/settings.py":
        yield from _touched(source, names)


def time_through_the_clock(source: Source) -> Found:
    clocks = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    names = {f"time.{name}{unit}" for name in clocks for unit in ("", "_ns")}
    names |= {"time.sleep", "time.clock_gettime", "time.clock_gettime_ns", "asyncio.sleep", "datetime.date.today"}
    names |= {f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")}
    if source.path not in ("eventd/clock.py", "eventd/testing.py"):
        yield from _touched(source, names)


def waits_are_monotonic(source: Source) -> Found:
    if source.path in WALL_TO_SECONDS:
        return
    assigned = (node for node in ast.walk(source.tree) if isinstance(node, ast.Assign) and _asks_wall(node.value))
    names = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)} | {"now"}
    quotients = (node for node in ast.walk(source.tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div))
    for node in quotients:
        parts = [*ast.walk(node.left)]
        is_wall = any(_asks_wall(part) or (isinstance(part, ast.Name) and part.id in names) for part in parts)
        if is_wall and _is_second(node.right):
            yield node.lineno, "makes seconds of the wall time"


def _asks_wall(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "now"


def _is_second(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in (1e6, 1_000_000)
    return (node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")) == "SECOND"


def tasks_in_the_node(source: Source) -> Found:
    if source.path in ("eventd/supervisor.py", "eventd/testing.py"):
        return
    yield from _touched(source, {"asyncio.TaskGroup"})
    makers = ("create_task", "ensure_future")
    yield from ((line, f"uses {name}") for line, name in source.uses if name.rsplit(".", 1)[-1] in makers)
    # Gathering tasks only waits for them; gathering coroutines starts a task for each.
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    gathers = (call for call in calls if source.name_of(call.func) == "asyncio.gather")
    yield from ((call.lineno, "gathers coroutines") for call in gathers if any(map(_makes_coroutines, call.args)))


def _makes_coroutines(argument: ast.expr) -> bool:
    match argument:
        case ast.Call() | ast.Starred(value=ast.GeneratorExp(elt=ast.Call()) | ast.ListComp(elt=ast.Call())):
            return True
    return False


def signals_in_the_commands(source: Source) -> Found:
    if source.part == "cli" or source.path == "eventd/plugins/keeper.py":  # a process of its own
        return
    yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, ("signal",)))
    yield from ((line, f"uses {name}") for line, name in source.uses if name.endswith(".add_signal_handler"))


def status_codes_in_problems(source: Source) -> Found:
    places = (*(f"eventd/api/{file}.py" for file in ("codes", "problems", "v0/problems", "federation")),)
    if source.part != "api" or source.path in places:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.keyword) and node.arg in ("status", "status_code"):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            if isinstance(value, int) and value >= 400:
                yield node.value.lineno, f"answers with {value}"
    raised = re.compile(r"aiohttp\.web(_exceptions)?\.HTTP\w+$|http\.HTTPStatus\.\w+$")
    yield from ((line, f"uses {name}") for line, name in source.uses if raised.match(name))


def files_are_short(source: Source) -> Found:
    lines = len(source.text.splitlines())
    if lines > 400:
        yield lines, f"{lines} lines"


def functions_are_short(source: Source) -> Found:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > 60:
                yield node.lineno, f"{node.name} has {lines} lines"


def loops_give_way(source: Source) -> Found:
    yield from ((line, f"{name} may go round without a turn") for line, name in restless(source) if name not in BOUNDED)


def names_say_what(source: Source) -> Found:
    empty = r"(utils?|helpers?|managers?|common|misc)"
    for name in source.path.removesuffix(".py").split("/"):
        if re.fullmatch(empty, name):
            yield 1, f"is called {name}"


def migrations_are_history(source: Source) -> Found:
    if source.path.startswith("migrations/versions/"):
        yield from ((line, f"imports {name}") for line, name in source.imports if _target(name) is not None)


RULES = [
    Rule(
        "imports point left",
        "federation ← errors clock lake backoff settings ← store ← log ← resources dynamic plugins ← ingress │ egress"
        " ← api ← membership housekeeping ← node ← bench ← cli. What lies left can be read, tested and reused without"
        " what lies right. observe serves everyone from log up, client sits beside federation, testing may see all and"
        " is seen by none, and the daemon never loads audit.",
        import_direction,
    ),
    Rule(
        "ingress and egress are apart",
        "what comes in and what goes out meet only in the log; a short cut between them would be a second, unrecorded"
        " way for an event.",
        ways_in_and_out_apart,
    ),
    Rule(
        "federation stands alone",
        "another program must be able to speak the wire with this package alone: standard library, msgspec, pydantic"
        " and cryptography; time, randomness and bytes are handed in.",
        federation_alone,
    ),
    Rule(
        "SQL in store and log",
        "whoever reads these two packages has seen every statement; elsewhere call a function of theirs.",
        sql_in_store_and_log,
    ),
    Rule(
        "one file knows the dialect",
        "SQLite and Postgres run the same code; a difference belongs into eventd/store/database.py, under a name.",
        dialect_in_one_place,
    ),
    Rule("Spark in audit", "a node runs without Java; only eventd/audit may need Spark.", spark_in_audit),
    Rule(
        "the environment in settings",
        "a variable read elsewhere is a setting that no flag, no file and no documentation knows.",
        environment_in_settings,
    ),
    Rule(
        "time through the clock",
        "back-off, windows and expiry are tested by moving a clock, which works where there is no other: take a Clock.",
        time_through_the_clock,
    ),
    Rule(
        "waits are monotonic",
        "whoever sets the wall clock must neither end a wait nor prolong it: take monotonic(), a Countdown for a wait"
        " that is stored, steady() for a deadline that is. A wall time is for people, signatures and expiry; where"
        " seconds must come of one, say why in WALL_TO_SECONDS.",
        waits_are_monotonic,
    ),
    Rule(
        "tasks in the node",
        "a task started elsewhere fails unseen and outlives the stop: give the node's supervisor the coroutine to run.",
        tasks_in_the_node,
    ),
    Rule(
        "signals in the commands",
        "a node also runs inside other programs and tests, whose signals are theirs: a command turns ours into calls.",
        signals_in_the_commands,
    ),
    Rule(
        "status codes in one place",
        "one error has one status on every surface: raise an EventdError, eventd/api/codes.py gives it its number.",
        status_codes_in_problems,
    ),
    Rule("files of 400 lines", "a longer file holds a second idea: give it a name and a file.", files_are_short),
    Rule("functions of 60 lines", "a longer function does several things: name them.", functions_are_short),
    Rule(
        "loops give way",
        "a loop that finds nothing to do, and awaits only what is done already, holds the whole node for good: have"
        " every way round await a timer, a thread, the writer or asyncio.wait, or say in tests/support/loops.py why it"
        " ends.",
        loops_give_way,
    ),
    Rule(
        "names that say what",
        "utils, helpers, manager, common and misc attract everything and tell nothing: name the idea.",
        names_say_what,
    ),
    Rule(
        "migrations are history",
        "a migration must do tomorrow what it did on the day it was written; it uses nothing of the code that goes on.",
        migrations_are_history,
    ),
]

TOP_LEVEL = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile"} | {
    "eventd",
    "federation",
    "migrations",
    "tests",
    "deploy",
    "docs",
}

# Cut in two, so that this file does not hold what it forbids.
FORBIDDEN_WORDS = {
    "pypi" + ".org": "the address of a package index: a lock names versions and hashes, the user's pip knows where",
    "python" + "hosted": "the address of a package index: a lock names versions and hashes, the user's pip knows where",
    "/wo" + "rk/": "a path of somebody's machine",
    "/ro" + "ot/": "a path of somebody's machine",
    "../sha" + "red": "a path outside the project",
}


def stray_top_level(paths: Iterable[str]) -> set[str]:
    """What lies at the top beside the known names, dot files and lock files."""
    tops = {path.split("/")[0] for path in paths}
    return {top for top in tops - TOP_LEVEL if not top.startswith(".") and not top.endswith(".lock")}


def forbidden_words(path: str, content: bytes) -> Iterator[str]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        for word, meaning in FORBIDDEN_WORDS.items():
            if word.encode() in line:
                yield f"{path}:{number}: {word} is {meaning}"


def _within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _touched(source: Source, names: set[str]) -> Found:
    yield from ((line, f"uses {name}") for line, name in source.uses if name in names)
