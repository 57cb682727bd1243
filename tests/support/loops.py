"""Finds loops in coroutines that can iterate without letting other tasks run.

To await something that is done already does not suspend: a queue with an item in it, an event that is set, a finished
future. A loop that awaits only such things, and makes no progress, blocks the whole node. So every path through a loop
includes a call that always suspends, or the loop is listed in `BOUNDED` with what ends it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from tests.support.source import Source

SUSPENDING = (
    *("sleep", "_sleep", "asyncio.wait", "asyncio.to_thread"),
    *("database.read", "database.write", "_database.read", "_database.write", "submit", "database.read_for_delivery"),
    "write_step",
)
"""Suffixes of calls that always suspend: a thread, the writer, a timer, `asyncio.wait`."""
OUTSIDE = ("audit", "bench", "cli", "client", "simulation", "testing")
"""Parts that run in programs of their own: there a loop blocks no other task."""
BOUNDED = {
    "eventd/api/admin/events/events.py::_append": "ends when the group has the place that the database knows",
    "eventd/api/admin/events/publish_connection.py::run": "takes a turn after every _AT_ONCE events",
    "eventd/api/admin/events/publish_connection.py::_wait_for_room": "waits for a future of its own",
    "eventd/api/admin/events/publish_connection.py::_answer_all": "answers a message, or waits for a future of its own",
    "eventd/api/listener/arriving.py::read": "consumes the body that has arrived",
    "eventd/api/framework/worker_peers.py::proxy": "consumes the answer that has arrived",
    "eventd/api/topics/client_stream.py::run": "Feed.read takes a turn, or waits for a future of its own",
    "eventd/api/bodies/bodies.py::_gather": "consumes the body that has arrived",
    "eventd/api/topics/shared_reads.py::_serve_for_ever": "waits for a sign, or Feed.read takes a turn",
    "eventd/api/topics/websocket.py::run": "takes a turn after every AT_ONCE frames",
    "eventd/api/verify/comparing.py::work": "each stage asks the peer or the database",
    "eventd/api/verify/operations.py::_drive": "reads keys in a thread for each slice",
    "eventd/api/verify/pulling.py::_continue": "asks the peer for each page",
    "eventd/api/verify/pulling.py::_page": "looks up ids in the database",
    "eventd/api/verify/returned_check.py::_bodies_of": "asks the peer, at most once for each id",
    "eventd/console/view/recent.py::_ask": "asks once more after an action, which another task does",
    "eventd/dynamic/effective.py::current": "merges in the database",
    "eventd/dynamic/effective.py::run_for_ever": "merges in the database",
    "eventd/egress/peers/questions.py::ask": "posts to the peer, and sleeps before it does so again",
    "eventd/egress/loop/consumer.py::_land": "settles one batch that is under way",
    "eventd/egress/callbacks/delivery.py::deliver": "sends one batch after the other",
    "eventd/egress/callbacks/delivery.py::_not_accepted": "halves a batch until one event is left",
    "eventd/egress/loop/consumer.py::_pump": "reads on, settles, or waits; no page is read twice from memory",
    "eventd/egress/loop/consumer.py::_run": "reads its cursor, and then rests or delivers",
    "eventd/egress/loop/collecting.py::collect": "reads on, or waits for a sign with asyncio.wait",
    "eventd/egress/subscriptions/runner.py::run": "writes down that a run begins",
    "eventd/ingress/reorder_buffer.py::enter": "waits for a change with asyncio.wait",
    "eventd/ingress/questions.py::_run_steps": "answers one part of the question from the database",
    "eventd/log/core/id_merges.py::_merge_all": "submits a step of a merge, or reads ids for a filter",
    "eventd/node/change_follower.py::follow_changes": "reads the head, or sleeps",
    "eventd/runtime/stopping.py::close_all": "ends one part of the node",
    "eventd/plugins/run/host.py::_drain": "consumes what the plugin yields, in the plugin's own process",
    "eventd/node/retention.py::_apply": "writes steps of an eviction, or has one group less",
    "eventd/node/reconciler.py::apply": "reads what is declared",
}
"""By file and function: what each iteration of the loop consumes, or why it suspends although no name shows it."""


class Ways(NamedTuple):
    """Whether control can reach the end of a block, or the head of its loop, without being suspended."""

    through: bool
    back: bool


def find_busy_loops(source: Source) -> Iterator[tuple[int, str]]:
    """Yield each such loop, by its line and as `file::function`."""
    if not source.path.startswith("eventd/") or source.part in OUTSIDE:
        return
    for function in source.nodes(ast.AsyncFunctionDef):
        for loop in _loops(function.body):
            if not (isinstance(loop, ast.While) and _suspends(loop.test)):
                ways = _ways(loop.body)
                if ways.through or ways.back:
                    yield loop.lineno, f"{source.path}::{function.name}"


def _loops(body: Sequence[ast.stmt]) -> Iterator[ast.While | ast.AsyncFor]:
    """Yield the `while` and `async for` loops of a function, without those of nested functions; a `for` loop ends."""
    for statement in body:
        if isinstance(statement, ast.While | ast.AsyncFor):
            yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from _loops(getattr(statement, part, []))
            for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                yield from _loops(branch.body)


def _ways(body: Sequence[ast.stmt]) -> Ways:
    back = False
    for statement in body:
        ways = _ways_of(statement)
        back |= ways.back
        if not ways.through:
            return Ways(False, back)
    return Ways(True, back)


def _ways_of(statement: ast.stmt) -> Ways:
    match statement:
        case ast.Return() | ast.Raise() | ast.Break():
            return Ways(False, False)
        case ast.Continue():
            return Ways(False, True)
        case ast.If():
            return _either([statement.body, statement.orelse]) if not _suspends(statement.test) else Ways(False, False)
        case ast.Match():
            return _either([*(case.body for case in statement.cases), []])
        case ast.With() | ast.AsyncWith():
            return _ways(statement.body)
        case ast.Try():
            if not _ways(statement.finalbody).through:
                return Ways(False, False)
            # An exception may occur before anything was suspended.
            tried = _ways([*statement.body, *statement.orelse])
            handled = [_ways(handler.body) for handler in statement.handlers]
            return Ways(any(w.through for w in (tried, *handled)), any(w.back for w in (tried, *handled)))
        case ast.While() | ast.For() | ast.AsyncFor():
            head = statement.test if isinstance(statement, ast.While) else statement.iter
            return Ways(not _suspends(head), False)  # its body may not run at all, and its `continue` belongs to it
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return Ways(True, False)
    return Ways(not _suspends(statement), False)


def _either(branches: Sequence[Sequence[ast.stmt]]) -> Ways:
    ways = [_ways(branch) for branch in branches]
    return Ways(any(way.through for way in ways), any(way.back for way in ways))


@cache
def _suspends(node: ast.AST) -> bool:
    """Return whether a statement awaits a call that always suspends. A call behind a condition does not count."""
    if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
        name = ast.unparse(node.value.func)
        return any(name == end or name.endswith(f".{end}") for end in SUSPENDING)
    if isinstance(node, ast.BoolOp):
        return _suspends(node.values[0])
    if isinstance(node, ast.IfExp):
        return _suspends(node.test)
    if isinstance(node, ast.Lambda):
        return False
    return any(_suspends(child) for child in ast.iter_child_nodes(node))
