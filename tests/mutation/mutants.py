"""The small changes that a good test notices: each is one range of a file, with the text that replaces it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_LOGS = ("debug", "info", "warning", "error", "exception")
"""Logging methods: without the call the behaviour is the same."""


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from `start` to `end` of a file become `text`."""

    path: str
    line: int
    start: int
    end: int
    text: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.text}"

    def apply(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """Yield all changes of one file, in its order."""
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    for node, text, kind in _changes(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        yield Mutant(path, node.lineno, start, starts[node.end_lineno - 1] + node.end_col_offset, text, kind)


_Change = tuple[ast.expr | ast.stmt, str, str]


def _changes(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "keywords") and isinstance(node, _DECLARES):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_left_alone(child):
                yield from _changes(child)


_DECLARES = (ast.AnnAssign, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _is_left_alone(node: ast.AST) -> bool:
    """Return whether a node is not mutated: annotations, and texts for people."""
    if isinstance(node, ast.JoinedStr):
        return True
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _of_expression(node: ast.expr) -> Iterator[_Change]:
    match node:
        case ast.Compare(ops=[op, *more]) if type(op) in _COMPARISONS:
            yield _rewritten(
                node, ast.Compare(node.left, [_COMPARISONS[type(op)](), *more], node.comparators), "compare"
            )
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield _rewritten(node, ast.BoolOp(other, node.values), "and or")
        case ast.UnaryOp(op=ast.Not()):
            yield _rewritten(node, node.operand, "not")
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_a_type(node):
            yield _rewritten(node, ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right), "arithmetic")
        case ast.IfExp():
            yield _rewritten(node, ast.IfExp(node.test, node.orelse, node.body), "either or")
        case ast.Constant(value=bool(truth)):
            yield _rewritten(node, ast.Constant(not truth), "truth")
        case ast.Constant(value=int(number)):
            yield _rewritten(node, ast.Constant(number + 1), "number")


def _of_statement(node: ast.stmt) -> Iterator[_Change]:
    match node:
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call()) | ast.While(test=ast.Name() | ast.Attribute()):
            yield _rewritten(node.test, ast.UnaryOp(ast.Not(), node.test), "condition")
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield node, "return None", "returned"
        case ast.Expr(value=ast.Await() | ast.Call() as value) if not _only_logs(value):
            yield node, "pass", f"left out: {ast.unparse(node)[:60]}"
        case ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield node, "pass", f"left out: {ast.unparse(node)[:60]}"
        case ast.Continue():
            yield node, "break", "continue"
        case ast.Break():
            yield node, "continue", "break"


def _rewritten(node: ast.expr, by: ast.expr, kind: str) -> _Change:
    return node, f"({ast.unparse(ast.fix_missing_locations(by))})", kind


def _is_a_type(node: ast.BinOp) -> bool:
    """Return whether a node is a type like `int | None` outside an annotation: an alias, or an argument of
    `isinstance`."""
    sides = (node.left, node.right)
    return isinstance(node.op, ast.BitOr) and any(
        (isinstance(side, ast.Name) and (side.id[:1].isupper() or side.id in ("int", "str", "bytes", "float", "dict")))
        or (isinstance(side, ast.Constant) and side.value is None)
        or isinstance(side, ast.Subscript)
        for side in sides
    )


def _only_logs(value: ast.Await | ast.Call) -> bool:
    call = value.value if isinstance(value, ast.Await) else value
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _LOGS
