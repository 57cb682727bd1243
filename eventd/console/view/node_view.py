"""The port through which pages see a node: it offers the operations of the API, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode


class V0Request(NamedTuple):
    """A request to a route of /v0: its method, and the parts of its path behind /v0. Parts in braces are parameters."""

    method: str
    path: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the parameters in the path."""
        return tuple(part.strip("{}") for part in self.path if part.startswith("{"))

    def fill(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the path with the values of parameters; those that are missing are empty."""
        return tuple(str(params.get(part[1:-1], "")) if part.startswith("{") else part for part in self.path)


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
        """Return whether the visitor may use a route of /v0, by the parts of its path; an empty one is any name."""
        ...

    async def ask(
        self, method: str, *path: str, body: Any = None, model: Any = Any, once: str = "", **query: Any
    ) -> Any:
        """Use a route of /v0 and return its answer: `await view.ask("GET", "topics", name)`.

        Raises the route's errors. `path`: the parts after /v0, unquoted. `body`: to be sent as JSON. `model`: the type
        of the answer; members of type `Raw` keep the stored text, with each number as it was written. `once`: as the
        `key` of `act`.
        """
        ...

    async def call(self, operation: str, /, **params: Any) -> Any:
        """Run an operation of /api/v1 and return its answer. Raises the errors of the API."""
        ...

    async def act(self, operation: str, key: str, /, **params: Any) -> Any:
        """Run an operation as `call` does, but only once: within 120 s, the same operation with the same `key` gets
        the first answer.

        Only recorded actions are recognized. With an empty key, the operation is always run.
        """
        ...

    async def find_answer(self, operation: str, key: str, /, **params: Any) -> Any:
        """Return the answer of an earlier `act` with the same arguments and key.

        None if it was not run, or this is not known. If the answer was an error, raise it.
        """
        ...

    async def find_asked(self, once: str, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        """Return the answer of an earlier `ask` with the same arguments and the same `once`, as `find_answer` does."""
        ...


def target_of(path: Sequence[str], query: Mapping[str, Any] | None = None) -> str:
    """Return the path of a route of /v0, quoted, with the values of a query that are not empty."""
    given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    target = "/".join(["/v0", *(quote(part, safe="") for part in path)])
    return f"{target}?{urlencode(given)}" if given else target
