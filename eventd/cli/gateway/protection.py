"""Commands that end or drop something ask first where the context of the node is protected."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from eventd.cli.gateway.node_choice import NodeChoice
from eventd.cli.terminal.confirm import confirm
from eventd.errors import Forbidden

ENDING: Final = frozenset(
    {
        "resources.delete",
        "resources.delete_sources",
        "events.prune",
        "links.pause",
        "dead_letters.drop",
        "dead_letters.drop_chosen",
        "subscriptions.reset",
        "subscriptions.pause",
        "callbacks.pause",
        "callbacks.reset",
        "callback_letters.drop",
        "jobs.cancel",
        "dynamic.delete",
        "keys.revoke",
        "queues.release",
        "queues.retry",
        "routemaster.claim",
        "routemaster.rotate_token",
        "routemaster.revoke_token",
    }
)
"""The operations that end, drop or move something."""


def confirm_operation(node: NodeChoice, operation: str, params: Mapping[str, Any]) -> None:
    """Ask before an operation of `ENDING` in a protected context. Raises `EventdError` unless it is confirmed."""
    prunes = operation == "resources.apply" and params.get("prune")
    if node.protected and (operation in ENDING or prunes) and not params.get("dry_run"):
        confirm_ending(node, f"{operation} {' '.join(_names(params))}".rstrip())


def confirm_ending(node: NodeChoice, what: str) -> None:
    """Ask before something ends in a protected context. Raises `EventdError` unless it is confirmed."""
    if not node.protected:
        return
    if not can_ask():
        raise Forbidden(
            f"the context {node.context} is protected, and there is no terminal to ask on: {what} was not done",
            hint="run the command on a terminal, or name the node with --server",
        )
    confirm(f"The context {node.context} is protected. Do this: {what}?")


def can_ask() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin.isatty()


def _names(params: Mapping[str, Any]) -> list[str]:
    """Return what the question shows of the parameters: texts and numbers, none of which is a secret here."""
    return [f"{name}={value}" for name, value in params.items() if isinstance(value, str | int) and value][:4]
