"""The architecture rules, each with its reason: the reason is what a developer reads when a rule fails.

A rule checks one file and yields (line, finding). The files it excuses stand beside it, each with its reason.
`tests/test_architecture.py` runs all rules over the project, each rule over a file that breaks it, and checks that
every excused file still needs its excuse.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from tests.support.loops import BOUNDED, find_busy_loops
from tests.support.sets import PROGRAMS, find_set_loops
from tests.support.source import ROOT, Source

Found = Iterator[tuple[int, str]]

_ROOT = "__init__"
_ROOM = re.compile(
    r"(?P<purpose>\S[^\n]*\.)\n\n(?:.*\n\n)?May import: (?P<names>[^.](?:[\w\s,]|\.(?=\w))*)\.", re.DOTALL
)
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


class Room(NamedTuple):
    """A package of `eventd`: the first line of its docstring states its purpose, the last one what it may import."""

    purpose: str
    may_import: frozenset[str]


def read_room(docstring: str) -> Room:
    """Return the room that a docstring describes. Raises ValueError if it lacks a purpose or its line `May
    import: …`."""
    found = _ROOM.fullmatch(docstring.strip())
    if found is None:
        raise ValueError("a room's docstring is one line that says what it is for, and ends with `May import: a, b.c.`")
    names = "".join(found["names"].split())
    return Room(found["purpose"], frozenset() if names == "nootherroom" else frozenset(names.split(",")))


def read_rooms() -> dict[str, Room]:
    """Return every room by its dotted name below `eventd`."""
    files = sorted((ROOT / "eventd").glob("*/**/__init__.py"))
    names = [".".join(file.parent.relative_to(ROOT / "eventd").parts) for file in files]
    texts = [ast.get_docstring(ast.parse(file.read_text())) or "" for file in files]
    return {name: read_room(text) for name, text in zip(names, texts, strict=True)}


ROOMS = read_rooms()
OPEN_TO_ALL = frozenset({"federation", "errors", _ROOT})
"""What every room may import without declaring it. `federation` itself imports nothing of the project."""
IMPORTED_LATE = {"eventd/cli/audit/": "eventd.audit"}
"""Folders of commands that call optional code: they import it only when called, so that the others work without it."""
NEVER = {
    (
        "ingress",
        "egress",
    ): "events that come in and go out meet only in the log: a short cut would be unrecorded",
    ("egress", "ingress"): "events that come in and go out meet only in the log",
    ("log", "lake"): "the log does not know who reads its ledger rows",
    ("store", "log"): "storage functions know rows, not positions",
    ("node", "cli"): "a node also runs inside other programs",
    ("node", "audit"): "the daemon runs without Spark",
    ("api", "node"): "the API is a part of the node",
}
"""Imports that no docstring may allow, by the first names of two rooms, with the reason."""


@dataclass(frozen=True)
class Rule:
    """An architecture rule: `reason` says why it exists and what to do instead, `find` yields what it forbids.

    `excused` names the files and folders in which that is right, each with the reason.
    """

    name: str
    reason: str
    find: Callable[[Source], Found]
    excused: Mapping[str, str] = field(default_factory=dict)

    def check(self, source: Source) -> Found:
        """Yield what breaks the rule: what it finds in a file that is not excused."""
        if not self.excuses(source.path):
            yield from self.find(source)

    def excuses(self, path: str) -> list[str]:
        """Return what excuses this file: itself, or a folder that holds it."""
        return [place for place in self.excused if path == place or path.startswith(f"{place}/")]


def _room(dotted: str) -> str | None:
    """Return the room or single file of `eventd` that a dotted name belongs to; None for a name outside the project."""
    top, *rest = dotted.split(".")
    if top != "eventd":
        return top if top in ("federation", "migrations", "tests") else None
    for length in range(len(rest), 0, -1):
        if (name := ".".join(rest[:length])) in ROOMS:
            return name
    return rest[0] if rest and not rest[0].startswith("__") else _ROOT


def _room_of_file(path: str) -> str:
    if not path.startswith("eventd/"):
        return path.split("/")[0]
    return _room(path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")) or ""


def _may_import(room: str) -> frozenset[str]:
    if room == "federation" or room == _ROOT:
        return frozenset()
    if room == "migrations":
        return frozenset({"store.schema"})
    return OPEN_TO_ALL | (ROOMS[room].may_import if room in ROOMS else frozenset())


def import_direction(source: Source) -> Found:
    room = _room_of_file(source.path)
    if re.fullmatch(r"eventd/(?!errors|__init__)\w+\.py", source.path):
        yield 1, f"{source.path} is in no room"
        return
    allowed = {room, *_may_import(room)}
    for line, dotted in source.imports:
        target = _room(dotted)
        if target is not None and target not in allowed:
            yield line, f"{room} imports {dotted}"


def optional_code_is_imported_late(source: Source) -> Found:
    optional = next((room for folder, room in IMPORTED_LATE.items() if source.path.startswith(folder)), None)
    if optional is not None:
        at_top = {line for node in source.tree.body for line in range(node.lineno, (node.end_lineno or 0) + 1)}
        at_top -= {line for node in source.tree.body if _has_body(node) for line in _lines(node)}
        for line, dotted in source.imports:
            if line in at_top and dotted.startswith(optional):
                yield line, f"imports {dotted} when the command is loaded"


def _has_body(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
        isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def modules_are_named(source: Source) -> Found:
    for call in source.nodes(ast.Call):
        name = source.name_of(call.func)
        if name == "importlib.import_module" and not (call.args and isinstance(call.args[0], ast.Constant)):
            yield call.lineno, f"imports {ast.unparse(call.args[0]) if call.args else 'nothing'} by name"


def engines_in_one_place(source: Source) -> Found:
    yield from _touched(source, {"sqlalchemy.create_engine", "sqlalchemy.engine.create_engine"})


def used_rooms(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Return for each room the other rooms that its files import."""
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for source in sources:
        if source.path.startswith("eventd/") and (room := _room_of_file(source.path)) in used:
            used[room] |= {name for _, dotted in source.imports if (name := _room(dotted)) is not None} - {room}
    return used


