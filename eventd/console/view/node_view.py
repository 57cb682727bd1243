"""The port through which pages see a node: it offers the operations of the API, and nothing else."""

from __future__ import annotations

from typing import Any, Protocol


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

    async def call(self, operation: str, **params: Any) -> Any:
        """Run an operation of /api/v1 and return its answer. Raises the errors of the API."""
        ...
