"""A Python file as the architecture rules see it: its imports and the outside names it uses."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar, cast

N = TypeVar("N", bound=ast.AST)
ROOT = Path(__file__).parents[2]
_CACHES = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
_TABLES = {
    "eventd/api/routes.py": ("eventd.api", re.compile(r"[a-z_.]+:[a-z_]*")),
    "eventd/api/history_routes.py": ("eventd.api", re.compile(r"[a-z_.]+:[a-z_]*")),
    "eventd/api/topic_routes.py": ("eventd.api", re.compile(r"[a-z_.]+:[a-z_]*")),
    "eventd/cli/federation_commands.py": ("eventd.cli", re.compile(r"[a-z_]+(\.[a-z_]+){2}")),
    "eventd/cli/history_commands.py": ("eventd.cli", re.compile(r"[a-z_]+(\.[a-z_]+){2}")),
    "eventd/cli/topic_commands.py": ("eventd.cli", re.compile(r"[a-z_]+(\.[a-z_]+){2}")),
    "eventd/cli/routerctl_commands.py": ("eventd.cli", re.compile(r"[a-z_]+(\.[a-z_]+){2}")),
}
"""Files whose strings name functions that are loaded when needed: the package, and the form of such a string."""
_NOT_OURS = _CACHES | {".git", ".venv", "build", "dist", "eventd-data"}


@dataclass(frozen=True)
class Source:
    """One file: `path` relative to the project, with slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def _nodes(self) -> dict[type[ast.AST], list[ast.AST]]:
        nodes: dict[type[ast.AST], list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            nodes.setdefault(type(node), []).append(node)
        return nodes

    def nodes(self, kind: type[N]) -> list[N]:
        """Return all nodes of this kind: the tree is walked once for all rules."""
        return cast(list[N], self._nodes.get(kind, []))

    @property
    def part(self) -> str:
        """Return its part, as the import rules name it: `federation`, `migrations`, or the first name under
        `eventd`."""
        top, _, rest = self.path.partition("/")
        return top if top != "eventd" else rest.split("/")[0].removesuffix(".py")

    @cached_property
    def imports(self) -> list[tuple[int, str]]:
        """Return (line, dotted name) of every import, also those inside functions and by name at run time.

        `from eventd.store.rows import keys` is `eventd.store.rows.keys`: a module and a name in one look alike. What
        the route table and the command tree name is imported, too.
        """
        nodes = (*self.nodes(ast.Import), *self.nodes(ast.ImportFrom), *self.nodes(ast.Call))
        written = (found for node in nodes for found in self._imports_of(node))
        return sorted([*written, *self._imports_of_table()])

    @cached_property
    def uses(self) -> list[tuple[int, str]]:
        """Return (line, dotted name) of every outside name that is used, under its original name.

        `import time as t; t.sleep` and `from time import sleep` are both `time.sleep`. An attribute of something that
        was not imported keeps only its own name: `loop.create_task` is `.create_task`.
        """
        taken = [(line, name) for line, name in self.imports if "." in name]
        return taken + [(node.lineno, self.name_of(node)) for node in self.nodes(ast.Attribute)]

    @cached_property
    def strings(self) -> list[tuple[int, str]]:
        """Return (line, text) of every string that is not a docstring."""
        docs = {id(node.value) for node in self.nodes(ast.Expr)}
        constants = (node for node in self.nodes(ast.Constant) if isinstance(node.value, str))
        return [(node.lineno, str(node.value)) for node in constants if id(node) not in docs]

    def name_of(self, node: ast.expr) -> str:
        """Return the dotted name of an expression, as in `uses`; empty for what is neither a name nor an attribute."""
        if isinstance(node, ast.Attribute):
            return f"{self.name_of(node.value)}.{node.attr}"
        return self._names.get(node.id, "") if isinstance(node, ast.Name) else ""

    def _imports_of(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(names=names):
                yield from ((node.lineno, f"{self._origin(node)}.{alias.name}") for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__")):
                if node.args and isinstance(node.args[0], ast.Constant):
                    yield node.lineno, str(node.args[0].value)

    def _imports_of_table(self) -> Iterator[tuple[int, str]]:
        if self.path in _TABLES:
            package, form = _TABLES[self.path]
            named = ((line, text) for line, text in self.strings if form.fullmatch(text))
            yield from ((line, f"{package}.{text.replace(':', '.')}") for line, text in named)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.path.split("/")[: -node.level]
        return ".".join([*package, node.module] if node.module else package)

    @cached_property
    def _names(self) -> dict[str, str]:
        plain = (alias for node in self.nodes(ast.Import) for alias in node.names)
        names = {alias.asname or alias.name.split(".")[0]: _bound(alias) for alias in plain}
        for node in self.nodes(ast.ImportFrom):
            names.update({alias.asname or alias.name: f"{self._origin(node)}.{alias.name}" for alias in node.names})
        return names


def _bound(alias: ast.alias) -> str:
    return alias.name if alias.asname else alias.name.split(".")[0]


@cache
def read_sources() -> tuple[Source, ...]:
    """Return every shipped Python file, committed or not. They are read and parsed once for all tests."""
    folders = [ROOT / name for name in ("eventd", "federation", "migrations")]
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    return tuple(Source(file.relative_to(ROOT).as_posix(), file.read_text()) for file in files)


def tracked_files() -> list[str]:
    """Return the files that git tracks; without git (an unpacked archive), every file that no tool generated."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        found = (file.relative_to(ROOT) for file in ROOT.rglob("*") if file.is_file())
        listed = [file.as_posix() for file in found if not _NOT_OURS.intersection(file.parts)]
    return [name for name in listed if name and (ROOT / name).is_file()]
