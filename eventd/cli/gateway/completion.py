"""Completes names on the command line: asks the node, with a short timeout and without error messages, and remembers
answers for some seconds.

It does not ask without a server, a context or a node at the local socket, nor if a program supplies the key.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from eventd.cli.gateway.api_gateway import ApiGateway
    from eventd.cli.gateway.node_choice import NodeChoice

SECONDS: Final = 0.3
"""Seconds that the connection and the node's answer may take together."""
KEPT_SECONDS: Final = 5.0
_STALE_SECONDS: Final = 60.0
_DELIVERED: Final = "delivered="
_STATES: Final = tuple(f"state={state}" for state in ("running", "backing-off", "blocked", "paused", "failed"))
_OF_RESOURCES: Final = ("generation>", "deleted")
_EVENT_ID: Final = r"[A-Za-z0-9_][A-Za-z0-9._:@/+=,-]*"
"""The ids that are offered. Others are legal, but a shell may take a part of them for a command."""
_CONDITIONS: Final = {"node": ("ready",), "event": (_DELIVERED,), "queue": ("caught-up",)}
"""The conditions of objects that are not resources."""


class _Late(Exception):
    """The node took too long."""


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups whose names begin with the typed text."""
    return _ask(ctx, "group", incomplete)


def complete_peer(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the peers whose node names begin with the typed text."""
    return _ask(ctx, "peer", incomplete)


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics whose names begin with the typed text."""
    return _ask(ctx, "topic", incomplete)


def complete_event(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of stored events that begin with the typed text."""
    return _ask(ctx, "event", incomplete)


