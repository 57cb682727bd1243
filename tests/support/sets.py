"""Finds loops over a set whose order differs from run to run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.source import Source

PROGRAMS = ("audit", "bench", "cli", "client", "testing")
"""Parts that run in programs of their own, not in a node."""
VALUE_TYPES = {
    "Pair": "a tuple of strings",
    "ResourceKey": "a tuple of strings",
    "ResourceRef": "a tuple of strings",
}
"""Types of nodes whose sets have the same order in every process with the same hash seed, and why."""
VALUES = re.compile(
    rf"(set|frozenset)\[((tuple\[)?((str|int|bytes|bool|\.\.\.)(, )?)+\]?|{'|'.join(VALUE_TYPES)})\]( \| None)?"
)
"""Annotations of sets whose order depends on the hash seed alone."""
ORDERLESS = ("all", "any", "dict.fromkeys", "frozenset", "len", "max", "min", "set", "sorted", "sum")
"""Functions whose result does not depend on the order of their argument."""


def find_set_loops(source: Source) -> Iterator[tuple[int, str]]:
    """Yield each loop over a set, by its line, with the set."""
    if source.part in PROGRAMS or not source.path.startswith("eventd/"):
        return
    annotated = {ast.unparse(node.target): ast.unparse(node.annotation) for node in source.nodes(ast.AnnAssign)}
    objects = {
        name for name, kind in annotated.items() if re.match(r"(frozen)?set\[", kind) and not VALUES.fullmatch(kind)
    }
    harmless = {id(node) for node in (*source.nodes(ast.SetComp), *source.nodes(ast.DictComp))}
    for node in source.nodes(ast.Call):
        if _called(node) in ORDERLESS:
            harmless |= {id(argument) for argument in node.args}
    for node in ast.walk(source.tree):
        for looped in _looped(node, harmless):
            if _is_made_set(looped) or (objects and ast.unparse(looped) in objects):
                yield looped.lineno, ast.unparse(looped)
    for function in (*source.nodes(ast.FunctionDef), *source.nodes(ast.AsyncFunctionDef)):
        made = _made_locals(function) - annotated.keys()
        for node in ast.walk(function) if made else ():
            yield from (
                (looped.lineno, looped.id)
                for looped in _looped(node, harmless)
                if isinstance(looped, ast.Name) and looped.id in made
            )


def _made_locals(function: ast.AST) -> set[str]:
    """Return the locals that hold a set whenever the function assigns them."""
    values: dict[str, list[bool]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(_is_made_set(node.value))
    return {name for name, made in values.items() if all(made)}


def _looped(node: ast.AST, harmless: set[int]) -> Iterator[ast.expr]:
    """Yield what a node iterates over, where the order has an effect."""
    if isinstance(node, ast.For | ast.AsyncFor):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.GeneratorExp) and id(node) not in harmless:
        yield from (part.iter for part in node.generators)
    elif isinstance(node, ast.Call) and _called(node) in ("list", "tuple", "next", "iter"):
        yield from node.args[:1]
    elif isinstance(node, ast.List | ast.Tuple):
        yield from (part.value for part in node.elts if isinstance(part, ast.Starred))


def _is_made_set(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.Sub):
        return any(_is_made_set(side) or _are_keys(side) for side in (node.left, node.right))
    if isinstance(node, ast.Call):
        return _called(node) in ("set", "frozenset")
    return isinstance(node, ast.Set | ast.SetComp)


def _called(node: ast.Call) -> str:
    """Return the name that is called; empty for an expression of more than two names."""
    match node.func:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return f"{name}.{attribute}"
    return ""


def _are_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"
