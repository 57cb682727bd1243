"""Commands that end or drop something ask for confirmation first if the context of the node is protected."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from eventd.cli.gateway.node_choice import NodeChoice
from eventd.cli.terminal.confirm import confirm
from eventd.errors import Forbidden

ENDING: Final = {
    "resources.delete": "delete the {kind} {name}",
    "resources.delete_sources": "delete the resources that the files name",
    "events.prune": "delete the events of the group {group} that its retention does not keep",
    "events.release": "free the id {id} in the group {group}",
    "links.pause": "pause the link of the group {group} to {peer}",
    "dead_letters.drop": "drop dead letters of the group {group}",
    "dead_letters.drop_chosen": "drop the chosen dead letters",
    "subscriptions.reset": "move the subscription {subscription} to another position",
    "subscriptions.pause": "pause the subscription {subscription}",
    "callbacks.pause": "pause the callback {callback}",
    "callbacks.reset": "move the callback {callback} to another position",
    "callback_letters.drop": "drop dead letters of the callback {callback}",
    "history.reset": "forget the keys and trees of {node} in the group {group}",
    "history.rotate": "replace the key that signs the trees of the node",
    "jobs.cancel": "cancel the job {number}",
    "dynamic.delete": "delete the part {source}",
    "keys.revoke": "revoke the key {name}",
    "queues.release": "make delayed jobs of the queue {topic} ready at once",
    "queues.retry": "return the dead letters of the queue {topic} to it",
    "routemaster.claim": "change the publisher of the topic {name}",
    "routemaster.rotate_token": "replace the token {handle}",
    "routemaster.revoke_token": "delete the token {handle}",
}
"""The operations that end, drop or move something, each with the text of the question. Names in braces are parameters
of the operation."""


def confirm_operation(node: NodeChoice, operation: str, params: Mapping[str, Any]) -> None:
    """Ask before an operation of `ENDING` in a protected context. Raises `EventdError` unless it is confirmed."""
    if operation in ENDING and not params.get("dry_run"):
        confirm_ending(node, ENDING[operation].format_map(params))


def confirm_ending(node: NodeChoice, what: str) -> None:
    """In a protected context, ask for confirmation before something ends.

    `what` is the action and begins with a verb. Raises `EventdError` unless it is confirmed.
    """
    if not can_ask():
        raise Forbidden(
            f"there is no terminal to ask on whether to {what}: the context {node.context} is protected, and nothing"
            " was changed",
            hint="run the command on a terminal, or add --yes",
        )
    confirm(f"The context {node.context} is protected. {what[0].upper()}{what[1:]}?")


def can_ask() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin.isatty()