def complete_subscription(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the subscriptions whose names begin with the typed text."""
    return _ask(ctx, "resource", incomplete, "EventSubscription")


def complete_callback(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the callbacks whose names begin with the typed text."""
    return _ask(ctx, "resource", incomplete, "EventCallback")


def complete_plugin(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the plugins whose names begin with the typed text."""
    return _ask(ctx, "resource", incomplete, "Plugin")


def complete_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the kinds that begin with the typed text; after `KIND/`, the resources of the kind."""
    kind, slash, prefix = incomplete.partition("/")
    if slash:
        return [f"{kind}/{name}" for name in _ask(ctx, "resource", prefix, kind)]
    from eventd.resources.kinds.registry import KINDS

    words = [word for known in KINDS.values() for word in (known.plural, known.name)]
    return [word for word in words if word.startswith(incomplete)]


def complete_waited(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the objects that `wait` can wait for: kinds, `KIND/NAME`, `node`, `event/ID` and `queue/TOPIC`."""
    what, slash, prefix = incomplete.partition("/")
    asked = {"event": "event", "queue": "topic"}.get(what)
    if slash and asked:
        return [f"{what}/{name}" for name in _ask(ctx, asked, prefix)]
    return complete_kind(ctx, incomplete) + ([] if slash else ["node", "event/", "queue/"])


def complete_condition(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the conditions that `wait` accepts for the object on the command line; after `delivered=`, the peers."""
    words = [str(ctx.params.get("kind") or ""), *ctx.args]  # before an option without its value, they are not parsed
    kind = next((word for word in words if word), "").partition("/")[0]
    if incomplete.startswith(_DELIVERED):
        return [f"{_DELIVERED}{peer}" for peer in _ask(ctx, "peer", incomplete.removeprefix(_DELIVERED))]
    return [word for word in _conditions(kind) if word.startswith(incomplete)]


def _conditions(kind: str) -> Sequence[str]:
    if kind in _CONDITIONS:
        return _CONDITIONS[kind]
    from eventd.errors import NotFound
    from eventd.resources.kinds.registry import find_kind

    try:
        name = find_kind(kind).name if kind else ""
    except NotFound:
        name = kind
    if name == "EventGroup":
        return ("ready", *_OF_RESOURCES)
    followed = name in ("EventPeer", "EventSubscription", "EventCallback")
    return (*((*_STATES, "caught-up") if followed else ()), *_OF_RESOURCES)


def complete_field(incomplete: str) -> list[str]:
    """Return the kinds that begin with the typed text; after `KIND.`, the fields, one level at a time."""
    from eventd.errors import NotFound
    from eventd.resources.kinds.explanation import explain
    from eventd.resources.kinds.registry import KINDS, find_kind

    word, dot, field = incomplete.partition(".")
    if not dot:
        return [name for known in KINDS.values() for name in (known.plural, known.name) if name.startswith(incomplete)]
    try:
        paths = [each.path.replace("[]", "") for each in explain(find_kind(word))]
    except NotFound:
        return []
    paths += [path.removeprefix("spec.") for path in paths]
    level = field.count(".")
    found = [path for path in paths if path.startswith(field) and path.count(".") == level]
    return [f"{word}.{path}" for path in dict.fromkeys(found)]


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the resources of the kind on the command line whose names begin with the typed text."""
    kind = str(ctx.params.get("kind") or "")
    return [] if "/" in kind or not kind else _ask(ctx, "resource", incomplete, kind)


def complete_context(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the contexts whose names begin with the typed text."""
    from eventd.cli.gateway.contexts import read_contexts

    try:
        return [name for name in sorted(read_contexts().all) if name.startswith(incomplete)]
    except Exception:
        return []


def _ask(ctx: typer.Context, what: str, prefix: str, kind: str = "") -> list[str]:
    """Return names that begin with the prefix; none if there is no node to ask, or if anything goes wrong."""
    try:
        node = _node_of(ctx)
        params = {"what": what, "kind": kind, "prefix": prefix}
        file = _cache_file(json.dumps([repr(node), os.getcwd(), params], sort_keys=True))
        known = _remembered(file)
        if known is not None:
            return _fit(known, what, prefix)
        found: list[str] = []
        with suppress(Exception), _deadline(SECONDS):
            if (gateway := _connect(node)) is not None:
                found = [str(name) for name in _without_loop(_call(gateway, params))["names"]]
        _remember(file, found)
        return _fit(found, what, prefix)
    except Exception:  # nothing may be printed into a command line that is being typed
        return []


def _fit(names: list[str], what: str, prefix: str) -> list[str]:
    """Return the legal names that begin with the prefix.

    Danger: a node may answer anything, such as an option, or what a shell executes.
    """
    from eventd.text.topic_names import TOPIC_NAME
    from federation.peers import GROUP_NAME, NODE_NAME

    # resources of some kinds are named like topics; a router whose name has a ">" is not offered: it would need quotes
    legal = {"group": GROUP_NAME.pattern, "peer": NODE_NAME.pattern, "event": _EVENT_ID}.get(what, TOPIC_NAME)
    return [name for name in names if name.startswith(prefix) and re.fullmatch(legal, name)]


def _node_of(ctx: typer.Context) -> NodeChoice:
    """Return the node that the command line, variables and contexts name."""
    from eventd.cli.gateway.contexts import in_context
    from eventd.cli.gateway.node_choice import NodeChoice

    texts = {name: ctx.params.get(name) or "" for name in ("server", "context", "key", "server_name", "pin")}
    files = {name: ctx.params.get(name) for name in ("key_file", "ca_file", "client_cert", "client_key")}
    local = {name: ctx.params.get(name) for name in ("database", "data_dir", "state_file", "bundle")}
    given: dict[str, Any] = {**texts, **files, **local}
    places = {name: str(getattr(ctx.get_parameter_source(name), "name", "")) for name in given}
    return in_context(NodeChoice(**given), places)


def _connect(node: NodeChoice) -> ApiGateway | None:
    if node.bundle is not None or node.key_command:
        return None  # a program for the key may ask on the terminal
    if node.is_remote:
        from eventd.cli.gateway.remote import RemoteGateway

        return RemoteGateway(node.server, node.read_key(), node.read_tls())
    from eventd.cli.gateway.node_socket import find_node
    from eventd.settings.location import locate

    location = locate(**node.flags())
    return None if location is None else find_node(location)[0]


async def _call(gateway: ApiGateway, params: dict[str, str]) -> dict[str, Any]:
    try:
        return await gateway.call("names.list", **params)
    finally:
        await gateway.close()


def _without_loop(running: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Run a coroutine that needs no event loop, because the access to a node blocks."""
    try:
        running.send(None)
    except StopIteration as end:
        answer: dict[str, Any] = end.value
        return answer
    raise _Late


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise `_Late` in the block after this many seconds, whatever the block waits for."""
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise _Late


def _cache_file(question: str) -> Path | None:
    from eventd.settings.environment import cache_folder

    folder = cache_folder()
    return Path(folder) / "completion" / hashlib.sha256(question.encode()).hexdigest() if folder else None


def _remembered(file: Path | None) -> list[str] | None:
    """Return the remembered names for a question; None if there are none, or they are too old."""
    from eventd.runtime.clock import SystemClock

    with suppress(OSError, ValueError):
        if file is not None and 0 <= SystemClock().now() / 1e6 - file.stat().st_mtime < KEPT_SECONDS:
            names: list[str] = json.loads(file.read_text(encoding="utf-8"))
            return names
    return None


def _remember(file: Path | None, names: list[str]) -> None:
    """Store an answer where only this user can read it, and remove old ones."""
    from eventd.runtime.clock import SystemClock

    if file is None:
        return
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = SystemClock().now() / 1e6
        for old in file.parent.iterdir():
            if now - old.stat().st_mtime > _STALE_SECONDS:
                old.unlink(missing_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.touch(0o600)
        part.write_text(json.dumps(names), encoding="utf-8")
        part.replace(file)
