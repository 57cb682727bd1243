"""The port through which pages see a node: it offers the operations of the API, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote, urlencode


class NodeView(Protocol):
    """A node, with the permissions of one visitor."""

    @property
    def name(self) -> str:
        """Return the name of the node, or of the context, for headings."""
        ...

    def may(self, operation: str, group: str = "") -> bool:
        """Return whether the visitor may run an operation of /api/v1, for a group unless that is empty."""
        ...

    def sees(self, name: str) -> bool:
        """Return whether the visitor may access the group, topic or router of this name."""
        ...

    def may_ask(self, method: str, *path: str) -> bool:
        """Return whether the visitor may use a route of /v0, by its path in parts."""
        ...

    async def ask(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        """Use a route of /v0 and return its answer: `await view.ask("GET", "topics", name)`. Raises its errors.

        `path`: the parts behind /v0, unquoted. `body`: to be sent as JSON.
        """
        ...

    async def call(self, operation: str, /, **params: Any) -> Any:
        """Run an operation of /api/v1 and return its answer. Raises the errors of the API."""
        ...


def target_of(path: Sequence[str], query: Mapping[str, Any] | None = None) -> str:
    """Return the path of a route of /v0, quoted, with the values of a query that are not empty."""
    given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    target = "/".join(["/v0", *(quote(part, safe="") for part in path)])
    return f"{target}?{urlencode(given)}" if given else target
