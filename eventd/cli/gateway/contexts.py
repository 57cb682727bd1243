"""Contexts: the nodes that an operator works on, by name, in a file that only its user may read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from eventd.cli.gateway.node_choice import NodeChoice
from eventd.errors import Invalid, NotFound
from eventd.runtime.regular_files import NotRegular, read_regular
from eventd.settings.environment import contexts_file, names_local_node

Colour = Literal["red", "orange", "yellow", "green", "blue", "purple", "grey"]
LARGEST: Final = 1 << 20
"""Maximum bytes of the file."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_OPTIONS: Final = ("key", "key_file", "ca_file", "client_cert", "client_key", "server_name", "pin")
"""The options of the command line that a context can also set."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """A node: the address of its API and how to connect to it.

    The key is in `key_file`, or what the program `key_command` prints. `group`: the default of `--group`. `colour`
    marks the node in the console. `protected`: commands that end or drop something ask first.
    """

    name: str
    server: str
    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""
    server_name: str = ""
    pin: str = ""
    key_file: str = ""
    key_command: tuple[str, ...] = ()
    group: str = ""
    colour: Colour | Literal[""] = ""
    protected: bool = False

    def choice(self) -> NodeChoice:
        """Return the options that name this node."""
        key_file, ca_file, cert, key = (
            Path(text).expanduser() if text else None
            for text in (self.key_file, self.ca_file, self.client_cert, self.client_key)
        )
        return NodeChoice(
            server=self.server,
            key="",
            key_file=key_file,
            ca_file=ca_file,
            client_cert=cert,
            client_key=key,
            server_name=self.server_name,
            pin=self.pin,
            database=None,
            data_dir=None,
            state_file=None,
            context=self.name,
            key_command=self.key_command,
            group=self.group,
            protected=self.protected,
        )


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of a user, by name. `current`: the one in use; empty without one."""

    all: Mapping[str, NodeContext]
    current: str = ""

    def get(self, name: str) -> NodeContext:
        """Return a context. Raises `NotFound`."""
        if name not in self.all:
            raise NotFound(f"there is no context {name[:80]!r}", hint="`routerctl context list` shows the contexts")
        return self.all[name]


def require_context_name(name: str) -> None:
    """Raise `Invalid` unless a context may have this name."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:80]!r} cannot be the name of a context",
            hint="use at most 63 letters, digits, dots, dashes and underscores; the first one a letter or a digit",
        )


def read_contexts() -> Contexts:
    """Return the contexts of this user; none if the file does not exist.

    Raises `Invalid` for a file that others may read or change, which could name another node or run a program.
    """
    named = contexts_file()
    if not named or not (path := Path(named)).exists():
        return Contexts({})
    try:
        found = read_regular(path, LARGEST + 1)
    except NotRegular:
        raise Invalid(f"{path} is not a file", hint="remove it") from None
    if path.stat().st_uid not in (os.geteuid(), 0):
        raise Invalid(f"{path} belongs to another user", hint="set XDG_CONFIG_HOME to a folder of your own")
    if found.mode & 0o077:
        raise Invalid(f"other users may read or change {path}", hint=f"chmod 600 {path}")
    if len(found.content) > LARGEST:
        raise Invalid(f"{path} has more than {LARGEST:,} bytes", hint="remove contexts that are not needed")
    return _decode(path, found.content)


def _decode(path: Path, content: bytes) -> Contexts:
    import yaml

    hint = "correct it, or remove it and add the contexts again with `routerctl context add`"
    try:
        document = yaml.safe_load(content) or {}
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError, AttributeError, LookupError):
        raise Invalid(f"{path} is not valid YAML", hint=hint) from None
    if not isinstance(document, dict) or document.keys() - {"current", "contexts"}:
        raise Invalid(f"{path} may have the members `current` and `contexts` only", hint=hint)
    named, current = document.get("contexts") or {}, document.get("current") or ""
    if not isinstance(named, dict) or not isinstance(current, str):
        raise Invalid(f"{path}: `contexts` must be a mapping by name, and `current` a name", hint=hint)
    try:
        found = {str(name): _read_context(str(name), members) for name, members in named.items()}
    except Invalid as error:
        raise Invalid(f"{path}: {error.message}", hint=error.hint or hint) from None
    return Contexts(found, current)


def _read_context(name: str, members: Any) -> NodeContext:
    """Return a context from its members in the file. Raises `Invalid`."""
    import msgspec

    require_context_name(name)
    try:
        given = msgspec.convert(members, dict[str, Any])
        unknown = given.keys() - _NAMES.keys()
        if unknown:
            raise Invalid(f"context {name}: {sorted(unknown)[0][:60]!r} is not a member of a context")
        return msgspec.convert({_NAMES[each]: value for each, value in given.items()} | {"name": name}, NodeContext)
    except msgspec.ValidationError as error:
        raise Invalid(f"context {name}: {error}") from None


_NAMES: Final = {
    "server": "server",
    "caFile": "ca_file",
    "clientCert": "client_cert",
    "clientKey": "client_key",
    "serverName": "server_name",
    "pin": "pin",
    "keyFile": "key_file",
    "keyCommand": "key_command",
    "group": "group",
    "colour": "colour",
    "protected": "protected",
}
"""The members of a context in the file, and the fields of `NodeContext`."""


def write_contexts(contexts: Contexts) -> Path:
    """Replace the file with these contexts, readable by its user alone; return its path. Raises `Invalid`, OSError."""
    from tempfile import NamedTemporaryFile

    import yaml

    if not (named := contexts_file()):
        raise Invalid("there is no folder for contexts", hint="set HOME or XDG_CONFIG_HOME to a folder")
    path = Path(named)
    document = {
        **({"current": contexts.current} if contexts.current else {}),
        "contexts": {name: shown_members(contexts.all[name]) for name in sorted(contexts.all)},
    }
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=path.parent, prefix=".contexts-", encoding="utf-8", delete=False) as file:
        try:
            file.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    return path


def shown_members(context: NodeContext) -> dict[str, Any]:
    """Return the members of a context that are not empty, by their names in the file."""
    found = {outer: getattr(context, inner) for outer, inner in _NAMES.items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value}


def in_context(node: NodeChoice, given: Mapping[str, str], *, many: bool = False) -> NodeChoice:
    """Return the options with those of the context that applies; unchanged without one.

    With `many`, the command takes several contexts and reads them itself. `given`: where each option comes from:
    `COMMANDLINE`, `ENVIRONMENT` or elsewhere. A context on the command line has precedence over variables. Raises
    `NotFound` for an unknown context, and `Invalid` for an unusable file.
    """
    written = {name for name, place in given.items() if place == "COMMANDLINE"}
    if node.bundle is not None or written & {"server", "database", "data_dir", "state_file"}:
        return replace(node, context="")
    if many:
        return node
    name = node.context
    if not name and (node.server or names_local_node()):
        return node
    contexts = read_contexts()
    name = name or contexts.current
    if not name:
        return node
    chosen = contexts.get(name).choice()
    counts = ("COMMANDLINE",) if "context" in written else ("COMMANDLINE", "ENVIRONMENT")
    own = {each: getattr(node, each) for each in _OPTIONS if given.get(each) in counts}
    if own.keys() & {"key", "key_file"}:
        own = {"key": "", "key_file": None, "key_command": (), **own}
    return replace(chosen, **own, confirmed=node.confirmed)
