"""Options shared by the commands of routerctl: which node, and the form of the output."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from eventd.cli.gateway.completion import complete_context
from eventd.cli.terminal.output import Format


def _node(kind: Any, *names: str, **about: Any) -> Any:
    return Annotated[kind, typer.Option(*names, rich_help_panel="The node", show_default=False, **about)]


def _show(kind: Any, *names: str, **about: Any) -> Any:
    return Annotated[kind, typer.Option(*names, rich_help_panel="Output", **about)]


SHARED: Final[dict[str, tuple[Any, Any]]] = {
    "server": (
        _node(
            str,
            "--server",
            metavar="URL",
            envvar="EVENTD_SERVER",
            help="API of a running node (default: the node on this machine, or its database).",
        ),
        "",
    ),
    "context": (
        _node(
            str,
            "--context",
            metavar="NAME",
            autocompletion=complete_context,
            envvar="EVENTD_CONTEXT",
            help="Context that names the node, as `routerctl context add` stored it (default: the one in use).",
        ),
        "",
    ),
    "key": (
        _node(
            str,
            "--key",
            metavar="KEY",
            envvar="EVENTD_API_KEY",
            help="API key. Other users of this machine can see it on the command line; --key-file hides it.",
        ),
        "",
    ),
    "key_file": (
        _node(
            Path | None, "--key-file", metavar="PATH", envvar="EVENTD_API_KEY_FILE", help="File that holds the API key."
        ),
        None,
    ),
    "ca_file": (
        _node(
            Path | None,
            "--ca-file",
            metavar="PATH",
            envvar="EVENTD_CA_FILE",
            help="PEM file of CAs that verify an https server, instead of the system's.",
        ),
        None,
    ),
    "client_cert": (
        _node(
            Path | None,
            "--client-cert",
            metavar="PATH",
            envvar="EVENTD_CLIENT_CERT_FILE",
            help="PEM file of a certificate to show to an https server.",
        ),
        None,
    ),
    "client_key": (
        _node(
            Path | None,
            "--client-key",
            metavar="PATH",
            envvar="EVENTD_CLIENT_KEY_FILE",
            help="PEM file of the certificate's private key.",
        ),
        None,
    ),
    "server_name": (
        _node(
            str,
            "--server-name",
            metavar="NAME",
            envvar="EVENTD_SERVER_NAME",
            help="Name that the server's certificate must have, instead of the host in the URL; not checked with --pin"
            " alone.",
        ),
        "",
    ),
    "pin": (
        _node(
            str,
            "--pin",
            metavar="PIN",
            envvar="EVENTD_SERVER_PIN",
            help="Public key that the server's certificate must have, as `routerd-eventd tls show` prints it.",
        ),
        "",
    ),
    "database": (
        _node(str | None, "--database", metavar="URL", help="The node's database. [EVENTD_DATABASE_URL]"),
        None,
    ),
    "data_dir": (_node(str | None, "--data-dir", metavar="PATH", help="The node's folder. [EVENTD_DATA_DIR]"), None),
    "state_file": (
        _node(
            Path | None,
            "--state-file",
            metavar="PATH",
            help="The node's SQLite file: the same as --database sqlite:///PATH.",
        ),
        None,
    ),
    "bundle": (
        _node(
            Path | None,
            "--from",
            metavar="BUNDLE",
            envvar="EVENTD_SUPPORT_BUNDLE",
            help="Support bundle to read instead of a node, as `routerctl support-bundle` made it.",
        ),
        None,
    ),
    "confirmed": (
        Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation in a protected context.")],
        False,
    ),
    "output": (_show(Format, "-o", "--output", help="Output format."), "table"),
    "no_headers": (_show(bool, "--no-headers", help="Print tables without headers."), False),
}
"""The declaration and the default of each shared option, by the name of its parameter."""
TLS: Final = ("ca_file", "client_cert", "client_key", "server_name", "pin")
REMOTE: Final = ("server", "key", "key_file", *TLS)
LOCAL: Final = ("database", "data_dir", "state_file")
NODE: Final = ("context", *REMOTE, *LOCAL, "bundle")
SHOW: Final = ("output", "no_headers")


def chosen(*names: str) -> dict[str, tuple[Any, Any]]:
    """Return the entries of `SHARED` with these names."""
    return {name: SHARED[name] for name in names}


def variant(name: str, **changes: Any) -> tuple[Any, Any]:
    """Return the entry of `SHARED` with this name, its declaration changed, such as `hidden=True`."""
    annotation, default = SHARED[name]
    about = copy(annotation.__metadata__[0])
    about.__dict__.update(changes)
    return Annotated[annotation.__origin__, about], default


def parameters(options: Mapping[str, tuple[Any, Any]]) -> list[inspect.Parameter]:
    """Return options as keyword-only parameters of a command's function."""
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]


def flags() -> dict[str, bool]:
    """Return for every spelling of a shared option, such as `-o`, whether it takes a value."""
    found: dict[str, bool] = {}
    for annotation, default in SHARED.values():
        about = annotation.__metadata__[0]
        names = (about.default, *about.param_decls)  # typer takes the first name for a default until it is declared
        found |= {name: default is not False for name in names}
    return found