def import_cycles(sources: Iterable[Source]) -> list[list[str]]:
    """Return the files of the project that import each other in a cycle, also for types alone or inside a function."""
    names = {source.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): source for source in sources}
    graph = {
        name: {
            target
            for _, dotted in source.imports
            if (target := dotted if dotted in names else dotted.rpartition(".")[0]) in names and target != name
        }
        for name, source in names.items()
    }
    return circles(graph)


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return cycles of a graph without common nodes, until none is left; empty if it has none."""
    order = TopologicalSorter(graph)
    try:
        order.prepare()
    except CycleError as error:
        circle = error.args[1][:-1]
        rest = {name: [to for to in found if to not in circle] for name, found in graph.items() if name not in circle}
        return [circle, *circles(rest)]
    return []


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
    yield from ((line, f"asks for {name}") for line, name in source.uses if name.rsplit(".", 1)[-1] == "dialect")
    yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, ("sqlalchemy.dialects",)))


def spark_in_audit(source: Source) -> Found:
    if source.part != "audit":
        yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, ("pyspark", "py4j")))


def environment_in_settings(source: Source) -> Found:
    names = {"os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"}
    yield from _touched(source, names)


def time_through_the_clock(source: Source) -> Found:
    clocks = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    names = {f"time.{name}{unit}" for name in clocks for unit in ("", "_ns")}
    names |= {"time.sleep", "time.clock_gettime", "time.clock_gettime_ns", "asyncio.sleep", "datetime.date.today"}
    names |= {f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")}
    yield from _touched(source, names)


def chance_is_handed_in(source: Source) -> Found:
    yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, ("random", "secrets")))
    yield from _touched(source, {"os.urandom", "os.getrandom", *(f"uuid.uuid{version}" for version in range(1, 9))})


def threads_from_their_owners(source: Source) -> Found:
    yield from _touched(source, {"threading.Thread", "threading.Timer", "threading._start_new_thread"})
    yield from _touched(source, {f"_thread.start_{name}" for name in ("new", "new_thread", "joinable_thread")})
    modules, pools = ("", "thread.", "process.", "interpreter."), ("ThreadPool", "ProcessPool", "InterpreterPool")
    yield from _touched(source, {f"concurrent.futures.{module}{pool}Executor" for module in modules for pool in pools})
    yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, ("multiprocessing",)))


def children_from_one_room(source: Source) -> Found:
    calls = ("Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput")
    yield from _touched(source, {f"subprocess.{call}" for call in calls})
    yield from _touched(source, {"asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"})
    starts = re.compile(r"os\.(fork|forkpty|popen|system|posix_spawnp?|spawn[lv]p?e?)$")
    yield from ((line, f"uses {name}") for line, name in source.uses if starts.match(name))


def _only_in_programs(*names: str) -> Callable[[Source], Found]:
    """Return a search for these names outside the parts that run in programs of their own."""

    def find(source: Source) -> Found:
        if source.part not in PROGRAMS:
            yield from _touched(source, {*names})

    return find


def boot_is_handed_in(source: Source) -> Found:
    names = re.compile(r"boot_id|machine-id|/proc/(stat|uptime)")
    yield from ((line, f"names {text}") for line, text in source.strings if names.search(text))
    yield from _touched(source, {"eventd.store.engine.boot.read_boot_id"})


def node_without_the_api(source: Source) -> Found:
    if source.part == "node":
        yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, ("eventd.api",)))


def no_loop_over_a_set(source: Source) -> Found:
    yield from ((line, f"goes over {what}") for line, what in find_set_loops(source))


def waits_are_monotonic(source: Source) -> Found:
    assigned = (node for node in source.nodes(ast.Assign) if _asks_wall(node.value))
    names = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)} | {"now"}
    for node in source.nodes(ast.BinOp):
        if not isinstance(node.op, ast.Div):
            continue
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
    yield from _touched(source, {"asyncio.TaskGroup"})
    makers = ("create_task", "ensure_future")
    yield from ((line, f"uses {name}") for line, name in source.uses if name.rsplit(".", 1)[-1] in makers)
    # `asyncio.gather` of tasks only waits for them; of coroutines it starts a task for each.
    gathers = (call for call in source.nodes(ast.Call) if source.name_of(call.func) == "asyncio.gather")
    yield from ((call.lineno, "gathers coroutines") for call in gathers if any(map(_makes_coroutines, call.args)))


def _makes_coroutines(argument: ast.expr) -> bool:
    match argument:
        case ast.Call() | ast.Starred(value=ast.GeneratorExp(elt=ast.Call()) | ast.ListComp(elt=ast.Call())):
            return True
    return False


def signals_in_the_commands(source: Source) -> Found:
    if source.part == "cli":
        return
    yield from ((line, f"imports {name}") for line, name in source.imports if _within(name, ("signal",)))
    yield from ((line, f"uses {name}") for line, name in source.uses if name.endswith(".add_signal_handler"))


def status_codes_in_problems(source: Source) -> Found:
    if source.part != "api":
        return
    for node in source.nodes(ast.keyword):
        if node.arg in ("status", "status_code"):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            if isinstance(value, int) and value >= 400:
                yield node.value.lineno, f"answers with {value}"
    raised = re.compile(r"aiohttp\.web(_exceptions)?\.HTTP\w+$|http\.HTTPStatus\.\w+$")
    yield from ((line, f"uses {name}") for line, name in source.uses if raised.match(name))


def files_are_short(source: Source) -> Found:
    lines = len(source.text.splitlines())
    if lines > 500:
        yield lines, f"{lines} lines"


def functions_are_short(source: Source) -> Found:
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    functions = [*source.nodes(ast.FunctionDef), *source.nodes(ast.AsyncFunctionDef)]
    for node in functions:
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > 60:
            yield node.lineno, f"{node.name} has {lines} lines"


def loops_give_way(source: Source) -> Found:
    yield from (
        (line, f"{name} may go round without a turn") for line, name in find_busy_loops(source) if name not in BOUNDED
    )


_FREE_TEXTS = ("id", "event_id", "taken_id", "source", "path", "file", "place", "lake", "subject")
"""Names of values that publishers, peers or plugins choose, or that may hold blanks."""


def commands_are_quoted(source: Source) -> Found:
    for node in source.nodes(ast.JoinedStr):
        is_command = False
        for part in node.values:
            if isinstance(part, ast.Constant):
                _, begun, rest = str(part.value).rpartition("routerctl ")
                is_command = (is_command or bool(begun)) and not re.search("[`;,]", rest)
            elif is_command and isinstance(part, ast.FormattedValue):
                name = part.value.id if isinstance(part.value, ast.Name) else getattr(part.value, "attr", "")
                if name in _FREE_TEXTS:
                    yield part.lineno, f"puts {name} into a command"


def names_say_what(source: Source) -> Found:
    empty = r"(utils?|helpers?|managers?|common|misc)"
    for name in source.path.removesuffix(".py").split("/"):
        if re.fullmatch(empty, name):
            yield 1, f"is called {name}"


def migrations_are_history(source: Source) -> Found:
    if source.path.startswith("migrations/versions/"):
        yield from ((line, f"imports {name}") for line, name in source.imports if _room(name) is not None)


RULES = [
    Rule(
        "imports go down",
        "each room says in its __init__ what it may import, and rooms form no circle: what lies lower on the map can be"
        " read, tested and reused without what lies above. An import that is missing there is a decision: is this the"
        " right room for the change? testing may see all and is seen by none, and the daemon never loads audit.",
        import_direction,
        {"eventd/testing.py": "for tests: it may import every room, and no room imports it"},
    ),
    Rule(
        "optional code is imported late",
        "every command loads the module of the commands beside it: import Spark's part inside the function.",
        optional_code_is_imported_late,
    ),
    Rule(
        "modules are named",
        "an import whose name is data escapes every other rule: write the name, or list the file with what it imports.",
        modules_are_named,
        {
            "eventd/api/framework/endpoint.py": "handlers of the route table: the table counts as importing them",
            "eventd/cli/program/command_line.py": "functions of the command tree: the tree counts as importing them",
            "eventd/audit/spark/extra.py": "optional packages",
            "eventd/lake/extra.py": "optional packages",
        },
    ),
    Rule(
        "engines come from one file",
        "pools, time limits and the access rights of a new file are set in store/engine/engines.py: open one there.",
        engines_in_one_place,
        {"eventd/store/engine/engines.py": "opens every engine"},
    ),
    Rule(
        "federation stands alone",
        "another program must be able to speak the wire with this package alone: standard library, msgspec, pydantic"
        " and cryptography; time, randomness and bytes are handed in.",
        federation_alone,
    ),
    Rule(
        "SQL in store and log",
        "store, log and migrations hold every statement; elsewhere call a function of theirs.",
        sql_in_store_and_log,
        {
            "eventd/lake/extract": "reads many ledger rows at once, as columns, which nothing else does",
            "eventd/simulation/checks/stored_rows.py": "a check that shares a query with the node repeats its errors",
            "eventd/simulation/world/postgres_sessions.py": "stands between psycopg and a node that is simulated",
        },
    ),
    Rule(
        "one file knows the dialect",
        "SQLite and Postgres run the same code; a difference belongs into store/engine/statements.py, under a name.",
        dialect_in_one_place,
        {
            "eventd/store/engine/statements.py": "knows the dialect",
            "eventd/store/engine/connection.py": "rolls back in each dialect's way",
        },
    ),
    Rule("Spark in audit", "a node runs without Java; only eventd/audit may need Spark.", spark_in_audit),
    Rule(
        "the environment in settings",
        "a variable read elsewhere is a setting that no flag, no file and no documentation knows.",
        environment_in_settings,
        {
            "eventd/settings/loading.py": "reads the settings",
            "eventd/settings/environment.py": "reads variables that are not settings",
        },
    ),
    Rule(
        "time through the clock",
        "back-off, windows and expiry are tested by moving a clock, which works where there is no other: take a Clock.",
        time_through_the_clock,
        {
            "eventd/runtime/clock.py": "the clock",
            "eventd/testing.py": "gives turns of the loop to what waits for a clock that stands still",
        },
    ),
    Rule(
        "chance is handed in",
        "a node whose randomness comes from a seed repeats itself, so that a failure can be run again: take a Chance"
        " (the log has one, as it has a clock).",
        chance_is_handed_in,
        {
            "eventd/runtime/chance.py": "the chance",
            "eventd/testing.py": "chance from a seed",
            "eventd/simulation/world/streams.py": "chance from a seed, for each part of a simulation",
            "migrations/versions/0004_books.py": "a migration that has been released stays as it is",
        },
    ),
    Rule(
        "threads come from their owners",
        "the order in which threads run cannot be repeated: hand the work to the database, or to the loop's executor"
        " (asyncio.to_thread), or take a ThreadFactory: a simulation replaces all three.",
        threads_from_their_owners,
        {
            "eventd/runtime/threads.py": "the pools of a node, which gets their factory passed in",
            "eventd/store/engine/writer_lock.py": "a wait for a file lock cannot be cancelled, only abandoned with its"
            " thread; only where several processes write to one SQLite file, and a simulated node is one process",
            "eventd/cli/daemon/stop_guard.py": "ends a process whose loop is blocked; a simulated node is no process",
            "eventd/processes/lifeline.py": "a child process that ends with its parent, whatever its main thread does",
            "eventd/tracing/otlp.py": "the last flush waits for a collector that may be down, and can only be abandoned"
            " with its thread; a simulated node has no tracing",
        },
    ),
    Rule(
        "programs make the clock",
        "a part of a node with a clock of its own ignores the one that a test or a simulation moves: take a Clock.",
        _only_in_programs("eventd.runtime.clock.SystemClock"),
        {"eventd/api/keys/valid_keys.py": "commands, and tests without an expiry, leave it out; a node passes its own"},
    ),
    Rule(
        "programs make the chance",
        "a part of a node with a chance of its own does not repeat itself with the node's seed: take a Chance.",
        _only_in_programs("eventd.runtime.chance.SYSTEM", "eventd.runtime.chance.SystemChance"),
        {"eventd/store/engine/database.py": "commands, and tests without a seed, leave it out; a node passes its own"},
    ),
    Rule(
        "programs choose the threads",
        "a simulation runs without the machine's threads: take a ThreadFactory, or that of the database.",
        _only_in_programs("eventd.runtime.threads.THREADS"),
        {
            "eventd/node/machine_access.py": "a node that is no simulation runs on real threads",
            "eventd/plugins/run/plugins.py": "tests of plugins alone leave it out; a node and a command pass theirs",
            "eventd/store/engine/database.py": "commands and tests leave it out; a node passes its own",
            "eventd/egress/transport/transport.py": "commands and tests leave it out; a node passes its own",
        },
    ),
    Rule(
        "child processes from one room",
        "a child process that is not killed outlives the node: eventd/processes starts it, and ends it with the node.",
        children_from_one_room,
        {
            "eventd/processes/process.py": "starts every child process of a node but those of the keeper",
            "eventd/processes/keeper.py": "starts the guards and their programs, in a process of its own",
            "eventd/cli/demo/nodes.py": "starts nodes, and the commands that it shows, as a user does",
            "eventd/bench/nodes.py": "starts the nodes that it measures, as a user does",
            "eventd/cli/gateway/key_command.py": "asks the operator's program for a key, and waits for it",
            "eventd/cli/simulate/processes.py": "plays seeds in processes of their own, and waits for the results",
            "eventd/cli/support/journal.py": "asks the service manager's journal, and waits for it for 30 s",
            "eventd/cli/terminal/editor.py": "opens the operator's editor, and waits until it ends",
            "eventd/audit/spark/java.py": "asks Java for its version, and waits for the answer",
        },
    ),
    Rule(
        "the boot is handed in",
        "a simulated machine is started again without the real one, and its log must see that: ask `run_of_system`,"
        " which returns the boot that the database was opened with.",
        boot_is_handed_in,
        {
            "eventd/store/engine/boot.py": "reads it",
            "eventd/store/engine/database.py": "reads it unless it is passed in, and hands it to each transaction",
        },
    ),
    Rule(
        "a node without its API",
        "what a node does unasked needs no request and no caller: what a chore shares with a handler belongs to a room"
        " that both may import, such as groups or log.",
        node_without_the_api,
        {
            "eventd/node/node.py": "builds the application and its listener",
            "eventd/node/membership.py": "runs the listener of its group",
            "eventd/node/routemaster.py": "runs the listener of the Routemaster surface",
            "eventd/node/stream_tenants.py": "gives the API the keys of the tenants of streams",
            "eventd/node/streams.py": "runs the listener of streams",
            "eventd/node/topic_changes.py": "has the API read its keys again when another process changed them",
        },
    ),
    Rule(
        "no loop over a set",
        "a set of objects has the order of their addresses, another one in each run: use a dict, or sort.",
        no_loop_over_a_set,
    ),
    Rule(
        "waits are monotonic",
        "setting the wall clock must neither end a wait nor prolong it: take monotonic(), a Countdown for a wait"
        " that is stored, steady() for a deadline that is. A wall time is for people, signatures and expiry; where"
        " seconds must come of one, say why beside this rule.",
        waits_are_monotonic,
        {
            "eventd/api/keys/valid_keys.py": "the expiry of a key is a wall time; it is looked at again every minute",
            "eventd/dynamic/effective.py": "the end of a part is a wall time; it is looked at again every minute",
            "eventd/egress/transport/retry_after.py": "Retry-After may be a date",
            "eventd/egress/peers/push_v2.py": "the skew of a peer's clock is a difference of wall times",
            "eventd/egress/peers/peer.py": "a figure: the age of a record",
            "eventd/audit/assembly/assemble.py": "a figure: the age of a record",
            "eventd/cli/gateway/completion.py": "the time of a file is a wall time; of a wrong age, it is asked again",
            "eventd/api/quic/access.py": "the expiry of a token is a wall time; it is looked at again all the time",
        },
    ),
    Rule(
        "tasks in the node",
        "a task started elsewhere fails unseen and outlives the stop: give the node's supervisor the coroutine to run.",
        tasks_in_the_node,
        {
            "eventd/runtime/supervisor.py": "the supervisor",
            "eventd/simulation/world": "the processes of simulated machines, which end when the machine says so",
        },
    ),
    Rule(
        "signals in the commands",
        "a node also runs inside other programs and tests, whose signals are theirs: a command turns ours into calls.",
        signals_in_the_commands,
        {"eventd/processes/keeper.py": "runs in a process of its own"},
    ),
    Rule(
        "status codes in one place",
        "one error has one status on every surface: raise an EventdError, api/errors/codes.py gives it its number.",
        status_codes_in_problems,
        {
            "eventd/api/errors/problems.py": "the statuses of the errors that aiohttp raises",
            "eventd/api/peers/listener.py": "the wire fixes the statuses that peers get",
            "eventd/api/routemaster/answers.py": "clients of Routemaster fix the statuses that they get",
        },
    ),
    Rule(
        "files of 500 lines",
        "from 400 lines on, look for the idea that has no name yet; a file that holds one idea may be a little longer.",
        files_are_short,
    ),
    Rule("functions of 60 lines", "a longer function does several things: name them.", functions_are_short),
    Rule(
        "loops give way",
        "a loop that finds nothing to do, and awaits only what is done already, holds the whole node for good: have"
        " every way round await a timer, a thread, the writer or asyncio.wait, or say in tests/support/loops.py why it"
        " ends.",
        loops_give_way,
    ),
    Rule(
        "commands are quoted",
        "an operator pastes the commands of messages into a shell, and publishers choose the ids of events: put such a"
        " text there with text.arguments.as_argument.",
        commands_are_quoted,
    ),
    Rule(
        "names that say what",
        "utils, helpers, manager, common and misc attract everything and tell nothing: name the idea.",
        names_say_what,
    ),
    Rule(
        "migrations are history",
        "a migration must do tomorrow what it did on the day it was written; it uses nothing of the code that changes.",
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

# Split in two, so that this file does not contain what it forbids.
FORBIDDEN_WORDS = {
    "pypi" + ".org": "the address of a package index: a lock names versions and hashes, the user's pip knows where",
    "python" + "hosted": "the address of a package index: a lock names versions and hashes, the user's pip knows where",
    "/wo" + "rk/": "a path of a developer's machine",
    "/ro" + "ot/": "a path of a developer's machine",
    "../sha" + "red": "a path outside the project",
}


def stray_top_level(paths: Iterable[str]) -> set[str]:
    """Return top-level names that are not known, hidden or lock files."""
    tops = {path.split("/")[0] for path in paths}
    return {top for top in tops - TOP_LEVEL if not top.startswith(".") and not top.endswith(".lock")}


def forbidden_words(path: str, content: bytes) -> Iterator[str]:
    for word, meaning in FORBIDDEN_WORDS.items():
        if word.encode() in content:
            lines = enumerate(content.split(b"\n"), start=1)
            yield from (f"{path}:{number}: {word} is {meaning}" for number, line in lines if word.encode() in line)


def _within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _touched(source: Source, names: set[str]) -> Found:
    yield from ((line, f"uses {name}") for line, name in source.uses if name in names)
